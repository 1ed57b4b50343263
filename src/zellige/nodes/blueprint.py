"""What follows from an array's metadata alone: its grid and its codec chain; remembered for documents met before.

Opening an array again, or another one with the same document but for the attributes, checks nothing twice.
"""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, NamedTuple

from zellige.codecs.chain import CodecChain
from zellige.codecs.sharding import Uneven, uneven
from zellige.grid.grid import ChunkGrid
from zellige.metadata.json import as_attributes, copied
from zellige.metadata.v3 import DOCUMENT
from zellige.types import Shape

if TYPE_CHECKING:
    from zellige.metadata.groups import Documents
    from zellige.nodes.node import ArrayMetadata

_MOST, _LONGEST = 1024, 16 << 10
_known: dict[bytes, Blueprint] = {}


class Blueprint(NamedTuple):
    """An array without its place and its settings; shared by handles, so nothing here ever changes."""

    metadata: ArrayMetadata
    grid: ChunkGrid
    chain: CodecChain
    inner: Shape | None
    """The shape of the inner chunks of shards."""
    uneven: Uneven | None
    """Where inner chunks do not divide the shards."""

    @classmethod
    def of(cls, metadata: ArrayMetadata) -> Blueprint:
        """Check what the metadata says, and bring it together."""
        grid = ChunkGrid.from_metadata(metadata)
        shape = tuple(next(iter(dim.unique_edge_lengths)) for dim in grid.dimensions)
        chain = CodecChain.from_json(metadata.codecs, metadata.data_type, metadata.fill_value, shape)
        shard = chain.shard(shape)
        if shard is None:
            return cls(metadata, grid, chain, None, None)
        return cls(metadata, grid, chain, shard.chunk_shape, uneven(chain, grid.dimensions))


def remember(raw: bytes, blueprint: Blueprint) -> None:
    """Keep what a document, or its fingerprint, came to."""
    if len(raw) <= _LONGEST:
        if len(_known) >= _MOST:
            _known.clear()
        _known[raw] = _copied(blueprint)


def remembered(raw: bytes) -> Blueprint | None:
    """Return what a document came to before, with a copy of its attributes, whose values can be changed in place."""
    found = _known.get(raw)
    return None if found is None else _copied(found)


def remember_similar(documents: Documents, blueprint: Blueprint) -> None:
    """Keep what documents came to, for others that differ in nothing but the attributes."""
    key = _fingerprint(documents)
    if key is not None:
        bare = blueprint._replace(metadata=blueprint.metadata.with_attributes({}))
        remember(key, bare)


def similar(documents: Documents) -> Blueprint | None:
    """Return what documents come to, if others with the same content but for the attributes were met before."""
    key = _fingerprint(documents)
    found = None if key is None else _known.get(key)
    if found is None:
        return None
    attributes = as_attributes(documents[DOCUMENT].get("attributes"))
    return found._replace(metadata=found.metadata.with_attributes(attributes))


def _fingerprint(documents: Documents) -> bytes | None:
    """Return the bytes of a document without its attributes; None for Zarr format 2, and for what is no JSON."""
    if documents.keys() != {DOCUMENT} or type(documents[DOCUMENT]) is not dict:  # another kind has a key twice
        return None
    rest = {key: value for key, value in documents[DOCUMENT].items() if key != "attributes"}
    try:
        return b"\0" + marshal.dumps(rest, 2)  # later versions write equal values in more than one way
    except ValueError:
        return None


def _copied(blueprint: Blueprint) -> Blueprint:
    """Return the same with attributes of its own."""
    metadata = blueprint.metadata
    if not metadata.attributes:
        return blueprint
    return blueprint._replace(metadata=metadata.with_attributes(copied(metadata.attributes)))
