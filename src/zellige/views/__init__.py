"""Lazy views: indexing that reads nothing, and several arrays as one.

`sources` has what is read, and the algebra of indices; `lazyarray` has what users see.
"""

from zellige.views.lazyarray import LazyArray, arrays_of, concat, lazy, stack

__all__ = ["LazyArray", "arrays_of", "concat", "lazy", "stack"]
