"""Arrays and groups as a real browser shows them: on phones and desktops, light and dark, nothing overlaps or is cut.

The pictures are kept if ZELLIGE_SCREENSHOTS names a directory, to be looked at.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import escape, unescape
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

import zellige

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="the browser Chromium is missing: apt-get install chromium")

WIDTHS = {"phone": 390, "desktop": 1300}
SCHEMES = {"dark": 0, "light": 1}  # Blink's numbers
MONTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
HEIGHT = 8000  # pixels, enough for all views
LONG = "a_very_long_name_that_has_to_break_somewhere_on_the_screen_of_a_phone"

# -- what is shown --------------------------------------------------------------------------------


def arrays() -> dict[str, zellige.Array]:
    made = {
        "volume": zellige.zeros(
            (365, 90, 180), chunks=[MONTHS, 45, [60, 20, 100]], dimension_names=["time", "latitude", "longitude"]
        ),
        "months": zellige.zeros((365, 180), chunks=[MONTHS, [60, 20, 100]], dimension_names=["time", "longitude"]),
        "shards": zellige.zeros((100, 80), chunks=(10, 10), shards=([20, 50, 30], 40)),
        "one axis": zellige.zeros((365,), chunks=[MONTHS], dimension_names=["time"]),
        "millions": zellige.zeros((10**6, 10**5), chunks=(1000, [[17, 5000], 15000]), dtype="int8"),
        "scalar": zellige.zeros(()),
        "empty": zellige.zeros((0, 4), chunks=2),
        "long names": zellige.zeros((1000, 7), chunks=([999, 1], [1, 2, 4]), dimension_names=[LONG, LONG.upper()]),
        "wide names": zellige.zeros((9, 9), chunks=9, dimension_names=["緯度" * 20, "W" * 60]),
        "tall": zellige.zeros((10**15, 3), chunks=(10**15, 1), dtype="int8", attributes={"x": 1}),
        "struct": zellige.zeros((5,), chunks=2, dtype=[(f"field_{k}", "f4") for k in range(40)]),
    }
    made["months"][40:100, :70] = 1
    made["volume"][:60, :50, :70] = 1
    return made


def group() -> zellige.Group:
    root = zellige.create_group()
    for name in ("runs/2023/level", "runs/2024/level", f"runs/{LONG}", "static/mask"):
        root.create_array(name, shape=(366, 40), chunks=([31, 29, 306], 40))
    return root


def views() -> dict[str, str]:
    """Everything that shows itself as HTML, by a name."""
    made = arrays()
    found = {name: array._repr_html_() for name, array in made.items()}
    found |= {f"coverage of {name}": made[name].coverage().to_svg() for name in ("months", "volume")}
    return {**found, "group": group()._repr_html_(), "tree": group().tree(expand=True)._repr_html_()}


# -- the browser ----------------------------------------------------------------------------------

MEASURE = """
const box = e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom] };
const shown = e => e.checkVisibility();
const view = section => ({
  name: section.id,
  svgs: [...section.querySelectorAll('svg')].filter(shown).map(svg => ({
    box: box(svg), texts: [...svg.querySelectorAll('text')].map(t => ({words: t.textContent, box: box(t)})) })),
  words: [...section.querySelectorAll('th, td, caption, summary, .ruler > div, .zellige-tree div')].filter(shown)
    .filter(e => !e.querySelector('details, div')).map(e => ({words: e.textContent, box: box(e)})),
});
const style = getComputedStyle(document.querySelector('td'));
const report = {
  width: innerWidth, scroll: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight,
  dark: matchMedia('(prefers-color-scheme: dark)').matches, ink: style.color,
  picture: getComputedStyle(document.querySelector('svg text')).fill,
  views: [...document.querySelectorAll('section')].map(view),
};
parent.document.getElementById('report').textContent = JSON.stringify(report);
"""


class Shot(NamedTuple):
    """What the browser measured, and the pixels that it drew."""

    report: dict[str, Any]
    pixels: np.ndarray


HEAD = "<!doctype html><meta charset=utf-8><style>:root{color-scheme:light dark}body{font:14px system-ui;margin:8px}"


def document(width: int) -> str:
    """All views in a frame of this width: a window of the browser itself is never narrower than 500 pixels."""
    sections = "".join(f"<section id='{name}'>{html}</section><hr>" for name, html in views().items())
    inner = escape(f"{HEAD}</style><body>{sections}<script>{MEASURE}</script>")
    frame = f"<iframe style='width:{width}px' srcdoc='{inner}'></iframe>"
    return (
        f"{HEAD}body{{margin:0}}iframe{{border:0;height:{HEIGHT}px}}</style><body><pre hidden id=report></pre>{frame}"
    )


def photograph(folder: Path, width: int, scheme: str) -> Shot:
    assert BROWSER is not None
    page, picture = folder / "page.html", folder / f"{width}-{scheme}.png"
    page.write_text(document(width))
    options = f"--headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir={folder / 'profile'}"
    command = [BROWSER, *options.split(), f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}"]
    command += [f"--screenshot={picture}", "--dump-dom", f"--window-size={max(width, 500)},{HEIGHT}", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre hidden="" id="report">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, f"{BROWSER} measured nothing: {done.stderr[-1000:]}"
    if kept := os.environ.get("ZELLIGE_SCREENSHOTS"):
        Path(kept).mkdir(parents=True, exist_ok=True)
        shutil.copy(picture, kept)
    return Shot(json.loads(unescape(found[1])), np.asarray(Image.open(picture).convert("RGB")))


@pytest.fixture(scope="module", params=[(w, s) for w in WIDTHS for s in SCHEMES], ids=lambda found: " ".join(found))
def shot(request, tmp_path_factory) -> Shot:
    width, scheme = request.param
    taken = photograph(tmp_path_factory.mktemp("shots"), WIDTHS[width], scheme)
    assert (taken.report["width"], taken.report["dark"]) == (WIDTHS[width], scheme == "dark")
    return taken


# -- laws -----------------------------------------------------------------------------------------

SLACK = 0.5  # pixels, for rounding


def overlap(one: list[float], other: list[float]) -> bool:
    return all(min(one[k + 2], other[k + 2]) - max(one[k], other[k]) > SLACK for k in (0, 1))


def inside(box: list[float], frame: list[float]) -> bool:
    return all(box[k] >= frame[k] - SLACK and box[k + 2] <= frame[k + 2] + SLACK for k in (0, 1))


def test_all_views_are_there(shot):
    names = {view["name"] for view in shot.report["views"] if view["svgs"] or view["words"]}
    assert names == set(views())


def test_nothing_is_wider_than_the_window(shot):
    assert shot.report["scroll"] <= shot.report["width"]


def test_no_text_of_a_picture_is_cut(shot):
    cut = [
        (view["name"], text)
        for view in shot.report["views"]
        for svg in view["svgs"]
        for text in svg["texts"]
        if not inside(text["box"], svg["box"])
    ]
    assert cut == []


def test_no_texts_overlap(shot):
    for view in shot.report["views"]:
        for texts in [view["words"], *(svg["texts"] for svg in view["svgs"])]:
            pairs = [(a["words"], b["words"]) for a, b in combinations(texts, 2) if overlap(a["box"], b["box"])]
            assert pairs == [], view["name"]


def test_no_text_covers_a_picture(shot):
    for view in shot.report["views"]:
        covered = [t["words"] for t in view["words"] for svg in view["svgs"] if overlap(t["box"], svg["box"])]
        assert covered == [], view["name"]


def luminance(rgb: np.ndarray) -> float:
    """How bright a colour is (WCAG 2, relative luminance)."""
    part = np.asarray(rgb, float) / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def test_text_can_be_read_on_its_background(shot):
    background = shot.pixels[0, 0]
    assert (luminance(background) < 0.1) == shot.report["dark"]
    for ink in (shot.report["ink"], shot.report["picture"]):
        colour = np.array([float(part) for part in re.findall(r"[\d.]+", ink)[:3]])
        bright, dim = sorted([luminance(colour), luminance(background)], reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, ink  # WCAG 2, level AA


def test_the_picture_shows_what_was_measured(shot):
    """Where a text is, there are pixels that differ from the background: nothing is hidden."""
    assert shot.report["height"] <= shot.pixels.shape[0] == HEIGHT
    background = shot.pixels[0, 0].astype(int)
    for view in shot.report["views"]:
        texts = [*view["words"], *(text for svg in view["svgs"] for text in svg["texts"])]
        for text in texts:
            left, top, right, bottom = (int(edge) for edge in text["box"])
            part = shot.pixels[top : bottom + 1, left : right + 1].astype(int)
            assert not text["words"].strip() or np.abs(part - background).max() > 100, text
