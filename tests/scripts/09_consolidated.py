"""One request for all metadata."""

import zarr

for zarr_format in (2, 3):
    place = f"consolidated-v{zarr_format}.zarr"
    group = zarr.create_group(store=place, zarr_format=zarr_format)
    group.create_array(shape=(1,), name="a", dtype="float64")
    group.create_array(shape=(2, 2), name="b", dtype="float64", chunks=(1, 2))
    group.create_array(shape=(3, 3, 3), name="c", dtype="int8", attributes={"units": "K"})
    child = group.create_group("child", attributes={"kind": "test"})
    grandchild = child.create_group("child")
    grandchild.create_array(name="array", shape=(4,), dtype="i2")[:] = [1, 2, 3, 4]
    zarr.consolidate_metadata(place)

    consolidated = zarr.open_group(place, mode="r")
    print(zarr_format, consolidated.metadata.consolidated_metadata is not None)
    print([(path, type(node).__name__) for path, node in sorted(consolidated.members(max_depth=None))])

    again = zarr.open_consolidated(store=place)
    print(sorted(again), again["c"].attrs["units"], again["child/child/array"][:], again["child"].attrs["kind"])
    print(sorted(again["child"].members(max_depth=None))[0][0])
    print(zarr.open_group(place, use_consolidated=False, mode="r")["b"].chunks)

    # After a change, consolidate again.
    fresh = zarr.open_group(place, use_consolidated=False, mode="r+")
    fresh.create_array(name="d", shape=(5,), dtype="u1")
    print("d" in fresh, "d" in zarr.open_group(place, use_consolidated=False))
    zarr.consolidate_metadata(place)
    print("d" in zarr.open_consolidated(place), len(list(zarr.open_consolidated(place).arrays())))

plain = zarr.create_group("plain.zarr")
try:
    zarr.open_consolidated("plain.zarr")
except ValueError:
    print("no consolidated metadata")
