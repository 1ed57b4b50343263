"""The remote benchmark: its server answers as servers do, and its table says who is ahead. Nothing is timed here."""

from __future__ import annotations

import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "bench" / "remote.py").exists():
    pytest.skip("installed without the bench", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from bench import remote  # noqa: E402
from bench.slow_server import Files, answer  # noqa: E402


@pytest.fixture
def files(tmp_path) -> Files:
    (tmp_path / "root" / "a b").mkdir(parents=True)
    (tmp_path / "root" / "a b" / "k").write_bytes(b"0123456789")
    (tmp_path / "secret").write_bytes(b"x")
    return Files(tmp_path / "root")


@pytest.mark.parametrize(
    ("asked", "status", "body"),
    [
        (None, 200, b"0123456789"),
        ("0-0", 206, b"0"),
        ("3-5", 206, b"345"),
        ("8-", 206, b"89"),
        ("8-99", 206, b"89"),
        ("-3", 206, b"789"),
        ("-99", 206, b"0123456789"),
        ("10-", 416, b""),
    ],
)
def test_ranges_are_answered_as_asked(files, asked, status, body):
    field = "" if asked is None else f"\r\nRange: bytes={asked}"
    head, _, found = answer(files, f"GET /a%20b/k HTTP/1.1\r\nHost: x{field}").partition(b"\r\n\r\n")
    assert (int(head.split()[1]), found) == (status, body)
    assert f"Content-Length: {len(body)}".encode() in head


def test_a_head_has_no_body_and_what_is_not_there_is_not_found(files):
    head, _, body = answer(files, "HEAD /a%20b/k HTTP/1.1").partition(b"\r\n\r\n")
    assert (b"Content-Length: 10" in head, body) == (True, b"")
    for path in ("/missing", "/a%20b", "/../secret", "/%2e%2e/secret"):
        assert b" 404 " in answer(files, f"GET {path} HTTP/1.1")


def test_the_server_holds_many_connections_at_once(files):
    found: list[bytes] = []
    with remote.server(str(files.folder), 0.3) as address:

        def read() -> None:
            with urllib.request.urlopen(f"{address}/a%20b/k", timeout=20) as response:
                found.append(response.read())

        threads = [threading.Thread(target=read) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/missing", timeout=20)
    assert found == [b"0123456789"] * 40


def test_the_table_says_whether_goals_are_met():
    times = {
        "raw": {"zellige": 0.2, "tensorstore": 0.4, "zarr": 1.2},
        "zstd": {"zellige": 0.2, "tensorstore": 0.4, "zarr": 0.9},
    }
    *_, raw, zstd = remote.table(times).splitlines()
    assert raw == "| remote_raw_64K | 200 ms | 2.00 | 6.00 | >= 1, >= 5: ok |"
    assert zstd.endswith("behind |")
