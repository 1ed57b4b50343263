"""Names at the places where zarr-python has them: `zellige.core.indexing` for `zarr.core.indexing`, and so on.

Libraries that import from zarr-python's internal modules can import the same names from here. All other code imports
them from `zellige` and `zellige.metadata`.
"""
