"""dask arrays from stored arrays and into them, with chunks of any size.

>>> import dask.array as da
>>> import zellige
>>> import zellige.dask
>>> store = zellige.MemoryStore()
>>> stored = zellige.dask.store(da.arange(59, chunks=((31, 28),)), store)
>>> stored.write_chunk_sizes
((31, 28),)
>>> zellige.dask.from_array(stored).chunks
((31, 28),)

No two tasks write to one stored chunk: where the blocks of a dask array end elsewhere than stored chunks do, their
ends are moved to the nearest ends of stored chunks first, and an `AlignmentWarning` says so.

In a session of icechunk the tasks of other processes write to forks of it, which are merged; committing is left to you.
"""

from __future__ import annotations

try:
    import dask.array as _dask
except ImportError as error:
    raise ImportError("zellige.dask needs dask: pip install 'zellige[dask]'") from error

from zellige.dask.reader import check_reachable, forked, from_array
from zellige.dask.writer import AlignmentWarning, Part, edges_of, snap, store, store_parts

del _dask

__all__ = [
    "AlignmentWarning",
    "Part",
    "check_reachable",
    "edges_of",
    "forked",
    "from_array",
    "snap",
    "store",
    "store_parts",
]
