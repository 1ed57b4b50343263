"""The servers that tests of stores share."""

from servers import s3, s3_process, web

__all__ = ["s3", "s3_process", "web"]
