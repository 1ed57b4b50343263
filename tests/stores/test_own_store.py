"""The store of docs/stores.md, which has nothing but what a store must have: it keeps all laws, by the test there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import zellige
from zellige.stores import Store
from zellige.testing import StoreSuite

_PAGE = (Path(__file__).parents[2] / "docs/stores.md").read_text()
_BLOCKS = re.findall(r"```python\n(.*?)```", _PAGE.partition("## A store of your own")[2], re.DOTALL)
_CODE = _BLOCKS[0]
exec(_CODE, globals())  # here, so that it can be pickled
exec(_BLOCKS[2], globals())  # the test of it, `TestOwnStore`
KINDS = [
    getattr(zellige.storage, name) for name in zellige.storage.__all__ if name.endswith("Store") and name != "Store"
]
OwnStore: type[Store] = globals()["OwnStore"]


def test_the_page_tests_it():
    assert issubclass(globals()["TestOwnStore"], StoreSuite)


def test_it_is_as_short_as_the_page_says():
    assert _CODE.partition("class OwnStore")[2].count("\n") < 45
    own = {name for name in vars(OwnStore) if not name.startswith("_")}
    assert own == {"read", "write", "delete", "list", "identity"}


DERIVED = ("get", "get_range", "size", "exists", "list_dir", "put", "create", "replace", "update", "splice")
DERIVED += ("delete_prefix", "read_only", "with_concurrency", "__enter__", "__eq__", "__hash__")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_what_is_made_of_the_five_methods_is_made_once(kind):
    assert issubclass(kind, Store)
    assert set(vars(kind)).isdisjoint(DERIVED)


def test_arrays_and_groups_live_in_it():
    root = zellige.create_group(OwnStore())
    array = root.create_array("t", data=np.arange(59), chunks=[[31, 28]])
    array[30:40] = -1
    array.append(np.arange(5))
    root.move("t", "m")
    assert zellige.open(root.store.as_read_only(), path="m")[28:].tolist() == [
        28,
        29,
        *[-1] * 10,
        *range(40, 59),
        *range(5),
    ]
    del root["m"]
    assert list(root.store.list()) == ["zarr.json"]
