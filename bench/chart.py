"""The chart of a complete run: how many times as fast as the best peer zellige reads and writes whole arrays."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from bench.libraries import TITLES
from bench.report import best_peer, number

KINDS = {"read_": "Reading", "write_": "Writing"}
"""The beginnings of the names of cases on whole arrays, and what is written above their bars."""
# Pixels.
WIDTH, LABELS, NOTES, ROW, BAR = 720, 220, 120, 18, 11
AHEAD, BEHIND = "#2b8a9e", "#c2703d"
# A picture on a page of its own cannot see the colours around it: these suit light and dark pages.
STYLE = "<style>svg{color:#24292f}@media(prefers-color-scheme:dark){svg{color:#c9d1d9}}</style>"


def chart(report: Mapping[str, Any]) -> str:
    """Bars for all reads and writes of whole arrays, with a line where both are equally fast."""
    found = {
        title: [
            (row["about"].partition(": ")[2], *best)
            for row in report["cases"]
            if row["name"].startswith(prefix) and row["bytes"] and (best := best_peer(row))
        ]
        for prefix, title in KINDS.items()
    }
    most = max(ratio for bars in found.values() for *_, ratio in bars)
    scale = (WIDTH - LABELS - NOTES) / max(most, 1.0)
    parts, top = [], 0
    for title, bars in found.items():
        top += 2 * ROW
        parts.append(f'<text x="0" y="{top - 5}" font-weight="bold">{title}</text>')
        for label, peer, ratio in bars:
            length, text = ratio * scale, top + BAR
            after = LABELS + max(length, scale) + 5  # beyond the line, too
            parts += [
                f'<text x="{LABELS - 8}" y="{text}" text-anchor="end">{escape(label)}</text>',
                f'<rect x="{LABELS}" y="{top + 1}" width="{length:.1f}" height="{BAR}" '
                f'fill="{AHEAD if ratio >= 1 else BEHIND}"/>',
                f'<text x="{after:.1f}" y="{text}">{number(ratio)} ({escape(TITLES[peer])})</text>',
            ]
            top += ROW
    even = LABELS + scale
    line = f'<path d="M{even:.1f} {ROW}V{top}" stroke="currentColor" stroke-dasharray="3 3"/>'
    caption = f"Times as fast as the best peer, {report['date']}; the dashed line: equally fast"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top + 4}" width="{WIDTH}" height="{top + 4}" '
        'font-family="sans-serif" font-size="12" fill="currentColor" role="img">'
        f"{STYLE}<title>{escape(caption)}</title>"
        f'<text x="{LABELS}" y="12">{escape(caption)}</text>{"".join(parts)}{line}</svg>\n'
    )
