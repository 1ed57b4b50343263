"""Whole hierarchies, in both formats: zarr-python opens what we wrote, and we what it wrote, with nothing lost.

The same calls make them with either library. One array of each kind in a nested group; a tree with attributes;
changes made by one library and seen by the other; consolidated metadata or none. TensorStore reads our arrays of
format 2, and we read those that it makes.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numcodecs
import numpy as np
import pytest

import zellige

zarr = pytest.importorskip("zarr", reason="the peer zarr-python is missing: pip install 'zarr>=3.1'")

# What the peer cannot do, or does wrong. Cases that need it are skipped with this reason.
LIMITS: dict[str, str] = {
    "v3 type V4 ours": "zarr-python does not know the raw types r<N>",
}


@contextlib.contextmanager
def speaking(library: ModuleType) -> Iterator[None]:
    """The peer warns of types without a specification; ours has nothing to warn of."""
    with warnings.catch_warnings():
        if library is zarr:
            warnings.simplefilter("ignore")
        yield


def other(library: ModuleType) -> ModuleType:
    return zarr if library is zellige else zellige


both_formats = pytest.mark.parametrize("zarr_format", [2, 3], ids=["v2", "v3"])
both_writers = pytest.mark.parametrize("writer", [zellige, zarr], ids=["ours", "theirs"])
consolidated_or_not = pytest.mark.parametrize("consolidated", [False, True], ids=["plain", "consolidated"])


# -- arrays of every kind -------------------------------------------------------------------------


class Case(NamedTuple):
    """An array: what it is made from, and what it should hold."""

    options: dict[str, Any]
    values: np.ndarray
    shown: np.ndarray | None = None
    """What is read again, where it is not what was written."""
    fill: Any = "as given"

    @property
    def expected(self) -> np.ndarray:
        return self.values if self.shown is None else self.shown


def numbers(dtype: Any, shape: tuple[int, ...] = (7, 5)) -> np.ndarray:
    count = np.arange(int(np.prod(shape)), dtype="i8").reshape(shape)
    if np.dtype(dtype).kind == "c":
        return (count - 1j * count / 2).astype(dtype)
    return (count % 3 == 0 if np.dtype(dtype).kind == "b" else count).astype(dtype)


def case(values: Any, chunks: Any = (3, 2), fill: Any = "as given", shown: Any = None, **options: Any) -> Case:
    values = np.asarray(values)
    chunks = chunks if isinstance(chunks, int) or len(chunks) == values.ndim else (2,) * values.ndim
    return Case({"shape": values.shape, "dtype": values.dtype, "chunks": chunks, **options}, values, shown, fill)


def objects(*values: Any) -> np.ndarray:
    found = np.empty(len(values), object)
    found[:] = values
    return found


TEXT = np.array(["a", "", "Ελλάδα", "日本語 " * 9, "a\0b", "🌊"], np.dtypes.StringDType())
DAYS = np.array(["1970-01-01", "NaT", "2024-02-29", "1816-12-31"], "M8[D]")
STRUCT = np.dtype([("n", "<i4"), ("x", "<f8"), ("s", "S3"), ("b", "?")])
STRUCTS = np.array([(k, k / 2, b"ab"[: k % 3], k % 2) for k in range(5)], STRUCT)
RAMP = np.arange(60, dtype="i4").reshape(10, 6) ** 2

ANY: dict[str, Case] = {  # in either format
    **{
        f"type {dtype}": case(numbers(dtype))
        for dtype in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
    },
    "type U5": case(["abc", "", "Ελλάδ", "日本"]),
    "type S3": case([b"abc", b"", b"\xff\x00x", b"y"]),
    "type V4": case(np.array([b"abcd", b"\0\0\0\0", b"\xff\0\0\1"], "V4")),
    "type M8[D]": case(DAYS),
    "type M8[ns]": case(DAYS[[0, 1, 2]].astype("M8[ns]")),
    "type M8[10us]": case(np.array([1, -1, 2**60], "M8[10us]")),
    "type m8[s]": case(np.array([1, -1, "NaT", 10**10], "m8[s]")),
    "fill nan": case([1.5, np.nan, 2.5, np.nan, np.nan], fill_value=np.nan),
    "fill inf": case(numbers("f4"), fill_value=np.inf),
    "fill -inf": case(numbers("f8"), fill_value=-np.inf),
    "fill -0.0": case([0.0, -0.0, 1.0], fill_value=-0.0),
    "fill 0.1": case(numbers("f4"), fill_value=np.float32(0.1)),
    "fill true": case([True, True, False], fill_value=True),
    "fill largest": case(numbers("u8"), fill_value=2**64 - 1),
    "fill smallest": case(numbers("i8"), fill_value=-(2**63)),
    "fill complex": case(numbers("c16"), fill_value=1.5 - 2j),
    "fill complex nan": case(numbers("c8"), fill_value=complex(np.nan, np.inf)),
    "fill text": case(["ab", "äö", "ß"], fill_value="äö"),
    "fill bytes": case([b"ab", b"xyz"], fill_value=b"ab"),
    "fill date": case(DAYS, fill_value=np.datetime64("2024-02-29", "D")),
    "fill NaT": case(DAYS, fill_value=np.datetime64("NaT", "D")),
    "fill span": case(np.array([1, 7], "m8[s]"), fill_value=np.timedelta64(7, "s")),
    "rank 0": case(np.float64(2.5), ()),
    "rank 0 of text": case(np.array("text"), ()),
    "rank 1": case(np.arange(9), 4),
    "rank 3": case(numbers("i2", (3, 4, 5)), (2, 3, 2)),
    "rank 5": case(numbers("u1", (2, 3, 1, 2, 3)), (1, 2, 1, 2, 2)),
    "no elements": case(np.zeros((0,), "i4"), 3),
    "no rows": case(np.zeros((0, 4), "f4"), (2, 3)),
    "no columns": case(np.zeros((4, 0), "f4"), (2, 3)),
    "chunk beyond array": case(numbers("i4", (3, 2)), (5, 2)),
    "one chunk": case(numbers("i4"), (7, 5)),
    "chunks of one": case(numbers("i4", (3, 2)), (1, 1)),
    "with attributes": case(numbers("i4"), attributes={"units": "m s⁻¹", "nested": {"a": [1, None, {"b": True}]}}),
}

COMPRESSORS = {
    "none": None,
    "blosc": numcodecs.Blosc(),
    **{f"blosc {name}": numcodecs.Blosc(name, 3, numcodecs.Blosc.BITSHUFFLE) for name in ("lz4hc", "blosclz", "zstd")},
    "blosc zlib": numcodecs.Blosc("zlib", 1, numcodecs.Blosc.NOSHUFFLE, 256),
    "blosc automatic": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.AUTOSHUFFLE),
    "zlib": numcodecs.Zlib(7),
    "gzip": numcodecs.GZip(1),
    "bz2": numcodecs.BZ2(2),
    "lzma": numcodecs.LZMA(preset=1),
    "lz4": numcodecs.LZ4(3),
    "zstd": numcodecs.Zstd(5),
    "zstd checksum": numcodecs.Zstd(5, True),
}
WAVE = np.sin(np.linspace(0, 9, 60)).reshape(10, 6)
FILTERS: dict[str, Any] = {
    "delta": (RAMP, [numcodecs.Delta("i4")]),
    "delta astype": (RAMP.astype("<i8"), [numcodecs.Delta("<i8", astype="<i4")]),
    "fixedscaleoffset": (
        np.round(WAVE, 2),
        [numcodecs.FixedScaleOffset(offset=-1, scale=100, dtype="<f8", astype="<u2")],
    ),
    "quantize": (WAVE, [numcodecs.Quantize(3, "<f8")]),
    "bitround": (WAVE.astype("f4"), [numcodecs.BitRound(5)]),
    "astype": (RAMP.astype("<i8"), [numcodecs.AsType("<i4", "<i8")]),
    "packbits": (numbers("?"), [numcodecs.PackBits()]),
    "shuffle": (RAMP, [numcodecs.Shuffle(4)]),
    "categorize": (
        np.array(["low", "high", "low", "high", "low"]),
        [numcodecs.Categorize(["low", "high"], dtype="<U4", astype="u1")],
    ),
    "crc32": (RAMP, [numcodecs.CRC32()]),
    "adler32": (RAMP, [numcodecs.Adler32()]),
    "fletcher32": (RAMP, [numcodecs.Fletcher32()]),
    "base64": (RAMP, [numcodecs.Base64()]),
    "several": (RAMP, [numcodecs.Delta("i4"), numcodecs.Shuffle(4), numcodecs.Zlib(1), numcodecs.CRC32()]),
}


def filtered(values: np.ndarray, filters: list[Any]) -> Case:
    """What filters that lose something make of the values is asked of numcodecs, chunk by chunk."""
    if filters[0].codec_id not in ("quantize", "bitround", "fixedscaleoffset"):
        return case(values, (4, 3), filters=filters)
    shown = values.copy()
    for i in range(0, 10, 4):
        for j in range(0, 6, 3):
            part = np.ascontiguousarray(values[i : i + 4, j : j + 3])
            decoded = np.asarray(filters[0].decode(filters[0].encode(part))).view(values.dtype)
            shown[i : i + 4, j : j + 3] = decoded.reshape(part.shape)
    return case(values, (4, 3), shown=shown, filters=filters)


SLASH = {"name": "v2", "separator": "/"}
V2: dict[str, Case] = {
    **{f"compressor {name}": case(RAMP, (4, 3), compressors=codec) for name, codec in COMPRESSORS.items()},
    **{f"filter {name}": filtered(*found) for name, found in FILTERS.items()},
    "big-endian": case(numbers(">i4")),
    "big-endian floats": case(numbers(">f8"), compressors=numcodecs.Zlib(1), fill_value=np.nan),
    "big-endian text": case(np.array(["abc", "ü"], ">U3")),
    "big-endian dates": case(DAYS.astype(">M8[D]")),
    "order F": case(numbers("i4"), order="F"),
    "order F, rank 3": case(numbers("f8", (3, 4, 5)), (2, 3, 2), order="F", compressors=numcodecs.Zlib(1)),
    "order F, filter": case(RAMP, (4, 3), order="F", filters=[numcodecs.Delta("i4")]),
    "separator": case(numbers("i4"), chunk_key_encoding=SLASH),
    "separator, rank 1": case(np.arange(9), 4, chunk_key_encoding=SLASH),
    "separator, rank 0": case(np.int16(3), (), chunk_key_encoding=SLASH),
    "structs": case(STRUCTS),
    "structs of mixed byte orders": case(STRUCTS[["n", "x"]].astype([("n", ">i4"), ("x", "<f8")])),
    "fill struct": case(STRUCTS, fill_value=STRUCTS[3]),
    "no fill value": case([0, 1, 2, 0, 0], fill=None, fill_value=None),
    "no fill value, floats": case([0.0, 1.5, np.nan], fill=None, fill_value=None),
    "text": case(TEXT, filters=[numcodecs.VLenUTF8()], fill_value=""),
    "text by default": case(TEXT, fill_value=""),
    "text, filled": case(TEXT, filters=[numcodecs.VLenUTF8()], compressors=None, fill_value="–"),
    "text, no fill value": case(TEXT, filters=[numcodecs.VLenUTF8()], fill=None, fill_value=None),
    "bytes": case(objects(b"a", b"", b"\0\xff" * 30), dtype="VariableLengthBytes", filters=[numcodecs.VLenBytes()]),
}

GZIP = {"name": "gzip", "configuration": {"level": 1}}
V3: dict[str, Case] = {
    "compressor none": case(RAMP, (4, 3), compressors=None),
    "compressor gzip": case(RAMP, (4, 3), compressors=GZIP),
    "compressor and checksum": case(RAMP, (4, 3), compressors=[GZIP, {"name": "crc32c"}]),
    "big-endian": case(numbers("i4"), serializer={"name": "bytes", "configuration": {"endian": "big"}}),
    "transposed": case(numbers("i4"), filters={"name": "transpose", "configuration": {"order": [1, 0]}}),
    "keys with dots": case(numbers("i4"), chunk_key_encoding={"name": "default", "separator": "."}),
    "keys of v2": case(numbers("i4"), chunk_key_encoding=SLASH),
    "shards": case(numbers("i4", (9, 8)), (2, 2), shards=(4, 4)),
    "shards of text": case(TEXT, (1,), shards=(4,)),
    "names": case(numbers("i4"), dimension_names=["y", None]),
    "text": case(TEXT, fill_value="–"),
    "order F": case(numbers("i4"), order="F"),
}

CASES = [
    *((2, name) for name in {**ANY, **V2}),
    *((3, name) for name in {**ANY, **V3}),
]
every_case = pytest.mark.parametrize(("zarr_format", "name"), CASES, ids=[f"v{f} {name}" for f, name in CASES])


def the_case(zarr_format: int, name: str) -> Case:
    return {**ANY, **(V2 if zarr_format == 2 else V3)}[name]


def options_for(library: ModuleType, given: Case) -> dict[str, Any]:
    """The arguments of `create_array`; a type without a common name by its class."""
    dtype = given.options["dtype"]
    return {**given.options, "dtype": getattr(library.dtype, dtype)() if isinstance(dtype, str) else dtype}


def fill_of(array: Any) -> Any:
    """A fill value in a form that compares; what a document does not say shows as None there, and as zero here."""
    if array.metadata.to_dict()["fill_value"] is None:
        return None
    return np.asarray(array.fill_value, array.dtype).astype(native(array.dtype))


def native(dtype: np.dtype) -> np.dtype:
    return dtype if dtype.kind in "TO" else dtype.newbyteorder("=")


def assert_same(found: Any, expected: Any) -> None:
    """Equal to the bit, up to byte order."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert (native(found.dtype), found.shape) == (native(expected.dtype), expected.shape)
    np.testing.assert_array_equal(found, expected)
    if not (found.dtype.hasobject or found.dtype.kind == "T"):
        assert found.astype(native(found.dtype)).tobytes() == expected.astype(native(expected.dtype)).tobytes()


@consolidated_or_not
@both_writers
@every_case
def test_an_array_in_a_group_is_the_same_for_both(tmp_path, writer, zarr_format, name, consolidated):
    if (key := f"v{zarr_format} {name} {'ours' if writer is zellige else 'theirs'}") in LIMITS:
        pytest.skip(LIMITS[key])
    given, reader = the_case(zarr_format, name), other(writer)
    with speaking(writer):
        root = writer.create_group(tmp_path, zarr_format=zarr_format)
        made = root.create_array("some/where/a", **options_for(writer, given))
        made[...] = given.values
        fill = fill_of(made)
        if consolidated:
            writer.consolidate_metadata(tmp_path)
    with speaking(reader):
        root = reader.open_group(tmp_path, mode="r", use_consolidated=consolidated)
        found = root["some/where/a"]
        assert_same(found[...], given.expected)
        assert (found.shape, found.chunks, found.shards) == (made.shape, made.chunks, made.shards)
        assert found.metadata.zarr_format == zarr_format
        assert found.order == given.options.get("order", "C") or zarr_format == 3  # there a matter of the handle
        assert dict(found.attrs) == given.options.get("attributes", {})
        if zarr_format == 3:
            assert found.metadata.dimension_names == made.metadata.dimension_names
        if given.fill is None and writer is zarr:
            assert fill is fill_of(found) is None
        else:
            assert_same(fill_of(found), fill)
            if given.options.get("fill_value") is not None:  # None is the type's zero for us
                assert_same(fill, np.asarray(given.options["fill_value"]).astype(found.dtype))


# -- trees and attributes -------------------------------------------------------------------------

ATTRIBUTES: dict[str, Any] = {
    "empty": {},
    "text": {
        "title": "Grüße – 東京 🌊",
        "": "empty key",
        "a/b.c": "name with signs",
        "ключ": "значение",
        "q": 'a"b\\c\n',
    },
    "numbers": {"n": 0, "big": 2**53, "negative": -(2**63), "x": 0.1, "whole": 1.0, "tiny": 5e-324, "huge": 1e308},
    "nested": {"a": {"b": [1, [2, {"c": None}], []], "d": {}}, "flags": [True, False], "nothing": None},
    "others": {"_ARRAY_DIMENSIONS": ["x"], "zarr_format": 7, "attributes": {"shape": [1]}, "node_type": "not this"},
}
TREE = {
    "a": "text",
    "a/b": "nested",
    "a/b/c": "empty",
    "a/b/c/x": "array",
    "a/b/y": "array",
    "a-group with spaces": "numbers",
    "dots.in.name": "others",
    "empty": "empty",
    "größe": "text",
    "größe/日本": "array",
    "x": "array",
    "z_": "array",
}


def build(library: ModuleType, place: Path, zarr_format: int, *, consolidated: bool = False) -> None:
    with speaking(library):
        root = library.create_group(place, zarr_format=zarr_format, attributes=ATTRIBUTES["nested"])
        for k, (path, kind) in enumerate(TREE.items()):
            if kind == "array":
                array = root.create_array(path, shape=(k + 1, 3), chunks=(2, 3), dtype="i4")
                array[...] = k
                array.attrs.update({"k": k, "list": [k, None]})
            else:
                root.create_group(path, attributes=ATTRIBUTES[kind])
        if consolidated:
            library.consolidate_metadata(place)


def contents(root: Any, library: ModuleType) -> dict[str, Any]:
    """Everything about all nodes, by path."""
    return {"": dict(root.attrs)} | {
        path: ("array", dict(node.attrs), node.shape, node.chunks, node[...].tolist())
        if isinstance(node, library.Array)
        else ("group", dict(node.attrs))
        for path, node in root.members(max_depth=None)
    }


def expected_tree() -> dict[str, Any]:
    return {"": ATTRIBUTES["nested"]} | {
        path: ("array", {"k": k, "list": [k, None]}, (k + 1, 3), (2, 3), np.full((k + 1, 3), k).tolist())
        if kind == "array"
        else ("group", ATTRIBUTES[kind])
        for k, (path, kind) in enumerate(TREE.items())
    }


@consolidated_or_not
@both_formats
@both_writers
def test_trees_are_the_same_for_both(tmp_path, writer, zarr_format, consolidated):
    build(writer, tmp_path, zarr_format, consolidated=consolidated)
    for library in (zellige, zarr):
        with speaking(library):
            for use in (True, False, None) if consolidated else (False, None):
                root = library.open_group(tmp_path, mode="r", use_consolidated=use)
                assert contents(root, library) == expected_tree()


@consolidated_or_not
@both_formats
@both_writers
def test_every_node_opens_by_its_path(tmp_path, writer, zarr_format, consolidated):
    build(writer, tmp_path, zarr_format, consolidated=consolidated)
    reader = other(writer)
    for path, kind in TREE.items():
        with speaking(reader):
            node = reader.open(tmp_path, path=path, mode="r")
            assert isinstance(node, reader.Array if kind == "array" else reader.Group)
            assert node.name == f"/{path}"
            assert path in reader.open_group(tmp_path, mode="r")
            assert reader.open(tmp_path / path, mode="r").shape if kind == "array" else True


@both_formats
@both_writers
def test_groups_in_the_middle_are_consolidated_alone(tmp_path, writer, zarr_format):
    build(writer, tmp_path, zarr_format)
    with speaking(writer):
        writer.consolidate_metadata(tmp_path, path="a")
    reader = other(writer)
    with speaking(reader):
        group = reader.open_group(tmp_path, path="a", mode="r", use_consolidated=True)
        assert sorted(path for path, _ in group.members(max_depth=None)) == ["b", "b/c", "b/c/x", "b/y"]
        assert group["b/c/x"][0, 0] == list(TREE).index("a/b/c/x")
        assert contents(reader.open_group(tmp_path, mode="r"), reader) == expected_tree()


@both_formats
@both_writers
def test_numbers_in_attributes_keep_their_kind(tmp_path, writer, zarr_format):
    given = ATTRIBUTES["numbers"] | {"beyond": 2**64, "minus zero": -0.0}
    with speaking(writer):
        writer.create_group(tmp_path, zarr_format=zarr_format, attributes=given)
    reader = other(writer)
    found = dict(reader.open_group(tmp_path, mode="r").attrs)
    assert {key: repr(value) for key, value in found.items()} == {key: repr(value) for key, value in given.items()}


@both_formats
@both_writers
def test_numbers_in_attributes_that_are_not_finite(tmp_path, writer, zarr_format):
    given = {"missing": float("nan"), "range": [float("-inf"), float("inf")]}
    with speaking(writer):
        writer.create_array(tmp_path, shape=3, dtype="f4", zarr_format=zarr_format, attributes=given)
    reader = other(writer)
    found = dict(reader.open_array(tmp_path, mode="r").attrs)
    assert repr(found) == repr(given)


@both_formats
@both_writers
@pytest.mark.parametrize("consolidated", [False, True])
def test_members_whose_names_begin_with_underscores(tmp_path, writer, zarr_format, consolidated):
    with speaking(writer):
        root = writer.create_group(tmp_path, zarr_format=zarr_format)
        root.create_array("obs/__categories/cell", shape=2, dtype="i4")[:] = [7, 8]
        if consolidated:
            writer.consolidate_metadata(tmp_path)
    with speaking(zarr):
        for library in (zarr, zellige):
            found = library.open_group(tmp_path, mode="r")
            assert sorted(name for name, _ in found.members(max_depth=None)) == [
                "obs",
                "obs/__categories",
                "obs/__categories/cell",
            ]
            assert found["obs/__categories/cell"][:].tolist() == [7, 8]


# -- one library changes what the other made ------------------------------------------------------


def change(library: ModuleType, root: Any) -> None:
    """Something of everything."""
    with speaking(library):
        x = root["x"]
        x.append(np.full((2, 3), 99, "i4"))
        x.attrs["changed"] = "über"
        x[0] = -1
        root["a/b/y"].resize((2, 2))
        root.attrs["changed"] = {"by": ["somebody", 1]}
        root["a/b"].attrs.update({"more": 1})
        del root["a"].attrs["title"]
        del root["größe/日本"]
        del root["empty"]
        del root["z_"]
        root.create_array("new/deep", shape=(3,), chunks=(2,), dtype="f8", fill_value=np.nan)[1] = 5.5
        root["a/b/c"].create_group("added", attributes={"k": [1]})
        root.create_array("a/b/c/x", shape=(4,), chunks=(4,), dtype="u1", overwrite=True)


def changed_tree() -> dict[str, Any]:
    tree = expected_tree()
    k = list(TREE).index("x")
    values = [[-1] * 3, *([[k] * 3] * k), [99] * 3, [99] * 3]
    tree["x"] = ("array", {"k": k, "list": [k, None], "changed": "über"}, (k + 3, 3), (2, 3), values)
    y = list(TREE).index("a/b/y")
    tree["a/b/y"] = ("array", {"k": y, "list": [y, None]}, (2, 2), (2, 3), [[y] * 2] * 2)
    tree[""] = {**tree[""], "changed": {"by": ["somebody", 1]}}
    tree["a/b"] = ("group", {**tree["a/b"][1], "more": 1})
    tree["a"] = ("group", {key: value for key, value in tree["a"][1].items() if key != "title"})
    for gone in ("größe/日本", "empty", "z_"):
        del tree[gone]
    tree["new"] = ("group", {})
    tree["new/deep"] = ("array", {}, (3,), (2,), [np.nan, 5.5, np.nan])
    tree["a/b/c/added"] = ("group", {"k": [1]})
    tree["a/b/c/x"] = ("array", {}, (4,), (4,), [0, 0, 0, 0])
    return tree


def assert_changed(library: ModuleType, place: Path, use_consolidated: bool | None) -> None:
    with speaking(library):
        found = contents(library.open_group(place, mode="r", use_consolidated=use_consolidated), library)
    np.testing.assert_equal(found, changed_tree())


@both_formats
@pytest.mark.parametrize("changer", [zellige, zarr], ids=["we change", "they change"])
@both_writers
def test_changes_are_seen_by_both(tmp_path, writer, changer, zarr_format):
    build(writer, tmp_path, zarr_format)
    change(changer, changer.open_group(tmp_path, mode="r+"))
    for library in (zellige, zarr):
        assert_changed(library, tmp_path, use_consolidated=False)


@both_formats
@both_writers
def test_our_changes_reach_consolidated_metadata(tmp_path, writer, zarr_format):
    build(writer, tmp_path, zarr_format, consolidated=True)
    change(zellige, zellige.open_group(tmp_path, mode="r+"))
    for library in (zellige, zarr):
        for use in (True, False, None):
            assert_changed(library, tmp_path, use_consolidated=use)
    zellige.open_consolidated(tmp_path, check=True)


@both_formats
def test_our_changes_reach_consolidated_metadata_that_is_not_used(tmp_path, zarr_format):
    build(zellige, tmp_path, zarr_format, consolidated=True)
    change(zellige, zellige.open_group(tmp_path, mode="r+", use_consolidated=False))
    zellige.open_consolidated(tmp_path, check=True)
    assert_changed(zarr, tmp_path, use_consolidated=True)


@both_formats
@both_writers
def test_their_changes_are_seen_after_consolidating_again(tmp_path, writer, zarr_format):
    build(writer, tmp_path, zarr_format, consolidated=True)
    change(zarr, zarr.open_group(tmp_path, mode="r+", use_consolidated=False))
    with pytest.raises(ValueError, match="consolidated metadata"):  # stale, or removed
        zellige.open_consolidated(tmp_path, check=True)
    assert_changed(zellige, tmp_path, use_consolidated=False)
    for library in (zarr, zellige):
        with speaking(library):
            library.consolidate_metadata(tmp_path)
        for reader in (zellige, zarr):
            assert_changed(reader, tmp_path, use_consolidated=True)
        zellige.open_consolidated(tmp_path, check=True)


@both_formats
def test_an_array_in_a_stale_place_reads_as_it_was(tmp_path, zarr_format):
    """What consolidated metadata says is believed, with either library."""
    build(zellige, tmp_path, zarr_format, consolidated=True)
    with speaking(zarr):
        zarr.open_array(tmp_path, path="x", mode="r+").append(np.zeros((2, 3), "i4"))
        before = zarr.open_consolidated(tmp_path)["x"].shape
    assert zellige.open_consolidated(tmp_path)["x"].shape == before
    assert zellige.open_group(tmp_path, use_consolidated=False)["x"].shape == (before[0] + 2, 3)


@both_formats
@both_writers
def test_both_append_in_turns(tmp_path, writer, zarr_format):
    with speaking(writer):
        writer.create_array(tmp_path, shape=(0, 3), chunks=(4, 2), dtype="i2", zarr_format=zarr_format)
    rows = np.arange(60, dtype="i2").reshape(20, 3)
    for k, library in zip(range(0, 20, 5), [zellige, zarr, zellige, zarr], strict=True):
        with speaking(library):
            library.open_array(tmp_path, mode="r+").append(rows[k : k + 5])
    for library in (zellige, zarr):
        assert_same(library.open_array(tmp_path, mode="r")[...], rows)


def test_where_there_are_both_formats_the_newer_wins(tmp_path):
    for zarr_format in (2, 3):
        with speaking(zarr):
            zarr.create_group(tmp_path / "g", zarr_format=zarr_format, attributes={"format": zarr_format})
            zarr.create_array(tmp_path / "a", shape=zarr_format, dtype="i4", zarr_format=zarr_format)
    for library in (zarr, zellige):
        with speaking(library):
            assert library.open_group(tmp_path / "g", mode="r").attrs["format"] == 3
            assert library.open_array(tmp_path / "a", mode="r").shape == (3,)
            assert library.open_group(tmp_path / "g", mode="r", zarr_format=2).attrs["format"] == 2
            assert library.open_array(tmp_path / "a", mode="r", zarr_format=2).shape == (2,)


@pytest.mark.parametrize(("source", "target"), [(2, 3), (3, 2), (2, 2)], ids=["v2 to v3", "v3 to v2", "v2 to v2"])
@both_writers
def test_we_copy_between_formats_and_they_read_it(tmp_path, writer, source, target):
    filters = {"filters": [numcodecs.Delta("i4")]} if source == target else {}
    with speaking(writer):
        array = writer.create_array(
            tmp_path / "a", shape=RAMP.shape, chunks=(4, 3), dtype="i4", zarr_format=source, fill_value=7, **filters
        )
        array[:8] = RAMP[:8]
    found = zellige.from_array(tmp_path / "b", data=zellige.open_array(tmp_path / "a"), zarr_format=target)
    assert (found.chunks, found.fill_value, found.metadata.zarr_format) == ((4, 3), 7, target)
    peer = zarr.open_array(tmp_path / "b", mode="r")
    assert_same(peer[...], array[...])
    assert (peer.chunks, peer.fill_value, peer.metadata.zarr_format) == ((4, 3), 7, target)


@both_writers
def test_arrays_like_those_of_format_2(tmp_path, writer):
    with speaking(writer):
        array = writer.create_array(
            tmp_path / "a", data=RAMP, chunks=(4, 3), zarr_format=2, filters=[numcodecs.Delta("i4")], order="F"
        )
        array.attrs["k"] = 1
    ours = zellige.open_array(tmp_path / "a")
    for k, like in enumerate([zellige.zeros_like, zellige.empty_like]):
        made = like(ours, store=tmp_path / f"{k}")
        made[:3] = RAMP[:3]
        peer = zarr.open_array(tmp_path / f"{k}", mode="r")
        assert_same(peer[:3], RAMP[:3])
        assert (peer.shape, peer.chunks, peer.dtype) == (ours.shape, ours.chunks, ours.dtype)


@both_writers
def test_no_fill_value_in_format_2(tmp_path, writer):
    with speaking(writer):
        array = writer.create_array(
            tmp_path, shape=(6,), chunks=(2,), dtype="i4", fill_value=None, zarr_format=2, compressors=None
        )
        array[:4] = [0, 1, 0, 0]
    for library in (zarr, zellige):
        found = library.open_array(tmp_path, mode="r+")
        assert found.fill_value is None
        assert found[...].tolist() == [0, 1, 0, 0, 0, 0]
        found.attrs[library.__name__] = 1
        found.resize((8,))
        found.resize((6,))
    if writer is zellige:  # which leaves no room for doubt; zarr-python does not store a chunk of zeros
        assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == ["0", "1"]


# -- TensorStore ----------------------------------------------------------------------------------

TS_COMPRESSORS = {
    "none": None,
    "zlib": numcodecs.Zlib(4),
    "bz2": numcodecs.BZ2(1),
    "zstd": numcodecs.Zstd(3),
    "blosc": numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE),
    "blosc bits": numcodecs.Blosc("zstd", 3, numcodecs.Blosc.BITSHUFFLE),
}
TS_CASES: dict[str, Case] = {
    **{f"type {dtype}": case(numbers(dtype)) for dtype in ("?", "i1", "u2", "i4", "u8", "f2", "f4", "f8", "c8", "c16")},
    **{f"type {dtype}": case(numbers(dtype)) for dtype in (">i2", ">f8", ">c8")},
    **{f"compressor {name}": case(RAMP, (4, 3), compressors=codec) for name, codec in TS_COMPRESSORS.items()},
    "default compressor": case(RAMP, (4, 3)),
    "order F": case(numbers("i4"), order="F"),
    "order F, rank 3": case(numbers("f8", (3, 4, 5)), (2, 3, 2), order="F"),
    "separator": case(numbers("i4"), chunk_key_encoding=SLASH),
    "fill": case(numbers("i4"), fill_value=3),
    "fill nan": case([1.5, np.nan, np.nan, np.nan], fill_value=np.nan),
    "fill inf": case([1.5, np.inf], fill_value=-np.inf),
    "no fill value": case([0, 1, 2, 0, 0], fill=None, fill_value=None),
    "rank 0": case(np.float64(2.5), ()),
    "no rows": case(np.zeros((0, 4), "f4"), (2, 3)),
    "chunk beyond array": case(numbers("i4", (3, 2)), (5, 2)),
}
every_ts_case = pytest.mark.parametrize("name", TS_CASES)


@pytest.fixture(scope="module")
def ts():
    return pytest.importorskip("tensorstore", reason="the peer TensorStore is missing: pip install tensorstore")


def ts_options(name: str) -> dict[str, Any]:
    """The arguments of `create_array`, with a compressor that says nothing about other things."""
    plain = {} if "compressor" in name else {"compressors": numcodecs.Zlib(1)}
    return {"zarr_format": 2, **plain, **TS_CASES[name].options}


def ts_open(ts: Any, place: Path, **options: Any) -> Any:
    store = {"driver": "file", "path": f"{place}/"}
    spec = {"driver": "zarr", "kvstore": store, "context": {"file_io_sync": False}, **options}
    return ts.open(spec).result()


@every_ts_case
def test_tensorstore_reads_our_arrays_of_format_2(ts, tmp_path, name):
    given = TS_CASES[name]
    ours = zellige.create_array(tmp_path, **ts_options(name))
    ours[...] = given.values
    peer = ts_open(ts, tmp_path)
    assert_same(peer.read().result(), given.values)
    assert (peer.chunk_layout.write_chunk.shape or ()) == ours.chunks
    if given.values.ndim and given.values.size:
        peer[0] = given.values[-1]
        assert_same(zellige.open_array(tmp_path, mode="r")[0], given.values[-1])
    if given.options.get("fill_value") is not None:
        assert_same(peer.fill_value, np.asarray(given.options["fill_value"]).astype(given.values.dtype))


@every_ts_case
def test_we_read_what_tensorstore_writes_in_format_2(ts, tmp_path, name):
    given = TS_CASES[name]
    document = zellige.create_array({}, **ts_options(name)).metadata.to_dict()
    if given.fill is None:
        document = {**document, "fill_value": None}
    peer = ts_open(ts, tmp_path, metadata=json.loads(json.dumps(document)), create=True)
    peer[...] = given.values
    ours = zellige.open_array(tmp_path, mode="r+")
    assert_same(ours[...], given.values)
    assert (ours.chunks, ours.order) == (given.options["chunks"], given.options.get("order", "C"))
    if given.values.ndim and given.values.size:
        ours[0] = given.values[-1]
        assert_same(ts_open(ts, tmp_path)[0].read().result(), given.values[-1])
        ours.append(given.values)
        both = np.concatenate([given.values[-1:], given.values[1:], given.values])
        assert_same(ts_open(ts, tmp_path).read().result(), both)
