"""The stored chunks of one array: where they are and how they are encoded; `read` and `write` move their values."""

from __future__ import annotations

import errno
import operator
import os
from collections.abc import Hashable, Iterator
from typing import Any, Literal, NamedTuple

from zellige.codecs.chain import BoundChain, CodecChain
from zellige.errors import ChunkNotFoundError, CodecError, CorruptChunkError, EncodeError
from zellige.grid.grid import ChunkGrid
from zellige.io.shard import GAP, IndexCache
from zellige.kernel.program import inner_shape, program_of
from zellige.metadata import ChunkKeyEncoding
from zellige.settings import ArrayConfig
from zellige.stores import Store
from zellige.types import Coords, Shape

_SPARE = 64 << 20  # bytes beyond what any known writer needs


class Files(NamedTuple):
    """Chunks that are files of a directory, as the kernel needs them described."""

    base: bytes
    """The directory of the store, up to the last `/`."""
    pieces: tuple[bytes, ...]
    """What is around the numbers in keys."""
    program: bytes
    inner: Shape | None
    """The shape of inner chunks, if chunks are shards."""


class Chunks:
    """The chunks of one array in a store; made once for each handle."""

    __slots__ = ("store", "prefix", "keys", "chain", "config", "indexes", "merging", "_pieces", "_key_form", "_files")

    def __init__(
        self, store: Store, prefix: str, keys: ChunkKeyEncoding, rank: int, chain: CodecChain, config: ArrayConfig
    ) -> None:
        self.store = store if config.durability is None else store.with_durability(config.durability)
        self.prefix, self.keys, self.chain, self.config = prefix, keys, chain, config
        form = keys.encode_chunk_key(("%d",) * rank)  # type: ignore[arg-type]
        first, *others = form.split("%d")
        self._pieces = prefix + first, *others
        # `c/%d/%d`: filled in for every chunk without calling anything.
        self._key_form = prefix.replace("%", "%%") + form
        self._files: Files | Literal[False] | None = None  # until first use; False if there is none
        self.indexes = IndexCache()
        gap = config.sharding_coalesce_max_gap_bytes
        if gap is None:
            traits = store.traits
            gap = max(traits.coalesce_gap, GAP) if traits.concurrency is None else traits.coalesce_gap
        self.merging = gap, config.sharding_coalesce_max_bytes
        """Ranges of a shard no further apart than the first are read as one, of at most the second, in bytes."""

    def key(self, coords: Coords) -> str:
        """Return the store key of a chunk."""
        return self._key_form % coords

    @property
    def place(self) -> Hashable:
        """What these chunks are called in this process, whichever handle is used; for `Apart`."""
        return self.store.name(f"{self.prefix}chunks")

    @property
    def files(self) -> Files | None:
        """The chunks as the kernel needs them, made on first use; None for other stores, and for unknown codecs."""
        if self._files is None:
            self._files = self._as_files() or False
        return self._files or None

    def _as_files(self) -> Files | None:
        base, code = self.store.traits.local_path, program_of(self.chain)
        if base is None or code is None:
            return None
        pieces = tuple(map(os.fsencode, self._pieces))
        return Files(os.fsencode(base), pieces, code, inner_shape(self.chain))

    # -- errors that name the chunk ---------------------------------------------------------------

    def corrupt(self, error: Exception, coords: Coords) -> CorruptChunkError:
        """Return the error for a chunk whose bytes cannot be decoded."""
        what, facts = self._named(error, coords)
        return CorruptChunkError(f"{what} is damaged: {error}; writing the whole chunk repairs it", **facts)

    def refused(self, error: EncodeError, coords: Coords) -> EncodeError:
        """Return the error for a chunk whose values a codec does not take."""
        what, facts = self._named(error, coords)
        return EncodeError(f"{what} cannot be encoded: {error}", **facts)

    def _named(self, error: Exception, coords: Coords) -> tuple[str, dict[str, Any]]:
        """Return the words and the facts that name the chunk which an error is about."""
        name, key = "/" + self.prefix.rstrip("/"), self.key(coords)
        facts = {"array": name, "coords": coords, "key": key, "inner": getattr(error, "inner", None)}
        return f"array {name!r}, chunk {coords}, key {key!r}", facts

    def check_size(self, coords: Coords, bound: BoundChain, size: int | None = None) -> None:
        """Raise for a value that is far longer than any encoding of a chunk, before it is read into memory.

        `size` is its length, if that is known; otherwise that of a file is looked up.
        """
        if size is None and self.store.traits.local_path is not None:
            size = self.store.size(self.key(coords))
        most = 4 * bound.encoded_bound + _SPARE
        if size is not None and size > most:
            raise CodecError(f"it has {size} bytes, and no such chunk is stored in more than {most}")

    def check_missing(self, coords: Coords) -> None:
        """Raise for a missing chunk, unless it reads as the fill value."""
        if self.store.traits.local_path is not None:
            self._check_folders(self.key(coords))
        if not self.config.read_missing_chunks:
            key = self.key(coords)
            raise ChunkNotFoundError(
                f"chunk {coords}, key {key!r} is missing; set read_missing_chunks=True to read it as fill",
                coords=coords,
                key=key,
            )

    def _check_folders(self, key: str) -> None:
        """Raise if a file is in the place of a directory that the key of a chunk needs."""
        assert self.store.traits.local_path is not None
        end = key.rfind("/")
        while end >= len(self.prefix):
            path = self.store.traits.local_path + key[:end]
            if os.path.isdir(path):
                return
            if os.path.lexists(path):
                reason = "a file is in the place of a directory of chunks; restore the directory, or remove the file"
                raise NotADirectoryError(errno.ENOTDIR, f"key {key!r}: {reason}", path)
            end = key.rfind("/", 0, end)

    # -- what is stored ---------------------------------------------------------------------------

    def stored(self, rank: int) -> Iterator[tuple[Coords, str]]:
        """Yield the coordinates and keys of the chunks that are stored, inside the grid or not."""
        for key in self.store.list(self.prefix):
            coords = self.keys.decode_chunk_key(key[len(self.prefix) :], rank)
            if coords is not None:
                yield coords, key

    def count(self, grid: ChunkGrid) -> int:
        """Return the number of stored chunks inside a grid."""
        return sum(all(map(operator.lt, coords, grid.grid_shape)) for coords, _ in self.stored(grid.ndim))
