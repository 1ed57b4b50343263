"""Lazy views: indexing that reads nothing, and several arrays as one.

`transforms` composes selections, `sources` carries out the one that is left, `lazyarray` has what users see,
`joining` puts arrays one after another, and `sizes` knows how chunks are cut by a view.
"""

from zellige.views.joining import concat, stack
from zellige.views.lazyarray import LazyArray, arrays_of, lazy

__all__ = ["LazyArray", "arrays_of", "concat", "lazy", "stack"]
