"""A process that dies, or a disk that fails, at any call: what is left is the old state or the new one, and whole.

Each operation is done again and again, and dies at its first change of the store, its second, and so on until it
ends by itself. After each death a fresh reader looks at what is left, and others go on with it.
"""

from __future__ import annotations

import errno
import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from crashing_store import LONG, CrashingStore, Killed, counted

import zellige
from zellige.nodes.node import PENDING
from zellige.stores import LocalStore, MemoryStore, Store

FILL = -1
PATH = "group/array"


@pytest.fixture(params=["memory", "local"] if LONG else ["memory"])
def place(request) -> str:
    """Where the stores of a test are; in the short form on disk only where a test says so."""
    return request.param


@pytest.fixture
def make_store(place, tmp_path) -> Callable[[], Store]:
    """Makes a new store at every call."""
    numbers = count()
    return lambda: MemoryStore() if place == "memory" else LocalStore(tmp_path / f"{next(numbers)}.zarr")


def copied(store: Store) -> Store:
    """Another store with the same content."""
    if isinstance(store, MemoryStore):
        return pickle.loads(pickle.dumps(store))
    assert isinstance(store, LocalStore)
    target = Path(store.root).with_name("copy.zarr")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(store.root, target)
    return LocalStore(target)


def deaths(prepare: Callable[[], Store], act: Callable[[CrashingStore], Any]) -> Iterator[tuple[int, Store]]:
    """What is left when the operation dies at its first change, its second, and so on."""
    for number in count(1):
        inner = prepare()
        try:
            act(CrashingStore(inner, at=number))
        except Killed:
            yield number, inner
        else:
            assert number > 1, "the operation changed nothing"
            return


def failures(
    prepare: Callable[[], Store], act: Callable[[CrashingStore], Any], *, forever: bool
) -> Iterator[tuple[CrashingStore, Store]]:
    """What is left when the first change of an operation raises, the second, and so on."""
    for number in count(1):
        inner = prepare()
        store = CrashingStore(inner, number, OSError(errno.EIO, "broken disk"), forever=forever)
        try:
            act(store)
        except OSError as error:
            if error is not store.error:
                raise
            yield store, inner
        else:
            assert number > 1, "the operation changed nothing"
            return


def opened(store: Store, path: str = PATH, config: Any = None) -> zellige.Array:
    return zellige.open_array(store, path=path, mode="r+", config=config)


def values(store: Store, path: str = PATH) -> np.ndarray:
    """What a fresh reader sees."""
    return zellige.open_array(store, path=path, mode="r")[...]


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.shape == expected.shape and found.tobytes() == expected.tobytes()


# -- changing the shape ---------------------------------------------------------------------------


class Case(NamedTuple):
    """An array and a change of its shape, with what numpy says about it."""

    shape: tuple[int, ...]
    options: dict[str, Any]
    act: Callable[[zellige.Array], Any]
    model: Callable[[np.ndarray], np.ndarray]

    @property
    def old(self) -> np.ndarray:
        return counted(self.shape)

    @property
    def new(self) -> np.ndarray:
        return self.model(self.old)

    def put(self, store: Store) -> Store:
        """The array as it is before."""
        options = {"fill_value": FILL, **self.options}
        zellige.create_array(store, name=PATH, data=self.old, **options)
        return store

    def run(self, store: Store) -> None:
        self.act(opened(store, config=self.options.get("config")))


def more_rows(old: np.ndarray, length: int, axis: int) -> np.ndarray:
    shape = list(old.shape)
    shape[axis] = length
    return counted(tuple(shape), start=10_001)


def grown(old: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """What a change of the shape leaves, and fill values."""
    new = np.full(shape, FILL, old.dtype)
    kept = tuple(slice(min(a, b)) for a, b in zip(old.shape, shape, strict=True))
    new[kept] = old[kept]
    return new


def appending(shape: tuple[int, ...], length: int, axis: int = 0, new_chunks: Any = None, /, **options: Any) -> Case:
    def act(array: zellige.Array) -> None:
        array.append(more_rows(counted(shape), length, axis), axis=axis, chunks=new_chunks)

    return Case(shape, options, act, lambda old: np.concatenate([old, more_rows(old, length, axis)], axis))


def resizing(shape: tuple[int, ...], new: tuple[int, ...], new_chunks: Any = None, /, **options: Any) -> Case:
    return Case(shape, options, lambda array: array.resize(new, chunks=new_chunks), lambda old: grown(old, new))


RAW = {"compressors": None}
APPENDS = {
    "regular": appending((7,), 4, chunks=3),
    "regular, where a chunk ends": appending((6,), 5, chunks=3),
    "within the last chunk": appending((7,), 1, chunks=3),
    "to nothing": appending((0,), 4, chunks=3),
    "raw": appending((7,), 6, chunks=3, **RAW),
    "rectilinear": appending((7,), 8, 0, [2, 6], chunks=[[3, 4]]),
    "rectilinear with slack": appending((7,), 5, 0, [4], chunks=[[3, 6]]),
    "that makes it rectilinear": appending((7,), 5, 0, 2, chunks=3),
    "first of two axes": appending((3, 7), 4, 0, chunks=(2, 3)),
    "last of two axes": appending((3, 7), 4, 1, chunks=(2, 3)),
    "last of two, rectilinear": appending((3, 7), 6, 1, [5], chunks=[2, [3, 5]]),
    "rows of small chunks": appending((3, 12), 2, 0, chunks=(2, 3)),
    "shards": appending((9,), 10, chunks=2, shards=6),
    "shards of two axes": appending((3, 9), 5, 1, chunks=(2, 2), shards=(4, 6)),
    "older format": appending((7,), 4, chunks=3, zarr_format=2),
    "with empty chunks": appending((7,), 4, chunks=3, config={"write_empty_chunks": True}),
}
RESIZES = {
    "smaller": resizing((7,), (4,), chunks=3),
    "smaller, where a chunk ends": resizing((7,), (3,), chunks=3),
    "to nothing": resizing((7,), (0,), chunks=3),
    "larger": resizing((7,), (14,), chunks=3),
    "larger, rectilinear": resizing((7,), (14,), [[2, 8]], chunks=[[3, 4]]),
    "smaller, rectilinear": resizing((12,), (5,), chunks=[[3, 4, 5]]),
    "mixed": resizing((5, 7), (3, 11), chunks=(2, 3)),
    "mixed the other way": resizing((5, 7), (9, 2), chunks=(2, 3)),
    "mixed, rectilinear": resizing((5, 7), (3, 11), [None, [6]], chunks=[[1, 4], [3, 4]]),
    "smaller shards": resizing((20,), (9,), chunks=2, shards=6),
    "mixed shards": resizing((7, 9), (3, 15), chunks=(2, 2), shards=(4, 6)),
    "older format": resizing((5, 7), (3, 11), chunks=(2, 3), zarr_format=2),
    "with empty chunks": resizing((7,), (4,), chunks=3, config={"write_empty_chunks": True}),
}
CASES = {f"append {name}": case for name, case in APPENDS.items()}
CASES |= {f"resize {name}": case for name, case in RESIZES.items()}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
FEW = ["append last of two axes", "append shards", "resize mixed"]
"""The cases that are gone through more thoroughly in the short form."""
some = pytest.mark.parametrize("case", [CASES[name] for name in FEW], ids=FEW)


def check_growth(store: Store, model: np.ndarray) -> None:
    """Growing shows fill values and what is appended, never anything else; nothing is pending afterwards."""
    larger = tuple(n + 7 for n in model.shape)
    growths: list[tuple[Callable[[zellige.Array], Any], np.ndarray]] = [
        (lambda array: array.resize(larger), grown(model, larger))
    ]
    for axis in range(model.ndim):
        more = more_rows(model, 5, axis)
        growths.append((lambda array, m=more, k=axis: array.append(m, axis=k), np.concatenate([model, more], axis)))
    for act, expected in growths:
        there = copied(store)
        act(opened(there))
        assert same(values(there), expected)
        assert not there.exists(f"{PATH}/{PENDING}")
        array = opened(there)
        assert set(there.list(PATH + "/")) <= {chunk.key for chunk in array.iter_chunks()} | documents()
        array.resize(tuple(n + 9 for n in expected.shape))
        assert same(values(there), grown(expected, array.shape))


def documents() -> set[str]:
    return {f"{PATH}/{name}" for name in ("zarr.json", ".zarray", ".zattrs")}


@cases
def test_killed_anywhere_readers_see_the_old_array_or_the_new_one(case, make_store):
    for number, left in deaths(lambda: case.put(make_store()), case.run):
        found = values(left)
        assert same(found, case.old) or same(found, case.new), number
        check_growth(left, found)


@some
@pytest.mark.parametrize("place", ["local"])
def test_killed_anywhere_on_disk_as_well(case, make_store):
    test_killed_anywhere_readers_see_the_old_array_or_the_new_one(case, make_store)


@(cases if LONG else some)
def test_writing_goes_on_after_a_death(case, make_store):
    """Plain writes do not mind what is pending, and what is written is not lost by clearing up."""
    for _, left in deaths(lambda: case.put(make_store()), case.run):
        array = opened(left)
        model = array[...]
        array[...] = model = model + 1
        array[-1:] = model[-1:] = 5
        assert same(values(left), model)
        check_growth(left, model)


@(cases if LONG else some)
def test_a_death_while_clearing_up_after_a_death_changes_nothing(case):
    for _, left in deaths(lambda: case.put(MemoryStore()), case.run):
        model = values(left)
        more = more_rows(model, 5, 0)
        after = np.concatenate([model, more])

        def append(store: Store, more: np.ndarray = more) -> None:
            opened(store).append(more)

        for number, again in deaths(lambda left=left: copied(left), append):
            found = values(again)
            assert same(found, model) or same(found, after)
            if LONG or number % 3 == 0:
                check_growth(again, found)


@cases
@pytest.mark.parametrize("forever", [False, True] if LONG else [True], ids=lambda forever: f"forever={forever}")
def test_a_failing_call_leaves_the_old_array_or_the_new_one(case, forever, make_store):
    for store, left in failures(lambda: case.put(make_store()), case.run, forever=forever):
        found = values(left)
        assert same(found, case.old) or same(found, case.new)
        check_growth(left, found)
        if same(found, case.old):  # the same process tries once more
            store.arm(None)
            case.run(store)
            assert same(values(left), case.new)


@pytest.mark.parametrize("case", APPENDS.values(), ids=APPENDS)
def test_an_append_that_fails_undoes_itself_at_once(case, make_store):
    before = set(case.put(make_store()).list())
    undone = 0
    for store, left in failures(lambda: case.put(make_store()), case.run, forever=False):
        if same(values(left), case.old):
            undone += 1
            assert set(left.list()) == before
        else:  # only taking the mark away had failed
            assert store.changes[-1][0] in ("replace", "create")
    assert undone >= 2


@pytest.mark.parametrize("case", APPENDS.values(), ids=APPENDS)
def test_a_handle_whose_append_failed_can_be_used_on(case, make_store):
    for number in count(1):
        inner = case.put(make_store())
        store = CrashingStore(inner, number, OSError(errno.ENOSPC, "full disk"))
        array = opened(store)
        try:
            case.act(array)
        except OSError:
            expected = values(inner)
            assert same(array[...], expected)
            array[...] = expected + 1
            array.append(more_rows(expected, 2, 0))
            assert same(values(inner), np.concatenate([expected + 1, more_rows(expected, 2, 0)]))
        else:
            break


def test_a_full_disk_leaves_the_old_array():
    """Nothing can be written, but keys can be removed."""
    case = appending((7, 4), 6, chunks=(3, 2), **RAW)
    for number in range(1, 30):
        inner = case.put(MemoryStore())
        left = [number]

        def refuse(method: str, _key: str, left: list[int] = left) -> None:
            left[0] -= method in ("put", "create", "replace")
            if left[0] <= 0 and method != "delete":
                raise OSError(errno.ENOSPC, "full disk")

        try:
            case.run(CrashingStore(inner, before=refuse))
        except OSError:
            assert same(values(inner), case.old)
            check_growth(inner, case.old)
        else:
            assert same(values(inner), case.new)
            assert number > 8  # a mark, six chunks and the document
            return
    pytest.fail("the append never came to its end")


def moved(store: Store) -> tuple[Store, str]:
    zellige.open_group(store, mode="r+").move(PATH, "moved")
    return store, "moved"


def copied_into(copy: Callable[[zellige.Array, zellige.Group], Any]) -> Callable[[Store], tuple[Store, str]]:
    def act(store: Store) -> tuple[Store, str]:
        target = zellige.create_group(MemoryStore())
        copy(opened(store), target)
        return target.store, "copy"

    return act


COPIES: dict[str, Callable[[Store], tuple[Store, str]]] = {
    "copy": copied_into(lambda array, group: zellige.copy(array, group, name="copy")),
    "from_array": copied_into(lambda array, group: zellige.from_array(group.store, data=array, name="copy")),
    "array": copied_into(lambda array, group: group.array("copy", array)),
    "copied keys": lambda store: (copied(store), PATH),
    "move": moved,
}


@pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)
@some
def test_copies_of_what_a_dead_writer_left_never_show_it(case, copy):
    for _, left in deaths(lambda: case.put(MemoryStore()), case.run):
        model = values(left)
        store, path = copy(left)
        assert same(values(store, path), model)
        larger = tuple(n + 5 for n in model.shape)
        opened(store, path).resize(larger)
        assert same(values(store, path), grown(model, larger))


# -- plain writes ---------------------------------------------------------------------------------

WRITES: dict[str, tuple[dict[str, Any], Any]] = {
    "whole chunks": ({"chunks": (2, 3)}, slice(None)),
    "parts of chunks": ({"chunks": (2, 3)}, (slice(1, 5), slice(1, 6))),
    "steps": ({"chunks": (2, 3)}, (slice(None, None, 2), slice(None, None, 3))),
    "rectilinear": ({"chunks": [[1, 4], [2, 1, 4]]}, (slice(0, 3), slice(1, None))),
    "parts of shards": ({"chunks": (1, 2), "shards": (2, 4)}, (slice(1, 4), slice(1, 6))),
    "rows": ({"chunks": (1, 1), **RAW}, slice(None)),
}


@pytest.mark.parametrize(("options", "index"), WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("value", [None, FILL], ids=["values", "fill"])
def test_a_killed_write_leaves_each_chunk_wholly_old_or_wholly_new(options, index, value, make_store):
    old = counted((5, 7))
    new = old.copy()
    new[index] = -old[index] if value is None else value

    def prepare() -> Store:
        store = make_store()
        zellige.create_array(store, name=PATH, data=old, fill_value=FILL, **options)
        return store

    def write(store: Store) -> None:
        opened(store)[index] = new[index]

    for _, left in deaths(prepare, write):
        found = values(left)
        for chunk in opened(left).iter_chunks():
            part = found[chunk.slices]
            assert same(part, old[chunk.slices]) or same(part, new[chunk.slices])
        write(left)
        assert same(values(left), new)


# -- creating -------------------------------------------------------------------------------------


def there(store: Store, path: str) -> bool:
    try:
        zellige.open(store, path=path, mode="r")
    except FileNotFoundError:
        return False
    return True


formats = pytest.mark.parametrize("zarr_format", [2, 3], ids=["v2", "v3"])


@formats
@pytest.mark.parametrize("path", ["a", "x/y/a"])
def test_a_killed_creation_leaves_nothing_or_the_whole_array(zarr_format, path, make_store):
    data = counted((5,))
    options = {"chunks": 2, "attributes": {"unit": "K"}, "fill_value": FILL, "zarr_format": zarr_format}

    def create(store: Store) -> None:
        zellige.create_array(store, name=path, data=data, **options)

    seen = set()
    for _, left in deaths(make_store, create):
        group = zellige.open_group(left, mode="a", zarr_format=zarr_format)
        for name, member in group.members(max_depth=None):
            assert path == name or (path.startswith(name + "/") and isinstance(member, zellige.Group))
        seen.add(there(left, path))
        if not there(left, path):
            create(left)
            assert same(values(left, path), data)
            continue
        array = opened(left, path)
        assert dict(array.attrs) == {"unit": "K"}
        for start in (0, 2, 4):
            part = array[start : start + 2]
            assert same(part, data[start : start + 2]) or (part == FILL).all()
        with pytest.raises(FileExistsError):
            create(left)
        array[...] = data
        assert same(values(left, path), data)
    assert seen == {False, True}


@formats
def test_a_killed_creation_of_a_group_leaves_nothing_or_the_group(zarr_format, make_store):
    def create(store: Store) -> None:
        zellige.create_group(store, path="a/b", attributes={"x": 1}, zarr_format=zarr_format)

    for _, left in deaths(make_store, create):
        if there(left, "a/b"):
            assert dict(zellige.open_group(left, path="a/b", mode="r").attrs) == {"x": 1}
        else:
            create(left)
            assert dict(zellige.open_group(left, path="a/b", mode="r").attrs) == {"x": 1}


def is_old_or_gone_or_new(store: Store, old: np.ndarray, new: np.ndarray, chunk: int) -> bool:
    """Whether a reader sees the old array, or none, or the new one with each chunk written or not yet."""
    if not there(store, PATH):
        return True
    found = values(store)
    if found.shape == old.shape:
        return same(found, old)
    parts = [slice(start, start + chunk) for start in range(0, len(new), chunk)]
    return found.shape == new.shape and all(same(found[p], new[p]) or (found[p] == FILL).all() for p in parts)


@formats
@pytest.mark.parametrize("data", [False, True], ids=["empty", "with data"])
def test_a_killed_overwriting_never_mixes_old_chunks_into_the_new_array(zarr_format, data, make_store):
    old, new = counted((9,)), counted((8,), start=501)

    def prepare() -> Store:
        store = make_store()
        zellige.create_array(store, name=PATH, data=old, chunks=2, zarr_format=zarr_format, attributes={"a": 1})
        return store

    def overwrite(store: Store) -> None:
        what = {"data": new} if data else {"shape": new.shape, "dtype": new.dtype}
        zellige.create_array(
            store, name=PATH, chunks=2, fill_value=FILL, zarr_format=zarr_format, overwrite=True, **what
        )

    for _, left in deaths(prepare, overwrite):
        assert is_old_or_gone_or_new(left, old, new, 2)
        if there(left, PATH) and len(opened(left)) == len(new):
            assert dict(opened(left).attrs) == {}


def array_and_group(store: Store, zarr_format: int = 3) -> Store:
    """An array with another beside it, in a group that is to be removed or moved."""
    root = zellige.create_group(store, zarr_format=zarr_format)
    inner = root.create_group("group", attributes={"x": 1})
    inner.create_array("array", data=counted((9,)), chunks=2, fill_value=FILL)
    inner.create_array("other", data=counted((3,)), chunks=2)
    return store


def overwrite_array(store: Store) -> None:
    zellige.create_array(store, name=PATH, data=counted((4,)), chunks=3, zarr_format=format_of(store), overwrite=True)


def overwrite_by_group(store: Store) -> None:
    zellige.create_group(store, path=PATH, zarr_format=format_of(store), overwrite=True)


def format_of(store: Store) -> Any:
    return 3 if store.exists("zarr.json") else 2


REMOVALS: dict[str, Callable[[Store], Any]] = {
    "delete": lambda store: zellige.open_group(store, mode="r+").__delitem__(PATH),
    "delete the group": lambda store: zellige.open_group(store, mode="r+").__delitem__("group"),
    "overwrite": overwrite_array,
    "overwrite by a group": overwrite_by_group,
}


@formats
@pytest.mark.parametrize("act", REMOVALS.values(), ids=REMOVALS)
def test_a_killed_removal_leaves_the_whole_array_or_a_place_for_another(act, zarr_format, make_store):
    new = counted((5, 2), start=77)
    for _, left in deaths(lambda: array_and_group(make_store(), zarr_format), act):
        found = zellige.open(left, path=PATH, mode="r") if there(left, PATH) else None
        if isinstance(found, zellige.Array) and found.shape == (9,):
            assert same(found[...], counted((9,)))
        zellige.create_array(
            left, name=PATH, data=new, chunks=2, fill_value=FILL, zarr_format=zarr_format, overwrite=True
        )
        assert same(values(left), new)
        opened(left).resize((11, 4))
        assert same(values(left), grown(new, (11, 4)))


@formats
def test_a_killed_move_leaves_the_node_where_it_was_or_where_it_goes(zarr_format, make_store):
    def move(store: Store) -> None:
        zellige.open_group(store, mode="r+").move("group", "x/moved")

    def is_whole(store: Store, path: str) -> bool:
        if not there(store, path):
            return False
        group = zellige.open_group(store, path=path, mode="r")
        assert dict(group.attrs) == {"x": 1}
        assert same(group["array"][...], counted((9,)))
        assert same(group["other"][...], counted((3,)))
        return True

    for _, left in deaths(lambda: array_and_group(make_store(), zarr_format), move):
        moved = is_whole(left, "x/moved")
        assert is_whole(left, "group") or moved
        if not moved:  # once more, by the next process
            move(left)
            assert is_whole(left, "x/moved")
            assert not there(left, "group")


@formats
def test_a_failed_move_leaves_the_node_where_it_was(zarr_format):
    def move(store: Store) -> None:
        zellige.open_group(store, mode="r+").move("group", "x/moved")

    for store, left in failures(lambda: array_and_group(MemoryStore(), zarr_format), move, forever=False):
        if not there(left, "x/moved"):
            assert same(values(left), counted((9,)))
            store.arm(None)
            move(store)
        assert same(values(left, "x/moved/array"), counted((9,)))


# -- attributes -----------------------------------------------------------------------------------

CHANGES: dict[str, tuple[dict[str, Any], Callable[[Any], Any], dict[str, Any]]] = {
    "update": ({"a": 1, "c": 3}, lambda attrs: attrs.update({"a": 2, "b": [1]}), {"a": 2, "b": [1], "c": 3}),
    "set": ({"a": 1}, lambda attrs: attrs.__setitem__("d", {"e": None}), {"a": 1, "d": {"e": None}}),
    "first": ({}, lambda attrs: attrs.update({"a": 2, "b": [1]}), {"a": 2, "b": [1]}),
    "delete": ({"a": 1, "c": 3}, lambda attrs: attrs.__delitem__("a"), {"c": 3}),
    "delete the last": ({"a": 1}, lambda attrs: attrs.__delitem__("a"), {}),
    "replace": ({"a": 1}, lambda attrs: attrs.put({"z": 0}), {"z": 0}),
}


@formats
@pytest.mark.parametrize("kind", ["array", "group"])
@pytest.mark.parametrize(("before", "change", "after"), CHANGES.values(), ids=CHANGES)
def test_a_killed_change_of_attributes_leaves_the_old_or_the_new_ones(
    before, change, after, kind, zarr_format, make_store
):
    def prepare() -> Store:
        store = make_store()
        if kind == "array":
            zellige.create_array(store, data=counted((5,)), chunks=2, attributes=before, zarr_format=zarr_format)
        else:
            zellige.create_group(store, attributes=before, zarr_format=zarr_format)
        return store

    for _, left in deaths(prepare, lambda store: change(zellige.open(store, mode="r+").attrs)):
        node = zellige.open(left, mode="r+")
        assert dict(node.attrs) in (before, after)
        node.attrs["later"] = True
        assert dict(zellige.open(left, mode="r").attrs) in ({**before, "later": True}, {**after, "later": True})
        if kind == "array":
            assert same(node[...], counted((5,)))


# -- consolidated metadata ------------------------------------------------------------------------


def consolidated(store: Store, zarr_format: int) -> Store:
    array_and_group(store, zarr_format)
    zellige.consolidate_metadata(store, zarr_format=zarr_format)
    return store


THROUGH: dict[str, tuple[Callable[[zellige.Group], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "append": (
        lambda root: root[PATH].append(counted((6,), start=10_001)),
        lambda old: np.concatenate([old, more_rows(old, 6, 0)]),
    ),
    "shrink": (lambda root: root[PATH].resize((4,)), lambda old: grown(old, (4,))),
    "grow": (lambda root: root[PATH].resize((14,)), lambda old: grown(old, (14,))),
    "attributes": (lambda root: root[PATH].attrs.update({"a": 1}), lambda old: old),
    "create another": (lambda root: root.create_array("new", data=counted((3,)), chunks=2), lambda old: old),
    "delete another": (lambda root: root.__delitem__("group/other"), lambda old: old),
    "move another": (lambda root: root.move("group/other", "moved"), lambda old: old),
}


@formats
@pytest.mark.parametrize(("act", "model"), THROUGH.values(), ids=THROUGH)
def test_a_killed_change_through_consolidated_metadata_is_whole_with_and_without_it(
    act, model, zarr_format, make_store
):
    old = counted((9,))
    new = model(old)
    for _, left in deaths(
        lambda: consolidated(make_store(), zarr_format),
        lambda store: act(zellige.open_consolidated(store, mode="r+", zarr_format=zarr_format)),
    ):
        plain = zellige.open_group(left, mode="r+", use_consolidated=False, zarr_format=zarr_format)
        held = zellige.open_consolidated(left, mode="r+", zarr_format=zarr_format)
        for group in (plain, held):
            found = group[PATH][...]
            assert same(found, old) or same(found, new)
        after = np.concatenate([plain[PATH][...], more_rows(old, 5, 0)])
        held[PATH].append(more_rows(old, 5, 0))  # which starts from what is stored, and follows it
        for use in (True, False):
            group = zellige.open_group(left, mode="r", use_consolidated=use, zarr_format=zarr_format)
            assert same(group[PATH][...], after)
        plain.consolidate_metadata()
        zellige.open_consolidated(left, mode="r", zarr_format=zarr_format, check=True)


NEW = counted((4,), start=501)


def overwrite_through(root: zellige.Group) -> None:
    root.create_array(PATH, data=NEW, chunks=3, fill_value=FILL, overwrite=True)


def fill_through(root: zellige.Group) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("zellige.nodes.create._AT_ONCE", 0)  # so that it counts as much data
        root.create_array(PATH, data=zellige.create_array(data=NEW).lazy[:], chunks=3, overwrite=True)


def create_hierarchy_through(root: zellige.Group) -> None:
    made = zellige.create_array(shape=4, chunks=3, dtype="int32", fill_value=7, zarr_format=root.metadata.zarr_format)
    dict(root.create_hierarchy({PATH: made.metadata}, overwrite=True))


def copy_through(root: zellige.Group) -> None:
    source = zellige.create_group(zarr_format=root.metadata.zarr_format).create_array("a", data=NEW, chunks=3)
    zellige.copy(source, root["group"], name="array", if_exists="replace")


def delete_through(path: str) -> Callable[[zellige.Group], None]:
    def act(root: zellige.Group) -> None:
        with suppress(KeyError):  # it had come to its end
            del root[path]

    return act


REPLACING: dict[str, tuple[Callable[[zellige.Group], Any], dict[str, np.ndarray]]] = {
    "move": (lambda root: root.move("group/other", "moved"), {"moved": counted((3,))}),
    "move a group": (
        lambda root: root.move("group", "x/moved"),
        {"x/moved/array": counted((9,)), "x/moved/other": counted((3,))},
    ),
    "move within a group": (lambda root: root["group"].move("other", "moved"), {"group/moved": counted((3,))}),
    "overwrite": (overwrite_through, {PATH: NEW}),
    "overwrite by much data": (fill_through, {PATH: NEW}),
    "overwrite by assignment": (lambda root: root.__setitem__(PATH, NEW), {PATH: NEW}),
    "overwrite by a group": (lambda root: root.create_group(PATH, overwrite=True), {}),
    "overwrite a group": (
        lambda root: root.create_array("group", data=NEW, chunks=3, overwrite=True),
        {"group": NEW},
    ),
    "overwrite by a hierarchy": (create_hierarchy_through, {PATH: np.full(4, 7, "int32")}),
    "overwrite by a copy": (copy_through, {PATH: NEW}),
    "delete": (delete_through(PATH), {}),
    "delete a group": (delete_through("group"), {}),
}
replacing = pytest.mark.parametrize(("act", "new"), REPLACING.values(), ids=REPLACING)


def arrays_of(node: Any, path: str = "") -> dict[str, np.ndarray]:
    """The values of all arrays below a group, by their paths."""
    if isinstance(node, zellige.Array):
        return {path: node[...]}
    found = dict(node.members())
    return {key: value for name in found for key, value in arrays_of(found[name], f"{path}/{name}".lstrip("/")).items()}


class Held(NamedTuple):
    """Groups that hold consolidated metadata, and a change that is made through the root."""

    make_store: Callable[[], Store]
    zarr_format: Any
    holders: list[str]
    act: Callable[[zellige.Group], Any]
    new: dict[str, np.ndarray]

    def prepare(self) -> Store:
        store = array_and_group(self.make_store(), self.zarr_format)
        for path in self.holders:
            zellige.consolidate_metadata(store, path=path, zarr_format=self.zarr_format)
        return store

    def run(self, store: Store) -> None:
        self.act(zellige.open_consolidated(store, mode="r+", zarr_format=self.zarr_format))

    def check(self, store: Store) -> None:
        """Each array that consolidated metadata names is whole: the old one or the new one."""
        old = {PATH: counted((9,)), "group/other": counted((3,))}
        for path in self.holders:
            found = zellige.open(store, path=path, mode="r") if there(store, path) else None
            for place, values in arrays_of(found, path).items() if isinstance(found, zellige.Group) else ():
                assert any(same(values, known[place]) for known in (old, self.new) if place in known), place

    def undisturbed(self) -> Store:
        store = self.prepare()
        self.run(store)
        return store

    def finish(self, store: Store, undisturbed: Store) -> None:
        """Once more, by the next process: all is as if nothing had happened."""
        self.run(store)
        root = zellige.open_consolidated(store, mode="r", zarr_format=self.zarr_format, check=True)
        assert arrays_of(root).keys() == arrays_of(zellige.open_group(undisturbed, mode="r")).keys()
        assert sorted(store.list()) == sorted(undisturbed.list())
        self.check(store)


@pytest.fixture
def held(act, new, holders, zarr_format, make_store, monkeypatch) -> Held:
    monkeypatch.setattr(os, "fsync", lambda _fd: None)  # which takes long and shows nothing here
    return Held(make_store, zarr_format, holders, act, new)


one_or_two = pytest.mark.parametrize("holders", [[""], ["group", ""]], ids=["one", "two hold some"])
everywhere = pytest.mark.parametrize("place", ["memory", "local"])


@formats
@replacing
@one_or_two
@everywhere
def test_a_killed_replacement_never_shows_chunks_that_are_gone(held):
    """What consolidated metadata names is the old array or the new one; or it does not name it."""
    undisturbed = held.undisturbed()
    for _, left in deaths(held.prepare, held.run):
        held.check(left)
        held.finish(left, undisturbed)


MOVES = {name: case for name, case in REPLACING.items() if name.startswith("move")}


@formats
@pytest.mark.parametrize(("act", "new"), MOVES.values(), ids=MOVES)
@one_or_two
@everywhere
def test_a_failed_move_does_not_either(held):
    undisturbed = held.undisturbed()
    for _, left in failures(held.prepare, held.run, forever=False):
        held.check(left)
        held.finish(left, undisturbed)


@pytest.mark.parametrize("holders", [[""]], ids=["one"])
@pytest.mark.parametrize("zarr_format", [3], ids=["v3"])
@pytest.mark.parametrize(("act", "new"), [REPLACING["move"]], ids=["move"])
@everywhere
def test_a_member_that_a_killed_move_has_hidden_is_missed_with_the_remedy(held):
    told = 0
    for _, left in deaths(held.prepare, held.run):
        root = zellige.open_consolidated(left, mode="r")
        if "group/other" not in root and "moved" not in root:
            told += 1
            name = "group/other" if there(left, "group/other") else "moved"
            with pytest.raises(KeyError, match=r"a move of '/group/other' was stopped.*run the same move again"):
                root[name]
    assert told == (2 if isinstance(left, LocalStore) else 0)


@pytest.mark.parametrize("holders", [[""]], ids=["one"])
@pytest.mark.parametrize("zarr_format", [3], ids=["v3"])
@pytest.mark.parametrize(("act", "new"), [REPLACING["overwrite"]], ids=["overwrite"])
@everywhere
def test_a_member_that_a_killed_overwriting_has_hidden_is_missed_with_the_remedy(held):
    told = 0
    for _, left in deaths(held.prepare, held.run):
        if there(left, PATH) and PATH not in (root := zellige.open_consolidated(left, mode="r+")):
            told += 1
            with pytest.raises(KeyError, match=r"consolidated metadata does not name it.*consolidate_metadata"):
                root[PATH]
            assert same(root.consolidate_metadata()[PATH][...], values(left))
    assert told
