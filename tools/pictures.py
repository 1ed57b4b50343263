"""The pictures of real grids and figures in the documentation and the README: `python tools/pictures.py` draws all."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import zellige
from zellige.display.svg import grid_svg

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.chart import STYLE, chart  # noqa: E402

FOLDER = ROOT / "docs/pictures"
RESULTS = ROOT / "bench/results.json"
MONTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]


def pictures() -> dict[str, str]:
    """All pictures by their names."""
    names = ["time", "longitude"]
    year = zellige.zeros((365, 720), chunks=[MONTHS, [240, 80, 400]], dimension_names=names)
    sparse = zellige.zeros((365, 180), chunks=([31, 28, 306], 60), dimension_names=names)
    sparse[40:100, :70] = 1
    shards = zellige.zeros((100, 80), chunks=(10, 10), shards=([20, 50, 30], 40))
    tutorial = zellige.zeros((90, 8), chunks=([31, 28, 31], 4))
    found = {
        "months": grid_svg(year.grid, names=names, width=480, height=320),
        "regular": grid_svg(zellige.zeros((365, 720), chunks=(30, 240)).grid, names=names, width=480, height=320),
        "coverage": sparse.coverage().to_svg(),
        "shards": grid_svg(shards.grid, inner=(10, 10)),
        "tutorial": tutorial.grid.to_svg(),
    }
    drawn = {name: svg.replace("<title>", f"{STYLE}<title>", 1) + "\n" for name, svg in found.items()}
    return drawn | {"speed": chart(json.loads(RESULTS.read_text()))}


def main() -> None:
    """Draw them."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, svg in pictures().items():
        (FOLDER / f"{name}.svg").write_text(svg)


if __name__ == "__main__":
    main()
