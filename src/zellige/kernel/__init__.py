"""The kernel: batches of chunks in C, without the interpreter. Here is its Python side.

`native` is the extension module, or None where it was not built or is turned off (`ZELLIGE_KERNEL=off`): then the
plain Python path does everything. `can` finds the compression libraries, in the wheels that zellige depends on
anyway, and hands the addresses of their functions over when a codec is first needed.
"""

from __future__ import annotations

import os
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctypes import CDLL

ZSTD, GZIP, ZLIB, BLOSC, LZ4, CRC32C, FLETCHER32, SHUFFLE = range(1, 9)
"""The numbers of codecs in programs, as in `kernel.h`."""
_NAMES = {ZSTD: "zstd", GZIP: "gzip", ZLIB: "zlib", BLOSC: "blosc", LZ4: "lz4"}

KEEP_EMPTY, PAD, SYNC = 1, 2, 4
"""Flags of writes: store chunks of fill values, fill up what lies beyond the end, survive a power cut."""

OK, MISSING, DECLINED, DAMAGED, FAILED, NOT_BEGUN, EMPTY = range(7)
"""What became of an item."""

_FUNCTIONS: dict[int, tuple[str, ...]] = {
    ZSTD: (
        *("ZSTD_createDCtx", "ZSTD_decompressDCtx", "ZSTD_isError", "ZSTD_createCCtx", "ZSTD_freeCCtx"),
        *("ZSTD_CCtx_setParameter", "ZSTD_compress2", "ZSTD_compressBound"),
    ),
    GZIP: (
        *("isal_inflate_init", "isal_inflate_stateless", "isal_deflate_stateless_init", "isal_deflate_stateless"),
        "crc32_gzip_refl",
    ),
    BLOSC: ("blosc_decompress_ctx", "blosc_compress_ctx"),
    LZ4: ("LZ4_decompress_safe", "LZ4_compress_fast"),
}


def _load() -> ModuleType | None:
    if _is_off():
        return None
    try:
        from zellige.kernel import _native
    except ImportError:
        if os.environ.get("ZELLIGE_REQUIRE_KERNEL") == "1":
            raise
        return None
    return _native


def info() -> dict[str, Any]:
    """Whether the kernel works here, why not, and which codecs it knows.

    >>> sorted(info())
    ['codecs', 'state', 'works']
    """
    state = "works" if native is not None else "is off, by ZELLIGE_KERNEL" if _is_off() else "was not built"
    return {"works": native is not None, "state": state, "codecs": {name: can(k) for k, name in _NAMES.items()}}


def _is_off() -> bool:
    return os.environ.get("ZELLIGE_KERNEL", "").lower() in ("off", "0")


@cache
def can(codec: int) -> bool:
    """Whether the kernel knows a codec; its library is loaded when this is first asked."""
    if native is None:
        return False
    from ctypes import c_void_p, cast  # only for those who need a library

    wanted = _FUNCTIONS.get(GZIP if codec == ZLIB else codec, ())
    for library in _libraries(codec) if wanted else ():
        if all(hasattr(library, name) for name in wanted):
            for name in wanted:
                native.bind(name, cast(getattr(library, name), c_void_p).value or 0)
            break
    known: bool = native.can(codec)
    return known


native = _load()


def _libraries(codec: int) -> list[CDLL]:
    """The libraries that may have the functions of a codec, the fastest first."""
    from ctypes import CDLL

    paths: list[str | None] = []
    if codec == BLOSC:
        paths.append(_c_blosc())  # whose wheels use AVX2, which those of numcodecs do not
        paths.append(_extension("numcodecs", "blosc"))
    elif codec in (GZIP, ZLIB):
        paths.append(_extension("isal", "igzip_lib"))
    else:
        paths.append(_extension("numcodecs", "zstd" if codec == ZSTD else "lz4"))
    found = []
    for path in paths:
        try:
            found += [CDLL(path)] if path else []
        except OSError:  # it needs symbols that this interpreter does not show
            continue
    return found


def _extension(package: str, module: str) -> str | None:
    """The file of an extension module, which is not imported."""
    from importlib.machinery import EXTENSION_SUFFIXES
    from importlib.util import find_spec

    spec = find_spec(package)
    for folder in (spec and spec.submodule_search_locations) or ():
        for suffix in EXTENSION_SUFFIXES:
            path = os.path.join(folder, module + suffix)
            if os.path.exists(path):
                return path
    return None


def _c_blosc() -> str | None:
    """The shared library in the wheel of the package `blosc`."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        known = files("blosc") or ()
    except PackageNotFoundError:
        return None
    for file in known:
        if file.name.startswith("libblosc.") and (".so" in file.name or file.name.endswith(".dylib")):
            path = os.path.realpath(str(file.locate()))
            if os.path.exists(path):
                return path
    return None
