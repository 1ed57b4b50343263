"""`python -m zellige` is the `zellige` command."""

from __future__ import annotations

import sys

from zellige.cli import main

if __name__ == "__main__":
    sys.exit(main())
