"""Pictures of grids: well-formed, to scale, quick for any grid, and readable aloud."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

import zellige
from zellige.display.svg import grid_svg, ruler_svg

NS = "{http://www.w3.org/2000/svg}"


def lines(svg):
    """The positions of vertical and of horizontal lines of the grid."""
    path = next(found for found in ET.fromstring(svg).iter(f"{NS}path") if "dasharray" not in str(found.attrib))
    pieces = [piece.split() for piece in path.attrib["d"].split("M")[1:]]
    vertical = [float(x) for x, rest in pieces if rest.startswith("0V")]
    horizontal = [float(rest.partition("H")[0]) for x, rest in pieces if "H" in rest]
    return vertical, horizontal


def labels(svg):
    return [found.text for found in ET.fromstring(svg).iter(f"{NS}text")]


def test_lines_are_in_proportion():
    grid = zellige.ChunkGrid.from_sizes((50, 100), [[10, 40], [25, 25, 50]])
    vertical, horizontal = lines(grid.to_svg())
    assert np.array(vertical) / vertical[-1] == pytest.approx([0, 0.25, 0.5, 1], abs=1e-3)
    assert np.array(horizontal) / horizontal[-1] == pytest.approx([0, 0.2, 1], abs=1e-3)
    assert labels(grid.to_svg()) == ["25", "25", "50", "10", "40"]


def test_a_grid_of_any_size_has_few_lines_and_asks_for_few_chunks(monkeypatch):
    asked = []
    grid = zellige.zeros((10**12, 10**9), chunks=(1, [[1000, 10**6]]), dtype="int8").grid
    for kind in (zellige.FixedDimension, zellige.VaryingDimension):
        known = kind.chunk_offset
        monkeypatch.setattr(kind, "chunk_offset", lambda self, k, known=known: asked.append(k) or known(self, k))
    vertical, horizontal = lines(grid.to_svg())
    assert 20 < len(vertical) < 130
    assert 20 < len(horizontal) < 130
    assert len(asked) < 300
    for found in (vertical, horizontal):
        assert np.diff(found).min() >= 1.4


@pytest.mark.parametrize("shape", [(), (0,), (5,), (0, 4), (3, 4), (2, 3, 4)])
def test_every_shape_has_a_picture(shape):
    a = zellige.zeros(shape, chunks=2)
    for svg in (a.grid.to_svg(), a.coverage().to_svg(), *map(ruler_svg, a.grid.dimensions)):
        root = ET.fromstring(svg)
        assert root.attrib["role"] == "img"
        assert root.attrib["aria-label"] == root.find(f"{NS}title").text != ""
    assert "zellige.Array /" in a._repr_html_()


def test_the_picture_can_be_read_aloud():
    svg = zellige.zeros((59, 36), chunks=([31, 28], 36)).grid.to_svg()
    words = "Grid of 59 × 36 elements: 2 chunks of 28 to 31 by 1 chunk of 36"
    assert ET.fromstring(svg).attrib["aria-label"] == words


def test_nothing_is_drawn_outside_of_the_picture():
    a = zellige.zeros((1000, 7), chunks=([999, 1], [1, 2, 4]), dimension_names=["latitude", "longitude"])
    svg = grid_svg(a.grid, names=a.dimension_names)
    left, top, width, height = map(float, ET.fromstring(svg).attrib["viewBox"].split())
    vertical, horizontal = lines(svg)
    assert max(vertical) <= left + width
    assert max(horizontal) <= top + height
    for text in ET.fromstring(svg).iter(f"{NS}text"):
        assert top <= float(text.attrib["y"]) <= top + height
        assert left <= float(text.attrib["x"]) <= left + width


def test_names_are_escaped():
    a = zellige.zeros((4, 4), chunks=2, dimension_names=["<b>", "&"])
    assert "<b>" in labels(grid_svg(a.grid, names=a.dimension_names))[-1]
    assert "<b>" not in a._repr_html_()


def filled(svg):
    return [found.attrib["fill-opacity"] for found in ET.fromstring(svg).iter(f"{NS}rect")][1:]


def test_stored_chunks_are_filled():
    a = zellige.zeros((4, 6), chunks=2)
    assert filled(a.coverage().to_svg()) == []
    a[0, 0] = a[3, 5] = 1
    assert filled(a.coverage().to_svg()) == ["0.80", "0.80"]


def test_a_cell_of_many_chunks_is_filled_in_part():
    a = zellige.zeros((10_000,), chunks=1, dtype="int8")
    a[:5000] = 1
    parts = sorted(map(float, filled(a.coverage().to_svg())))
    assert parts[-1] == 0.8
    assert 50 < len(parts) < 70


def test_inner_chunks_of_shards_are_dashed():
    a = zellige.zeros((20, 20), chunks=(5, 5), shards=(10, 20))
    assert "dasharray" in a._repr_html_()
    assert "dasharray" not in zellige.zeros((20, 20), chunks=(5, 5))._repr_html_()


def test_inner_chunks_begin_anew_in_each_shard():
    a = zellige.zeros((20, 20), chunks=(20, 6), shards=(20, 10), config={"uneven_inner_chunks": True})
    dashed = re.search(r'<path d="([^"]+)"[^>]*dasharray', grid_svg(a.grid, inner=(20, 6), width=200, height=200))
    assert dashed is not None
    assert [float(x) for x in re.findall(r"M([\d.]+) 0V", dashed[1])] == [60, 160]


def test_showing_reads_nothing():
    from counting_store import CountingStore

    a = zellige.zeros((20, 20), chunks=5, store=CountingStore())
    a.store.reset()
    a._repr_html_()
    assert a.store.calls == []


def test_long_names_are_shortened_to_the_width_of_the_picture():
    a = zellige.zeros((9, 9), chunks=9, dimension_names=["x" * 200, "Y" * 200])
    svg = grid_svg(a.grid, names=a.dimension_names, width=200)
    title = labels(svg)[-1]
    assert title.startswith("xxxxxxxx")
    assert title.endswith("…")
    assert float(ET.fromstring(svg).attrib["width"]) <= 200 + 60
    assert labels(grid_svg(a.grid, names=["x", "y"]))[-1] == "x × y"


def test_lines_that_are_close_are_faint():
    def opacity(size):
        paths = ET.fromstring(zellige.zeros((100, 100), chunks=size).grid.to_svg()).iter(f"{NS}path")
        return [float(path.attrib["stroke-opacity"]) for path in paths]

    assert opacity(50) == [0.75, 0.75]  # chunks, frame
    faint, frame = opacity(1)
    assert faint < 0.5 < frame


def test_types_of_many_fields_do_not_fill_the_page():
    a = zellige.zeros((5,), chunks=2, dtype=[(f"field_{k}", "f4") for k in range(400)])
    assert "field_3" in a._repr_html_()
    assert len(a._repr_html_()) < 5000
