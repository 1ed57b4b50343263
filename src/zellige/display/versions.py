"""Versions of what matters when something does not work."""

from __future__ import annotations

_OPTIONAL = ("ml_dtypes", "zfpy", "pcodec", "msgpack", "xarray", "dask")


def print_debug_info() -> None:
    """Print versions of everything that matters when something does not work.

    >>> import zellige
    >>> zellige.print_debug_info()  # doctest: +ELLIPSIS
    platform: ...
    """
    import platform
    import sys
    from importlib.metadata import PackageNotFoundError, version

    print(f"platform: {platform.platform()}\npython: {sys.version.split()[0]}")
    for package in ("zellige", "numpy", "numcodecs", "zstandard", "google-crc32c", "isal", *_OPTIONAL):
        try:
            print(f"{package}: {version(package)}")
        except PackageNotFoundError:
            print(f"{package}: not installed")
