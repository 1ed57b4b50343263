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


scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats()
JSON = st.recursive(
    scalars | st.text(), lambda more: st.lists(more, max_size=3) | st.dictionaries(st.text(), more, max_size=3)
)


def assert_same(found: Any, expected: Any) -> None:
    """Equal, with the types of all values; NaN equals NaN, and nothing else."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_same(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected or (expected != expected and found != found)


@ours.examples(0.03)
@given(attributes=st.dictionaries(st.text(), JSON, max_size=4), changes=st.dictionaries(st.text(), JSON, max_size=3))
@pytest.mark.parametrize("zarr_format", FORMATS)
def test_any_json_comes_back_from_the_store(zarr_format, attributes, changes):
    store = MemoryStore()
    group = zellige.create_group(store, attributes=attributes, zarr_format=zarr_format)
    assert_same(zellige.open_group(store).attrs.asdict(), attributes)
    group.attrs.update(changes)
    for handle in (group, zellige.open_group(store)):
        assert_same(handle.attrs.asdict(), {**attributes, **changes})


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
    (math.nan, math.nan),
    (-math.inf, -math.inf),
    ("NaN", "NaN"),
    (["Infinity", {"x": "-Infinity"}], ["Infinity", {"x": "-Infinity"}]),
    ([np.float32("inf"), {"x": np.float64("nan")}], [math.inf, {"x": math.nan}]),
    (np.array([np.nan, 1.0, -np.inf]), [math.nan, 1.0, -math.inf]),
    ("\ud800", "\ud800"),
    (10**30, 10**30),
]


@pytest.mark.parametrize(("value", "expected"), CONVERTED, ids=repr)
def test_numpy_and_others_are_converted(value, expected, zarr_format):
    for how in ("created", "set", "updated", "put"):
        store = MemoryStore()
        root = zellige.create_group(store, zarr_format=zarr_format, attributes={"x": value} if how == "created" else {})
        if how == "set":
            root.attrs["x"] = value
        elif how == "updated":
            assert root.update_attributes({"x": value}) is root
        elif how == "put":
            root.attrs.put({"x": value})
        assert_same(zellige.open_group(store).attrs["x"], expected)
        assert_same(root.attrs["x"], expected)  # the handle says what was written


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
    "a number that JSON has not": np.longdouble(1.5),
    "masked": np.ma.masked_array([1, 2], [False, True]),
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


# -- numbers that are not finite ------------------------------------------------------------------

ODD = {"x": math.nan, "y": [-math.inf, {"z": math.inf}], "text": ["NaN", "Infinity"]}
WRITTEN = b'{"x": NaN, "y": [-Infinity, {"z": Infinity}], "text": ["NaN", "Infinity"]}'


def put_odd_group(store: Store, zarr_format: int) -> None:
    """A group as zarr-python writes it, with attributes that are not finite."""
    if zarr_format == 3:
        store.put("zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": ' + WRITTEN + b"}")
    else:
        store.put(".zgroup", b'{"zarr_format": 2}')
        store.put(".zattrs", WRITTEN)


def stored_attributes(store: Store, path: str, zarr_format: int) -> bytes:
    """What is stored between the braces of the attributes."""
    raw = store.get(path + ("zarr.json" if zarr_format == 3 else ".zattrs"))
    assert raw is not None
    found = json.loads(raw)
    return json.dumps(found["attributes"] if zarr_format == 3 else found).encode()


def test_setting_an_attribute_keeps_the_nan_of_others(store, zarr_format):
    put_odd_group(store, zarr_format)
    group = zellige.open_group(store)
    assert_same(group.attrs.asdict(), ODD)
    group.attrs["new"] = 1
    assert stored_attributes(store, "", zarr_format) == WRITTEN[:-1] + b', "new": 1}'
    del group.attrs["new"]
    assert stored_attributes(store, "", zarr_format) == WRITTEN
    assert_same(group.attrs.asdict(), ODD)


def test_every_change_of_an_array_keeps_its_nan(store, zarr_format):
    array = zellige.create_array(store, name="a", shape=4, chunks=2, zarr_format=zarr_format, attributes=ODD)
    assert stored_attributes(store, "a/", zarr_format) == WRITTEN
    array.resize((8,))
    array.append(np.ones(2))
    for copied in (
        zellige.from_array(data=array, store=store, name="b"),
        zellige.copy(array, zellige.open_group(store), name="c") and zellige.open_array(store, path="c"),
    ):
        assert_same(copied.attrs.asdict(), ODD)
        assert stored_attributes(store, copied.path + "/", zarr_format) == WRITTEN
    assert_same(zellige.open_array(store, path="a").attrs.asdict(), ODD)


def test_nan_in_consolidated_metadata(store, zarr_format):
    root = zellige.create_group(store, zarr_format=zarr_format, attributes=ODD)
    root.create_array("a", shape=4, chunks=2, attributes=ODD)
    root.create_group("g", attributes=ODD)
    held = zellige.consolidate_metadata(store)
    held["a"].attrs["new"] = 1
    again = zellige.open_consolidated(store, check=True)
    for found, expected in ((again, ODD), (again["a"], {**ODD, "new": 1}), (again["g"], ODD)):
        assert_same(found.attrs.asdict(), expected)
    # The text "NaN" is something else than the number.
    zellige.open_group(store, path="g").attrs["x"] = "NaN"
    with pytest.raises(zellige.errors.StaleMetadataError, match="'g'"):
        zellige.open_consolidated(store, check=True)


def test_metadata_with_nan_equals_itself(store, zarr_format):
    zellige.create_group(store, zarr_format=zarr_format, attributes=ODD)
    one, two = zellige.open_group(store), zellige.open_group(store)
    assert one.metadata == two.metadata
    two.attrs["x"] = "NaN"
    assert one.metadata != two.metadata


def test_diff_knows_nan_from_its_text():
    one = zellige.create_group(attributes={"x": math.nan, "y": [math.nan], "z": "NaN"})
    two = zellige.create_group(attributes={"x": math.nan, "y": ["NaN"], "z": math.nan})
    assert not zellige.diff(one, zellige.create_group(attributes=one.attrs))
    assert zellige.diff(one, two).metadata == (
        "/: attributes.y: [nan] and ['NaN']",
        "/: attributes.z: 'NaN' and nan",
    )


# -- strict JSON ----------------------------------------------------------------------------------


@pytest.fixture
def strictly():
    with zellige.config.set(strict_json=True):
        yield


NOT_FINITE = {
    "x": math.nan,
    "x.y[1]": {"y": [1, -math.inf]},
    "x[0]": np.array([np.inf, 1.0]),
}


@pytest.mark.parametrize("place", NOT_FINITE)
def test_strict_json_refuses_what_json_cannot_say(store, zarr_format, strictly, place):
    group = zellige.create_group(store, attributes={"kept": 1}, zarr_format=zarr_format)
    group.create_array("a", data=[1, 2])
    before, value = contents(store), {"x": NOT_FINITE[place]}
    for change in (
        lambda: group.attrs.update(value),
        lambda: group.attrs.put(value),
        lambda: group["a"].update_attributes(value),
        lambda: group.create_group("b", attributes=value),
        lambda: group.create_array("a", shape=3, attributes=value, overwrite=True),
        lambda: zellige.create_group(store, attributes=value, overwrite=True),
    ):
        with pytest.raises(MetadataError, match="strict_json") as caught:
            change()
        assert caught.value.field == f"attributes.{place}"
        assert contents(store) == before
    group.attrs["x"] = "NaN"
    group.create_array("f", shape=2, dtype="f4", fill_value=math.nan)  # has a form of its own
    for raw in contents(store).values():
        if raw.startswith(b"{"):
            strict(raw)


def test_strict_json_lets_what_others_wrote_change_and_keeps_it(store, zarr_format):
    put_odd_group(store, zarr_format)
    zellige.create_array(store, name="a", data=[1, 2, 3], chunks=2, zarr_format=zarr_format, attributes=ODD)
    held = zellige.consolidate_metadata(store)
    with zellige.config.set(strict_json=True):
        held.attrs["new"] = 1
        held["a"].attrs["new"] = 1
        held["a"].append([4, 5])
        with pytest.raises(MetadataError, match="strict_json"):
            held["a"].attrs["more"] = math.inf
        again = zellige.open_consolidated(store, check=True)
        assert_same(again.attrs.asdict(), {**ODD, "new": 1})
        assert_same(again["a"].attrs.asdict(), {**ODD, "new": 1})
    assert stored_attributes(store, "a/", zarr_format) == WRITTEN[:-1] + b', "new": 1}'
    assert again["a"][:].tolist() == [1, 2, 3, 4, 5]


def test_strict_json_puts_no_number_of_others_into_a_document_without_any(store, zarr_format):
    root = zellige.create_group(store, zarr_format=zarr_format)
    root.create_array("a", data=[1, 2, 3], attributes=ODD)
    before = contents(store)
    with zellige.config.set(strict_json=True):
        with pytest.raises(MetadataError, match="strict_json") as caught:
            zellige.consolidate_metadata(store)
        assert "a" in caught.value.field
        for make in (
            lambda: zellige.from_array(store, data=root["a"], name="b"),
            lambda: zellige.rechunk(root["a"], store, name="b", chunks=1),
        ):
            with pytest.raises(MetadataError, match=r"attributes\.x.*strict_json"):
                make()
        if zarr_format == 2:
            assert "strict_json" in zellige.migrate(store, dry_run=False).failed["a"]
            assert zellige.migrate(store, undo=True, dry_run=False).failed == {}
    assert contents(store) == before


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
