"""Arrays and groups: how nodes of a hierarchy change.

`resize` changes the shape of an array, `leftovers` removes what a change of the shape leaves beyond its end.
"""
