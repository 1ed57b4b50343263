"""The documentation: every block of code runs, what is made is up to date, and the pages hang together."""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import ask_peer
import check_site
import format_pages
import pictures
import pytest
from docstrings_markdown import as_markdown
from servers import s3, s3_process  # noqa: F401 - fixtures

import zellige

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md", *sorted(DOCS.rglob("*.md"))]


def place(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


each_page = pytest.mark.parametrize("page", PAGES, ids=place)

# -- code -----------------------------------------------------------------------------------------

# A block runs, unless a comment in the line before says what it needs. `needs` names something that this test starts or
# looks for; `not run` gives a reason, and the block is only compiled.
MARK = re.compile(r"(?m)^<!-- (needs|not run): (.+) -->$")
NEEDS = {"s3", "icechunk"}
NOT_RUN: dict[str, str] = {}
"""The pages with blocks that are not run, and why."""


class Block(NamedTuple):
    """One block of Python, and what it needs."""

    code: str
    line: int
    kind: str = ""
    words: str = ""


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    found = list(re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    assert len(found) == text.count("```python"), "a block is not closed"
    for block in found:
        above = text[: block.start()].rstrip("\n").rpartition("\n")[2]
        mark = MARK.fullmatch(above)
        yield Block(block[1], text.count("\n", 0, block.start()) + 1, *(mark.groups() if mark else ()))


def provide(name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start or find what a block needs."""
    if name == "s3":
        server = request.getfixturevalue("s3")
        server.request("PUT", "/my-bucket")
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    else:
        pytest.importorskip(name, reason=f"{name} is missing: pip install {name}")


@pytest.mark.filterwarnings("default::FutureWarning", "default::UserWarning")  # of the libraries that are shown
@pytest.mark.parametrize("page", [page for page in PAGES if any(blocks(page))], ids=place)
def test_the_code_in_the_documentation_runs(page, tmp_path, monkeypatch, request):
    found = list(blocks(page))
    for name in dict.fromkeys(block.words for block in found if block.kind == "needs"):
        provide(name, request, monkeypatch)
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": page.stem}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in found:
            code = compile("\n" * block.line + block.code, place(page), "exec")
            if block.kind != "not run":
                exec(code, namespace)


@each_page
def test_marks_of_blocks_are_known_and_belong_to_one(page):
    marks = MARK.findall(page.read_text())
    assert len(marks) == sum(bool(block.kind) for block in blocks(page)), "a mark stands before no block of Python"
    for kind, words in marks:
        if kind == "needs":
            assert words in NEEDS
        else:
            assert NOT_RUN.get(place(page)) == words, "name the page and the reason in NOT_RUN"


@each_page
def test_commands_for_make_exist(page):
    targets = set(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text()))
    commands = re.findall(r"(?m)^make ([a-z]+)|`make ([a-z]+)", page.read_text())
    assert {name for pair in commands for name in pair if name} <= targets


def test_the_text_pictures_are_what_is_printed():
    """Blocks of text after a block that prints a grid."""
    text = (DOCS / "tutorial.md").read_text()
    shown = re.search(r"^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    grid = zellige.zeros((90, 8), chunks=([31, 28, 31], 4)).grid
    assert shown is not None
    assert shown[1] == grid.to_text(width=40, height=9) + "\n"


# -- what is made ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made() -> dict[Path, str]:
    return format_pages.made_pages()


@pytest.mark.parametrize("page", [*format_pages.PAGES.values(), DOCS / "format/index.md", README], ids=place)
def test_examples_in_json_and_tables_are_up_to_date(page, made):
    assert page.read_text() == made[page], "run `python tools/format_pages.py`"


@pytest.mark.parametrize("library", ask_peer.LIBRARIES)
def test_other_libraries_do_what_the_tables_say(library):
    fact = json.loads(format_pages.FACTS.read_text())[library]
    python = format_pages.interpreters().get(library)
    if python is None:
        pytest.skip(f"{library} is missing: its environment is made by `make peer` (zarr-python), `make bench` (zarrs)")
    found = format_pages.measure(library, python)
    assert found["verdicts"].keys() == fact["verdicts"].keys(), "run `python tools/format_pages.py --measure`"
    if found["version"] != fact["version"]:
        pytest.skip(f"the tables are about {library} {fact['version']}, and {found['version']} is installed")
    assert found["verdicts"] == fact["verdicts"]


def test_every_codec_type_grid_and_key_encoding_has_a_page():
    from zellige.codecs import _CODECS, NUMCODECS
    from zellige.dtypes.table import TYPES
    from zellige.metadata.chunks import _ENCODINGS, _GRIDS

    text = {name: page.read_text() for name, page in format_pages.PAGES.items()}
    codecs = {name for name in _CODECS if "." not in name} - {"endian"}  # a former name
    assert codecs == {name.partition("/")[2] for name in text if name.startswith("codecs/")} - {"numcodecs", "zarrs"}
    assert {name for name in NUMCODECS if f'"numcodecs.{name}"' not in text["codecs/numcodecs"]} == set()
    assert {name for name in _CODECS if name.startswith("zarrs.") and name not in text["codecs/zarrs"]} == set()
    assert {name for name in _GRIDS if f"# {name}\n" not in "".join(text.values())} == set()
    assert {name for name in _ENCODINGS if f"keys/{name}" not in text} == set()
    types = "".join(page for name, page in text.items() if name.startswith("types/"))
    former = {"structured", "variable_length_bytes", "complex_float32", "complex_float64"}
    missing = {name for name in TYPES.keys() - former if f'"{name}"' not in types}
    assert {name for name in missing if not name.startswith("complex_")} == set()  # pairs of what is shown


@pytest.mark.parametrize("name", pictures.pictures())
def test_pictures_are_up_to_date(name):
    found = pictures.FOLDER / f"{name}.svg"
    assert found.read_text() == pictures.pictures()[name], "run `python tools/pictures.py`"


def test_every_picture_is_shown_somewhere():
    shown = set(re.findall(r"pictures/(\w+)\.svg\)", "".join(page.read_text() for page in PAGES)))
    assert {file.stem for file in pictures.FOLDER.iterdir()} == set(pictures.pictures()) == shown


# -- how the pages hang together ------------------------------------------------------------------


def anchor(heading: str) -> str:
    """What a heading is called in a link."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@each_page
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target, fragment in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
        assert "://" not in target, "no page needs another machine"
        found = (page.parent / target).resolve() if target else page
        assert found.exists(), f"{target} is not there"
        if fragment and not fragment.startswith("zellige"):  # those are made from docstrings
            assert fragment in {anchor(line) for line in re.findall(r"(?m)^#+ (.+)$", found.read_text())}


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r"- (?:\w+: )?(\S+\.md)$", nav, re.MULTILINE)
    assert len(listed) == len(set(listed))
    assert {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} == set(listed), "add it to nav in mkdocs.yml"


def test_the_reference_has_every_public_name():
    shown = set(re.findall(r"(?m)^::: (\S+)", "".join(page.read_text() for page in DOCS.glob("api/*.md"))))
    homes = {name: f"zellige.{home}.{name}" for name, home in zellige._HOMES.items()}
    missing = {name for name in zellige.__all__ if not {f"zellige.{name}", homes.get(name)} & shown}
    assert missing == {"__version__"}
    for name in shown:
        module, _, last = name.rpartition(".")
        assert last in dir(import_module(module)) or import_module(name), name


def test_those_who_come_from_zarr_python_are_told_what_differs():
    page = DOCS / "how-to/zarr-python.md"
    assert len([line for line in page.read_text().splitlines() if line.startswith("| ")]) > 40
    assert place(page) in README.read_text()


def test_docstrings_become_markdown():
    text = "Do it.\n\nsrc, dst\n    Two places,\n    or one.\nn\n    How often.\n\nMore.\n\n>>> 1 + 1\n2\n"
    wanted = (
        "Do it.\n\n- **src, dst**: Two places, or one.\n- **n**: How often.\n\nMore.\n\n```pycon\n>>> 1 + 1\n2\n```"
    )
    assert as_markdown(text) == wanted
    assert as_markdown("Do it.\n\nParameters\n----------\nn\n    How often.\n") == (
        "Do it.\n\n**Parameters**\n\n- **n**: How often."
    )


def test_a_site_that_loads_from_elsewhere_or_links_nowhere_is_noticed(tmp_path):
    (tmp_path / "good.html").write_text("<link href=style.css><a href=good.html#top>top</a><a href=https://x.org>x</a>")
    (tmp_path / "style.css").touch()
    assert check_site.complaints(tmp_path / "good.html") == []
    (tmp_path / "bad.html").write_text("<script src=https://x.org/y.js></script><a href=missing.html>there</a>")
    assert len(check_site.complaints(tmp_path / "bad.html")) == 2
