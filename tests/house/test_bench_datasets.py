"""The benchmark of datasets: both libraries write the same, and the table says who is ahead. Nothing is timed here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "bench" / "datasets.py").exists():
    pytest.skip("installed without the bench", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from bench import datasets  # noqa: E402


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
@pytest.mark.parametrize("library", datasets.WRITERS)
def test_what_is_measured_is_written_and_compared(library, tmp_path):
    found = datasets.measure(datasets.WRITERS[library], tmp_path / "x.zarr", variables=2, appends=2)
    assert found.keys() == {"create", "append"}
    with pytest.raises(AssertionError, match="other values"):
        datasets.measure(lambda ds, place, **options: datasets.by_zellige(ds + 1, place, **options), tmp_path, 1, 1)


@pytest.mark.parametrize(("times", "code", "words"), [((2.0, 1.0), 0, "2.00"), ((1.0, 2.0), 1, "below the goal")])
def test_the_table_and_the_exit_code_say_whether_the_goal_is_met(times, code, words, monkeypatch, capsys):
    taken = dict(zip(datasets.WRITERS.values(), times, strict=True))
    monkeypatch.setattr(datasets, "measure", lambda write, *_: {"append": taken[write]})
    monkeypatch.setattr(sys, "argv", ["bench.datasets", "--rounds", "1"])
    assert datasets.main() == code
    assert words in capsys.readouterr().out
