"""The kernel's entry points; `module.c` has them. A plan that does not fit raises ValueError and touches nothing.

`axes` has for each axis of the work array its rows, the axes of the array that they stand for, listed positions and
their places (`zellige.io.plan.Table`); `program` is what `zellige.kernel.program` writes; `statuses` has a byte for
each item. Functions that return a number return how many items did not end with the status 0.
"""

from collections.abc import Callable
from typing import Any, Literal

class Reader:
    """An array whose chunks are files, prepared for reading by integers and plain slices; `reader.c` has it.

    `axes` has for each axis where runs of chunks of one size begin: their elements and their numbers, and the ends.
    """

    def __new__(
        cls,
        base: bytes,
        pieces: tuple[bytes, ...],
        follow: bool,
        program: bytes,
        shape: tuple[int, ...],
        axes: tuple[tuple[Any, Any], ...],
        fill: bool,
        threads: Callable[[], int],
        empty: Callable[[tuple[int, ...], Any], Any],
        large: Callable[[tuple[int, ...], Any], Any],
        dtype: Any,
        /,
    ) -> Reader: ...
    def read(self, index: Any, /) -> Any:
        """What an index picks, or None if that is for another to read."""

def read_files(
    base: bytes,
    pieces: tuple[bytes, ...],
    follow: bool,
    axes: tuple[Any, ...],
    program: bytes,
    work: Any,
    statuses: bytearray,
    fill: bool,
    threads: int,
    /,
) -> int: ...
def decode(
    values: list[Any],
    axes: tuple[Any, ...],
    program: bytes,
    work: Any,
    statuses: bytearray,
    fill: bool,
    threads: int,
    /,
) -> int: ...
def write_files(
    base: bytes,
    pieces: tuple[bytes, ...],
    folder: int,
    follow: bool,
    temporary: bytes,
    axes: tuple[Any, ...],
    program: bytes,
    work: Any,
    statuses: bytearray,
    flags: int,
    threads: int,
    /,
) -> int: ...
def encode(
    axes: tuple[Any, ...], program: bytes, work: Any, statuses: bytearray, flags: int, threads: int, /
) -> list[bytes | None]: ...
def bind(name: str, address: int, /) -> bool: ...
def can(codec: int, /) -> bool: ...
def crc32c(value: Any, /) -> int: ...
def has_no_links(path: bytes, /) -> bool: ...
def read_file(path: str, /) -> tuple[bytes, int, int] | Literal[False] | None: ...
def pool_size() -> int: ...
