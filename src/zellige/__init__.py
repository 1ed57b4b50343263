"""zellige: Zarr arrays with chunks of any size."""

__version__ = "0.1.0"
