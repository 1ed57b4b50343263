"""Progress: counted to the end, by a bar on a terminal, tqdm in a notebook, a function; nothing otherwise."""

from __future__ import annotations

import io
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import zellige
from zellige.display import progress as reporting

VALUES = np.arange(60).reshape(6, 10)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that goes forward by a second each time it is looked at."""

    def __init__(self, step: float = 1.0) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def on_terminal(monkeypatch, step=1.0):
    """Within a test: pytest gives every phase of it a stderr of its own."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(reporting, "clock", Clock(step))
    monkeypatch.setenv("COLUMNS", "90")
    return stream


def array(**options):
    return zellige.create_array(data=VALUES, chunks=([1, 2, 3], 5), **options)


def alone():
    """One thread, so that chunks are done in their order."""
    return zellige.config.set({"threading.max_workers": 1})


OPERATIONS = {
    "read": (lambda a, **p: a[...], 6, "c/2/1"),
    "read of points": (lambda a, **p: a.vindex[[0, 5], [0, 9]], 2, "c/2/1"),
    "write": (lambda a, **p: a.__setitem__(..., 7), 6, "c/2/1"),
    "write of a part": (lambda a, **p: a.__setitem__((0, 0), 7), 1, "c/0/0"),
    "stats": (lambda a, **p: a.stats(**p), 6, "(2, 1)"),
    "validate": (lambda a, **p: zellige.validate(a.store, deep=True, **p), 6, "c/2/1"),
    "repair": (lambda a, **p: zellige.repair(a.store, **p), 6, "c/2/1"),
    "diff": (lambda a, **p: zellige.diff(a, a, **p), 1, ""),
    "copy_store": (lambda a, **p: zellige.copy_store(a.store, {}, **p), 7, "zarr.json"),
    "rechunk": (lambda a, **p: zellige.rechunk(a, None, chunks=(6, 2), max_memory=10**6, **p), 1, "[0:6, 0:10]"),
}
ON_REQUEST = {name for name in OPERATIONS if name.startswith(("read", "write"))}


@pytest.mark.parametrize("name", OPERATIONS)
def test_within_the_block_every_operation_is_told_to_its_end(name):
    act, total, last = OPERATIONS[name]
    a, seen = array(), []
    with alone(), zellige.progress(lambda *told: seen.append(told)):
        act(a)
    assert seen[-1] == (total, total, last)
    assert [done for done, _, _ in seen] == list(range(1, total + 1))
    seen.clear()
    act(a)
    assert seen == []


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in ON_REQUEST])
def test_operations_take_a_function(name):
    act, total, last = OPERATIONS[name]
    seen = []
    with alone():
        act(array(), progress=lambda *told: seen.append(told))
    assert seen[-1] == (total, total, last)


@pytest.mark.skipif(
    zellige.kernel.native is None, reason="counts the work beside the kernel, which was not built or is off"
)
def test_rows_of_small_chunks_are_counted_by_chunks(tmp_path):
    a = zellige.create_array(tmp_path, data=np.arange(4000).reshape(40, 100), chunks=(10, 2))
    seen = []
    with zellige.progress(lambda *told: seen.append(told)):
        a[...] = 1
        assert a[...].sum() == 4000
    assert [done for done, total, _ in seen if done == total == 200] == [200] * 2  # of the write, and of the read
    assert len(seen) < 400  # rows are told as a whole


def test_many_threads_tell_one_at_a_time():
    a = zellige.create_array(data=np.zeros((64, 1 << 14)), chunks=(1, -1), compressors=None)
    seen, inside = [], threading.Lock()

    def tell(done, total, name):
        assert inside.acquire(blocking=False)
        seen.append(done)
        inside.release()

    with zellige.config.set({"threading.max_workers": 4}), zellige.progress(tell):
        a[...] = 1
        a[...]
    assert seen == [*range(1, 65)] * 2


def test_false_silences_what_was_asked_for_and_blocks_nest():
    outer, inner, silent = [], [], []
    a = array()
    with zellige.progress(lambda *told: outer.append(told)):
        with zellige.progress(lambda *told: inner.append(told)):
            a[0]
        with zellige.progress(False):
            a.stats(progress=lambda *told: silent.append(told))
        a[0]
    assert (len(outer), len(inner), silent) == (2, 2, [])


def test_what_it_raises_stops_the_operation_and_the_block_ends():
    a = array()

    def stop(done, total, name):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), zellige.progress(stop):
        a[...]
    assert a[0, 0] == 0


def test_other_threads_are_not_told():
    a, seen = array(), []
    with zellige.progress(lambda *told: seen.append(told)):
        thread = threading.Thread(target=lambda: a[...])
        thread.start()
        thread.join()
    assert seen == []


@pytest.mark.parametrize("wrong", ["yes", 1])
def test_what_cannot_be_told_is_refused(wrong):
    with pytest.raises(TypeError, match="must be True, a function"), zellige.progress(wrong):
        pass


# -- what is shown --------------------------------------------------------------------------------


def test_a_bar_on_a_terminal(monkeypatch):
    terminal = on_terminal(monkeypatch)
    array().stats(progress=True)
    states = terminal.getvalue().split("\r")[1:]
    assert len(states) == 6
    assert all(len(state.rstrip("\n")) == 89 for state in states)
    assert states[0].rstrip() == "measured  17% ━━━─────────────────  1/6 chunks, 1.0/s, 0:05 left  (0, 0)"
    assert states[-1].rstrip() == "measured 100% ━━━━━━━━━━━━━━━━━━━━  6/6 chunks, 1.0/s  (2, 1)"
    assert terminal.getvalue().count("\n") == 1


def test_what_is_quick_leaves_no_trace(monkeypatch):
    terminal = on_terminal(monkeypatch, 0.01)
    with zellige.progress():
        array()[...]
    assert terminal.getvalue() == ""


def test_the_line_is_not_written_more_often_than_needed(monkeypatch):
    terminal = on_terminal(monkeypatch, 0.05)
    zellige.create_array(data=range(100), chunks=1).stats(progress=True)
    assert terminal.getvalue().count("\r") <= 100 * 0.05 / 0.1
    assert "100/100" in terminal.getvalue().rpartition("\r")[2]


def test_the_line_is_left_on_an_error(monkeypatch):
    terminal = on_terminal(monkeypatch)
    a = array()
    a.store.put("c/2/1", b"damaged")
    with pytest.raises(zellige.errors.CodecError), zellige.config.set({"threading.max_workers": 1}), zellige.progress():
        a[...]
    assert terminal.getvalue().endswith("\n")
    assert terminal.getvalue().count("\n") == 1


def test_silence_where_nobody_looks(capsys):
    with zellige.progress():
        array()[...]
    array().stats(progress=True)
    assert capsys.readouterr() == ("", "")


def notebook(monkeypatch, tqdm):
    """As in the kernel of a notebook."""
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "tqdm.auto", tqdm)


def test_tqdm_in_notebooks(monkeypatch):
    made = []

    class Tqdm:
        def __init__(self, **options):
            self.options, self.n, self.closed = options, 0, False
            made.append(self)

        def update(self, count):
            self.n += count

        def close(self):
            self.closed = True

    notebook(monkeypatch, SimpleNamespace(tqdm=Tqdm))
    array().stats(progress=True)
    (bar,) = made
    assert bar.options == {"total": 6, "desc": "measured", "unit": " chunks"}
    assert (bar.n, bar.closed) == (6, True)


def test_a_notebook_without_tqdm_is_silent(monkeypatch):
    terminal = on_terminal(monkeypatch)
    notebook(monkeypatch, None)
    array().stats(progress=True)
    assert terminal.getvalue() == ""


def test_without_a_listener_nothing_is_imported_for_progress():
    from test_house import modules_after

    loaded = modules_after("import zellige; a = zellige.zeros(3, compressors=None); a[:] = 1; a[:]")
    assert "zellige.display.progress" not in loaded
