"""The corpus of hostile input, kept as data: documents, chunks and keys, each with what must come of it.

`documents.json`: a case has a `name`, says `what` it is, and has its bytes as `text`, as `base64`, as `pieces` (a text
and how often it comes), or as `change`: what differs from the good document of its kind, and `remove`, what is
missing there. It ends with an `error` and the `field` that the error must name, or is `accepted` with the result.

`chunks.json`: under `arrays` the documents of small arrays, the key of their one chunk, and the values that it held.
A case has the bytes of such a chunk and an `outcome`: one of the four below.

`keys.json`: names and keys that no store may take, and such that look wrong but are not.
"""

from __future__ import annotations

import base64
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent

CORRUPT = "CorruptChunkError"
ORIGINAL = "original"
EITHER = "CorruptChunkError or original"
OTHER = "CorruptChunkError or other values"

MAIN = {
    "array v3": "zarr.json",
    "array v2": ".zarray",
    "attributes v2": ".zattrs",
    "group v3": "zarr.json",
    "group v2": ".zgroup",
    "consolidated v3": "zarr.json",
    "consolidated v2": ".zmetadata",
}
"""What a document is, and its name in a store."""


class Document(NamedTuple):
    """A document, and what must come of it."""

    name: str
    what: str
    given: dict[str, Any]

    @property
    def raw(self) -> bytes:
        given = self.given
        if "text" in given:
            return given["text"].encode()
        if "base64" in given:
            return base64.b64decode(given["base64"])
        if "pieces" in given:
            return "".join(text * count for text, count in given["pieces"]).encode()
        removed = given.get("remove", ())
        kept = {key: value for key, value in _base()[self.what].items() if key not in removed}
        return json.dumps(kept | given["change"]).encode()

    @property
    def values(self) -> dict[str, bytes]:
        """All that a store holds."""
        values = {MAIN[self.what]: self.raw}
        if self.what == "attributes v2":
            values[".zarray"] = json.dumps(_base()["array v2"]).encode()
        return values


class Chunk(NamedTuple):
    """The bytes of a chunk, and what must come of them."""

    name: str
    array: str
    raw: bytes
    outcome: str

    @property
    def key(self) -> str:
        return arrays()[self.array]["key"]

    @property
    def values(self) -> dict[str, bytes]:
        """All that a store holds."""
        return documents_of(self.array) | {self.key: self.raw}


@cache
def _load(name: str) -> Any:
    return json.loads((HERE / name).read_text())


def _base() -> dict[str, dict[str, Any]]:
    return _load("documents.json")["base"]


def good(what: str) -> dict[str, Any]:
    """A sound document, of which the others are changes."""
    return _base()[what]


def documents() -> list[Document]:
    return [Document(case["name"], case["what"], case) for case in _load("documents.json")["cases"]]


def arrays() -> dict[str, dict[str, Any]]:
    return _load("chunks.json")["arrays"]


def documents_of(array: str) -> dict[str, bytes]:
    """The documents of an array in which chunks are tried."""
    return {name: json.dumps(content).encode() for name, content in arrays()[array]["documents"].items()}


def chunks() -> list[Chunk]:
    return [
        Chunk(case["name"], case["what"].removeprefix("chunk of "), base64.b64decode(case["base64"]), case["outcome"])
        for case in _load("chunks.json")["cases"]
    ]


def keys() -> dict[str, dict[str, str]]:
    """Keys that are `refused` and `accepted`, and `names` that no new node may have; each with a title."""
    return _load("keys.json")
