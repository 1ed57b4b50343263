"""Docstrings as Markdown, for the documentation site: what each parameter means as a list, examples as code.

The docstrings themselves are made for reading in an editor: the names of parameters on lines of their own, with the
explanations indented below.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_NAMES = re.compile(r"(?m)^(?P<names>\w+(?:, \w+)*)\n(?P<text>(?:    .+\n?)+)")
_EXAMPLE = re.compile(r"(?m)(?:^>>> .*\n?(?:^(?!>>> ).+\n?)*)+")


def as_markdown(text: str) -> str:
    """The same docstring as Markdown.

    >>> print(as_markdown("Do it.\\n\\nsrc, dst\\n    Two places.\\n\\n>>> 1 + 1\\n2"))
    Do it.
    <BLANKLINE>
    - **src, dst**: Two places.
    <BLANKLINE>
    ```pycon
    >>> 1 + 1
    2
    ```
    """
    text = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
    return _NAMES.sub(_item, text).rstrip()


def _item(found: re.Match[str]) -> str:
    return f"- **{found['names']}**: {' '.join(found['text'].split())}\n"


class Docstrings(griffe.Extension):  # type: ignore[misc]
    """Translates every docstring once it is loaded."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
