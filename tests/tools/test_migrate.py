"""Migration from Zarr v2 to Zarr v3: values stay, chunks are not touched, nothing is lost wherever it is cut short."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numcodecs
import numpy as np
import pytest

import zellige
from counting_store import WRITES, CountingStore, contents
from zellige.codecs.v2 import NotConvertibleError, to_v3
from zellige.errors import ConflictError, MetadataError, NodeNotFoundError, ReadOnlyError
from zellige.metadata.groups import GroupMetadata
from zellige.metadata.v2 import ArrayV2Metadata
from zellige.metadata.v3 import ArrayV3Metadata
from zellige.stores import MemoryStore, Store
from zellige.tools import migrate as migration
from zellige.tools.migrate import Migration, migrate

zarr = pytest.importorskip("zarr", reason="the peer zarr-python is missing: pip install 'zarr>=3.1'")

# zarr-python warns of everything that has no specification.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Numcodecs codecs are not in the Zarr version 3 specification",
    "ignore:The data type .* does not have a Zarr V3 specification",
    "ignore:The codec `vlen-.*` is currently not part in the Zarr format 3 specification",
)

DOCUMENTS = (".zarray", ".zgroup", ".zattrs", ".zmetadata", "zarr.json")


def chunks_of(store: Store) -> dict[str, bytes | None]:
    """All that is no document."""
    return {key: value for key, value in contents(store).items() if key.rpartition("/")[2] not in DOCUMENTS}


def document(**fields: Any) -> dict[str, Any]:
    """A document of Zarr v2."""
    usual = {"zarr_format": 2, "shape": [6, 5], "chunks": [4, 3], "dtype": "<i4", "order": "C", "fill_value": 0}
    return {**usual, "filters": None, "compressor": None, **fields}


def metadata(attributes: dict[str, Any] | None = None, **fields: Any) -> ArrayV2Metadata:
    return ArrayV2Metadata.from_documents({".zarray": document(**fields), ".zattrs": attributes or {}})


def codecs_of(**fields: Any) -> list[tuple[str, dict[str, Any]]]:
    """The chain in Zarr v3 of a document of Zarr v2."""
    return [tuple(codec) for codec in to_v3(metadata(**fields)).codecs]


# -- documents to documents -----------------------------------------------------------------------

LITTLE, BIG, PLAIN = (("bytes", options) for options in ({"endian": "little"}, {"endian": "big"}, {}))


def blosc(shuffle: str, typesize: int, **others: Any) -> tuple[str, dict[str, Any]]:
    return "blosc", {"cname": "lz4", "clevel": 5, "shuffle": shuffle, "typesize": typesize, "blocksize": 0, **others}


CHAINS: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "little": ({}, [LITTLE]),
    "big": ({"dtype": ">f8"}, [BIG]),
    "bytes": ({"dtype": "|u1"}, [PLAIN]),
    "order F": ({"order": "F"}, [("transpose", {"order": [1, 0]}), LITTLE]),
    "order F of one axis": ({"order": "F", "shape": [9], "chunks": [4]}, [LITTLE]),
    "gzip": ({"compressor": {"id": "gzip", "level": 3}}, [LITTLE, ("gzip", {"level": 3})]),
    "gzip by default": ({"compressor": {"id": "gzip"}}, [LITTLE, ("gzip", {"level": 1})]),
    "zstd": ({"compressor": {"id": "zstd"}}, [LITTLE, ("zstd", {"level": 0, "checksum": False})]),
    "zlib": ({"compressor": {"id": "zlib", "level": 9}}, [LITTLE, ("numcodecs.zlib", {"level": 9})]),
    "lzma without nulls": (
        {"compressor": {"id": "lzma", "format": 1, "check": -1, "preset": None, "filters": None}},
        [LITTLE, ("numcodecs.lzma", {"format": 1, "check": -1})],
    ),
    "blosc": ({"compressor": {"id": "blosc"}}, [LITTLE, blosc("shuffle", 4)]),
    "blosc none": ({"compressor": {"id": "blosc", "shuffle": 0}}, [LITTLE, blosc("noshuffle", 4)]),
    "blosc bits": ({"compressor": {"id": "blosc", "shuffle": 2}}, [LITTLE, blosc("bitshuffle", 4)]),
    "blosc auto": ({"compressor": {"id": "blosc", "shuffle": -1}}, [LITTLE, blosc("shuffle", 4)]),
    "blosc auto bytes": (
        {"dtype": "|i1", "compressor": {"id": "blosc", "shuffle": -1, "cname": "zstd"}},
        [PLAIN, blosc("bitshuffle", 1, cname="zstd")],
    ),
    "blosc of text": ({"dtype": "<U3", "fill_value": None, "compressor": {"id": "blosc"}}, [
        LITTLE, blosc("shuffle", 12)]),
    "blosc after a filter": (
        {"filters": [{"id": "delta", "dtype": "<i4", "astype": ">i2"}], "compressor": {"id": "blosc"}},
        [("numcodecs.delta", {"dtype": "<i4", "astype": ">i2"}), BIG, blosc("shuffle", 2)],
    ),
    "blosc after bytes": (
        {"filters": [{"id": "shuffle", "elementsize": 4}], "compressor": {"id": "blosc", "shuffle": -1}},
        [LITTLE, ("numcodecs.shuffle", {"elementsize": 4}), blosc("bitshuffle", 1)],
    ),
    "shuffle by default": ({"filters": [{"id": "shuffle"}]}, [LITTLE, ("numcodecs.shuffle", {"elementsize": 4})]),
    "checksums": (
        {"filters": [{"id": "crc32c"}, {"id": "crc32", "location": "end"}]},
        [LITTLE, ("crc32c", {}), ("numcodecs.crc32", {"location": "end"})],
    ),
    "crc32c at the start": (
        {"filters": [{"id": "crc32c", "location": "start"}]},
        [LITTLE, ("numcodecs.crc32c", {"location": "start"})],
    ),
    "filters": (
        {
            "dtype": ">f8",
            "order": "F",
            "filters": [
                {"id": "fixedscaleoffset", "offset": 1, "scale": 2, "dtype": ">f8", "astype": "<i2"},
                {"id": "delta", "dtype": "<i2"},
                {"id": "fletcher32"},
            ],
            "compressor": {"id": "bz2", "level": 1},
        },
        [
            ("transpose", {"order": [1, 0]}),
            ("numcodecs.fixedscaleoffset", {"offset": 1, "scale": 2, "dtype": ">f8", "astype": "<i2"}),
            ("numcodecs.delta", {"dtype": "<i2"}),
            LITTLE,
            ("numcodecs.fletcher32", {}),
            ("numcodecs.bz2", {"level": 1}),
        ],
    ),
    "packbits": ({"dtype": "|b1", "filters": [{"id": "packbits"}]}, [("numcodecs.packbits", {}), PLAIN]),
    "bitround": ({"dtype": ">f4", "filters": [{"id": "bitround", "keepbits": 3}]}, [
        ("numcodecs.bitround", {"keepbits": 3}), BIG]),
    "zfpy": ({"dtype": "<f8", "compressor": {"id": "zfpy", "mode": 4, "tolerance": 0.1}}, [
        ("numcodecs.zfpy", {"mode": 4, "tolerance": 0.1})]),
    "pcodec after a filter": (
        {"dtype": "<f8", "filters": [{"id": "astype", "encode_dtype": "<i4", "decode_dtype": "<f8"}],
         "compressor": {"id": "pcodec", "level": 8, "delta_encoding_order": None}},
        [("numcodecs.astype", {"encode_dtype": "<i4", "decode_dtype": "<f8"}), ("numcodecs.pcodec", {"level": 8})],
    ),
    "strings": (
        {"dtype": "|O", "fill_value": "", "filters": [{"id": "vlen-utf8"}], "compressor": {"id": "blosc"}},
        [("vlen-utf8", {}), blosc("shuffle", 1)],
    ),
    "blobs": ({"dtype": "|O", "fill_value": "", "filters": [{"id": "vlen-bytes"}]}, [("vlen-bytes", {})]),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "expected"), CHAINS.values(), ids=CHAINS)
def test_chains(fields, expected):
    assert codecs_of(**fields) == expected


TYPES: dict[str, tuple[Any, Any, Any, Any]] = {
    "float": ("<f4", None, "float32", 0.0),
    "nan": (">f8", "NaN", "float64", "NaN"),
    "complex": ("<c8", [1, "Infinity"], "complex64", [1.0, "Infinity"]),
    "bool": ("|b1", 1, "bool", True),
    "text": ("<U12", "é", {"name": "fixed_length_utf32", "configuration": {"length_bytes": 48}}, "é"),
    "octets": ("|S4", "YWI=", {"name": "null_terminated_bytes", "configuration": {"length_bytes": 4}}, "YWI="),
    "void": ("|V5", None, {"name": "raw_bytes", "configuration": {"length_bytes": 5}}, "AAAAAAA="),
    "date": (
        "<M8[10us]",
        None,
        {"name": "numpy.datetime64", "configuration": {"unit": "us", "scale_factor": 10}},
        "NaT",
    ),
    "span": (">m8[D]", 3, {"name": "numpy.timedelta64", "configuration": {"unit": "D", "scale_factor": 1}}, 3),
    "struct": (
        [["a", ">i2"], ["b", "|u1"]],
        "AQID",
        {
            "name": "struct",
            "configuration": {"fields": [{"name": "a", "data_type": "int16"}, {"name": "b", "data_type": "uint8"}]},
        },
        {"a": 258, "b": 3},
    ),
}


@pytest.mark.parametrize(("dtype", "fill", "name", "expected"), TYPES.values(), ids=TYPES)
def test_types_and_fill_values(dtype, fill, name, expected):
    found = to_v3(metadata(dtype=dtype, fill_value=fill)).to_dict()
    assert (found["data_type"], found["fill_value"]) == (name, expected)


def test_strings_and_blobs_have_types_of_their_own():
    text = to_v3(metadata(dtype="|O", fill_value=None, filters=[{"id": "vlen-utf8"}])).to_dict()
    blob = to_v3(metadata(dtype="|O", fill_value="YWI=", filters=[{"id": "vlen-bytes"}])).to_dict()
    assert (text["data_type"], text["fill_value"]) == ("string", "")
    assert (blob["data_type"], blob["fill_value"]) == ("bytes", "YWI=")


def test_the_rest_of_a_document():
    attributes = {"_ARRAY_DIMENSIONS": ["y", "x"], "units": "K", "missing": math.nan, "deep": [{"n": -math.inf}]}
    found = to_v3(metadata(attributes, shape=[0, 5], chunks=[0, 3], dimension_separator="/", _nczarr_array={}))
    assert found.to_dict() == {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [0, 5],
        "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1, 3]}},
        "chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "dimension_names": ["y", "x"],
        "attributes": {"units": "K", "missing": math.nan, "deep": [{"n": -math.inf}]},
    }


@pytest.mark.parametrize("names", [["y"], ["y", 3], "yx", None])
def test_what_does_not_name_the_axes_stays_an_attribute(names):
    found = to_v3(metadata({"_ARRAY_DIMENSIONS": names}))
    assert found.dimension_names is None
    assert found.attributes == {"_ARRAY_DIMENSIONS": names}


def test_no_axes_have_no_names():
    found = to_v3(metadata({"_ARRAY_DIMENSIONS": []}, shape=[], chunks=[]))
    assert "dimension_names" not in found.to_dict()
    assert found.attributes == {}


def test_groups():
    old = GroupMetadata.from_documents({".zgroup": {"zarr_format": 2}, ".zattrs": {"a": math.nan}})
    assert to_v3(old).to_documents() == {
        "zarr.json": {"zarr_format": 3, "node_type": "group", "attributes": {"a": math.nan}}
    }


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "json2": ({"dtype": "|O", "fill_value": None, "filters": [{"id": "json2"}]}, "dtype", "strings and bytes only"),
    "msgpack2": ({"dtype": "|O", "fill_value": None, "filters": [{"id": "msgpack2"}]}, "dtype", "'msgpack2'"),
    "vlen-array": (
        {"dtype": "|O", "fill_value": None, "filters": [{"id": "vlen-array", "dtype": "<i4"}]},
        "dtype",
        "'vlen-array'",
    ),
    "categorize": (
        {"dtype": "|O", "fill_value": "", "filters": [{"id": "categorize", "labels": ["a"], "dtype": "|O"}]},
        "filters[0]",
        "no codec for 'categorize'",
    ),
    "categorize of text": (
        {"dtype": "<U1", "fill_value": "", "filters": [{"id": "categorize", "labels": ["a"], "dtype": "<U1"}]},
        "filters[0]",
        "no codec for 'categorize'",
    ),
    "numbers as json2": ({"filters": [{"id": "json2"}]}, "filters[0]", "no codec for 'json2'"),
    "mixed byte orders": ({"dtype": [["a", "<i4"], ["b", ">i4"]], "fill_value": None}, "dtype", "byte orders"),
    "sub-arrays": ({"dtype": [["a", "<i4", [2]]], "fill_value": None}, "dtype", "fields that are arrays"),
    "unknown filter": ({"filters": [{"id": "rot13"}]}, "filters[0]", "no codec for 'rot13'"),
    "base64": ({"compressor": {"id": "base64"}}, "compressor", "no codec for 'base64'"),
    "a filter after bytes": (
        {"filters": [{"id": "crc32"}, {"id": "delta", "dtype": "<i4"}]},
        "filters[0]",
        "'delta' cannot follow",
    ),
    "a filter after a compressor": (
        {"filters": [{"id": "zlib"}], "compressor": {"id": "rot13"}},
        "filters[0]",
        "'rot13' cannot follow",
    ),
    "a filter after text": (
        {"dtype": "|O", "fill_value": "", "filters": [{"id": "vlen-utf8"}, {"id": "delta", "dtype": "|u1"}]},
        "filters[0]",
        "'delta' cannot follow",
    ),
    "delta of dates": (
        {"dtype": "<M8[s]", "filters": [{"id": "delta", "dtype": "<i8"}]},
        "filters[0].dtype",
        "'delta' is for <i8, the elements are <M8[s]",
    ),
    "delta for dates": (
        {"dtype": "<M8[s]", "filters": [{"id": "delta", "dtype": "<M8[s]"}]},
        "filters[0]",
        "for numbers, not for <M8[s]",
    ),
    "delta in another byte order": (
        {"dtype": ">i4", "filters": [{"id": "delta", "dtype": "<i4"}]},
        "filters[0].dtype",
        "does not reinterpret",
    ),
    "floats taken for integers": (
        {"dtype": "<f8", "filters": [{"id": "delta", "dtype": "<i8"}]},
        "filters[0].dtype",
        "does not reinterpret",
    ),
    "integers by way of floats": (
        {"filters": [{"id": "delta", "dtype": "<i4", "astype": "<f8"}]},
        "filters[0]",
        "by way of floats",
    ),
    "unsigned differences of signed integers": (
        {"dtype": "<i8", "filters": [{"id": "delta", "dtype": "<i8", "astype": "<u8"}]},
        "filters[0]",
        "by way of floats",
    ),
    "the second of two": (
        {"filters": [{"id": "delta", "dtype": "<i4", "astype": "<i2"}, {"id": "delta", "dtype": "<i4"}]},
        "filters[1].dtype",
        "the elements are <i2",
    ),
    "packbits of numbers": ({"dtype": "|u1", "filters": [{"id": "packbits"}]}, "filters[0]", "bools only"),
    "zfpy in another byte order": (
        {"dtype": ">f8", "compressor": {"id": "zfpy", "mode": 4, "tolerance": 0.1}},
        "compressor",
        "no byte order",
    ),
    "blosc with a shuffle of its own": ({"compressor": {"id": "blosc", "shuffle": 7}}, "blosc.shuffle", "found 7"),
    "a filter without its type": ({"filters": [{"id": "delta"}]}, "filters[0].dtype", "must be the name of a type"),
}


@pytest.mark.parametrize(("fields", "field", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_said_is_named(fields, field, reason):
    with pytest.raises(MetadataError) as caught:
        to_v3(metadata(**fields))
    assert caught.value.field == field
    assert reason in str(caught.value)


@pytest.mark.parametrize(("fields", "field", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_said_is_left_as_it_is(fields, field, reason):
    store = MemoryStore({".zarray": json.dumps(document(**fields)).encode()})
    before = contents(store)
    assert list(migrate(store, dry_run=False).failed) == [""]
    assert contents(store) == before


# -- arrays ---------------------------------------------------------------------------------------


def values(dtype: Any, shape: tuple[int, ...] = (6, 5)) -> np.ndarray:
    """Values of a type, smooth enough for every filter."""
    dtype = np.dtype(dtype)
    numbers = (np.arange(1, 1 + np.prod(shape, dtype=int)) * 3) % 97
    if dtype.names is not None:
        found = np.zeros(numbers.shape, dtype)
        for name in dtype.names:
            found[name] = values(dtype[name], numbers.shape)
    elif dtype.kind == "V":
        found = np.array([bytes([k] * dtype.itemsize) for k in numbers.tolist()], dtype)
    elif dtype.kind in "SU":
        found = numbers.astype(dtype)
    elif dtype.kind == "b":
        found = numbers % 5 < 2
    elif dtype.kind in "mM":
        found = numbers.astype("<i8").view(dtype.newbyteorder("=")).astype(dtype)
    else:
        found = (numbers * 1.5).astype(dtype)
    return found.reshape(shape)


@dataclass(frozen=True)
class Case:
    """An array of Zarr v2."""

    dtype: Any = "<i4"
    filters: tuple[dict[str, Any], ...] = ()
    compressor: dict[str, Any] | None = None
    order: str = "C"
    separator: str = "."
    fill: Any = 0
    shape: tuple[int, ...] = (6, 5)
    chunks: tuple[int, ...] = (4, 3)

    @property
    def values(self) -> np.ndarray:
        return values(self.numpy, self.shape)

    @property
    def numpy(self) -> np.dtype:
        fields = isinstance(self.dtype, list)
        return np.dtype([tuple(field) for field in self.dtype] if fields else self.dtype)

    def codecs(self) -> tuple[list[Any], Any]:
        """By numcodecs."""
        filters = [numcodecs.get_codec(dict(item)) for item in self.filters]
        return filters, None if self.compressor is None else numcodecs.get_codec(dict(self.compressor))


def by_zellige(case: Case, path: str) -> None:
    zellige.create_array(
        path,
        data=case.values,
        dtype=case.numpy,
        chunks=case.chunks,
        zarr_format=2,
        order=case.order,
        filters=list(case.filters) or None,
        compressors=case.compressor,
        fill_value=None if case.numpy.kind not in "biufc" else case.fill,
        chunk_key_encoding={"name": "v2", "separator": case.separator},
        attributes={"unit": "m"},
    )


def by_zarr(case: Case, path: str) -> None:
    filters, compressor = case.codecs()
    zarr.create_array(
        path,
        shape=case.shape,
        chunks=case.chunks,
        dtype=case.numpy,
        zarr_format=2,
        order=case.order,
        filters=filters or None,
        compressors=compressor,
        fill_value=None if case.numpy.kind not in "biufc" else case.fill,
        chunk_key_encoding={"name": "v2", "separator": case.separator},
        attributes={"unit": "m"},
    )[...] = case.values


def by_numcodecs(case: Case, path: str) -> None:
    """By hand, as the specification says."""
    store = zellige.LocalStore(path)
    dtype = case.dtype if isinstance(case.dtype, list) else np.dtype(case.dtype).str
    fields = {"shape": list(case.shape), "chunks": list(case.chunks), "dtype": dtype, "order": case.order}
    fields |= {"filters": list(case.filters) or None, "compressor": case.compressor, "fill_value": None}
    store.put(".zarray", json.dumps(document(**fields, dimension_separator=case.separator)).encode())
    store.put(".zattrs", b'{"unit": "m"}')
    filters, compressor = case.codecs()
    for coords in np.ndindex(*(-(-n // c) for n, c in zip(case.shape, case.chunks, strict=True))):
        inside = tuple(slice(k * c, (k + 1) * c) for k, c in zip(coords, case.chunks, strict=True))
        part = case.values[inside]
        buffer: Any = np.zeros(case.chunks, case.numpy, order=case.order)
        buffer[tuple(map(slice, part.shape))] = part
        for codec in [*filters, *([compressor] if compressor else [])]:
            buffer = codec.encode(buffer)
        raw = buffer if isinstance(buffer, bytes) else np.asarray(buffer).tobytes(order="A")
        store.put(case.separator.join(map(str, coords)) or "0", raw)


WRITERS = {"zellige": by_zellige, "zarr-python": by_zarr, "numcodecs": by_numcodecs}

STRUCT = [["a", "<i4"], ["b", "<f8"], ["c", "|S3"]]
CASES: dict[str, Case] = {
    **{
        f"{dtype} {order}": Case(dtype, order=order, compressor={"id": "zstd", "level": 1})
        for dtype in (
            *("|b1", "|i1", "<i2", ">i2", "<i4", ">i8", "|u1", ">u2", "<u4", "<u8", "<f2", ">f4", "<f8", "<c8", ">c16"),
            *("<M8[ns]", ">M8[D]", "<M8[10us]", "<m8[s]", ">m8[ms]", "|S4", "<U3", ">U3", "|V5"),
        )
        for order in "CF"
    },
    "struct": Case(STRUCT),
    "struct F": Case(STRUCT, order="F", compressor={"id": "blosc"}),
    "struct big": Case([["a", ">i4"], ["b", ">M8[s]"], ["c", "|b1"]]),
    "nothing": Case(separator="/"),
    "no axes": Case(shape=(), chunks=()),
    "one axis F": Case(shape=(9,), chunks=(4,), order="F"),
    "three axes F": Case(">f4", shape=(3, 4, 5), chunks=(2, 2, 3), order="F", separator="/"),
    "fill": Case(fill=7),
    **{
        name: Case(dtype, compressor=dict(numcodecs.get_codec(config).get_config()))
        for name, dtype, config in [
            ("gzip", "<i4", {"id": "gzip", "level": 5}),
            ("zlib", "<i4", {"id": "zlib"}),
            ("bz2", "<i4", {"id": "bz2"}),
            ("lzma", "<i4", {"id": "lzma"}),
            ("lz4", "<i4", {"id": "lz4"}),
            ("zfpy", "<f8", {"id": "zfpy", "mode": 4, "tolerance": 0.01}),
            ("pcodec", "<i4", {"id": "pcodec"}),
            *((f"blosc {k}", ">i2", {"id": "blosc", "shuffle": k, "cname": "zstd"}) for k in (-1, 0, 1, 2)),
            *((f"blosc {name}", "<f8", {"id": "blosc", "cname": name}) for name in ("lz4", "lz4hc", "blosclz", "zlib")),
            ("blosc bytes", "|u1", {"id": "blosc", "shuffle": -1}),
        ]
    },
    **{
        name: Case(dtype, filters=(config,), compressor={"id": "blosc"}, order=order)
        for name, dtype, config, order in [
            ("delta", "<i4", {"id": "delta", "dtype": "<i4"}, "F"),
            ("delta big", ">i4", {"id": "delta", "dtype": ">i4", "astype": ">i4"}, "C"),
            ("delta narrow", "<i8", {"id": "delta", "dtype": "<i8", "astype": "<i2"}, "C"),
            ("delta float", "<f4", {"id": "delta", "dtype": "<f4"}, "C"),
            (
                "scale",
                "<f8",
                {"id": "fixedscaleoffset", "offset": 2, "scale": 10, "dtype": "<f8", "astype": "<u2"},
                "C",
            ),
            ("quantize", "<f8", {"id": "quantize", "digits": 2, "dtype": "<f8"}, "C"),
            ("quantize narrow", "<f8", {"id": "quantize", "digits": 2, "dtype": "<f8", "astype": "<f4"}, "C"),
            ("astype", "<f8", {"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<f8"}, "F"),
            ("astype big", ">f8", {"id": "astype", "encode_dtype": ">i4", "decode_dtype": ">f8"}, "C"),
            ("packbits", "|b1", {"id": "packbits"}, "F"),
            ("bitround", "<f4", {"id": "bitround", "keepbits": 10}, "C"),
            ("shuffle", "<f4", {"id": "shuffle", "elementsize": 4}, "C"),
            ("crc32", "<i4", {"id": "crc32"}, "C"),
            ("crc32 end", "<i4", {"id": "crc32", "location": "end"}, "C"),
            ("adler32", "<i4", {"id": "adler32"}, "C"),
            ("crc32c", "<i4", {"id": "crc32c"}, "C"),
            ("crc32c start", "<i4", {"id": "crc32c", "location": "start"}, "C"),
            ("fletcher32", "<i4", {"id": "fletcher32"}, "C"),
            ("jenkins", "<i4", {"id": "jenkins_lookup3", "initval": 3}, "C"),
        ]
    },
    "many": Case(
        ">f8",
        filters=(
            {"id": "fixedscaleoffset", "offset": 0, "scale": 2, "dtype": ">f8", "astype": "<i4"},
            {"id": "delta", "dtype": "<i4", "astype": ">i2"},
            {"id": "shuffle", "elementsize": 2},
            {"id": "fletcher32"},
        ),
        compressor={"id": "zlib", "level": 1},
        order="F",
        separator="/",
    ),
}

UNREAD = {
    "struct": "zarr-python 3.1 does not know struct",
    "quantize narrow": "zarr-python forgets the astype of quantize in Zarr v3",
}
"""What zarr-python cannot read as Zarr v3: how names of cases begin, and why."""


def assert_zarr_reads(name: str, path: Any, expected: np.ndarray) -> None:
    """zarr-python reads the same, unless it cannot."""
    if any(name.startswith(limit) for limit in UNREAD):
        return
    np.testing.assert_array_equal(zarr.open_array(path, mode="r", zarr_format=3)[...], expected)


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("name", CASES)
def test_values_stay_and_chunks_are_not_touched(name, writer, tmp_path):
    WRITERS[writer](CASES[name], str(tmp_path))
    store = zellige.LocalStore(tmp_path)
    expected = zellige.open_array(tmp_path, mode="r", zarr_format=2)[...]
    before = contents(store)
    assert chunks_of(store)
    assert migrate(tmp_path, dry_run=False) == Migration(converted=("",), dry_run=False)
    after = contents(store)
    assert {key: value for key, value in after.items() if key != "zarr.json"} == before
    opened = zellige.open_array(tmp_path, mode="r")
    assert opened.metadata.zarr_format == 3
    assert opened.attrs.asdict() == {"unit": "m"}
    assert opened.dtype == expected.dtype
    np.testing.assert_array_equal(opened[...], expected)
    assert_zarr_reads(name, tmp_path, expected)


@pytest.mark.parametrize("name", CASES)
def test_a_converted_array_is_written_like_any_other(name, tmp_path):
    """And what is written can still be read as Zarr v2."""
    case = CASES[name]
    by_zellige(case, str(tmp_path))
    migrate(tmp_path, dry_run=False)
    opened = zellige.open_array(tmp_path)
    opened[...] = case.values[::-1] if case.shape else case.values
    old = zellige.open_array(tmp_path, mode="r", zarr_format=2)
    np.testing.assert_array_equal(old[...], opened[...])


def text(count: int) -> np.ndarray:
    return np.array([f"{'é' * (k % 4)}{k}" for k in range(count)], np.dtypes.StringDType())


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("make", [zellige.create_array, zarr.create_array], ids=["zellige", "zarr-python"])
def test_strings(make, order, tmp_path):
    model = text(30).reshape(6, 5)
    array = make(tmp_path, shape=(6, 5), chunks=(4, 3), dtype=str, zarr_format=2, order=order)
    array[...] = model
    before = chunks_of(zellige.LocalStore(tmp_path))
    assert migrate(tmp_path, dry_run=False).converted == ("",)
    opened = zellige.open_array(tmp_path, mode="r")
    assert opened.metadata.data_type.to_json() == "string"
    assert opened[...].tolist() == model.tolist()
    assert zarr.open_array(tmp_path, mode="r", zarr_format=3)[...].tolist() == model.tolist()
    assert chunks_of(zellige.LocalStore(tmp_path)) == before


def test_blobs(tmp_path):
    model = np.array([b"", b"a", b"\0\xff", b"zz"], object)
    array = zellige.create_array(tmp_path, shape=4, chunks=3, dtype="bytes", zarr_format=2, fill_value=b"no")
    array[:3] = model[:3]
    model[3] = b"no"
    assert migrate(tmp_path, dry_run=False).converted == ("",)
    assert zellige.open_array(tmp_path, mode="r")[...].tolist() == model.tolist()
    assert zarr.open_array(tmp_path, mode="r", zarr_format=3)[...].tolist() == model.tolist()


@pytest.mark.parametrize(("dtype", "fill"), [("<f4", None), ("<M8[s]", None), ("<U2", None), ("|V3", None), ("<i2", 5)])
def test_missing_chunks_read_the_same(dtype, fill):
    store = MemoryStore({".zarray": json.dumps(document(dtype=dtype, fill_value=fill)).encode()})
    expected = zellige.open_array(store, zarr_format=2)[...]
    migrate(store, dry_run=False)
    np.testing.assert_array_equal(zellige.open_array(store, zarr_format=3)[...], expected)


# -- the check on a chunk -------------------------------------------------------------------------


def test_a_chain_that_reads_otherwise_is_refused(monkeypatch):
    def wrong(old: ArrayV2Metadata) -> ArrayV3Metadata:
        document = to_v3(old).to_dict()
        document["codecs"][0]["configuration"]["endian"] = "big"
        return ArrayV3Metadata.from_dict(document)

    monkeypatch.setattr("zellige.tools.migrate.to_v3", wrong)
    store = MemoryStore({".zarray": json.dumps(document()).encode()})
    assert migrate(store, dry_run=False).failed == {"": "the codecs of Zarr v3 would read its chunks otherwise"}
    assert store.get("zarr.json") is None


def test_a_chain_that_does_not_read_is_refused(monkeypatch):
    def wrong(old: ArrayV2Metadata) -> ArrayV3Metadata:
        document = to_v3(old).to_dict()
        document["codecs"].append({"name": "crc32c", "configuration": {}})
        return ArrayV3Metadata.from_dict(document)

    monkeypatch.setattr("zellige.tools.migrate.to_v3", wrong)
    store = MemoryStore({".zarray": json.dumps(document()).encode()})
    assert "would not read its chunks" in migrate(store).failed[""]


@pytest.mark.parametrize(
    "shape", [(1,), (8,), (12,), (97,), (98,), (100, 1), (10**6, 64, 30), (2,) * 20, (4096,) * 8, ()]
)
def test_the_chunk_to_try_is_small_and_divides_alike(shape):
    small = migration._small(shape, 8)
    assert len(small) == len(shape)
    assert all(0 < a <= b for a, b in zip(small, shape, strict=True))
    assert np.prod(small, dtype=int) <= 4096
    if len(shape) < 5:
        assert all(np.prod(small, dtype=int) % k == 0 for k in (2, 4, 8) if np.prod(shape, dtype=int) % k == 0)


def test_a_filter_that_needs_more_elements_is_tried_on_the_whole_chunk():
    fields = {"dtype": "|u1", "shape": [21], "chunks": [21], "filters": [{"id": "shuffle", "elementsize": 7}]}
    assert migration._small((21,), 1) == (3,)
    store = MemoryStore({".zarray": json.dumps(document(**fields)).encode()})
    assert migrate(store).converted == ("",)


def test_what_cannot_be_tried_is_refused():
    fields = {"dtype": "|u1", "shape": [20], "chunks": [20], "filters": [{"id": "shuffle", "elementsize": 7}]}
    store = MemoryStore({".zarray": json.dumps(document(**fields)).encode()})
    assert "could not be tried: numcodecs.shuffle" in migrate(store).failed[""]


def test_elements_of_any_size_cost_little_memory():
    for dtype in ("|V2000000000", "<U500000000", "|S100000000"):
        store = MemoryStore({".zarray": json.dumps(document(dtype=dtype, fill_value=None)).encode()})
        assert "too large" in migrate(store).failed[""]
    fields = {"dtype": "|S100000", "fill_value": None, "shape": [10**6], "chunks": [10**5]}
    store = MemoryStore({".zarray": json.dumps(document(**fields)).encode()})
    assert migrate(store).converted == ("",)


# -- hierarchies ----------------------------------------------------------------------------------

MODEL = values("<i4")
DATA: dict[str, np.ndarray] = {"a/x": MODEL, "a/deep/y": text(5), "b": values("<f8")}
GROUPS = ("", "a", "a/deep", "empty")
LEAVES_FIRST = ("a/deep/y", "a/deep", "a/x", "a", "b", "empty", "")
JSON2 = {"shape": [3], "chunks": [3], "dtype": "|O", "fill_value": None, "filters": [{"id": "json2"}]}


def hierarchy(*, consolidated: bool = False, hard: bool = False) -> MemoryStore:
    """A store with a hierarchy of Zarr v2; `hard` with two nodes that cannot be converted."""
    store = MemoryStore()
    root = zellige.create_group(store, zarr_format=2, attributes={"title": "tides"})
    for path in GROUPS[1:]:
        root.create_group(path, attributes={"path": path})
    root.create_array("a/x", data=DATA["a/x"], chunks=(4, 3), dimension_names=["y", "x"], attributes={"unit": "m"})
    root.create_array("a/deep/y", data=DATA["a/deep/y"], chunks=2)
    root.create_array("b", data=DATA["b"], chunks=3, order="F", filters=[{"id": "delta", "dtype": "<f8"}])
    if hard:
        store.put("a/json/.zarray", json.dumps(document(**JSON2)).encode())
        store.put("a/json/0", b'["p", "q", 3, "|O", [3]]')
        store.put("hard/.zgroup", b'{"zarr_format": 2}')
        store.put("hard/mixed/.zarray", json.dumps(document(dtype=[["a", "<i4"], ["b", ">i4"]])).encode())
    if consolidated:
        zellige.consolidate_metadata(store)
    return store


def assert_all_there(store: Store, *, hard: bool = False) -> None:
    """Everything opens with its data, from the root and by itself."""
    root = zellige.open_group(store, mode="r")
    assert root.attrs["title"] == "tides"
    paths = [path for path, _ in root.members(max_depth=None)]
    assert sorted(paths) == sorted([*DATA, *GROUPS[1:], *(["a/json", "hard", "hard/mixed"] if hard else [])])
    for path, model in DATA.items():
        for found in (root[path], zellige.open_array(store, path=path, mode="r")):
            assert found[...].tolist() == model.tolist()
    for path in GROUPS[1:]:
        assert root[path].attrs["path"] == zellige.open_group(store, path=path, mode="r").attrs["path"] == path
    assert root["a/x"].attrs["unit"] == "m"
    assert root["a/x"].dimension_names == ("y", "x")
    if hard:
        assert root["a/json"][...].tolist() == ["p", "q", 3]


def formats(store: Store) -> dict[str, int]:
    """The format of each node as it is seen from the root."""
    root = zellige.open_group(store, mode="r")
    return {"": root.metadata.zarr_format, **{path: n.metadata.zarr_format for path, n in root.members(max_depth=None)}}


def test_a_dry_run_changes_nothing():
    store = hierarchy(consolidated=True, hard=True)
    before = contents(store)
    counting = CountingStore(store)
    found = migrate(counting)
    assert found.dry_run
    assert set(found.converted) == {*LEAVES_FIRST, "hard"}
    assert set(found.failed) == {"hard/mixed", "a/json"}
    assert contents(store) == before
    assert counting.made(*WRITES) == []
    assert {key.rpartition("/")[2] for key in counting.keys("get")} <= set(DOCUMENTS), "no chunk is read"


def test_a_dry_run_needs_no_right_to_write():
    assert migrate(hierarchy().as_read_only()).converted == LEAVES_FIRST


def test_a_whole_hierarchy():
    store = hierarchy()
    before = contents(store)
    counting = CountingStore(store)
    found = migrate(counting, dry_run=False)
    assert found == Migration(converted=LEAVES_FIRST, dry_run=False)
    assert counting.keys(*WRITES) == [f"{path}/zarr.json".lstrip("/") for path in LEAVES_FIRST]
    assert_all_there(store)
    assert set(formats(store).values()) == {3}
    assert {key: value for key, value in contents(store).items() if "zarr.json" not in key} == before


def test_a_part_of_a_hierarchy():
    store = hierarchy()
    assert migrate(store, "/a/deep/", dry_run=False).converted == ("a/deep/y", "a/deep")
    assert_all_there(store)
    assert set(formats(store).values()) == {2}, "through groups of Zarr v2 all is of Zarr v2"
    assert zellige.open_group(store, path="a/deep").metadata.zarr_format == 3
    place = zellige.open_group(store)["a/x"].store_path
    assert migrate(place, dry_run=False).converted == ("a/x",)


def test_again_there_is_nothing_to_do():
    store = hierarchy()
    migrate(store, dry_run=False)
    before = contents(store)
    found = migrate(store, dry_run=False)
    assert found.converted == ()
    assert set(found.skipped) == set(LEAVES_FIRST)
    assert contents(store) == before


def test_a_document_of_zarr_v3_is_never_overwritten():
    store = hierarchy()
    zellige.create_array(other := MemoryStore(), data=[1, 2, 3])
    store.put("a/x/zarr.json", other.get("zarr.json"))
    found = migrate(store, "a/x", dry_run=False, remove_v2=True)
    assert found.skipped == ("a/x",)
    assert "describes other chunks" in found.failed["a/x"]
    assert store.get("a/x/zarr.json") == other.get("zarr.json")
    assert store.get("a/x/.zarray") is not None


def test_zarr_python_reads_the_hierarchy(tmp_path):
    store = zellige.LocalStore(tmp_path)
    for key, value in contents(hierarchy(consolidated=True)).items():
        store.put(key, value)
    migrate(tmp_path, dry_run=False, remove_v2=True)
    for options in ({"use_consolidated": False}, {"use_consolidated": True}):
        root = zarr.open_group(tmp_path, mode="r", zarr_format=3, **options)
        assert dict(root.attrs) == {"title": "tides"}
        assert sorted(path for path, _ in root.members(max_depth=None)) == sorted([*DATA, *GROUPS[1:]])
        assert root["a/x"].metadata.dimension_names == ("y", "x")
        for path, model in DATA.items():
            assert root[path][...].tolist() == model.tolist()


# -- what cannot be converted ---------------------------------------------------------------------


@pytest.mark.parametrize("consolidated", [False, True])
def test_siblings_and_groups_of_what_cannot_be_converted_are_converted(consolidated):
    store = hierarchy(consolidated=consolidated, hard=True)
    before = contents(store)
    found = migrate(store, dry_run=False)
    assert set(found.failed) == {"a/json", "hard/mixed"}
    assert set(found.converted) == {*LEAVES_FIRST, "hard"}
    assert_all_there(store, hard=True)
    seen = formats(store)
    assert {path for path, zarr_format in seen.items() if zarr_format == 2} == set(found.failed)
    assert {key: value for key, value in contents(store).items() if "zarr.json" not in key} == before
    assert "consolidated_metadata" not in json.loads(store.get("zarr.json")), "it would hide the others"


def test_documents_of_what_cannot_be_converted_are_never_removed():
    store = hierarchy(consolidated=True, hard=True)
    found = migrate(store, dry_run=False, remove_v2=True)
    assert set(found.removed) == set(found.converted) == {*LEAVES_FIRST, "hard"}
    left = [key for key in contents(store) if key.rpartition("/")[2] in DOCUMENTS[:-1]]
    assert left == ["a/json/.zarray", "hard/mixed/.zarray"]
    assert_all_there(store, hard=True)


BROKEN = {
    "zarr.json": ("b/zarr.json", b"{", "not valid JSON"),
    "array": ("b/.zarray", b"{", "not valid JSON"),
    "attributes": ("b/.zattrs", b"[]", "must be an object"),
    "group": ("empty/.zgroup", b"{}", "zarr_format is missing"),
    "pickles": (
        "b/.zarray",
        json.dumps(document(dtype="|O", fill_value=None, filters=[{"id": "pickle"}])).encode(),
        "pickles",
    ),
    "unknown codec": ("b/.zarray", json.dumps(document(compressor={"id": "rot13"})).encode(), "rot13"),
    "bad option": ("b/.zarray", json.dumps(document(compressor={"id": "zlib", "level": "x"})).encode(), "level"),
    "deep": ("b/.zattrs", b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
}


@pytest.mark.parametrize(("key", "raw", "reason"), BROKEN.values(), ids=BROKEN)
def test_what_is_broken_is_named_and_left(key, raw, reason):
    store = hierarchy()
    store.put(key, raw)
    path = key.rpartition("/")[0]
    for dry_run in (True, False):
        found = migrate(store, dry_run=dry_run)
        assert list(found.failed) == [path]
        assert reason in found.failed[path]
        assert set(found.converted) == {*LEAVES_FIRST} - {path}
    assert store.get(key) == raw


def test_names_that_zarr_v3_does_not_have():
    store = hierarchy()
    store.put(".../.zgroup", b'{"zarr_format": 2}')
    store.put(".../t/.zarray", json.dumps(document()).encode())
    found = migrate(store, dry_run=False)
    assert set(found.failed) == {"...", ".../t"}
    assert "made of dots only" in found.failed["..."]


# -- consolidated metadata ------------------------------------------------------------------------


def test_consolidated_metadata_is_converted():
    store = hierarchy(consolidated=True)
    migrate(store, dry_run=False)
    root = zellige.open_consolidated(store, check=True)
    assert root.metadata.zarr_format == 3
    assert sorted(root.metadata.consolidated) == sorted([*DATA, *GROUPS[1:]])
    assert_all_there(store)


def test_without_consolidated_metadata_there_is_none():
    store = hierarchy()
    migrate(store, dry_run=False)
    assert zellige.open_group(store).metadata.consolidated is None


def test_stale_consolidated_metadata_is_not_believed():
    store = hierarchy(consolidated=True)
    zellige.open_group(store, use_consolidated=False)["a/x"].attrs.put({"unit": "ft"})
    zellige.create_array(store, name="new", data=[1, 2], zarr_format=2)
    migrate(store, dry_run=False)
    root = zellige.open_consolidated(store, check=True)
    assert root["new"][...].tolist() == [1, 2]
    assert root["a/x"].attrs["unit"] == "ft"


def test_a_group_below_may_have_consolidated_metadata_of_its_own():
    store = hierarchy()
    zellige.consolidate_metadata(store, "a")
    migrate(store, dry_run=False)
    assert zellige.open_group(store).metadata.consolidated is None
    below = zellige.open_consolidated(store, path="a", check=True)
    assert sorted(below.metadata.consolidated) == ["deep", "deep/y", "x"]


# -- removing the metadata of Zarr v2 -------------------------------------------------------------


def test_removing_the_documents_of_zarr_v2():
    store = hierarchy(consolidated=True)
    chunks = chunks_of(store)
    found = migrate(store, dry_run=False, remove_v2=True)
    assert set(found.removed) == set(LEAVES_FIRST)
    assert {key.rpartition("/")[2] for key in contents(store) if key not in chunks} == {"zarr.json"}
    assert chunks_of(store) == chunks
    assert_all_there(store)


def test_removing_them_later():
    store = hierarchy()
    migrate(store, dry_run=False)
    found = migrate(store, dry_run=False, remove_v2=True)
    assert set(found.removed) == set(found.skipped) == set(LEAVES_FIRST)
    assert not [key for key in contents(store) if "/.z" in f"/{key}"]


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_documents_that_differ_by_now_are_not_removed(zarr_format):
    """Nobody knows which is right: somebody may have gone on with Zarr v2."""
    store = hierarchy()
    migrate(store, dry_run=False)
    zellige.open_array(store, path="a/x", zarr_format=zarr_format).append(MODEL)
    zellige.open_group(store, zarr_format=zarr_format).attrs["new"] = 1
    found = migrate(store, dry_run=False, remove_v2=True)
    assert set(found.removed) == {*LEAVES_FIRST} - {"", "a/x"}
    assert "differs in shape" in found.failed["a/x"]
    assert "differs in attributes" in found.failed[""]
    assert zellige.open_array(store, path="a/x", zarr_format=zarr_format).shape == (12, 5)
    assert set(migrate(store, dry_run=False, remove_v2=True, force=True).removed) == {"", "a/x"}
    assert zellige.open_array(store, path="a/x").shape == (12 if zarr_format == 3 else 6, 5)


def test_they_are_not_removed_unless_the_array_opens():
    store = hierarchy()
    migrate(store, dry_run=False)
    found = json.loads(store.get("b/zarr.json"))
    store.put("b/zarr.json", json.dumps({**found, "codecs": [{"name": "rot13"}]}).encode())
    done = migrate(store, dry_run=False, remove_v2=True)
    assert "rot13" in done.failed["b"]
    assert store.get("b/.zarray") is not None
    assert set(done.removed) == {*LEAVES_FIRST} - {"b"}


def test_attributes_that_a_removal_left_behind_go_too():
    store = hierarchy()
    migrate(store, dry_run=False)
    store.delete(["a/x/.zarray"])
    assert "a/x" in migrate(store, dry_run=False, remove_v2=True).removed
    assert store.get("a/x/.zattrs") is None


@pytest.mark.parametrize("options", [{}, {"undo": True}, {"undo": True, "dry_run": False}])
def test_removing_needs_to_be_meant(options):
    store = hierarchy()
    before = contents(store)
    with pytest.raises(ValueError, match="remove_v2=True needs dry_run=False"):
        migrate(store, remove_v2=True, **options)
    assert contents(store) == before


# -- undoing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("consolidated", [False, True])
def test_undo_restores_the_store(consolidated, hard):
    store = hierarchy(consolidated=consolidated, hard=hard)
    before = contents(store)
    converted = migrate(store, dry_run=False).converted
    after = contents(store)
    preview = migrate(store, undo=True)
    assert contents(store) == after
    found = migrate(store, undo=True, dry_run=False)
    assert contents(store) == before
    assert set(found.removed) == set(preview.removed) == set(converted)
    assert found.failed == {}
    assert set(found.skipped) == ({"a/json", "hard/mixed"} if hard else set())


def test_undo_goes_from_the_root_downwards():
    store = hierarchy()
    migrate(store, dry_run=False)
    counting = CountingStore(store)
    migrate(counting, undo=True, dry_run=False)
    depths = [key.count("/") for key in counting.keys("delete")]
    assert depths == sorted(depths)


CHANGES = {
    "attributes": lambda store: zellige.open_array(store, path="a/x").attrs.put({"unit": "ft"}),
    "shape": lambda store: zellige.open_array(store, path="a/x").resize((7, 5)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_undo_refuses_to_lose_changes(what):
    store = hierarchy()
    before = contents(store)
    migrate(store, dry_run=False)
    CHANGES[what](store)
    changed = contents(store)
    assert what in migrate(store, undo=True).failed["a/x"]
    with pytest.raises(ConflictError, match=rf"nothing was undone: '/a/x': .*\({what}\)"):
        migrate(store, undo=True, dry_run=False)
    assert contents(store) == changed
    assert migrate(store, undo=True, dry_run=False, force=True).failed == {}
    assert contents(store) == before


def test_undo_refuses_what_has_no_documents_of_zarr_v2():
    store = hierarchy()
    migrate(store, dry_run=False)
    zellige.create_array(store, name="new", data=[1, 2, 3])
    found = migrate(store, undo=True, dry_run=False)
    assert list(found.failed) == ["new"]
    assert set(found.removed) == set(LEAVES_FIRST)
    assert zellige.open_group(store)["new"][...].tolist() == [1, 2, 3], "seen from the group of Zarr v2, too"


def test_after_the_removal_there_is_no_way_back():
    store = hierarchy()
    migrate(store, dry_run=False, remove_v2=True)
    before = contents(store)
    for force in (False, True):
        found = migrate(store, undo=True, dry_run=False, force=force)
        assert found.removed == ()
        assert set(found.failed) == set(LEAVES_FIRST)
    assert contents(store) == before


def test_new_consolidated_metadata_does_not_keep_from_undoing():
    store = hierarchy()
    before = contents(store)
    migrate(store, dry_run=False)
    zellige.consolidate_metadata(store)
    migrate(store, undo=True, dry_run=False)
    assert contents(store) == before


# -- cut short ------------------------------------------------------------------------------------


class Cut(Exception):
    """The power is gone."""


def cut_at(store: Store, number: int) -> CountingStore:
    """A store that fails at a write, and at everything after it."""
    writes = 0

    def before(method: str, key: str) -> None:
        nonlocal writes
        if writes >= number or method in WRITES:
            if writes >= number:
                raise Cut
            writes += 1

    return CountingStore(store, before)


STEPS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "convert": ({}, {}),
    "convert and remove": ({}, {"remove_v2": True}),
    "remove": ({"before": True}, {"remove_v2": True}),
    "undo": ({"before": True}, {"undo": True}),
}


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.parametrize(("given", "options"), STEPS.values(), ids=STEPS)
def test_wherever_it_is_cut_short_all_is_there_and_it_can_be_finished(given, options, consolidated, hard):
    def start() -> MemoryStore:
        store = hierarchy(consolidated=consolidated, hard=hard)
        if given:
            migrate(store, dry_run=False)
        return store

    finished = start()
    counting = CountingStore(finished)
    migrate(counting, dry_run=False, **options)
    writes = len(counting.made(*WRITES))
    assert writes >= 7
    for number in range(writes):
        store = start()
        with pytest.raises(Cut):
            migrate(cut_at(store, number), dry_run=False, **options)
        assert_all_there(store, hard=hard)
        migrate(store, dry_run=False, **options)
        assert contents(store) == contents(finished), number


def test_what_was_cut_short_can_be_undone():
    for number in range(7):
        store = hierarchy(consolidated=True)
        before = contents(store)
        with pytest.raises(Cut):
            migrate(cut_at(store, number), dry_run=False)
        migrate(store, undo=True, dry_run=False)
        assert contents(store) == before


@pytest.mark.filterwarnings("ignore:Both zarr.json", "ignore:Object at .*zarr.json is not recognized")
@pytest.mark.parametrize("number", range(7))
def test_zarr_python_finds_everything_wherever_it_is_cut_short(number, tmp_path):
    store = zellige.LocalStore(tmp_path)
    for key, value in contents(hierarchy(consolidated=True)).items():
        store.put(key, value)
    with pytest.raises(Cut):
        migrate(cut_at(store, number), dry_run=False)
    for options in ({"use_consolidated": False}, {}):
        root = zarr.open_group(tmp_path, mode="r", **options)
        assert sorted(path for path, _ in root.members(max_depth=None)) == sorted([*DATA, *GROUPS[1:]])
        for path, model in DATA.items():
            assert root[path][...].tolist() == zarr.open_array(tmp_path, path=path, mode="r")[...].tolist()
            assert root[path][...].tolist() == model.tolist()


def test_changes_after_a_migration_was_cut_short_are_not_overlooked():
    store = hierarchy()
    with pytest.raises(Cut):
        migrate(cut_at(store, 4), dry_run=False)
    zellige.open_group(store)["a/x"].attrs["unit"] = "ft"  # through groups of Zarr v2
    found = migrate(store, dry_run=False)
    assert "differ in attributes" in found.failed["a/x"]
    migrate(store, undo=True, dry_run=False, force=True)
    assert migrate(store, dry_run=False).converted == LEAVES_FIRST
    assert zellige.open_group(store)["a/x"].attrs["unit"] == "ft"


# -- others at work -------------------------------------------------------------------------------


def test_documents_that_change_meanwhile_are_not_converted():
    store = hierarchy()
    seen = 0

    def before(method: str, key: str) -> None:
        nonlocal seen
        seen += (method, key) == ("get", "a/x/.zarray")
        if seen == 2 and key == "a/x/.zarray":
            seen += 1
            store.put("a/x/.zattrs", b'{"unit": "ft"}')

    found = migrate(CountingStore(store, before), dry_run=False)
    assert list(found.failed) == ["a/x"]
    assert "changed meanwhile" in found.failed["a/x"]
    assert "a/x" not in found.converted
    assert migrate(store, dry_run=False).converted == ("a/x",)
    assert zellige.open_group(store)["a/x"].attrs["unit"] == "ft"


def test_attributes_that_are_not_finite_stay_as_they_are_in_both_directions():
    store = hierarchy()
    store.put("a/x/.zattrs", b'{"a": NaN, "b": [Infinity], "c": "NaN"}')
    assert migrate(store, dry_run=False).failed == {}
    assert repr(zellige.open_array(store, path="a/x").attrs.asdict()) == "{'a': nan, 'b': [inf], 'c': 'NaN'}"
    assert migrate(store, undo=True, dry_run=False).failed == {}
    assert migrate(store, dry_run=False).failed == {}
    zellige.open_array(store, path="a/x").attrs["a"] = "NaN"
    assert "attributes" in migrate(store, undo=True).failed["a/x"]


def test_documents_that_change_before_they_are_removed_stay():
    store = hierarchy()

    def before(method: str, key: str) -> None:
        if (method, key) == ("create", "zarr.json"):  # the last one
            store.put("a/x/.zattrs", b'{"unit": "ft"}')

    found = migrate(CountingStore(store, before), dry_run=False, remove_v2=True)
    assert "changed meanwhile" in found.failed["a/x"]
    assert store.get("a/x/.zattrs") == b'{"unit": "ft"}'


def test_a_document_that_somebody_else_writes_meanwhile_stays():
    store = hierarchy(consolidated=True)

    def before(method: str, key: str) -> None:
        if (method, key) == ("create", "b/zarr.json"):
            store.put(key, b"theirs")

    found = migrate(CountingStore(store, before), dry_run=False, remove_v2=True)
    assert "another writer" in found.failed["b"]
    assert store.get("b/zarr.json") == b"theirs"
    assert store.get("b/.zarray") is not None
    assert "consolidated_metadata" not in json.loads(store.get("zarr.json"))


def test_undo_does_not_remove_what_changes_meanwhile():
    store = hierarchy()
    migrate(store, dry_run=False)
    reads = 0

    def before(method: str, key: str) -> None:
        nonlocal reads
        reads += (method, key) == ("get", "b/zarr.json")
        if reads == 2:
            reads += 1
            store.put(key, store.get(key).replace(b"float64", b"int64"))

    with pytest.raises(ConflictError, match="changed meanwhile"):
        migrate(CountingStore(store, before), undo=True, dry_run=False)
    assert store.get("b/zarr.json") is not None


# -- arguments and results ------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"undo": True}, {"remove_v2": True}])
def test_a_store_for_reading_is_refused(options):
    store = hierarchy()
    migrate(store, dry_run=False)
    with pytest.raises(ReadOnlyError):
        migrate(store.as_read_only(), dry_run=False, **options)


def test_where_there_is_nothing(tmp_path):
    for store, path in ((tmp_path, ""), (hierarchy(), "c"), ({}, None)):
        with pytest.raises(NodeNotFoundError):
            migrate(store, path)
    with pytest.raises(ValueError, match="storage_options"):
        migrate(hierarchy(), storage_options={"key": 1})


@pytest.mark.parametrize("dry_run", [False, True])
def test_progress(dry_run):
    store = hierarchy(hard=True)
    seen: list[tuple[int, int, str]] = []
    migrate(store, dry_run=dry_run, progress=lambda *call: seen.append(call))
    assert seen[-1] == (10, 10, "")
    assert [done for done, _, _ in seen] == list(range(11 - len(seen), 11))
    assert {path for _, _, path in seen} >= {*LEAVES_FIRST}
    migrate(store, dry_run=False)
    seen.clear()
    migrate(store, undo=True, dry_run=dry_run, progress=lambda *call: seen.append(call))
    assert (seen[0][2], seen[-1][:2]) == ("", (10, 10))


def test_the_result_is_readable():
    store = hierarchy(hard=True)
    zellige.create_array(store, name="new", data=[1], zarr_format=3)
    assert repr(migrate(store)).splitlines() == [
        "<migration (a dry run: nothing was written; use dry_run=False)>",
        "  /: would be converted",
        "  /a: would be converted",
        "  /a/deep: would be converted",
        "  /a/deep/y: would be converted",
        "  /a/json: left as it is: dtype: of objects Zarr v3 has strings and bytes only, not what 'json2' is for",
        "  /a/x: would be converted",
        "  /b: would be converted",
        "  /empty: would be converted",
        "  /hard: would be converted",
        "  /hard/mixed: left as it is: dtype: fields have different byte orders, and Zarr v3 has one for all of them",
        "  /new: has metadata of Zarr v3",
    ]
    lines = repr(migrate(store, "b", dry_run=False, remove_v2=True)).splitlines()
    assert lines == ["<migration>", "  /b: converted, without metadata of Zarr v2"]
    lines = repr(migrate(store, "b", undo=True)).splitlines()
    assert lines[1] == "  /b: left as it is: it has no metadata of Zarr v2 to go back to"
    lines = repr(migrate(store, "a/x", undo=True)).splitlines()
    assert lines[1] == "  /a/x: has only metadata of Zarr v2"


def test_the_errors_are_those_of_documents():
    assert issubclass(NotConvertibleError, MetadataError)
    assert zellige.migrate is migrate
