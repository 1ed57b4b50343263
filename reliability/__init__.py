"""The same mishaps for zellige, TensorStore, zarrs and zarr-python, side by side: `make reliability`.

Each library meets each scenario in a process of its own, with a time limit and a memory limit, on a local directory
in a temporary folder. The figures are counts: of values that were kept, of chunks that were torn, of damage that was
noticed. Times and memory stand in the table where they are the matter, and are not judged but for memory.

    make reliability                          all scenarios; writes results.* and docs/reliability.md
    make reliability QUICK=1                  small counts
    make reliability ARGS='--scenario kills --libraries zellige,zarr'
    make reliability ARGS=--list              the names of all scenarios

Modules: `adapters` (how each library is called), `scenarios` (the table of scenarios, and the process of one),
`races`, `faults`, `damage` and `limits` (what happens in them), `children` (processes that are forked, killed and
measured), `documents` (what is stored), `cost` (of durability), `report`.
"""
