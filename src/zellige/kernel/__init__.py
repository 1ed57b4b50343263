"""The kernel: batches of chunks in C, without the interpreter. Here is its Python side.

`native` is the extension module, or None where it was not built or is turned off (`ZELLIGE_KERNEL=off`): then the
plain Python path does everything. `can` finds the compression libraries, in the wheels that zellige depends on
anyway, and hands the addresses of their functions over when a codec is first needed.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

ZSTD, GZIP, ZLIB, BLOSC, LZ4, CRC32C, FLETCHER32, SHUFFLE = range(1, 9)
"""The numbers of codecs in programs, as in `kernel.h`."""
_NAMES = {ZSTD: "zstd", GZIP: "gzip", ZLIB: "zlib", BLOSC: "blosc", LZ4: "lz4"}

KEEP_EMPTY, PAD, SYNC = 1, 2, 4
"""Flags of writes: store chunks of fill values, fill up what lies beyond the end, survive a power cut."""

OK, MISSING, DECLINED, DAMAGED, FAILED, NOT_BEGUN, EMPTY = range(7)
"""What became of an item."""

_FUNCTIONS = {
    "zstd": (
        *("ZSTD_createDCtx", "ZSTD_decompressDCtx", "ZSTD_isError", "ZSTD_createCCtx", "ZSTD_freeCCtx"),
        *("ZSTD_CCtx_setParameter", "ZSTD_compress2", "ZSTD_compressBound"),
    ),
    "isal": (
        *("isal_inflate_init", "isal_inflate_stateless", "isal_deflate_stateless_init", "isal_deflate_stateless"),
        "crc32_gzip_refl",
    ),
    "zlib": ("deflateInit2_", "deflate", "deflateReset", "deflateEnd"),
    "blosc": ("blosc_decompress_ctx", "blosc_compress_ctx"),
    "lz4": ("LZ4_decompress_safe", "LZ4_compress_fast"),
}
"""What is used of each library."""
_LIBRARIES = {ZSTD: ("zstd",), GZIP: ("isal", "zlib"), ZLIB: ("isal", "zlib"), BLOSC: ("blosc",), LZ4: ("lz4",)}


def _load() -> ModuleType | None:
    if _is_off():
        return None
    try:
        from zellige.kernel import _native
    except ImportError as error:
        if os.environ.get("ZELLIGE_REQUIRE_KERNEL") == "1":
            raise ImportError(
                "ZELLIGE_REQUIRE_KERNEL=1, but the kernel was not built, or not for this Python; install zellige again "
                "where a C compiler is, or unset the variable to go on in plain Python"
            ) from error
        return None
    return _native


def info() -> dict[str, Any]:
    """Return whether the kernel works here, why not, and which codecs it knows.

    >>> sorted(info())
    ['codecs', 'is_off', 'state', 'works']
    """
    state = "works" if native is not None else "is off, by ZELLIGE_KERNEL" if _is_off() else "was not built"
    codecs = {name: can(k) for k, name in _NAMES.items()}
    return {"works": native is not None, "is_off": _is_off(), "state": state, "codecs": codecs}


def _is_off() -> bool:
    return os.environ.get("ZELLIGE_KERNEL", "").lower() in ("off", "0")


@cache
def can(codec: int) -> bool:
    """Return whether the kernel knows a codec; its library is loaded on the first call."""
    if native is None:
        return False
    for library in _LIBRARIES.get(codec, ()):
        _bind(native, library)
    known: bool = native.can(codec)
    return known


native = _load()


def _bind(native: ModuleType, library: str) -> None:
    """Hand the functions of a library over, from the first file that has all of them."""
    from ctypes import CDLL, c_void_p, cast  # needed only to bind a library

    wanted = _FUNCTIONS[library]
    for path in filter(None, _files(library)):
        try:
            found = CDLL(path)
        except OSError:  # it needs symbols that this interpreter does not show
            continue
        if all(hasattr(found, name) for name in wanted):
            for name in wanted:
                native.bind(name, cast(getattr(found, name), c_void_p).value or 0)
            return


def _files(library: str) -> list[str | None]:
    """Return the files that may have a library, the best first."""
    match library:
        case "isal":
            return [_extension("isal", "igzip_lib")]
        case "zlib":  # what Python itself uses, so that both paths store the same bytes; else what comes with blosc
            return [getattr(import_module("zlib"), "__file__", None), _extension("numcodecs", "blosc")]
        case "blosc":  # the wheels of c-blosc use AVX2, which those of numcodecs do not
            return [_c_blosc(), _extension("numcodecs", "blosc")]
    return [_extension("numcodecs", library)]


def _extension(package: str, module: str) -> str | None:
    """Return the file of an extension module, which is not imported."""
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
    """Return the shared library in the wheel of the package `blosc`."""
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
