"""Work on whole hierarchies: copying, rechunking, migrating, converting, checking, repairing, comparing."""
