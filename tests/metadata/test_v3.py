"""`zarr.json` of arrays: every form that is read, the one form that is written, and every field that is refused.

Everything goes through `zellige.open`, so that the codec chain is checked too.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

import zellige
from documents import (
    BYTES,
    CHUNKS,
    FIRST,
    GOOD,
    HUGE,
    MISSING,
    SECOND,
    SHAPES,
    blosc,
    compressed,
    document,
    in_place_of,
    open_document,
    rectilinear,
    regular,
    transposed,
)
from zellige.errors import MetadataError, UnknownCodecError, UnknownDataTypeError
from zellige.metadata.v3 import (
    ArrayV3Metadata,
    RectilinearChunkGridMetadata,
    RegularChunkGridMetadata,
    parse_chunk_grid,
)


def rewritten(raw):
    """The document after something has changed in it."""
    array = open_document(raw)
    array.attrs["changed"] = 1
    array = zellige.open(array.store)
    del array.attrs["changed"]
    return json.loads(array.store.get("zarr.json"))


# -- accepted forms, and what is written for them -------------------------------------------------

ACCEPTED = {
    # what is read -> what is written (spec 3.3)
    "the good one": ({}, {}),
    "type as an object": ({"data_type": {"name": "int16"}}, {}),
    "type with a configuration": ({"data_type": {"name": "int16", "configuration": {}}}, {}),
    "type must be understood": ({"data_type": {"name": "int16", "must_understand": True}}, {}),
    "key encoding as a string": ({"chunk_key_encoding": "default"}, {}),
    "key encoding without configuration": ({"chunk_key_encoding": {"name": "default"}}, {}),
    "key encoding must be understood": (
        {"chunk_key_encoding": {"name": "default", "must_understand": True, "configuration": {}}},
        {},
    ),
    "v2 keys as a string": (
        {"chunk_key_encoding": "v2"},
        {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "."}}},
    ),
    "grid must be understood": ({"chunk_grid": {**GOOD["chunk_grid"], "must_understand": True}}, {}),
    "codec must be understood": ({"codecs": [{**BYTES, "must_understand": True}]}, {}),
    "known codec need not be understood": ({"codecs": [{**BYTES, "must_understand": False}]}, {}),
    "checksum as a string": (
        {"codecs": [BYTES, "crc32c"]},
        {"codecs": [BYTES, {"name": "crc32c", "configuration": {}}]},
    ),
    "checksum with a configuration": (
        {"codecs": [BYTES, {"name": "crc32c", "configuration": {}}]},
        {"codecs": [BYTES, {"name": "crc32c", "configuration": {}}]},
    ),
    "attributes null": ({"attributes": None}, {}),
    "attributes empty": ({"attributes": {}}, {}),
    "attributes": ({"attributes": {"a": [1, {"b": None}]}}, {"attributes": {"a": [1, {"b": None}]}}),
    "names null": ({"dimension_names": None}, {}),
    "names": ({"dimension_names": ["y", None]}, {"dimension_names": ["y", None]}),
    "names twice and empty": ({"dimension_names": ["", ""]}, {"dimension_names": ["", ""]}),
    "no transformers": ({"storage_transformers": []}, {}),
    "an extra field": ({"x": {"must_understand": False, "y": [1]}}, {"x": {"must_understand": False, "y": [1]}}),
    "rectilinear, integers": ({"chunk_grid": rectilinear(2, 3)}, {"chunk_grid": rectilinear(2, 3)}),
    "rectilinear, uniform edges": ({"chunk_grid": rectilinear([2, 2], 3)}, {"chunk_grid": rectilinear([[2, 2]], 3)}),
    "rectilinear, one edge": ({"chunk_grid": rectilinear([4], [6])}, {"chunk_grid": rectilinear([4], [6])}),
    "rectilinear, runs": (
        {"chunk_grid": rectilinear([[1, 3], 1], [[1, 1], [2, 1], 3, [9, 2]])},
        {"chunk_grid": rectilinear([[1, 4]], [1, 2, 3, [9, 2]])},
    ),
    "zero length": ({"shape": [0, 6]}, {"shape": [0, 6]}),
    "zero length, edges": (
        {"shape": [0, 6], "chunk_grid": rectilinear([4], 6)},
        {"shape": [0, 6], "chunk_grid": rectilinear([4], 6)},
    ),
    "levels at the limits": (
        {"codecs": [*compressed("zstd", {"level": -131072}), {"name": "zstd", "configuration": {"level": 22}}]},
        {"codecs": [*compressed("zstd", {"level": -131072}), {"name": "zstd", "configuration": {"level": 22}}]},
    ),
    "blosc without typesize": (
        {"codecs": blosc(shuffle="noshuffle", typesize=MISSING)},
        {"codecs": blosc(shuffle="noshuffle", typesize=MISSING)},
    ),
    "byte order of bytes left out": (
        {"data_type": "uint8", "codecs": ["bytes"]},
        {"data_type": "uint8", "codecs": [{"name": "bytes", "configuration": {}}]},
    ),
    "byte order of bytes given": ({"data_type": "uint8"}, {"data_type": "uint8"}),
}


@pytest.mark.parametrize(("read", "written"), ACCEPTED.values(), ids=ACCEPTED)
def test_accepted_and_written(read, written):
    found = rewritten(document(**read))
    assert found == document(**written)
    assert isinstance(found["data_type"], str)
    assert all(isinstance(codec, dict) for codec in found["codecs"])
    assert found == rewritten(found)  # settled


def test_scalars():
    given = document(shape=[], chunk_grid={"name": "regular", "configuration": {"chunk_shape": []}})
    assert rewritten(given) == given
    assert rewritten({**given, "dimension_names": []}) == given  # empty optional fields are left out
    assert open_document(given)[()] == 7


def test_a_byte_order_mark_is_tolerated():
    array = open_document(b"\xef\xbb\xbf" + json.dumps(GOOD).encode())
    assert array.shape == (4, 6)
    assert not array.metadata.to_bytes().startswith(b"\xef")


def test_attributes_may_be_odd():
    # Spec 3.3: literal NaN inside attributes and repeated keys are met in the wild.
    array = open_document(in_place_of("attributes", '{"a": NaN, "b": [Infinity], "c": 1, "c": 2}'))
    assert np.isnan(array.attrs["a"])
    assert array.attrs["c"] == 2
    assert pickle.loads(pickle.dumps(array)).attrs["c"] == 2
    assert array == zellige.open(array.store)
    array.attrs["d"] = -np.inf
    written = json.loads(array.store.get("zarr.json"))["attributes"]
    assert repr(written) == "{'a': nan, 'b': [inf], 'c': 2, 'd': -inf}"


@pytest.mark.parametrize(("number", "expected"), [(0, False), (1, True)])
def test_a_bool_may_have_a_number_as_its_fill_value_and_gets_a_valid_one(number, expected):
    array = open_document(json.dumps({**GOOD, "data_type": "bool", "fill_value": number, "codecs": ["bytes"]}))
    assert array[0, 0] == expected
    assert array.fill_value is np.bool_(expected)
    array.attrs["a"] = 1
    assert json.loads(array.store.get("zarr.json"))["fill_value"] is expected


def test_unknown_fields_that_may_be_ignored_are_kept():
    extra = {"must_understand": False, "name": "later", "values": [1, None, {"a": "é"}]}
    array = open_document(document(later=extra, **{"äöü/": {"must_understand": False}}))
    array.resize((9, 9))
    array.attrs["a"] = 1
    found = json.loads(array.store.get("zarr.json"))
    assert found["later"] == extra
    assert found["äöü/"] == {"must_understand": False}
    assert found["shape"] == [9, 9]


@pytest.mark.parametrize(
    ("name", "fill"),
    [
        ("float64", "0x7ff0000000000001"),
        ("float64", "0xfff8000000000000"),
        ("float32", "0x7fc00001"),
        ("float16", "0xfe01"),
        ("float32", "NaN"),
        ("float32", "-Infinity"),
        ("float64", -0.0),
        ("float64", 5e-324),
        ("complex64", ["0x7f800001", -0.0]),
        ("int64", -(2**63)),
        ("uint64", 2**64 - 1),
        ("bool", True),
        ("r24", [0, 255, 1]),
    ],
)
def test_fill_values_survive_every_change(name, fill):
    codecs = [{"name": "bytes"}] if name in ("bool", "r24") else [BYTES]
    found = rewritten(document(data_type=name, fill_value=fill, codecs=codecs))
    assert json.dumps(found["fill_value"]) == json.dumps(fill)


@pytest.mark.parametrize(
    ("grid", "configuration"),
    [
        (RegularChunkGridMetadata(chunk_shape=(10, 20)), {"chunk_shape": [10, 20]}),
        (RegularChunkGridMetadata(chunk_shape=[np.int64(10)]), {"chunk_shape": [10]}),
        (RegularChunkGridMetadata(()), {"chunk_shape": []}),
        (RectilinearChunkGridMetadata(chunk_shapes=(10,)), {"kind": "inline", "chunk_shapes": [10]}),
        (RectilinearChunkGridMetadata(chunk_shapes=((10,),)), {"kind": "inline", "chunk_shapes": [[10]]}),
        (
            RectilinearChunkGridMetadata(((10, 20, 30), (25, 25, 25, 25))),
            {"kind": "inline", "chunk_shapes": [[10, 20, 30], [[25, 4]]]},
        ),
        (
            RectilinearChunkGridMetadata([np.array([3, 3]), [5, [2, 10**12]]]),
            {"kind": "inline", "chunk_shapes": [[[3, 2]], [5, [2, 10**12]]]},
        ),
    ],
)
def test_the_metadata_of_grids_goes_through_dicts(grid, configuration):
    written = grid.to_dict()
    assert written == {"name": grid.name, "configuration": configuration}
    assert json.loads(json.dumps(written)) == written
    for again in (type(grid).from_dict(written), parse_chunk_grid(written), pickle.loads(pickle.dumps(grid))):
        assert again == grid
        assert hash(again) == hash(grid)
        assert type(again) is type(grid)
        assert repr(again) == repr(grid)


def test_the_metadata_of_grids_holds_plain_tuples():
    assert RegularChunkGridMetadata([2, 3]).chunk_shape == (2, 3)
    shapes = RectilinearChunkGridMetadata([4, [1, [2, 2]]]).chunk_shapes
    assert shapes == (4, (1, 2, 2))
    assert type(shapes[1]) is tuple
    assert replace(RectilinearChunkGridMetadata([4]), chunk_shapes=[5]) == RectilinearChunkGridMetadata((5,))
    with pytest.raises(AttributeError):
        RegularChunkGridMetadata((2,)).chunk_shape = (3,)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        *(
            (lambda v=v: RegularChunkGridMetadata((2, v)), f"{CHUNKS}[1]")
            for v in (0, -1, 2.0, True, None, "2", (2,), 2**63)
        ),
        *((lambda v=v: RegularChunkGridMetadata(v), CHUNKS) for v in (2, "23", None, {2})),
        *(
            (lambda v=v: RectilinearChunkGridMetadata((2, v)), f"{SHAPES}[1]")
            for v in (0, 2.0, True, "2", (), [0], [1, "2"])
        ),
        *((lambda v=v: RectilinearChunkGridMetadata(v), SHAPES) for v in (2, "23", None)),
        (lambda: RegularChunkGridMetadata.from_dict(rectilinear(2)), "chunk_grid.name"),
        (lambda: RectilinearChunkGridMetadata.from_dict(regular(2)), "chunk_grid.name"),
        (lambda: RegularChunkGridMetadata.from_dict({"chunk_shape": [2]}), "chunk_grid.chunk_shape"),
        (lambda: RectilinearChunkGridMetadata.from_dict(rectilinear(2, kind="file")), "chunk_grid.configuration.kind"),
    ],
)
def test_the_metadata_of_grids_is_checked_when_it_is_made(make, field):
    with pytest.raises(MetadataError) as info:
        make()
    assert info.value.field == field
    assert isinstance(info.value, ValueError)


def test_equal_documents():
    def metadata(**changes):
        return ArrayV3Metadata.from_dict(document(**changes))

    assert metadata() == metadata(attributes=None, data_type={"name": "int16"})
    nan = {"data_type": "float32", "fill_value": "NaN"}
    assert metadata(**nan) == metadata(**nan)
    assert metadata(**nan) != metadata(data_type="float32", fill_value="0x7fc00001")
    assert metadata(data_type="float32", fill_value=0.0) != metadata(data_type="float32", fill_value=-0.0)
    assert metadata() != metadata(attributes={"a": 1})
    assert metadata() != GOOD


# -- refused: one small edit of the good document ------------------------------------------------

REFUSED = [
    # field in the error -> values of the top-level field, which is its first part
    *((name, [MISSING]) for name in GOOD),
    ("zarr_format", [2, 4, "3", 3.0, True, None, [3]]),
    ("node_type", ["Array", None, 3, ["array"]]),
    ("shape", [None, 4, "46", {}, [1] * 65]),
    ("shape[1]", [[4, -1], [4, 6.0], [4, True], [4, "6"], [4, None], [4, [6]], [4, 2**63], [4, 10**400]]),
    ("data_type", ["int15", "i2", "<i2", "", None, 16, ["int16"], {}, {"name": 16}, {"name": "int15"}, "r7", "r0"]),
    ("data_type", [{"name": "int16", "x": 1}]),
    ("data_type.configuration", [{"name": "int16", "configuration": {"x": 1}}]),
    ("data_type.must_understand", [{"name": "int16", "must_understand": False}]),
    ("fill_value", [None, "7", 7.0, True, 2**15, -(2**15) - 1, [7], {}, "NaN", 10**400]),
    ("chunk_grid", [None, 5, [], "", [[2, 3]]]),
    (
        "chunk_grid.name",
        ["hexagonal", {"name": "hexagonal"}, {"name": 5}, {"configuration": {}}, {}, {"name": "Regular"}],
    ),
    (
        "chunk_grid.must_understand",
        [regular(2, 3) | {"must_understand": False}, regular(2, 3) | {"must_understand": 1}],
    ),
    ("chunk_grid.chunk_shape", [{"name": "regular", "chunk_shape": [2, 3]}]),
    ("chunk_grid.configuration", [{"name": "regular", "configuration": v} for v in (None, [], [2, 3], "a")]),
    (CHUNKS, ["regular", {"name": "regular"}, regular(chunk_shape=MISSING)]),
    (CHUNKS, [regular(), regular(2), regular(2, 3, 1), *(regular(chunk_shape=v) for v in (None, 2, "23", {"a": 2}))]),
    (f"{CHUNKS}[0]", [regular(v, 3) for v in (0, -1, 2.0, True, None, "2", [2], 2**63, 10**400)]),
    ("chunk_grid.configuration.x", [regular(2, 3, x=1)]),
    ("chunk_grid.configuration.kind", [rectilinear(2, 3, kind=v) for v in (MISSING, "Inline", "file", None, True, [])]),
    (SHAPES, [rectilinear(chunk_shapes=v) for v in (MISSING, None, 2, "ab", {})]),
    (SHAPES, [rectilinear(), rectilinear(2), rectilinear(2, 3, 1), rectilinear([2, 2]), rectilinear([4], [6], [1])]),
    (f"{SHAPES}[0]", [rectilinear(v, 3) for v in (0, -1, 2.0, True, None, "2", {}, 2**63)]),
    (f"{SHAPES}[0]", [rectilinear(v, 3) for v in ([], [0], [-4], [4.0], [True] * 4, [None], ["4"], [{}], [2**63])]),
    (f"{SHAPES}[0]", [rectilinear([v], 3) for v in ([], [4], [4, 1, 1], [4, 0], [0, 4], [-4, 1], [4, -1], [[4, 1]])]),
    (f"{SHAPES}[0]", [rectilinear([v], 3) for v in ([4.0, 1], [4, 1.0], [4, True], [True, 4], ["4", 1], [4, None])]),
    (f"{SHAPES}[0]", [rectilinear(v, 3) for v in ([3], [1, 2], [[1, 3]], [[3, 1]])]),  # the sum is less than 4
    (f"{SHAPES}[0]", [rectilinear(v, 3) for v in ([[HUGE, 2]], [HUGE, HUGE], [1, -(2**70)], [[10**4000, 10**4000]])]),
    ("chunk_grid.configuration.x", [rectilinear(2, 3, x=1)]),
    ("chunk_key_encoding", [None, 5, [], ""]),
    ("chunk_key_encoding.name", ["v3", {"name": "v3"}, {}, {"name": None}, {"configuration": {"separator": "/"}}]),
    ("chunk_key_encoding.configuration", [{"name": "default", "configuration": v} for v in (None, "/", [])]),
    (
        "chunk_key_encoding.configuration.separator",
        [{"name": n, "configuration": {"separator": v}} for n in ("default", "v2") for v in ("-", "", None, 0, ["/"])],
    ),
    ("chunk_key_encoding.configuration.x", [{"name": "default", "configuration": {"x": 1}}]),
    ("chunk_key_encoding.must_understand", [{"name": "default", "must_understand": False}]),
    ("attributes", [[], "a", 5, False, [["a", 1]]]),
    ("dimension_names", [[], ["x"], ["x", "y", "z"], "xy", {"x": 0}, 2]),
    ("dimension_names[1]", [["x", 1], ["x", True], ["x", ["y"]], ["x", {}]]),
    ("storage_transformers", [[{"name": "x"}], ["x"], [{"name": "x", "must_understand": False}], {}, "x", [None], 1]),
    ("unknown", [None, 1, True, False, "a", [], {}, {"must_understand": True}, {"must_understand": None}]),
    ("unknown", [{"must_understand": 0}, {"must_understand": "false"}, [{"must_understand": False}]]),
    # The chain.
    ("codecs", [[], None, {}, "bytes", 5, BYTES]),
    ("codecs[0]", [[None], [5], [[]], [[BYTES]], [True], [""]]),
    ("codecs[0].name", [["nope"], [{"name": "nope"}], [{}], [{"name": ""}], [{"name": None}], [{"name": ["bytes"]}]]),
    ("codecs[0].name", [[{"name": "nope", "must_understand": False}], [{"name": "Bytes"}], [{"configuration": {}}]]),
    ("codecs[1].name", [compressed("lzma9")]),
    ("codecs[0].must_understand", [[{**BYTES, "must_understand": v}] for v in (None, 1, "true")]),
    ("codecs[0].x", [[{**BYTES, "x": 1}]]),
    (FIRST, [[{"name": "bytes", "configuration": v}] for v in (None, [], "little")]),
    (f"{FIRST}.endian", [["bytes"], [{"name": "bytes"}], [{"name": "bytes", "configuration": {}}]]),
    (f"{FIRST}.endian", [[{"name": "bytes", "configuration": {"endian": v}}] for v in ("Little", "", None, True, [])]),
    (f"{FIRST}.x", [[{"name": "bytes", "configuration": {"endian": "little", "x": 1}}]]),
    ("codecs", [["crc32c"], compressed("crc32c")[1:], transposed(1, 0)[:1]]),  # no array-to-bytes codec
    ("codecs", [[BYTES, BYTES], [*transposed(1, 0), BYTES]]),  # more than one
    ("codecs", [["crc32c", BYTES], [BYTES, *transposed(1, 0)[:1]], compressed("gzip", {"level": 1})[::-1]]),
    (f"{FIRST}.order", [transposed(), transposed(0), transposed(0, 1, 2), transposed(0, 0), transposed(1, 2)]),
    (f"{FIRST}.order", [transposed(-1, 0), transposed(1.0, 0), transposed(True, False), transposed("1", "0")]),
    (
        f"{FIRST}.order",
        [[{"name": "transpose", "configuration": {"order": v}}, BYTES] for v in ("C", "F", None, {}, 1)],
    ),
    (f"{FIRST}.order", [["transpose", BYTES], [{"name": "transpose", "configuration": {}}, BYTES]]),
    (f"{SECOND}.level", [compressed("gzip"), ["bytes", "gzip"], compressed("zstd"), compressed("zstd", {})]),
    (f"{SECOND}.level", [compressed("gzip", {"level": v}) for v in (-1, 10, 1.0, True, None, "1", 10**400)]),
    (f"{SECOND}.level", [compressed("zstd", {"level": v}) for v in (-131073, 23, 1.0, True, None, "1")]),
    (f"{SECOND}.checksum", [compressed("zstd", {"level": 1, "checksum": v}) for v in (1, 0, None, "true")]),
    (f"{SECOND}.x", [compressed(n, {"level": 1, "x": 1}) for n in ("gzip", "zstd")] + [compressed("crc32c", {"x": 1})]),
    (f"{SECOND}.cname", [blosc(cname=v) for v in (MISSING, "lz5", "", None, 1, ["lz4"])]),
    (f"{SECOND}.clevel", [blosc(clevel=v) for v in (MISSING, -1, 10, 5.0, True, None)]),
    (f"{SECOND}.shuffle", [blosc(shuffle=v) for v in (MISSING, 1, True, "byte", None, -1)]),
    (f"{SECOND}.typesize", [blosc(typesize=v) for v in (MISSING, 0, -1, 2.0, True, None)]),
    (f"{SECOND}.blocksize", [blosc(blocksize=v) for v in (MISSING, -1, 1.0, True, None)]),
    (f"{SECOND}.x", [blosc(x=1)]),
]
CASES = [(field, value) for field, values in REFUSED for value in values]


@pytest.mark.parametrize(("field", "value"), CASES, ids=[f"{n} {field}" for n, (field, _) in enumerate(CASES)])
def test_refused(field, value):
    top = field.split(".")[0].split("[")[0]
    with pytest.raises(MetadataError) as info:
        open_document(document(**{top: value}))
    assert info.value.field == field
    assert field in str(info.value)
    assert "'/'" in str(info.value)  # and which array it is


def test_kinds_of_errors():
    with pytest.raises(UnknownCodecError, match="did you mean 'zstd'"):
        open_document(document(codecs=compressed("zstdd")))
    with pytest.raises(UnknownDataTypeError, match="did you mean 'int16'"):
        open_document(document(data_type="int17"))
