"""Codecs that are rarely met: extensions that few libraries have, those of N5 and zarrs, and formats of numbers."""
