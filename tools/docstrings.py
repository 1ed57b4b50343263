"""For mkdocstrings: every docstring is translated to Markdown when it is loaded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))
from docstrings_markdown import as_markdown


class Docstrings(griffe.Extension):  # type: ignore[misc]
    """Translates docstrings."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
