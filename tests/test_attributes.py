"""Attributes of groups: any JSON, and nothing else, comes back as it was written."""

from __future__ import annotations

import enum
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies as ours
import zellige
from counting_store import contents
from families import FORMATS, strict
from zellige.errors import MetadataError
from zellige.stores import LocalStore, MemoryStore, Store


@pytest.fixture(params=["memory", "local"])
def store(request, tmp_path) -> Store:
    return MemoryStore() if request.param == "memory" else LocalStore(tmp_path / "root")


@pytest.fixture(params=FORMATS, ids=["v3", "v2"])
def zarr_format(request) -> int:
    return request.param


scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    scalars | st.text(), lambda more: st.lists(more, max_size=3) | st.dictionaries(st.text(), more, max_size=3)
)


@ours.examples(0.03)
@given(attributes=st.dictionaries(st.text(), JSON, max_size=4), changes=st.dictionaries(st.text(), JSON, max_size=3))
@pytest.mark.parametrize("zarr_format", FORMATS)
def test_any_json_comes_back_from_the_store(zarr_format, attributes, changes):
    store = MemoryStore()
    group = zellige.create_group(store, attributes=attributes, zarr_format=zarr_format)
    assert zellige.open_group(store).attrs.asdict() == attributes
    group.attrs.update(changes)
    for handle in (group, zellige.open_group(store)):
        assert handle.attrs.asdict() == {**attributes, **changes}
    for raw in contents(store).values():
        strict(raw)


class Colour(enum.IntEnum):
    RED = 3


CONVERTED: list[tuple[Any, Any]] = [
    (np.int8(-5), -5),
    (np.uint64(2**64 - 1), 2**64 - 1),
    (np.float32(0.5), 0.5),
    (np.float16(0.5), 0.5),
    (np.bool_(True), True),
    (np.str_("x"), "x"),
    (np.arange(3), [0, 1, 2]),
    (np.array(5.5), 5.5),
    (np.array([[True], [False]]), [[True], [False]]),
    (np.array(["a", "bc"]), ["a", "bc"]),
    ([np.int16(1), (np.float64(2.5), None)], [1, [2.5, None]]),
    ({"a": {"b": np.array([1.5])}}, {"a": {"b": [1.5]}}),
    ((), []),
    (Colour.RED, 3),
    (math.nan, "NaN"),
    (-math.inf, "-Infinity"),
    ([np.float32("inf"), {"x": np.float64("nan")}], ["Infinity", {"x": "NaN"}]),
    (np.array([np.nan, 1.0, -np.inf]), ["NaN", 1.0, "-Infinity"]),
    ("\ud800", "\ud800"),
    (10**30, 10**30),
]


@pytest.mark.parametrize(("value", "expected"), CONVERTED, ids=repr)
def test_numpy_and_others_are_converted_and_never_break_the_document(value, expected, zarr_format):
    for how in ("created", "set", "updated", "put"):
        store = MemoryStore()
        root = zellige.create_group(store, zarr_format=zarr_format, attributes={"x": value} if how == "created" else {})
        if how == "set":
            root.attrs["x"] = value
        elif how == "updated":
            assert root.update_attributes({"x": value}) is root
        elif how == "put":
            root.attrs.put({"x": value})
        found = zellige.open_group(store).attrs["x"]
        assert (type(found), found) == (type(expected), expected)
        assert root.attrs["x"] == found  # the handle says what was written
        for raw in contents(store).values():
            strict(raw)


def circular() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


NOT_JSON = {
    "object": object(),
    "set": {1, 2},
    "bytes": b"abc",
    "complex": 1j,
    "numpy complex": np.complex64(1j),
    "datetime": np.datetime64("2024-01-01"),
    "a type": int,
    "a function": len,
    "within": {"a": [1, {"b": object()}]},
    "an integer key": {1: 2},
    "a None key": {"a": {None: 2}},
    "an array": np.array([object()]),
    "a structure": np.zeros(2, [("a", "i4"), ("b", "S3")]),
    "a circle": circular(),
}


@pytest.mark.parametrize("what", NOT_JSON)
@pytest.mark.parametrize("zarr_format", FORMATS)
def test_what_is_not_json_is_refused_and_nothing_changes(what, zarr_format):
    store = MemoryStore()
    group = zellige.create_group(store, attributes={"kept": 1}, zarr_format=zarr_format)
    before = contents(store)
    value = NOT_JSON[what]
    for change in (
        lambda: group.attrs.__setitem__("x", value),
        lambda: group.update_attributes({"good": 1, "x": value}),
        lambda: group.attrs.put({"x": value}),
        lambda: group.create_group("new", attributes={"x": value}),
        lambda: group.create_array("new", shape=1, attributes={"x": value}),
        lambda: zellige.create_group(store, path="new", attributes={"x": value}, zarr_format=zarr_format),
    ):
        with pytest.raises((MetadataError, TypeError)):
            change()
        assert contents(store) == before
        assert group.attrs.asdict() == {"kept": 1}


@pytest.mark.parametrize("given", [[("a", 1)], [1], "abc", 5, True, np.arange(3), {1, 2}], ids=repr)
@pytest.mark.parametrize("zarr_format", FORMATS)
def test_attributes_that_are_no_dict_are_refused_and_nothing_changes(given, zarr_format):
    store = MemoryStore()
    group = zellige.create_group(store, attributes={"kept": 1}, zarr_format=zarr_format)
    before = contents(store)
    for change in (
        lambda: group.create_group("new", attributes=given),
        lambda: group.create_array("new", shape=1, dtype="int8", attributes=given),
        lambda: zellige.create_group(store, path="new", attributes=given),
        lambda: zellige.open_group(store, path="new", attributes=given),
        lambda: zellige.create_array(store, name="new", shape=1, attributes=given),
        lambda: group.attrs.put(given),
    ):
        with pytest.raises((MetadataError, TypeError)):
            change()
        assert contents(store) == before
    assert group.attrs == {"kept": 1}


def test_a_copy_of_the_attributes_is_a_copy(zarr_format):
    group = zellige.create_group(attributes={"x": [1], "y": {"z": [2]}}, zarr_format=zarr_format)
    copy = group.attrs.asdict()
    copy["x"].append(9)
    copy["y"]["z"].append(9)
    copy["new"] = 1
    assert group.attrs == {"x": [1], "y": {"z": [2]}}


@pytest.mark.parametrize("key", [5, None, ("a",), b"x"])
def test_names_of_attributes_are_strings(key):
    group = zellige.create_group()
    with pytest.raises((MetadataError, TypeError)):
        group.attrs[key] = 1
    assert contents(group.store).keys() == {"zarr.json"}
    assert key not in group.attrs


def test_attributes_are_a_dict_whose_changes_are_stored(store, zarr_format):
    group = zellige.create_group(store, zarr_format=zarr_format)
    model: dict[str, Any] = {}

    def same() -> bool:
        return group.attrs == model and zellige.open_group(store).attrs == model and dict(group.attrs) == model

    for attrs in (group.attrs, model):
        attrs["a"] = 1
        attrs.update({"b": [2], "c": None}, d="x")
        assert attrs.setdefault("a", 5) == 1
        assert attrs.setdefault("e", 5) == 5
        assert attrs.pop("b") == [2]
        assert attrs.pop("b", "gone") == "gone"
        del attrs["c"]
        for method in (attrs.__delitem__, attrs.__getitem__, attrs.pop):
            with pytest.raises(KeyError):
                method("absent")
    assert same()
    assert len(group.attrs) == 3
    assert "a" in group.attrs
    assert "absent" not in group.attrs
    group.attrs.clear()
    model.clear()
    assert same()
    group.attrs.put({"only": 1})
    model["only"] = 1
    assert same()


def test_a_change_of_attributes_keeps_what_is_not_understood(store):
    extra = {"must_understand": False, "x": [1, 2]}
    store.put("zarr.json", json.dumps({"zarr_format": 3, "node_type": "group", "extra": extra}).encode())
    group = zellige.open_group(store)
    group.attrs["a"] = 1
    assert strict(store.get("zarr.json")) == {
        "zarr_format": 3,
        "node_type": "group",
        "extra": extra,
        "attributes": {"a": 1},
    }


def test_attributes_that_others_wrote_with_literal_constants_become_json(store):
    store.put("zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": {"x": NaN, "y": [-Infinity]}}')
    group = zellige.open_group(store)
    assert math.isnan(group.attrs["x"])
    assert group.attrs["y"] == [-math.inf]
    group.attrs["z"] = 1
    assert strict(store.get("zarr.json"))["attributes"] == {"x": "NaN", "y": ["-Infinity"], "z": 1}


def test_two_handles_do_not_undo_each_other(store, zarr_format):
    one = zellige.create_group(store, zarr_format=zarr_format)
    two = zellige.open_group(store)
    one.attrs["a"] = 1
    two.attrs["b"] = 2
    one.attrs["c"] = 3
    assert dict(one.attrs) == {"a": 1, "b": 2, "c": 3}
    assert dict(two.attrs) == {"a": 1, "b": 2}
    two.refresh()
    assert two.attrs == one.attrs
    assert two == one
