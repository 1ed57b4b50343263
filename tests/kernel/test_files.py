"""Single files by the kernel: what `LocalStore` asks it before it looks itself."""

from __future__ import annotations

import os

import pytest

from zellige import kernel
from zellige.errors import UnsafeLinkError
from zellige.stores import LocalStore

if kernel.native is None:
    pytest.skip("the kernel was not built, or is off: there is no C compiler here", allow_module_level=True)


def by_both(store: LocalStore, key: str, monkeypatch) -> object:
    """What both paths say of a key, which is the same."""
    answers = []
    for native in (kernel.native, None):
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "native", native)
            try:
                found = store.read(key)
                answers.append(found and (bytes(found.parts[0]), found.size, found.tag))
            except (OSError, UnsafeLinkError) as error:
                answers.append((type(error), str(error)))
    assert answers[0] == answers[1]
    return answers[0]


@pytest.fixture
def store(tmp_path) -> LocalStore:
    store = LocalStore(tmp_path / "x.zarr")
    store.put("a/k", b"value")
    return store


@pytest.mark.parametrize("value", [b"", b"x", bytes(range(256)) * 10_000], ids=len)
@pytest.mark.parametrize("key", ["v", "a/b/c/v", "ein Schlüssel/日本"])
def test_a_whole_value_is_the_same_by_both_paths(store, key, value, monkeypatch):
    store.put(key, value)
    found = by_both(store, key, monkeypatch)
    assert isinstance(found, tuple)
    assert found[:2] == (value, len(value))


@pytest.mark.parametrize("key", ["b", "a/b", "b/c/d", "a/k/z", "a/" + "n" * 300])
def test_what_is_missing_is_missing_by_both_paths(store, key, monkeypatch):
    assert by_both(store, key, monkeypatch) is None


def test_what_is_no_regular_file_is_left_to_the_plain_path(store, monkeypatch):
    os.mkfifo(f"{store.root}/fifo")
    os.symlink("a", f"{store.root}/link")
    os.symlink("a/k", f"{store.root}/file")
    os.symlink("/etc", f"{store.root}/out")
    os.symlink("nowhere", f"{store.root}/broken")
    for key in ("a", "fifo", "broken"):
        assert kernel.native.read_file(f"{store.root}/{key}") is None
        assert by_both(store, key, monkeypatch)[0] is not None
    for key in ("link/k", "file"):
        assert kernel.native.read_file(f"{store.root}/{key}") is None
        assert by_both(store, key, monkeypatch)[0] == b"value"
    assert by_both(store, "out/hostname", monkeypatch)[0] is UnsafeLinkError


def test_a_file_that_is_longer_than_it_says_is_left_to_the_plain_path():
    assert os.path.getsize("/proc/self/status") == 0
    assert kernel.native.read_file("/proc/self/status") is None


def test_paths_without_links(tmp_path):
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "link")
    real = os.path.realpath(tmp_path)
    assert kernel.native.has_no_links(os.fsencode(f"{real}/real"))
    assert not kernel.native.has_no_links(os.fsencode(f"{real}/link"))
    assert not kernel.native.has_no_links(os.fsencode(f"{real}/missing"))
    assert LocalStore(tmp_path / "link").identity == LocalStore(tmp_path / "real").identity


@pytest.mark.parametrize("name", ["read_file", "has_no_links"])
def test_arguments_of_another_kind_are_refused(name):
    for wrong in (7, None, 1.5):
        with pytest.raises(TypeError):
            getattr(kernel.native, name)(wrong)


def test_a_path_with_nul_or_too_long_is_refused():
    with pytest.raises(ValueError, match="null"):
        kernel.native.read_file("a\0b")
    assert kernel.native.read_file("/" + "a/" * 5000) is False
    assert not kernel.native.has_no_links(b"/" + b"a/" * 5000)


def test_descriptors_are_closed(store):
    before = len(os.listdir("/proc/self/fd"))
    for key in ("a/k", "a", "missing"):
        kernel.native.read_file(f"{store.root}/{key}")
    assert len(os.listdir("/proc/self/fd")) == before
