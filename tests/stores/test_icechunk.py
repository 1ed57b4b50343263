from __future__ import annotations

import json
import multiprocessing
import pickle

import numpy as np
import pytest
from node_laws import MODEL, RECTILINEAR, check_arrays, check_groups
from store_suite import StoreSuite

import zellige
from running import run_threads
from zellige.errors import ReadOnlyError, ShortReadError
from zellige.stores import Store
from zellige.stores.zarr_python import ZarrPythonStore, with_runs

icechunk = pytest.importorskip("icechunk", reason="icechunk is not installed")

VERSION = int(icechunk.__version__.split(".")[0])
GRIDS = pytest.mark.skipif(VERSION < 2, reason=f"icechunk {icechunk.__version__} has no rectilinear grids, 2 has")


@pytest.fixture
def repository():
    return icechunk.Repository.create(icechunk.in_memory_storage())


@pytest.fixture
def session(repository):
    return repository.writable_session("main")


@pytest.fixture
def store(session) -> ZarrPythonStore:
    return ZarrPythonStore(session.store)


# -- the laws -------------------------------------------------------------------------------------


class Renamed(ZarrPythonStore):
    """An icechunk store for any keys: each is a chunk of one long array, since icechunk takes no others.

    Values, ranges, conditions and threads are icechunk's; which keys there are is known here.
    """

    def __init__(self, store, read_only=False, numbers=None):
        super().__init__(store, read_only=read_only)
        self._numbers = {} if numbers is None else numbers
        if numbers is None:
            shape = {"shape": [1 << 20], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}}}
            document = {
                "zarr_format": 3,
                "node_type": "array",
                "data_type": "uint8",
                "fill_value": 0,
                "codecs": ["bytes"],
            }
            encoding = {"chunk_key_encoding": {"name": "default"}}
            ZarrPythonStore._put(self, "laws/zarr.json", json.dumps(document | shape | encoding).encode())

    def _chunk(self, key):
        return f"laws/c/{self._numbers.setdefault(key, len(self._numbers))}"

    def _names(self):
        chunks = set(ZarrPythonStore._run(self, "", ZarrPythonStore._keys(self, "")))
        return [key for key, number in tuple(self._numbers.items()) if f"laws/c/{number}" in chunks]

    async def _get_buffer(self, key, request=None):
        return await super()._get_buffer(self._chunk(key), request)

    async def _measure(self, key):
        return await super()._measure(key if key.startswith("laws/c/") else self._chunk(key))

    async def _exists(self, key):
        return await super()._exists(key if key.startswith("laws/c/") else self._chunk(key))

    def _set(self, key, value, how):
        super()._set(key if key.startswith("laws/") else self._chunk(key), value, how)

    def _delete(self, keys):
        super()._delete([self._chunk(key) for key in keys])

    def list(self, prefix="", *, recursive=True):
        return zellige.stores.MemoryStore(dict.fromkeys(self._names(), b"")).list(prefix, recursive=recursive)

    def __getstate__(self):
        return super().__getstate__() | {"numbers": dict(self._numbers)}

    def __setstate__(self, state):
        self.__init__(**state)


class TestIcechunk(StoreSuite):
    @pytest.fixture
    def store(self, session) -> Store:
        return Renamed(session.store)

    def test_read_only_refuses_to_write(self, repository):
        """A view of a session that writes is not pickled: icechunk wants `session.fork()`, or a read-only session."""
        session = repository.writable_session("main")
        Renamed(session.store).put("k", b"old")
        with pytest.raises(ValueError, match="fork"):
            pickle.dumps(Renamed(session.store).as_read_only())
        view = ZarrPythonStore(repository.readonly_session("main").store)
        for store in (view, pickle.loads(pickle.dumps(view))):
            assert store.read_only
            with pytest.raises(ReadOnlyError):
                store.put("zarr.json", b"{}")

    def test_pickling_keeps_values_and_mode(self, repository):
        """A fork of a session is pickled; it needs a repository that other processes see."""
        store = Renamed(repository.writable_session("main").store)
        store.put("a/b", b"x")
        with pytest.raises(ValueError, match="fork"):
            pickle.dumps(store)


# -- sessions -------------------------------------------------------------------------------------


def test_arrays_and_groups_come_back_after_a_commit(repository, session, store):
    without = {"v2"} | (RECTILINEAR if VERSION < 2 else set())
    check_arrays(store, without=without)
    check_groups(store)
    check_arrays(ZarrPythonStore(session.store), written=True, without=without)
    session.commit("first")
    kept = ZarrPythonStore(repository.readonly_session("main").store)
    check_arrays(kept, written=True, without=without)
    check_groups(kept, written=True)
    assert kept.read_only


def test_nobody_sees_what_is_not_committed(repository, session, store):
    zellige.create_array(store, name="a", data=np.arange(10), chunks=4)
    assert list(ZarrPythonStore(repository.readonly_session("main").store).list()) == []
    session.discard_changes()
    assert list(store.list()) == []


def test_sessions_are_told_apart_and_one_is_itself(repository, session):
    assert ZarrPythonStore(session.store) == ZarrPythonStore(session.store)
    assert ZarrPythonStore(session.store) != ZarrPythonStore(repository.writable_session("main").store)
    assert ZarrPythonStore(session.store).traits.transactional


def test_two_handles_of_a_session_lose_no_update(session, store):
    zellige.create_array(store, name="a", shape=8, chunks=8, dtype="i8")
    handles = [zellige.open_array(ZarrPythonStore(session.store), path="a") for _ in range(8)]
    run_threads(8, lambda number: [handles[number].__setitem__(number, turn) for turn in range(10)])
    assert handles[0][...].tolist() == [9] * 8


@pytest.mark.parametrize("same", [True, False])
def test_a_conflict_is_raised_as_icechunk_raises_it(repository, session, store, same):
    zellige.create_array(store, name="a", data=np.zeros(8), chunks=4)
    session.commit("base")
    first, second = repository.writable_session("main"), repository.writable_session("main")
    zellige.open_array(ZarrPythonStore(first.store), path="a")[:2] = 1
    zellige.open_array(ZarrPythonStore(second.store), path="a")[2 : 4 if same else None] = 2
    zellige.open_array(ZarrPythonStore(second.store), path="a")[4:] = 2
    first.commit("first")
    with pytest.raises(icechunk.ConflictError):
        second.commit("second")
    with pytest.raises(icechunk.RebaseFailedError):
        second.rebase(icechunk.ConflictDetector())
    found = zellige.open_array(ZarrPythonStore(repository.readonly_session("main").store), path="a")
    assert found[...].tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


def test_changes_of_different_chunks_are_rebased(repository, session, store):
    zellige.create_array(store, name="a", data=np.zeros(8), chunks=4)
    session.commit("base")
    first, second = repository.writable_session("main"), repository.writable_session("main")
    zellige.open_array(ZarrPythonStore(first.store), path="a")[:4] = 1
    zellige.open_array(ZarrPythonStore(second.store), path="a")[4:] = 2
    first.commit("first")
    second.commit("second", rebase_with=icechunk.ConflictDetector())
    found = zellige.open_array(ZarrPythonStore(repository.readonly_session("main").store), path="a")
    assert found[...].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]


def write_part(array: zellige.Array, number: int) -> object:
    """In another process: write a part, and hand back the session."""
    array[number * 4 : number * 4 + 4] = number + 1
    return array.store.zarr_store.session


def test_forks_of_a_session_are_written_by_processes_and_merged(tmp_path):
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "repository")))
    session = repository.writable_session("main")
    zellige.create_array(ZarrPythonStore(session.store), name="a", data=np.zeros(12), chunks=4)
    session.commit("base")
    session = repository.writable_session("main")
    array = zellige.open_array(ZarrPythonStore(session.fork().store), path="a")
    with multiprocessing.get_context("spawn").Pool(2) as processes:
        forks = processes.starmap(write_part, [(array, number) for number in range(3)])
    session.merge(*forks)
    session.commit("all")
    found = zellige.open_array(ZarrPythonStore(repository.readonly_session("main").store), path="a")
    assert found[...].tolist() == [1] * 4 + [2] * 4 + [3] * 4


def test_an_append_that_fails_leaves_the_shape_as_it_was(store, monkeypatch):
    array = zellige.create_array(store, name="a", data=np.arange(10), chunks=4, fill_value=-1)
    real, puts = ZarrPythonStore._put, []

    def fail(self, key, value):
        if "/c/" in key:
            puts.append(key)
            if len(puts) == 3:
                raise OSError("no more")
        real(self, key, value)

    monkeypatch.setattr(ZarrPythonStore, "_put", fail)
    with pytest.raises(Exception, match="no more"):
        array.append(np.arange(10))
    monkeypatch.undo()
    assert array.shape == (10,)
    assert zellige.open_array(store, path="a")[...].tolist() == list(range(10))
    array.resize(20)
    assert array[10:].tolist() == [-1] * 10


# -- what icechunk takes --------------------------------------------------------------------------


def test_ranges_beyond_a_chunk_raise_whatever_icechunk_answers(store):
    zellige.create_array(store, name="a", data=np.arange(5, dtype="u1"), chunks=5, compressors=None)
    assert store.get_range("a/c/0", 1, 3) == b"\1\2\3"
    assert store.get_range("a/c/0", -2) == b"\3\4"
    for span in ((5, 1), (3, 30), (30, 5), (-6, None), (6, None)):
        with pytest.raises(ShortReadError, match="5 bytes"):
            store.get_range("a/c/0", *span)
    assert store.get_range("a/c/1", 0, 1) is None
    assert store.size("a/c/1") is None


def test_keys_that_icechunk_cannot_have_are_errors_that_name_them(store):
    for action in (lambda: store.put("a/other", b"x"), lambda: store.get("a/other"), lambda: store.exists("other")):
        with pytest.raises(OSError, match=r"other.*invalid zarr key") as caught:
            action()
        assert isinstance(caught.value.__cause__, icechunk.IcechunkError)
    with pytest.raises(OSError, match=r"\.z.*Zarr 3 only.*zarr_format=3"):
        zellige.create_array(store, name="a", shape=3, dtype="i4", zarr_format=2)


def test_numbers_in_attributes_that_icechunk_does_not_take_are_named(store):
    root = zellige.create_group(store, attributes={"kept": 1})
    words = r"attributes\.limits\[1\] is inf, and icechunk takes strict JSON only"
    with pytest.raises(OSError, match=words):
        root.attrs["limits"] = [0, float("inf")]
    with pytest.raises(OSError, match=words):
        root.create_array("a", shape=3, attributes={"limits": [0, float("inf")]})
    assert zellige.open_group(store).attrs.asdict() == {"kept": 1}
    assert list(root) == []


def test_prefixes_without_a_node_are_listed(store):
    zellige.create_array(store, name="g/a", data=np.arange(16).reshape(4, 4), chunks=2)
    assert sorted(store.list("g/a/c/1/")) == ["g/a/c/1/0", "g/a/c/1/1"]
    assert store.list_dir("g/a/c/") == ([], ["g/a/c/0/", "g/a/c/1/"])
    assert store.list_dir("g/a/c/1/") == (["g/a/c/1/0", "g/a/c/1/1"], [])
    assert store.list_dir("g/") == (["g/zarr.json"], ["g/a/"])
    assert store.list_dir("none/at/all/") == ([], [])
    assert list(store.list("none/")) == []
    store.delete_prefix("none/")
    store.delete(["none/c/0"])
    store.delete(["g/a/c/9/9"])
    store.delete_prefix("g/a/")
    assert sorted(store.list()) == ["g/zarr.json", "zarr.json"]


def test_a_scalar_has_its_only_chunk(store):
    zellige.create_array(store, name="s", data=np.array(7))
    assert zellige.open_array(store, path="s")[()] == 7
    assert store.list_dir("s/")[0] == ["s/c", "s/zarr.json"]


def test_consolidated_metadata_is_kept(store):
    group = zellige.group(store)
    group.create_array("a", data=np.arange(3))
    zellige.consolidate_metadata(store)
    assert "a" in zellige.open_consolidated(store)


@GRIDS
def test_rectilinear_grids_are_written_as_runs_and_grow(repository, session, store):
    array = zellige.create_array(store, name="a", data=MODEL, chunks=[5, [1, 30]], fill_value=-1)
    stored = json.loads(store.get("a/zarr.json"))["chunk_grid"]["configuration"]["chunk_shapes"]
    assert all(isinstance(axis, list) for axis in stored)
    array.append(MODEL[:9])
    array.resize((0, 31))
    array.resize((12, 31))
    array[...] = MODEL[:12]
    session.commit("grid")
    found = zellige.open_array(ZarrPythonStore(repository.readonly_session("main").store), path="a")
    assert np.array_equal(found[...], MODEL[:12])
    assert found.write_chunk_sizes[1] == (1, 30)


@GRIDS
def test_a_consolidated_group_with_sizes_and_edges_is_copied_into_a_session_and_sound(repository, session, store):
    """icechunk spells the size of an axis as runs, in the array's own document only."""
    source = zellige.group().create_group("g")
    source.create_array("a", data=MODEL, chunks=[5, [1, 30]], fill_value=-1)
    zellige.consolidate_metadata(source.store, "g")
    zellige.copy(zellige.open_group(source.store, path="g"), zellige.group(store), "g", verify=True)
    assert json.loads(store.get("g/a/zarr.json")) != json.loads(source.store.get("g/a/zarr.json"))
    session.commit("copied")
    for place in (store, ZarrPythonStore(repository.readonly_session("main").store)):
        assert zellige.validate(place, deep=True).findings == ()
        found = zellige.open_consolidated(place, path="g", check=True)["a"]
        assert np.array_equal(found[...], MODEL)


@pytest.mark.skipif(VERSION >= 2, reason="icechunk 2 has rectilinear grids")
def test_version_1_refuses_rectilinear_grids_with_the_remedy(store):
    with pytest.raises(OSError, match=r"'a/zarr.json'.*regular chunks only.*icechunk 2"):
        zellige.create_array(store, name="a", shape=10, dtype="i4", chunks=[[3, 7]])


@pytest.mark.parametrize(
    ("shape", "given", "expected"),
    [
        ([10, 10], [4, [[5, 2]]], [[[4, 3]], [[5, 2]]]),
        ([10, 0], [10, 3], [[[10, 1]], [[3, 1]]]),
        ([7], [[3, 4]], [[3, 4]]),
    ],
)
def test_only_the_spelling_of_sizes_changes(shape, given, expected):
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": given}}
    document = {"shape": shape, "chunk_grid": grid, "fill_value": "NaN", "attributes": {"ü": [1, 2.5, None]}}
    found = json.loads(with_runs(json.dumps(document).encode()))
    assert found.pop("chunk_grid")["configuration"]["chunk_shapes"] == expected
    assert found == {key: value for key, value in document.items() if key != "chunk_grid"}


@pytest.mark.parametrize("value", [b"", b"\xff\0", b'"rectilinear"', b'{"chunk_grid": "rectilinear"}', b"{}"])
def test_what_is_no_rectilinear_document_stays_as_it_is(value):
    assert with_runs(value) is value


def test_a_chunk_that_looks_like_a_document_stays_as_it_is(store):
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [4]}}
    value = json.dumps({"shape": [10], "chunk_grid": grid}).encode()
    array = zellige.create_array(store, name="a", data=np.frombuffer(value, "u1"), compressors=None)
    assert array[...].tobytes() == store.get("a/c/0") == value


def test_virtual_references_are_read(tmp_path):
    model = np.arange(12, dtype="<i4")
    (tmp_path / "data.bin").write_bytes(b"head" + model.tobytes())
    url = f"file://{tmp_path}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(url, icechunk.local_filesystem_store(str(tmp_path)))
    )
    repository = icechunk.Repository.create(
        icechunk.in_memory_storage(),
        config,
        authorize_virtual_chunk_access=icechunk.containers_credentials({url: None}),
    )
    session = repository.writable_session("main")
    store = ZarrPythonStore(session.store)
    array = zellige.create_array(store, name="a", shape=12, dtype="<i4", chunks=6, compressors=None)
    for number in range(2):
        session.store.set_virtual_ref(f"a/c/{number}", f"{url}data.bin", offset=4 + 24 * number, length=24)
    assert np.array_equal(array[...], model)
    assert array[7] == 7
    assert store.size("a/c/1") == 24
    session.commit("virtual")
    kept = zellige.open_array(ZarrPythonStore(repository.readonly_session("main").store), path="a")
    assert np.array_equal(kept[3:9], model[3:9])


@pytest.mark.parametrize("options", [{}, {"chunks": 3}], ids=["as stored", "encoded anew"])
def test_hierarchies_are_copied_into_a_session_and_out_of_it(store, options):
    source, back = zellige.stores.MemoryStore(), zellige.stores.MemoryStore()
    zellige.group(source).create_array("g/a", data=MODEL, chunks=(5, 7))
    zellige.copy(zellige.open_group(source)["g"], zellige.group(store), name="g")
    if options:
        zellige.copy(zellige.open_array(source, path="g/a"), zellige.open_group(store), name="b", **options)
        assert np.array_equal(zellige.open_array(store, path="b")[...], MODEL)
    zellige.copy_store(store, back)
    assert np.array_equal(zellige.open_array(back, path="g/a")[...], MODEL)
    zellige.copy_store(source, store, dest_path="copy")
    assert np.array_equal(zellige.open_array(store, path="copy/g/a")[...], MODEL)


def test_zarr_python_reads_what_we_committed(repository, session, store):
    zarr = pytest.importorskip("zarr", reason="zarr-python is not installed")
    zellige.create_array(store, name="a", data=MODEL, chunks=(5, 7), shards=(10, 14))
    session.commit("ours")
    found = zarr.open_array(repository.readonly_session("main").store, path="a", mode="r")
    assert np.array_equal(found[...], MODEL)
