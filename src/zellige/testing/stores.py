"""The laws of a store, as tests."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from zellige import errors
from zellige.storage import ABSENT, Kept, Store

__all__ = ["StoreSuite"]

BAD_KEYS = ["", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/../b", "a/./b", "./a", "a\0b", "\0", "\ud800"]
BAD_KEYS += [".zellige-tmp-1", "a/.zellige-tmp-1/b"]
ODD_KEYS = ["ünïcødé/数据", "with space/ x ", "..x", "x..", "a/...", ".hidden", ".zellige", "a\\b"]
ODD_KEYS += ["x" * 200, "%41", "a%2Fb%", "C:", "~", "-", "*?", "#", "a#b?c=d&e", "a+b c", "{}[]|^`<>\"'", "100%"]
CONTROL_KEYS = ["line\nbreak", "\n", "\x7f", "a/\t/b"]

READING: dict[str, Callable[[Store, str], Any]] = {
    "get": lambda s, k: s.get(k),
    "get_range": lambda s, k: s.get_range(k, 0, 1),
    "read": lambda s, k: s.read(k),
    "read a range": lambda s, k: s.read(k, [(0, 1)]),
    "read no range": lambda s, k: s.read(k, []),
    "size": lambda s, k: s.size(k),
    "exists": lambda s, k: s.exists(k),
}
WRITING: dict[str, Callable[[Store, str], Any]] = {
    "put": lambda s, k: s.put(k, b"new"),
    "write": lambda s, k: s.write(k, [b"n", b"ew"]),
    "splice": lambda s, k: s.splice(k, lambda old: [b"new"]),
    "update": lambda s, k: s.update(k, lambda old: b"new"),
    "create": lambda s, k: s.create(k, b"new"),
    "replace": lambda s, k: s.replace(k, b"new", "tag"),
    "delete": lambda s, k: s.delete([k]),
    "delete_prefix": lambda s, k: s.delete_prefix(k + "/"),
}
LISTING: dict[str, Callable[[Store, str], Any]] = {
    "list": lambda s, k: s.list(k + "/"),
    "list_dir": lambda s, k: s.list_dir(k + "/"),
}


def enter(store: Store, key: str) -> None:
    """Take the lock of a key, and free it."""
    with store.lock(key):
        pass


ALL = READING | WRITING | LISTING | {"lock": enter}


def at_once(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Return what the work gives in several threads at the same time; raise the first exception."""
    start = threading.Barrier(count)

    def run(number: int) -> Any:
        start.wait(60)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


class StoreSuite:
    """The laws that every store keeps, for pytest: a subclass has a fixture `store`, which gives a new, empty store.

    Values come back whole and by ranges; a missing key is None, and a bad one raises `StoreKeyError`. Conditional
    writes have one winner, and no update of several threads is lost. Listings are complete, and removal removes what
    it should and no more. Views that are read-only refuse to write, and a pickle is equal to its store. A store that
    cannot keep a law overrides its test and says why.

    >>> class TestMemoryStore(StoreSuite):
    ...     @pytest.fixture
    ...     def store(self):
    ...         return zellige.MemoryStore()
    """

    turns = 100
    """How often threads repeat what they do against each other; less for stores where each request takes long."""
    control_keys = True
    """Whether keys may hold control characters; where not, they are refused with `StoreKeyError`."""

    @pytest.fixture
    def store(self) -> Store:
        """Return a new, empty store that may be written to."""
        raise NotImplementedError(f"{type(self).__name__} needs a fixture `store` that gives a new, empty store")

    # -- values -----------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 1 << 20, (1 << 20) + 1, 64 << 20])
    def test_a_value_comes_back(self, store: Any, size: int) -> None:
        value = (bytes(range(251)) * (size // 251 + 1))[:size]
        store.put("a/b", value)
        got = store.get("a/b")
        assert type(got) is bytes
        assert got == value
        found = store.read("a/b")
        assert b"".join(found.parts) == found.whole == value
        assert (len(found.parts), found.size) == (1, size)
        assert store.size("a/b") == size
        assert store.exists("a/b")

    def test_values_of_changing_size_are_read_whole(self, store: Any) -> None:
        for size in (10, 3 << 20, 0, 5, 2 << 20, 3 << 20, (3 << 20) + 7, 1):
            value = b"%d" % (size % 10) * size
            store.put("k", value)
            assert store.get("k") == value
            assert store.read("k").size == store.read("k", []).size == store.size("k") == size

    def test_what_was_read_is_not_overwritten_by_the_next_read(self, store: Any) -> None:
        values = {f"a/{k}": bytes([k + 1]) * size for k, size in enumerate((1, 1000, 0, 65536, 1 << 20, 7))}
        for key, value in values.items():
            store.put(key, value)
        found = {key: store.read(key) for key in values}
        ranges = {key: store.read(key, [(0, min(len(value), 1000))]) for key, value in values.items()}
        assert {key: bytes(value.parts[0]) for key, value in found.items()} == values
        assert {key: bytes(value.parts[0]) for key, value in ranges.items()} == {
            key: value[:1000] for key, value in values.items()
        }

    @pytest.mark.parametrize("kind", [bytearray, lambda b: memoryview(bytearray(b))])
    @pytest.mark.parametrize("write", [Store.put, Store.create])
    def test_a_mutable_value_is_copied(self, store: Any, kind: Any, write: Any) -> None:
        value = kind(b"abc")
        getattr(store, write.__name__)("k", value)
        value[0] = 0
        assert store.get("k") == b"abc"

    def test_a_view_of_wider_items_is_stored_as_its_bytes(self, store: Any) -> None:
        store.put("k", memoryview(b"12345678").cast("I"))
        assert store.get("k") == b"12345678"

    @pytest.mark.parametrize("value", ["text", 5, None])
    @pytest.mark.parametrize("write", ["put", "create"])
    def test_only_bytes_are_values(self, store: Any, value: Any, write: Any) -> None:
        with pytest.raises(TypeError):
            getattr(store, write)("k", value)
        assert list(store.list()) == []

    def test_an_overwrite_leaves_nothing_of_the_longer_value(self, store: Any) -> None:
        store.put("k", b"long value")
        store.put("k", b"short")
        assert store.get("k") == b"short"
        assert store.size("k") == 5

    @pytest.mark.parametrize("key", ["missing", "a/missing", "a/b/below a value"])
    def test_a_missing_key_is_none(self, store: Any, key: str) -> None:
        assert store.get(key) is None
        store.put("a/b", b"x")
        assert store.get(key) is None
        assert store.read(key) is None
        assert store.get_range(key, 0, 1) is None
        assert store.read(key, [(0, 1), (2, 3)]) is None
        assert store.read(key, []) is None
        assert store.size(key) is None
        assert not store.exists(key)

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_odd_keys_are_keys(self, store: Any, key: str) -> None:
        store.put(key, b"x")
        assert store.get(key) == b"x"
        assert list(store.list()) == [key]
        store.delete([key])
        assert list(store.list()) == []

    @pytest.mark.parametrize("key", CONTROL_KEYS)
    def test_control_characters_come_back_or_are_refused(self, store: Any, key: str) -> None:
        if self.control_keys:
            store.put(key, b"x")
            assert store.get(key) == b"x"
            assert list(store.list()) == [key]
        else:
            for method in ("put", "create", "get", "size", "delete"):
                with pytest.raises(errors.StoreKeyError):
                    ALL[method](store, key)
            assert list(store.list()) == []

    @pytest.mark.parametrize("method", ALL)
    def test_bad_keys_are_refused(self, store: Any, method: str) -> None:
        for key in BAD_KEYS:
            if key == "" and method in ("list_dir", "list", "delete_prefix"):
                continue  # "/" stands for it below
            with pytest.raises(errors.StoreKeyError):
                ALL[method](store, key)
        assert list(store.list()) == []

    @pytest.mark.parametrize("prefix", ["/", "a", "//", "a//", "../", "a/../", "./", "/a/"])
    @pytest.mark.parametrize("method", ["list", "list_dir", "delete_prefix"])
    def test_bad_prefixes_are_refused(self, store: Any, method: str, prefix: str) -> None:
        with pytest.raises(errors.StoreKeyError):
            getattr(store, method)(prefix)

    # -- ranges -----------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "span", [(0, 4), (3, 4), (9, 1), (0, 10), (0, None), (4, None), (10, None), (-3, None), (-10, 2), (-2, 2)]
    )
    def test_a_range_is_the_slice(self, store: Any, span: Any) -> None:
        value = b"0123456789"
        store.put("k", value)
        start, length = span
        begin = start + 10 if start < 0 else start
        expected = value[begin:] if length is None else value[begin : begin + length]
        assert store.get_range("k", start, length) == expected
        found = store.read("k", [span, (0, 1)])
        assert [bytes(part) for part in found.parts] == [expected, b"0"]
        assert found.size in (10, None)

    @pytest.mark.parametrize("start", [0, 5, 10, -1, -10])
    def test_a_range_of_no_length_is_empty(self, store: Any, start: int) -> None:
        store.put("k", b"0123456789")
        assert store.get_range("k", start, 0) == b""

    @pytest.mark.parametrize(
        "span",
        [
            *[(0, 11), (10, 1), (9, 2), (11, None), (11, 0), (-11, None), (-11, 5), (-2, 3)],
            *[(0, 2 << 20), (0, 1 << 60), (2**64 - 2, 8), (2**70, 1)],
        ],
    )
    def test_a_range_beyond_the_value_raises(self, store: Any, span: Any) -> None:
        store.put("k", b"0123456789")
        for spans in ([span], [(0, 1), span]):
            with pytest.raises(errors.ShortReadError, match=r"'k'.*10 bytes") as caught:
                store.read("k", spans)
            assert vars(caught.value).items() >= {"start": span[0], "length": span[1], "size": 10}.items()

    def test_a_negative_length_is_refused(self, store: Any) -> None:
        store.put("k", b"0123456789")
        with pytest.raises(ValueError, match="-1"):
            store.get_range("k", 3, -1)

    @pytest.mark.parametrize(
        ("start", "length"), [(0, 4), (7, 70_000), (-5, 5), (-200_000, 99_999), (3, (1 << 20) + 9), (5, 0)]
    )
    def test_a_long_range_is_the_slice(self, store: Any, start: int, length: int) -> None:
        value = bytes(range(256)) * 8192
        store.put("a/k", value)
        begin = start % len(value)
        assert store.get_range("a/k", start, length) == value[begin : begin + length]
        assert store.get_range("a/none", start, length) is None

    @pytest.mark.parametrize(
        "span", [(0, 80_001), (79_999, 2), (1, 80_000), (90_000, 70_000), (0, 1 << 40), (1 << 80, 70_000)]
    )
    def test_a_long_range_beyond_the_value_is_refused(self, store: Any, span: Any) -> None:
        store.put("k", b"x" * 80_000)
        with pytest.raises(errors.ShortReadError, match="80000"):
            store.get_range("k", *span)

    def test_ranges_keep_their_order(self, store: Any) -> None:
        value = bytes(range(256)) * 8192
        store.put("k", value)
        found = store.read("k", [(256, 3), (0, 2), (-1, None), (5, (1 << 20) + 5), (0, 0), (257, 1)]).parts
        expected = [value[256:259], value[:2], value[-1:], value[5 : (1 << 20) + 10], b"", value[257:258]]
        assert [bytes(part) for part in found] == expected
        assert list(store.read("k", []).parts) == []

    # -- conditional writes -----------------------------------------------------------------------

    def test_parts_are_stored_as_one_value(self, store: Any) -> None:
        parts: list[Any] = [b"ab", bytearray(b""), memoryview(b"cde"), *[bytes([k % 256]) for k in range(3000)]]
        store.put("a/k", parts)
        assert store.get("a/k") == b"".join(parts)
        store.put("a/k", [])
        assert store.get("a/k") == b""

    def test_a_tag_differs_once_the_value_is_written_again(self, store: Any) -> None:
        assert store.read("a/k", [(0, 1)]) is None
        store.put("a/k", b"0123456789")
        found = store.read("a/k", [(2, 3), (-2, None)])
        assert [bytes(part) for part in found.parts] == [b"234", b"89"]
        whole = store.read("a/k")
        assert whole.tag is not None
        assert store.read("a/k").tag == whole.tag
        tags = [found.tag, store.read("a/k", [(0, 1)]).tag, store.read("a/k", []).tag]
        assert tags in ([None] * 3, [whole.tag] * 3)
        assert not any(tag != whole.tag for tag in tags if tag is not None)  # a tuple has a way of its own to differ
        assert len({whole.tag, store.read("a/k").tag}) == 1
        store.put("a/k", b"9876543210")
        assert store.read("a/k").tag != whole.tag
        assert found.tag is None or store.read("a/k", [(0, 1)]).tag != found.tag
        with pytest.raises(errors.ShortReadError):
            store.read("a/k", [(5, 6)])

    def test_a_write_on_condition_takes_any_value(self, store: Any) -> None:
        assert store.write("a/k", [b"0", memoryview(b"1")], ABSENT)
        assert not store.write("a/k", [b"2"], ABSENT)
        assert store.write("a/k", (bytearray(b"3"), b"4"), store.read("a/k").tag)
        assert store.get("a/k") == b"34"
        with pytest.raises(ValueError, match="None"):
            store.replace("a/k", b"5", None)

    def test_create_writes_only_a_new_key(self, store: Any) -> None:
        assert store.create("a/k", b"first")
        assert not store.create("a/k", b"second")
        assert store.get("a/k") == b"first"
        store.put("empty", b"")
        assert not store.create("empty", b"")

    def test_create_has_one_winner(self, store: Any) -> None:
        for key in [f"d{turn}/k" for turn in range(10)]:
            won = at_once(16, partial(lambda key, number: store.create(key, b"%d" % number), key))
            assert won.count(True) == 1
            assert store.get(key) == b"%d" % won.index(True)

    def test_replace_wants_the_version_of_the_value(self, store: Any) -> None:
        assert not store.replace("k", b"x", "any")
        assert list(store.list()) == []
        store.put("k", b"one")
        first = store.read("k").tag
        assert store.replace("k", b"two", first)
        assert not store.replace("k", b"three", first)
        value, second = store.read("k").whole, store.read("k").tag
        assert value == b"two"
        store.put("k", b"owt")
        assert not store.replace("k", b"three", second)
        store.delete(["k"])
        assert not store.replace("k", b"three", second)
        assert store.get("k") is None

    def test_replace_has_one_winner(self, store: Any) -> None:
        store.put("k", b"start")
        for turn in range(10):
            tag = store.read("k").tag
            # New values each time: to a version that is made of the content, the same one is no change.
            values = [b"%d in turn %d" % (number, turn) for number in range(8)]
            won = at_once(8, partial(lambda values, tag, number: store.replace("k", values[number], tag), values, tag))
            assert won.count(True) == 1
            assert store.get("k") == values[won.index(True)]

    def test_replace_loses_no_update(self, store: Any) -> None:
        store.put("n", b"0")

        def increment(_number: int) -> Any:
            done = 0
            while done < 10:
                found = store.read("n")
                done += store.replace("n", b"%d" % (int(found.whole) + 1), found.tag)

        at_once(4, increment)
        assert store.get("n") == b"40"

    def test_update_changes_creates_and_removes(self, store: Any) -> None:
        seen = []

        def change(new: Any) -> Any:
            def give(old: Any) -> Any:
                seen.append(None if old is None else bytes(old))
                return new

            return give

        store.update("a/k", change(None))
        assert list(store.list()) == []
        for new in (b"one", bytearray(b"two"), [b"th", memoryview(b"ree")], b""):
            store.update("a/k", change(new))
        assert store.get("a/k") == b""
        store.update("a/k", change(None))
        assert seen == [None, None, b"one", b"two", b"three", b""]
        assert list(store.list()) == []

    def test_splice_makes_the_next_value_of_parts_of_the_old_one(self, store: Any) -> None:
        store.splice("a/k", lambda old: None if old is None else [b"wrong"])
        assert list(store.list()) == []
        value = bytes(range(256)) * 6000
        store.splice("a/k", lambda old: [value] if old is None else [b"wrong"])
        seen = []

        def change(old: Any) -> Any:
            seen.append((old.size, bytes(old.read(255, 3)), bytes(old.read(old.size - 1, 1)), bytes(old.read(7, 0))))
            kept = [Kept(1_000_000, 500_000), Kept(0, 0), Kept(3, 1)]
            return [b"<", kept[0], memoryview(b"-"), bytearray(b"-"), *kept[1:], kept[0], b">"]

        store.splice("a/k", change)
        middle = value[1_000_000:1_500_000]
        assert store.get("a/k") == b"<" + middle + b"--" + value[3:4] + middle + b">"
        assert seen == [(len(value), value[255:258], value[-1:], b"")]
        store.splice("a/k", lambda old: [Kept(0, old.size)])
        assert store.size("a/k") == 2 * len(middle) + 5
        store.splice("a/k", lambda old: None)
        assert list(store.list()) == []

    def test_a_splice_reads_and_writes_only_what_is_there(self, store: Any) -> None:
        store.put("k", b"old")
        for start, length in ((0, 4), (3, 1), (10**6, 2 << 20)):
            with pytest.raises(errors.ShortReadError, match="'k'"):
                store.splice("k", lambda old, span=(start, length): [old.read(*span)])
        assert {key: store.get(key) for key in store.list()} == {"k": b"old"}
        with pytest.raises(errors.StoreKeyError):
            store.splice("../k", lambda old: [b"new"])

    def test_splice_loses_nothing(self, store: Any) -> None:
        def work(_number: int) -> Any:
            for _ in range(max(5, self.turns // 10)):
                store.splice("a/n", lambda old: [b"x"] if old is None else [Kept(0, old.size), b"x"])
                store.update("a/n", lambda old: [old or b"", b"y"])

        at_once(4, work)
        each = max(5, self.turns // 10)
        assert sorted(store.get("a/n")) == sorted(b"xy" * 4 * each)

    def test_update_loses_nothing(self, store: Any) -> None:
        def work(number: int) -> Any:
            for _ in range(max(5, self.turns // 10)):
                store.update("a/n", lambda old: b"%d" % (int(bytes(old or b"0")) + 1))
                store.update(f"a/{number}", lambda old: bytes(old or b"") + b"x")

        at_once(4, work)
        each = max(5, self.turns // 10)
        assert int(store.get("a/n")) == 4 * each
        assert [store.size(f"a/{number}") for number in range(4)] == [each] * 4

    @pytest.mark.parametrize("method", ["update", "splice"])
    def test_a_failed_change_writes_nothing(self, store: Any, method: str) -> None:
        def fail(_old: Any) -> Any:
            raise RuntimeError("mine")

        store.put("k", b"old")
        for key in ("k", "none"):
            with pytest.raises(RuntimeError, match="mine"):
                getattr(store, method)(key, fail)
        assert {key: store.get(key) for key in store.list()} == {"k": b"old"}
        at_once(2, lambda _number: enter(store, "k"))

    def test_of_many_writers_of_one_key_one_is_the_last(self, store: Any) -> None:
        values = [bytes([number]) * (1000 + number) for number in range(8)]
        at_once(8, lambda number: [store.put("a/k", values[number]) for _ in range(5)])
        assert store.get("a/k") in values
        assert store.size("a/k") == len(store.get("a/k"))

    # -- listing and removing ---------------------------------------------------------------------

    _KEYS = ("a/b/c", "a/b/d", "a/bc", "a/b.c/x", "ab", "b/0/0", "b/0/1", "zarr.json")

    def _fill(self, store: Any) -> None:
        for key in self._KEYS:
            store.put(key, b"x")

    @pytest.mark.parametrize("prefix", ["", "a/", "a/b/", "a/b.c/", "b/0/", "missing/", "ab/", "ab/c/", "a/b/c/"])
    def test_list_gives_exactly_the_keys_of_the_prefix(self, store: Any, prefix: str) -> None:
        assert list(store.list(prefix)) == []
        self._fill(store)
        assert sorted(store.list(prefix)) == sorted(k for k in self._KEYS if k.startswith(prefix))

    @pytest.mark.parametrize(
        ("prefix", "keys", "prefixes"),
        [
            ("", ["ab", "zarr.json"], ["a/", "b/"]),
            ("a/", ["a/bc"], ["a/b.c/", "a/b/"]),
            ("a/b/", ["a/b/c", "a/b/d"], []),
            ("b/", [], ["b/0/"]),
            ("missing/", [], []),
            ("ab/", [], []),
        ],
    )
    def test_list_dir_gives_one_level(self, store: Any, prefix: str, keys: list[str], prefixes: list[str]) -> None:
        assert store.list_dir(prefix) == ([], [])
        self._fill(store)
        assert store.list_dir(prefix) == (keys, prefixes)

    def test_one_level_is_sorted_and_names_each_once(self, store: Any) -> None:
        names = ["b", "a.b", "a", "B", "é", "a-b", "10", "9", "a/z", "a/y", "a.b/x", "10/c/d"]
        keys = [f"p/{name}x" for name in names]
        at_once(4, lambda number: [store.put(key, b"") for key in keys[number::4]])
        below = [key for key in keys if "/" not in key[2:]]
        assert store.list_dir("p/") == (sorted(below), ["p/10/", "p/a.b/", "p/a/"])
        assert sorted(store.list("p/")) == sorted(keys)

    def test_delete_may_be_repeated(self, store: Any) -> None:
        store.delete(["a/k"])
        store.put("a/k", b"x")
        store.put("a/l", b"y")
        store.delete(["a/k"])
        store.delete(["a/k", "a/k"])
        store.delete(["a/l/below a value"])
        assert store.get("a/k") is None
        assert list(store.list()) == ["a/l"]

    @pytest.mark.parametrize("prefix", ["", "a/", "a/b/", "missing/", "ab/", "b/"])
    def test_delete_prefix_removes_its_prefix_only(self, store: Any, prefix: str) -> None:
        store.delete_prefix(prefix)
        self._fill(store)
        store.delete_prefix(prefix)
        assert sorted(store.list()) == sorted(k for k in self._KEYS if not k.startswith(prefix))
        assert store.list_dir(prefix)[1] == []
        store.put("a/b/c", b"again")
        assert store.get("a/b/c") == b"again"

    def test_several_keys_are_removed_at_once(self, store: Any) -> None:
        self._fill(store)
        gone = [*self._KEYS[:3], "missing", "missing/too"]
        store.delete(gone)
        assert sorted(store.list()) == sorted(set(self._KEYS) - set(gone))
        store.delete([])
        with pytest.raises(errors.StoreKeyError):
            store.delete(["ab", "../k"])
        with pytest.raises(TypeError, match="list"):
            store.delete("ab")
        assert store.get("ab") == b"x"
        assert sorted(store.list()) == sorted(set(self._KEYS) - set(gone))

    def test_deep_keys(self, store: Any) -> None:
        key = "/".join(["d"] * 400)
        store.put(key, b"x")
        assert list(store.list()) == [key]
        store.delete_prefix("d/")
        assert list(store.list()) == []

    # -- threads ----------------------------------------------------------------------------------

    def test_lock_loses_no_update(self, store: Any) -> None:
        def increment(_number: int) -> Any:
            for _ in range(self.turns):
                with store.lock("a/n"):
                    store.put("a/n", b"%d" % (int(store.get("a/n") or b"0") + 1))

        at_once(8, increment)
        assert int(store.get("a/n")) == 8 * self.turns
        assert list(store.list()) == ["a/n"]

    def test_lock_may_be_entered_again(self, store: Any) -> None:
        with store.lock("k"), store.lock("other"), store.lock("k"):
            store.put("k", b"x")
            assert store.replace("k", b"y", store.read("k").tag)
        with pytest.raises(RuntimeError, match="mine"), store.lock("k"):
            raise RuntimeError("mine")
        at_once(2, lambda _number: enter(store, "k"))

    def test_lock_of_other_keys_does_not_wait(self, store: Any) -> None:
        with store.lock("a/k"):
            at_once(2, lambda number: enter(store, f"a/{number}"))

    def test_readers_see_whole_values_only(self, store: Any) -> None:
        values = {b"%d" % n * (1 + n * 40_000) for n in range(1, 10)}
        store.put("k", b"1" * 40_001)
        stop = threading.Event()

        def work(number: int) -> Any:
            if number:
                seen = 0
                while not stop.is_set():
                    seen += store.get("k") not in values
                    found = store.read("k", [(0, 1), (40_000, 1)])
                    seen += found.tag is not None and bytes(found.parts[0]) != bytes(found.parts[1])
                return seen
            for _ in range(max(1, self.turns // 5)):
                for value in values:
                    store.put("k", value)
            stop.set()
            return 0

        assert at_once(4, work) == [0, 0, 0, 0]

    def test_writers_survive_the_removal_of_their_prefix(self, store: Any) -> None:
        def work(number: int) -> Any:
            for turn in range(self.turns * 3 // 5):
                if number:
                    store.put(f"a/b/{turn}/{number}", b"x")
                else:
                    store.delete_prefix("a/")
                    list(store.list())
                    store.list_dir("a/")

        at_once(3, work)
        store.delete_prefix("")
        assert list(store.list()) == []

    # -- views ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("method", WRITING)
    def test_read_only_refuses_to_write(self, store: Any, method: str) -> None:
        store.put("k/l", b"old")
        for view in (store.as_read_only(), pickle.loads(pickle.dumps(store.as_read_only()))):
            assert view.read_only
            assert "read_only=True" in repr(view)
            with pytest.raises(errors.ReadOnlyError):
                WRITING[method](view, "k")
            with pytest.raises(errors.ReadOnlyError):
                WRITING[method](view, "/no/key")
            assert view.get("k/l") == b"old"
            enter(view, "k/l")
        assert not store.read_only
        assert list(store.list()) == ["k/l"]

    def test_a_read_only_view_sees_later_writes(self, store: Any) -> None:
        view = store.as_read_only()
        store.put("k", b"later")
        assert view.get("k") == b"later"

    def test_equality_is_that_of_the_data_and_the_mode(self, store: Any) -> None:
        view = store.as_read_only()
        assert store == store
        assert store != view
        assert view == store.as_read_only()
        assert view.identity == store.identity
        assert len({store, view, store.as_read_only()}) == 2
        assert store != "store"

    def test_pickling_keeps_values_and_mode(self, store: Any) -> None:
        store.put("a/b", b"x")
        copy = pickle.loads(pickle.dumps(store))
        assert type(copy) is type(store)
        assert copy.get("a/b") == b"x"
        assert not copy.read_only
        copy.put("a/b", b"y")
        assert copy.get("a/b") == b"y"
        assert not copy.create("a/b", b"z")
        assert pickle.loads(pickle.dumps(copy.as_read_only())).read_only
