"""Tests of what others write for zellige: a store of your own keeps the laws of `StoreSuite`.

Needs pytest, which is imported on first use.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zellige.testing.stores import StoreSuite

__all__ = ["StoreSuite"]

if pytest := sys.modules.get("pytest"):  # whose assertions then show the values
    pytest.register_assert_rewrite("zellige.testing.stores")


def __getattr__(name: str) -> object:
    if name != "StoreSuite":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from zellige.testing.stores import StoreSuite
    except ModuleNotFoundError as error:
        raise ImportError("zellige.testing needs pytest; run: pip install pytest") from error
    return StoreSuite
