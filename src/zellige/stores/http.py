"""Values from a web server: read only, never listed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from zellige.errors import ListingNotSupportedError, RangesIgnoredWarning
from zellige.stores.base import Missing, Tag, check_prefix, resolve_span
from zellige.stores.client import Client, library
from zellige.stores.remote import Answer, RemoteStore, status_of
from zellige.types import Encoded, Span


class HTTPStore(RemoteStore):
    """The files below a URL. A server does not say which there are, so members of groups must be consolidated.

    404 and 410 mean that a key is missing; 403 is an error. A server that ignores ranges sends all of a value each
    time, of which the asked part is kept; a warning says so once.
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
        if isinstance(url, str):
            client = Client.from_url(url, storage_options)
        else:
            client = url if isinstance(url, Client) else Client.from_obstore(url)
        if client.kind != "http":
            raise ValueError(f"{client.url} is not on a web server; use ObjectStore")
        if not read_only:
            raise ValueError(f"{client.url} can only be read; leave out read_only=False")
        super().__init__(client, read_only=True, concurrency=concurrency, gap=gap)
        self._whole = False
        """Whether the server was found to ignore ranges."""

    # -- reading ----------------------------------------------------------------------------------

    def _ask(self, key: str, span: Span | None) -> Answer | None:
        if span is None or not self._whole:
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
            if not self._whole:
                self._whole = True
                warnings.warn(
                    f"{self.url} ignores ranges and sends whole values, of which only parts are needed; copy the data, "
                    "or ask for a server with ranges",
                    RangesIgnoredWarning,
                    stacklevel=2,
                )
            return self._ask(key, span)
        return super()._refused(key, span, error)

    # -- what a web server cannot do --------------------------------------------------------------

    def list(self, prefix: str = "", *, recursive: bool = True) -> NoReturn:
        """Raise: a web server cannot list."""
        check_prefix(prefix)
        raise ListingNotSupportedError(
            f"what is below '/{prefix}' in {self!r} is not known: this server cannot list. Consolidate the metadata "
            "where the data was written (zellige.consolidate_metadata), or open a node by its own path"
        )

    def write(self, key: str, value: Encoded, if_tag: Tag | Missing | None = None) -> bool:
        """Raise: it is read-only."""
        self.check_writable()
        return False

    def delete(self, keys: Sequence[str]) -> None:
        """Raise: it is read-only."""
        self.check_writable()
