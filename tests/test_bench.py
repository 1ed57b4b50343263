"""The benchmark harness still runs: its tables on made-up figures, some cases on tiny arrays. Nothing is timed here."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
if not (ROOT / "bench" / "cases.py").exists():
    pytest.skip("installed without the bench", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from bench import __main__ as command  # noqa: E402
from bench import report, runner  # noqa: E402
from bench.cases import CASES, select  # noqa: E402
from bench.layouts import Layout, uneven  # noqa: E402
from bench.worker import Worker  # noqa: E402

SCALE = 8

ONE_OF_EACH_KIND = """
    read_raw_8K read_shard_zstd_64K write_blosc_64K write_part_zstd shard_update_raw rect_shard_raw_8K rect_gzip_512K
    region_unaligned_raw strided_2_zstd transposed_raw order_f_zstd open scalar_shard chunk_zstd points_1000_raw
    oindex_1000_zstd group_consolidated rect_open_10M rect_look_up_10M
"""


def result(name, figures, **more):
    return report.judge(CASES[name], {"name": name, "figures": figures, "errors": {}, "equal": True, **more})


def whole(rows):
    known = command.make_report(["--quick"], runner.Options(), "tmpfs", 3.0)
    return known | {"quiet": True, "others_percent_during": 4.0, "absent": {"zarrs": "not installed"}, "cases": rows}


def test_ratios_are_judged_by_the_targets_of_the_case():
    ours = {"zellige": 0.010}
    good = result("read_raw_4M", ours | {"tensorstore": 0.020, "zarr": 0.030})
    assert good["ratios"] == {"tensorstore": 2.0, "zarr": 3.0}
    assert good["behind"] == []
    assert result("read_raw_4M", ours | {"tensorstore": 0.019, "zarr": 0.009})["behind"] == [
        "TensorStore 1.90 < 2",
        "zarr 0.90 < 1",
    ]
    assert result("read_raw_8K", ours | {"tensorstore": 0.007})["behind"] == []
    assert result("rect_raw_4M", ours | {"regular": 0.009})["behind"] == ["own regular 0.90 < 0.95"]
    assert result("import", {"zellige": 0.012, "zarr": 0.2})["behind"] == ["12 ms > 10 ms"]
    assert result("memory_read_zstd_4M", {"zellige": 65 * 2**20})["behind"] == ["65 MiB > 64 MiB"]


def test_a_ratio_is_close_to_the_target_above_and_below():
    case, ours = CASES["read_raw_4M"], {"zellige": 1.0}
    assert runner.close_ones(case, ours | {"tensorstore": 2.3, "zarrs": 1.7, "zarr": 1.1}, 1.2) == {
        "tensorstore",
        "zarr",
    }
    assert runner.close_ones(case, ours | {"tensorstore": 1.7, "zarrs": 0.9, "zarr": 0.8}, 1.2) == {
        "tensorstore",
        "zarrs",
    }
    assert runner.close_ones(CASES["rect_raw_4M"], ours | {"regular": 1.1}, 1.2) == {"regular"}
    assert runner.close_ones(case, ours | {"tensorstore": 2.0}, 1.0) == set()
    assert runner.close_ones(case, {"tensorstore": 2.0}, 1.2) == set()


def test_the_table_says_what_was_found():
    rows = [
        result("read_raw_4M", {"zellige": 0.0625, "tensorstore": 0.2, "zarr": 3.0}, others_percent=2.0),
        result("scalar_raw", {"zellige": 8e-6, "tensorstore": 8e-6}, others_percent=30.0),
        result("memory_read_zstd_4M", {"zellige": 2**22, "zarr": 2**26}),
    ]
    rows.append(result("order_f_raw", {"zellige": 1.0}) | {"errors": {"zarrs": "ValueError: not C"}})
    text = report.markdown(whole(rows))
    assert "| read_raw_4M | read: raw, 4M chunks | 4.29 GB/s | 3.20 |  | 48 | >= 2 | ok |" in text
    assert "| 8 us | 1.00 |" in text
    assert "behind ~ |" in text
    assert "64 MiB" in text
    assert "order_f_raw: zarrs: ValueError: not C" in text
    assert "zarrs is left out: not installed" in text
    assert "3 of 4 cases meet their targets" in text
    assert "`make bench QUICK=1`" in text
    assert str(Path.home()) not in text
    assert json.loads(json.dumps(whole(rows)))["cases"][0]["targets"]["tensorstore"] == 2
    lines = [report.terminal_line(report.cells(row, report.columns(rows))) for row in rows]
    assert len({line.index(">=") for line in lines if ">=" in line}) == 1


def test_what_was_disturbed_is_measured_again(tmp_path, monkeypatch):
    before = [
        result(name, {"zellige": 2.0}, others_percent=busy) for name, busy in (("open", 3.0), ("scalar_raw", 30.0))
    ]
    before.append(result("scalar_zstd", {"zellige": 2.0}, others_percent=20.0))
    (tmp_path / "results.json").write_text(json.dumps(command.with_rows(whole([]), before)))
    asked: list[str] = []

    def measure(_raw, _arguments, cases):
        asked.extend(case.name for case in cases)
        busy = {"scalar_raw": 2.0, "scalar_zstd": 40.0}
        return {"cases": [result(case.name, {"zellige": 1.0}, others_percent=busy[case.name]) for case in cases]}

    monkeypatch.setattr(command, "HERE", tmp_path)
    monkeypatch.setattr(command, "measure", measure)
    found = command.repeat([], command.parse(["--again"]))
    assert asked == ["scalar_raw", "scalar_zstd"]
    assert [(row["name"], row["figures"], row["others_percent"]) for row in found["cases"]] == [
        ("open", {"zellige": 2.0}, 3.0),
        ("scalar_raw", {"zellige": 1.0}, 2.0),
        ("scalar_zstd", {"zellige": 2.0}, 20.0),
    ]
    assert (found["others_percent_during"], found["quiet"], found["date"]) == (8.3, True, whole([])["date"])
    (tmp_path / "results.json").write_text(json.dumps(command.with_rows(whole([]), before[:1])))
    with pytest.raises(SystemExit, match="no case"):
        command.repeat([], command.parse(["--again"]))


def test_the_command_can_be_repeated():
    assert command.command([]) == "make bench"
    assert command.command(["--case", "read_*", "--quick"]) == "make bench QUICK=1 CASE='read_*'"
    assert command.command(["--scale", "4"]) == "make bench ARGS='--scale 4'"
    assert len(select(["open", "read_raw_*"])) == 5
    with pytest.raises(SystemExit, match="no case 'reed'"):
        select(["reed"])


def test_uneven_edges_have_the_same_sum():
    for count, size, multiple in ((4, 128, 1), (5, 128, 16), (1, 32, 1)):
        edges = uneven(count, size, multiple)
        assert len(edges) == count
        assert sum(edges) == count * size
        assert all(0.7 * size <= edge <= 1.3 * size and edge % multiple == 0 for edge in edges)
    assert Layout(512, 128).shape(8) == (128, 128, 128)


def test_the_better_copy_counts_of_arrays_that_are_written_in_an_order_that_favours_neither(tmp_path):
    class Answering:
        def ask(self, do, **_):
            return {"seconds": [4.0, 2.0, 3.0, 1.0]}

    case = CASES["rect_raw_512K"]
    assert [array.uneven for array in case.needs] == [True, False, False, True]
    assert len({array.name for array in case.needs}) == 4
    found = {"figures": {}, "errors": {}}
    runner.Runner(str(tmp_path), runner.Options(), print)._turns(case, {"zellige": Answering()}, found, 1)
    assert found == {"figures": {"zellige": 1.0, "regular": 2.0}, "errors": {}}


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND.split())
def test_a_case_gives_the_values_that_numpy_gives(name, tmp_path):
    ours, oracle = Worker("zellige", str(tmp_path), SCALE), Worker("numpy", str(tmp_path), SCALE)
    for stored in CASES[name].needs:
        assert ours.obey({"do": "store", "name": stored.name}) == {}
    expected = oracle.obey({"do": "prepare", "case": name})["answers"]
    answer = ours.obey({"do": "prepare", "case": name})
    assert answer["answers"] == expected
    if answer["written"]:
        assert ours.obey({"do": "verify", "path": answer["written"]}) == {"answer": expected[0]}
    assert len(ours.obey({"do": "run", "least": 0})["seconds"]) == len(expected)
    assert ours.obey({"do": "finish"}) == {}
    assert not list(tmp_path.glob("of-*"))


def test_a_case_runs_in_processes(tmp_path):
    said = []
    running = runner.Runner(str(tmp_path), runner.Options(SCALE, 1, 0), said.append, ["zellige"])
    try:
        found = running.run(CASES["rect_raw_8K"])
        running.forget([])
    finally:
        running.close()
    assert found["errors"] == {}
    assert found["equal"] is True
    assert found["figures"].keys() == {"zellige", "regular"}
    assert [path.name for path in tmp_path.iterdir()] == ["source-16x16x16.npy"]


# -- the table that people see --------------------------------------------------------------------


def test_the_readme_shows_the_table_of_the_last_complete_run():
    table, readme = (ROOT / "bench" / "results.md").read_text(), command.README.read_text()
    shown = readme.partition(command.BEGIN)[2].partition(command.END)[0]
    assert shown.strip() == table.strip()
    saved = json.loads((ROOT / "bench" / "results.json").read_text())
    assert {row["name"] for row in saved["cases"]} == set(CASES)
    assert saved["command"] == "make bench"
    assert report.markdown(saved) == table


def test_a_complete_run_changes_nothing_else_in_the_readme(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{command.BEGIN}\nold\n{command.END}\nafter\n")
    for table in ("| a |\n", "| b |\n"):
        command.into_readme(table, readme)
        assert readme.read_text() == f"before\n{command.BEGIN}\n\n{table}\n{command.END}\nafter\n"
