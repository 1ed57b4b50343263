"""Values as objects of S3, Google Cloud Storage, Azure and what speaks like them, with obstore."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from zellige.stores.base import ABSENT, Listing, Missing, Tag, check_key, check_keys, check_prefix, is_key, joined
from zellige.stores.client import Client, library
from zellige.stores.remote import RemoteStore, tag_of
from zellige.stores.threads import gather
from zellige.types import Buffer, Encoded

_PART = 8 << 20  # of an upload in parts
_BATCH = 1000  # keys that S3 removes in one request

_control = re.compile(r"[\x00-\x1f\x7f\udc80-\udcff]").search


class ObjectStore(RemoteStore):
    """The objects of a bucket, or of those below a path in it.

    It is made `from_url`, or of one of obstore's own stores. Writes are all or nothing. Those on condition are
    conditional requests, safe between processes and machines; on a server without them, only the threads of this
    process are kept apart. So are those who delete: that has no condition anywhere.

    S3 tells values apart by their content: to write the same bytes again is no change there. A conditional write whose
    answer was lost on the way may be reported as lost to another one.
    """

    def __init__(
        self, store: Any, *, read_only: bool = False, concurrency: int | None = None, gap: int | None = None
    ) -> None:
        client = store if isinstance(store, Client) else Client.from_obstore(store)
        if client.kind == "http":
            raise TypeError("a plain HTTP server takes no objects; use HTTPStore")
        super().__init__(client, read_only=read_only, concurrency=concurrency, gap=gap)
        self.traits = replace(self.traits, optimistic=True)
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
        """Return the objects below a URL such as `s3://bucket/path`.

        Options have the names of obstore, s3fs and boto3: `key`, `secret`, `endpoint_url`, `anon`, `profile` and so on.
        """
        return cls(Client.from_url(url, storage_options), read_only=read_only, concurrency=concurrency, gap=gap)

    # -- listing ----------------------------------------------------------------------------------

    def list(self, prefix: str = "", *, recursive: bool = True) -> Listing:
        """List all keys that start with the prefix, asking the server as they are taken, or one level."""
        check_prefix(prefix)
        if recursive:
            return Listing(self._list(prefix))
        found = self._request(prefix, lambda calls, store: calls.list_with_delimiter(store, prefix[:-1] or None))
        if found is None:
            return Listing(())
        below = [f"{name}/" for name in found["common_prefixes"] if is_key(name)]
        return Listing(_keys(found["objects"], prefix), below)

    def _list(self, prefix: str) -> Iterator[str]:
        try:
            for batch in library().calls.list(self._client.store(), prefix=prefix[:-1] or None, chunk_size=_BATCH):
                yield from _keys(batch, prefix)
        except Exception as error:  # noqa: BLE001 - raises, or there is nothing to list
            self._refused(prefix, None, error)

    # -- writing ----------------------------------------------------------------------------------

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Store a value, all or nothing, maybe on a condition; see `Store.write`."""
        self.check_writable()
        check_key(key)
        mode: Any = "overwrite"
        if if_tag is ABSENT:
            mode = "create"
        elif if_tag is not None:
            etag, _, number = str(if_tag).partition("\n")
            mode = {name: text for name, text in (("e_tag", etag), ("version", number)) if text}
        # Bytes that nobody can change while they are sent, or where obstore keeps them itself.
        return self._put(key, joined(value), mode)

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
        except NotImplementedError as error:
            if mode == "overwrite":
                raise self._failed(key, error) from None
            return self._put_here(key, value, mode)
        except Exception as error:  # noqa: BLE001 - raises, or the key is missing
            self._refused(key, None, error)
            if mode in ("create", "overwrite"):
                raise self._failed(key, error) from None
            return False
        return True

    def _put_here(self, key: str, value: Buffer, mode: Any) -> bool:
        """Store a value on condition where the server has none: only the threads of this process are kept out."""
        with self._writing(key):
            found = self._head(key)
            wanted = None if mode == "create" else tag_of(mode.get("e_tag"), mode.get("version"))
            return (None if found is None else found.tag) == wanted and self._put(key, value)

    # -- removing ---------------------------------------------------------------------------------

    def delete(self, keys: Sequence[str]) -> None:
        """Remove keys, many with each request; nothing happens for those that are not there."""
        self.check_writable()
        for key in check_keys(keys):
            if _control(key):  # of which obstore says here that they are no text at all
                raise self._failed(key, ValueError("a path has no control characters"))
        for first in range(0, len(keys), _BATCH):
            some = keys[first : first + _BATCH]
            if self._client.kind == "s3" and len(some) > 1:
                self._delete(some, f"{some[0]}, …")
            else:  # elsewhere a key that is gone already would keep the others from being removed
                gather(lambda key: self._delete(key, key), some, self)

    def _delete(self, keys: str | Sequence[str], named: str) -> None:
        self._request(named, lambda calls, store: calls.delete(store, keys))


def _keys(found: Sequence[Any], prefix: str) -> list[str]:
    """Return the keys of a listing; of an object that stands for the prefix itself, obstore cuts the slash."""
    return [meta["path"] for meta in found if meta["path"].startswith(prefix) and is_key(meta["path"])]
