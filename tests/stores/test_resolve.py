from __future__ import annotations

import os
import pathlib

import pytest

from zellige.stores import LocalStore, MemoryStore, resolve


def test_none_is_a_new_store_in_memory():
    assert isinstance(resolve(None), MemoryStore)
    assert resolve(None) != resolve(None)


def test_a_store_stays_itself(tmp_path):
    store = LocalStore(tmp_path)
    assert resolve(store) is store
    view = resolve(store, read_only=True)
    assert view == store.as_read_only()
    assert resolve(view) is view
    assert resolve(view, read_only=True) is view


def test_a_mapping_is_used_in_place():
    data: dict[str, bytes] = {}
    resolve(data).put("a", b"1")
    assert data == {"a": b"1"}
    assert resolve(data, read_only=True).read_only


@pytest.mark.parametrize("kind", [str, pathlib.Path, lambda p: f"file://{p}", lambda p: f"FILE://LocalHost{p}"])
@pytest.mark.parametrize("read_only", [False, True])
def test_paths_are_local(tmp_path, kind, read_only):
    assert resolve(kind(tmp_path), read_only=read_only) == LocalStore(tmp_path, read_only=read_only)


def test_a_relative_path_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve("x/y.zarr").root == str(tmp_path / "x" / "y.zarr")
    assert resolve(".").root == str(tmp_path)


def test_a_file_url_is_decoded():
    assert resolve("file:///a%20b/%C3%A9%23?x").root == "/a b/é#?x"
    assert resolve("file:///%FF").root == os.fsdecode(b"/\xff")


def test_home_is_expanded_in_strings_only(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir("/")
    assert resolve("~/x").root == str(tmp_path / "x")
    assert resolve(pathlib.Path("~/x")).root == "/~/x"
    assert resolve("file:///~/x").root == "/~/x"


@pytest.mark.parametrize("url", ["s3://bucket/x", "https://host/x.zarr", "memory://", "gs+x://a"])
def test_another_scheme_is_named_and_refused(url):
    with pytest.raises(ValueError, match="local paths and memory only") as caught:
        resolve(url)
    assert repr(url.split(":")[0]) in str(caught.value)


@pytest.mark.parametrize("url", ["zip::s3://bucket/x.zip", "zip://a::file:///b.zip", "a::b"])
def test_a_chain_is_refused(url):
    with pytest.raises(ValueError, match=r"chain.*local paths and memory only"):
        resolve(url)


def test_a_path_object_may_hold_a_double_colon_but_no_url(tmp_path):
    class Remote:
        def __fspath__(self) -> str:
            return "s3://bucket/x"

    assert resolve(tmp_path / "a::b").root == str(tmp_path / "a::b")
    with pytest.raises(ValueError, match="'s3'"):
        resolve(Remote())


@pytest.mark.parametrize("url", ["file://host/x", "file://relative", "file://", "file://localhost"])
def test_a_file_url_of_another_host_is_refused(url):
    with pytest.raises(ValueError, match="absolute path"):
        resolve(url)


@pytest.mark.parametrize("text", ["", "a\0b", "file:///a%00b"])
def test_what_names_no_directory_is_refused(text):
    with pytest.raises(ValueError, match=r"empty string|NUL"):
        resolve(text)


@pytest.mark.parametrize("wrong", [5, b"path", ["a"], ("a",), 1.5, object()])
def test_wrong_types_are_refused_with_what_is_accepted(wrong):
    with pytest.raises(TypeError, match=r"Store.*str.*path.*mapping.*None"):
        resolve(wrong)


def test_paths_of_bytes_are_refused():
    class BytesPath:
        def __fspath__(self) -> bytes:
            return b"/x"

    with pytest.raises(TypeError, match="fsdecode"):
        resolve(BytesPath())
