"""What differs in icechunk sessions, which `ZarrPythonStore` reads and writes."""

from __future__ import annotations

import json
import pickle
import sys
from typing import Any

from zellige.stores.base import DOCUMENTS
from zellige.types import not_finite


def is_session(store: Any) -> bool:
    """Whether a store of zarr-python is that of an icechunk session."""
    icechunk = sys.modules.get("icechunk")  # whoever has such a store has imported it
    return icechunk is not None and isinstance(store, icechunk.IcechunkStore)


def errors() -> tuple[type[Exception], ...]:
    """Return what icechunk raises for keys and prefixes that it cannot have."""
    import icechunk

    return (icechunk.IcechunkError,)


def fork(store: Any) -> Any:
    """Return a copy of a session's store that can be sent to other processes."""
    import icechunk

    session = store.session
    if isinstance(session, icechunk.ForkSession):  # which cannot be forked again once it has changes
        return pickle.loads(pickle.dumps(session)).store
    return session.fork().store


def _sizes(value: bytes) -> tuple[dict[str, Any], list[Any]] | None:
    """Return metadata with a rectilinear grid, and the sizes in it; None for all else."""
    if b'"rectilinear"' not in value:
        return None
    try:
        document = json.loads(value)
        grid = document["chunk_grid"]
        return (document, grid["configuration"]["chunk_shapes"]) if grid["name"] == "rectilinear" else None
    except (ValueError, TypeError, KeyError):  # a chunk, or wrong metadata: the store will say
        return None


def with_runs(value: bytes) -> bytes:
    """Write sizes that repeat as runs `[[size, count]]`, which mean the same; icechunk 2 wants runs.

    >>> grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [4, [[5, 2]]]}}
    >>> json.loads(with_runs(json.dumps({"shape": [10, 10], "chunk_grid": grid}).encode()))["chunk_grid"]
    {'name': 'rectilinear', 'configuration': {'kind': 'inline', 'chunk_shapes': [[[4, 3]], [[5, 2]]]}}
    """
    found = _sizes(value)
    if found is None or not any(isinstance(size, int) for size in found[1]):
        return value
    document, sizes = found
    # At least one edge, since an axis of no length has chunks of this size, too, once it grows.
    sizes[:] = [
        [[size, max(-(-extent // size), 1)]] if isinstance(size, int) else size
        for size, extent in zip(sizes, document["shape"], strict=True)
    ]
    return json.dumps(document).encode()


def refusal(key: str, value: bytes) -> str:
    """Return why metadata was refused, where icechunk does not say it well; else an empty text."""
    import icechunk

    name = key.rpartition("/")[2]
    if name in DOCUMENTS and name != "zarr.json":
        return "icechunk holds Zarr 3 only; use zarr_format=3"
    if name in DOCUMENTS and (found := not_finite(json.loads(value), "")):
        place, number = found
        return f"{place[1:]} is {number}, and icechunk takes strict JSON only; use a finite number, text or None"
    if _sizes(value) is None or int(icechunk.__version__.split(".")[0]) >= 2:
        return ""
    return f"icechunk {icechunk.__version__} takes regular chunks only; rectilinear ones need icechunk 2"
