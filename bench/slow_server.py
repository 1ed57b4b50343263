"""A server of files over plain HTTP that waits before it answers, as one far away would.

    python -m bench.slow_server FOLDER [SECONDS]

prints its address on loopback, and serves GET and HEAD, whole files and single ranges, until its input ends. It holds
hundreds of connections in one thread; files are read once and kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import sys
from email.utils import formatdate
from pathlib import Path
from urllib.parse import unquote

_range = re.compile(r"bytes=(\d*)-(\d*)").fullmatch


class Files:
    """The files below a folder, read when first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._known = folder.resolve(), dict[str, tuple[bytes, str] | None]()

    def get(self, path: str) -> tuple[bytes, str] | None:
        """The content of a file with its tag, or None if there is none."""
        if path not in self._known:
            place = (self.folder / path.lstrip("/")).resolve()
            inside = place.is_relative_to(self.folder) and place.is_file()
            content = place.read_bytes() if inside else b""
            self._known[path] = (content, hashlib.blake2b(content, digest_size=8).hexdigest()) if inside else None
        return self._known[path]


def answer(files: Files, request: str) -> bytes:
    """The answer to the head of a request."""
    first, *lines = request.split("\r\n")
    method, path, _ = first.split(" ", 2)
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    found = files.get(unquote(path.partition("?")[0])) if method in ("GET", "HEAD") else None
    if found is None:
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    content, tag = found
    status, size = "200 OK", len(content)
    extra = f'ETag: "{tag}"\r\nLast-Modified: {formatdate(0, usegmt=True)}\r\nAccept-Ranges: bytes\r\n'
    asked = _range(fields.get("range", ""))
    if asked:
        low, high = asked.groups()
        start = int(low) if low else max(0, size - int(high))
        stop = min(int(high) + 1, size) if low and high else size
        if start >= size:
            refused = f"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */{size}\r\n"
            return f"{refused}Content-Length: 0\r\n\r\n".encode()
        content, status = content[start:stop], "206 Partial Content"
        extra += f"Content-Range: bytes {start}-{stop - 1}/{size}\r\n"
    head = (
        f"HTTP/1.1 {status}\r\n{extra}Content-Type: application/octet-stream\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + (content if method == "GET" else b"")


class Connection(asyncio.Protocol):
    """One connection, which is kept open; each request is answered after a while, in order."""

    def __init__(self, files: Files, wait: float) -> None:
        self._files, self._wait = files, wait
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Called by the event loop; no request has a body."""
        *requests, self._received = (self._received + data).split(b"\r\n\r\n")
        for request in requests:
            content = answer(self._files, request.decode("latin-1"))
            asyncio.get_running_loop().call_later(self._wait, self._send, content)

    def _send(self, content: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(content)


async def serve(folder: Path, wait: float) -> None:
    """Serve until the input ends."""
    files, loop = Files(folder), asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(files, wait), "127.0.0.1", 0, backlog=512)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.020))
