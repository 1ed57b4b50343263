"""`numcodecs.*` codecs in arrays: zarr-python reads what we write, and writes what we read."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import zarr
import zellige

with warnings.catch_warnings():  # zarr-python says that these names are not in the specification
    warnings.simplefilter("ignore")
    from zarr.codecs import numcodecs as theirs

pytestmark = pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3 specification")

SMOOTH = np.cumsum(np.random.default_rng(1).integers(-2, 3, 7 * 50)).reshape(7, 50)

BYTES_CODECS = {
    "Blosc": {"cname": "lz4", "clevel": 5, "shuffle": 1},
    "Zstd": {"level": 3},
    "GZip": {"level": 2},
    "Zlib": {"level": 1},
    "BZ2": {"level": 9},
    "LZMA": {},
    "LZ4": {"acceleration": 1},
    "Shuffle": {"elementsize": 4},
    "CRC32": {},
    "Adler32": {},
    "CRC32C": {},
    "Fletcher32": {},
    "JenkinsLookup3": {},
}
FILTERS = {
    "Delta": (np.int32, {"dtype": "<i4"}),
    "FixedScaleOffset": (np.float64, {"offset": 10, "scale": 2, "dtype": "<f8", "astype": "<i4"}),
    "Quantize": (np.float32, {"digits": 3, "dtype": "<f4"}),
    "AsType": (np.int64, {"encode_dtype": "<i2", "decode_dtype": "<i8"}),
    "BitRound": (np.float32, {"keepbits": 12}),
    "PackBits": (np.bool_, {}),
}
SERIALIZERS = {
    "ZFPY": (np.float64, {"mode": 4, "tolerance": 0.01}),
    "PCodec": (np.int32, {"level": 8, "mode_spec": "auto"}),
}
CODECS = [*BYTES_CODECS, *FILTERS, *SERIALIZERS]


def arguments(name):
    """The data and the codec arguments of a case, in zarr-python's terms."""
    if name in BYTES_CODECS:
        codec = getattr(theirs, name)(**BYTES_CODECS[name])
        return SMOOTH.astype(np.int32), {"compressors": [codec]}
    if name in SERIALIZERS:
        dtype, configuration = SERIALIZERS[name]
        codec = getattr(theirs, name)(**configuration)
        return SMOOTH.astype(dtype), {"serializer": codec, "compressors": None}
    dtype, configuration = FILTERS[name]
    return SMOOTH.astype(dtype), {"filters": [getattr(theirs, name)(**configuration)], "compressors": None}


@pytest.mark.parametrize("name", CODECS)
def test_we_read_what_zarr_python_writes(tmp_path, name):
    data, codecs = arguments(name)
    array = zarr.create_array(tmp_path, shape=data.shape, chunks=(3, 20), dtype=data.dtype, **codecs)
    array[...] = data
    np.testing.assert_array_equal(zellige.open(tmp_path, mode="r")[...], array[...])


def _as_json(value):
    if value is None or isinstance(value, list):
        return [codec.to_dict() for codec in value or ()]
    return value.to_dict()


@pytest.mark.parametrize("name", CODECS)
def test_zarr_python_reads_what_we_write(tmp_path, name):
    data, codecs = arguments(name)
    given = {key: _as_json(value) for key, value in codecs.items()}
    array = zellige.create_array(tmp_path, data=data, chunks=(3, 20), **{"compressors": None, **given})
    found = zarr.open_array(tmp_path, mode="r")[...]
    np.testing.assert_array_equal(found, array[...])
    if name not in ("FixedScaleOffset", "Quantize", "BitRound", "ZFPY"):  # the others lose nothing
        np.testing.assert_array_equal(found, data)


# -- their objects handed to us -------------------------------------------------------------------

BLOSC = {
    "nothing chosen": {},
    "another compressor": {"cname": "lz4", "clevel": 1},
    "shuffle chosen": {"shuffle": "noshuffle"},
    "shuffle chosen as it would be": {"shuffle": "bitshuffle"},
    "typesize chosen": {"typesize": 2},
    "a typesize of 1 chosen": {"typesize": 1},
    "both chosen": {"typesize": 1, "shuffle": "bitshuffle"},
}


def blosc_of(metadata):
    """The configuration of blosc in a document, wherever it is."""
    codecs = metadata.to_dict()["codecs"]
    while codecs[0]["name"] == "sharding_indexed":
        codecs = codecs[0]["configuration"]["codecs"]
    return next(codec["configuration"] for codec in codecs if codec["name"] == "blosc")


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int16", "float64", "complex128", str])
@pytest.mark.parametrize("name", BLOSC)
def test_blosc_of_zarr_python_is_tuned_as_zarr_python_does(name, dtype):
    codec = zarr.codecs.BloscCodec(**BLOSC[name])
    options = {"shape": (100,), "chunks": (10,), "dtype": dtype, "compressors": codec}
    for shards in (None, (50,)):
        theirs = zarr.create_array({}, shards=shards, **options)
        ours = zellige.create_array({}, shards=shards, **options)
        assert blosc_of(ours.metadata) == blosc_of(theirs.metadata)


def test_shards_of_zarr_python_are_taken_with_what_they_hold():
    inner = [zarr.codecs.BytesCodec(), zarr.codecs.BloscCodec()]
    nested = zarr.codecs.ShardingCodec(chunk_shape=(5,), codecs=inner, index_location="start")
    codec = zarr.codecs.ShardingCodec(chunk_shape=(10,), codecs=[nested])
    array = zellige.create_array(data=np.arange(100.0), chunks=(50,), serializer=codec, compressors=None)
    assert (array.shards, array.chunks) == ((50,), (10,))
    assert blosc_of(array.metadata) == {
        "cname": "zstd",
        "clevel": 5,
        "shuffle": "shuffle",
        "typesize": 8,
        "blocksize": 0,
    }
    configuration = array.metadata.to_dict()["codecs"][0]["configuration"]["codecs"][0]["configuration"]
    assert configuration["index_location"] == "start"
    assert np.array_equal(array[3:97], np.arange(3.0, 97.0))
