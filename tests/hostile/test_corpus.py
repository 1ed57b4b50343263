"""Every case of the corpus: the right kind of error that names the place, in bounded memory, and nothing is written."""

from __future__ import annotations

import base64
import warnings
from typing import Any

import hostile_corpus as corpus
import numpy as np
import pytest
from hostile_corpus import CORRUPT, EITHER, ORIGINAL, OTHER, Chunk, Document
from memory import bounded

import zellige
from zellige.errors import BrokenNodeWarning, CorruptChunkError, MetadataError
from zellige.stores import LocalStore, MemoryStore
from zellige.stores.base import is_key

DOCUMENTS, CHUNKS = corpus.documents(), corpus.chunks()
LONGEST_MESSAGE = 10_000

refused = [case for case in DOCUMENTS if "error" in case.given]
accepted = [case for case in DOCUMENTS if "accepted" in case.given and "members" not in case.given["accepted"]]
listed = [case for case in DOCUMENTS if "members" in case.given.get("accepted", ())]


def title(case: Document | Chunk) -> str:
    kind = case.what if isinstance(case, Document) else case.array
    return f"{kind}: {case.name}".encode("ascii", "backslashreplace").decode()[:100]


def test_there_are_enough_cases_and_each_has_one_result():
    assert len(DOCUMENTS) + len(CHUNKS) > 300
    assert len(refused) + len(accepted) + len(listed) == len(DOCUMENTS)
    assert len({(case.what, case.name) for case in DOCUMENTS}) == len(DOCUMENTS)
    assert {case.what for case in DOCUMENTS} == set(corpus.MAIN)
    assert {case.array for case in CHUNKS} == set(corpus.arrays())
    assert {case.outcome for case in CHUNKS} == {CORRUPT, ORIGINAL, EITHER, OTHER}


# -- documents ------------------------------------------------------------------------------------


def opened(values: dict[str, bytes]) -> Any:
    return zellige.open(MemoryStore(values))


@pytest.mark.parametrize("case", refused, ids=title)
def test_a_document_is_refused_with_the_path_of_what_is_wrong(case):
    values = case.values
    before = dict(values)
    with bounded(), pytest.raises(MetadataError) as caught:
        opened(values)
    # In Zarr v2 the codecs become a chain, and errors may name their place in that.
    assert caught.value.field in (case.given["field"], case.given.get("chain"))
    length = len(str(caught.value))
    assert length < LONGEST_MESSAGE
    unchanged = values == before
    assert unchanged


@pytest.mark.parametrize("case", accepted, ids=title)
def test_a_document_that_looks_wrong_is_read(case):
    expected, values = case.given["accepted"], case.values
    before = dict(values)
    with bounded(counted=expected["dtype"] != "|S2147483647"):
        array = opened(values)
        assert array.shape == tuple(expected["shape"])
        assert array.dtype == np.dtype(expected["dtype"])
        if "value" in expected:
            assert array[(0,) * array.ndim] == expected["value"]
        assert len(repr(array)) < LONGEST_MESSAGE
    if "nchunks" in expected:
        assert array.nchunks == expected["nchunks"]
    if "bits" in expected:
        assert array.metadata.fill_value.astype(array.dtype.newbyteorder("<")).tobytes().hex() == expected["bits"]
    if "attributes" in expected:
        assert dict(array.attrs) == expected["attributes"]
    assert values == before


@pytest.mark.parametrize("case", listed, ids=title)
def test_consolidated_metadata_lists_what_is_sound_and_inside(case):
    expected, values = case.given["accepted"], case.values
    before = dict(values)
    with bounded(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            members = zellige.open_group(MemoryStore(values)).members(max_depth=None)
        except MetadataError:
            assert expected.get("outside")  # to refuse all of it is as good
            return
    names = [name for name, _ in members]
    assert all(is_key(name) and is_key(node.path) for name, node in members)
    if "long" in expected:
        assert {len(name) for name in names} <= {expected["long"]}
    else:
        assert sorted(names) == expected["members"]
    if not expected.get("outside"):
        messages = [str(warning.message) for warning in caught]
        assert [warning.category for warning in caught] == [BrokenNodeWarning] * len(expected.get("broken", ()))
        assert all(repr(name) in text for name, text in zip(expected.get("broken", ()), messages, strict=True))
    assert values == before


# -- chunks ---------------------------------------------------------------------------------------


def original(array: str) -> list[Any]:
    """What the chunk held, as the corpus says."""
    given = corpus.arrays()[array]
    if array == "vlen-bytes":
        return [base64.b64decode(item) for item in given["values"]]
    return given["values"]


def as_lists(found: Any) -> Any:
    items = found.tolist()
    return [item.tolist() if isinstance(item, np.ndarray) else item for item in items]


def outcome(case: Chunk, read: Any) -> str:
    """What comes of a read: an error that names the place, the original, or something else."""
    try:
        found = read()
    except CorruptChunkError as error:
        caught = error
    else:
        return ORIGINAL if as_lists(found) == original(case.array) else OTHER
    rank = case.key.count("0")
    assert (caught.coords, caught.key, caught.array) == ((0,) * rank, case.key, "/")
    assert case.key in str(caught)
    assert len(str(caught)) < LONGEST_MESSAGE
    return CORRUPT


ALLOWED = {
    CORRUPT: {CORRUPT},
    ORIGINAL: {ORIGINAL},
    EITHER: {CORRUPT, ORIGINAL},
    OTHER: {CORRUPT, ORIGINAL, OTHER},
}


@pytest.mark.parametrize("case", CHUNKS, ids=title)
def test_a_chunk_is_refused_or_read_whole(case):
    values = case.values
    before = dict(values)
    array = opened(values)
    with bounded():
        found = outcome(case, lambda: array[...])
    assert found in ALLOWED[case.outcome]
    assert values == before
    check_parts(case, array)
    assert values == before
    check_changes(case, found, values)


def check_parts(case: Chunk, array: zellige.Array) -> None:
    """Elements by themselves: an error of the same kind, or what the whole read would have given."""
    whole = np.empty(array.shape, object)
    whole[...] = np.array(original(case.array), object).reshape(array.shape) if array.dtype.kind != "O" else None
    with bounded():
        for place in [(0,) * array.ndim, tuple(n - 1 for n in array.shape)]:
            try:
                found = array[place]
            except CorruptChunkError as error:
                assert error.key == case.key  # noqa: PT017
                continue
            if case.outcome in (ORIGINAL, EITHER) and array.dtype.kind != "O":
                assert found == whole[place]


def check_changes(case: Chunk, found: str, values: dict[str, bytes]) -> None:
    """A write to a part of a damaged chunk raises and leaves it as it is; inner chunks of shards are on their own."""
    array = opened(values)
    if found != CORRUPT or array.shards is not None:
        return
    before = dict(values)
    place = (0,) * array.ndim
    with bounded(), pytest.raises(CorruptChunkError):
        array[place] = array.metadata.fill_value[()]
    assert values == before


@pytest.mark.parametrize("array", corpus.arrays())
def test_a_whole_write_repairs_any_damage(array):
    damaged = next(case for case in CHUNKS if case.array == array and case.outcome == CORRUPT)
    sound = next(case for case in CHUNKS if case.array == array and case.outcome == ORIGINAL)
    content = opened(sound.values)[...]
    found = opened(damaged.values)
    with pytest.raises(CorruptChunkError):
        found[...]
    found[...] = content
    assert as_lists(found[...]) == original(array)


@pytest.mark.parametrize("array", corpus.arrays())
def test_files_give_the_same_results_as_memory(array, tmp_path):
    store = LocalStore(tmp_path)
    for name, raw in corpus.documents_of(array).items():
        store.put(name, raw)
    for case in (case for case in CHUNKS if case.array == array):
        store.put(case.key, case.raw)
        found = outcome(case, lambda: zellige.open(store)[...])
        assert found == outcome(case, lambda case=case: opened(case.values)[...]), case.name
        assert store.get(case.key) == case.raw
