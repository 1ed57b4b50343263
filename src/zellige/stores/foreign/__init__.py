"""Stores of other libraries: fsspec, zarr-python and icechunk."""
