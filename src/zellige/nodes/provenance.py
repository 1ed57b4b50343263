"""Which stored arrays data is read from, behind views, tasks of dask and what xarray puts around an array.

Removing and overwriting look here first: values that are yet to be read must not go. Nothing is
read here, and no library is imported: its objects can only be there if it is imported already.
"""

from __future__ import annotations

import dis
from collections.abc import Container, Iterator, Mapping
from functools import cache, partial
from types import CodeType, FunctionType, MappingProxyType, MethodType
from typing import Any, Literal, NamedTuple, TypeAlias

from zellige.nodes.array import Array
from zellige.stores import Store, StorePath, resolve

Region: TypeAlias = tuple[slice, ...]

_GETTERS = ("getter", "getter_nofancy", "getter_inline", "getitem")
"""The functions of dask, and of Python, that take an array and an index."""
_TASKS = "dask._task_spec"
_NONE: Mapping[Any, Any] = MappingProxyType({})


class Read(NamedTuple):
    """An array, or an array of zarr-python, from which values are read."""

    place: StorePath
    region: Region | None = None
    """Which part of it; None if that is not known, and all of it may be."""
    exact: bool = False
    """Whether an index of the value is one of the array."""


def refuse_to_remove(data: Any, store: Store, path: str) -> None:
    """Raise if data is read from the node at a path, or below it, which is going to be removed."""
    target = StorePath(store, path)
    for found in reads(data):
        if found.place.is_within(target):
            raise ValueError(
                f"the data reads from the array '/{found.place.path}' of {found.place.store!r}, which overwriting "
                f"'/{path}' would remove before it is read; write to another place, or load the data first"
            )


class TaskReads(NamedTuple):
    """What a task of a graph reads, and the keys of the graph that it depends on."""

    reads: list[Read]
    needs: list[Any]


def graph_reads(graph: Mapping[Any, Any]) -> dict[Any, TaskReads]:
    """Return what each task of a dask graph reads from stored arrays, and the keys of the tasks that it depends on.

    Parameters
    ----------
    graph
        A graph by keys, of low level or of high level.
    """
    tasks = dict(graph)
    # Arrays that have a key of their own are read by the tasks that index them.
    arrays = {key: found for key, task in tasks.items() if _may_be_array(task) and (found := list(reads(task)))}
    held: _Held = {}
    return {
        key: TaskReads([], []) if key in arrays else _task(task, held, tasks, arrays) for key, task in tasks.items()
    }


_Held: TypeAlias = dict[int, tuple[Any, list[Any]]]
"""Each function of a graph and what it holds, by its `id`, which is its own as long as it is here: tasks share many."""


def _task(task: Any, held: _Held, keys: Container[Any] = (), arrays: Mapping[Any, list[Read]] = _NONE) -> TaskReads:
    known = getattr(task, "dependencies", None) if type(task).__module__ == _TASKS else None
    found = TaskReads([], [] if known is None else [key for key in known if key not in arrays])
    todo: list[tuple[Any, Region | None]] = [(task, None)]
    while todo:
        part, region = todo.pop()
        kind = _kinds[type(part)]
        if kind == "plain":
            continue
        key = getattr(part, "key", None) if kind == "reference" else part if known is None else None
        is_key = key is not None and _is_key(key, keys)
        origins = arrays.get(key, []) if is_key else list(reads(part)) if kind == "array" else []
        if origins:
            indexed = region is not None
            found.reads.extend(read._replace(region=region) if read.exact and indexed else read for read in origins)
        elif is_key:
            if known is None:
                found.needs.append(key)
        elif kind == "constant":
            todo.append((part.value, region))
        elif kind == "holder":
            inner = _inner(part, held)
            region = _region_of(part, inner)
            todo += [(one, region) for one in inner]
    return found


Kind: TypeAlias = Literal["plain", "reference", "constant", "holder", "array"]


class _Kinds(dict[type, Kind]):
    """Whether values of a type may be arrays, hold others, mean another task, or are none of this.

    A graph has millions of values, and few types.
    """

    def __missing__(self, of: type) -> Kind:
        library = of.__module__.split(".")[0]
        kind: Kind = "plain"
        if of.__module__ == _TASKS and of.__name__ in ("TaskRef", "DataNode"):
            kind = "reference" if of.__name__ == "TaskRef" else "constant"
        elif issubclass(of, str | list | tuple | set | frozenset | Mapping | partial | FunctionType | MethodType):
            kind = "holder"
        elif library in ("zellige", "zarr", "xarray") or callable(getattr(of, "__dask_graph__", None)):
            kind = "array"
        elif library == "dask":
            kind = "holder"
        self[of] = kind
        return kind


_kinds = _Kinds()
"""What instances of each class may be; every task of a graph is looked up here."""


def _may_be_array(task: Any) -> bool:
    value = getattr(task, "value", task) if type(task).__module__ == _TASKS else task
    return _kinds[type(value)] == "array"


def _is_key(key: Any, keys: Container[Any]) -> bool:
    if not isinstance(key, str | tuple):
        return False
    try:
        return key in keys
    except TypeError:  # a tuple that holds a list
        return False


def _inner(part: Any, held: _Held) -> list[Any]:
    """Return what a part of a task holds."""
    if isinstance(part, str):
        return []
    if isinstance(part, Mapping):
        return list(part.values())
    if isinstance(part, partial):
        return [part.func, *part.args, *part.keywords.values()]
    if isinstance(part, list | tuple | set | frozenset):
        return list(part)
    if isinstance(part, FunctionType | MethodType):
        if id(part) not in held:
            held[id(part)] = part, _held_by(part)
        return held[id(part)][1]
    inner = [*(getattr(part, "args", None) or ()), *(getattr(part, "kwargs", None) or {}).values()]
    inner += [getattr(part, name) for name in ("func", "value", "dsk", "target") if hasattr(part, name)]
    return inner


def _held_by(function: FunctionType | MethodType) -> list[Any]:
    """Return the arrays that a function has without being given them, and what a function that it encloses has.

    These are variables of the functions around it, defaults of parameters, global variables that it names, and of a
    method its object and that object's attributes. What it gets by calling others is not looked for.
    """
    found: list[Any] = []
    met: set[int] = set()
    todo: list[Any] = [function]
    while todo:
        part = todo.pop()
        if id(part) in met:  # a function may enclose itself
            continue
        met.add(id(part))
        if isinstance(part, MethodType):
            todo += [part.__func__, part.__self__]
            todo += [one for one in getattr(part.__self__, "__dict__", {}).values() if not isinstance(one, MethodType)]
        elif isinstance(part, FunctionType):
            todo += [cell.cell_contents for cell in part.__closure__ or () if _is_filled(cell)]
            todo += [*(part.__defaults__ or ()), *(part.__kwdefaults__ or {}).values()]
            named = (part.__globals__.get(name) for name in _globals_in(part.__code__))
            todo += [one for one in named if not isinstance(one, FunctionType)]
        elif isinstance(part, partial):
            todo += [part.func, *part.args, *part.keywords.values()]
        elif _kinds[type(part)] == "array":
            found.append(part)
    return found


@cache
def _globals_in(code: CodeType) -> tuple[str, ...]:
    """Return the global variables that a function names."""
    return tuple({found.argval for found in dis.get_instructions(code) if found.opname == "LOAD_GLOBAL"})


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a variable that has no value yet
        return False


def _region_of(part: Any, inner: list[Any]) -> Region | None:
    """Return the region that a part of a task takes of an array, if it does nothing else."""
    function = part[0] if isinstance(part, tuple) and part else getattr(part, "func", None)
    if getattr(function, "__name__", "") not in _GETTERS:
        return None
    plain = [getattr(one, "value", one) for one in inner]
    regions = [one for one in plain if isinstance(one, tuple) and all(isinstance(part, slice) for part in one)]
    return regions[0] if len(regions) == 1 else None


# -- one value ------------------------------------------------------------------------------------


def reads(data: Any) -> Iterator[Read]:
    """Yield what is read when data is: an array, a view, a collection of dask, something of xarray, or anything."""
    library = type(data).__module__.split(".")[0]
    if isinstance(data, Array):
        yield Read(data.store_path, _all(data), exact=True)
    elif library == "zellige":
        yield from _reads_of_ours(data)
    elif library == "zarr" and hasattr(data, "store_path"):
        place = data.store_path
        yield Read(StorePath(resolve(place.store, read_only=True), place.path), _all(data), exact=True)
    elif library == "xarray":
        yield from _reads_of_xarray(data)
    elif callable(getattr(type(data), "__dask_graph__", None)):
        yield from (found._replace(exact=False) for found in _reads_of_graph(data.__dask_graph__()))
    elif library == "dask" and hasattr(data, "value"):  # a constant in a task
        yield from reads(data.value)


def _all(array: Any) -> Region:
    """Return the region that is all of an array, as a reader sees it; a writer may know it longer."""
    return tuple(slice(0, n) for n in array.shape)


def _reads_of_ours(data: Any) -> Iterator[Read]:
    place = getattr(data, "store_path", None)
    if isinstance(place, StorePath):  # in the engine for xarray; and what tasks of dask have, unless they write to it
        if not getattr(data, "writes", False):
            yield Read(place, _all(data), exact=True)
    elif type(data).__module__.startswith("zellige.views"):
        from zellige.views import arrays_of

        yield from (Read(found.store_path, _all(found)) for found in arrays_of(data) if isinstance(found, Array))


def _reads_of_xarray(data: Any) -> Iterator[Read]:
    """Look behind a dataset, a data array, a variable, or one of the objects that index, decode or copy lazily."""
    if isinstance(variables := getattr(data, "variables", None), Mapping):
        for variable in variables.values():
            yield from reads(variable)
        return
    for name in ("variable", "_data", "array", "_array"):  # the last one around an array of zarr-python
        inner = getattr(data, name, None)
        if inner is not None and inner is not data:
            same = getattr(data, "shape", None) == getattr(inner, "shape", ())
            exact = same and _is_whole(getattr(data, "key", None))
            yield from (found._replace(exact=exact and found.exact) for found in reads(inner))
            return


def _is_whole(key: Any) -> bool:
    """Return whether the index of a lazily indexed array takes all of it."""
    parts = getattr(key, "tuple", (key,))
    return key is None or all(isinstance(part, slice) and part == slice(None) for part in parts)  # or it is an array


def _reads_of_graph(graph: Any) -> Iterator[Read]:
    """Yield what the tasks of a graph read; layers need not become tasks for that."""
    if graph is None:
        return
    held: _Held = {}
    for layer in getattr(graph, "layers", {"": graph}).values():
        blockwise = getattr(layer, "indices", None)
        if blockwise is None:
            for task in dict(layer).values():
                yield from _task(task, held).reads
        else:
            parts = [layer.task if hasattr(layer, "task") else layer.dsk, *(one for one, _ in blockwise)]
            yield from _task([*parts, *layer.io_deps.values()], held).reads
