"""Data types: one table from names in documents to numpy, with exact fill values."""

from zellige.dtypes.table import DataType, from_json, from_numpy, parse_dtype

__all__ = ["DataType", "from_json", "from_numpy", "parse_dtype"]
