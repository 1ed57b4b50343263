"""Leases: one owner at a time, who is told from the dead, and who notices that another one has taken over."""

from __future__ import annotations

import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import obstore.store
import pytest

import zellige
from running import fork
from zellige.errors import ConflictError
from zellige.nodes import lease
from zellige.nodes.lease import Lease, Owner
from zellige.stores import LocalStore, MemoryStore, Store
from zellige.stores.object import ObjectStore

KEY = "group/lease"


@pytest.fixture(params=["memory", "local", "object"])
def store(request, tmp_path) -> Store:
    return {
        "memory": MemoryStore,
        "local": lambda: LocalStore(tmp_path),
        "object": lambda: ObjectStore(obstore.store.MemoryStore()),
    }[request.param]()


def made(store: Store) -> Lease:
    return Lease(store, KEY, "for a test")


def held(store: Store) -> Lease:
    found = made(store)
    assert found.attempt() is None
    return found


def put_foreign(store: Store, age: float = 0, **content: object) -> None:
    """The lease of a process on another machine, renewed so many seconds ago."""
    store.put(KEY, lease.dump("", Owner("1.2.elsewhere", "far-away", "0123", time.time() - age), content))


def test_one_owner_at_a_time(store):
    first = held(store)
    owner = made(store).attempt()
    assert owner is not None
    assert (owner.id, str(owner)) == (first.id, f"process {os.getpid()} on {os.uname().nodename}")
    first.release()
    assert not store.exists(KEY)
    held(store).release()


def test_what_the_owner_is_doing_is_kept_for_who_takes_over(store):
    first = held(store)
    first.write({"doing": [1, 2]})
    first.abandon()
    second = held(store)
    assert second.left == {"doing": [1, 2]}
    second.abandon()  # and once more, if that one dies as well before it has looked at it
    assert held(store).left == {"doing": [1, 2]}


def test_one_that_nobody_refers_to_is_abandoned(store):
    first = held(store)
    first.write({"doing": 1})
    del first
    gc.collect()
    assert held(store).left == {"doing": 1}


def test_a_lease_of_another_machine_is_respected_until_it_expires(store):
    put_foreign(store)
    assert str(made(store).attempt()) == "process 1 on far-away"
    put_foreign(store, age=301, doing=3)
    assert held(store).left == {"doing": 3}


def test_a_lease_of_a_dead_process_is_taken_over_at_once(tmp_path):
    code = """
import os, sys
from zellige.nodes.lease import Lease
from zellige.stores import LocalStore
found = Lease(LocalStore(sys.argv[1]), sys.argv[2], "")
assert found.attempt() is None
found.write({"doing": "dying"})
os._exit(9)
"""
    source = str(Path(zellige.__file__).parents[1])
    process = subprocess.run([sys.executable, "-c", code, str(tmp_path), KEY], env={**os.environ, "PYTHONPATH": source})
    assert process.returncode == 9
    assert held(LocalStore(tmp_path)).left == {"doing": "dying"}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_neither_owns_nor_frees_what_its_parent_holds(tmp_path):
    store = LocalStore(tmp_path)
    mine = held(store)
    assert fork(lambda: made(store).attempt() is not None and not lease._held)()
    assert mine.is_held()
    mine.release()


@pytest.mark.parametrize("raw", [b"", b"words", b"[1]", b'{"owner": 3}', b'{"owner": {"process": "1"}}', b"\xff"])
def test_a_document_that_names_no_owner_is_of_a_dead_one(raw, store):
    store.put(KEY, raw)
    assert held(store).left is not None


def test_who_was_taken_for_dead_notices_and_frees_nothing(store):
    mine = held(store)
    put_foreign(store)
    for use in (lambda: mine.write({}), mine.confirm):
        with pytest.raises(ConflictError, match="another process has taken over"):
            use()
    assert not mine.is_held()
    mine.release()
    assert json.loads(store.get(KEY) or b"")["owner"]["host"] == "far-away"


def test_it_is_renewed_while_it_is_held(store):
    with zellige.config.set({"lease.timeout": 0.1}):
        mine = held(store)
        mine.write({"doing": 1})
        before = store.get(KEY)
        until = time.monotonic() + 60
        while store.get(KEY) == before and time.monotonic() < until:
            time.sleep(0.01)
        document = lease.read(store.get(KEY) or b"")
        assert document.owner is not None
        assert document.owner.time > lease.read(before or b"").owner.time  # type: ignore[union-attr]
        assert document.content == {"doing": 1}
        mine.release()


def test_renewing_while_it_is_being_taken_changes_nothing(store):
    found = made(store)
    found.renew()
    assert found.attempt() is None
    found.confirm()


def test_renewing_keeps_what_another_process_has_written_in_the_name_of_the_owner(tmp_path):
    mine = held(LocalStore(tmp_path))
    mine.write({"committed": False})
    pickle.loads(pickle.dumps(mine)).write({"committed": True})
    mine.renew()
    assert lease.read(mine.store.get(KEY) or b"").content == {"committed": True}
    mine.release()


def test_a_process_that_was_stopped_for_long_looks_whether_another_has_taken_over(store, monkeypatch):
    mine = held(store)
    mine.check()
    put_foreign(store)
    mine.check()  # renewed just now: nobody can have taken over
    now = time.time()
    monkeypatch.setattr(lease.time, "time", lambda: now + 200)
    with pytest.raises(ConflictError, match="taken over"):
        mine.check()


def test_the_thread_that_renews_ends_with_the_last_lease(store):
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "zellige-leases"]

    first = held(store)
    assert threads() == ["zellige-leases"]
    other = Lease(store, "another", "")
    other.attempt()
    assert threads() == ["zellige-leases"]
    first.release()
    other.release()
    until = time.monotonic() + 60
    while threads() and time.monotonic() < until:
        time.sleep(0.01)
    assert threads() == []


def test_other_processes_use_it_in_the_name_of_the_owner(tmp_path):
    mine = held(LocalStore(tmp_path))
    mine.write({"large": "x" * 10_000})
    raw = pickle.dumps(mine.confirm)
    assert len(raw) < 1000 + len(str(tmp_path))  # without what it says
    pickle.loads(raw)()
    mine.release()
    with pytest.raises(ConflictError):
        pickle.loads(raw)()


def test_an_answer_that_is_lost_is_no_failure(store, monkeypatch):
    mine = made(store)
    for method in ("create", "replace"):
        real = getattr(type(store), method)
        monkeypatch.setattr(type(store), method, lambda self, *given, real=real: bool(real(self, *given)) and False)
    assert mine.attempt() is None
    mine.write({"doing": 1})
    assert lease.read(store.get(KEY) or b"").content == {"doing": 1}


def test_who_waits_gets_it_when_it_is_free(store):
    first = held(store)
    second, got = made(store), threading.Event()

    def wait() -> None:
        second.take("it")
        got.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not got.wait(0.1)
    first.release()
    thread.join(60)
    assert got.is_set()
    second.release()


def test_waiting_ends_with_an_error_that_says_who_and_what_to_do(store):
    put_foreign(store)
    with (
        zellige.config.set({"lease.wait": 0.05}),
        pytest.raises(ConflictError, match=r"process 1 on far-away is changing it.*lease\.wait.*zellige\.repair"),
    ):
        made(store).take("it")


def test_a_thread_does_not_wait_for_itself(store):
    first = held(store)
    with pytest.raises(ConflictError, match="begun by this thread and not finished"):
        made(store).take("it")
    first.release()
