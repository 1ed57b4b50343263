"""Datasets written by processes: killed at random times, two at once, and read meanwhile; on a disk and on S3.

All variables of a dataset tell the same story, every append that was reported is there once, and the next one is right.
A short form here; the long form, with the numbers that `docs/reliability.md` names, is `make soak`.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from crashing_store import LONG

import xarray as xr
import zellige
from xarray_data import opened

KILLS = 200 if LONG else 3
ROUNDS = 20 if LONG else 2
APPENDS = 200 if LONG else 25

HEAD = """
import sys, time
import zellige, zellige.xarray
from test_dataset_processes import block, consistent, says
place, options = {place!r}, {options!r}
"""


class Place:
    """Where a dataset is, for this process and for others."""

    def __init__(self, url: str, options: dict[str, Any] | None) -> None:
        self.url, self.options = url, options

    def start(self, code: str) -> subprocess.Popen[str]:
        """A process that runs some code on the dataset."""
        tests = str(Path(__file__).parents[1])
        source = str(Path(zellige.__file__).parents[1])
        program = HEAD.format(place=self.url, options=self.options) + code
        paths = os.pathsep.join([source, tests, f"{tests}/faults"])
        return subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def open(self, **options: Any) -> xr.Dataset:
        return opened(self.url, storage_options=self.options, **options)

    def append(self, number: int) -> None:
        block(number).zellige.write(self.url, append_dim="time", storage_options=self.options)


def made(kind: str, request: pytest.FixtureRequest) -> Place:
    if kind == "s3":
        server = request.getfixturevalue("s3")
        return Place(server.url(), server.options)
    return Place(str(request.getfixturevalue("tmp_path") / {"local": "x.zarr", "zip": "x.zip"}[kind]), None)


@pytest.fixture(params=["local", "s3"])
def place(request) -> Place:
    return made(request.param, request)


@pytest.fixture(params=["local", "s3", "zip"])
def any_place(request) -> Place:
    return made(request.param, request)


def block(number: int) -> xr.Dataset:
    """What one append writes: each of its four days in five variables tells the number."""
    days = pd.date_range("2000-01-01", periods=4) + pd.Timedelta(days=4 * number)
    values = {f"v{k}": (("time", "x"), np.full((4, 3), number + k / 8)) for k in range(4)}
    return xr.Dataset({**values, "number": ("time", np.full(4, number))}, {"time": days})


def numbers(ds: xr.Dataset) -> list[int]:
    """The appends that a dataset holds, in their order; fails if its variables tell different stories."""
    found = ds.load().number.values.reshape(-1, 4)
    assert (found == found[:, :1]).all(), found
    days = (ds.time.values - np.datetime64("2000-01-01")).astype("m8[D]").astype(int).reshape(-1, 4)
    assert (days == found * 4 + np.arange(4)).all(), (days, found)
    for k in range(4):
        assert (ds[f"v{k}"].values == ds.number.values[:, None] + k / 8).all(), k
    return found[:, 0].tolist()


def consistent(ds: xr.Dataset) -> bool:
    try:
        numbers(ds)
    except AssertionError:
        return False
    return True


def says(*words: object) -> None:
    print(*words, flush=True)


WRITER = """
for number in range({first}, 100_000):
    says("begin", number)
    block(number).zellige.write(place, append_dim="time", storage_options=options)
    says("done", number)
"""


def test_appends_killed_at_random_times_leave_a_dataset_that_opens_and_goes_on(any_place, record_property):
    place = any_place
    chance = random.Random(7)
    place.append(0)
    done = [0]
    for _ in range(KILLS if place.options is None or LONG else 2):
        first = max(done) + 10
        writer = place.start(WRITER.format(first=first))
        assert writer.stdout is not None
        line = writer.stdout.readline()  # it is at work
        assert line == f"begin {first}\n", writer.communicate()
        time.sleep(chance.random() * 0.15)
        writer.kill()
        said = writer.communicate()[0]
        done += [int(line.split()[1]) for line in said.splitlines() if line.startswith("done")]
        begun = [first] + [int(line.split()[1]) for line in said.splitlines() if line.startswith("begin")]
        seen = numbers(place.open(consolidated=False)), numbers(place.open())
        for found in seen:
            assert set(done) <= set(found) <= {*done, begun[-1]}, (done, found)
        last = begun[-1] + 1
        place.append(last)
        found = numbers(place.open())
        assert len(found) == len(set(found))
        assert {*done, last} <= set(found) <= {*done, begun[-1], last}, (done, found)
        if place.options is None:  # a server may still have been at work on the last request
            assert seen == (found[:-1], found[:-1])
        done = found
    report = zellige.validate(place.url, deep=True, storage_options=place.options)
    assert report.ok, str(report)
    record_property("kills", KILLS)


TWO = """
for turn in range({turns}):
    number = {mine} + 2 * turn
    try:
        block(number).zellige.write(place, append_dim="time", storage_options=options)
    except zellige.errors.ConflictError as error:
        says("lost", number)
    else:
        says("done", number)
"""


def test_of_two_writers_every_append_that_was_reported_is_there_once(place):
    turns = ROUNDS if place.options is None or LONG else 2
    writers = [place.start(TWO.format(turns=turns, mine=mine)) for mine in (0, 1)]
    said = [writer.communicate(timeout=600) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], said
    lines = [line.split() for out, _ in said for line in out.splitlines()]
    done = sorted(int(number) for word, number in lines if word == "done")
    assert len(done) == 2 * turns, lines  # whoever is second waits
    for consolidated in (None, False):
        assert sorted(numbers(place.open(consolidated=consolidated))) == done


def test_of_two_writers_that_do_not_wait_the_second_writes_nothing(place):
    place.append(0)
    with zellige.change(place.url, storage_options=place.options) as change:
        code = "zellige.config.set({'lease.wait': 0})\n" + TWO.format(turns=1, mine=1)
        out, problem = place.start(code).communicate(timeout=120)
        assert out == "lost 1\n", problem
        change.abort()
    assert numbers(place.open()) == [0]
    place.append(1)
    assert numbers(place.open()) == [0, 1]


def test_a_writer_that_is_stopped_is_waited_for_and_named(place):
    """It keeps its lease, also if that is not renewed for long: nobody else can know that it does not go on."""
    chance = random.Random(3)
    place.append(0)
    done = [0]
    impatient = "zellige.config.set({'lease.wait': 0.2, 'lease.timeout': 0.1})\n"
    for turn in range(2 * ROUNDS if LONG else ROUNDS if place.options is None else 1):
        first = place.start(impatient + WRITER.format(first=100 * turn + 10).replace("100_000", str(100 * turn + 14)))
        assert first.stdout is not None
        assert first.stdout.readline().startswith("begin")
        time.sleep(chance.random() * 0.1)
        first.send_signal(signal.SIGSTOP)
        try:
            code = TWO.replace('says("lost", number)', 'says("lost", number, error)')
            second = place.start(impatient + code.format(turns=1, mine=100 * turn + 50))
            out, problem = second.communicate(timeout=300)
        finally:
            first.send_signal(signal.SIGCONT)
        rest, wrong = first.communicate(timeout=300)
        assert first.returncode == 0, wrong
        assert out.startswith("done") or f"process {first.pid} on" in out, problem
        assert out.startswith("done") or "or end that process" in out
        done += [int(line.split()[1]) for line in [*out.splitlines(), *rest.splitlines()] if line.startswith("done")]
        for consolidated in (None, False):
            assert sorted(numbers(place.open(consolidated=consolidated))) == sorted(done), (out, problem, rest)


READER = """
import threading
from xarray_data import opened
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
opens = errors = mixtures = 0
says("ready")
while not stop.is_set() or opens < 4:
    for consolidated in (None, False):
        opens += 1
        try:
            mixtures += not consistent(opened(place, storage_options=options, consolidated=consolidated))
        except Exception as error:
            errors += 1
            print(repr(error)[:500], file=sys.stderr)
says(opens, errors, mixtures)
"""


def test_a_reader_meets_no_error_and_no_mixture_while_one_appends(place, record_property):
    place.append(0)
    reader = place.start(READER)
    assert reader.stdout is not None
    assert reader.stdout.readline() == "ready\n"
    appends = APPENDS if place.options is None or LONG else 5
    for number in range(1, appends + 1):
        place.append(number)
    out, problem = reader.communicate(timeout=600)
    opens, errors, mixtures = map(int, out.split())
    record_property("opens", opens)
    assert (errors, mixtures) == (0, 0), problem
    assert opens >= 4
    assert numbers(place.open()) == list(range(appends + 1))
