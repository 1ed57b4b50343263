"""Retries of what fails because others change the same values meanwhile: one policy for all reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from zellige.errors import ConflictError

if TYPE_CHECKING:
    from zellige.stores.base import Store

_TRIES = 64
_FIRST, _LONGEST = 0.005, 1.0  # seconds before the second attempt, and before late ones: at random, up to these

T = TypeVar("T")


class ChangedError(Exception):
    """Another writer changed a value while it was in use."""


def retried(store: Store, keys: Sequence[str], attempt: Callable[[], T], *, writing: bool = True) -> T:
    """Return what an attempt returns; repeat it, after a pause, while it raises `ChangedError`.

    Parameters
    ----------
    store
        The store that others change.
    keys
        What they change there, for the `ConflictError` that ends too many attempts.
    attempt
        What to do.
    writing
        Whether an attempt is to write something; then the error says that nothing was written.

    """
    for number in range(_TRIES):
        if number:
            _pause(min(_LONGEST, _FIRST * 2**number))
        try:
            return attempt()
        except ChangedError:
            continue
    names = f"key {keys[0]!r}" if len(keys) == 1 else f"keys {list(keys)}"
    outcome = "; nothing was written" if writing else " while it was read"
    raise ConflictError(f"{names} in {store!r} kept changing, {_TRIES} times{outcome}, try again", key=keys[0])


def _pause(longest: float) -> None:
    import random  # loaded by those who meet a conflict
    import time

    time.sleep(random.uniform(0, longest))
