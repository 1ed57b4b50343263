"""Codecs that are rarely met: those of the registry of extensions that only some libraries have, and of N5 and zarrs."""
