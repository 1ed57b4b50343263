"""The same work by zellige, TensorStore, zarrista, zarrs and zarr-python, side by side: `make bench`.

Each library runs in a process of its own. In every round each of them takes its turn, and the best round of
each counts. The figures are ratios, the peer's time over ours, so that more than 1 means that zellige is faster.

    make bench                                all cases, about an hour; writes bench/results.json and the pages
    make bench ARGS=--again                   what others disturbed in that run once more, into the same table
    make bench QUICK=1                        smaller arrays and fewer rounds, under 3 minutes
    make bench CASE=read_raw_4M               one case, or several: CASE='read_*,open'
    make bench CORES=1,2,4,16                 whole reads and writes on so many cores each, or what CASE names
    make bench ARGS='--check --scale 4'       no timing: does every library read and write the same values?
    make bench ARGS=--tables                  no run: the pages once more from bench/results.json, by today's goals
    make bench ARGS=--list                    the names of all cases

Modules: `cases` (the table of cases), `works` (what a case does), `libraries` (how each library is called and set
up), `layouts` (what is stored), `worker` (the process of a library), `runner` (rounds), `machine`, `report`, `chart`.
"""
