"""Guards of the house: layers, sizes, public names, imports, the call budget, docstrings and examples."""

from __future__ import annotations

import ast
import doctest
import gc
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import pytest

import zellige

PACKAGE = Path(zellige.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = ["zellige", *sorted(found.name for found in pkgutil.walk_packages(zellige.__path__, "zellige."))]

ROOMS = [
    {"errors", "types", "settings"},
    {"display"},
    {"grid"},
    {"dtypes"},
    {"metadata"},
    {"codecs"},
    {"kernel"},
    {"stores"},
    {"io"},
    {"nodes"},
    {"views"},
    {"tools"},
    {"core", "dtype", "experimental", "storage"},
    {"__init__"},
    {"aio", "cli", "dask", "testing", "xarray", "zarr"},
    {"__main__"},
]
"""The rooms, from the ground up: each imports from those before it."""
RANK = {name: rank for rank, names in enumerate(ROOMS) for name in names}
GUESTS = ROOMS[-2]
DOORS = {("nodes/array.py", "aio"), ("nodes/array.py", "tools"), ("nodes/array.py", "views")}
DOORS |= {("nodes/provenance.py", "views")}
"""Imports that go up: `Array.async_array`; `Array.coverage`, `explain`, `stats`; `Array.lazy`, what is behind it."""
MOST_FLAT = 8
OF_TUPLES = {"_asdict", "_fields", "_make", "_replace"}

AT_THE_TOP = {".ci", ".gitignore", "LICENSE", "Makefile", "mkdocs.yml", "pyproject.toml", "hatch_build.py"}
AT_THE_TOP |= {"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"}
AT_THE_TOP |= {"src", "tests", "bench", "docs", "examples", "reliability", "tools"}

MOST_LINES = 900
MOST_MODULES = 78


def place(file: Path) -> str:
    return file.relative_to(PACKAGE).as_posix()


def part_of(file: Path) -> str:
    """The module or package directly below zellige that a file belongs to."""
    return place(file).split("/")[0].removesuffix(".py")


def test_nothing_is_kept_that_does_not_belong_to_the_project():
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        pytest.skip("no checkout: git knows what is kept")
    tracked = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
    assert {name.split("/")[0] for name in tracked.splitlines()} <= AT_THE_TOP


# -- rooms ----------------------------------------------------------------------------------------


def imports(tree: ast.AST) -> Iterator[tuple[str, list[str]]]:
    """Every import of zellige as (module, names): also inside functions, for type checkers, and by a string."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names if alias.name.split(".")[0] == "zellige")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            if node.module and node.module.split(".")[0] == "zellige":
                yield node.module, [alias.name for alias in node.names]
        elif isinstance(node, ast.Constant) and (found := re.match(r"zellige\.(\w+)\.\S*$", str(node.value))):
            yield f"zellige.{found[1]}", []


def imported_rooms(file: Path) -> set[str]:
    """What a file imports, as modules or packages directly below zellige."""
    rooms = set()
    for module, names in imports(ast.parse(file.read_text())):
        if module != "zellige":
            rooms.add(module.split(".")[1])
        else:
            rooms |= {name if name in RANK else "__init__" for name in names or ["__init__"]}
    return rooms


@pytest.mark.parametrize("file", FILES, ids=place)
def test_a_room_imports_from_the_rooms_before_it(file):
    mine = part_of(file)
    assert mine in RANK, f"give {mine} a place among the rooms, in this test and in ARCHITECTURE.md"
    above = {other for other in imported_rooms(file) if RANK[other] > RANK[mine]}
    doors = {room for who, room in DOORS if who == place(file)}
    assert above <= doors | (set(RANK) if mine == "__init__" else set()), f"{place(file)} imports {above}"


def test_the_package_itself_is_small():
    assert len([file for file in FILES if file.parent == PACKAGE]) <= MOST_FLAT


def defined_names(file: Path) -> Iterator[str]:
    """The names that a file defines: of functions, classes, methods and attributes."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Assign) and "__slots__" in map(ast.unparse, node.targets):
            yield from ast.literal_eval(node.value)


@pytest.fixture(scope="module")
def homes() -> dict[str, set[str]]:
    """The rooms in which each name is defined."""
    found: dict[str, set[str]] = {}
    for file in FILES:
        for name in defined_names(file):
            found.setdefault(name, set()).add(part_of(file))
    return found


@pytest.mark.parametrize("file", FILES, ids=place)
def test_private_names_stay_in_their_room(file, homes):
    mine = part_of(file)

    def is_foreign(name: str) -> bool:
        private = name.startswith("_") and not name.startswith("__") and name not in OF_TUPLES
        return private and name in homes and mine not in homes[name]

    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute):
            assert not is_foreign(node.attr), f"{place(file)}:{node.lineno} reaches for {ast.unparse(node)}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zellige"):
            foreign = [alias.name for alias in node.names if is_foreign(alias.name) and alias.name != "_native"]
            assert not foreign, f"{place(file)} imports {foreign}"


@pytest.mark.parametrize("file", [file for file in FILES if part_of(file) in GUESTS], ids=place)
def test_guests_use_public_names_only(file):
    for module, names in imports(ast.parse(file.read_text())):
        if module.startswith(f"zellige.{part_of(file)}"):
            continue
        public = {*zellige.__all__, "ArrayConfig"}
        if module != "zellige" and (
            module.split(".")[1] in GUESTS or module.removeprefix("zellige.") in zellige.__all__
        ):
            public |= set(import_module(module).__all__)
        foreign = set(names) - public
        assert names, f"{place(file)} imports all of {module}"
        assert not foreign, f"{place(file)} imports {foreign} from {module}"


def test_the_walk_sees_what_it_should_see():
    code = (
        "from zellige import io\nif TYPE_CHECKING:\n    import zellige.nodes.open\n"
        "def f():\n    from zellige.a.b import c\n    return 'zellige.cli.parser'"
    )
    found = [("zellige", ["io"]), ("zellige.nodes.open", []), ("zellige.a.b", ["c"]), ("zellige.cli", [])]
    assert sorted(imports(ast.parse(code))) == sorted(found)
    assert {"settings", "codecs", "kernel"} <= imported_rooms(PACKAGE / "io/read.py")


@pytest.mark.parametrize("file", FILES, ids=place)
def test_modules_fit_into_a_head(file):
    assert len(file.read_text().splitlines()) <= MOST_LINES, "split it by concept"


# -- names ----------------------------------------------------------------------------------------

PUBLIC = """
    Array AsyncArray AsyncGroup ChunkGrid ChunkSpec DimensionGrid FixedDimension Group LazyArray LocalStore MemoryStore
    Store VaryingDimension __version__ aio array change codecs concat config consolidate_metadata convert copy copy_all
    copy_store create create_array create_group create_hierarchy diff dtype empty empty_like errors experimental
    from_array full full_like group kernel load migrate ones ones_like open open_array open_consolidated open_group
    open_like print_debug_info progress rechunk repair save save_array save_group stack storage tree vacuum validate
    zeros zeros_like
"""

ARRAY = """
    append async_array attrs basename blocks cdata_shape chunk_stats chunks compressor compressors config coverage
    dimension_names dtype explain fill_value filters from_dict from_documents get_basic_selection
    get_block_selection get_coordinate_selection get_mask_selection get_orthogonal_selection grid info info_complete
    iter_chunks lazy metadata name nbytes nbytes_stored nchunks nchunks_initialized ndim oindex open order path
    read_chunk_sizes read_only refresh resize serializer set_basic_selection set_block_selection
    set_coordinate_selection set_mask_selection set_orthogonal_selection shape shards size start_append stats store
    store_path update_attributes vindex with_config write_chunk_sizes
"""

GROUP = """
    array array_keys array_values arrays attrs basename consolidate_metadata create create_array create_dataset
    create_group create_hierarchy empty empty_like from_documents from_store full full_like get get_array get_group
    group_keys group_values groups info info_complete items keys members metadata move name nmembers ones ones_like
    open path read_only refresh require_array require_dataset require_group require_groups store store_path tree
    update_attributes values visit visititems walk zeros zeros_like
"""


def public(thing: object) -> list[str]:
    return sorted(name for name in dir(thing) if not name.startswith("_"))


def test_the_public_names_are_frozen():
    assert sorted(zellige.__all__) == PUBLIC.split()
    assert all(hasattr(zellige, name) for name in zellige.__all__)
    assert public(zellige.Array) == ARRAY.split()
    assert public(zellige.Group) == GROUP.split()


def test_errors_are_what_callers_expect():
    builtin = (KeyError, ValueError, IndexError, OSError, EOFError, AttributeError)
    kinds = (UserWarning, FutureWarning, DeprecationWarning, RuntimeWarning)
    found = {e for e in vars(zellige.errors).values() if isinstance(e, type) and issubclass(e, Exception)}
    warnings = {e for e in found if issubclass(e, Warning)}
    assert len(found - warnings) > 10
    for error in found - warnings:
        assert issubclass(error, zellige.errors.ZelligeError)
        assert error is zellige.errors.ZelligeError or issubclass(error, builtin), error
        assert str(error("a 'message'")) == "a 'message'"
    for warning in warnings:
        assert sum(issubclass(warning, kind) for kind in kinds) == 1, warning


# -- importing ------------------------------------------------------------------------------------

HEAVY = {"numcodecs", "zstandard", "isal", "google_crc32c", "dask", "xarray", "zarr", "asyncio", "http", "ssl"}
HEAVY |= {"socket", "concurrent.futures", "logging", "difflib", "zlib", "gzip", "multiprocessing"}


def modules_after(code: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(result.stdout.split())


def test_importing_loads_nothing_but_the_names():
    ours = modules_after("import zellige")
    assert {name for name in ours if name.startswith("zellige")} == {"zellige"}
    assert "numpy" not in ours
    assert len(ours - modules_after("import typing, importlib")) <= 2


def test_the_first_use_costs_little_more_than_numpy():
    numpy, ours = modules_after("import numpy"), modules_after("import zellige; zellige.open_array, zellige.Group")
    assert "zellige.nodes.group" in ours
    assert not (HEAVY & (ours - numpy))
    assert {name for name in ours if name.startswith("zellige.codecs.")} <= {
        f"zellige.codecs.{name}" for name in ("base", "fields", "chain", "arrays", "sharding")
    }
    assert len(ours - numpy) <= MOST_MODULES, sorted(ours - numpy)


def test_importing_a_module_does_not_put_it_in_the_place_of_a_name():
    """Importing `zellige.x` sets the attribute `x` of the package: only public modules may have such names."""
    modules = {found.name for found in pkgutil.iter_modules(zellige.__path__)}
    assert {type(getattr(zellige, name)) for name in modules & set(zellige.__all__)} == {type(zellige)}
    code = "from zellige import *\nimport zellige\nassert array is zellige.array and config is zellige.config\n"
    code += "assert zellige.array([1, 2])[:].sum() == 3 and zellige.group({}).path == ''\n"
    modules_after(code)


def test_raw_arrays_load_no_codec_library():
    ours = modules_after("import zellige; zellige.zeros(3, compressors=None)[:] = 1")
    assert not ({"numcodecs", "zstandard", "isal", "google_crc32c"} & ours)


# -- the call budget ------------------------------------------------------------------------------

needs_kernel = pytest.mark.skipif(
    zellige.kernel.native is None, reason="counts the work beside the kernel, which was not built or is off"
)


def python_calls(action: Any, *, only_ours: bool) -> int:
    """How many Python functions are called, in all or of zellige's own files.

    Without the garbage collector, which calls what others want to be told by, whenever it has enough to collect.
    """
    count = 0

    def profile(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        if event == "call" and (not only_ours or frame.f_code.co_filename.startswith(str(PACKAGE))):
            count += 1

    gc.disable()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count - 1  # the action itself


class Budget(NamedTuple):
    """The most Python calls: for a read of one chunk, for each further one, and for each further one in a row.

    The same for writing one chunk, and each further one in a row.
    """

    options: dict[str, Any]
    only_ours: bool
    one: int
    more: int
    in_row: int
    write: int
    write_in_row: int


BUDGETS = {
    "raw": Budget({"compressors": None}, only_ours=False, one=49, more=8, in_row=2, write=69, write_in_row=6),
    "zstd": Budget({}, only_ours=False, one=53, more=12, in_row=4, write=71, write_in_row=6),
    "gzip": Budget({"compressors": "gzip"}, only_ours=False, one=48, more=10, in_row=5, write=70, write_in_row=7),
    "blosc": Budget({"compressors": "blosc"}, only_ours=True, one=47, more=12, in_row=5, write=67, write_in_row=6),
}


@needs_kernel
@pytest.mark.parametrize("edges", ["regular", "rectilinear"])
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_a_read_stays_within_its_budget_of_calls(budget, edges, tmp_path):
    sizes = 10 if edges == "regular" else [9, 11] * 10
    model = np.arange(2000).reshape(200, 10)

    def calls(array: zellige.Array, *index: slice) -> int:
        return python_calls(lambda: array[index], only_ours=budget.only_ours)

    tall = zellige.create_array(tmp_path / "tall", data=model, chunks=[sizes, 10], **budget.options)
    wide = zellige.create_array(tmp_path / "wide", data=model.T, chunks=[10, sizes], **budget.options)
    tall._reader = wide._reader = False  # the path of all that the kernel's reader declines
    assert np.array_equal(tall[...], model)  # imports and binds what is bound once
    assert np.array_equal(wide[...], model.T)
    every = slice(None)
    assert 0 < calls(tall, slice(9)) <= budget.one
    assert 0 < calls(wide, every, slice(9)) <= budget.one
    assert 0 < (calls(tall, slice(200)) - calls(tall, slice(100))) / 10 <= budget.more
    assert 0 < (calls(wide, every, slice(200)) - calls(wide, every, slice(100))) / 10 <= budget.in_row


@needs_kernel
@pytest.mark.parametrize("edges", ["regular", "rectilinear"])
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_a_write_stays_within_its_budget_of_calls(budget, edges, tmp_path):
    sizes = 10 if edges == "regular" else [9, 11] * 40
    model = np.arange(1, 8001).reshape(10, 800)

    def calls(array: zellige.Array, count: int) -> int:
        value = model[:, :count].copy()
        return python_calls(lambda: array.__setitem__((slice(None), slice(count)), value), only_ours=budget.only_ours)

    wide = zellige.create_array(tmp_path, data=model, chunks=[10, sizes], **budget.options)
    calls(wide, 800)  # imports
    assert 0 < calls(wide, 9 if edges == "rectilinear" else 10) <= budget.write
    assert 0 < (calls(wide, 800) - calls(wide, 400)) / 40 <= budget.write_in_row


@needs_kernel
def test_a_read_of_a_part_stays_within_its_budget_of_calls(tmp_path):
    array = zellige.create_array(tmp_path, data=np.arange(2000).reshape(200, 10), chunks=100, compressors=None)
    array._reader = False  # the path of all that the kernel's reader declines
    assert array[3, 5] == 35
    assert python_calls(lambda: array[3, 5], only_ours=False) <= 53
    assert python_calls(lambda: array[3:5, 5], only_ours=False) <= 53


@needs_kernel
def test_parts_and_points_stay_within_their_budgets_of_calls(tmp_path):
    """What each further chunk takes: to write a part of it, under the lock of its file, and to read points in it."""
    array = zellige.create_array(tmp_path, data=np.arange(1, 2001).reshape(200, 10), chunks=10, compressors=None)
    shuffled = np.random.default_rng(0).permutation(200)

    def write(rows: int) -> int:
        value = np.full((rows, 5), 7)
        return python_calls(lambda: array.__setitem__((slice(rows), slice(5)), value), only_ours=False)

    def read(rows: int) -> int:
        at = shuffled[shuffled < rows]
        return python_calls(lambda: array.vindex[at, at % 10], only_ours=False)

    with zellige.config.set({"threading.max_workers": 1}):  # of other threads no calls are counted
        for calls, most in ((write, 60), (read, 21)):
            calls(200)  # imports
            assert 0 < (calls(200) - calls(100)) / 10 <= most


def test_opening_again_stays_within_its_budget_of_calls(tmp_path):
    zellige.create_array(tmp_path, shape=(200, 10), chunks=100)
    assert zellige.open_array(tmp_path).shape == (200, 10)
    assert python_calls(lambda: zellige.open_array(tmp_path), only_ours=True) <= 38


# -- words ----------------------------------------------------------------------------------------


def undocumented(tree: ast.AST, path: str) -> Iterator[str]:
    """Public classes, functions and methods without a docstring; the second half of a pair needs none."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If | ast.Try):
            yield from undocumented(node, path)
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith(("_", "test_")):
            continue
        decorators = " ".join(map(ast.unparse, node.decorator_list))
        if not ast.get_docstring(node) and not re.search(r"overload|\.setter|\.deleter", decorators):
            yield f"{path}.{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from undocumented(node, f"{path}.{node.name}")


@pytest.mark.parametrize("file", FILES, ids=place)
def test_everything_public_has_a_docstring(file):
    tree = ast.parse(file.read_text())
    assert ast.get_docstring(tree), "the module itself"
    assert list(undocumented(tree, place(file))) == []


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings_are_true(module):
    assert doctest.testmod(import_module(module)).failed == 0


def test_there_are_examples_where_users_look():
    public = {name: getattr(zellige, name) for name in zellige.__all__}
    functions = {name for name, found in public.items() if callable(found) and not isinstance(found, type)}
    classes = {"Array", "AsyncArray", "AsyncGroup", "ChunkGrid", "Group", "LazyArray"}
    assert len(functions) > 30
    assert {name for name in functions | classes if ">>>" not in (public[name].__doc__ or "")} == set()
    assert doctest.testmod(import_module("zellige.nodes.open")).attempted >= 10
