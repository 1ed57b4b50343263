"""Where the elements of a view lie in its source, as an index transform.

A transform has one entry for each axis of the source: a fixed position, a range that one axis of the view
runs along, or an array of positions over some axes of the view. Selections of selections compose to one
transform again: ranges by arithmetic, whatever their lengths, and positions by numpy.

>>> rows = Transform.of_index((slice(10, 20), 3), (10**12, 5))
>>> rows
Transform(shape=(10,), places=(Along(axis=0, at=range(10, 20)), 3))
>>> rows.pick(slice(None, None, -4))
Transform(shape=(3,), places=(Along(axis=0, at=range(19, 9, -4)), 3))

No two axes of the view run along one axis of the source, and an axis of the view that a range runs along
belongs to no positions. Axes of the view that no entry names are new ones: their elements repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from zellige.grid.grid import expand_ellipsis
from zellige.io import select
from zellige.types import AnyArray, Indices, Shape


@dataclass(frozen=True, slots=True)
class Along:
    """An axis of the source that one axis of the view runs along."""

    axis: int
    at: range


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """An axis of the source that is picked by positions; each of their dimensions is an axis of the view."""

    axes: tuple[int, ...]
    positions: Indices


Place: TypeAlias = int | Along | Picked


@dataclass(frozen=True, slots=True, eq=False)
class Transform:
    """The shape of a view, and for each axis of its source where the elements lie."""

    shape: Shape
    places: tuple[Place, ...]

    # -- making -----------------------------------------------------------------------------------

    @classmethod
    def whole(cls, shape: Shape) -> Transform:
        """All of a source."""
        return cls(shape, tuple(Along(axis, range(n)) for axis, n in enumerate(shape)))

    @classmethod
    def of_index(cls, index: Any, shape: Shape) -> Transform:
        """What numpy's indexing picks from a source of a shape; IndexError for what it refuses."""
        parsed = list(select.parse_items(index if isinstance(index, tuple) else (index,), shape))
        shared, labels, order = select.result_axes(parsed)
        number = {label: axis for axis, label in enumerate(order) if label is not None}
        lengths = dict(zip(labels, shared, strict=True))
        places: list[Place] = []
        for at, axis, _ in parsed:
            if isinstance(at, np.ndarray):
                # A copy: the index belongs to the caller, who may change it before the view is read.
                places.append(_picked([number[label] for label in labels[len(labels) - at.ndim :]], at.copy()))
            elif isinstance(at, range) and axis is not None:
                places.append(Along(number[axis], at))
                lengths[axis] = len(at)
            elif isinstance(at, range):
                places.append(at.start)
        return cls(tuple(1 if label is None else lengths[label] for label in order), tuple(places))

    # -- composing --------------------------------------------------------------------------------

    def pick(self, index: Any) -> Transform:
        """A selection of this one, by numpy's rules."""
        return self.compose(Transform.of_index(index, self.shape))

    def pick_orthogonal(self, index: Any) -> Transform:
        """A selection of this one, each axis on its own."""
        select.orthogonal(index, self.shape)  # refuses what is not one
        found = self
        items = expand_ellipsis(select.as_items(index), len(self.shape))
        for axis in reversed(range(len(items))):  # from the last one, since integers drop axes
            found = found.pick((*[slice(None)] * axis, items[axis]))
        return found

    def pick_points(self, index: Any) -> Transform:
        """A selection of this one, point by point."""
        select.points(index, self.shape)  # refuses what is not one
        return self.pick(index)

    def transpose(self, axes: Sequence[int]) -> Transform:
        """The same elements with the view's axes in another order."""
        number = {axis: k for k, axis in enumerate(axes)}
        moved = [Along(number[axis], range(self.shape[axis])) for axis in range(len(axes))]
        return self.compose(Transform(tuple(self.shape[axis] for axis in axes), tuple(moved)))

    def compose(self, inner: Transform) -> Transform:
        """What a transform of the view's elements picks from the source."""
        return Transform(inner.shape, tuple(_substitute(place, inner) for place in self.places))

    def moved(self, axis: int, offset: int) -> Transform:
        """The same view of a source whose axis begins at another element."""
        places = list(self.places)
        places[axis] = _moved(places[axis], offset)
        return Transform(self.shape, tuple(places))

    # -- as an index of the source ----------------------------------------------------------------

    @property
    def picked(self) -> list[Picked]:
        """The axes of the source that are picked by positions."""
        return [place for place in self.places if isinstance(place, Picked)]

    @property
    def is_orthogonal(self) -> bool:
        """Whether there are positions, each along an axis of the view of their own."""
        axes = [place.axes for place in self.picked]
        return bool(axes) and all(len(own) == 1 for own in axes) and len(set(axes)) == len(axes)

    def index(self) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """An index by numpy's rules, and which axis of the view each axis of its result is."""
        shared = sorted({axis for place in self.picked for axis in place.axes})
        items = tuple(_aligned(place, shared) if isinstance(place, Picked) else _item(place) for place in self.places)
        kept = [place.axis for place in self.places if isinstance(place, Along)]
        if not shared:
            return items if kept else (*items, ...), tuple(kept)  # `...`: an array, where there would be a scalar
        # Shared axes come where the arrays are if these are neighbours, else first. Integers count as arrays.
        advanced = [k for k, place in enumerate(self.places) if not isinstance(place, Along)]
        together = advanced[-1] - advanced[0] == len(advanced) - 1
        before = advanced[0] if together else 0
        return items, (*kept[:before], *shared, *kept[before:])

    def orthogonal_index(self) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Like `index`, with each axis picked on its own."""
        items = tuple(place.positions if isinstance(place, Picked) else _item(place) for place in self.places)
        axes = [place.axis if isinstance(place, Along) else place.axes[0] for place in self._moving()]
        return items, tuple(axes)

    def _moving(self) -> list[Along | Picked]:
        return [place for place in self.places if not isinstance(place, int)]

    def box(self) -> tuple[tuple[slice, ...], Transform]:
        """Ascending slices of the source that hold everything, and the same view of what they hold."""
        pairs = [_boxed(place) for place in self.places]
        return tuple(part for part, _ in pairs), Transform(self.shape, tuple(place for _, place in pairs))

    # -- between the source's axes and the view's -------------------------------------------------

    def to_view(self, found: AnyArray, order: tuple[int, ...]) -> AnyArray:
        """What an index gave, as the view has it: axes in their order, new ones added."""
        found = found.transpose(sorted(range(len(order)), key=order.__getitem__))
        if len(order) < len(self.shape):
            found = found[tuple(slice(None) if axis in order else None for axis in range(len(self.shape)))]
        return found if found.shape == self.shape else np.broadcast_to(found, self.shape).copy()

    def to_source(self, values: AnyArray, order: tuple[int, ...]) -> AnyArray:
        """The inverse, as a view of the values: of elements that repeat, the last is taken."""
        kept = values[(*(slice(None) if axis in order else -1 for axis in range(len(self.shape))), ...)]
        ranks = sorted(order)
        return kept.transpose([ranks.index(axis) for axis in order])


def _picked(axes: Sequence[int], positions: Indices) -> Place:
    """Positions over the axes that they change along; one position alone is fixed."""
    changing = [k for k, n in enumerate(positions.shape) if n != 1]
    if not changing:
        return int(positions.reshape(())[()])
    return Picked(tuple(axes[k] for k in changing), positions.reshape([positions.shape[k] for k in changing]))


def _substitute(place: Place, inner: Transform) -> Place:
    """Where elements of a view lie that another transform picks."""
    if isinstance(place, int):
        return place
    if isinstance(place, Picked):
        return _pick_positions(place, inner)
    start, step, at = place.at.start, place.at.step, inner.places[place.axis]
    if isinstance(at, int):
        return start + step * at
    if isinstance(at, Along):
        return Along(at.axis, range(start + step * at.at.start, start + step * at.at.stop, step * at.at.step))
    return Picked(at.axes, at.positions if place.at == range(place.at.stop) else start + step * at.positions)


def _pick_positions(place: Picked, inner: Transform) -> Place:
    """The positions that a transform picks from some."""
    own = [inner.places[axis] for axis in place.axes]
    if not any(isinstance(at, Picked) for at in own):
        kept: Indices = place.positions[tuple(map(_item, own))]
        return _picked([at.axis for at in own if isinstance(at, Along)], kept)
    shared = sorted({axis for at in own for axis in _axes(at)})
    return _picked(shared, place.positions[tuple(_aligned(at, shared) for at in own)])


def _axes(place: Place) -> tuple[int, ...]:
    if isinstance(place, int):
        return ()
    return (place.axis,) if isinstance(place, Along) else place.axes


def _aligned(place: Place, shared: Sequence[int]) -> Any:
    """Positions that broadcast over some axes of the view."""
    if isinstance(place, int):
        return place
    positions = np.arange(*_bounds(place.at)) if isinstance(place, Along) else place.positions
    axes = _axes(place)
    positions = positions.transpose(sorted(range(len(axes)), key=axes.__getitem__))
    return positions.reshape([positions.shape[sorted(axes).index(k)] if k in axes else 1 for k in shared])


def _bounds(at: range) -> tuple[int, int, int]:
    return at.start, at.stop, at.step


def _item(place: Place) -> int | slice:
    """An integer or a slice for an index."""
    if isinstance(place, int):
        return place
    assert isinstance(place, Along)
    at = place.at
    # A range that goes down to the first element ends before it, where a slice would count from the end.
    return slice(at.start, at.stop if at.stop >= 0 else None, at.step) if at else slice(0, 0)


def _moved(place: Place, offset: int) -> Place:
    if isinstance(place, int):
        return place - offset
    if isinstance(place, Picked):
        return Picked(place.axes, place.positions - offset)
    return Along(place.axis, range(place.at.start - offset, place.at.stop - offset, place.at.step))


def _boxed(place: Place) -> tuple[slice, Place]:
    """An ascending slice that holds all positions, and the same positions within it."""
    if isinstance(place, int):
        return slice(place, place + 1), 0
    if isinstance(place, Picked):
        low, high = int(place.positions.min()), int(place.positions.max())
        return slice(low, high + 1), Picked(place.axes, place.positions - low)
    up = place.at if place.at.step > 0 else place.at[::-1]
    inside = range(len(up)) if place.at.step > 0 else range(len(up) - 1, -1, -1)
    return slice(up.start, up[-1] + 1, up.step), Along(place.axis, inside)
