"""The configuration of `sharding_indexed`: what is refused, with the field that is wrong, and what is written."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

import zellige
from zellige.codecs import BytesCodec, Crc32cCodec, ShardingCodec
from zellige.errors import ChunkShapeError, MetadataError, UnknownCodecError
from zellige.stores import MemoryStore


def codec(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, **({"configuration": configuration} if configuration else {})}


PLAIN, LITTLE, CRC = codec("bytes"), codec("bytes", endian="little"), codec("crc32c")
TRANSPOSE = codec("transpose", order=[1, 0])


def sharding(
    chunk_shape: Any, codecs: Any = (PLAIN,), index_codecs: Any = (LITTLE, CRC), **more: Any
) -> dict[str, Any]:
    """The codec as JSON."""
    given = {"chunk_shape": list(chunk_shape), "codecs": list(codecs), "index_codecs": list(index_codecs), **more}
    return codec("sharding_indexed", **given)


def outer(array: zellige.Array) -> ShardingCodec:
    """The codec around the chunks that `array.serializer` is about."""
    return array._chunks.chain.serializer


def stored(chain: list[Any], shape: Any, chunks: Any = None) -> MemoryStore:
    """A store with a document written by hand; `chunks` are rectilinear."""
    store = MemoryStore()
    regular = codec("regular", chunk_shape=list(shape))
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": "uint8",
        "chunk_grid": codec("rectilinear", kind="inline", chunk_shapes=chunks) if chunks else regular,
        "chunk_key_encoding": codec("default", separator="/"),
        "fill_value": 0,
        "codecs": chain,
    }
    store.put("zarr.json", json.dumps(document).encode())
    return store


# -- refused --------------------------------------------------------------------------------------


def without(name: str) -> dict[str, Any]:
    item = sharding((2, 2))
    del item["configuration"][name]
    return item


REFUSED = {  # codec, the field after `codecs[0].`, a part of the message
    "no chunk_shape": (without("chunk_shape"), "configuration.chunk_shape", "chunk_shape"),
    "no codecs": (without("codecs"), "configuration.codecs", "codecs must be a list"),
    "no index_codecs": (without("index_codecs"), "configuration.index_codecs", "index_codecs must be a list"),
    **{
        f"chunk_shape {value!r}": (
            codec("sharding_indexed", **{**sharding((2, 2))["configuration"], "chunk_shape": value}),
            "configuration.chunk_shape",
            "integers >= 1",
        )
        for value in ([2, 0], [2, -1], [2, 2**63], [2, 2.0], [2, "2"], [2, True], [2, None], 2, "22", None, {"0": 2})
    },
    "rank": (sharding((2,)), "configuration.chunk_shape", "for 1 axes, the shard has 2"),
    "rank too high": (sharding((2, 2, 2)), "configuration.chunk_shape", "for 3 axes, the shard has 2"),
    "location": (sharding((2, 2), index_location="middle"), "configuration.index_location", "'start', 'end'"),
    "location null": (sharding((2, 2), index_location=None), "configuration.index_location", "'start', 'end'"),
    "unknown key": (sharding((2, 2), order="C"), "configuration.order", "unknown"),
    "codecs empty": (sharding((2, 2), []), "configuration.codecs", "codecs must be a list"),
    "index_codecs empty": (sharding((2, 2), index_codecs=[]), "configuration.index_codecs", "must be a list"),
    "codecs an object": (
        codec("sharding_indexed", **{**sharding((2, 2))["configuration"], "codecs": PLAIN}),
        "configuration.codecs",
        "codecs must be a list",
    ),
    "no serializer": (sharding((2, 2), [CRC]), "configuration.codecs", "array-to-bytes"),
    "out of order": (sharding((2, 2), [CRC, PLAIN]), "configuration.codecs", "out of order"),
    "unknown codec": (sharding((2, 2), [PLAIN, codec("zsdt")]), "configuration.codecs[1].name", "zstd"),
    "bad level": (
        sharding((2, 2), [PLAIN, codec("gzip", level=11)]),
        "configuration.codecs[1].configuration.level",
        "from 0 to 9",
    ),
    "not a codec": (sharding((2, 2), [PLAIN, 5]), "configuration.codecs[1].name", "5"),
    "a codec with more": (sharding((2, 2), [{**PLAIN, "id": 1}]), "configuration.codecs[0].id", "id"),
    "bad order": (
        sharding((2, 2), [codec("transpose", order=[2, 1, 0]), PLAIN]),
        "configuration.codecs[0].configuration.order",
        "3 axes",
    ),
    "no byte order": (
        sharding((2, 2), index_codecs=[PLAIN]),
        "configuration.index_codecs[0].configuration.endian",
        "byte order",
    ),
    "unknown index codec": (
        sharding((2, 2), index_codecs=[LITTLE, codec("x")]),
        "configuration.index_codecs[1].name",
        "'x' is not known",
    ),
    **{
        f"{name} in the index": (
            sharding((2, 2), index_codecs=[LITTLE, codec(name, **configuration)]),
            "configuration.index_codecs",
            "fixed size",
        )
        for name, configuration in {
            "gzip": {"level": 1},
            "zstd": {"level": 1},
            "blosc": {"cname": "lz4", "clevel": 1, "shuffle": "noshuffle", "blocksize": 0},
        }.items()
    },
    "a shard as index": (
        sharding((2, 2), index_codecs=[sharding((1, 1, 2), [LITTLE])]),
        "configuration.index_codecs",
        "fixed size",
    ),
    "nested key": (
        sharding((4, 4), [sharding((2, 2), x=1)]),
        "configuration.codecs[0].configuration.x",
        "unknown",
    ),
    "nested twice": (
        sharding((4, 4), [TRANSPOSE, sharding((2, 2), [sharding((2, 2), [PLAIN, codec("gzip", level="1")])])]),
        "configuration.codecs[1].configuration.codecs[0].configuration.codecs[1].configuration.level",
        "from 0 to 9",
    ),
    "nested index": (
        sharding((4, 4), [sharding((2, 2), index_codecs=[LITTLE, codec("zstd", level=1)])]),
        "configuration.codecs[0].configuration.index_codecs",
        "fixed size",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_documents_name_the_field(name):
    item, field, message = REFUSED[name]
    store = stored([item], (12, 8))
    with pytest.raises(MetadataError, match=f"(?s){message}") as caught:
        zellige.open_array(store)
    assert caught.value.field == f"codecs[0].{field}"
    assert isinstance(caught.value, UnknownCodecError) == name.startswith("unknown") * field.endswith(".name")


@pytest.mark.parametrize("name", REFUSED)
def test_refused_arguments_create_nothing(name):
    item, field, message = REFUSED[name]
    store = MemoryStore()
    with pytest.raises(MetadataError, match=f"(?s){message}") as caught:
        zellige.create_array(store, shape=(12, 8), dtype="uint8", chunks=(12, 8), serializer=item, compressors=None)
    assert caught.value.field.endswith(field)
    assert list(store.list()) == []


NOT_DIVIDING = {  # codecs, edges, axis, the size of inner chunks, an edge that it does not divide, the nearest that do
    "not dividing": ([sharding((2, 3))], (12, 8), 1, 3, 8, 2),
    "not dividing axis 0": ([sharding((5, 2))], (12, 8), 0, 5, 12, 4),
    "larger than the shard": ([sharding((24, 2))], (12, 8), 0, 24, 12, 12),
    "within a shard": ([sharding((6, 4), [sharding((2, 3))])], (12, 8), 1, 3, 4, 2),
    "within a shard of a prime": ([sharding((6, 4), [sharding((5, 4))])], (12, 8), 0, 5, 6, 6),
    "within a transposed shard": ([TRANSPOSE, sharding((4, 6), [sharding((3, 2))])], (12, 8), 1, 3, 4, 2),
    "transposed": ([TRANSPOSE, sharding((3, 4))], (12, 8), 1, 3, 8, 2),
    "compressed": ([sharding((2, 3)), codec("gzip", level=1)], (12, 8), 1, 3, 8, 2),
    "one of the edges": ([sharding((2, 2))], ([2, 4, 5, 1], 4), 0, 2, 5, 1),
    "transposed edges": ([TRANSPOSE, sharding((4, 2))], ([2, 10], [4, 6]), 1, 4, 6, 2),
}


@pytest.mark.parametrize("name", NOT_DIVIDING)
def test_inner_chunks_that_do_not_divide_a_shard_are_read_and_not_written(name):
    chain, edges, axis, size, edge, nearest = NOT_DIVIDING[name]
    shape = (12, 10 if name == "transposed edges" else 8)
    store = stored(chain, shape, edges)
    array = zellige.open_array(store)
    assert not array[...].any()
    words = rf"axis {axis}: inner chunks of {size} do not divide a shard of {edge}; the nearest that do are {nearest}"
    words += r".*array\.uneven_inner_chunks=True"
    before = {key: store.get(key) for key in store.list()}
    serializer = next(item for item in chain if item["name"] == "sharding_indexed")
    filters, compressors = chain[: chain.index(serializer)], chain[chain.index(serializer) + 1 :]
    for change in (
        lambda: array.__setitem__(0, 1),
        lambda: array.resize((5, 5)),
        lambda: array.append(np.ones((1, shape[1]))),
        lambda: array.start_append(3),
        lambda: zellige.create_array(
            store,
            name="new",
            shape=shape,
            chunks=edges,
            dtype="uint8",
            filters=filters,
            serializer=serializer,
            compressors=compressors,
        ),
        lambda: zellige.create_hierarchy(store=store, nodes={"new": array.metadata}),
    ):
        with pytest.raises(ChunkShapeError, match=words) as caught:
            change()
        assert caught.value.axis == axis
    assert {key: store.get(key) for key in store.list()} == before
    array.attrs["title"] = "attributes are no chunks"
    allowed = array.with_config({"uneven_inner_chunks": True})
    allowed[...] = model = np.arange(array.size, dtype="uint8").reshape(shape)
    assert np.array_equal(array[...], model)
    with zellige.config.set({"array.uneven_inner_chunks": True}):
        zellige.open_array(store)[0] = model[0] = 9
    assert np.array_equal(array[...], model)


def test_inner_chunks_divide_what_codecs_before_them_have_changed():
    reshape = codec("reshape", shape=[[0, 1]])
    with pytest.raises(MetadataError, match="must behind codecs that do more than reorder axes"):
        zellige.open_array(stored([reshape, sharding((5,))], (12, 8)))
    assert not zellige.open_array(stored([reshape, sharding((6,))], (12, 8)))[...].any()


# -- written --------------------------------------------------------------------------------------


def test_the_configuration_is_written_in_full():
    inner = [codec("transpose", order=[1, 0]), codec("bytes", endian="big"), codec("zstd", level=3)]
    array = zellige.open_array(stored([sharding((2, 2), inner, [LITTLE])], (4, 4)))
    assert isinstance(outer(array), ShardingCodec)
    assert outer(array).to_json() == codec(
        "sharding_indexed",
        chunk_shape=[2, 2],
        codecs=[*inner[:2], codec("zstd", level=3, checksum=False)],
        index_codecs=[LITTLE],
        index_location="end",
    )
    assert ShardingCodec.from_configuration(outer(array).configuration()) == outer(array)
    created = zellige.create_array(shape=(4, 4), dtype="uint8", chunks=(4, 4), serializer=outer(array))
    assert created.metadata.to_dict()["codecs"][0] == outer(array).to_json()


def test_bare_names_of_codecs_inside():
    array = zellige.open_array(stored([sharding((2, 2), ["bytes", "crc32c"])], (4, 4)))
    assert outer(array).codecs == (BytesCodec(None), Crc32cCodec())


def test_the_codec_is_a_value():
    found = [outer(zellige.open_array(stored([sharding((2, 2), [sharding((1, 2))])], (4, 4)))) for _ in range(2)]
    assert found[0] == found[1]
    assert pickle.loads(pickle.dumps(found[0])) == found[0]
    assert found[0] != ShardingCodec((2, 2), found[0].codecs, found[0].index_codecs, "start")


def test_nesting_costs_no_more_for_each_level():
    item = PLAIN
    for _ in range(40):  # twice the work for each level would take centuries
        item = sharding((1, 1), [item], [LITTLE])
    array = zellige.open_array(stored([item], (2, 2)))
    array[...] = [[1, 2], [3, 0]]
    assert array[...].tolist() == [[1, 2], [3, 0]]
    assert array[1, 0] == 3
    assert array.chunks == (1, 1)
