from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from servers import free_port

import zellige
from zellige.errors import (
    AccessDeniedError,
    CompatibilityWarning,
    CredentialsWarning,
    ListingNotSupportedError,
    RangesIgnoredWarning,
    ReadOnlyError,
    RemoteError,
    ShortReadError,
)
from zellige.stores import MemoryStore, resolve
from zellige.stores.object import HTTPStore

VALUES = {"a/k": b"0123456789", "empty": b"", "odd/ü #?%41+ x": b"odd"}
FAST = {"max_retries": 1}


def test_values_are_read(web):
    server = web(VALUES)
    store = HTTPStore(server.url)
    assert {key: store.get(key) for key in VALUES} == VALUES
    assert {key: store.size(key) for key in VALUES} == {key: len(value) for key, value in VALUES.items()}
    assert store.get("none") is store.get_range("none", 0, 1) is store.size("none") is None
    assert store.exists("empty")
    assert not store.exists("none")


@pytest.mark.parametrize("ranges", [True, False], ids=["with ranges", "without ranges"])
@pytest.mark.filterwarnings("ignore::zellige.errors.RangesIgnoredWarning")
def test_ranges_have_the_asked_length(web, ranges):
    store = HTTPStore(web(VALUES, ranges=ranges).url, FAST)
    value = VALUES["a/k"]
    for start, length in [(0, 4), (3, 4), (9, 1), (0, 10), (4, None), (10, None), (-3, None), (-10, 2), (5, 0)]:
        begin = start + 10 if start < 0 else start
        expected = value[begin:] if length is None else value[begin : begin + length]
        assert store.get_range("a/k", start, length) == expected
    assert store.read("a/k", [(7, 2), (0, 3)]).parts == [b"78", b"012"]
    for span in [(0, 11), (10, 1), (11, None), (-11, None)]:
        with pytest.raises(ShortReadError, match=r"'a/k'.*10 bytes"):
            store.get_range("a/k", *span)
    assert store.get_range("none", 0, 1) is None


def test_a_server_that_ignores_ranges_is_warned_of_once_and_asked_for_wholes(web):
    server = web(VALUES, ranges=False)
    store = HTTPStore(server.url, FAST)
    with pytest.warns(RangesIgnoredWarning, match="ignores ranges"):
        assert store.get_range("a/k", 2, 3) == b"234"
    server.log.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.get_range("a/k", 5, 2) == b"56"
    assert server.log == [("GET", "/data/a/k", "")]


def test_a_tag_is_the_etag_and_without_one_nothing_is_remembered(web):
    server = web(dict(VALUES))
    store = HTTPStore(server.url, FAST)
    tag = store.read("a/k", [(0, 1)]).tag
    assert tag
    assert store.read("a/k").tag == store.read("a/k", []).tag == tag
    server.values["a/k"] = b"9876543210"
    assert store.read("a/k", [(0, 1)]).tag not in (tag, None)
    server.etags = False
    assert store.read("a/k", [(0, 1)]) == ([b"9"], 10, None)


@pytest.mark.parametrize("status", [404, 410])
def test_not_found_and_gone_are_missing(web, status):
    server = web(VALUES)
    server.rules["/a/k"] = status
    store = HTTPStore(server.url, FAST)
    assert store.get("a/k") is store.get_range("a/k", 0, 1) is store.read("a/k", []) is store.size("a/k") is None
    assert not store.exists("a/k")


@pytest.mark.parametrize(("status", "tries"), [(401, 1), (403, 1), (500, 2), (503, 2), (418, 1)])
def test_every_other_answer_is_an_error_with_key_and_cause(web, status, tries):
    server = web(VALUES)
    server.rules["/a/k"] = status
    store = HTTPStore(server.url, FAST)
    for read in (lambda: store.get("a/k"), lambda: store.get_range("a/k", 0, 1), lambda: store.size("a/k")):
        server.log.clear()
        with pytest.raises(AccessDeniedError if status in (401, 403) else RemoteError, match=rf"'a/k'.*{status}"):
            read()
        assert len(server.log) == tries


def test_nobody_listening_is_an_error():
    with pytest.raises(RemoteError, match=r"'k'.*error sending request"):
        HTTPStore(f"http://127.0.0.1:{free_port()}/x", {"max_retries": 0}).get("k")


def test_it_is_read_only_and_stays_so(web):
    store = resolve(web(VALUES).url)
    for view in (store, store.as_read_only(), pickle.loads(pickle.dumps(store))):
        assert view == store
        assert view.read_only
        assert view.get("a/k") == VALUES["a/k"]
        for write in (
            lambda s: s.put("k", b""),
            lambda s: s.create("k", b""),
            lambda s: s.replace("k", b"", ""),
            lambda s: s.update("k", lambda _: b""),
            lambda s: s.delete(["k"]),
            lambda s: s.delete_prefix("k/"),
        ):
            with pytest.raises(ReadOnlyError):
                write(view)
    with pytest.raises(ValueError, match="only be read"):
        HTTPStore(store.url, read_only=False)
    with pytest.raises(ValueError, match="ObjectStore"):
        HTTPStore("s3://bucket/x")


def test_secrets_in_the_url_are_sent_but_not_shown(web):
    server = web(VALUES)
    store = resolve(f"{server.url}?sig=HIDDEN", storage_options={**FAST, "headers": {"Authorization": "HEADER"}})
    assert store.get("a/k") == VALUES["a/k"]
    server.rules["/a/k"] = 403
    with pytest.raises(PermissionError) as caught:
        store.get("a/k")
    with pytest.warns(CredentialsWarning, match=r"default_headers, the URL") as warned:
        copy = pickle.loads(pickle.dumps(store))
    assert copy == store
    for text in (repr(store), store.url, str(caught.value), str(warned[0].message)):
        assert "HIDDEN" not in text
        assert "HEADER" not in text


# -- nodes ----------------------------------------------------------------------------------------


@pytest.fixture
def tree() -> MemoryStore:
    store = MemoryStore()
    root = zellige.create_group(store)
    root.create_array("even", data=np.arange(100).reshape(10, 10), chunks=(4, 4))
    root.create_array("g/rows", data=np.arange(12), chunks=[[5, 7]])
    root.create_array("sharded", data=np.arange(64), shards=(32,), chunks=(4,))
    zellige.create_array(store, name="old", data=np.arange(9), chunks=(2,), zarr_format=2)
    return store


def served(web, store, **options):
    return web({key: store.get(key) for key in store.list()}, **options)


@pytest.mark.parametrize("ranges", [True, False], ids=["with ranges", "without ranges"])
@pytest.mark.filterwarnings("ignore::zellige.errors.RangesIgnoredWarning")
def test_arrays_are_read(web, tree, ranges):
    server = served(web, tree, ranges=ranges)
    for name, expected in [("even", np.arange(100).reshape(10, 10)), ("g/rows", np.arange(12)), ("old", np.arange(9))]:
        np.testing.assert_array_equal(zellige.open_array(f"{server.url}/{name}", mode="r")[:], expected)
    assert zellige.open(server.url, path="sharded", mode="r")[33] == 33


def test_members_come_from_consolidated_metadata_and_from_no_other_request(web, tree):
    del zellige.open_group(tree)["old"]  # the other format is not consolidated
    with pytest.warns(CompatibilityWarning, match="'g/rows'"):
        zellige.consolidate_metadata(tree)
    server = served(web, tree)
    group = zellige.open_group(server.url, mode="r")
    assert sorted(name for name, _ in group.members(max_depth=None)) == ["even", "g", "g/rows", "sharded"]
    # All documents that could be there are asked for at once, and nothing else.
    assert {path.rpartition("/")[0] for _, path, _ in server.log} == {"/data"}
    server.log.clear()
    zellige.open_group(server.url, mode="r", zarr_format=3)
    assert [path for _, path, _ in server.log] == ["/data/zarr.json"]
    assert group["g/rows"][4] == 4


def test_without_them_the_error_says_that_the_server_cannot_list(web, tree):
    server = served(web, tree)
    group = zellige.open_group(server.url, mode="r")
    assert group["g/rows"][4] == 4
    with pytest.raises(ListingNotSupportedError, match=r"cannot list.*consolidate_metadata"):
        list(group.members())
    with pytest.raises(ListingNotSupportedError):
        list(resolve(server.url).list("g/"))


def test_a_denied_chunk_is_not_read_as_fill(web, tree):
    server = served(web, tree)
    server.rules["/even/c/1/1"] = 403
    with pytest.raises(PermissionError, match="'even/c/1/1'"):
        zellige.open_array(server.url, path="even", mode="r")[:]


def test_writing_says_that_web_servers_are_only_read(web, tree):
    server = served(web, tree)
    array = zellige.open(server.url, path="even", mode="r+")
    for write in (
        lambda: zellige.create_array(server.url, name="new", shape=3),
        lambda: zellige.save(server.url, np.arange(3)),
        lambda: zellige.open_group(server.url, mode="w"),
        lambda: array.__setitem__(0, 1),
        lambda: array.append(np.zeros((1, 10))),
        lambda: array.attrs.update(a=1),
    ):
        with pytest.raises(zellige.errors.ReadOnlyError, match="web server, which is only read; copy the data"):
            write()
