"""The table of scenarios, and the process in which a library meets them.

python -m reliability.scenarios LIBRARY FOLDER SCENARIO=COUNT …

For each there is one line of JSON: `text`, `good` and `facts`; or `none`, `absent` or `error`.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from reliability import damage, faults, limits, races
from reliability.adapters import LIBRARIES, Library, NoneError, NotHereError
from reliability.children import words
from reliability.outcome import Outcome

MEMORY = 12 << 30
"""Address space of a process: more than enough for any of this, and less than the machine has."""


class Scenario(NamedTuple):
    """Something that happens to arrays."""

    run: Callable[[Library, str, int], Outcome]
    about: str
    """What happens, and what is counted, for the table."""
    full: int = 1
    quick: int = 1

    @property
    def name(self) -> str:
        """The name of its function."""
        return self.run.__name__


_TABLE = (
    Scenario(races.threads_shard, "8 threads write parts of one shard: updates kept", 600, 40),
    Scenario(races.threads_chunk, "8 threads write parts of one chunk: updates kept", 600, 40),
    Scenario(races.processes_chunk, "2 processes write parts of one chunk: updates kept", 600, 40),
    Scenario(races.processes_shard, "2 processes write parts of one shard: updates kept", 600, 40),
    Scenario(races.attributes_threads, "4 threads set attributes: kept", 100, 12),
    Scenario(races.attributes_processes, "4 processes set attributes: kept", 100, 12),
    Scenario(races.appends, "2 processes append rows (TensorStore has no append: resize, then write)", 100, 10),
    Scenario(races.creation, "4 processes create the same array", 100, 5),
    Scenario(races.readers_chunk, "a chunk is read while it is overwritten", 1000, 20),
    Scenario(races.readers_shard, "half of a shard is read while it is overwritten", 1000, 20),
    Scenario(faults.kills, "`kill -9` during writes", 100, 4),
    Scenario(
        faults.interrupt, "Ctrl-C during a write of 400 chunks, 3 times: written in the 5 s after it surfaced", 3, 1
    ),
    Scenario(faults.no_room, "files that become too long (`EFBIG`) in a write of many chunks", 16, 4),
    Scenario(faults.power, "`fsync` before `rename` (strace)"),
    Scenario(damage.truncated, "truncated chunks: raw, zstd, blosc, gzip, shard", 20, 3),
    Scenario(damage.flips_default, "one byte flipped, zstd as each library writes it", 200, 20),
    Scenario(damage.flips_crc32c, "one byte flipped, zstd and crc32c", 200, 20),
    Scenario(limits.shrink_grow, "shrink, then grow: what shows"),
    Scenario(limits.casts, "300 into uint8, NaN into int32"),
    Scenario(limits.long_run, "opening a document with a run `[1, 10^7]`, one element read", 10**7, 10**7),
    Scenario(limits.forbidden, "documents that are not JSON, or that the specification forbids"),
    Scenario(damage.bomb, "a chunk under 1 KiB that unpacks to 4 GiB: memory of the read", 4, 4),
    Scenario(limits.escape, "`../` in names, keys and consolidated metadata"),
    Scenario(limits.links, "symbolic links that lead out of the store (not judged)"),
)
SCENARIOS = {scenario.name: scenario for scenario in _TABLE}


def answer(library: str, scenario: str, folder: str, count: int) -> dict[str, Any]:
    """Let a library meet a scenario."""
    try:
        made = LIBRARIES[library]()
        if scenario.startswith(faults.TRACE):
            faults.trace_target(made, folder, scenario.removeprefix(faults.TRACE))
            return {"done": True}
        return SCENARIOS[scenario].run(made, folder, count)._asdict()
    except NotHereError as error:
        return {"absent": str(error)}
    except NoneError:
        return {"none": True}
    except Exception as error:  # noqa: BLE001 - whatever a library raises goes into the table
        return {"error": words(error)}


def main() -> None:
    """Answer, and end without waiting for what a library left running."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not be taken for the answer
    library, folder, *scenarios = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for scenario in scenarios:
        name, _, count = scenario.partition("=")
        place = f"{folder}/{name}"
        os.mkdir(place)
        told = json.dumps(answer(library, name, place, int(count))).replace(place, "")  # of no interest elsewhere
        print(told, file=out, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
