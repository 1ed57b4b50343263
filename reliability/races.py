"""Writers and readers at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from reliability import documents
from reliability.adapters import Library
from reliability.children import FORK, Child, ChildError, call, together, words
from reliability.outcome import Outcome, counted

THREADS = 8


# -- parts of one chunk or shard ------------------------------------------------------------------


def _update(library: Library, array: Any, numbers: range) -> int:
    """Set single elements, each to its index plus 1; returns how many times that raised."""
    errors = 0
    for number in numbers:
        try:
            library.write(array, slice(number, number + 1), np.array([number + 1]))
        except Exception:  # noqa: BLE001 - counted
            errors += 1
    return errors


def _in_threads(work: Callable[[int], int], count: int) -> int:
    """Run something in threads that start together; the sum of what they return."""
    barrier, results = threading.Barrier(count), [0] * count

    def run(number: int) -> None:
        barrier.wait()
        results[number] = work(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(results)


def _update_in_threads(library: Library, path: str, count: int) -> int:
    array = library.open(path)
    return _in_threads(lambda k: _update(library, array, range(k, count, THREADS)), THREADS)


def _update_in_process(library: Library, path: str, numbers: range, barrier: Any) -> int:
    array = library.open(path)
    library.read(array, slice(0, 1))  # imports what is imported on first use
    barrier.wait()
    return _update(library, array, numbers)


def _values(library: Library, path: str) -> np.ndarray:
    return library.read(library.open(path))


def _kept(library: Library, path: str, count: int, errors: int) -> Outcome:
    try:
        found = call(_values, library, path)
    except ChildError as error:
        return counted(f"does not decode afterwards, {errors} errors", good=False, of=count, error=str(error))
    kept = int((found == np.arange(1, count + 1)).sum())
    wrong = int((found != 0).sum()) - kept
    text = f"{kept} of {count}" + f", {errors} errors" * bool(errors) + f", {wrong} wrong" * bool(wrong)
    return counted(text, kept == count and not errors and not wrong, kept=kept, of=count, errors=errors, wrong=wrong)


def threads_shard(library: Library, folder: str, count: int) -> Outcome:
    """8 threads with one handle write elements of one shard."""
    path = documents.make(f"{folder}/a", documents.document([count], [count], documents.shard([count // 20])))
    return _kept(library, path, count, call(_update_in_threads, library, path, count))


def threads_chunk(library: Library, folder: str, count: int) -> Outcome:
    """8 threads with one handle write elements of one chunk."""
    path = documents.make(f"{folder}/a", documents.document([count], [count]))
    return _kept(library, path, count, call(_update_in_threads, library, path, count))


def _processes(library: Library, path: str, count: int) -> Outcome:
    barrier = FORK.Barrier(2)
    calls = [(_update_in_process, library, path, range(k, count, 2), barrier) for k in range(2)]
    return _kept(library, path, count, sum(together(calls)))


def processes_chunk(library: Library, folder: str, count: int) -> Outcome:
    """2 processes write elements of one chunk."""
    return _processes(library, documents.make(f"{folder}/a", documents.document([count], [count])), count)


def processes_shard(library: Library, folder: str, count: int) -> Outcome:
    """2 processes write elements of one shard."""
    text = documents.document([count], [count], documents.shard([count // 20]))
    return _processes(library, documents.make(f"{folder}/a", text), count)


# -- attributes, rows, creation -------------------------------------------------------------------


def _set_attributes(library: Library, handle: Callable[[], Any], numbers: range) -> int:
    errors = 0
    for number in numbers:
        try:
            library.set_attribute(handle(), f"a{number}", number)
        except Exception:  # noqa: BLE001 - counted
            errors += 1
    return errors


def _attributes_in_threads(library: Library, path: str, count: int) -> int:
    array = library.open(path)
    return _in_threads(lambda k: _set_attributes(library, lambda: array, range(k, count, 4)), 4)


def _attributes_in_process(library: Library, path: str, numbers: range, barrier: Any) -> int:
    library.open(path)  # imports what is imported on first use
    barrier.wait()
    return _set_attributes(library, lambda: library.open(path), numbers)


def _array_with_attribute(library: Library, folder: str) -> str:
    """An array with one attribute, which says whether there are any."""
    path = documents.make(f"{folder}/a", documents.document([8], [8]))
    call(lambda: library.set_attribute(library.open(path), "first", 0))
    return path


def _attributes_kept(library: Library, path: str, count: int, errors: int) -> Outcome:
    try:
        found = call(library.attributes, path)
    except ChildError as error:
        return counted(f"no document afterwards, {errors} errors", good=False, of=count, error=str(error))
    kept = sum(found.get(f"a{number}") == number for number in range(count))
    text = f"{kept} of {count}" + f", {errors} errors" * bool(errors)
    return counted(text, kept == count and not errors, kept=kept, of=count, errors=errors)


def attributes_threads(library: Library, folder: str, count: int) -> Outcome:
    """4 threads with one handle set attributes."""
    path = _array_with_attribute(library, folder)
    return _attributes_kept(library, path, count, call(_attributes_in_threads, library, path, count))


def attributes_processes(library: Library, folder: str, count: int) -> Outcome:
    """4 processes set attributes, each time on a handle opened for it."""
    path = _array_with_attribute(library, folder)
    barrier = FORK.Barrier(4)
    calls = [(_attributes_in_process, library, path, range(k, count, 4), barrier) for k in range(4)]
    return _attributes_kept(library, path, count, sum(together(calls)))


WIDTH = 64


def _append(library: Library, path: str, numbers: range, barrier: Any) -> int:
    library.read(library.open(path))
    barrier.wait()
    errors = 0
    for number in numbers:
        try:
            library.append(path, np.full((1, WIDTH), number))
        except Exception:  # noqa: BLE001 - counted
            errors += 1
    return errors


def appends(library: Library, folder: str, count: int) -> Outcome:
    """2 processes append rows that are full of their number, each time on a handle opened for it."""
    path = documents.make(f"{folder}/a", documents.document([0, WIDTH], [8, WIDTH // 4]))
    barrier = FORK.Barrier(2)
    errors = sum(together([(_append, library, path, range(1 + k, count + 1, 2), barrier) for k in range(2)]))
    found = call(_values, library, path)
    whole = [int(row[0]) for row in found if row.min() == row.max()]
    mixed = len(found) - len(whole)
    missing = len(set(range(1, count + 1)) - set(whole))
    made_up = len(whole) - len(set(whole) - {0})  # twice, or rows of fill that nobody appended
    text = f"{missing} missing, {mixed} mixed of {count}" + f", {made_up} made up" * bool(made_up)
    text += f", {errors} errors" * bool(errors)
    good = not (missing or mixed or made_up or errors)
    return counted(text, good, missing=missing, mixed=mixed, made_up=made_up, errors=errors, of=count)


def _create_many(library: Library, folder: str, count: int, barrier: Any) -> list[bool]:
    won = []
    for number in range(count):
        barrier.wait()
        try:
            library.create(f"{folder}/{number}")
            won.append(True)
        except Exception:  # noqa: BLE001 - the others are to get an error
            won.append(False)
    return won


def creation(library: Library, folder: str, count: int) -> Outcome:
    """4 processes create the same array at the same moment."""
    barrier = FORK.Barrier(4)
    winners = np.sum(together([(_create_many, library, folder, count, barrier)] * 4), axis=0)
    single, most = int((winners == 1).sum()), int(winners.max())
    text = f"one winner in {single} of {count}" + f", up to {most} winners" * (most > 1)
    none = int((winners == 0).sum())
    return counted(text + f", none in {none}" * bool(none), single == count, single=single, of=count, most=most)


# -- readers --------------------------------------------------------------------------------------

SIDE = 1 << 17
"""Elements of the chunk that is overwritten: 1 MiB."""
STEP = 1 << 20
"""Elements say in their high bits which generation they belong to."""


def _generation(number: int) -> np.ndarray:
    """Values of one generation, which pack to another length than those of others."""
    noise = np.random.default_rng(number).integers(0, 1 + number * 7919 % (STEP - 1), SIDE)
    return number * STEP + noise


def _overwrite(library: Library, path: str, ready: Any, done: Any) -> int:
    array, number = library.open(path), 0
    generations = [_generation(k) for k in range(1, 9)]
    while not done.is_set():
        library.write(array, slice(None), generations[number % 8])
        number += 1
        ready.set()
    return number


def _watch(library: Library, path: str, index: slice, count: int) -> dict[str, Any]:
    array = library.open(path)
    found: dict[str, Any] = {"errors": 0, "mixtures": 0, "first error": ""}
    for _ in range(count):
        try:
            values = library.read(array, index) // STEP
        except Exception as error:  # noqa: BLE001 - counted
            found["errors"] += 1
            found["first error"] = found["first error"] or words(error)
        else:
            found["mixtures"] += int(values.min() != values.max() or values.min() == 0)
    return found


def _readers(library: Library, path: str, index: slice, count: int) -> Outcome:
    ready, done = FORK.Event(), FORK.Event()
    writer = Child(_overwrite, library, path, ready, done)
    try:
        ready.wait(30)
        seen = call(_watch, library, path, index, count)
        done.set()
        writes = writer.result()
    finally:
        writer.kill()
    text = f"{seen['errors']} errors, {seen['mixtures']} mixtures of {count}"
    return counted(text, not (seen["errors"] or seen["mixtures"]), **seen, reads=count, writes=writes)


def readers_chunk(library: Library, folder: str, count: int) -> Outcome:
    """A process reads a chunk while another overwrites it."""
    path = documents.make(f"{folder}/a", documents.document([SIDE], [SIDE], documents.CHAINS["raw"]))
    return _readers(library, path, slice(None), count)


def readers_shard(library: Library, folder: str, count: int) -> Outcome:
    """A process reads half of a shard while another overwrites it; the inner chunks change their places."""
    text = documents.document([SIDE], [SIDE], documents.shard([SIDE // 16]))
    return _readers(library, documents.make(f"{folder}/a", text), slice(0, SIDE // 2), count)
