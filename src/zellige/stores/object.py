"""Objects of S3, Google Cloud Storage and Azure, and files of web servers, with obstore.

`RemoteStore` is what they share: ranges, retries, and errors that name the key and the cause.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, Self, TypeVar

from zellige.errors import (
    AccessDeniedError,
    ListingNotSupportedError,
    RangesIgnoredWarning,
    ReadOnlyError,
    RemoteError,
    ShortReadError,
    StoreKeyError,
)
from zellige.settings import config
from zellige.stores.base import (
    ABSENT,
    ChangedError,
    Listing,
    Missing,
    Store,
    Tag,
    Traits,
    Value,
    check_key,
    check_keys,
    check_prefix,
    coalesced,
    divided,
    is_key,
    joined,
    resolve_span,
    retried,
)
from zellige.stores.client import Client, library, redacted
from zellige.stores.threads import gather
from zellige.types import Buffer, Encoded, Span

T = TypeVar("T")

_GAP = 1 << 20  # bytes that one connection transfers in about 20 ms, the latency of another request
_MOST = 16 << 20  # bytes; longer ranges gain more from several connections than from one request
_PART = 8 << 20  # bytes of each part of a multipart upload
_BATCH = 1000  # keys that S3 removes in one request
_FAR = 2**63 - 2  # beyond every value, and a number for obstore and servers

_control = re.compile(r"[\x00-\x1f\x7f\udc80-\udcff]").search
_status = re.compile(r"status code: (\d{3})").search
_no_bucket = re.compile("NoSuchBucket|ContainerNotFound|bucket does not exist").search
_beyond = re.compile(r"status code: 416|nvalid range|Range started at|Requested \d").search


class Answer(NamedTuple):
    """The answer to a request: bytes from `start` on, of a value of this size."""

    body: Buffer
    start: int
    size: int
    tag: str | None

    @classmethod
    def of(cls, meta: Any, body: Buffer = b"", start: int = 0) -> Answer:
        """Return the answer with obstore's description of an object."""
        return cls(body, start, meta["size"], tag_of(meta["e_tag"], meta.get("version")))


def tag_of(etag: str | None, version: str | None) -> str | None:
    """Return what servers compare as one text: Google's a generation, the others an ETag."""
    return f"{etag or ''}\n{version or ''}" if etag or version else None


class RemoteStore(Store):
    """The reading half of a store on a server.

    `concurrency` is how many requests are kept in flight, `gap` the distance up to which two ranges are read as one.
    """

    _suffixes = True
    """Whether the server knows ranges that count from the end; Azure does not."""

    def __init__(self, client: Client, *, read_only: bool, concurrency: int | None, gap: int | None) -> None:
        for name, value in (("concurrency", concurrency), ("gap", gap)):
            if value is not None and (type(value) is not int or value < (name == "concurrency")):
                raise ValueError(f"{name}={value!r} must be a whole number, at least {int(name == 'concurrency')}")
        self._client = client
        self.traits = Traits(
            read_only=read_only,
            concurrency=config.get("remote.concurrency") if concurrency is None else concurrency,
            coalesce_gap=_GAP if gap is None else gap,
        )

    @property
    def url(self) -> str:
        """Where it is, without credentials."""
        return self._client.url

    # -- reading ----------------------------------------------------------------------------------

    def read(self, key: str, spans: Sequence[Span] | None = None) -> Value | None:
        """Read the whole value, or ranges of it, coalesced and at the same time; see `Store.read`.

        The tag comes with the bytes. If ranges come with different ones, they are read again.
        """
        check_key(key)
        if spans is None or (len(spans) == 1 and not self._needs_size(spans[0])):
            answer = self._ask(key, None if spans is None else spans[0])
            return None if answer is None else Value([answer.body], answer.size, answer.tag)
        return retried(self, [key], lambda: self._parts(key, spans), writing=False)

    def _parts(self, key: str, spans: Sequence[Span]) -> Value | None:
        """Read ranges of one version, or raise `ChangedError`."""
        known = []
        if not spans or any(self._needs_size(span) for span in spans):
            head = self._head(key)
            if head is None:
                return None
            known, spans = [head], [resolve_span(key, start, length, head.size) for start, length in spans]
        requests = coalesced([span for span in spans if span[1] != 0], self.traits.coalesce_gap, _MOST)
        try:
            found = gather(lambda span: self._ask(key, span), requests, self)
        except ShortReadError as error:
            for start, length in spans:
                resolve_span(key, start, length, error.size)  # names the requested range
            raise
        answers = [answer for answer in found if answer is not None]
        if len(answers) < len(requests):
            return None
        bodies = dict(zip(requests, [answer.body for answer in answers], strict=True))
        answers += known
        if len({answer.tag for answer in answers}) > 1:
            raise ChangedError
        return Value(divided(spans, bodies), answers[0].size, answers[0].tag)

    def _needs_size(self, span: Span) -> bool:
        """Whether a range cannot be requested as it is: empty ones, and those that begin far from the end."""
        start, length = span
        if length is not None and length <= 0:
            return True
        return start < 0 and (length is not None or not self._suffixes)

    # -- requests ---------------------------------------------------------------------------------

    def _ask(self, key: str, span: Span | None) -> Answer | None:
        """Request a value, or a range of it, and check the length of the answer."""

        def get(calls: Any, store: Any) -> Answer:
            result = calls.get(store, key, options=None if span is None else {"range": _range(span)})
            start, stop = result.range
            body = memoryview(result.bytes())
            if len(body) != stop - start:
                raise RemoteError(f"key {key!r} in {self!r}: {len(body)} bytes came instead of {stop - start}", key=key)
            return Answer.of(result.meta, body, start)

        answer = self._request(key, get, span)
        if answer is not None and span is not None:
            _check_answer(key, span, answer)
        return answer

    def _head(self, key: str) -> Answer | None:
        """Request the size and the tag of a value."""
        return self._request(key, lambda calls, store: Answer.of(calls.head(store, key)))

    def _request(self, key: str, ask: Callable[[Any, Any], T], span: Span | None = None) -> T | None:
        """Return what `ask` gets from obstore; None if the key is missing."""
        try:
            return ask(library().calls, self._client.store())
        except Exception as error:  # noqa: BLE001 - raises, or knows what it means
            found: T | None = self._refused(key, span, error)
            return found

    def _refused(self, key: str, span: Span | None, error: Exception) -> Any:
        """Return the answer that a failed request stands for, None if the key is missing; raise for all else."""
        if isinstance(error, FileNotFoundError) and not _no_bucket(str(error)):
            return None
        if span is not None and _beyond(str(error)):
            found = self._head(key)
            if found is None:
                return None
            begin, count = resolve_span(key, *span, found.size)
            if not count:  # the empty rest of a value
                return found._replace(start=begin)
        raise self._failed(key, error) from None

    def _failed(self, key: str, error: Exception) -> Exception:
        """Return the error for a request that failed: with the key and the cause, and without secrets."""
        errors = library().errors
        if isinstance(error, RemoteError) or not isinstance(
            error, errors.BaseError | OSError | NotImplementedError | ValueError
        ):
            return error
        text = redacted(str(error).partition("\n\nDebug source")[0])
        where = f"key {key!r} in {self!r}" if key else f"{self!r}"
        if isinstance(error, UnicodeError) or (isinstance(error, ValueError) and "path" in text):
            return StoreKeyError(f"{where}: object stores do not take such a key: {text}", key=key)
        if isinstance(error, ValueError):  # an option that means nothing
            return error
        # Of a refused listing obstore only says that it failed.
        denied = errors.PermissionDeniedError | errors.UnauthenticatedError | PermissionError
        if isinstance(error, denied) or status_of(error) in (401, 403):
            message = f"{where}: access was denied; check the credentials, or try anonymous=True: {text}"
            return AccessDeniedError(message, key=key)
        return RemoteError(f"{where}: the request failed: {text}", key=key)

    # -- views ------------------------------------------------------------------------------------

    @property
    def identity(self) -> tuple[str, ...]:
        """The server and the place on it."""
        return self._client.identity

    def __repr__(self) -> str:
        endpoint = f", endpoint={self._client.endpoint!r}" if self._client.endpoint else ""
        mode = ", read_only=True" if self.read_only else ""
        return f"{type(self).__name__}({self.url!r}{endpoint}{mode})"


def status_of(error: Exception) -> int | None:
    """Return the status with which a server has answered, if it has."""
    found = _status(str(error))
    return int(found[1]) if found else None


def _range(span: Span) -> Any:
    """Return a range in obstore's terms."""
    start, length = span
    if length is not None:
        return min(start, _FAR), min(start + length, _FAR + 1)
    return {"suffix": min(-start, _FAR)} if start < 0 else {"offset": min(start, _FAR)}


def _check_answer(key: str, span: Span, answer: Answer) -> None:
    """Raise `ShortReadError` unless the answer is the requested range."""
    begin, count = resolve_span(key, *span, answer.size)
    if (answer.start, len(answer.body)) != (begin, count):
        raise ShortReadError(
            f"key {key!r}: the server sent {len(answer.body)} bytes from {answer.start} on, not {count} from {begin}",
            key=key,
            start=span[0],
            length=span[1],
            size=answer.size,
        )


class ObjectStore(RemoteStore):
    """The objects of a bucket, or of those below a path in it; see also `from_url`.

    Writes are all or nothing. Those on condition are conditional requests, safe between processes and machines; on a
    server without them, only the threads of this process are kept apart. Deletes have no condition on any server.

    S3 tells values apart by their content: writing the same bytes again is no change there. A conditional write whose
    answer was lost may be reported as lost to another writer.

    Parameters
    ----------
    store
        A store of obstore: `S3Store`, `GCSStore`, `AzureStore` or `MemoryStore`.
    read_only
        Whether to refuse to write.
    concurrency
        How many requests may be in flight at once; by default the setting `remote.concurrency`.
    gap
        Ranges of one value that are so many bytes apart, or less, are coalesced; by default 1 MiB.

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
        """Return the objects below a URL.

        Parameters
        ----------
        url
            Such as `s3://bucket/path`; schemes are s3, s3a, gs, gcs, az, abfs and abfss.
        storage_options
            Options by the names of obstore, s3fs or boto3: `key`, `secret`, `endpoint_url`, `anon`, `profile` …
        read_only, concurrency, gap
            As for `ObjectStore`.

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
        value = joined(value)
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
            if if_tag is None:
                raise self._failed(key, error) from None
            return self._write_here(key, value, if_tag)
        except Exception as error:  # noqa: BLE001 - raises, or the key is missing
            self._refused(key, None, error)
            if if_tag is None or if_tag is ABSENT:
                raise self._failed(key, error) from None
            return False
        return True

    def _write_here(self, key: str, value: Buffer, if_tag: Tag | Missing) -> bool:
        """Write on condition where the server has no conditions: only the threads of this process are kept out."""
        with self._writing(key):
            found = self._head(key)
            return (ABSENT if found is None else found.tag) == if_tag and self.write(key, value)

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


class HTTPStore(RemoteStore):
    """The files below a URL. A server does not list them, so members of groups must be consolidated.

    404 and 410 mean that a key is missing; 403 is an error. A server that ignores ranges sends the whole value each
    time; a warning says so once.

    Parameters
    ----------
    url
        An `http` or `https` URL, or an `HTTPStore` of obstore.
    storage_options
        Options by the names of obstore.
    read_only
        Must be True.
    concurrency, gap
        As for `ObjectStore`.

    """

    def __init__(
        self,
        url: Any,
        storage_options: Mapping[str, Any] | None = None,
        *,
        read_only: bool = True,
        concurrency: int | None = None,
        gap: int | None = None,
    ) -> None:
        client = Client.from_url(url, storage_options) if isinstance(url, str) else Client.from_obstore(url)
        if client.kind != "http":
            raise ValueError(f"{client.url} is not on a web server; use ObjectStore")
        if not read_only:
            raise ValueError(f"{client.url} can only be read; leave out read_only=False")
        super().__init__(client, read_only=True, concurrency=concurrency, gap=gap)
        self._ignores_ranges = False

    # -- reading ----------------------------------------------------------------------------------

    def _ask(self, key: str, span: Span | None) -> Answer | None:
        if span is None or not self._ignores_ranges:
            return super()._ask(key, span)
        found = super()._ask(key, None)
        if found is None:
            return None
        start, count = resolve_span(key, *span, found.size)
        return found._replace(body=found.body[start : start + count], start=start)

    def _refused(self, key: str, span: Span | None, error: Exception) -> Any:
        if status_of(error) == 410:
            return None
        if span is not None and isinstance(error, library().errors.NotSupportedError):
            if not self._ignores_ranges:
                self._ignores_ranges = True
                warnings.warn(
                    f"{self.url} ignores ranges and sends whole values, of which only parts are needed; copy the data, "
                    "or ask for a server with ranges",
                    RangesIgnoredWarning,
                    stacklevel=2,
                )
            return self._ask(key, span)
        return super()._refused(key, span, error)

    # -- what a web server cannot do --------------------------------------------------------------

    def check_writable(self) -> NoReturn:
        """Raise: it is read-only, whatever it was opened with."""
        raise ReadOnlyError(
            f"{self!r} is a web server, which is only read; copy the data to a store that can be written, with "
            "zellige.copy, and change it there"
        )

    def list(self, prefix: str = "", *, recursive: bool = True) -> NoReturn:
        """Raise: a web server cannot list."""
        check_prefix(prefix)
        raise ListingNotSupportedError(
            f"what is below '/{prefix}' in {self!r} is not known: this server cannot list. Consolidate the metadata "
            "where the data was written (zellige.consolidate_metadata), or open a node by its own path"
        )

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> NoReturn:
        """Raise: it is read-only."""
        self.check_writable()

    def delete(self, keys: Sequence[str]) -> None:
        """Raise: it is read-only."""
        self.check_writable()
