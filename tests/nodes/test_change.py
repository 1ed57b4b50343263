"""Changes of several arrays: seen as a whole, by one writer at a time; what others do at the same place waits."""

from __future__ import annotations

import json
import pickle
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import obstore.store
import pytest

import zellige
from counting_store import CountingStore, contents
from zellige.errors import ArrayNotFoundError, BroadcastError, ConflictError, ContainsArrayError, MetadataError
from zellige.nodes import node
from zellige.nodes.record import Growth, Record
from zellige.storage import ZipStore
from zellige.stores import LocalStore, MemoryStore, Store
from zellige.stores.object import ObjectStore

DAYS = np.arange(59)
RECORD = "__zellige_commit"


# Several of the groups here have consolidated metadata and rectilinear chunks.
pytestmark = pytest.mark.filterwarnings("ignore::zellige.errors.CompatibilityWarning")


@pytest.fixture(params=["memory", "local", "object", "zip"])
def store(request, tmp_path) -> Iterator[Store]:
    with {
        "memory": MemoryStore,
        "local": lambda: LocalStore(tmp_path),
        "object": lambda: ObjectStore(obstore.store.MemoryStore()),
        "zip": lambda: ZipStore(tmp_path / "x.zip", mode="w"),
    }[request.param]() as found:
        yield found


def months(store: Store | None = None, zarr_format: Any = 3, *, consolidated: bool = True) -> zellige.Group:
    """Two arrays of a year that has just begun."""
    root = zellige.create_group(store, zarr_format=zarr_format)
    chunks = 31 if zarr_format == 2 else [[31, 28]]
    for name in "tu":
        root.create_array(name, data=DAYS, chunks=chunks)
    return root.consolidate_metadata() if consolidated else root


def shapes(store: Store, **options: Any) -> dict[str, tuple[int, ...]]:
    """What a fresh reader sees."""
    return {name: array.shape for name, array in zellige.open_group(store, mode="r", **options).arrays()}


# -- what it does ---------------------------------------------------------------------------------


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_all_arrays_grow_and_appear_at_once(store, zarr_format):
    months(store, zarr_format)
    with zellige.change(store) as change:
        change.append("t", np.full(31, 1))
        change.append("u", np.full(31, 2))
        new = change.create_array("v", shape=(3,), dtype="int8", chunks=2)
        new[1] = 7
        change.create_array("deep/w", data=[1.5, 2.5])
        change.set_attributes({"source": "a test"})
        if not store.traits.transactional:
            for consolidated in (None, False):
                assert shapes(store, use_consolidated=consolidated) == {"t": (59,), "u": (59,)}
    for consolidated in (None, False):
        expected = {"t": (90,), "u": (90,), "v": (3,)}
        assert shapes(store, use_consolidated=consolidated) == expected
    root = zellige.open_consolidated(store, check=True)
    assert root["t"][58:61].tolist() == [58, 1, 1]
    assert root["u"][-1] == 2
    assert root["v"][:].tolist() == [0, 7, 0]
    assert root["deep/w"][:].tolist() == [1.5, 2.5]
    assert root.attrs["source"] == "a test"
    assert not [key for key in store.list() if "__zellige" in key]


def test_an_exception_leaves_everything_as_it_was(store):
    months(store)
    before = contents(store)
    with pytest.raises(RuntimeError, match="mine"), zellige.change(store) as change:  # noqa: PT012
        change.append("t", np.ones(31))
        change.create_array("v", data=np.ones(4), chunks=2)
        change.set_attributes({"never": 1})
        raise RuntimeError("mine")
    assert contents(store) == before


def test_it_can_be_given_up_and_committed_only_once(store):
    months(store)
    before = contents(store)
    change = zellige.change(store)
    change.append("t", np.ones(31))
    change.abort()
    assert contents(store) == before
    change.abort()
    with zellige.change(store) as change:
        change.append("t", np.ones(31))
    change.abort()
    assert shapes(store)["t"] == (90,)


def test_a_group_is_created_with_all_that_is_in_it(store):
    with zellige.change(store, "a/b", consolidate=True) as change:
        change.create({"": zellige.create_group(attributes={"x": 1}).metadata})
        change.create_array("t", data=DAYS, chunks=[[31, 28]])
        if not store.traits.transactional:
            with pytest.raises(zellige.errors.GroupNotFoundError):
                zellige.open_group(store, path="a/b", mode="r")
    root = zellige.open_consolidated(store)
    assert root["a/b"].attrs.asdict() == {"x": 1}
    assert root["a/b/t"][:].tolist() == DAYS.tolist()


def test_a_group_that_is_not_there_is_created_with_its_arrays(store):
    with zellige.change(store, "a/b") as change:
        change.create_array("c/t", data=DAYS, chunks=[[31, 28]])
    assert [name for name, _ in zellige.open_group(store, mode="r").members(None)] == ["a", "a/b", "a/b/c", "a/b/c/t"]


@pytest.mark.parametrize("path", ["", "typo"])
@pytest.mark.parametrize("how", ["nothing", "error", "failed creation"])
def test_of_a_change_that_creates_nothing_nothing_is_left(how, path, tmp_path):
    place = tmp_path / "typo.zarr"
    if path:
        place.mkdir()
    before = sorted(tmp_path.rglob("*"))
    if how == "nothing":
        with zellige.change(place, path):
            pass
    else:
        with pytest.raises((KeyError, RuntimeError)), zellige.change(place, path) as change:  # noqa: PT012
            if how == "error":
                change.append("t", [1])
            change.create_array("t", data=DAYS)
            raise RuntimeError
    assert sorted(tmp_path.rglob("*")) == before


def test_the_switch_is_one_write_for_those_who_use_consolidated_metadata():
    store = CountingStore()
    months(store)
    store.reset()
    with zellige.change(store) as change:
        for name in "tu":
            change.append(name, np.ones(31), chunks=[31])
        change.set_attributes({"unit": "K"})
    assert [call.key for call in store.made("put", "create", "replace") if call.key == "zarr.json"] == ["zarr.json"]
    written = [call.key for call in store.made("put", "create", "replace", "delete")]
    assert written == [
        RECORD,
        RECORD,
        "t/c/2",
        RECORD,
        "u/c/2",
        RECORD,
        "zarr.json",
        "t/zarr.json",
        "u/zarr.json",
        RECORD,
    ]


@pytest.mark.parametrize("count", [2, 20])
def test_requests_grow_by_a_fixed_number_for_each_array(count):
    store = CountingStore()
    root = zellige.create_group(store)
    for k in range(count):
        root.create_array(f"a{k:02}", data=DAYS, chunks=[[31, 28]])
    root.consolidate_metadata()
    store.reset()
    with zellige.change(store) as change:
        arrays = change.arrays()
        change.grow({name: (array, 31, 0, [31]) for name, array in arrays.items()}, filled=True)
        for name in arrays:
            change.write(name, np.ones(31))
    reads = len(store.made("get", "size", "list_dir", "list", "get"))
    assert (reads, len(store.made("put", "create", "replace", "delete"))) == (3 * count + 10, 2 * count + 5)


def test_consolidated_metadata_of_groups_above_and_between_follows():
    store = MemoryStore()
    root = zellige.create_group(store)
    inner = root.create_group("a/b")
    inner.create_array("t", data=DAYS, chunks=[[31, 28]])
    zellige.consolidate_metadata(store, path="a/b")
    zellige.consolidate_metadata(store)
    with zellige.change(store, "a/b") as change:
        change.append("t", np.ones(31), chunks=[31])
        change.set_attributes({"unit": "K"})
    for path in ("", "a/b"):
        zellige.open_consolidated(store, path=path, check=True)
    assert zellige.open_consolidated(store)["a/b"].attrs["unit"] == "K"


@pytest.mark.parametrize("holder", ["", "a", "a/b"])
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_that_contradict_consolidated_metadata_above_them_are_refused(zarr_format, holder):
    store = MemoryStore()
    inner = zellige.create_group(store, zarr_format=zarr_format).create_group("a/b")
    inner.create_array("t", data=DAYS, chunks=10)
    inner.create_array("u", data=DAYS, chunks=10)
    zellige.consolidate_metadata(store, path=holder, zarr_format=zarr_format)
    zellige.open_array(store, path="a/b/t").resize(31)
    before = contents(store)
    for path in ("a", "a/b"):
        with (
            pytest.raises(
                zellige.errors.StaleMetadataError, match=r"'a/b/t': shape \[31\] in its own metadata, \[59\]"
            ),
            zellige.change(store, path) as change,
        ):
            change.append("a/b/t"[len(path) + 1 :], np.ones(3))
    assert contents(store) == before
    with zellige.change(store, "a/b") as change:
        change.append("u", np.ones(3))  # the other one is not looked at
    assert zellige.open_group(store, mode="r")["a/b/u"].shape == (62,)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_an_array_that_is_stored_otherwise_than_consolidated_metadata_says_is_refused(zarr_format):
    store = MemoryStore()
    months(store, zarr_format)
    zellige.create_array(store, name="t", data=DAYS, dtype="float32", zarr_format=zarr_format, overwrite=True)
    name = "dtype" if zarr_format == 2 else "data_type"
    with pytest.raises(zellige.errors.StaleMetadataError, match=f"'t': {name}"), zellige.change(store) as change:
        change.append("t", np.ones(3))


def test_what_cannot_be_is_refused_and_nothing_is_written(store):
    months(store)
    before = contents(store)
    bad: list[tuple[type[Exception], Callable[[Any], object]]] = [
        (ArrayNotFoundError, lambda change: change.append("nothing", np.ones(3))),
        (BroadcastError, lambda change: change.append("t", np.ones((3, 3)))),
        (IndexError, lambda change: change.append("t", np.ones(3), axis=1)),
        (zellige.errors.LossyCastError, lambda change: change.append("t", [1.5])),
        (ContainsArrayError, lambda change: change.create_array("t", shape=3)),
        (ContainsArrayError, lambda change: change.create_array("t/below", shape=3)),
        (ContainsArrayError, lambda change: [change.create_array(name, shape=3) for name in ("v", "v/w")]),
        (zellige.errors.NodeNameError, lambda change: change.create_array("a/zarr.json", shape=3)),
        (ValueError, lambda change: change.create({"v": zellige.zeros(3, zarr_format=2).metadata})),
    ]
    for error, act in bad:
        with pytest.raises(error), zellige.change(store) as change:
            act(change)
        assert contents(store) == before, error


def test_a_node_is_changed_once_and_nothing_after_the_end(store):
    months(store)
    with zellige.change(store) as change:
        change.append("t", np.ones(2))
        change.create_array("v", shape=3)
        for act in (lambda: change.append("t", np.ones(2)), lambda: change.create_array("v", shape=3)):
            with pytest.raises(ValueError, match="part of this change already"):
                act()
    for act in (lambda: change.append("u", np.ones(2)), lambda: change.create_array("w", shape=3)):
        with pytest.raises(ValueError, match=r"is over; begin another one with zellige\.change"):
            act()
    assert shapes(store) == {"t": (61,), "u": (59,), "v": (3,)}


def test_what_lies_beyond_the_end_does_not_show(store):
    """Unless all new elements are written, which the caller has to say."""
    root = months(store)
    store.put("t/c/2", store.get("t/c/0") or b"")  # as a copy leaves it, of what a killed writer had begun
    with zellige.change(store) as change:
        longer = change.grow({"t": (change.arrays()["t"], 62, 0, [31, 31])})["t"]
        longer[90:] = 7
    assert zellige.open_array(store, path="t")[58:].tolist() == [58] + [0] * 31 + [7] * 31
    del root


def test_a_read_only_store_is_refused(tmp_path):
    months(LocalStore(tmp_path))
    with pytest.raises(zellige.errors.ReadOnlyError):
        zellige.change(LocalStore(tmp_path, read_only=True))


# -- others at the same place ---------------------------------------------------------------------

OTHERS = {
    "append": lambda store: zellige.open_array(store, path="t", mode="r+").append(np.ones(2)),
    "resize": lambda store: zellige.open_array(store, path="t", mode="r+").resize(7),
    "start_append": lambda store: zellige.open_array(store, path="t", mode="r+").start_append(2),
    "change": lambda store: zellige.change(store).abort(),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("place", ["memory", "local", "object"])
def test_who_would_change_a_shape_meanwhile_is_refused_before_anything_is_written(other, place, tmp_path):
    store: Store = {
        "memory": MemoryStore,
        "local": lambda: LocalStore(tmp_path),
        "object": lambda: ObjectStore(obstore.store.MemoryStore()),
    }[place]()
    months(store)
    with zellige.change(store) as change:
        change.append("t", np.full(31, 5))
        before = contents(store)
        with pytest.raises(ConflictError, match="Nothing was written"):
            OTHERS[other](store)
        assert contents(store) == before
    assert zellige.open_array(store, path="t")[59:].tolist() == [5] * 31


@pytest.mark.parametrize("other", OTHERS)
def test_who_would_change_a_shape_from_another_thread_waits(other):
    store = months().store
    change = zellige.change(store)
    change.append("t", np.full(31, 5))
    done: list[object] = []
    thread = threading.Thread(target=lambda: done.append(OTHERS[other](store)))
    thread.start()
    change.commit()
    thread.join(60)
    assert len(done) == 1
    expected = {"append": (92,), "resize": (7,)}.get(other, (90,))
    assert zellige.open_array(store, path="t").shape == expected


def test_a_change_waits_for_an_append_that_others_write():
    store = months().store
    pending = zellige.open_array(store, path="t", mode="r+").start_append(1)
    with pytest.raises(ConflictError, match="shape of array '/t'"), zellige.change(store) as change:
        change.append("t", np.ones(2))
    pending.array[59:] = 9
    pending.commit()
    # That was not through the group, whose consolidated metadata does not know of it.
    words = "'t': 60 along axis 0 in its own metadata, 59 in the consolidated metadata"
    with pytest.warns(zellige.errors.StaleMetadataWarning, match=words), zellige.change(store) as change:
        change.append("t", np.ones(2))
    assert zellige.open_array(store, path="t")[59:].tolist() == [9, 1, 1]


def test_changes_of_a_tree_and_of_a_group_in_it_exclude_each_other():
    store = MemoryStore()
    zellige.create_group(store).create_group("a/b")
    with zellige.change(store, below=["a", "a/b"]), pytest.raises(ConflictError):
        zellige.change(store, "a/b")
    with zellige.change(store, "a/b"), pytest.raises(ConflictError):
        zellige.change(store, below=["a", "a/b"])
    with zellige.change(store, "a/b"), zellige.change(store, below=["c"]):
        pass
    assert not [key for key in store.list() if "__zellige" in key]


def test_a_change_of_attributes_meanwhile_is_not_lost(store):
    months(store)
    with zellige.change(store) as change:
        change.append("t", np.ones(31))
        zellige.open_array(store, path="t", mode="r+").attrs["unit"] = "K"
        zellige.open_group(store, mode="r+").attrs["title"] = "mine"
        change.set_attributes({"source": "theirs"})
    root = zellige.open_group(store, mode="r")
    assert root["t"].attrs["unit"] == "K"
    assert root.attrs.asdict() == {"title": "mine", "source": "theirs"}


def test_an_array_that_another_program_removes_meanwhile_stays_removed(tmp_path):
    root = months(LocalStore(tmp_path), consolidated=False)
    with zellige.change(root.store) as change:
        change.append("t", np.ones(31))
        change.append("u", np.ones(31))
        with pytest.raises(ConflictError, match="begun by this thread"):
            del root["t"]
        shutil.rmtree(tmp_path / "t")
    assert shapes(root.store) == {"u": (90,)}


def test_another_program_that_resizes_an_array_meanwhile_is_named(tmp_path):
    store = months(LocalStore(tmp_path), consolidated=False).store

    def resize_as_others_do() -> None:
        document = json.loads((tmp_path / "t/zarr.json").read_bytes())
        (tmp_path / "t/zarr.json").write_text(json.dumps({**document, "shape": [40]}))

    change = zellige.change(store)
    change.append("t", np.ones(31))
    change.append("u", np.ones(31))
    resize_as_others_do()
    with pytest.raises(ConflictError, match=r"\['t'\].*by another program"):
        change.commit()
    assert shapes(store) == {"t": (40,), "u": (90,)}


# -- other processes ------------------------------------------------------------------------------


def test_it_can_be_committed_by_another_process(tmp_path):
    store = months(LocalStore(tmp_path)).store
    change = zellige.change(store)
    longer = change.grow({name: (array, 31, 0, [31]) for name, array in change.arrays().items()})
    for array in pickle.loads(pickle.dumps(longer)).values():
        array[59:] = 4
    assert shapes(store) == {"t": (59,), "u": (59,)}
    pickle.loads(pickle.dumps(change)).commit()
    assert shapes(store) == {"t": (90,), "u": (90,)}
    assert zellige.open_array(store, path="u")[-1] == 4


def test_a_guard_refuses_to_write_after_the_change_is_over(tmp_path):
    store = months(LocalStore(tmp_path)).store
    change = zellige.change(store)
    guard = pickle.loads(pickle.dumps(change.guard))
    guard()
    change.abort()
    with pytest.raises(ConflictError, match="taken over"):
        guard()


def test_only_a_transaction_has_no_guard(tmp_path):
    with ZipStore(tmp_path / "x.zip", mode="w") as store:
        months(store)
        with zellige.change(store) as change:
            assert change.guard is None


# -- records --------------------------------------------------------------------------------------


def committed(store: Store) -> None:
    """Leave a record behind as one does who dies right after the commit."""
    change = zellige.change(store)
    change.append("t", np.full(31, 1), chunks=[31])
    change.append("u", np.full(31, 2), chunks=[31])
    change.create_array("v", data=[1, 2, 3])
    change._record.committed = True
    change._lease.write(change._record.to_json())  # type: ignore[union-attr]
    change._lease.abandon()  # type: ignore[union-attr]


def test_a_reader_who_meets_a_committed_record_applies_it():
    store = months().store
    committed(store)
    root = zellige.open_group(store, mode="r", use_consolidated=False)
    assert {name: array.shape for name, array in root.arrays()} == {"t": (90,), "u": (90,), "v": (3,)}
    assert dict(root.arrays())["u"][-1] == 2
    assert dict(root.arrays())["v"][:].tolist() == [1, 2, 3]
    # Whoever uses consolidated metadata sees the old state, as a whole.
    assert shapes(store) == {"t": (59,), "u": (59,)}


def test_what_a_reader_lists_can_be_indexed():
    store = months().store
    committed(store)
    root = zellige.open_group(store, mode="r", use_consolidated=False)
    assert root["v"][:].tolist() == [1, 2, 3]
    assert {name: root[name].name for name in root} == {"t": "/t", "u": "/u", "v": "/v"}
    with pytest.raises(zellige.errors.NodeNotFoundError):
        root["w"]


@pytest.mark.parametrize("next_one", ["append", "change", "repair", "vacuum", "create"])
def test_the_next_writer_finishes_what_was_committed(next_one):
    store = months().store
    committed(store)
    {
        "append": lambda: zellige.open_array(store, path="t", mode="r+").append([3]),
        "change": lambda: zellige.change(store).abort(),
        "repair": lambda: zellige.repair(store, dry_run=False),
        "vacuum": lambda: zellige.vacuum(store),
        "create": lambda: zellige.change(store).abort(),
    }[next_one]()
    expected = {"t": (91 if next_one == "append" else 90,), "u": (90,), "v": (3,)}
    assert shapes(store, use_consolidated=False) == expected
    zellige.validate(store, deep=True)
    assert not store.exists(RECORD)


def test_what_was_not_committed_is_no_obstacle_for_a_new_array():
    store = months().store
    change = zellige.change(store)
    change.create_array("v", data=np.arange(4), chunks=2)
    assert store.exists("v/c/0")
    with pytest.raises(ConflictError):
        zellige.create_array(store, name="v", shape=(4,), chunks=2, dtype="int64")
    change._lease.abandon()  # type: ignore[union-attr]
    made = zellige.create_array(store, name="v", shape=(4,), chunks=2, dtype="int64")
    assert made[:].tolist() == [0, 0, 0, 0]


def test_validate_says_what_a_record_means_and_repair_what_it_would_do():
    store = months().store
    change = zellige.change(store)
    change.create_array("v", data=np.arange(4), chunks=2)
    (found,) = zellige.validate(store).findings
    assert (found.kind, found.key) == ("leftover", RECORD)
    assert "is under way, by process" in found.message
    assert zellige.repair(store, dry_run=False).left == (found,)
    change._lease.abandon()  # type: ignore[union-attr]
    assert "stopped before its commit" in zellige.validate(store).findings[0].message
    assert [done for done, _ in zellige.repair(store).actions] == ["mended"]
    zellige.repair(store, dry_run=False)
    assert zellige.validate(store).ok
    committed(store)
    assert any("was committed and not finished" in found.message for found in zellige.validate(store).findings)


HOSTILE: list[dict[str, Any]] = [
    {"grown": 3},
    {"grown": {"t": [{}, {}]}},
    {"grown": {"../t": [{"shape": [1]}, {"shape": [2]}]}},
    {"grown": {"t": [{"shape": 1}, {"shape": [2]}]}},
    {"created": {"v": {"zarr.json": {"zarr_format": 3}}}},
    {"created": {"/v": {}}},
    {"attributes": {"": 3}},
]


@pytest.mark.parametrize("content", HOSTILE, ids=json.dumps)
def test_a_record_that_cannot_be_read_is_named_by_writers_and_ignored_by_readers(content):
    store = months().store
    store.put(RECORD, json.dumps({"committed": True, **content}).encode())
    before = contents(store)
    assert shapes(store, use_consolidated=False) == {"t": (59,), "u": (59,)}
    with pytest.raises(MetadataError, match=f"{RECORD}.*cannot be read.*delete the key"):
        zellige.change(store)
    assert {key for key, value in contents(store).items() if value != before[key]} == {RECORD}
    assert "cannot be read" in zellige.validate(store).findings[0].message


def test_a_record_is_what_it_says():
    array = zellige.zeros((59,), chunks=[[31, 28]])
    growth = Growth.of(array.metadata, array.metadata.resized(array.grid.update_shape((90,), [[31]])))
    record = Record("g", True, "", {"g/t": growth}, {"g/v": array.metadata.to_documents()}, {"g": {"a": 1}}, True)
    stored = json.loads(json.dumps(record.to_json()))
    assert (stored["grown"].keys(), stored["created"].keys(), stored["attributes"].keys()) == ({"t"}, {"v"}, {""})
    assert Record.from_json(stored, f"g/{RECORD}") == record
    assert growth.after["shape"] == [90]
    assert node.RECORD == RECORD
