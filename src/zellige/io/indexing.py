"""The ways to read and write parts of an array besides plain square brackets.

`fields=` picks fields of structs by name, as names within the selection do. A field is read with the whole
elements, and written by changing the chunks, whose other fields stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from zellige.io import select
from zellige.types import AnyArray, Casting, Shape

if TYPE_CHECKING:
    from zellige.grid.edges import LazyTuple
    from zellige.grid.grid import ChunkGrid
    from zellige.io.select import FieldNames, Selection


Fields: TypeAlias = Sequence[str] | str | None
"""The fields of structs that are meant: some, one, or all."""


class Selecting:
    """What `Array` has from here: a method for each kind of selection, and square brackets for some."""

    __slots__ = ()

    if TYPE_CHECKING:
        grid: ChunkGrid

        @property
        def shape(self) -> Shape:
            """The lengths of the axes."""

        @property
        def dtype(self) -> np.dtype[Any]:
            """The type of the elements in memory."""

        def _read_runs(self, axis: int) -> LazyTuple: ...
        def _read(self, selection: Selection, out: AnyArray | None = None, fields: FieldNames | None = None) -> Any: ...
        def _write(
            self, selection: Selection, value: Any, fields: FieldNames | None = None, casting: Casting | None = None
        ) -> None: ...

    def _split(self, selection: Any, fields: Fields) -> tuple[Any, FieldNames | None]:
        """A selection without the names of fields in it, and all fields that are named."""
        if fields is None and self.dtype.names is None:
            return selection, None
        return select.split_fields(selection, self.dtype, fields)

    # -- reading ----------------------------------------------------------------------------------

    def get_basic_selection(self, selection: Any = ..., *, out: AnyArray | None = None, fields: Fields = None) -> Any:
        """`array[selection]`, optionally into an array that is there already.

        Parameters
        ----------
        selection
            Integers, slices, `...`, None, masks and integer arrays, mixed as in numpy.
        out
            A numpy array of the shape of the result, which is filled and returned. If its type is another one, the rule
            of writing applies: values that it cannot hold raise `LossyCastError`, and nothing lands in it, unless the
            array was opened with `config={"casting": "unsafe"}`.
        fields
            Names of fields of structs; all by default.

        >>> import numpy as np, zellige
        >>> out = np.zeros(2, "float32")
        >>> zellige.array([1.5, 2.5, 3.5]).get_basic_selection(slice(1, None), out=out)
        array([2.5, 3.5], dtype=float32)

        """
        index, names = self._split(selection, fields)
        return self._read(select.basic(index, self.shape), out, names)

    def get_orthogonal_selection(self, selection: Any, *, out: AnyArray | None = None, fields: Fields = None) -> Any:
        """Each axis picked on its own: `array.oindex[selection]`. `out`, `fields`: see `get_basic_selection`."""
        index, names = self._split(selection, fields)
        return self._read(select.orthogonal(index, self.shape), out, names)

    def get_coordinate_selection(self, selection: Any, *, out: AnyArray | None = None, fields: Fields = None) -> Any:
        """Point by point: `array.vindex[selection]`. `out`, `fields`: see `get_basic_selection`."""
        index, names = self._split(selection, fields)
        return self._read(select.points(index, self.shape), out, names)

    def get_mask_selection(self, mask: Any, *, out: AnyArray | None = None, fields: Fields = None) -> Any:
        """The elements where a mask of the array's shape is true. `out`, `fields`: see `get_basic_selection`."""
        return self.get_coordinate_selection(np.asarray(mask, bool), out=out, fields=fields)

    def get_block_selection(self, selection: Any, *, out: AnyArray | None = None, fields: Fields = None) -> Any:
        """Whole chunks by their position in the grid: `array.blocks[selection]`.

        `out`, `fields`: see `get_basic_selection`.
        """
        index, names = self._split(selection, fields)
        return self._read(select.blocks(index, self.grid), out, names)

    # -- writing ----------------------------------------------------------------------------------

    # `casting="unsafe"` lets values change that the array's type cannot hold; by default they raise.

    def set_basic_selection(
        self, selection: Any, value: Any, *, fields: Fields = None, casting: Casting | None = None
    ) -> None:
        """`array[selection] = value`."""
        index, names = self._split(selection, fields)
        self._write(select.basic(index, self.shape), value, names, casting)

    def set_orthogonal_selection(
        self, selection: Any, value: Any, *, fields: Fields = None, casting: Casting | None = None
    ) -> None:
        """`array.oindex[selection] = value`."""
        index, names = self._split(selection, fields)
        self._write(select.orthogonal(index, self.shape), value, names, casting)

    def set_coordinate_selection(
        self, selection: Any, value: Any, *, fields: Fields = None, casting: Casting | None = None
    ) -> None:
        """`array.vindex[selection] = value`."""
        index, names = self._split(selection, fields)
        self._write(select.points(index, self.shape), value, names, casting)

    def set_mask_selection(
        self, mask: Any, value: Any, *, fields: Fields = None, casting: Casting | None = None
    ) -> None:
        """Write where a mask of the array's shape is true."""
        self.set_coordinate_selection(np.asarray(mask, bool), value, fields=fields, casting=casting)

    def set_block_selection(
        self, selection: Any, value: Any, *, fields: Fields = None, casting: Casting | None = None
    ) -> None:
        """`array.blocks[selection] = value`."""
        index, names = self._split(selection, fields)
        self._write(select.blocks(index, self.grid), value, names, casting)

    # -- square brackets --------------------------------------------------------------------------

    @property
    def oindex(self) -> Indexer:
        """Orthogonal indexing: each axis is picked on its own."""
        return Indexer(self.get_orthogonal_selection, self.set_orthogonal_selection)

    @property
    def vindex(self) -> Indexer:
        """Pointwise indexing: one integer array for each axis, or a mask."""
        return Indexer(self.get_coordinate_selection, self.set_coordinate_selection)

    @property
    def blocks(self) -> Indexer:
        """Indexing by chunks: integers and slices count chunks."""
        return Indexer(self.get_block_selection, self.set_block_selection)


class Indexer:
    """Square brackets for one way of indexing."""

    __slots__ = ("_get", "_set")

    def __init__(self, get: Callable[[Any], Any], set_: Callable[[Any, Any], None]) -> None:
        self._get, self._set = get, set_

    def __getitem__(self, selection: Any) -> Any:
        return self._get(selection)

    def __setitem__(self, selection: Any, value: Any) -> None:
        self._set(selection, value)
