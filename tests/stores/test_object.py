from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import obstore.store
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servers import BUCKET, PAGE, S3Server, free_port, set_environment
from store_suite import READING, WRITING, StoreSuite

import zellige
from running import fork, run_threads
from zellige.errors import AccessDeniedError, ConflictError, CredentialsWarning, RemoteError, ShortReadError
from zellige.nodes import lease
from zellige.nodes.node import PENDING
from zellige.stores import base, object, resolve
from zellige.stores.base import coalesced, divided
from zellige.stores.object import ObjectStore
from zellige.stores.threads import gather

LONG = bool(os.environ.get("ZELLIGE_LONG"))


class TestObstoreMemory(StoreSuite):
    control_keys = False

    @pytest.fixture
    def store(self) -> ObjectStore:
        return ObjectStore(obstore.store.MemoryStore())


class TestS3(StoreSuite):
    control_keys = False
    turns = 8

    @pytest.fixture
    def store(self, s3) -> ObjectStore:
        return ObjectStore.from_url(s3.url(), s3.options)


@pytest.fixture
def store(s3) -> ObjectStore:
    found = ObjectStore.from_url(s3.url(), s3.options)
    s3.log()
    return found


def requests(s3: S3Server) -> list[tuple[str, str]]:
    """Method and range of the requests since the last look."""
    return [(method, asked) for method, _, asked in s3.log()]


# -- requests -------------------------------------------------------------------------------------


def test_each_operation_is_one_request(s3, store):
    for work, method in [
        (lambda: store.put("k", bytes(100)), "PUT"),
        (lambda: store.get("k"), "GET"),
        (lambda: store.get("k"), "GET"),
        (lambda: store.read("k"), "GET"),
        (lambda: store.get("missing"), "GET"),
        (lambda: store.create("k", b""), "PUT"),
        (lambda: store.get_range("k", 5, 7), "GET"),
        (lambda: store.get_range("k", -7), "GET"),
        (lambda: store.read("k", [(5, 7), (90, 10), (0, 1)]), "GET"),
        (lambda: store.read("k", []), "HEAD"),
        (lambda: store.size("k"), "HEAD"),
        (lambda: store.list_dir(), "GET"),
        (lambda: list(store.list()), "GET"),
        (lambda: store.delete(["k"]), "POST"),
    ]:
        work()
        assert [found for found, _ in requests(s3)] == [method]


def test_an_update_is_two_requests(s3, store):
    store.update("k", lambda old: b"1")
    store.update("k", lambda old: bytes(old) + b"2")
    assert [method for method, _ in requests(s3)] == ["GET", "PUT", "GET", "PUT"]
    assert store.get("k") == b"12"


def test_ranges_far_apart_are_several_requests_of_one_value(s3, store):
    value = bytes(range(251)) * 20_000
    store.put("k", value)
    s3.log()
    spans = [(4_000_000, 10), (0, 5), (7, 5), (2_000_000, 10), (-9, None)]
    expected = [value[4_000_000:4_000_010], value[:5], value[7:12], value[2_000_000:2_000_010], value[-9:]]
    assert store.read("k", spans).parts == expected
    asked = ["bytes=-9", "bytes=0-11", "bytes=2000000-2000009", "bytes=4000000-4000009"]
    assert sorted(requests(s3)) == [("GET", text) for text in asked]


def test_ranges_are_joined_up_to_the_gap_and_the_most():
    assert coalesced([(0, 10), (20, 10), (31, 1)], gap=10, most=16 << 20) == [(0, 32)]
    assert coalesced([(0, 10), (21, 10)], gap=10, most=16 << 20) == [(0, 10), (21, 10)]
    assert coalesced([(5, 10), (0, 30), (7, 1)], gap=0, most=16 << 20) == [(0, 30)]
    assert coalesced([(0, 9 << 20), (9 << 20, 9 << 20)], gap=10, most=16 << 20) == [(0, 9 << 20), (9 << 20, 9 << 20)]
    assert coalesced([(0, 20 << 20), (1 << 20, 5)], gap=10, most=16 << 20) == [(0, 20 << 20)]
    assert coalesced([], gap=10, most=16 << 20) == []


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 100))), st.integers(0, 9), st.integers(1, 50))
def test_ranges_are_cut_out_of_those_that_they_were_joined_to(spans, gap, most):
    """Whatever overlaps: ranges that are longer than the limit may share bytes with their neighbours."""
    value = bytes(range(200))
    spans += [(-7, None), (3, None)]
    found = dict.fromkeys(coalesced(spans, gap, most))
    for start, length in found:
        found[start, length] = value[start:] if length is None else value[start : start + length]
    expected = [value[start:] if length is None else value[start : start + length] for start, length in spans]
    assert divided(spans, found) == expected


def test_ranges_of_a_value_that_is_replaced_meanwhile_are_asked_for_again(monkeypatch):
    store = ObjectStore(obstore.store.MemoryStore(), gap=0, concurrency=1)  # one after the other
    ask, asked = store._ask, []

    def replacing(key, span):
        answer = ask(key, span)
        asked.append(span)
        if len(asked) == 1:
            store.put("k", b"new" * 1000)
        return answer

    store.put("k", b"old" * 1000)
    monkeypatch.setattr(store, "_ask", replacing)
    assert store.read("k", [(0, 3), (999, 3), (1500, 3)]).parts == [b"new"] * 3
    assert len(asked) == 6


def test_a_value_that_always_changes_while_it_is_read_is_an_error(monkeypatch):
    store = ObjectStore(obstore.store.MemoryStore(), gap=0, concurrency=1)
    ask, turn = store._ask, iter(range(1000))

    def replacing(key, span):
        store.put("k", b"%03d" % next(turn) * 1000)
        return ask(key, span)

    store.put("k", b"old" * 1000)
    monkeypatch.setattr(store, "_ask", replacing)
    monkeypatch.setattr("zellige.stores.base._pause", lambda longest: None)
    with pytest.raises(ConflictError, match="'k'"):
        store.read("k", [(0, 3), (999, 3)]).parts


def test_one_element_of_a_shard_is_two_requests_and_then_one(s3, store):
    a = zellige.create_array(store, shape=(64, 64), shards=(32, 32), chunks=(8, 8), dtype="i4")
    a[:] = np.arange(4096).reshape(64, 64)
    reader = zellige.open_array(store, mode="r")
    s3.log()
    assert reader[40, 3] == 40 * 64 + 3
    assert len(requests(s3)) == 2
    assert reader[33, 30] == 33 * 64 + 30
    assert len(requests(s3)) == 1


def test_many_keys_are_listed_and_removed_in_pages(s3, store, monkeypatch):
    monkeypatch.setattr(object, "_BATCH", PAGE)
    keys = [f"c/{k}" for k in range(PAGE + 3)]
    gather(lambda key: store.put(key, b""), keys, store)
    store.put("d", b"")
    s3.log()
    assert sorted(store.list("c/")) == sorted(keys)
    assert [method for method, _ in requests(s3)] == ["GET", "GET"]
    assert store.list_dir("c/") == (sorted(keys), [])
    s3.log()
    store.delete_prefix("c/")
    assert sorted(method for method, _ in requests(s3)) == ["GET", "GET", "POST", "POST"]
    assert list(store.list()) == ["d"]


def test_folders_made_by_other_tools_hold_nothing(s3, store):
    store.put("a/k", b"x")
    for name in ("a/", "b/"):
        s3.request("PUT", f"{store.url.removeprefix('s3:/')}/{name}")
    assert [key for key in store.list() if store.exists(key)] == ["a/k"]
    assert store.list_dir("a/") == (["a/k"], [])
    assert store.get("a") is None


def test_a_listing_that_obstore_cannot_read_is_an_error_and_not_empty(s3, store):
    store.put("a/k", b"x")
    s3.request("PUT", f"{store.url.removeprefix('s3:/')}/a//b")
    for ask in (lambda: list(store.list("a/")), lambda: store.list_dir("a/")):
        with pytest.raises(RemoteError, match="empty path segment"):
            ask()
    assert store.get("a/k") == b"x"


def test_a_large_value_goes_in_parts_and_a_conditional_one_in_one(s3, store):
    value = os.urandom(17 << 20)
    store.put("k", value)
    assert [method for method, _ in requests(s3)].count("PUT") == 3
    assert not store.create("k", value[1:])
    found = store.read("k")
    assert found.whole == value
    version = found.tag
    assert store.replace("k", value[2:], version)
    assert not store.replace("k", value[3:], version)
    assert [method for method, _ in requests(s3)] == ["PUT", "GET", "PUT", "PUT"]
    assert store.get("k") == value[2:]


# -- errors ---------------------------------------------------------------------------------------

ASKING = {
    **READING,
    **WRITING,
    "list": lambda s, k: list(s.list(k + "/")),
    "list_dir": lambda s, k: s.list_dir(k + "/"),
}


@pytest.mark.parametrize("method", ASKING)
def test_a_denied_request_is_never_a_missing_key(s3, store, method):
    s3.rules({"match": BUCKET, "status": 403})
    with pytest.raises(PermissionError, match="denied") as caught:
        ASKING[method](store, "a/key")
    assert isinstance(caught.value, AccessDeniedError)
    if method not in ("list", "list_dir", "delete_prefix"):
        assert "'a/key'" in str(caught.value)


@pytest.mark.parametrize("status", [400, 500, 503])
@pytest.mark.parametrize("method", ["get", "get_range", "read a range", "size", "put", "create", "list", "list_dir"])
def test_a_failing_server_is_named_with_key_and_cause(s3, store, method, status):
    s3.rules({"match": BUCKET, "status": status})
    with pytest.raises(RemoteError, match=rf"{status}") as caught:
        ASKING[method](store, "a/key")
    assert "a/key" in str(caught.value)
    assert caught.value.key.rstrip("/") == "a/key"
    assert "Debug" not in str(caught.value)
    assert len(requests(s3)) == (1 if status == 400 else 2)  # and as many retries as were allowed


def test_a_server_that_takes_no_values_at_all_is_an_error_that_names_the_key(monkeypatch):
    def refuse(*_args: object, **_options: object) -> None:
        raise NotImplementedError("no writing here")

    store = ObjectStore(obstore.store.MemoryStore())
    monkeypatch.setattr(object.library().calls, "put", refuse)
    for write in (store.put, store.create):
        with pytest.raises(RemoteError, match=r"'k'.*no writing here"):
            write("k", b"x")


def test_a_passing_failure_is_retried(s3, store):
    store.put("k", b"x")
    s3.rules({"match": "/k", "status": 503, "times": 1})
    assert store.get("k") == b"x"


def test_nobody_listening_is_an_error(s3):
    store = resolve(s3.url(), storage_options={**s3.options, "endpoint_url": f"http://127.0.0.1:{free_port()}"})
    for method in ("get", "size", "put", "list"):
        with pytest.raises(RemoteError, match="error sending request"):
            ASKING[method](store, "k")
    with pytest.raises(RemoteError, match=r"zarr\.json.*error sending request"):
        zellige.open(store, mode="r")


def test_a_slow_server_is_an_error_in_time(s3):
    store = resolve(s3.url(), storage_options={**s3.options, "max_retries": 0, "timeout": 0.3})
    s3.rules({"match": BUCKET, "delay": 1.5, "status": 500})
    with pytest.raises(RemoteError, match="'k'"):
        store.get("k")


def test_a_missing_bucket_is_an_error_and_no_missing_key(s3):
    store = resolve("s3://no-such-bucket/x", storage_options=s3.options)
    for method in ("get", "get_range", "put", "create", "list", "list_dir"):
        with pytest.raises(RemoteError, match="NoSuchBucket"):
            ASKING[method](store, "k")


def test_a_denied_chunk_is_not_read_as_fill(s3, store):
    a = zellige.create_array(store, shape=(40,), chunks=(10,), dtype="i4", fill_value=-1)
    a[:] = 5
    s3.rules({"match": "/c/2", "status": 403})
    with pytest.raises(PermissionError, match="'c/2'"):
        a[:]
    assert a[:20].tolist() == [5] * 20


def test_a_server_killed_while_reading_is_an_error_that_names_the_key(monkeypatch, tmp_path):
    set_environment(monkeypatch, tmp_path)
    server = S3Server()
    try:
        place = server.url()
        a = zellige.create_array(place, shape=(32,), chunks=(1,), dtype="i8", storage_options=server.options)
        a[:] = 1
        server.rules({"match": "/c/", "delay": 2})
        timer = threading.Timer(0.3, server.stop)
        timer.start()
        with pytest.raises(RemoteError, match=r"key 'c/\d+' in ObjectStore.*request"):
            a[:]
        timer.join()
        with pytest.raises(RemoteError, match=r"key 'c/0'"):
            a[0]
    finally:
        server.stop()


# -- credentials ----------------------------------------------------------------------------------


def test_credentials_are_not_shown_and_pickled_only_with_a_warning(s3):
    options = {**s3.options, "key": "KEY-ID", "secret": "HIDDEN", "token": "TOKEN"}
    store = resolve(s3.url(), storage_options=options, read_only=True)
    s3.rules({"match": BUCKET, "status": 403})
    with pytest.raises(PermissionError) as caught:
        store.get("k")
    with pytest.warns(CredentialsWarning, match=r"\(access_key_id, secret_access_key, session_token\)") as warned:
        raw = pickle.dumps(store)
    copy = pickle.loads(raw)
    assert copy == store
    assert copy.read_only
    s3.rules()
    assert copy.get("k") is None
    for text in (repr(store), str(caught.value), str(warned[0].message), repr(store._client), store.url):
        for secret in ("KEY-ID", "HIDDEN", "TOKEN"):
            assert secret not in text


def test_credentials_of_the_environment_are_not_pickled(store):
    store.put("k", b"x")
    raw = pickle.dumps(store)
    assert b"test-secret" not in raw
    assert b"test-key-id" not in raw
    assert len(raw) < 600
    assert pickle.loads(raw).get("k") == b"x"


@pytest.fixture
def nobody(s3, monkeypatch) -> S3Server:
    """The server, and no credentials anywhere."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    return s3


def test_profiles_are_found_in_the_files_of_the_user(nobody, monkeypatch):
    files = {
        "AWS_SHARED_CREDENTIALS_FILE": "[lab]\naws_access_key_id = A\naws_secret_access_key = B\n",
        "AWS_CONFIG_FILE": "[profile lab]\nregion = eu-west-3\n",
    }
    for name, text in files.items():
        Path(os.environ[name]).write_text(text)
    monkeypatch.delenv("AWS_REGION")
    store = resolve(nobody.url(), storage_options={**nobody.options, "profile": "lab"})
    store.put("k", b"x")
    built = store._client.store()
    assert built.config["region"] == "eu-west-3"
    assert built.credential_provider()["access_key_id"] == "A"
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert resolve(store.url, storage_options=nobody.options).get("k") == b"x"
    raw = pickle.dumps(store)
    assert pickle.loads(raw).get("k") == b"x"
    assert len(raw) < 600


def test_without_credentials_an_error_says_what_to_give(nobody):
    with pytest.raises(PermissionError, match=r"no AWS credentials.*anonymous=True.*instance_credentials=True"):
        resolve(nobody.url(), storage_options=nobody.options).get("k")


METADATA = """
import http.server, json, os, sys, threading, zellige
from zellige.stores import resolve

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        self.send_error(404)
    do_PUT = do_GET
    def log_message(self, *args):
        pass

asked = []
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
place = f"http://127.0.0.1:{server.server_port}"
os.environ["AWS_EC2_METADATA_SERVICE_ENDPOINT"] = place  # for boto3
options = {"metadata_endpoint": place, "endpoint_url": "http://127.0.0.1:9", "max_retries": 0}
try:
    resolve("s3://bucket/x", storage_options=options | json.loads(sys.argv[1])).get("k")
except OSError as error:
    print(type(error).__name__, len(asked))
"""
"""Reads a value without credentials; says how that failed, and how often the metadata service was asked."""


@pytest.mark.parametrize(
    ("options", "environment", "is_asked"),
    [
        ("{}", {}, False),
        ("{}", {"AWS_EC2_METADATA_DISABLED": "true"}, False),
        ("{}", {"AWS_PROFILE": "empty"}, False),
        ('{"instance_credentials": true}', {}, True),
        ("{}", {"AWS_EC2_METADATA_DISABLED": "false"}, True),
    ],
)
def test_the_metadata_service_is_asked_only_by_those_who_say_so(nobody, monkeypatch, options, environment, is_asked):
    Path(os.environ["AWS_CONFIG_FILE"]).write_text("[default]\nregion = eu-west-3\n[profile empty]\nregion = x\n")
    env = {name: value for name, value in os.environ.items() if name != "AWS_EC2_METADATA_DISABLED"}
    env |= {"PYTHONPATH": str(Path(zellige.__file__).parents[1]), **environment}
    done = subprocess.run(
        [sys.executable, "-c", METADATA, options], env=env, capture_output=True, text=True, check=True, timeout=60
    )
    kind, count = done.stdout.split()
    assert (kind == "AccessDeniedError", int(count) == 0) == (not is_asked, not is_asked), done


@pytest.mark.parametrize(("url", "option"), [("gs://bucket/x", "token"), ("az://container/x", "account_key")])
def test_other_clouds_ask_no_metadata_service_either(nobody, monkeypatch, tmp_path, url, option):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    with pytest.raises(PermissionError, match=rf"no (Google|Azure) credentials.*{option}.*instance_credentials=True"):
        resolve(url).get("k")
    for told in ({option: "c2VjcmV0"}, {"anonymous": True}):
        with pytest.raises(RemoteError, match="error sending request"):
            resolve(url, storage_options={**told, "max_retries": 0}).get("k")


def test_anonymous_requests_need_no_credentials(nobody):
    for name in ("anonymous", "anon"):
        store = resolve(nobody.url(), storage_options={**nobody.options, name: True})
        assert store.get("k") is None


@pytest.mark.parametrize("endpoint", ["127.0.0.1:5601", "localhost", "http:/x", "http://"])
def test_an_endpoint_that_is_no_url_is_refused_with_one(s3, monkeypatch, endpoint):
    options = {**s3.options, "endpoint_url": endpoint}
    with pytest.raises(ValueError, match="is no URL; write http://host:port"):
        zellige.open(s3.url(), mode="r", storage_options=options)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(ValueError, match="is no URL"):
        resolve(s3.url(), storage_options={**s3.options, "endpoint_url": None}).get("k")


def test_an_endpoint_of_the_environment_is_used(s3, monkeypatch):
    place = s3.url()
    resolve(place, storage_options=s3.options).put("k", b"x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    assert resolve(place).get("k") == b"x"


def test_no_request_leaves_this_machine(s3):
    store = resolve("s3://bucket/x", storage_options={"max_retries": 0})
    with pytest.raises(RemoteError, match="error sending request"):
        store.get("k")


# -- processes ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_reads_and_writes(store):
    store.put("k", b"x")

    def work():
        store.put("child", store.get("k") + b"y")
        zellige.create_array(store, name="a", data=np.arange(10))
        return store.get("missing") is None

    assert fork(work)()
    assert store.get("child") == b"xy"
    assert zellige.open_array(store, path="a")[3] == 3
    assert fork(lambda: fork(lambda: store.get("child") == b"xy")())()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_the_first_read_of_a_forked_child_may_be_one_of_many_threads(store):
    a = zellige.create_array(store, name="a", data=np.arange(64), chunks=1)
    assert np.array_equal(a[:], np.arange(64))  # the parent has used the store

    def read_many():
        return all(run_threads(8, lambda _: store.get("a/zarr.json") is not None))

    assert fork(lambda: np.array_equal(a[:], np.arange(64)))()
    assert fork(read_many)()


def start(code: str, *args: str) -> subprocess.Popen[str]:
    """A Python process with the options of the server in `options`."""
    program = "import sys, zellige\nargs = sys.argv[2:]\noptions = {'endpoint_url': sys.argv[1]}\n" + code
    source = str(Path(zellige.__file__).parents[1])
    command = [sys.executable, "-c", program, *args]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": source}, stdout=subprocess.PIPE, text=True)


def wait_for(*processes: subprocess.Popen[str]) -> list[str]:
    """What they printed; all must have ended well."""
    said = [process.communicate(timeout=400)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return said


def test_two_processes_that_update_halves_of_the_same_chunks_lose_nothing(s3):
    place, turns = s3.url(), 500 if LONG else 25  # of two chunks in each
    zellige.create_array(place, shape=(8,), chunks=(4,), dtype="i8", storage_options=s3.options)
    code = """
a = zellige.open_array(args[0], mode="r+", storage_options=options)
first = int(args[1])
for turn in range(int(args[2])):
    for chunk in (0, 4):
        part = slice(chunk + first, chunk + first + 2)
        assert (a[part] == turn).all(), (turn, a[:])
        a[part] = turn + 1
"""
    wait_for(*[start(code, s3.endpoint, place, first, str(turns)) for first in ("0", "2")])
    assert zellige.open_array(place, mode="r", storage_options=s3.options)[:].tolist() == [turns] * 8


def test_two_processes_that_append_lose_no_row(s3):
    place = s3.url()
    zellige.create_array(place, shape=(0,), chunks=(4,), dtype="i8", storage_options=s3.options)
    code = """
a = zellige.open_array(args[0], mode="r+", storage_options=options)
for turn in range(6):
    a.append([int(args[1]) + turn] * 5)
"""
    wait_for(*[start(code, s3.endpoint, place, number) for number in ("100", "200")])
    a = zellige.open_array(place, mode="r", storage_options=s3.options)
    expected = sorted(5 * [*range(100, 106), *range(200, 206)])
    assert sorted(a[:].tolist()) == expected
    assert all(len(set(a[k : k + 5].tolist())) == 1 for k in range(0, 60, 5))
    assert not any("pending" in key for key in resolve(place, storage_options=s3.options).list())


def test_two_processes_that_change_attributes_lose_none(s3):
    place = s3.url()
    zellige.create_group(place, storage_options=s3.options)
    code = """
g = zellige.open_group(args[0], mode="r+", storage_options=options)
for turn in range(10):
    g.attrs[args[1] + str(turn)] = turn
"""
    wait_for(*[start(code, s3.endpoint, place, name) for name in "ab"])
    found = zellige.open_group(place, mode="r", storage_options=s3.options).attrs.asdict()
    assert found == {f"{name}{turn}": turn for name in "ab" for turn in range(10)}


def test_of_processes_that_create_an_array_one_wins(s3):
    place = s3.url()
    code = """
try:
    zellige.create_array(args[0], shape=(3,), dtype="i4", storage_options=options)
    print("made", end="")
except zellige.errors.ContainsArrayError:
    print("was there", end="")
"""
    said = wait_for(*[start(code, s3.endpoint, place) for _ in range(3)])
    assert sorted(said) == ["made", "was there", "was there"]


# -- leases ---------------------------------------------------------------------------------------

KILLED = """
import os
from zellige.nodes import resize
a = zellige.open_array(args[0], mode="r+", storage_options=options)
write = resize.write
def cut(*args, **options):
    write(*args, **options)
    print("written", flush=True)
    os._exit(9)
resize.write = cut
a.append([7, 7, 7])
"""


def test_what_a_killed_append_left_is_removed_by_the_next(s3):
    place = s3.url()
    a = zellige.create_array(place, data=[1, 2], chunks=(4,), storage_options=s3.options)
    killed = start(KILLED, s3.endpoint, place)
    assert killed.communicate(timeout=60)[0] == "written\n"
    assert killed.returncode == 9
    assert a.store.exists(PENDING)
    assert a[:].tolist() == [1, 2]
    a.resize((6,))
    assert a[:].tolist() == [1, 2, 0, 0, 0, 0]
    assert not a.store.exists(PENDING)


def foreign(age: float = 0) -> bytes:
    """The lease of a process on another machine, renewed so many seconds ago."""
    return lease.dump("", lease.Owner("1.2.elsewhere", "far-away", "0123", time.time() - age), {})


def test_a_lease_of_another_machine_is_respected_until_it_expires(store):
    a = zellige.create_array(store, data=[1, 2], chunks=(4,))
    store.put(PENDING, foreign())
    before = {key: store.get(key) for key in store.list()}
    with zellige.config.set({"lease.wait": 0.1}):
        for change in (lambda: a.append([3]), lambda: a.resize((1,))):
            with pytest.raises(ConflictError, match=r"far-away.*lease\.timeout"):
                change()
    assert {key: store.get(key) for key in store.list()} == before
    store.put(PENDING, foreign(age=301))
    a.resize(a.shape)
    a.append([3])
    assert a[:].tolist() == [1, 2, 3]
    assert not store.exists(PENDING)


def test_a_mark_without_a_holder_is_of_a_dead_one(store):
    a = zellige.create_array(store, data=[1, 2], chunks=(1,))
    store.put(PENDING, b"words")
    store.put("c/2", store.get("c/1"))
    a.resize((4,))
    assert a[:].tolist() == [1, 2, 0, 0]


def test_one_who_was_taken_for_dead_removes_nothing(store, monkeypatch):
    a = zellige.create_array(store, data=[1, 2], chunks=(2,))
    mark = foreign()

    def taken_over(*_args, **_options):
        store.put(PENDING, mark)
        store.put("c/7", b"of another")
        raise RuntimeError("mine")

    monkeypatch.setattr("zellige.nodes.resize.write", taken_over)
    with pytest.raises(RuntimeError, match="mine"):
        a.append([3, 4])
    assert store.get(PENDING) == mark
    assert store.get("c/7") == b"of another"


def test_a_failed_append_releases_its_lease(store):
    a = zellige.create_array(store, data=[1, 2], chunks=(2,))
    with pytest.raises(ValueError, match="cannot be appended"):
        a.append([[1, 2]])
    assert not store.exists(PENDING)
    a.append([3])
    assert a[:].tolist() == [1, 2, 3]


# -- conditions -----------------------------------------------------------------------------------


def test_an_update_that_always_loses_gives_up_and_says_so(store, monkeypatch):
    monkeypatch.setattr(base, "_TRIES", 3)
    other, turns = pickle.loads(pickle.dumps(store)), []

    def change(old):
        turns.append(old)
        other.put("a/k", b"%d" % len(turns))
        return b"mine"

    with pytest.raises(ConflictError, match=r"'a/k'.*3 times.*nothing was written") as caught:
        store.update("a/k", change)
    assert caught.value.key == "a/k"
    assert [None if old is None else bytes(old) for old in turns] == [None, b"1", b"2"]
    assert store.get("a/k") == b"3"


def test_without_conditions_on_the_server_the_threads_of_a_process_are_kept_apart(s3):
    store = resolve(s3.url(), storage_options={**s3.options, "conditional_put": "disabled"})
    assert store.create("k", b"1")
    assert not store.create("k", b"2")
    version = store.read("k").tag
    assert store.get("k") == b"1"
    assert store.replace("k", b"3", version)
    assert not store.replace("k", b"4", version)
    run_threads(4, lambda _number: [store.update("n", lambda old: bytes(old or b"") + b"x") for _ in range(3)])
    assert store.size("n") == 12


# -- arrays ---------------------------------------------------------------------------------------

DATA = np.arange(30 * 21, dtype="i4").reshape(30, 21)


@pytest.fixture(params=["obstore memory", "obstore local", "s3"])
def anywhere(request, tmp_path):
    if request.param == "obstore memory":
        return resolve(obstore.store.MemoryStore())
    if request.param == "obstore local":
        return resolve(obstore.store.LocalStore(tmp_path))
    server = request.getfixturevalue("s3")
    return resolve(server.url(), storage_options=server.options)


@pytest.mark.parametrize(
    "layout",
    [
        {"chunks": [[7, 3, 20], [1, 20]]},
        {"chunks": (8, 5)},
        {"shards": (16, 12), "chunks": (4, 3)},
        {"chunks": (8, 5), "zarr_format": 2},
    ],
    ids=["rectilinear", "regular", "sharded", "v2"],
)
def test_arrays_come_back(anywhere, layout):
    expected = DATA.copy()
    a = zellige.create_array(anywhere, name="g/a", data=DATA, attributes={"unit": "K"}, **layout)
    for part in (np.s_[3:9, 4:20], np.s_[::7], np.s_[29, 20]):
        a[part] = expected[part] = -1
    a.append(DATA[:4])
    expected = np.concatenate([expected, DATA[:4]])
    found = zellige.open_array(anywhere, path="g/a", mode="r")
    assert found.attrs.asdict() == {"unit": "K"}
    np.testing.assert_array_equal(found[:], expected)
    np.testing.assert_array_equal(found.oindex[[1, 30], 2:4], expected[[1, 30], 2:4])
    a.resize((5, 40))
    expected = np.pad(expected[:5], ((0, 0), (0, 19)))
    np.testing.assert_array_equal(zellige.open_array(anywhere, path="g/a")[:], expected)


def test_groups_come_back(anywhere):
    root = zellige.create_group(anywhere, attributes={"title": "all"})
    root.create_group("a/b").create_array("x", data=DATA[0])
    root.create_array("y é#%?", data=DATA[1])
    assert sorted(root.keys()) == ["a", "y é#%?"]
    assert [name for name, _ in root["a"].members(max_depth=None)] == ["b", "b/x"]
    zellige.consolidate_metadata(anywhere)
    assert zellige.open_consolidated(anywhere)["a/b/x"][:].tolist() == DATA[0].tolist()
    root.move("a/b", "c")
    assert root["c/x"][:].tolist() == DATA[0].tolist()
    del root["c"]
    assert sorted(root.keys()) == ["a", "y é#%?"]
    assert not list(anywhere.list("c/"))


def test_an_array_opens_by_its_url_and_pickles_small(s3):
    place = s3.url()
    zellige.create_array(place, data=DATA, chunks=(8, 5), storage_options=s3.options)
    a = zellige.open(place, mode="r", storage_options=s3.options)
    assert repr(place.removesuffix("/x.zarr"))[1:-1] in repr(a.store)
    copy = pickle.loads(pickle.dumps(a))
    assert copy.read_only
    np.testing.assert_array_equal(copy[:], DATA)
    np.testing.assert_array_equal(zellige.load(place, storage_options=s3.options), DATA)


def test_a_short_answer_is_an_error(store, monkeypatch):
    store.put("k", b"0123456789")
    ask = object.library().calls.get

    class Short:
        def __init__(self, result):
            self.meta, self.range, self.bytes = result.meta, result.range, lambda: result.bytes()[:-1]

    class Calls:
        get = staticmethod(lambda *args, **kwargs: Short(ask(*args, **kwargs)))

    library = object.library()._replace(calls=Calls)
    monkeypatch.setattr("zellige.stores.object.library", lambda: library)
    for read in (lambda: store.get("k"), lambda: store.get_range("k", 2, 4)):
        with pytest.raises((RemoteError, ShortReadError), match=r"'k'.*(9|3) bytes came instead of (10|4)"):
            read()
