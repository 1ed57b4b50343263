"""The main job in a minute: daily data, one chunk per month, on a local directory.

Run it with `make demo`, or `python examples/demo.py [directory]`.
"""

from __future__ import annotations

import sys
from calendar import monthrange
from pathlib import Path

import numpy as np

import zellige


def month_lengths(first_year: int, months: int) -> list[int]:
    return [monthrange(first_year + m // 12, m % 12 + 1)[1] for m in range(months)]


def temperatures(first_day: int, days: int) -> np.ndarray:
    """A made-up but smooth field: a yearly cycle that is warmer towards the equator."""
    day = np.arange(first_day, first_day + days)[:, None, None]
    latitude = np.linspace(-85, 85, 18)[None, :, None]
    longitude = np.linspace(0, 350, 36)[None, None, :]
    season = 12 * np.cos((day - 200) / 365.25 * 2 * np.pi) * np.sin(np.radians(latitude))
    field = 28 * np.cos(np.radians(latitude)) - 5 + season + 2 * np.sin(np.radians(3 * longitude))
    return np.round(field, 1).astype("float32")


def stored_files(directory: Path) -> dict[str, int]:
    return {str(f.relative_to(directory)): f.stat().st_mtime_ns for f in directory.rglob("c/**/*") if f.is_file()}


def main(directory: Path) -> None:
    months = month_lengths(2023, 24)
    days = sum(months)

    print(f"1. Create {days} days of temperatures with one chunk per month, from 28 to 31 days.\n")
    a = zellige.create_array(
        directory,
        shape=(days, 18, 36),
        dtype="float32",
        chunks=[months, -1, -1],
        dimension_names=["time", "lat", "lon"],
        attributes={"unit": "°C"},
        overwrite=True,
    )
    print(f"   {a!r}\n")
    print("   time, to scale:")
    print(_indent(zellige.ChunkGrid(a.grid.dimensions[:1]).to_text(width=97)))

    print("\n2. Write all of it, and look at what is stored.\n")
    a[...] = temperatures(0, days)
    print(_indent(repr(a.info_complete())))

    print("\n3. Read February 2024, a leap year: one chunk is touched.\n")
    start = sum(months[:13])
    february = a[start : start + 29]
    touched = [chunk.key for chunk in a.iter_chunks(slice(start, start + 29))]
    print(f"   a[{start}:{start + 29}] has shape {february.shape}, mean {february.mean():.2f} {a.attrs['unit']}")
    print(f"   chunks read: {touched}")
    assert np.array_equal(february, temperatures(start, 29))

    print("\n4. Append January 2025 as a chunk of its own: no other chunk is rewritten.\n")
    before = stored_files(directory)
    a.append(temperatures(days, 31), chunks=[31])
    after = stored_files(directory)
    print(f"   new files: {sorted(after.keys() - before.keys())}")
    print(f"   old files changed: {sum(after[name] != before[name] for name in before)} of {len(before)}")

    print("\n5. Make room for the next three months, cut as they will come, and open it all again.\n")
    a.resize((a.shape[0] + 89, 18, 36), chunks={"time": [28, 31, 30]})
    again = zellige.open(directory, mode="r")
    print(f"   {again!r}")
    print("   the end of time, to scale:")
    tail = zellige.VaryingDimension(list(again.write_chunk_sizes[0][-8:]), sum(again.write_chunk_sizes[0][-8:]))
    print(_indent(zellige.ChunkGrid((tail,)).to_text(width=65)))
    assert np.array_equal(again[: days + 31], temperatures(0, days + 31))
    assert not again[days + 31 :].any()
    print(f"\nAll values read back equal. The array is in {directory}")


def _indent(text: str) -> str:
    return "\n".join("   " + line for line in text.splitlines())


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo.zarr"))
