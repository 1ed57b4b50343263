"""Documents of a node that are asked for at the same time, before it is known which of them there are."""

from __future__ import annotations

from collections.abc import Sequence

from zellige.nodes.node import Read, read_document
from zellige.stores import Store
from zellige.stores.threads import gather


def ask_for(names: Sequence[str], store: Store, path: str) -> Read:
    """Ask for documents by name; the result gives each of them.

    What goes wrong with a document is raised only if that one is needed: without the right to list, some stores
    refuse what is not there.
    """

    def look(name: str) -> bytes | Exception | None:
        try:
            return read_document(store, path, name)
        except Exception as error:  # noqa: BLE001  (raised by whoever needs it)
            return error

    found = dict(zip(names, gather(look, names, store), strict=True))

    def read(name: str) -> bytes | None:
        answer = found[name]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return read
