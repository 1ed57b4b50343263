"""Docstrings as Markdown, for the documentation site: what each parameter means as a list, examples as code.

The docstrings themselves are made for reading in an editor: the names of parameters on lines of their own, with the
explanations indented below.
"""

from __future__ import annotations

import re

_NAMES = re.compile(r"(?m)^(?P<names>\w+(?:, \w+)*)\n(?P<text>(?:    .+\n?)+)")
_SECTION = re.compile(r"(?m)^(?P<name>\w+)\n-{3,}\n")
_EXAMPLE = re.compile(r"(?m)(?:^>>> .*\n?(?:^(?!>>> ).+\n?)*)+")


def as_markdown(text: str) -> str:
    """The same docstring as Markdown."""
    text = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
    text = _SECTION.sub(lambda found: f"**{found['name']}**\n\n", text)
    return _NAMES.sub(_item, text).rstrip()


def _item(found: re.Match[str]) -> str:
    return f"- **{found['names']}**: {' '.join(found['text'].split())}\n"
