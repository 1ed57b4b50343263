"""Who may change the shape of an array, and what is left of those who were killed doing it.

While chunks may lie beyond the end of an array, a key beside its document says so: the mark. Where a store locks keys,
the lock keeps others out and the mark only outlives a crash. Where it does not, in object stores, the mark is the lock
as well: it is created on condition, by one winner, and names its holder. Two processes that appended at once would
otherwise write their rows to the same chunks.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable
from typing import Any

from zellige.config import config
from zellige.errors import ConflictError
from zellige.stores import Store
from zellige.types import Shape

_PATIENCE = 60.0  # seconds to wait for another one who is at work
_WORDS = "chunks may lie beyond the end of this array; the next resize or append by zellige removes them"


class Claim:
    """The mark of one array, under the lock of its document."""

    __slots__ = ("_store", "_key", "_mine", "_left", "marked")

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key = store, key
        self._mine, self._left = b"", False
        self.marked = False
        """Whether this one may have put something beyond the end."""

    @property
    def words(self) -> bytes:
        """What the mark says: who has it can take it up again."""
        return self._mine

    def take(self, words: bytes = b"") -> None:
        """Keep others out, where the lock does not; raises `ConflictError` if another one stays at work.

        With `words` take up a claim again whose mark has them; that raises if others have removed it meanwhile.
        """
        if words:
            if self._store.get(self._key) != words:
                raise ConflictError(
                    f"key {self._key!r} in {self._store!r}: the array was resized or appended to since this append was "
                    "started; its data is gone, append again",
                    key=self._key,
                )
            self._mine, self.marked = words, True
            return
        if not self._store.optimistic or self._store.transactional:
            return
        self._mine = _signed()
        until = time.monotonic() + _PATIENCE
        pause = 0.02
        while not self._store.create(self._key, self._mine):
            found = self._store.get_versioned(self._key)
            if found is None:
                continue
            if _is_dead(found[0]):
                self._mine = _signed(_shapes(found[0]))
                if self._store.replace(self._key, self._mine, found[1]):
                    self._left = True
                    return
            elif time.monotonic() > until:
                raise ConflictError(
                    f"key {self._key!r} in {self._store!r}: another process is changing the shape of this array, "
                    f"{_who(found[0])}. Nothing was written; try again, or if it is dead, set "
                    "'remote.claim_timeout' to 0 and resize the array to its own shape",
                    key=self._key,
                )
            time.sleep(random.uniform(0, pause))
            pause = min(1.0, pause * 1.5)

    def leftover(self) -> bool:
        """Whether something may lie beyond the end already; one request at most."""
        if self._store.optimistic or self._store.transactional:
            return self._left or self.marked
        return self._store.exists(self._key)

    def cleaned(self) -> None:
        """Nothing lies beyond the end any more."""
        self._left = self.marked = False
        if not self._store.optimistic and not self._store.transactional:
            self._store.delete(self._key)

    def mark(self, *shapes: Shape) -> None:
        """Something may lie beyond the end from now on, or be encoded for the other of two shapes."""
        self.marked = True
        if not self._store.transactional:  # what is killed there leaves nothing
            self._mine = _signed(shapes)
            self._store.put(self._key, self._mine)

    def is_held(self) -> bool:
        """Whether nobody has taken this one for dead."""
        return not self._store.optimistic or self._store.get(self._key) == self._mine

    def release(self) -> None:
        """Let others in, unless something was left beyond the end, which they then remove."""
        if self._store.optimistic and not (self._left or self.marked) and self.is_held():
            self._store.delete(self._key)


def _signed(shapes: Iterable[Shape] = ()) -> bytes:
    """A mark with the name of its holder, and the shapes between which the array changes."""
    import json

    holder = {"machine": _machine(), "pid": os.getpid(), "time": round(time.time()), "id": os.urandom(8).hex()}
    return json.dumps({"about": _WORDS, "holder": holder, "shapes": [list(shape) for shape in shapes]}).encode()


def _shapes(mark: bytes) -> list[Shape]:
    """The shapes that a mark names."""
    import json

    try:
        return [tuple(map(int, shape)) for shape in json.loads(mark)["shapes"]]
    except (ValueError, KeyError, TypeError):
        return []


def _holder(mark: bytes) -> dict[str, Any] | None:
    """Who has left a mark; None if it does not say, as one that was copied from elsewhere."""
    import json

    try:
        holder = json.loads(mark)["holder"]
        return {"machine": str(holder["machine"]), "pid": int(holder["pid"]), "time": float(holder["time"])}
    except (ValueError, KeyError, TypeError):
        return None


def _is_dead(mark: bytes) -> bool:
    holder = _holder(mark)
    if holder is None:
        return True
    if holder["machine"] == _machine():
        try:
            os.kill(holder["pid"], 0)
        except ProcessLookupError:
            return True
        except PermissionError:  # it lives, under another user
            return False
    limit: float = config.get("remote.claim_timeout")
    return time.time() > float(holder["time"]) + limit


def _who(mark: bytes) -> str:
    holder = _holder(mark) or {}
    return f"number {holder.get('pid')} on {str(holder.get('machine')).partition(' ')[0]}"


def _machine() -> str:
    """Equal where the numbers of processes mean the same processes: containers of one machine differ."""
    import platform

    parts = [platform.node()]
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            parts.append(file.read().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    except OSError:  # elsewhere the name must do
        pass
    return " ".join(parts)
