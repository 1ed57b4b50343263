"""Guards of the words: names that are retired, reasons for state of modules, parameters that are explained."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import zellige

PACKAGE = Path(zellige.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))


def place(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


# -- retired names --------------------------------------------------------------------------------

RETIRED = {
    "claim": "lease",
    "crowd": "batch",
    "decode_many": "the kernel's decode",
    "decode_rows": "the kernel's decode",
    "encode_many": "the kernel's encode",
    "for_many": "lock",
    "gathering": "coalesce",
    "making": "create",
    "placing": "create",
    "scratch": "the kernel's buffers",
    "telling": "progress",
    "tile": "chunk",
    "told": "progress",
    "upkeep": "repair",
}
"""Words that were names of concepts once, and the field's word that took their place."""


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that code defines: of modules' attributes, functions, classes, arguments and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr, node.lineno


@pytest.mark.parametrize("file", FILES, ids=place)
def test_retired_words_name_nothing(file):
    found = [
        f"{place(file)}:{line} {name}: say {RETIRED[word]}"
        for name, line in [(file.stem, 1), *names(ast.parse(file.read_text()))]
        for word in {name.strip("_").lower(), *re.findall(r"[a-z]+", re.sub(r"([A-Z])", r" \1", name).lower())}
        if word in RETIRED
    ]
    assert found == []


# -- state of modules -----------------------------------------------------------------------------

CONSTANT = re.compile(r"_*[A-Z][A-Za-z0-9_]*$|__\w+__$")
"""Names that say that their value never changes: constants, and types."""
LITERALS = (ast.Dict, ast.List, ast.Set, ast.DictComp, ast.ListComp, ast.SetComp)
MUTABLE = {"ContextVar", "Counter", "Lock", "OrderedDict", "RLock", "WeakKeyDictionary", "WeakSet"}
MUTABLE |= {"WeakValueDictionary", "count", "defaultdict", "deque", "dict", "list", "local", "set"}


def state(file: Path) -> Iterator[tuple[str, bool]]:
    """The names of a module whose values may change, and whether something beside them gives the reason."""
    lines = file.read_text().splitlines()
    body = ast.parse("\n".join(lines)).body
    own = {statement.name for statement in body if isinstance(statement, ast.ClassDef)}
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            continue
        value = statement.value
        called = ast.unparse(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
        if not isinstance(value, LITERALS) and called not in MUTABLE | own:
            continue
        explained = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        explained |= lines[statement.lineno - 2].startswith("#")
        explained |= any("  # " in line for line in lines[statement.lineno - 1 : statement.end_lineno])
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            if isinstance(target, ast.Name) and not CONSTANT.match(target.id):
                yield target.id, explained


@pytest.mark.parametrize("file", FILES, ids=place)
def test_state_of_a_module_has_a_reason(file):
    assert [name for name, explained in state(file) if not explained] == [], "say why beside it"


def test_state_is_seen(tmp_path):
    code = "import re\n_a = {}\n_b = []\n'''Why.'''\nC = {}\nd = re.compile('x')\n"
    code += "_e = set()  # why\n_f: int = count()\ng = f()\n"
    (tmp_path / "x.py").write_text(code)
    assert list(state(tmp_path / "x.py")) == [("_a", False), ("_b", True), ("_e", True), ("_f", False)]


# -- parameters -----------------------------------------------------------------------------------

MODULES = ["aio", "codecs", "dask", "dtype", "errors", "kernel", "storage", "xarray", "zarr"]
"""Modules whose names are public too."""


def public() -> Iterator[tuple[str, Any, type | None]]:
    """Every public function and method, with the class that has it."""
    found = {name: getattr(zellige, name) for name in zellige.__all__}
    for module in MODULES:
        loaded = import_module(f"zellige.{module}")
        found |= {f"{module}.{name}": getattr(loaded, name) for name in getattr(loaded, "__all__", [])}
    for name, thing in found.items():
        if inspect.isfunction(thing):
            yield name, thing, None
        elif inspect.isclass(thing):
            for method, value in vars(thing).items():
                function = getattr(value, "__func__", value)
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield f"{name}.{method}", function, thing


def unexplained(function: Any, owner: type | None) -> list[str]:
    """The parameters that no docstring explains: the function's, that of a method it overrides, or of their classes.

    A parameter is explained by an entry of a table, or where its name stands between backticks.
    """
    bases = [] if owner is None else [base for base in owner.__mro__ if base is not object]
    texts = [inspect.getdoc(vars(base)[function.__name__]) for base in bases if function.__name__ in vars(base)]
    text = "\n".join(filter(None, [inspect.getdoc(function), *texts, *map(inspect.getdoc, bases)]))
    if re.search(r"Parameters: (see|as)\b", text):
        return []
    entries = re.findall(r"^((?:\*{0,2}\w+(?:, |$))+)\n {4}\S", text, re.MULTILINE)
    explained = set(re.findall(r"\w+", " ".join(entries + re.findall(r"`[^`]*`", text))))
    return [name for name in inspect.signature(function).parameters if name not in {"self", "cls", *explained}]


PUBLIC = {name: (function, owner) for name, function, owner in public()}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_of_what_is_public_is_explained(name):
    assert unexplained(*PUBLIC[name]) == []


def test_parameters_that_nobody_explains_are_found():
    def function(a: int, b: int = 0, *rest: int, **options: int) -> None:
        """Do it.

        Parameters
        ----------
        a, b
            Numbers.
        **options
            More.
        """

    assert len(PUBLIC) > 300
    assert unexplained(function, None) == ["rest"]
    function.__doc__ = "Do it. Parameters: see `other`."
    assert unexplained(function, None) == []
