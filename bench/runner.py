"""Running cases: one process for each library, rounds in which each takes its turn, the best round of each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bench.cases import Case
from bench.layouts import Stored
from bench.libraries import OURS
from bench.machine import QUIET, Load

ROOT = Path(__file__).parents[1]
TRIES = 3
"""How often a case is measured while others use the cores; the best rounds of all count."""
LOG = ROOT / "bench" / "last.log"
"""What a process printed that ended before its time, such as where it was hanging."""


class Options(NamedTuple):
    """How to measure."""

    scale: int = 1
    rounds: int = 6
    least: float = 0.4
    """Seconds for each library in each round, at least."""
    patience: float = 8.0
    """A library that has used as many seconds for a case gets no further rounds, after `sure` of them."""
    sure: int = 2
    close: float = 1.2
    """A ratio that differs from what is asked for by less than this factor is measured with three times the rounds."""


def close_ones(case: Case, figures: dict[str, float], factor: float) -> set[str]:
    """The peers whose ratio is near what the case asks for, above or below."""
    ours = figures.get(OURS, float("nan"))
    ratios = {peer: figures[peer] / ours / least for peer, least in case.goals.items() if peer in figures}
    return {peer for peer, ratio in ratios.items() if 1 / factor < ratio < factor}


def pinned(count: int) -> list[str]:
    """The words before a command that keep it to the first CPUs that this process may use."""
    return ["taskset", "--cpu-list", ",".join(map(str, sorted(os.sched_getaffinity(0))[:count]))]


class Process:
    """The process of a library; started when first asked."""

    def __init__(
        self, library: str, folder: str, scale: int, source: Path | None = None, cores: int | None = None
    ) -> None:
        """`source` is where zellige is imported from, if not from where it is installed.

        With `cores` it gets so many CPUs and no others. The Rust libraries are told so in their own way, too.
        """
        self.library, self._folder = library, folder
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        environment = dict(os.environ)
        if source is not None:
            environment["PYTHONPATH"] = str(source)
        if cores is not None:
            environment["RAYON_NUM_THREADS"] = str(cores)
        command = [sys.executable, "-m", "bench.worker", library, folder, str(scale)]
        self._process = subprocess.Popen(
            command if cores is None else [*pinned(cores), *command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self.pid = self._process.pid
        self.missing = self._answer().get("error")
        """Why the library cannot take part, if it cannot."""

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; `error` in it says what went wrong."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
            self._process.stdin.flush()
        except OSError:
            return {"error": self._last_words()}
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:  # which goes into the table, without paths of this machine
            answer["error"] = answer["error"].replace(self._folder, "").replace(str(ROOT), "")
        return answer

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        text = self._errors.read()
        LOG.write_text(text)
        cause = (text.splitlines() or [""])[0 if text.startswith("Timeout") else -1]
        return f"the process ended with {self._process.returncode}: {cause[:200]} (more in bench/{LOG.name})"

    @property
    def alive(self) -> bool:
        """Whether it can still be asked."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        assert self._process.stdout
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


class Runner:
    """All processes, and the folder that they share."""

    def __init__(
        self,
        folder: str,
        options: Options,
        say: Callable[[str], None],
        only: Sequence[str] = (),
        cores: int | None = None,
    ) -> None:
        """With `cores`, each process gets so many CPUs; without, all that there are."""
        self.folder, self.options, self.say, self.only, self.cores = folder, options, say, only, cores
        self._processes: dict[str, Process] = {}
        self._stored: dict[str, Stored] = {}
        self.absent: dict[str, str] = {}

    def on(self, cores: int) -> Runner:
        """A runner with processes of its own on so many CPUs, which reads the same data."""
        other = Runner(self.folder, self.options, self.say, self.only, cores)
        other._stored, other.absent = self._stored, self.absent
        return other

    def close(self) -> None:
        """End all processes."""
        for process in self._processes.values():
            process.close()

    # -- what the cases need ----------------------------------------------------------------------

    def process(self, library: str) -> Process | None:
        """The process of a library; None if it is not installed."""
        if library in self.absent:
            return None
        found = self._processes.get(library)
        if found is None or not found.alive:
            found = Process(library, self.folder, self.options.scale, cores=self.cores)
            self._processes[library] = found
            if found.missing:
                self.absent[library] = found.missing
                self.say(f"{library} is left out: {found.missing}")
                return None
        return found

    def _store(self, case: Case) -> str | None:
        """Write what a case needs and is not there; says what went wrong."""
        for stored in case.needs:
            if stored.name not in self._stored:
                writer = self.process(stored.writer) or self.process(OURS)
                answer = writer.ask("store", name=stored.name) if writer else {"error": "nobody writes the data"}
                if "error" in answer:
                    return str(answer["error"])
                self._stored[stored.name] = stored
        return None

    def forget(self, later: Sequence[Case]) -> None:
        """Remove what no later case needs."""
        kept = {stored.name for case in later for stored in case.needs}
        for name in self._stored.keys() - kept:
            shutil.rmtree(os.path.join(self.folder, name))
            del self._stored[name]

    # -- running ----------------------------------------------------------------------------------

    def run(self, case: Case, *, timed: bool = True) -> dict[str, Any]:
        """Run a case: what each library took, whether they agree, and what went wrong."""
        start = time.perf_counter()
        names = [name for name in case.libraries if not self.only or name in self.only]
        result: dict[str, Any] = {"name": case.name, "figures": {}, "errors": {}, "equal": None}
        if self.cores is not None:
            result["cores"] = self.cores
        if error := self._store(case):
            result["errors"][OURS] = error
            return result
        processes = {name: process for name in names if (process := self.process(name))}
        self.process("numpy")
        if not case.once:
            self._prepare(case, processes, result)
        for _ in range(TRIES if timed and case.unit != "B" else 1):
            load = Load(process.pid for process in self._processes.values())
            if case.once:
                self._measure_once(case, list(processes), result, timed=timed)
            elif timed:
                self._rounds(case, processes, result)
            result["others_percent"] = load.percent()
            if (result["others_percent"] or 0.0) <= QUIET:
                break
        if not case.once:
            for process in self._processes.values():
                if process.alive:
                    process.ask("finish")
        result["took"] = round(time.perf_counter() - start, 2)
        return result

    def _prepare(self, case: Case, processes: dict[str, Process], result: dict[str, Any]) -> None:
        """Let all do the work once, and compare what came out with numpy's answer."""
        oracle = self.process("numpy")
        expected = (oracle.ask("prepare", case=case.name).get("answers") or [None])[0] if oracle else None
        result["equal"] = True
        for name in list(processes):
            answer = processes[name].ask("prepare", case=case.name)
            answers = list(answer.get("answers", []))
            if answer.get("written"):
                answers.append(self._read_back(answer["written"]))
            if "error" in answer:
                result["errors"][name] = answer["error"]
                del processes[name]
            elif set(answers) != {expected}:
                result["equal"] = False
                result["errors"][name] = f"other values: {' and '.join(map(str, answers))} instead of {expected}"
                del processes[name]

    def _read_back(self, path: str) -> object:
        """What zarr-python, or else zellige, finds in an array that some library has written."""
        reader = self.process("zarr") or self.process(OURS)
        answer = reader.ask("verify", path=path) if reader else {}
        return answer.get("answer", answer)

    def _rounds(self, case: Case, processes: dict[str, Process], result: dict[str, Any]) -> None:
        """Let each library take its turns.

        Where a ratio is close to the goal, the two take as many more, whether it is above or below.
        """
        self._turns(case, processes, result, self.options.rounds)
        close = close_ones(case, result["figures"], self.options.close)
        if close:
            some = {name: process for name, process in processes.items() if name in {OURS, *close}}
            self._turns(case, some, result, 2 * self.options.rounds)

    def _turns(self, case: Case, processes: dict[str, Process], result: dict[str, Any], rounds: int) -> None:
        figures, spent = result["figures"], dict.fromkeys(processes, 0.0)
        for number in range(rounds):
            for name, process in list(processes.items()):
                if number >= self.options.sure and spent[name] > self.options.patience:
                    continue
                start = time.perf_counter()
                answer = process.ask("run", least=self.options.least * (1 + len(case.more)))
                spent[name] += time.perf_counter() - start
                if "error" in answer:
                    result["errors"][name] = answer["error"]
                    del processes[name]
                    continue
                whose = [name, *(other for other, _, _ in case.more)]
                for who, seconds in zip(whose, answer["seconds"], strict=True):
                    figures[who] = min(figures.get(who, seconds), seconds)

    def _measure_once(self, case: Case, names: list[str], result: dict[str, Any], *, timed: bool) -> None:
        """Measure memory once, each library in a new process; an import, which starts its own, in every round."""
        rounds = 1 if case.unit == "B" or not timed else self.options.rounds
        figures = result["figures"]
        for name in names * rounds:
            answer = self._once_in_new_process(case, name) if case.unit == "B" else self._once(case, name)
            if "error" in answer:
                result["errors"][name] = answer["error"]
            else:
                figures[name] = min(figures.get(name, answer["value"]), answer["value"])

    def _once(self, case: Case, name: str) -> dict[str, Any]:
        process = self.process(name)
        return process.ask("once", case=case.name) if process else {"error": self.absent[name]}

    def _once_in_new_process(self, case: Case, name: str) -> dict[str, Any]:
        process = Process(name, self.folder, self.options.scale, cores=self.cores)
        answer = process.ask("once", case=case.name)
        process.ask("finish")
        process.close()
        return answer
