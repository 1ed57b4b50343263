"""The parts of docs/format and of the README that are made: JSON of the examples, fields of codecs, who reads them.

    python tools/format_pages.py             fill in the pages
    python tools/format_pages.py --measure   ask the other libraries first, and keep what they answer

The code of a page makes one array `a`, or several as `examples`. A comment `<!-- json: … -->` says which field of their
documents is shown. What the libraries answered is in tools/compatibility.json. The fields of codecs are as the codecs
declare them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import ask_peer

import zellige
from zellige import codecs
from zellige.codecs.fields import fields_of

ROOT = Path(__file__).parents[1]
KINDS = {"grids": "grid", "keys": "chunk keys", "types": "type", "codecs": "codec"}
PAGES = {f"{kind}/{page.stem}": page for kind in KINDS for page in sorted((ROOT / f"docs/format/{kind}").glob("*.md"))}
FACTS = ROOT / "tools/compatibility.json"
WORDS = {"both": "yes", "reads": "reads", "no": "no"}

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_JSON = re.compile(r"(?m)^<!-- json: (\w+)( of each example)? -->\n```json\n(?:.*\n)*?```$")


# -- examples -------------------------------------------------------------------------------------


def examples(page: Path) -> dict[str, zellige.Array]:
    """The arrays that the code of a page makes, in the current directory."""
    namespace: dict[str, Any] = {}
    for block in _BLOCK.findall(page.read_text()):
        exec(compile(block, str(page), "exec"), namespace)
    return namespace["examples"] if "examples" in namespace else {page.stem: namespace["a"]}


@contextlib.contextmanager
def in_new_directory() -> Iterator[Path]:
    """Work in a directory that is removed afterwards."""
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        yield Path(directory)


def shown(value: Any) -> str:
    """JSON as people write it: what is short stays on one line."""

    def lines(value: Any, indent: str) -> str:
        flat = json.dumps(value, ensure_ascii=False)
        if len(indent) + len(flat) <= 100 or not isinstance(value, dict | list) or not value:
            return flat
        deeper = indent + "  "
        if isinstance(value, list):
            return "[\n" + ",\n".join(deeper + lines(item, deeper) for item in value) + f"\n{indent}]"
        items = (f"{deeper}{json.dumps(key)}: {lines(item, deeper)}" for key, item in value.items())
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"

    return lines(value, "")


def with_json(text: str, arrays: dict[str, zellige.Array]) -> str:
    """The page with the documents of its arrays filled in."""

    def block(found: re.Match[str]) -> str:
        field, each = found[1], found[2]
        values = [shown(array.metadata.to_dict()[field]) for array in arrays.values()]
        assert each or len(values) == 1
        return "\n".join([f"<!-- json: {field}{each or ''} -->", "```json", *values, "```"])

    return _JSON.sub(block, text)


# -- configurations of codecs ---------------------------------------------------------------------


def fields_table(name: str) -> str:
    """What the configurations of the codecs of a page may hold."""
    many = name == "codecs/numcodecs"
    names = [f"numcodecs.{kind}" for kind in codecs.NUMCODECS] if many else [name.partition("/")[2]]
    lines = ["| codec | field | value | if it is left out |" if many else "| field | value | if it is left out |"]
    lines.append("|---" * (4 if many else 3) + "|")
    for codec in names:
        for field in fields_of(codecs.find(codec)):
            row = [f"`{codec.partition('.')[2]}`"] if many else []
            words = field.rule.expected.replace("|", "\\|")
            if field.absent is MISSING:
                left_out = "an error"
            else:
                left_out = "—" if field.absent is None else f"`{json.dumps(field.absent)}`"
            lines.append(f"| {' | '.join([*row, f'`{field.key}`', words, left_out])} |")
    return "\n".join(lines)


# -- other libraries ------------------------------------------------------------------------------


def interpreters() -> dict[str, str]:
    """Where each library is, if it is: tests and people may name the places."""
    peer = os.environ.get("ZELLIGE_PEER_PYTHON") or str(ROOT / ".venv-peer/bin/python")
    bench = os.environ.get("ZELLIGE_BENCH_PYTHON") or str(ROOT / ".venv-bench/bin/python")
    found = {"zarr-python": peer, "TensorStore": sys.executable, "zarrs": bench}
    return {name: python for name, python in found.items() if os.access(python, os.X_OK)}


def measure(library: str, python: str) -> dict[str, Any]:
    """What a library can do with the examples of all pages: its version, and an answer for each example."""
    with in_new_directory() as directory, contextlib.redirect_stdout(io.StringIO()):
        arrays = {}
        for name, page in PAGES.items():
            place = directory / name
            place.mkdir(parents=True)
            with contextlib.chdir(place):
                arrays |= {f"{name}: {key}": array for key, array in examples(page).items()}
        expected = {name: ask_peer.fingerprint(array[...]) for name, array in arrays.items()}
        # A library's own environment: our PYTHONPATH is for another interpreter.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        done = subprocess.run(
            [python, ask_peer.__file__, library],
            input=json.dumps({name: array.store.root for name, array in arrays.items()}),
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{library} in {python} ended with {done.returncode}: {done.stderr[-2000:]}")
        report = json.loads(done.stdout.splitlines()[-1])
        verdicts = {}
        for name, array in arrays.items():
            answer = report["answers"][name]
            if answer.get("read") != expected[name]:
                verdicts[name] = "no"
            else:
                written = "written" in answer and ask_peer.fingerprint(array[...]) == expected[name]
                verdicts[name] = "both" if written else "reads"
    return {"version": report["version"], "verdicts": verdicts}


def table(facts: dict[str, Any], name: str) -> str:
    """What the libraries can do with the examples of one page."""
    head = [f"{library} {fact['version']}" for library, fact in facts.items()]
    names = [key for key in next(iter(facts.values()))["verdicts"] if key.startswith(f"{name}: ")]
    lines = [f"| | {' | '.join(head)} |", "|---" * (len(head) + 1) + "|"]
    for key in names:
        cells = [WORDS[fact["verdicts"][key]] for fact in facts.values()]
        lines.append(f"| `{key.partition(': ')[2]}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def matrix(facts: dict[str, Any], prefix: str) -> str:
    """All pages in a line each: yes, no, or how many of the examples."""
    head = [f"{library} {fact['version']}" for library, fact in facts.items()]
    lines = [f"| | | {' | '.join(head)} |", "|---" * (len(head) + 2) + "|"]
    for name, page in PAGES.items():
        title = page.read_text().partition("\n")[0].removeprefix("# ")
        cells = []
        for fact in facts.values():
            found = [verdict for key, verdict in fact["verdicts"].items() if key.startswith(f"{name}: ")]
            good = found.count("both")
            some = f"{good} of {len(found)}"
            cells.append(WORDS[found[0]] if len(set(found)) == 1 else some)
        lines.append(f"| {KINDS[name.partition('/')[0]]} | [{title}]({prefix}{name}.md) | {' | '.join(cells)} |")
    return "\n".join(lines)


def between(text: str, name: str, made: str) -> str:
    """The text with what is between the two comments of a name replaced."""
    first, last = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    head, _, rest = text.partition(first)
    _, found, tail = rest.partition(last)
    assert found, f"there is no <!-- {name} --> with its end"
    return f"{head}{first}\n{made}\n\n{last}{tail}"


# -- pages ----------------------------------------------------------------------------------------


def made_pages() -> dict[Path, str]:
    """Every page with a made part, as it should be."""
    facts = json.loads(FACTS.read_text())
    found = {}
    for name, page in PAGES.items():
        with in_new_directory():
            text = with_json(page.read_text(), examples(page))
        if "<!-- configuration -->" in text:
            text = between(text, "configuration", fields_table(name))
        found[page] = between(text, "compatibility", table(facts, name))
    for page, prefix in ((ROOT / "docs/format/index.md", ""), (ROOT / "README.md", "docs/format/")):
        found[page] = between(page.read_text(), "matrix", matrix(facts, prefix))
    return found


def main() -> None:
    """Fill in the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="ask the other libraries first")
    if parser.parse_args().measure:
        facts = {name: measure(name, python) for name, python in interpreters().items()}
        if missing := ask_peer.LIBRARIES.keys() - facts.keys():
            sys.exit(f"missing: {', '.join(sorted(missing))}; run `make peer` and `make bench QUICK=1 CASE=open` once")
        FACTS.write_text(json.dumps(facts, indent=1) + "\n")
    for page, text in made_pages().items():
        page.write_text(text)


if __name__ == "__main__":
    main()
