"""Let another library read arrays and write them anew. Runs in the library's own environment, without zellige.

Usage: python ask_peer.py LIBRARY, with {"name": "directory", …} as input. Prints, as JSON, the version of the library
and for each array a fingerprint of what was read, or the error, and whether it could be written.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def fingerprint(values: Any) -> str:
    """The same for equal values, whichever library read them."""
    found = np.asarray(values)
    if found.dtype.kind in "OTU":
        text = repr([str(item) if isinstance(item, str) else bytes(item) for item in found.ravel().tolist()])
        return f"{found.shape} text {hashlib.sha256(text.encode()).hexdigest()}"
    if found.dtype.name.startswith(("int", "uint")):  # the bits above small integers mean nothing
        found = found.astype("i8" if found.dtype.name.startswith("int") else "u8")
    raw = np.ascontiguousarray(found).tobytes()
    return f"{found.shape} {hashlib.sha256(raw).hexdigest()}"


def zarr_python(**settings: Any) -> tuple[str, Callable[[str], Any], Callable[[str, Any], None]]:
    """What zarr-python does, with its own pipeline of codecs or another one."""
    import zarr

    zarr.config.set({"array.rectilinear_chunks": True, **settings})

    def write(place: str, values: Any) -> None:
        zarr.open_array(place, mode="r+")[...] = values

    return zarr.__version__, lambda place: zarr.open_array(place, mode="r")[...], write


def zarrs() -> tuple[str, Callable[[str], Any], Callable[[str, Any], None]]:
    """zarr-python with the pipeline of zarrs, which refuses what it cannot do."""
    from importlib.metadata import version

    import zarrs  # noqa: F401 - registers itself

    _, *rest = zarr_python(**{"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True})
    return version("zarrs"), *rest


def tensorstore() -> tuple[str, Callable[[str], Any], Callable[[str, Any], None]]:
    """TensorStore, by its driver zarr3."""
    from importlib.metadata import version

    import tensorstore as ts

    def opened(place: str) -> Any:
        return ts.open({"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{place}/"}}).result()

    def write(place: str, values: Any) -> None:
        opened(place).write(values).result()

    return version("tensorstore"), lambda place: np.asarray(opened(place).read().result()), write


LIBRARIES = {"zarr-python": zarr_python, "TensorStore": tensorstore, "zarrs": zarrs}


def main() -> None:
    """Answer for all arrays."""
    warnings.simplefilter("ignore")
    version, read, write = LIBRARIES[sys.argv[1]]()
    answers: dict[str, dict[str, str]] = {}
    for name, place in json.load(sys.stdin).items():
        answers[name] = answer = {}
        try:
            values = read(place)
            answer["read"] = fingerprint(values)
            write(place, values)
            answer["written"] = "yes"
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer; some end in a panic
            answer["error"] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps({"version": version, "answers": answers}))


if __name__ == "__main__":
    main()
