"""Consolidated metadata: its form, its use, and that no change made through its group leaves it behind."""

from __future__ import annotations

import json
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

import zellige
from counting_store import CountingStore, contents
from documents import document
from zellige.errors import CompatibilityWarning, NodeNotFoundError, StaleMetadataError
from zellige.metadata import GroupMetadata
from zellige.stores import LocalStore, MemoryStore, Store

FORMATS = [3, 2]
GROUP = {"zarr_format": 3, "node_type": "group"}
ARRAY_V2 = {
    "zarr_format": 2,
    "shape": [2],
    "chunks": [2],
    "dtype": "<i2",
    "compressor": None,
    "fill_value": 0,
    "order": "C",
    "filters": None,
}


@pytest.fixture(params=FORMATS, ids=["v3", "v2"])
def zarr_format(request) -> int:
    return request.param


@cache
def _family(zarr_format: int, path: str) -> dict[str, bytes]:
    store: dict[str, bytes] = {}
    root = zellige.create_group(store, path=path, zarr_format=zarr_format, attributes={"is": "root"})
    root.create_group("a/b", attributes={"is": "b"})
    root.create_array("a/b/v", data=np.arange(6, dtype="int16"), chunks=2, attributes={"is": "v"})
    root.create_array("a/u", data=np.arange(4, dtype="int32"), chunks=2)
    root.create_array("t", data=np.arange(3, dtype="float64"), chunks=3)
    root.create_group("z")
    return store


@pytest.fixture
def few_threads() -> Iterator[None]:
    """Many small hierarchies are listed faster without threads."""
    with zellige.config.set({"threading.max_workers": 1}):
        yield


def family(store: Store, zarr_format: int = 3, path: str = "") -> zellige.Group:
    """A group with members; made once, and copied after that."""
    for key, raw in _family(zarr_format, path).items():
        store.put(key, raw)
    return zellige.open_group(store, path=path)


PATHS = ["a", "a/b", "a/b/v", "a/u", "t", "z"]


def stored(store: Store, key: str) -> Any:
    raw = store.get(key)
    return None if raw is None else json.loads(raw)


def seen(group: zellige.Group) -> dict[str, Any]:
    """What a group says about all nodes below it."""
    return {
        path: (type(node).__name__, node.metadata.to_dict(), dict(node.attrs))
        for path, node in group.members(max_depth=None)
    }


def fresh(group: zellige.Group) -> dict[str, Any]:
    """What is really there."""
    return seen(zellige.open_group(group.store, path=group.path, use_consolidated=False))


# -- its form -------------------------------------------------------------------------------------


def test_the_block_of_v3_holds_all_documents_by_depth_and_name():
    store = MemoryStore()
    root = family(store)
    before = contents(store)
    root.consolidate_metadata()
    found = stored(store, "zarr.json")
    assert found == {
        "zarr_format": 3,
        "node_type": "group",
        "attributes": {"is": "root"},
        "consolidated_metadata": {
            "kind": "inline",
            "must_understand": False,
            "metadata": {
                "a": GROUP,
                "t": stored(store, "t/zarr.json"),
                "z": GROUP,
                "a/b": {**GROUP, "attributes": {"is": "b"}},
                "a/u": stored(store, "a/u/zarr.json"),
                "a/b/v": stored(store, "a/b/v/zarr.json"),
            },
        },
    }
    assert list(found["consolidated_metadata"]["metadata"]) == ["a", "t", "z", "a/b", "a/u", "a/b/v"]
    assert found["consolidated_metadata"]["metadata"]["a/b/v"]["attributes"] == {"is": "v"}
    after = contents(store)
    assert after.keys() == before.keys()
    assert [key for key in after if after[key] != before[key]] == ["zarr.json"]


def test_the_zmetadata_of_v2_holds_all_documents_by_key():
    store = MemoryStore()
    root = family(store, zarr_format=2)
    before = contents(store)
    root.consolidate_metadata()
    group = {"zarr_format": 2}
    assert stored(store, ".zmetadata") == {
        "zarr_consolidated_format": 1,
        "metadata": {
            ".zattrs": {"is": "root"},
            ".zgroup": group,
            "a/.zgroup": group,
            "a/b/.zattrs": {"is": "b"},
            "a/b/.zgroup": group,
            "a/b/v/.zarray": stored(store, "a/b/v/.zarray"),
            "a/b/v/.zattrs": {"is": "v"},
            "a/u/.zarray": stored(store, "a/u/.zarray"),
            "t/.zarray": stored(store, "t/.zarray"),
            "z/.zgroup": group,
        },
    }
    after = contents(store)
    assert after.pop(".zmetadata")
    assert after == before


def test_a_group_without_members_has_an_empty_block(zarr_format):
    store = MemoryStore()
    zellige.create_group(store, zarr_format=zarr_format).consolidate_metadata()
    if zarr_format == 3:
        assert stored(store, "zarr.json")["consolidated_metadata"]["metadata"] == {}
    else:
        assert stored(store, ".zmetadata")["metadata"] == {".zgroup": {"zarr_format": 2}}
    assert zellige.open_consolidated(store, check=True).members(max_depth=None) == ()


def test_any_group_may_have_its_own_and_the_paths_are_relative_to_it(zarr_format):
    store = MemoryStore()
    root = family(store, zarr_format)
    before = contents(store)
    found = root["a"].consolidate_metadata()
    assert found.path == "a"
    assert {path for path, _ in found.members(None)} == {"b", "b/v", "u"}
    changed = {key for key, raw in contents(store).items() if before.get(key) != raw}
    assert changed == {"a/zarr.json" if zarr_format == 3 else "a/.zmetadata"}
    entries = (
        stored(store, "a/zarr.json")["consolidated_metadata"]["metadata"]
        if zarr_format == 3
        else stored(store, "a/.zmetadata")["metadata"]
    )
    assert {key.rpartition("/.z")[0] if zarr_format == 2 else key for key in entries} - {""} == {"b", "b/v", "u"}
    assert zellige.open_consolidated(store, path="a", check=True)["b/v"][...].tolist() == list(range(6))
    with pytest.raises(ValueError, match="no consolidated metadata"):
        zellige.open_consolidated(store)


def test_the_copy_of_a_group_has_no_block_of_its_own():
    store = MemoryStore()
    root = family(store)
    root["a"].consolidate_metadata()
    root.consolidate_metadata()
    assert stored(store, "zarr.json")["consolidated_metadata"]["metadata"]["a"] == GROUP
    assert "consolidated_metadata" in stored(store, "a/zarr.json")


def test_consolidating_again_replaces_what_was_there(zarr_format):
    store = MemoryStore()
    root = family(store, zarr_format)
    root.consolidate_metadata()
    other = zellige.open_group(store, path="a")  # does not know of the block above it
    other.create_group("new")
    other["u"].attrs["x"] = 1
    del other["b"]
    with pytest.raises(StaleMetadataError):
        zellige.open_consolidated(store, check=True)
    found = zellige.consolidate_metadata(store)
    assert sorted(seen(found)) == ["a", "a/new", "a/u", "t", "z"]
    assert seen(zellige.open_consolidated(store, check=True)) == fresh(root) == seen(found)


def test_unknown_fields_and_attributes_survive_consolidating():
    extra = {"must_understand": False, "x": 1}
    store = MemoryStore({"zarr.json": json.dumps({**GROUP, "attributes": {"a": 1}, "extra": extra}).encode()})
    zellige.consolidate_metadata(store)
    found = stored(store, "zarr.json")
    assert (found["extra"], found["attributes"]) == (extra, {"a": 1})


def test_consolidating_by_a_handle_that_missed_a_change_tells_what_is_stored(zarr_format):
    store = MemoryStore()
    old = family(store, zarr_format)
    zellige.open_group(store).attrs["new"] = 1
    old.consolidate_metadata()
    assert zellige.open_consolidated(store, check=True).attrs == {"is": "root", "new": 1}
    assert zellige.open_group(store, use_consolidated=False).attrs == {"is": "root", "new": 1}


def test_literal_constants_in_attributes_are_no_difference(zarr_format):
    store = MemoryStore()
    family(store, zarr_format)
    if zarr_format == 3:
        store.put("z/zarr.json", b'{"zarr_format": 3, "node_type": "group", "attributes": {"x": [NaN, Infinity]}}')
    else:
        store.put("z/.zattrs", b'{"x": [NaN, Infinity]}')
    zellige.consolidate_metadata(store)
    zellige.open_consolidated(store, check=True)
    held = store.get("zarr.json") if zarr_format == 3 else store.get(".zmetadata")
    assert held is not None
    assert b"[NaN, Infinity]" in held


# -- what others make of it -----------------------------------------------------------------------


def uneven(store: MemoryStore) -> zellige.Group:
    root = zellige.create_group(store)
    root.create_array("even", data=[1, 2])
    for name in ("months", "sub/days"):
        root.create_array(name, data=np.arange(59), chunks=[[31, 28]])
    return root


CONSOLIDATING = {
    "function": lambda root: zellige.consolidate_metadata(root.store),
    "method": lambda root: root.consolidate_metadata(),
    "below": lambda root: zellige.consolidate_metadata(root.store, "sub"),
}


@pytest.mark.parametrize("how", CONSOLIDATING)
def test_rectilinear_members_are_named_with_what_zarr_python_needs(how):
    root = uneven(MemoryStore())
    with pytest.warns(CompatibilityWarning) as caught:
        held = CONSOLIDATING[how](root)
    (warning,) = caught
    words = str(warning.message)
    assert "'days'" in words if how == "below" else "'months', 'sub/days'" in words
    assert "'even'" not in words
    assert "zarr.config.set({'array.rectilinear_chunks': True})" in words
    assert "use_consolidated=False" in words
    assert warning.filename == __file__  # where it was called
    assert held.metadata.consolidated is not None


def test_many_rectilinear_members_are_counted():
    root = zellige.create_group(MemoryStore())
    for k in range(8):
        root.create_array(f"x{k}", shape=3, chunks=[[1, 2]])
    with pytest.warns(CompatibilityWarning, match=r"'x0', 'x1', 'x2', 'x3', 'x4' and 3 more"):
        root.consolidate_metadata()


def test_regular_members_are_nothing_to_warn_of(zarr_format):
    root = zellige.create_group(MemoryStore(), zarr_format=zarr_format)
    root.create_array("a", data=np.arange(6), chunks=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        root.consolidate_metadata()


def test_repairing_consolidated_metadata_repeats_no_warning():
    root = uneven(MemoryStore())
    with pytest.warns(CompatibilityWarning):
        root.consolidate_metadata()
    zellige.open_group(root.store, path="sub", use_consolidated=False).attrs["a"] = 1
    assert not zellige.validate(root.store).ok
    zellige.repair(root.store, dry_run=False)
    assert zellige.validate(root.store).ok


# -- as others write it ---------------------------------------------------------------------------


def test_blocks_as_others_write_them():
    empty = {"kind": "inline", "must_understand": False, "metadata": {}}
    nested = {**GROUP, "attributes": {}, "consolidated_metadata": empty}
    block = {
        **empty,
        "metadata": {"a": nested, "/a/b": nested, "a/b/x": document(attributes={}, storage_transformers=[])},
    }
    store = MemoryStore({"zarr.json": json.dumps({**GROUP, "consolidated_metadata": block}).encode()})
    for path in ("a", "a/b"):
        store.put(f"{path}/zarr.json", json.dumps(GROUP).encode())
    store.put("a/b/x/zarr.json", json.dumps(document()).encode())
    root = zellige.open_consolidated(store, check=True)
    assert [path for path, _ in root.members(None)] == ["a", "a/b", "a/b/x"]
    assert root["a"]["b/x"].shape == (4, 6)
    root["a"].create_group("new")
    root["a/b/x"].attrs["y"] = 1
    assert sorted(seen(zellige.open_consolidated(store, check=True))) == ["a", "a/b", "a/b/x", "a/new"]


def test_zmetadata_as_others_write_it():
    extra = {"consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": {}}}
    keys = {
        ".zgroup": {"zarr_format": 2},
        ".zattrs": {"x": 1},
        "a/.zgroup": {"zarr_format": 2, **extra},
        "a/t/.zarray": ARRAY_V2,
        "a/t/.zattrs": {},
    }
    store = MemoryStore({key: json.dumps(found).encode() for key, found in keys.items()})
    store.put("a/.zgroup", b'{"zarr_format": 2}')
    store.put(".zmetadata", json.dumps({"zarr_consolidated_format": 1, "metadata": keys}).encode())
    root = zellige.open_consolidated(store, check=True)
    assert root.attrs == {"x": 1}
    assert [path for path, _ in root.members(None)] == ["a", "a/t"]
    assert root["a/t"].shape == (2,)
    root["a"].attrs["y"] = 2
    assert zellige.open_consolidated(store, check=True)["a"].attrs == {"y": 2}


def test_null_is_as_good_as_nothing():
    store = MemoryStore({"zarr.json": json.dumps({**GROUP, "consolidated_metadata": None}).encode()})
    root = zellige.open_group(store)
    root.create_group("a")
    assert list(root) == ["a"]
    with pytest.raises(ValueError, match="no consolidated metadata"):
        zellige.open_consolidated(store)
    zellige.consolidate_metadata(store)
    assert list(zellige.open_consolidated(store, check=True)) == ["a"]


UNKNOWN = {"kind": "parquet", "must_understand": False, "location": "elsewhere", "metadata": {"ghost": GROUP}}


def test_an_unknown_kind_is_ignored_and_kept():
    store = MemoryStore({"zarr.json": json.dumps({**GROUP, "consolidated_metadata": UNKNOWN}).encode()})
    root = zellige.open_group(store)
    root.create_group("a")
    root.attrs["x"] = 1
    root["a"].attrs["y"] = 2
    root.move("a", "b")
    assert list(root) == ["b"]
    assert "ghost" not in root
    assert stored(store, "zarr.json") == {**GROUP, "attributes": {"x": 1}, "consolidated_metadata": UNKNOWN}
    with pytest.raises(ValueError, match="no consolidated metadata"):
        zellige.open_consolidated(store)


def test_consolidating_replaces_an_unknown_kind():
    store = MemoryStore({"zarr.json": json.dumps({**GROUP, "consolidated_metadata": UNKNOWN}).encode()})
    zellige.open_group(store).create_group("a")
    zellige.consolidate_metadata(store)
    assert list(zellige.open_consolidated(store, check=True)) == ["a"]


# -- its use --------------------------------------------------------------------------------------


def ghost(store: Store, zarr_format: int) -> None:
    """Consolidate, and then remove everything below: what is still seen comes from the consolidated metadata."""
    family(store, zarr_format).consolidate_metadata()
    for path in ("a", "t", "z"):
        store.delete_prefix(f"{path}/")


def test_it_is_used_where_it_is_unless_refused(zarr_format):
    store = MemoryStore()
    ghost(store, zarr_format)
    for root in (
        zellige.open_group(store),
        zellige.open_group(store, mode="r"),
        zellige.open_group(store, use_consolidated=True),
        zellige.open(store),
        zellige.open_consolidated(store),
        zellige.open_group(store, zarr_format=zarr_format),
    ):
        assert sorted(path for path, _ in root.members(None)) == PATHS
        assert "a/b/v" in root
        assert root["a"]["b"].attrs["is"] == "b"
        assert sorted(root["a"]) == ["b", "u"]
        assert len(root) == 3
        assert root.members(None, use_consolidated_for_children=False) == ()
    for root in (
        zellige.open_group(store, use_consolidated=False),
        zellige.open(store, use_consolidated=False),
        zellige.open(store, use_consolidated=False, mode="r"),
    ):
        assert root.members(None) == ()
        assert "a" not in root
        with pytest.raises(NodeNotFoundError):
            root["a"]
        assert root.attrs["is"] == "root"


def test_what_is_not_in_it_is_not_seen(zarr_format):
    store = MemoryStore()
    root = family(store, zarr_format)
    root.consolidate_metadata()
    zellige.create_group(store, path="a/late", zarr_format=zarr_format)
    found = zellige.open_group(store)
    assert "a/late" not in found
    assert sorted(found["a"]) == ["b", "u"]
    assert "a/late" in zellige.open_group(store, use_consolidated=False)


def test_it_can_be_demanded(zarr_format):
    store = MemoryStore()
    family(store, zarr_format)
    for opened in (
        lambda: zellige.open_group(store, use_consolidated=True),
        lambda: zellige.open_consolidated(store),
        lambda: zellige.open_consolidated(store, path="a"),
        lambda: zellige.open_group(store, check=True),
        lambda: zellige.open(store, use_consolidated=True),
    ):
        with pytest.raises(ValueError, match="no consolidated metadata"):
            opened()
    with pytest.raises(TypeError):
        zellige.open_consolidated(store, use_consolidated=False)


def test_opening_by_it_never_creates_a_group(tmp_path):
    for mode in (None, "r", "r+"):
        with pytest.raises(NodeNotFoundError):
            zellige.open_consolidated(tmp_path / "absent", mode=mode)
    assert list(tmp_path.iterdir()) == []


def test_it_can_be_read_only(zarr_format):
    store = MemoryStore()
    family(store, zarr_format).consolidate_metadata()
    for root in (zellige.open_consolidated(store.as_read_only()), zellige.open_consolidated(store, mode="r")):
        assert root.read_only
        assert root["a/u"].read_only
        with pytest.raises(PermissionError):
            root["a"].attrs["x"] = 1
    assert not zellige.open_consolidated(store).read_only


def test_a_pickled_group_still_uses_it(tmp_path, zarr_format):
    ghost(LocalStore(tmp_path), zarr_format)
    root = zellige.open_consolidated(tmp_path)
    for group, names in ((root, ["a", "t", "z"]), (root["a"], ["b", "u"])):
        copy = pickle.loads(pickle.dumps(group))
        assert copy == group
        assert sorted(copy) == names
    without = pickle.loads(pickle.dumps(zellige.open_group(tmp_path, use_consolidated=False)))
    assert list(without) == []


def test_a_pickle_does_not_carry_the_documents():
    store = LocalStore("/nowhere")
    entries = {f"a{number}": {"zarr.json": document()} for number in range(1000)}
    group = zellige.Group(store, "", GroupMetadata(consolidated=entries))
    assert len(group) == 1000
    assert len(pickle.dumps(group)) < 1000
    assert len(pickle.dumps(group["a5"])) < 3000


# -- comparing ------------------------------------------------------------------------------------


def behind_its_back(store: Store, path: str, zarr_format: int) -> Any:
    """A node, reached without the consolidated metadata above it."""
    return zellige.open(store, path=path, zarr_format=zarr_format)


STALE: dict[str, tuple[Callable[[Store, int], Any], list[str]]] = {
    "added group": (lambda s, f: zellige.create_group(s, path="a/new", zarr_format=f), ["a/new"]),
    "added array": (lambda s, f: zellige.zeros(2, dtype="i1", store=s, path="new", zarr_format=f), ["new"]),
    "removed array": (lambda s, f: s.delete_prefix("a/u/"), ["a/u"]),
    "removed group": (lambda s, f: s.delete_prefix("a/b/"), ["a/b", "a/b/v"]),
    "changed attribute of a group": (lambda s, f: behind_its_back(s, "a/b", f).attrs.update(x=1), ["a/b"]),
    "removed attribute of an array": (lambda s, f: behind_its_back(s, "a/b/v", f).attrs.clear(), ["a/b/v"]),
    "resized": (lambda s, f: behind_its_back(s, "a/u", f).resize(2), ["a/u"]),
    "replaced by a group": (lambda s, f: zellige.create_group(s, path="t", overwrite=True, zarr_format=f), ["t"]),
    "several": (
        lambda s, f: (s.delete_prefix("z/"), zellige.create_group(s, path="y", zarr_format=f)),
        ["y", "z"],
    ),
}


@pytest.mark.parametrize("change", STALE)
def test_changes_by_others_are_found_and_named(zarr_format, change):
    store = MemoryStore()
    family(store, zarr_format).consolidate_metadata()
    zellige.open_consolidated(store, check=True)
    make, places = STALE[change]
    make(store, zarr_format)
    for opened in (
        lambda: zellige.open_consolidated(store, check=True),
        lambda: zellige.open_group(store, check=True, mode="r"),
    ):
        with pytest.raises(StaleMetadataError) as found:
            opened()
        assert isinstance(found.value, ValueError)
        assert [text.split("'")[1] for text in found.value.differences] == places
        assert all(f"'{place}'" in str(found.value) for place in places)
    zellige.open_consolidated(store)  # unless asked for, it is not checked
    zellige.consolidate_metadata(store)
    zellige.open_consolidated(store, check=True)


def test_differences_say_what_kind_of_change_it_was(zarr_format):
    store = MemoryStore()
    family(store, zarr_format).consolidate_metadata()
    zellige.create_group(store, path="added", zarr_format=zarr_format)
    store.delete_prefix("t/")
    behind_its_back(store, "z", zarr_format).attrs["x"] = 1
    with pytest.raises(StaleMetadataError) as found:
        zellige.open_consolidated(store, check=True)
    texts = {text.split("'")[1]: text.split("'", 2)[2] for text in found.value.differences}
    assert texts.keys() == {"added", "t", "z"}
    assert len(set(texts.values())) == 3


def test_the_attributes_of_a_v2_group_itself_are_compared_too():
    store = MemoryStore()
    family(store, zarr_format=2).consolidate_metadata()
    store.put(".zattrs", b'{"is": "another"}')
    with pytest.raises(StaleMetadataError) as found:
        zellige.open_consolidated(store, check=True)
    assert len(found.value.differences) == 1


def test_many_differences_make_no_long_message():
    store = MemoryStore()
    root = zellige.create_group(store)
    root.consolidate_metadata()
    for number in range(100):
        store.put(f"{number}/zarr.json", json.dumps(GROUP).encode())
    with pytest.raises(StaleMetadataError) as found:
        zellige.open_consolidated(store, check=True)
    assert len(found.value.differences) == 100
    assert len(str(found.value)) < 1000


OTHER_SPELLINGS = {  # of an array of shape (10, 6) in chunks of 5 and of 1 and 5
    "sizes as runs": {
        "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[[5, 2]], [1, 5]]}}
    },
    "all as runs": {
        "chunk_grid": {
            "name": "rectilinear",
            "configuration": {"kind": "inline", "chunk_shapes": [[[5, 2]], [[1, 1], [5, 1]]]},
        }
    },
    "edges": {
        "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[5, 5], [1, 5]]}}
    },
    "type as an object": {"data_type": {"name": "float32"}},
    "keys as a name": {"chunk_key_encoding": "default"},
    "fill value by its bits": {"fill_value": "0x7fc00000"},
    "codecs by name": {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, "crc32c"]},
}
OTHERS = {
    "edges in another order": {
        "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [5, [5, 1]]}}
    },
    "more edges": {
        "chunk_grid": {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [5, [1, 5, 1]]}}
    },
    "another fill value": {"fill_value": "0x7fc00001"},
    "another grid": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [5, 6]}}},
}


@pytest.mark.parametrize("held", [False, True], ids=["in the store", "held"])
@pytest.mark.parametrize("name", [*OTHER_SPELLINGS, *OTHERS])
def test_documents_are_compared_by_what_they_mean(name, held):
    store = MemoryStore()
    root = zellige.group(store)
    options = {"fill_value": np.nan, "compressors": None, "checksum": True}
    root.create_array("a", shape=(10, 6), chunks=[5, [1, 5]], dtype="float32", **options)
    with pytest.warns(CompatibilityWarning):
        zellige.consolidate_metadata(store)
    own, all_of_it = json.loads(store.get("a/zarr.json")), json.loads(store.get("zarr.json"))
    changed = {**own, **(OTHER_SPELLINGS | OTHERS)[name]}
    assert changed != own
    if held:
        all_of_it["consolidated_metadata"]["metadata"]["a"] = changed
        store.put("zarr.json", json.dumps(all_of_it).encode())
    else:
        store.put("a/zarr.json", json.dumps(changed).encode())
    found = [finding for finding in zellige.validate(store).findings if finding.level == "error"]
    if name in OTHER_SPELLINGS:
        assert found == []
        zellige.open_consolidated(store, check=True)
    else:
        assert [finding.message for finding in found] == ["'a' has other metadata in the store"]
        with pytest.raises(StaleMetadataError):
            zellige.open_consolidated(store, check=True)


def test_what_means_the_same_is_no_difference(zarr_format):
    store = MemoryStore()
    family(store, zarr_format).consolidate_metadata()
    if zarr_format == 3:
        content = stored(store, "a/u/zarr.json")
        rewritten = {"attributes": {}, **dict(reversed(content.items())), "storage_transformers": []}
        store.put("a/u/zarr.json", json.dumps(rewritten, indent=7).encode())
    else:
        store.put("a/u/.zattrs", b"{}")
    zellige.open_consolidated(store, check=True)


# -- never behind ---------------------------------------------------------------------------------


def hierarchy(root: zellige.Group, **options: Any) -> Any:
    group = GroupMetadata({"h": 1}, zarr_format=root.metadata.zarr_format)
    return root.create_hierarchy({"a/new/deep": group, "t2": root["t"].metadata, "a/b": group}, **options)


class Unreadable:
    """Something array-like that breaks when it is read."""

    shape = (3,)
    dtype = np.dtype("int8")

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise OSError("broken")


def fail(what: Callable[[], Any]) -> None:
    with pytest.raises((OSError, ValueError)):
        what()


CHANGES: dict[str, Callable[[zellige.Group], Any]] = {
    "nothing": lambda g: None,
    "create_group": lambda g: g.create_group("new", attributes={"x": 1}),
    "create_group deep": lambda g: g.create_group("new/deep/er"),
    "create_group in a member": lambda g: g["a"].create_group("new/deep"),
    "create_group in a member's member": lambda g: g["a"]["b"].create_group("new"),
    "create_group in a new one": lambda g: g.create_group("new").create_group("deep").create_group("er"),
    "overwrite a group by a group": lambda g: g.create_group("a", overwrite=True),
    "overwrite an array by a group": lambda g: g["a"].create_group("u", overwrite=True),
    "require_group": lambda g: g.require_group("new/deep"),
    "require_group that is there": lambda g: g.require_group("a/b").attrs.update(x=1),
    "require_group anew": lambda g: g.require_group("a", overwrite=True),
    "require_groups": lambda g: g.require_groups("new", "a", "new/deep"),
    "create_array": lambda g: g.create_array("new/t", shape=3, dtype="int8", attributes={"x": 1}),
    "create_array in a member": lambda g: g["a"].create_array("new", data=[1, 2]),
    "overwrite a group by an array": lambda g: g.create_array("a", data=[1], overwrite=True),
    "overwrite an array by an array": lambda g: g.create_array("t", data=[1], overwrite=True),
    "overwrite a group by zeros with mode w": lambda g: g.zeros(name="a", shape=2, dtype="i1", mode="w"),
    "require_array": lambda g: g.require_array("new", shape=2, dtype="int8"),
    "array": lambda g: g.array("new", [1, 2]),
    "zeros": lambda g: g.zeros(name="new", shape=2, dtype="int8"),
    "full_like": lambda g: g.full_like(name="a/new", data=g["t"], fill_value=3),
    "setitem": lambda g: g.__setitem__("new/x", [1, 2]),
    "setitem in place": lambda g: g.__setitem__("t", [1, 2, 3, 4]),
    "setitem in a member": lambda g: g["a"].__setitem__("u", [1.5]),
    "create_hierarchy": lambda g: (g.__delitem__("a/b"), hierarchy(g)),
    "create_hierarchy anew": lambda g: hierarchy(g, overwrite=True),
    "create_hierarchy in a member": lambda g: g["a"].create_hierarchy(
        {"new/deep": GroupMetadata(zarr_format=g.metadata.zarr_format)}
    ),
    "use what create_hierarchy made": lambda g: [node.attrs.update(x=1) for _, node in hierarchy(g, overwrite=True)],
    "delete an array": lambda g: g.__delitem__("a/b/v"),
    "delete a group": lambda g: g.__delitem__("a"),
    "delete in a member": lambda g: g["a"].__delitem__("b"),
    "delete all": lambda g: [g.__delitem__(name) for name in ("a", "t", "z")],
    "rename an array": lambda g: g.move("t", "s"),
    "rename a group": lambda g: g.move("a", "aa"),
    "move into new groups": lambda g: g.move("a", "new/deep/a"),
    "move up": lambda g: g.move("a/b", "b"),
    "move in a member": lambda g: g["a"].move("b", "new/b"),
    "move twice": lambda g: (g.move("a", "x"), g.move("x/b", "a")),
    "attributes": lambda g: g.attrs.update(x=1),
    "attributes removed": lambda g: g.attrs.clear(),
    "update_attributes": lambda g: g.update_attributes({"x": [1]}).update_attributes({"y": 2}),
    "attributes of a group": lambda g: g["a/b"].attrs.update(x=1),
    "attributes of a group removed": lambda g: g["a"]["b"].attrs.clear(),
    "attributes of an array": lambda g: g["a/b/v"].attrs.update(x=1),
    "attributes of an array removed": lambda g: g["a/b/v"].attrs.clear(),
    "attributes of what is listed": lambda g: [node.attrs.update(x=1) for _, node in g.members(max_depth=None)],
    "attributes of what is listed without it": lambda g: [
        node.attrs.update(x=1) for _, node in g.members(max_depth=None, use_consolidated_for_children=False)
    ],
    "attributes of what was made": lambda g: g.create_group("new/deep").attrs.update(x=1),
    "attributes of an array that was made": lambda g: g["a"].create_array("new", data=[1]).attrs.update(x=1),
    "attributes of what was moved": lambda g: (g.move("a", "c"), g["c/b/v"].attrs.update(x=1)),
    "resize": lambda g: g["a/u"].resize(9),
    "shrink": lambda g: g["a"]["u"].resize(1),
    "set the shape": lambda g: setattr(g["t"], "shape", (7,)),
    "append": lambda g: g["a/u"].append([7, 8, 9]),
    "resize what was made": lambda g: g.create_array("new", shape=3, dtype="int8").resize(5),
    "resize with another config": lambda g: g["t"].with_config({"write_empty_chunks": True}).resize(7),
    "values": lambda g: g["t"].__setitem__(slice(None), 7),
    "after refresh": lambda g: (g.refresh(), g["a"].create_group("new")),
    "after refresh of a member": lambda g: refreshed(g["a"]).create_group("new"),
    "attributes after refresh of a member": lambda g: refreshed(g["a/b"]).attrs.update(x=1),
    "resize after refresh of an array": lambda g: refreshed(g["a/u"]).resize(2),
    "what fails": lambda g: (
        fail(lambda: g.create_group("a")),
        fail(lambda: g.move("a", "t")),
        fail(lambda: g.create_array("a/new", shape=1, chunks=0)),
        fail(lambda: g.create_group("t/x")),
    ),
    "an array whose data cannot be read": lambda g: fail(lambda: g.create_array("new/x", data=Unreadable())),
    "an array in place of a group whose data cannot be read": lambda g: fail(
        lambda: g.create_array("a", data=Unreadable(), overwrite=True)
    ),
    "in a group that was deleted before": lambda g: in_the_ruins(g),
}


def refreshed(node: Any) -> Any:
    node.refresh()
    return node


def in_the_ruins(group: zellige.Group) -> None:
    gone = group["a/b"]
    del group["a"]
    gone.create_group("new")


def held(zarr_format: int, path: str = "") -> zellige.Group:
    """The group that holds consolidated metadata, opened as by default."""
    store = MemoryStore()
    family(store, zarr_format, path).consolidate_metadata()
    return zellige.open_group(store, path=path)


def by_its_own_handle(zarr_format: int) -> zellige.Group:
    root = family(MemoryStore(), zarr_format)
    root.consolidate_metadata()
    return root


WAYS: dict[str, Callable[[int], zellige.Group]] = {
    "opened": held,
    "opened without it": lambda f: zellige.open_group(held(f).store, use_consolidated=False),
    "returned": lambda f: family(MemoryStore(), f).consolidate_metadata(),
    "by its own handle": by_its_own_handle,
    "pickled": lambda f: pickle.loads(pickle.dumps(held(f))),
    "below": lambda f: held(f, "x/y"),
    "reached from above": lambda f: zellige.open_group(held(f, "x/y").store)["x/y"],
}


@pytest.mark.usefixtures("few_threads")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("change", CHANGES)
def test_no_change_leaves_it_behind(zarr_format, way, change):
    group = WAYS[way](zarr_format)
    CHANGES[change](group)
    checked = zellige.open_consolidated(group.store, path=group.path, check=True)
    really = fresh(group)
    assert seen(checked) == really
    assert checked.attrs == zellige.open_group(group.store, path=group.path, use_consolidated=False).attrs
    assert seen(group) == really  # the handle itself knows, too
    assert group.attrs == checked.attrs


@pytest.mark.usefixtures("few_threads")
@pytest.mark.parametrize(
    "change", [change for change in CHANGES if change not in ("in a group that was deleted before",)]
)
def test_two_that_hold_some_are_both_followed(zarr_format, change):
    """A group below holds some, too; changes are made through it, as reached from the group above."""
    store = MemoryStore()
    outer = zellige.create_group(store, zarr_format=zarr_format)
    family(store, zarr_format, "in").consolidate_metadata()
    outer.consolidate_metadata()
    inner = zellige.open_group(store)["in"]
    CHANGES[change](inner)
    zellige.open_consolidated(store, check=True)
    zellige.open_consolidated(store, path="in", check=True)


def test_consolidating_a_member_is_no_reason_to_forget_the_group_above(zarr_format):
    store = MemoryStore()
    family(store, zarr_format).consolidate_metadata()
    inner = zellige.open_group(store)["a"].consolidate_metadata()
    inner.create_group("new")
    inner["u"].attrs["x"] = 1
    zellige.open_consolidated(store, check=True)
    zellige.open_consolidated(store, path="a", check=True)


def test_two_handles_of_one_group_do_not_undo_each_other(zarr_format):
    one = held(zarr_format)
    two = zellige.open_consolidated(one.store)
    one.create_group("by-one")
    two.create_group("by-two")
    one["a"].attrs["x"] = 1
    two["t"].attrs["y"] = 2
    checked = zellige.open_consolidated(one.store, check=True)
    assert {"by-one", "by-two"} <= set(checked)
    for handle in (one, two):
        handle.refresh()
        assert seen(handle) == seen(checked)


def test_pickled_members_follow_their_changes_too(tmp_path, zarr_format):
    family(LocalStore(tmp_path), zarr_format).consolidate_metadata()
    root = zellige.open_group(tmp_path)
    pickle.loads(pickle.dumps(root["a"])).create_group("new/deep")
    pickle.loads(pickle.dumps(root["a/b"])).attrs["x"] = 1
    pickle.loads(pickle.dumps(root["a/u"])).resize(9)
    pickle.loads(pickle.dumps(root))["t"].attrs["x"] = 1
    checked = zellige.open_consolidated(tmp_path, check=True)
    assert seen(checked) == fresh(root)
    assert "a/new/deep" in checked


def test_a_change_that_comes_between_another_and_its_entry_is_not_undone(zarr_format):
    """One handle has written the node but not yet the entry when another one changes the same node."""
    inner = held(zarr_format).store
    holding = "zarr.json" if zarr_format == 3 else ".zmetadata"
    for path in ("a", "a/u"):
        store = CountingStore(inner)
        root = zellige.open_group(store)
        one, two = root[path], root[path]
        other = threading.Thread(target=two.attrs.update, args=({"two": 2},))

        def between(method: str, key: str, other=other) -> None:
            if key == holding and other.ident is None:
                other.start()
                other.join(1)  # goes on if the other one is kept waiting by a lock, which is as good

        store.before = between
        one.attrs["one"] = 1
        other.join()
        assert {"one", "two"} <= zellige.open(inner, path=path).attrs.keys()
        assert {"one", "two"} <= zellige.open_consolidated(inner, check=True)[path].attrs.keys()


def test_a_change_by_another_thread_while_members_are_listed_is_not_lost():
    root = held(3)
    holder = root._holder
    before = holder.entries

    class Changing(dict[str, Any]):
        """Entries that another thread changes while they are looked at."""

        def __iter__(self) -> Iterator[str]:
            holder._entries = {**before, "new": next(iter(before.values()))}
            return super().__iter__()

    holder._entries = Changing(before)
    assert "new" not in holder.children("")
    assert "new" in holder.children("")


def test_changes_by_many_threads_are_all_followed(zarr_format):
    root = held(zarr_format)
    failed: list[Exception] = []

    def work(number: int) -> None:
        try:
            for turn in range(10):
                root.create_group(f"{number}-{turn}").attrs["x"] = turn
                root["a/b"].attrs[f"{number}-{turn}"] = turn
                if turn % 2:
                    del root[f"{number}-{turn}"]
                root.members(max_depth=None)
        except Exception as error:  # noqa: BLE001  (looked at below)
            failed.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    checked = zellige.open_consolidated(root.store, check=True)
    assert seen(checked) == fresh(root) == seen(root)
    assert len(checked) == 3 + 4 * 5
    assert len(checked["a/b"].attrs) == 1 + 4 * 10


def test_what_is_removed_from_the_group_is_not_written_again():
    """Somebody takes the block out; changes through an older handle do not bring it back."""
    group = held(3)
    bare = {key: value for key, value in stored(group.store, "zarr.json").items() if key != "consolidated_metadata"}
    group.store.put("zarr.json", json.dumps(bare).encode())
    group.create_group("new")
    assert "consolidated_metadata" not in stored(group.store, "zarr.json")
    old = held(2)
    old.store.delete([".zmetadata"])
    old.create_group("new")
    assert stored(old.store, ".zmetadata") is None


def test_nothing_is_read_again_to_follow_a_change(zarr_format):
    """Following costs as much as the change, however many members there are."""
    store = CountingStore(held(zarr_format).store)
    root = zellige.open_group(store)
    for change in (
        lambda: root["a/b"].attrs.update(x=1),
        lambda: root["a/u"].resize(9),
        lambda: root.create_group("n"),
    ):
        store.reset()
        change()
        assert not store.made("list", "list_dir")
        assert len(store.calls) < 25
