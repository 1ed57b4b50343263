from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import uuid
import zipfile
from datetime import timedelta

import fsspec
import obstore
import obstore.store
import pytest
import zarr.storage
from servers import set_environment

import zellige
from zellige.stores import LocalStore, MemoryStore, StorePath, client, locate, resolve
from zellige.stores.client import Client, parse_options
from zellige.stores.fsspec import FsspecStore
from zellige.stores.object import HTTPStore, ObjectStore
from zellige.stores.resolve import _REMOTE
from zellige.stores.zarr_python import ZarrPythonStore
from zellige.stores.zip import ZipStore


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


# -- servers --------------------------------------------------------------------------------------


@pytest.fixture
def aws(monkeypatch, tmp_path) -> None:
    set_environment(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("url", "kind", "shown"),
    [
        ("s3://bucket", ObjectStore, "s3://bucket"),
        ("S3://bucket/", ObjectStore, "s3://bucket"),
        ("s3a://bucket/a//b.zarr/", ObjectStore, "s3://bucket/a/b.zarr"),
        ("s3://bucket/a b%20#?+é", ObjectStore, "s3://bucket/a b%20#?+é"),
        ("gs://bucket/x", ObjectStore, "gs://bucket/x"),
        ("gcs://bucket/x", ObjectStore, "gs://bucket/x"),
        ("az://container/x", ObjectStore, "az://container/x"),
        ("abfs://container@account.dfs.core.windows.net/x", ObjectStore, "az://container/x"),
        ("http://127.0.0.1:1/x.zarr", HTTPStore, "http://127.0.0.1:1/x.zarr"),
        ("https://127.0.0.1:1/x.zarr", HTTPStore, "https://127.0.0.1:1/x.zarr"),
    ],
)
def test_urls_of_servers_are_stores_of_their_kind(aws, url, kind, shown):
    store = resolve(url, read_only=True)
    assert type(store) is kind
    assert store.url == shown
    assert store.read_only
    assert resolve(url).read_only == (kind is HTTPStore)
    assert str(StorePath(store, "a/b")) == f"{shown}/a/b"
    assert resolve(url) == resolve(url)
    assert resolve(url).identity == store.identity


def test_a_path_object_of_another_library_may_be_a_url(aws, tmp_path):
    class Remote:
        def __fspath__(self) -> str:
            return "s3://bucket/x"

    assert resolve(tmp_path / "a::b").root == str(tmp_path / "a::b")
    assert resolve(Remote()) == resolve("s3://bucket/x")


@pytest.mark.parametrize("url", ["s3://bucket/x", "https://host/x", "memory://a", "file:///a"])
def test_a_url_made_into_a_path_is_refused_because_a_slash_is_lost(url):
    with pytest.raises(ValueError, match="lost a slash"):
        resolve(pathlib.Path(url))


def test_a_url_made_into_a_path_is_refused_without_its_secrets():
    with pytest.raises(ValueError, match=r"https://\*\*\*@host/x.zarr\?sig=\*\*\*'") as caught:
        resolve(pathlib.Path("https://me:secret@host/x.zarr?sig=secret"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["s3://", "s3:///x", "gs://", "s3://user:pass@bucket/x", "http://", "https:///x"])
def test_a_url_without_a_server_or_bucket_is_refused_without_its_secrets(aws, url):
    with pytest.raises(ValueError, match=r"names no (bucket|host)") as caught:
        resolve(url)
    assert "pass" not in str(caught.value)


def test_the_schemes_of_servers_are_those_of_their_clients():
    assert set(_REMOTE) == {name for own in client._KINDS.values() for name in own.schemes.split()}


@pytest.mark.parametrize("make", [ObjectStore.from_url, HTTPStore])
@pytest.mark.parametrize("url", ["ftp://me:secret@host/x", "bucket/x"])
def test_a_store_on_a_server_names_the_schemes_that_it_takes(make, url):
    with pytest.raises(ValueError, match=r"no URL of a server.* s3, .*https") as caught:
        make(url)
    assert "secret" not in str(caught.value)


def test_memory_of_one_name_is_shared():
    name = f"memory://{uuid.uuid4()}"
    resolve(name).put("a", b"1")
    assert resolve(name).get("a") == b"1"
    assert resolve(f"{name}/") == resolve(name)
    assert resolve(name, read_only=True).read_only
    assert resolve(name, read_only=True).identity == resolve(name).identity
    assert resolve(f"{name}-other").get("a") is None
    assert locate(f"{name}/x/y", "z") == (resolve(name), "x/y/z")
    zellige.create_array(f"{name}/x/y", shape=(3,), dtype="i4")[:] = 7
    assert list(zellige.open(name)["x/y"][:]) == [7, 7, 7]
    for wrong in ("memory://", f"{name}/x"):
        with pytest.raises(ValueError, match="memory://name"):
            resolve(wrong)


# -- options --------------------------------------------------------------------------------------


def test_options_are_for_servers_and_never_shown(tmp_path):
    for store in (
        str(tmp_path),
        tmp_path,
        {},
        None,
        MemoryStore(),
        StorePath(MemoryStore()),
        "memory://x",
        "file:///x",
    ):
        with pytest.raises(ValueError, match=r"storage_options \('secret'\)") as caught:
            locate(store, storage_options={"secret": "hidden"})
        assert "hidden" not in str(caught.value)
        assert locate(store, storage_options={})


def test_options_have_the_names_of_other_libraries(aws):
    boto = {
        "key": "K",
        "secret": "S",
        "token": "T",
        "endpoint_url": "http://127.0.0.1:1",
        "client_kwargs": {"region_name": "eu-west-3"},
        "config_kwargs": {"connect_timeout": 3},
    }
    plain = {
        "access_key_id": "K",
        "secret_access_key": "S",
        "session_token": "T",
        "endpoint": "http://127.0.0.1:1",
        "aws_region": "eu-west-3",
        "client_options": {"connect_timeout": timedelta(seconds=3)},
    }
    assert parse_options("s3", boto) == parse_options("s3", plain)
    assert parse_options("s3", {"anon": True, "profile": None}) == parse_options("s3", {"anonymous": True})
    built = Client.from_url("s3://bucket/x", boto).store()
    assert built.config["region"] == "eu-west-3"
    assert built.config["endpoint"] == "http://127.0.0.1:1"
    assert built.prefix == "x"


@pytest.mark.parametrize("url", ["s3://bucket/x", "gs://bucket/x", "az://container/x", "http://127.0.0.1:1/x"])
def test_an_unknown_option_is_named_with_those_that_are_known(aws, url):
    with pytest.raises(ValueError, match=r"no 'scret'.*known: .*max_retries.*timeout") as caught:
        resolve(url, storage_options={"scret": "hidden"})
    assert "hidden" not in str(caught.value)
    with pytest.raises(TypeError, match="mapping"):
        resolve(url, storage_options={"client_options": 5})


def test_how_many_requests_and_how_far_apart_is_chosen_per_store(aws):
    traits = resolve("s3://b/x").traits
    assert (traits.concurrency, traits.coalesce_gap) == (64, 1 << 20)
    store = resolve("s3://b/x", storage_options={"concurrency": 7, "gap": 0})
    assert (store.traits.concurrency, store.traits.coalesce_gap) == (7, 0)
    with zellige.config.set({"remote.concurrency": 9}):
        assert resolve("s3://b/x").traits.concurrency == resolve("http://127.0.0.1:1/x").traits.concurrency == 9
    for wrong in ({"concurrency": 0}, {"gap": -1}, {"gap": 1.5}):
        with pytest.raises(ValueError, match="whole number"):
            resolve("s3://b/x", storage_options=wrong)


# -- objects of other libraries -------------------------------------------------------------------


def test_stores_of_obstore_are_used(aws, tmp_path):
    memory = obstore.store.MemoryStore()
    resolve(memory).put("a", b"1")
    assert bytes(memory.get("a").bytes()) == b"1"
    assert resolve(memory) == resolve(memory)
    assert resolve(memory, read_only=True).read_only
    assert resolve(obstore.store.LocalStore(tmp_path)) == LocalStore(tmp_path)
    assert resolve(obstore.store.LocalStore()).root == "/"
    s3 = obstore.store.S3Store(
        "bucket", prefix="a/b", endpoint="http://127.0.0.1:1", client_options={"allow_http": True}
    )
    assert resolve(s3) == resolve("s3://bucket/a/b", storage_options={"endpoint": "http://127.0.0.1:1"})
    assert resolve(obstore.store.HTTPStore("https://127.0.0.1:1/x")) == resolve("https://127.0.0.1:1/x")
    with pytest.raises(TypeError, match="directory"):
        ObjectStore(obstore.store.LocalStore(tmp_path))


@pytest.mark.parametrize(
    ("thing", "extra"), [("s3://bucket/x", "cloud"), ("http://127.0.0.1:1/x", "cloud"), ("ftp://h/x", "fsspec")]
)
def test_a_missing_package_is_named_with_what_to_install(aws, monkeypatch, thing, extra):
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setattr(client, "_loaded", {})
    with pytest.raises(ImportError, match=rf"pip install 'zellige\[{extra}\]'"):
        resolve(thing).get("k")


@pytest.mark.parametrize("url", ["ftp://me:pass@host/x", "zip::s3://me:pass@bucket/x.zip", "fsspec+s3://me:pass@b"])
def test_what_fsspec_would_open_names_no_passwords(monkeypatch, url):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r"\*\*\*@") as caught:
        resolve(url)
    assert "pass@" not in str(caught.value)


def test_chains_and_other_schemes_are_what_fsspec_opens(tmp_path):
    name = f"/{uuid.uuid4()}"
    fsspec.filesystem("memory").pipe_file(f"{name}/x/k", b"1")
    for given in (f"fsspec+memory:/{name}/x", f"simplecache::memory:/{name}/x", fsspec.get_mapper(f"memory:/{name}/x")):
        store = resolve(given)
        assert type(store) is FsspecStore
        assert store.get("k") == b"1"
        assert resolve(given, read_only=True).read_only
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("k", b"2")
    assert resolve(f"zip::file://{tmp_path}/x.zip").get("k") == b"2"
    assert resolve(f"zip://::{tmp_path}/x.zip", read_only=True).get("k") == b"2"
    folder = fsspec.filesystem("dir", path=str(tmp_path), fs=fsspec.filesystem("file"))
    assert resolve(folder) == LocalStore(tmp_path)
    with pytest.raises(ValueError, match="nosuch"):
        resolve("nosuch://host/x")


@pytest.mark.parametrize("url", ["nosuch://me:secret@host/x", "simplecache::nosuch://me:secret@host/x"])
def test_an_unknown_scheme_is_named_with_those_that_are_known(url):
    with pytest.raises(ValueError, match=r"scheme that is not known .*nosuch.*s3, .*available_protocols") as caught:
        resolve(url)
    assert "secret" not in str(caught.value)


def test_stores_of_zarr_python_keep_their_mode(tmp_path):
    local = zarr.storage.LocalStore(tmp_path, read_only=True)
    assert resolve(local) == LocalStore(tmp_path, read_only=True)
    memory = zarr.storage.MemoryStore()
    assert type(resolve(memory)) is ZarrPythonStore
    assert resolve(memory) == resolve(memory)
    assert resolve(memory, read_only=True).read_only
    assert resolve(zarr.storage.MemoryStore(read_only=True)).read_only


def test_an_archive_is_a_file_that_ends_in_zip(tmp_path):
    for given in (tmp_path / "a.zip", str(tmp_path / "a.ZIP"), f"file://{tmp_path}/a.zip"):
        with resolve(given) as store:
            assert type(store) is ZipStore
            assert not store.read_only
    (tmp_path / "folder.zip").mkdir()
    assert resolve(tmp_path / "folder.zip") == LocalStore(tmp_path / "folder.zip")
    with pytest.raises(FileNotFoundError):
        resolve(tmp_path / "none.zip", read_only=True)


LONELY = """
import socket, sys
allowed = ("127.0.0.1", "::1", "localhost", None, "")

def guard(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.bind"):
        address = args[1]
        if isinstance(address, tuple) and address[0] not in allowed:
            print(event, address, flush=True)
    elif event in ("socket.getaddrinfo", "socket.gethostbyname") and args[0] not in allowed:
        print(event, args, flush=True)

sys.addaudithook(guard)
import zellige
from zellige.stores import resolve
for url in ("s3://bucket/x", "gs://bucket/x", "az://container/x", "memory://m", sys.argv[1]):
    try:
        resolve(url).get("k")
    except PermissionError as error:
        assert "instance_credentials" in str(error)
zellige.save(sys.argv[1], [1, 2, 3])
assert zellige.load(sys.argv[1]).tolist() == [1, 2, 3]
print("done")
"""


def test_no_default_reaches_another_machine(tmp_path):
    """Python's own sockets are watched; obstore's are not reached, since without credentials no client is built."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_", "GOOGLE_"))}
    env = kept | {"HOME": str(tmp_path), "PYTHONPATH": str(pathlib.Path(zellige.__file__).parents[1])}
    for name, value in (("AWS_CONFIG_FILE", "config"), ("AWS_SHARED_CREDENTIALS_FILE", "credentials")):
        env[name] = str(tmp_path / value)
    env["AZURE_STORAGE_ACCOUNT_NAME"] = "account"
    said = subprocess.run(
        [sys.executable, "-c", LONELY, str(tmp_path / "x.zip")], env=env, capture_output=True, text=True, timeout=60
    )
    assert (said.stdout, said.stderr) == ("done\n", "")


# -- what is refused ------------------------------------------------------------------------------


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
