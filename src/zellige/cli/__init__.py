"""The `zellige` command: to look at arrays and groups, check, mend, copy and convert them, without a script.

Each command is a thin layer over a documented function. Exit codes: 0 fine, 1 something was found, 2 an error.
"""

from __future__ import annotations

import os
import sys
import warnings
from argparse import Namespace
from collections.abc import Sequence

from zellige.cli.parser import parse

ERROR, INTERRUPTED, CLOSED_PIPE = 2, 130, 141
"""Exit codes; the last two are those of a shell for processes that ended by SIGINT and SIGPIPE."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command, by default the one that the process was started with, and return the exit code."""
    try:
        arguments = parse(sys.argv[1:] if argv is None else argv)
    except SystemExit as asked:  # help, or a mistake in the arguments
        return asked.code if isinstance(asked.code, int) else ERROR
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_: print(f"zellige: warning: {message}", file=sys.stderr)
            from zellige.cli import commands  # not for help, nor for a mistake in the arguments

            code: int = getattr(commands, arguments.command)(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python flushes at the end
        return CLOSED_PIPE
    except KeyboardInterrupt:
        start = "\n" if sys.stderr.isatty() else ""  # after the ^C that a terminal shows
        print(f"{start}zellige: interrupted; what is stored is whole, run the same command again", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  (the outermost caller: every error ends as one line and an exit code)
        if os.environ.get("ZELLIGE_DEBUG"):
            import traceback

            traceback.print_exception(error)
        print(f"zellige {arguments.command}: {error_line(error, arguments)}", file=sys.stderr)
        return ERROR
    return code


def error_line(error: Exception, arguments: Namespace) -> str:
    """Return an error in one line, with the remedy as an option that the command takes."""
    from zellige import errors

    words = str(error.args[0]) if type(error) is KeyError and error.args else str(error)
    line = " ".join(words.split()) or type(error).__name__
    if isinstance(error, errors.NodeNotFoundError):
        return f"{line}; check the place, or give the node within it by --path"
    for name in ("overwrite", "if_exists"):
        if isinstance(error, FileExistsError) and f"{name}=" in line and name in arguments:
            return f"{line}: here --{name.replace('_', '-')}"
    if "unsupported='skip'" in line:
        return f"{line}, here --skip"
    known = (errors.ZelligeError, OSError, ValueError, TypeError, LookupError, ImportError, MemoryError)
    if not isinstance(error, known):
        return f"{type(error).__name__}: {line}; this is a mistake in zellige, ZELLIGE_DEBUG=1 shows where"
    return line
