"""What is let in: old data, keys and links that lead elsewhere, values that do not fit, documents that claim much."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from reliability import documents
from reliability.adapters import Library, NoneError
from reliability.children import ChildError, Measured, call, measured
from reliability.outcome import Outcome, counted

FOLLOWED, REFUSED = "followed", "refused"


# -- shapes ---------------------------------------------------------------------------------------


def _shrink_and_grow(library: Library, path: str, lengths: list[int]) -> np.ndarray:
    array = library.open(path)
    library.write(array, slice(None), np.arange(1, lengths[0] + 1))
    for length in lengths[1:]:
        array = library.resize(array, (length,))
    return library.read(library.open(path))


def shrink_grow(library: Library, folder: str, count: int) -> Outcome:
    """An array of chunks of 10 shrinks from 100 to 55 and grows to 100 again."""
    path = documents.make(f"{folder}/a", documents.document([100], [10]))
    found = call(_shrink_and_grow, library, path, [100, 55, 100])
    old = int((found[55:] != 0).sum())
    lost = int((found[:55] != np.arange(1, 56)).sum())
    text = f"{old} of 45 elements show old data" if old else "fill"
    return counted(text + f", {lost} lost" * bool(lost), not old and not lost, old=old, of=45, lost=lost)


def _open_measured(library: Library, path: str, small: str) -> tuple[Measured, Measured]:
    """Opening, and reading one element; before that, a small array of the same kind."""
    library.read(library.open(small), slice(0, 1))
    opened = measured(lambda: library.open(path))
    read = measured(lambda: library.read(opened.value, slice(5, 6)).tolist())
    return opened._replace(value=None), read


def long_run(library: Library, folder: str, count: int) -> Outcome:
    """A document of 300 bytes that says `count` chunks of one element."""
    path = documents.make(f"{folder}/a", documents.long_run(count))
    small = documents.make(f"{folder}/b", documents.long_run(100))
    try:
        opened, read = call(_open_measured, library, path, small)
    except ChildError as error:
        if "rectilinear" in str(error):  # not known, which the small array tells
            raise NoneError from None
        return counted(str(error), good=False)
    peak = max(opened.bytes, read.bytes) / 2**20
    error = opened.error or read.error
    text = f"{opened.seconds + read.seconds:.3g} s, {peak:.0f} MiB" + f"; {error}" * bool(error)
    facts = {"open_seconds": opened.seconds, "read_seconds": read.seconds, "peak_mib": round(peak, 1), "error": error}
    return counted(text, not error and peak < 16, **facts)


# -- documents that the specification forbids -------------------------------------------------------


def _forbidden() -> dict[str, bytes]:
    """Documents that must not be opened, each by what is wrong with it (RFC 8259, and the core specification)."""
    good = documents.document([8], [8])
    text = json.dumps(good)
    changed = {
        "a length that is true": {"shape": [True]},
        "a negative length": {"shape": [-8]},
        "a chunk without length": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0]}}},
        "a codec that nobody knows": {"codecs": [documents.BYTES, {"name": "unheard-of"}]},
        "a field that nobody knows": {"unheard-of": {"name": "something"}},
    }
    found = {what: json.dumps(good | change).encode() for what, change in changed.items()}
    return found | {
        "bytes after the end": f"{text}}}".encode(),
        "bytes that are not UTF-8": text.encode().replace(b'"regular"', b'"regul\xffr"'),
        "a word that is not JSON": text.replace('"shape": [8]', '"shape": [NaN]').encode(),
    }


def forbidden(library: Library, folder: str, count: int) -> Outcome:
    """Documents that are not JSON, or that the specification says to refuse."""
    facts, why = {}, {}
    for number, (what, text) in enumerate(_forbidden().items()):
        path = f"{folder}/{number}"
        os.mkdir(path)
        Path(path, "zarr.json").write_bytes(text)
        try:
            call(_opens, library, path)
            facts[what] = "opened"
        except ChildError as error:
            facts[what], why[what] = "the process died" if error.died else REFUSED, str(error)
    told = [f"{what}: {how}" for what, how in facts.items() if how != REFUSED]
    text = "; ".join(told) or f"all {len(facts)} refused"
    return counted(text, not told, **facts, why=why)


def _opens(library: Library, path: str) -> bool:
    return library.open(path) is not None


# -- places ---------------------------------------------------------------------------------------


def _tried(work: Any, *arguments: Any) -> tuple[Any, str]:
    """What some work in another process returns, or why it does not; a missing feature counts as refused."""
    try:
        return call(work, *arguments), ""
    except NoneError:
        return None, "none"
    except ChildError as error:
        return None, str(error)


def escape(library: Library, folder: str, count: int) -> Outcome:
    """Names and keys with `..`: of a new array, in the store, in consolidated metadata."""
    root = documents.make(f"{folder}/inside/root", documents.group())
    outside = f"{folder}/inside"
    facts: dict[str, str] = {}

    _, error = _tried(library.create_below, root, "../name")
    facts["name"] = "escapes" if os.path.exists(f"{outside}/name") else REFUSED if error else "stays inside"
    why = {"name": error}

    _, error = _tried(library.put_key, root, "../key")
    facts["key"] = "escapes" if os.path.exists(f"{outside}/key") else "none" if error == "none" else REFUSED
    why["key"] = error

    secret = documents.document([8], [8])
    os.makedirs(f"{documents.make(f'{outside}/secret', secret)}/c")
    np.full(8, 42).tofile(f"{outside}/secret/c/0")
    entry = {"kind": "inline", "must_understand": False, "metadata": {"../secret": secret}}
    documents.make(root, documents.group(consolidated_metadata=entry))
    found, error = _tried(library.below, root, "../secret")
    escapes = found is not None and bool((found == 42).all())
    facts["consolidated"] = "escapes" if escapes else "none" if error == "none" else REFUSED
    why["consolidated"] = error

    text = ", ".join(f"{what}: {how}" for what, how in facts.items())
    return counted(text, "escapes" not in facts.values(), **facts, why=why)


def _read_first(library: Library, path: str) -> int:
    return int(library.read(library.open(path), slice(0, 1))[0])


def _write_first(library: Library, path: str) -> None:
    library.write(library.open(path), slice(0, 8), np.full(8, 7))


def links(library: Library, folder: str, count: int) -> Outcome:
    """A chunk, and a directory of chunks, that are symbolic links out of the array."""
    outside = f"{folder}/outside"
    os.makedirs(outside)
    facts, why = {}, {}

    np.full(8, 42).tofile(f"{outside}/0")
    path = documents.make(f"{folder}/a", documents.document([8], [8]))
    os.mkdir(f"{path}/c")
    os.symlink(f"{outside}/0", f"{path}/c/0")
    found, why["chunk"] = _tried(_read_first, library, path)
    facts["chunk"] = FOLLOWED if found == 42 else REFUSED

    path = documents.make(f"{folder}/b", documents.document([8], [8]))
    os.symlink(outside, f"{path}/c")
    found, why["directory"] = _tried(_read_first, library, path)
    facts["directory"] = FOLLOWED if found == 42 else REFUSED
    _, why["write"] = _tried(_write_first, library, path)
    facts["write"] = FOLLOWED if np.fromfile(f"{outside}/0", "int64")[0] == 7 else REFUSED

    text = facts["chunk"] if len(set(facts.values())) == 1 else ", ".join(f"{k}: {v}" for k, v in facts.items())
    # To follow them may be what is meant: that is told, and not judged.
    return counted(text, None if FOLLOWED in facts.values() else True, **facts, why=why)


# -- values ---------------------------------------------------------------------------------------


def _cast(library: Library, path: str, value: np.ndarray) -> int:
    array = library.open(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.write(array, slice(0, 1), value)
    return int(library.read(array, slice(0, 1))[0])


def casts(library: Library, folder: str, count: int) -> Outcome:
    """300 assigned to uint8, and NaN to int32."""
    facts, why = {}, {}
    for name, dtype, value in (("300", "uint8", np.array([300])), ("NaN", "int32", np.array([np.nan]))):
        path = documents.make(f"{folder}/{dtype}", documents.document([8], [8], dtype=dtype))
        written, error = _tried(_cast, library, path, value)
        why[name] = error
        facts[name] = REFUSED if error else f"written as {written}"
    text = REFUSED if set(facts.values()) == {REFUSED} else ", ".join(f"{k}: {v}" for k, v in facts.items())
    return counted(text, set(facts.values()) == {REFUSED}, **facts, why=why)
