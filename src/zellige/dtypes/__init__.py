"""Data types: one table from names in metadata to numpy, with exact fill values."""

from zellige.dtypes.base import DataType
from zellige.dtypes.table import from_json, from_numpy, parse_dtype

__all__ = ["DataType", "from_json", "from_numpy", "parse_dtype"]
