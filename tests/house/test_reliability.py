"""The comparison of what libraries lose still runs: each scenario with zellige and small counts, and its table.

That the scenarios notice what they look for is shown with a library that takes no care at all.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "reliability" / "scenarios.py").exists():
    pytest.skip("installed without the comparison", allow_module_level=True)
if sys.platform != "linux":
    pytest.skip("the scenarios need Linux: /proc and fork", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from reliability import __main__ as command  # noqa: E402
from reliability import cost, report  # noqa: E402
from reliability.faults import judge_trace  # noqa: E402
from reliability.scenarios import SCENARIOS  # noqa: E402


def meet(library, names, folder, **more):
    counts = {name: SCENARIOS[name].quick for name in names} | more
    found = command.meet(library, str(folder), counts, seconds=100)
    assert found.keys() == set(names)
    assert not list(folder.iterdir())
    return found


@pytest.mark.parametrize("module", ["races", "faults", "damage", "limits"])
def test_zellige_loses_nothing(module, tmp_path):
    names = [name for name, one in SCENARIOS.items() if one.run.__module__ == f"reliability.{module}"]
    found = meet("zellige", names, tmp_path)
    unknown = ["power"] if module == "faults" and not shutil.which("strace") else []
    assert [name for name in names if found[name].get("good") is not True] == unknown, found


def test_every_scenario_is_run():
    assert {one.run.__module__ for one in SCENARIOS.values()} == {
        f"reliability.{module}" for module in ("races", "faults", "damage", "limits")
    }


CAUGHT = """
    threads_chunk processes_chunk creation readers_chunk kills truncated shrink_grow casts escape forbidden
"""
"""The scenarios that a library without any care fails by its nature."""


def test_a_careless_library_is_caught(tmp_path):
    # A kill finds half a chunk by chance, so there are enough of them.
    found = meet("careless", CAUGHT.split(), tmp_path, kills=5 * SCENARIOS["kills"].quick)
    assert [name for name in found if found[name].get("good") is not False] == [], found


def test_a_library_without_a_feature_has_none(tmp_path):
    assert meet("careless", ["flips_default"], tmp_path) == {"flips_default": {"none": True}}


def test_what_does_not_end_is_ended(tmp_path):
    found = command.meet("careless", str(tmp_path), {"kills": 10**6, "casts": 1}, seconds=1)
    assert found == {name: {"error": "no end in 1 s"} for name in ("kills", "casts")}
    assert not list(tmp_path.iterdir())


def test_a_trace_tells_what_is_synced_when():
    written = 'fsync(3</r/c/.tmp>) = 0\nrename("/r/c/.tmp", "/r/c/0") = 0\nfsync(3</r/c>) = 0\n'
    assert judge_trace(written, "/r/c/0") == {"renamed": True, "file": True, "directory": True}
    late = 'rename("/r/c/.tmp", "/r/c/0") = 0\nfsync(3</r/c/.tmp>) = 0\n'
    assert judge_trace(late, "/r/c/0") == {"renamed": True, "file": False, "directory": False}
    early = 'fsync(3</r/c>) = 0\n7 linkat(AT_FDCWD</x>, "/r/c/.tmp", AT_FDCWD</x>, "/r/c/0", 0) = 0\n'
    assert judge_trace(early, "/r/c/0") == {"renamed": True, "file": False, "directory": False}
    assert judge_trace('rename("/r/c/.tmp", "/r/c/0") = -1 EIO\n', "/r/c/0")["renamed"] is False


def test_the_table_says_what_was_found():
    rows = [report.row("kills", 3), report.row("attributes_threads", 100)]
    rows[0]["libraries"] = {
        "zellige": {"text": "0 torn chunks after 3 kills", "good": True, "facts": {}},
        "zarr": {"text": "2 torn chunks after 3 kills", "good": False, "facts": {}},
        "zarrs": {"error": "no end in 9 s"},
    }
    rows[1]["libraries"] = {
        "zellige": {"text": "100 of 100", "good": True, "facts": {}},
        "tensorstore": {"none": True},
        "zarr": {"absent": "zarr-python does not import"},
    }
    result = {
        "command": command.command(["--quick", "--libraries", "zellige,zarr"]),
        "date": "2026-01-01",
        "machine": {"cores": 2, "memory_gib": 8.0, "system": "Linux 6"},
        "versions": {"python": "3.13", "zellige": "0.1"},
        "where": "here",
        "scenarios": rows,
        "cost": {"file_system": "ext4", "forms": {"one chunk": {"process": 0.5, "power": 2.0}}},
    }
    text = report.markdown(result)
    assert "| what happens | zellige | TensorStore | zarrs | zarr-python |" in text
    kills = "| 0 torn chunks after 3 kills |  | **fails: no end in 9 s** | **2 torn chunks after 3 kills** |"
    assert kills in text
    assert "| 100 of 100 | none |  | not installed |" in text
    assert "zellige 2 of 2, TensorStore 0 of 0, zarrs 0 of 1, zarr-python 0 of 1." in text
    assert "`make reliability QUICK=1 ARGS='--libraries zellige,zarr'`" in text
    assert "| one chunk | 0.5 ms | 2 ms | 4 |" in text
    assert report.ours_are_good(result)
    rows[0]["libraries"]["zellige"]["good"] = False
    assert not report.ours_are_good(json.loads(json.dumps(result)))


def test_the_page_shows_the_table_of_the_last_complete_run():
    table, page = (ROOT / "reliability" / "results.md").read_text(), command.PAGE.read_text()
    shown = page.partition(command.BEGIN)[2].partition(command.END)[0]
    assert shown.strip() == table.strip()
    saved = json.loads((ROOT / "reliability" / "results.json").read_text())
    assert {row["name"] for row in saved["scenarios"]} == set(SCENARIOS)
    assert {row["about"] for row in saved["scenarios"]} == {scenario.about for scenario in SCENARIOS.values()}
    assert saved["command"] == "make reliability"
    assert report.markdown(saved) == table


def test_a_complete_run_changes_nothing_else_on_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{command.BEGIN}\nold\n{command.END}\nafter\n")
    for table in ("| a |\n", "| b |\n"):
        command.into_page(table, page)
        assert page.read_text() == f"before\n{command.BEGIN}\n\n{table}\n{command.END}\nafter\n"


def test_the_cost_of_durability_is_measured_for_each_form(tmp_path):
    found = cost.measure(str(tmp_path), 1)
    assert found["forms"].keys() == set(cost.FORMS)
    assert all(one["process"] > 0 and one["power"] > 0 for one in found["forms"].values())
    assert not list(tmp_path.iterdir())
