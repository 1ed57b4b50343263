"""The process of one library: takes commands as lines of JSON, answers each with one line of JSON.

python -m bench.worker LIBRARY FOLDER SCALE

{"do": "store", "name": …}                 write what all libraries read
{"do": "prepare", "case": …}               open what a case needs, do its work once, and say what came out
{"do": "run", "least": 0.2}                time the prepared work for so long: the best seconds of one operation
{"do": "once", "case": …}                  measure memory, or an import
{"do": "verify", "path": …}                read an array that another library has written
{"do": "finish"}                           forget the work, and remove what it wrote
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.cases import CASES
from bench.layouts import checksum
from bench.libraries import LIBRARIES, NotHereError
from bench.works import ALL, Site, Work

TIMEOUT = 300
"""Seconds for one command; a process that hangs says where, and ends."""
LONG_ENOUGH = 0.002
"""Work shorter than this is repeated between two looks at the clock."""


def timed(run: Callable[[], object], number: int) -> float:
    """The seconds that so many runs take."""
    start = time.perf_counter()
    for _ in range(number):
        run()
    return time.perf_counter() - start


def calibrate(run: Callable[[], object], before: float) -> int:
    """How many runs are long enough for the clock; not tried if the work took long before."""
    number = 1
    if before > 50 * LONG_ENOUGH:
        return number
    while number < 1 << 20 and timed(run, number) < LONG_ENOUGH:
        number *= 2
    return number


def best(works: Sequence[Work], numbers: Sequence[int], least: float) -> list[float]:
    """The best seconds for one operation of each work, in turns until the time is over."""
    found = [float("inf")] * len(works)
    gc.collect()
    end = time.perf_counter() + least
    while found[0] == float("inf") or time.perf_counter() < end:
        for k, (work, number) in enumerate(zip(works, numbers, strict=True)):
            found[k] = min(found[k], timed(work.run, number) / (number * work.times))
    return found


class Worker:
    """What a process knows between two commands."""

    def __init__(self, library: str, folder: str, scale: int) -> None:
        self.site = Site(LIBRARIES[library](), folder, scale)
        self.works: list[Work] = []
        self.numbers: list[int] = []

    def store(self, name: str) -> dict[str, Any]:
        """Write what all libraries read."""
        stored = next(s for case in CASES.values() for s in case.needs if s.name == name)
        stored.write(self.site.library, self.site.folder, self.site.scale)
        return {}

    def prepare(self, case: str) -> dict[str, Any]:
        """Open what a case needs, do its work once, and say what came out."""
        self.works = [work(self.site) for work in _works_of(case)]
        self.numbers, answers = [], []
        for work in self.works:
            start = time.perf_counter()
            answer = work.answer()
            took = time.perf_counter() - start
            answers.append(checksum(answer))
            del answer
            self.numbers.append(calibrate(work.run, took))
        return {"answers": answers, "written": self.works[0].written}

    def run(self, least: float) -> dict[str, Any]:
        """Time the prepared work."""
        return {"seconds": best(self.works, self.numbers, least)}

    def once(self, case: str) -> dict[str, Any]:
        """Measure memory, or an import."""
        measure = CASES[case].once
        assert measure
        return {"value": measure(self.site)}

    def verify(self, path: str) -> dict[str, Any]:
        """Read an array that another library has written."""
        return {"answer": checksum(self.site.library.getter(self.site.library.open(path))(ALL))}

    def finish(self) -> dict[str, Any]:
        """Forget the work, and remove what it wrote."""
        self.works = []
        prefix = f"of-{self.site.library.name}-"
        for name in os.listdir(self.site.folder):
            if name.startswith(prefix) and name[len(prefix)].isdigit():
                shutil.rmtree(f"{self.site.folder}/{name}")
        return {}

    def obey(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what a command says; an error is an answer too."""
        try:
            answer: dict[str, Any] = getattr(self, command.pop("do"))(**command)
        except Exception as error:  # noqa: BLE001 - whatever a library raises goes into the table
            return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        return answer


def _works_of(case: str) -> list[Callable[[Site], Work]]:
    found = CASES[case]
    assert found.work
    return [found.work, *(work for _, _, work in found.more)]


def main() -> None:
    """Obey until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not be taken for an answer
    library, folder, scale = sys.argv[1:]
    faulthandler.dump_traceback_later(TIMEOUT, exit=True)
    try:
        worker = Worker(library, folder, int(scale))
    except NotHereError as error:
        print(json.dumps({"error": str(error)}), file=answers, flush=True)
        return
    print(json.dumps({}), file=answers, flush=True)
    for line in sys.stdin:
        faulthandler.dump_traceback_later(TIMEOUT, exit=True)
        answer = worker.obey(json.loads(line))
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
