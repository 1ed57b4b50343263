"""The benchmark harness still runs: its tables on made-up figures, some cases on tiny arrays. Nothing is timed here."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "bench" / "cases.py").exists():
    pytest.skip("installed without the bench", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from bench import __main__ as command  # noqa: E402
from bench import report, runner  # noqa: E402
from bench.cases import CASES, select  # noqa: E402
from bench.chart import chart  # noqa: E402
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


def test_ratios_are_judged_by_the_goals_of_the_case():
    ours = {"zellige": 0.010}
    good = result("read_raw_4M", ours | {"tensorstore": 0.013, "zarr": 0.030})
    assert good["ratios"] == {"tensorstore": 1.3, "zarr": 3.0}
    assert good["behind"] == []
    assert result("read_raw_4M", ours | {"tensorstore": 0.0128, "zarrista": 0.009, "zarr": 0.02})["behind"] == [
        "TensorStore 1.28 < 1.3",
        "zarrista 0.90 < 1.3",
    ]
    assert result("read_gzip_512K", ours | {"zarrista": 0.011})["behind"] == []
    assert result("read_zstd_4M", ours | {"zarrs": 0.0108})["behind"] == ["zarrs 1.08 < 1.1"]
    assert result("write_raw_8K", ours | {"tensorstore": 0.0099})["behind"] == ["TensorStore 0.99 < 1"]
    assert result("chunk_zstd", ours | {"tensorstore": 0.0096})["behind"] == []
    assert result("points_1000_zstd", ours | {"zarr": 0.0094})["behind"] == ["zarr 0.94 < 0.95"]
    for name in ("open", "scalar_raw"):
        assert result(name, ours | {"zarrista": 0.008, "zarrs": 0.025})["behind"] == []
        assert result(name, ours | {"zarrista": 0.0075, "zarrs": 0.024})["behind"] == [
            "zarrista 0.75 < 0.8",
            "zarrs 2.40 < 2.5",
        ]
    assert result("rect_raw_4M", ours | {"regular": 0.009})["behind"] == ["own regular 0.90 < 0.95"]
    assert result("import", {"zellige": 0.012, "zarr": 0.2})["behind"] == ["12 ms > 10 ms"]
    assert result("memory_read_zstd_4M", {"zellige": 65 * 2**20})["behind"] == ["65 MiB > 64 MiB"]


def test_a_ratio_is_close_to_the_goal_above_and_below():
    case, ours = CASES["read_raw_4M"], {"zellige": 1.0}
    assert runner.close_ones(case, ours | {"tensorstore": 1.5, "zarrs": 1.7, "zarr": 1.1}, 1.2) == {
        "tensorstore",
        "zarr",
    }
    assert runner.close_ones(case, ours | {"tensorstore": 1.0, "zarrista": 1.3, "zarr": 0.8}, 1.2) == {"zarrista"}
    assert runner.close_ones(CASES["rect_raw_4M"], ours | {"regular": 1.1}, 1.2) == {"regular"}
    assert runner.close_ones(case, ours | {"tensorstore": 1.3}, 1.0) == set()
    assert runner.close_ones(case, {"tensorstore": 1.3}, 1.2) == set()


def test_the_peer_without_steps_and_lists_is_asked_for_boxes_only():
    with_it = {name for name, case in CASES.items() if "zarrista" in case.peers}
    assert {
        "read_raw_4M",
        "write_gzip_512K",
        "region_unaligned_zstd",
        "write_part_raw",
        "open",
        "shard_inner",
    } <= with_it
    assert not [name for name in with_it if name.startswith(("strided", "order_f", "points", "oindex", "rect"))]


def test_the_table_says_what_was_found():
    rows = [
        result("read_raw_4M", {"zellige": 0.0625, "tensorstore": 0.2, "zarr": 3.0}, others_percent=2.0),
        result("scalar_raw", {"zellige": 8e-6, "tensorstore": 8e-6}, others_percent=30.0),
        result("memory_read_zstd_4M", {"zellige": 2**22, "zarr": 2**26}),
    ]
    rows.append(result("order_f_raw", {"zellige": 1.0}) | {"errors": {"zarrs": "ValueError: not C"}})
    text = report.markdown(whole(rows))
    assert "| read_raw_4M | read: raw, 4M chunks | 4.29 GB/s | 3.20 |  | 48 | >= 1.3 | ok |" in text
    assert "| 8 us | 1.00 |" in text
    assert "behind ~ |" in text
    assert "64 MiB" in text
    assert "order_f_raw: zarrs: ValueError: not C" in text
    assert "zarrs is left out: not installed" in text
    assert "3 of 4 cases meet their goals" in text
    assert "| >= 2.5, zarrista >= 0.8 |" in text
    assert "`make bench QUICK=1`" in text
    assert str(Path.home()) not in text
    assert json.loads(json.dumps(whole(rows)))["cases"][0]["goals"]["tensorstore"] == 1.3
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
    assert command.command(["--case", "open", "--cores", "1,2"]) == "make bench CASE=open CORES=1,2"
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


# -- numbers of cores -----------------------------------------------------------------------------


def test_a_figure_for_each_number_of_cores():
    few = result("read_raw_4M", {"zellige": 0.2, "tensorstore": 0.4}, cores=1)
    many = result("read_raw_4M", {"zellige": 0.05, "tensorstore": 0.1, "zarrista": 0.08}, cores=4)
    text = report.markdown(whole([few, many]))
    assert "| case | what | zellige 1 / 4 | TensorStore 1 / 4 | zarrista 1 / 4 | best peer |" in text
    assert "| 1.34 / 5.37 GB/s | 0.67 / 2.68 GB/s | - / 3.36 GB/s | 1.60 (zarrista) |" in text
    assert report.cells(many, ["zarrista"])[:3] == ["read_raw_4M @4", "5.37 GB/s", "1.60"]


def test_the_numbers_of_cores_must_be_there():
    assert command.parse([]).cores == []
    found = command.parse(["--cores", "1"])
    assert (found.cores, found.case, command.is_complete(found)) == ([1], "read_*,write_*", False)
    assert command.parse(["--cores", "1", "--case", "open"]).case == "open"
    for wrong in ("0", "1,100000", "one"):
        with pytest.raises(SystemExit):
            command.parse(["--cores", wrong])


@pytest.mark.skipif(shutil.which("taskset") is None, reason="taskset is missing")
def test_a_process_gets_as_many_cores_as_it_is_said_to(tmp_path):
    first = runner.Runner(str(tmp_path), runner.Options(SCALE, 1, 0), print, ["zellige"])
    running = first.on(1)
    try:
        process = running.process("zellige")
        assert process is not None
        assert len(os.sched_getaffinity(process.pid)) == 1
        assert b"RAYON_NUM_THREADS=1" in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        found = running.run(CASES["read_raw_8K"])
        first.forget([])
    finally:
        running.close()
    assert (found["cores"], found["errors"], found["figures"].keys()) == (1, {}, {"zellige"})
    assert [path.name for path in tmp_path.iterdir()] == ["source-16x16x16.npy"]


# -- the tables that people see -------------------------------------------------------------------


def shown(page: Path) -> str:
    return page.read_text().partition(command.BEGIN)[2].partition(command.END)[0].strip()


def test_the_pages_show_the_last_complete_run_judged_by_the_goals_of_today():
    saved = json.loads((ROOT / "bench" / "results.json").read_text())
    assert {row["name"] for row in saved["cases"]} == set(CASES)
    assert saved["command"] == "make bench"
    assert command.judged(saved) == saved, "run `make bench ARGS=--tables`"
    assert shown(command.README) == report.headlines(saved).strip()
    assert shown(command.PAGE) == report.markdown(saved).strip()
    assert command.CHART.read_text() == chart(saved)


def test_the_readme_names_the_best_peer_in_six_lines():
    figures = {"zellige": 0.0625, "tensorstore": 0.2, "zarrista": 0.1}
    rows = [result(name, figures) for name in report.HEADLINES]
    lines = [
        line for line in report.headlines(whole(rows)).splitlines() if "GB/s" in line or " us " in line or "ms" in line
    ]
    assert len(lines) == 6
    assert all("(zarrista) | 1.60 |" in line for line in lines)


def test_a_complete_run_changes_nothing_else_in_a_page(tmp_path):
    page = tmp_path / "README.md"
    page.write_text(f"before\n{command.BEGIN}\nold\n{command.END}\nafter\n")
    for table in ("| a |\n", "| b |\n"):
        command.into_page(table, page)
        assert page.read_text() == f"before\n{command.BEGIN}\n\n{table}\n{command.END}\nafter\n"


def test_a_complete_run_is_kept_and_shown(tmp_path, monkeypatch):
    for name, file in {"README": "README.md", "PAGE": "benchmark.md"}.items():
        (tmp_path / file).write_text(f"{command.BEGIN}{command.END}")
        monkeypatch.setattr(command, name, tmp_path / file)
    monkeypatch.setattr(command, "HERE", tmp_path)
    monkeypatch.setattr(command, "CHART", tmp_path / "speed.svg")
    rows = [result(name, {"zellige": 1.0, "zarr": 2.0}) for name in report.HEADLINES]
    command.publish(whole(rows))
    assert json.loads((tmp_path / "results.json").read_text())["cases"] == json.loads(json.dumps(rows))
    assert shown(tmp_path / "README.md") == report.headlines(whole(rows)).strip()
    assert shown(tmp_path / "benchmark.md") == report.markdown(whole(rows)).strip()
    picture = ElementTree.fromstring((tmp_path / "speed.svg").read_text())
    bars = list(picture.iter("{http://www.w3.org/2000/svg}rect"))
    assert len({bar.get("width") for bar in bars}) == 1
    assert len(bars) == sum(name.startswith(("read_", "write_")) for name in report.HEADLINES)
