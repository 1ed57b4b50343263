"""For all tests: nobody asks the metadata service of the machine for credentials, nor do the processes they start."""

import os

os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
