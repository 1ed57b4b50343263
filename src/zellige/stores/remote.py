"""What object stores and web servers have in common: requests by obstore, from threads, without an event loop.

Every answer is checked for its length. Only the answer "there is no such key" is None; everything else that goes wrong
raises an OSError that names the key and the cause.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from zellige.errors import AccessDeniedError, ConflictError, RemoteError, ShortReadError, StoreKeyError
from zellige.settings import config
from zellige.stores.base import Store, Traits, Value, check_key, coalesced, divided, resolve_span
from zellige.stores.client import Client, library, redacted
from zellige.stores.threads import gather
from zellige.types import Buffer, Span

T = TypeVar("T")

_GAP = 1 << 20  # what one connection transfers in about the 20 ms that another request would wait
_MOST = 16 << 20  # longer ranges gain more from several connections than from one request
_TRIES = 8
_FAR = 2**63 - 2  # beyond every value, and a number for obstore and servers

_status = re.compile(r"status code: (\d{3})").search
_no_bucket = re.compile("NoSuchBucket|ContainerNotFound|bucket does not exist").search
_beyond = re.compile(r"status code: 416|nvalid range|Range started at|Requested \d").search


class Answer(NamedTuple):
    """What a request gave: bytes from `start` on, of a value of this size."""

    body: Buffer
    start: int
    size: int
    tag: str | None

    @classmethod
    def of(cls, meta: Any, body: Buffer = b"", start: int = 0) -> Answer:
        """Return the answer with obstore's description of an object."""
        return cls(body, start, meta["size"], tag_of(meta["e_tag"], meta.get("version")))


def tag_of(etag: str | None, version: str | None) -> str | None:
    """Return both of what object stores compare, as one text; Google's has a generation, the others an ETag."""
    return f"{etag or ''}\n{version or ''}" if etag or version else None


class RemoteStore(Store):
    """The reading half of a store on a server.

    `concurrency` is how many requests are kept in flight, `gap` the bytes between two ranges that are read along
    rather than asked for separately.
    """

    _suffixes = True
    """Whether the server knows ranges that count from the end; Azure's does not."""

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
        """Read the whole value, or ranges of it: those close together by one request, the others at the same time.

        The tag comes with the bytes and costs nothing. Ranges carry the same one, or are asked for again.
        """
        check_key(key)
        if spans is None or (len(spans) == 1 and not self._needs_size(spans[0])):
            answer = self._ask(key, None if spans is None else spans[0])
            return None if answer is None else Value([answer.body], answer.size, answer.tag)
        for _ in range(_TRIES):
            found = self._parts(key, spans)
            if found is None:
                return None
            parts, answers = found
            if len({answer.tag for answer in answers}) == 1:
                return Value(parts, answers[0].size, answers[0].tag)
        raise ConflictError(f"key {key!r} in {self!r} kept changing while ranges of it were read; try again")

    def _parts(self, key: str, spans: Sequence[Span]) -> tuple[list[Buffer], list[Answer]] | None:
        """Read ranges; return them and the answers that they are from."""
        known = []
        if not spans or any(self._needs_size(span) for span in spans):
            head = self._head(key)
            if head is None:
                return None
            known, spans = [head], [resolve_span(key, start, length, head.size) for start, length in spans]
        groups = coalesced([span for span in spans if span[1] != 0], self.traits.coalesce_gap, _MOST)
        try:
            found = gather(lambda group: self._ask(key, group), groups, self)
        except ShortReadError as error:
            for start, length in spans:
                resolve_span(key, start, length, error.size)  # names the range that was asked for, not the joined one
            raise
        answers = [answer for answer in found if answer is not None]
        if len(answers) < len(groups):
            return None
        bodies = dict(zip(groups, [answer.body for answer in answers], strict=True))
        return divided(spans, bodies), answers + known

    def _needs_size(self, span: Span) -> bool:
        """Whether a range cannot be asked for as it is: empty ones, and those that begin far from the end."""
        start, length = span
        if length is not None and length <= 0:
            return True
        return start < 0 and (length is not None or not self._suffixes)

    # -- requests ---------------------------------------------------------------------------------

    def _ask(self, key: str, span: Span | None) -> Answer | None:
        """Request a value, or a range of it, and check that the answer has the length that was asked for."""

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
        """Return what obstore answers; None if the key is missing."""
        try:
            return ask(library().calls, self._client.store())
        except Exception as error:  # noqa: BLE001 - raises, or knows what it means
            found: T | None = self._refused(key, span, error)
            return found

    def _refused(self, key: str, span: Span | None, error: Exception) -> Any:
        """Return what a request means that failed, None if only the key is missing; raise for all else."""
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
    """Return a range as obstore wants it."""
    start, length = span
    if length is not None:
        return min(start, _FAR), min(start + length, _FAR + 1)
    return {"suffix": min(-start, _FAR)} if start < 0 else {"offset": min(start, _FAR)}


def _check_answer(key: str, span: Span, answer: Answer) -> None:
    """Raise if the answer is not the range that was asked for, as of a value that is too short."""
    begin, count = resolve_span(key, *span, answer.size)
    if (answer.start, len(answer.body)) != (begin, count):
        raise ShortReadError(
            f"key {key!r}: the server sent {len(answer.body)} bytes from {answer.start} on, not {count} from {begin}",
            key=key,
            start=span[0],
            length=span[1],
            size=answer.size,
        )
