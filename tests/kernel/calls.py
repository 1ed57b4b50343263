"""Calls of the kernel's entry points that are right, of which tests and the fuzzer change something."""

from __future__ import annotations

import os
import shutil
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import zellige
from zellige import kernel
from zellige.io import plan, select
from zellige.kernel.program import inner_shape, program_of

REFUSED = (ValueError, TypeError, BufferError, OverflowError, SystemError, MemoryError)
"""What entry points raise; the last but one if what should be a tuple is none."""

VALUES = (np.arange(16 * 12, dtype="int32").reshape(16, 12) % 7) + 1


def _zstd(level: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": "zstd", "configuration": {"level": level, **more}}


def _blosc(cname: str, shuffle: str) -> dict[str, Any]:
    options = {"cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": 4, "blocksize": 0}
    return {"name": "blosc", "configuration": options}


BIG = {"name": "bytes", "configuration": {"endian": "big"}}
LAYOUTS: dict[str, dict[str, Any]] = {
    "raw": {"compressors": None},
    "zstd": {"compressors": _zstd()},
    "gzip": {"compressors": {"name": "gzip", "configuration": {"level": 1}}},
    "gzip 9": {"compressors": {"name": "gzip", "configuration": {"level": 9}}},
    "zlib": {"compressors": {"name": "numcodecs.zlib", "configuration": {"level": 6}}},
    "blosc": {"compressors": _blosc("lz4", "shuffle")},
    "blosc bits": {"compressors": _blosc("zstd", "bitshuffle")},
    "blosc zlib": {"compressors": _blosc("zlib", "noshuffle")},
    "blosclz": {"compressors": _blosc("blosclz", "shuffle")},
    "lz4": {"compressors": {"name": "numcodecs.lz4", "configuration": {"acceleration": 1}}},
    "sums": {"compressors": [{"name": "crc32c"}, _zstd(), {"name": "numcodecs.fletcher32", "configuration": {}}]},
    "shuffle": {"compressors": [{"name": "numcodecs.shuffle", "configuration": {"elementsize": 4}}, _zstd()]},
    "big and turned": {"serializer": BIG, "compressors": _zstd(), "order": "F"},
    "shards": {"chunks": (2, 2), "shards": (8, 6), "compressors": _zstd(checksum=True)},
    "raw shards": {"chunks": (2, 2), "shards": (8, 6), "compressors": None},
}
"""Chunks of 5 × 4 elements, where nothing else is said."""


@dataclass
class Arguments:
    """What an entry point is given, by name; `values` are the stored bytes of the chunks or shards."""

    table: Any
    program: Any
    shape: tuple[int, ...]
    values: list[Any]
    items: int
    fill: Any = True
    threads: Any = 2
    flags: Any = 0
    follow: Any = False
    folder: Any = None
    temporary: Any = b"tmp-"
    pieces: Any = (b"c/", b"/", b"")


class Valid:
    """An array of `VALUES`, and calls about it: a part is read, all of it is written."""

    def __init__(self, layout: str) -> None:
        made = {"chunks": (5, 4), **LAYOUTS[layout]}
        self.name, self.store = layout, zellige.MemoryStore({})
        self.array = zellige.create_array(self.store, data=VALUES, **made)
        self.chain, self.grid = self.array._chunks.chain, self.array.grid
        self.program = program_of(self.chain)
        assert self.program is not None, layout

    @cached_property
    def reading(self) -> Arguments:
        """Of a slice and a list, so that there are positions and places."""
        return self._arguments((slice(1, 15), [0, 11, 5]))

    @cached_property
    def points(self) -> Arguments:
        return self._arguments(([1, 15, 2, 2], [0, 11, 5, 5]))

    @cached_property
    def writing(self) -> Arguments:
        found = self._arguments(...)
        found.flags = kernel.PAD
        return found

    def expected(self, given: Arguments) -> np.ndarray:
        return VALUES if given is self.writing else VALUES[{3: np.s_[1:15, [0, 11, 5]]}.get(given.shape[-1], ())]

    def _arguments(self, index: Any) -> Arguments:
        selection = select.basic(index, VALUES.shape)
        wanted = plan.plan_for(selection, self.grid)
        inner = inner_shape(self.chain)
        table = plan.table(wanted) if inner is None else plan.shard_table(wanted, inner)
        values = [bytes(self.store.get(self.array._chunks.key(copy.coords))) for copy in wanted.copies()]
        return Arguments(table, self.program, VALUES[index].shape, values, len(wanted))


def table_changes(table: Any, numbers: list[int]) -> Iterator[Any]:
    """The table with each of its integers replaced by each of some numbers."""
    for axis, entry in enumerate(table):
        for which in (0, 2, 3):
            for at in range(0 if entry[which] is None else len(entry[which])):
                for value in numbers:
                    changed = array("q", entry[which])
                    changed[at] = value
                    made = (*entry[:which], changed, *entry[which + 1 :])
                    yield (*table[:axis], made, *table[axis + 1 :])


def program_changes(program: bytes, numbers: list[int]) -> Iterator[bytes]:
    """The program with each of its integers replaced by each of some numbers."""
    for at in range(0, len(program) - 4, 8):
        for value in numbers:
            yield program[:at] + struct.pack("=q", value) + program[at + 8 :]


class Calls:
    """Carries calls out, and checks what holds for every call, however wrong its arguments are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.statuses = bytearray()
        self.work = np.empty(0)

    def _guarded(self, shape: tuple[int, ...], values: np.ndarray | None) -> np.ndarray:
        """A work array with elements around it, which nobody may write."""
        self.around = np.full([n + 2 for n in shape], -9, "int32")
        work = self.around[tuple(slice(1, n + 1) for n in shape)]
        if values is not None:
            work[...] = values
        return work

    def _check(self, given: Arguments, left: int | None) -> None:
        if self.around.size:
            self.work[...] = -9
            assert (self.around == -9).all(), "bytes beside the work array were written"
        known = range(kernel.EMPTY + 1)
        assert all(status in known for status in self.statuses[: given.items])
        if left is not None:
            assert left <= len(self.statuses)

    def read(self, entry: str, given: Arguments) -> np.ndarray | None:
        """`decode` or `read_files`: the work array, if every item ended well; None if not, or refused."""
        self.work, self.statuses = self._guarded(given.shape, None), bytearray(b"\0" * 4096)
        rest = (given.table, given.program, self.work, self.statuses, given.fill, given.threads)
        left, found = None, None
        try:
            if entry == "decode":
                left = kernel.native.decode(given.values, *rest)
            else:
                left = kernel.native.read_files(self.base, given.pieces, given.follow, *rest)
            found = self.work.copy() if not left else None
        except REFUSED:
            pass
        self._check(given, left)
        return found

    @property
    def base(self) -> bytes:
        return os.fsencode(f"{self.folder}/")

    def store(self, given: Arguments, coords: list[tuple[int, ...]]) -> None:
        """The values as files."""
        for (row, column), value in zip(coords, given.values, strict=True):
            path = self.folder / f"c/{row}/{column}"
            path.parent.mkdir(parents=True, exist_ok=True)
            if value is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(value)

    def encode(self, given: Arguments, values: np.ndarray) -> list[bytes | None] | None:
        """What `encode` gives; None if it refused."""
        self.work, self.statuses = self._guarded(given.shape, values), bytearray(b"\0" * 4096)
        try:
            found = kernel.native.encode(
                given.table, given.program, self.work, self.statuses, given.flags, given.threads
            )
        except REFUSED:
            found = None
        assert (self.work == values).all(), "values that are written were changed"
        if found is not None:
            assert all((raw is not None) == (not status) for raw, status in zip(found, self.statuses, strict=False))
        self._check(given, None)
        return found

    def write(self, given: Arguments, values: np.ndarray) -> int | None:
        """What `write_files` gives; None if it refused. No temporary file stays."""
        self.work, self.statuses = self._guarded(given.shape, values), bytearray(b"\0" * 4096)
        folder = len(self.base) if given.folder is None else given.folder
        try:
            left = kernel.native.write_files(
                *(self.base, given.pieces, folder, given.follow, given.temporary, given.table, given.program),
                *(self.work, self.statuses, given.flags, given.threads),
            )
        except REFUSED:
            left = None
        assert (self.work == values).all(), "values that are written were changed"
        assert not [*self.folder.rglob("tmp-*")]
        self._check(given, left)
        return left

    def clear(self) -> None:
        shutil.rmtree(self.folder)
        self.folder.mkdir()
