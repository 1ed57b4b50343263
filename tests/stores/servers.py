"""Servers for tests, all on loopback: S3 as a process of its own, and a small web server.

Both are told what to answer with by `rules`, and tell what they were asked for. As a script this module is the S3
server: moto's, behind a front that makes conditional writes atomic, as S3 documents them, and that can fail on demand.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

BUCKET = "zellige-tests"
PAGE = 100  # keys in one answer; 1000 on S3 itself
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test-key-id",
    "AWS_SECRET_ACCESS_KEY": "test-secret",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Credentials that no real server takes, and no asking of the machine's metadata service."""
NOWHERE = "http://127.0.0.1:9"
"""As a proxy, this keeps what is meant for another machine on this one, where nobody listens."""
FOREIGN = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_DEFAULT_REGION")


# -- S3 -------------------------------------------------------------------------------------------


class Front:
    """In front of moto: one write or listing at a time, a log, and rules.

    A rule is {"match": part of the path, "status": the answer, "times": how often, "delay": seconds}.
    """

    def __init__(self, app: Callable[..., Any]) -> None:
        self.app, self.lock = app, threading.Lock()
        self.log: list[list[str]] = []
        self.rules: list[dict[str, Any]] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].encode("latin-1").decode()
        if path == "/-/rules":
            self.rules = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            return self._answer(start_response, "200 OK", b"")
        if path == "/-/log":
            log, self.log = self.log, []
            return self._answer(start_response, "200 OK", json.dumps(log).encode())
        self.log.append([method, path, environ.get("HTTP_RANGE", "")])
        for rule in self.rules:
            if rule["match"] in path and rule.get("method", method) == method and rule.get("times", 1):
                rule["times"] = rule.get("times", -1) - 1 if "times" in rule else -1
                time.sleep(rule.get("delay", 0))
                if "status" in rule:
                    return self._answer(start_response, f"{rule['status']} Told", b"<Error/>")
        # moto's listing fails if a key is removed meanwhile, which no listing of S3 does.
        if method in ("PUT", "POST", "DELETE") or "list-type=" in environ.get("QUERY_STRING", ""):
            with self.lock:
                return list(self.app(environ, start_response))
        return self.app(environ, start_response)

    @staticmethod
    def _answer(start_response: Callable[..., Any], status: str, body: bytes) -> list[bytes]:
        start_response(status, [("Content-Length", str(len(body)))])
        return [body]


def serve_s3() -> None:
    """Serve until the standard input ends, so that no server outlives its tests."""
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    front = Front(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, front, threaded=True, request_handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    os._exit(0)


class S3Server:
    """The process, and where it listens."""

    def __init__(self) -> None:
        env = {**os.environ, **ENVIRONMENT, "MOTO_S3_DEFAULT_MAX_KEYS": str(PAGE)}
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.request("PUT", f"/{BUCKET}")

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Ask directly, for what is not the store's matter."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            host = {"Host": "s3.amazonaws.com"} if not path.startswith("/-/") else {}
            connection.request(method, path, body, host)
            answer = connection.getresponse()
            found = answer.read()
            assert answer.status < 300, (method, path, answer.status, found)
            return found
        finally:
            connection.close()

    def rules(self, *rules: dict[str, Any]) -> None:
        """What to do with requests from now on."""
        self.request("POST", "/-/rules", json.dumps(rules).encode())

    def log(self) -> list[tuple[str, str, str]]:
        """The requests since the last call: method, path and range."""
        return [tuple(entry) for entry in json.loads(self.request("GET", "/-/log"))]

    def stop(self) -> None:
        """End it, as by a crash."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    @property
    def options(self) -> dict[str, Any]:
        """Options for this server; the credentials come from the environment."""
        return {"endpoint_url": self.endpoint, "max_retries": 1}

    def url(self, path: str = "") -> str:
        """A new place in the bucket."""
        return f"s3://{BUCKET}/{uuid.uuid4().hex}/x.zarr{path}"


@pytest.fixture(scope="session")
def s3_process() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def s3(s3_process: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[S3Server]:
    """The S3 server of this session, with credentials for it in the environment."""
    set_environment(monkeypatch, tmp_path)
    yield s3_process
    s3_process.rules()


def set_environment(monkeypatch: pytest.MonkeyPatch, home: Any) -> None:
    """Nothing of the user's own AWS settings, test credentials, and no way to other machines."""
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, NOWHERE)
        monkeypatch.setenv(name.lower(), NOWHERE)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1,localhost")
    monkeypatch.setenv("AWS_CONFIG_FILE", f"{home}/aws-config")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", f"{home}/aws-credentials")


# -- a web server ---------------------------------------------------------------------------------


class Web:
    """A web server of the values of a dict. `rules` gives the status for paths; `ranges` whether it knows ranges."""

    def __init__(self, values: dict[str, bytes], *, ranges: bool = True) -> None:
        self.values, self.ranges = values, ranges
        self.etags = True
        self.rules: dict[str, int] = {}
        self.log: list[tuple[str, str, str]] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_args: Any) -> None:
                pass

            def do_GET(self) -> None:
                web.answer(self)

            do_HEAD = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/data"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        from urllib.parse import unquote, urlsplit

        path = unquote(urlsplit(request.path).path)
        asked = request.headers.get("Range", "")
        self.log.append((request.command, path, asked))
        value = self.values.get(path.removeprefix("/data/"))
        status = next((code for part, code in self.rules.items() if part in path), 200 if value is not None else 404)
        body, headers = (value or b""), {}
        if status == 200 and self.etags:
            headers["ETag"] = f'"{hash(value):x}"'
        if status == 200 and asked and self.ranges:
            status, body, headers["Content-Range"] = self._part(body, asked.removeprefix("bytes="))
        request.send_response(status)
        for name, text in headers.items():
            request.send_header(name, text)
        request.send_header("Content-Length", str(len(body) if status < 300 else 0))
        request.end_headers()
        if request.command == "GET" and status < 300:
            request.wfile.write(body)

    @staticmethod
    def _part(body: bytes, asked: str) -> tuple[int, bytes, str]:
        first, _, last = asked.partition("-")
        start = int(first) if first else max(0, len(body) - int(last))
        stop = min(int(last) + 1, len(body)) if first and last else len(body)
        if start >= stop:
            return 416, b"", f"bytes */{len(body)}"
        return 206, body[start:stop], f"bytes {start}-{stop - 1}/{len(body)}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def web() -> Iterator[Callable[..., Web]]:
    """Start web servers, closed after the test."""
    made: list[Web] = []

    def make(values: dict[str, bytes], **options: Any) -> Web:
        made.append(Web(values, **options))
        return made[-1]

    yield make
    for server in made:
        server.close()


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    serve_s3()
