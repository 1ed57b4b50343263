"""A good document, and small changes to it."""

from __future__ import annotations

import copy
import json

import zellige

BYTES = {"name": "bytes", "configuration": {"endian": "little"}}
GOOD = {
    "zarr_format": 3,
    "node_type": "array",
    "shape": [4, 6],
    "data_type": "int16",
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, 3]}},
    "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
    "fill_value": 7,
    "codecs": [BYTES],
}
MISSING = object()
HUGE = 2**62

# Paths in a document, as errors name them.
CHUNKS = "chunk_grid.configuration.chunk_shape"
SHAPES = "chunk_grid.configuration.chunk_shapes"
FIRST, SECOND = "codecs[0].configuration", "codecs[1].configuration"


def regular(*sizes, **changes):
    configuration = {"chunk_shape": list(sizes), **changes}
    return {"name": "regular", "configuration": {k: v for k, v in configuration.items() if v is not MISSING}}


def rectilinear(*chunk_shapes, **changes):
    configuration = {"kind": "inline", "chunk_shapes": list(chunk_shapes), **changes}
    return {"name": "rectilinear", "configuration": {k: v for k, v in configuration.items() if v is not MISSING}}


def blosc(**changes):
    configuration = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 0, **changes}
    return [BYTES, {"name": "blosc", "configuration": {k: v for k, v in configuration.items() if v is not MISSING}}]


def compressed(name, *configuration, **options):
    return [BYTES, {"name": name, **({"configuration": configuration[0]} if configuration else {}), **options}]


def transposed(*order):
    return [{"name": "transpose", "configuration": {"order": list(order)}}, BYTES]


def document(**changes):
    return copy.deepcopy({k: v for k, v in {**GOOD, **changes}.items() if v is not MISSING})


def in_place_of(field, text):
    """The good document with some text in place of a field's value."""
    return json.dumps(document(**{field: "@"})).replace('"@"', text)


def open_document(raw):
    if isinstance(raw, dict):
        raw = json.dumps(raw)
    return zellige.open(zellige.MemoryStore({"zarr.json": raw.encode() if isinstance(raw, str) else raw}))
