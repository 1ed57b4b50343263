"""From an index to bytes: select what an index picks, plan it on the grid, read and write chunks.

`select` turns an index into a selection, `plan` a selection into copies between chunks and a work array, `read` and
`write` carry a plan out for the `chunks` of an array; `shard` finds inner chunks, `threads` has the threads.
"""
