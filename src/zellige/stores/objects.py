"""Values as objects of S3, Google Cloud Storage, Azure and what speaks like them, with obstore."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Self

from zellige.errors import ConflictError
from zellige.stores.base import KeyLock, check_key, check_prefix, is_key
from zellige.stores.clients import Client, library
from zellige.stores.remote import RemoteStore, together, version_of
from zellige.types import Buffer, Encoded

_TRIES = 64
_PART = 8 << 20  # of an upload in parts
_BATCH = 1000  # keys that S3 removes in one request

_control = re.compile(r"[\x00-\x1f\x7f\udc80-\udcff]").search


class ObjectStore(RemoteStore):
    """The objects of a bucket, or of those below a path in it.

    It is made `from_url`, or of one of obstore's own stores. Writes are all or nothing. `create`, `replace` and
    `update` are conditional requests, safe between processes and machines; on a server without them, only the threads
    of this process are kept apart. So are those who delete: that has no condition anywhere.

    S3 tells values apart by their content: to write the same bytes again is no change there. A conditional write whose
    answer was lost on the way may be reported as lost to another one.
    """

    optimistic = True

    def __init__(
        self, store: Any, *, read_only: bool = False, concurrency: int | None = None, gap: int | None = None
    ) -> None:
        client = store if isinstance(store, Client) else Client.from_obstore(store)
        if client.kind == "http":
            raise TypeError("a plain HTTP server takes no objects; use HTTPStore")
        super().__init__(client, read_only=read_only, concurrency=concurrency, gap=gap)
        self._suffixes = client.kind != "az"

    @classmethod
    def from_url(
        cls,
        url: str,
        storage_options: Mapping[str, Any] | None = None,
        *,
        read_only: bool = False,
        concurrency: int | None = None,
        gap: int | None = None,
    ) -> Self:
        """The objects below a URL such as `s3://bucket/path`.

        Options have the names of obstore, s3fs and boto3: `key`, `secret`, `endpoint_url`, `anon`, `profile` and so on.
        """
        return cls(Client.from_url(url, storage_options), read_only=read_only, concurrency=concurrency, gap=gap)

    # -- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "") -> Iterator[str]:
        """All keys that start with the prefix, in no particular order; the server is asked as they are taken."""
        return self._list(check_prefix(prefix))

    def _list(self, prefix: str) -> Iterator[str]:
        try:
            for batch in library().calls.list(self._client.store(), prefix=prefix[:-1] or None, chunk_size=_BATCH):
                yield from _keys(batch, prefix)
        except FileNotFoundError as error:
            self._check_missing(prefix, error)
        except Exception as error:  # noqa: BLE001 - raises
            self._fail(prefix, error)

    def list_dir(self, prefix: str = "") -> tuple[Sequence[str], Sequence[str]]:
        """The keys directly below the prefix and the sub-prefixes, both whole and sorted."""
        check_prefix(prefix)
        try:
            found = library().calls.list_with_delimiter(self._client.store(), prefix[:-1] or None)
        except FileNotFoundError as error:
            self._check_missing(prefix, error)
            return [], []
        except Exception as error:  # noqa: BLE001 - raises
            self._fail(prefix, error)
        below = [f"{name}/" for name in found["common_prefixes"] if is_key(name)]
        return sorted(_keys(found["objects"], prefix)), sorted(below)

    # -- writing ----------------------------------------------------------------------------------

    def put(self, key: str, value: Buffer) -> None:
        """Store the value, all or nothing."""
        self._check_writable()
        self._put(check_key(key), _plain(value))

    def create(self, key: str, value: Buffer) -> bool:
        """Store the value if there is no such key yet; False, and nothing changed, if there is."""
        self._check_writable()
        return self._put(check_key(key), _plain(value), "create")

    def replace(self, key: str, value: Buffer, version: str) -> bool:
        """Store the value if the key still has this version; False, and nothing changed, if not."""
        self._check_writable()
        etag, _, number = version.partition("\n")
        mode = {name: text for name, text in (("e_tag", etag), ("version", number)) if text}
        return self._put(check_key(key), _plain(value), mode)

    def update(self, key: str, change: Callable[[Buffer | None], Encoded | None]) -> None:
        """Read a value, change it and write it back if nobody else has meanwhile; else once more, after a while."""
        self._check_writable()
        # The threads of this process wait for each other, instead of working in vain.
        with self.exclusive_here(key):
            for turn in range(_TRIES):
                if self._try_update(key, change):
                    return
                time.sleep(random.uniform(0, min(1.0, 0.005 * 2**turn)))
        raise ConflictError(
            f"key {key!r} in {self!r}: others changed it {_TRIES} times while it was changed here; nothing was written",
            key=key,
        )

    def _try_update(self, key: str, change: Callable[[Buffer | None], Encoded | None]) -> bool:
        found = self._ask(key, None)
        new = change(None if found is None else found.body)
        if new is None:
            self.delete(key)  # there is no deleting on condition
            return True
        value = _plain(new) if isinstance(new, bytes | bytearray | memoryview) else b"".join(new)
        if found is None:
            return self.create(key, value)
        return self.replace(key, value, version_of(found.etag, found.version))

    def _put(self, key: str, value: Buffer, mode: Any = "overwrite") -> bool:
        """Store a value; False if the condition does not hold."""
        errors = library().errors
        # A condition holds for one request; obstore sends none with the last part of several.
        parts = mode == "overwrite" and len(value) > 2 * _PART
        try:
            library().calls.put(
                self._client.store(), key, value, mode=mode, use_multipart=parts, chunk_size=_PART, max_concurrency=4
            )
        except (errors.AlreadyExistsError, errors.PreconditionError):
            return False
        except FileNotFoundError as error:
            self._check_missing(key, error)
            if mode in ("create", "overwrite"):
                self._fail(key, error)
            return False
        except NotImplementedError as error:
            if mode == "overwrite":
                self._fail(key, error)
            return self._put_here(key, value, mode)
        except Exception as error:  # noqa: BLE001 - raises
            self._fail(key, error)
        return True

    def _put_here(self, key: str, value: Buffer, mode: Any) -> bool:
        """A conditional write where the server has none: only the threads of this process are kept out."""
        with KeyLock(("writing", self.identity, key)):
            found = self._head(key)
            wanted = None if mode == "create" else version_of(mode.get("e_tag"), mode.get("version"))
            there = None if found is None else version_of(found.etag, found.version)
            return there == wanted and self._put(key, value)

    # -- removing ---------------------------------------------------------------------------------

    def delete(self, key: str) -> None:
        """Remove the key; nothing happens if there is none."""
        self._check_writable()
        if _control(check_key(key)):  # of which obstore says here that they are no text at all
            self._fail(key, ValueError("a path has no control characters"))
        self._delete(key, key)

    def delete_below(self, prefix: str, keys: Sequence[str]) -> None:
        """Remove several keys, many with each request."""
        self._check_writable()
        self._delete_all(prefix, map(check_key, keys))

    def delete_prefix(self, prefix: str) -> None:
        """Remove every key that starts with the prefix, many with each request."""
        self._check_writable()
        self._delete_all(prefix, self.list(prefix))

    def _delete_all(self, prefix: str, keys: Iterator[str]) -> None:
        while batch := list(islice(keys, _BATCH)):
            self._delete_batch(prefix, batch)

    def _delete_batch(self, prefix: str, keys: Sequence[str]) -> None:
        if self._client.kind == "s3":
            self._delete(keys, prefix)
        else:  # elsewhere a key that is gone already would keep the others from being removed
            together(self.delete, keys, min(16, self.concurrency or 1))

    def _delete(self, keys: str | Sequence[str], named: str) -> None:
        try:
            library().calls.delete(self._client.store(), keys)
        except FileNotFoundError as error:
            self._check_missing(named, error)
        except Exception as error:  # noqa: BLE001 - raises
            self._fail(named, error)


def _keys(found: Sequence[Any], prefix: str) -> list[str]:
    """The keys of a listing; of an object that stands for a folder, the prefix itself, obstore cuts the slash."""
    return [meta["path"] for meta in found if meta["path"].startswith(prefix) and is_key(meta["path"])]


def _plain(value: Buffer) -> bytes:
    """The value as bytes that nobody can change while they are sent, or where obstore keeps them itself."""
    return value if type(value) is bytes else memoryview(value).tobytes()
