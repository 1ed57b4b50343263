"""The kernel's entry points; `module.c` has them. A plan that does not fit raises ValueError and touches nothing.

`axes` has for each axis of the work array its rows, the axes of the array that they stand for, listed positions and
their places (`zellige.plans.Table`); `program` is what `zellige.kernel.program` writes; `statuses` has a byte for each
item. Functions that return a number return how many items did not end with the status 0.
"""

from typing import Any

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
def pool_size() -> int: ...
