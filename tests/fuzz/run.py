"""Fuzz every target for a share of the time, several at once; what breaks a promise is kept below `finds/`.

`make fuzz` calls this with the interpreter of `.venv-fuzz`. With `--target` it fuzzes that one, and is what the
others are called through. A find is kept once for each place where it is raised; crashes, hangs and values that take
too much memory end their target, and are kept too. `test_fuzz.py` replays all of them, without atheris.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
FINDS = HERE / "finds"

LONGEST = 4096
"""Bytes of an input."""
SECONDS_EACH, MEGABYTES = 10, 1024
"""What one input may take."""


def slug(target: str) -> str:
    return target.replace(" ", "_")


def keeping(target: str, check: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """The target, but a broken promise is kept as a file, once for each place, and the fuzzer goes on."""
    seen: set[str] = set()

    def run(data: bytes) -> None:
        try:
            check(data)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  (a panic of Rust is no Exception)
            frames = traceback.extract_tb(error.__traceback__)
            place = " ".join(f"{Path(frame.filename).name}:{frame.name}" for frame in frames[-3:])
            what = f"{type(error).__name__} {place}"
            if what not in seen:
                seen.add(what)
                name = hashlib.sha256(f"{target} {what}".encode()).hexdigest()[:12]
                folder = FINDS / slug(target)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(data)
                print(f"FIND {name} {what}: {str(error)[:200]}", flush=True)

    return run


def fuzz(target: str, seconds: int) -> None:
    """Fuzz one target in this process, which ends with it."""
    import atheris

    sys.path.insert(0, str(HERE))
    with atheris.instrument_imports(include=["zellige"], enable_loader_override=False):
        import targets
    check = keeping(target, targets.TARGETS[target])
    folder = FINDS / slug(target)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        for number, seed in enumerate(targets.seeds(target)):
            if len(seed) <= LONGEST:
                Path(place, f"{number:04}").write_bytes(seed)
        options = [
            f"-max_total_time={seconds}",
            f"-max_len={LONGEST}",
            f"-timeout={SECONDS_EACH}",
            f"-rss_limit_mb={MEGABYTES}",
            f"-artifact_prefix={folder}/",
            "-print_final_stats=1",
        ]
        if target.startswith(("document", "grid")):
            options.append(f"-dict={HERE / 'json.dict'}")
        atheris.Setup([sys.argv[0], *options, place], check)
        atheris.Fuzz()


def run_one(target: str, seconds: int) -> tuple[str, int, list[str], str]:
    """Fuzz one target in a process of its own: its name, how often it ran, what it found, and how it ended."""
    command = [sys.executable, __file__, "--target", target, "--seconds", str(seconds)]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1] / "src")}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    output = done.stdout + done.stderr
    counts = re.findall(r"number_of_executed_units: (\d+)", output) or re.findall(r"^#(\d+)\s", output, re.MULTILINE)
    finds = re.findall(r"^FIND (.*)$", output, re.MULTILINE)
    finds += re.findall(r"(Test unit written to \S+)", output)
    end = "" if done.returncode == 0 else f"ended with {done.returncode}: {output.strip().splitlines()[-1][:300]}"
    return target, int(counts[-1]) if counts else 0, finds, end


def run_all(names: list[str], seconds: int, jobs: int) -> int:
    share = max(1, round(seconds * jobs / len(names)))
    failures = total = 0
    with ThreadPoolExecutor(jobs) as pool:
        for target, count, finds, end in pool.map(lambda name: run_one(name, share), names):
            print(f"{target:20} {count:9,} executions, {len(finds)} finds {end}".rstrip(), flush=True)
            for find in finds:
                print(f"    {find}")
            failures += bool(finds or end)
            total += count
    for folder in FINDS.iterdir() if FINDS.exists() else ():
        if not any(folder.iterdir()):
            folder.rmdir()
    print(f"{total:,} executions in {share} s for each of {len(names)} targets; finds are kept in {FINDS}")
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many targets at once")
    parser.add_argument("--only", default="", help="targets whose names hold this")
    parser.add_argument("--target", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.target:
        fuzz(given.target, given.seconds)
        return
    sys.path.insert(0, str(HERE))
    import targets

    names = [name for name in targets.TARGETS if given.only in name]
    sys.exit(1 if run_all(names, given.seconds, given.jobs) else 0)


if __name__ == "__main__":
    main()
