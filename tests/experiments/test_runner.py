"""The runner: what is kept, thinned and written; files that are added turn up."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments import page, run, store
from experiments.drawing import spread
from experiments.folders import modules
from experiments.statistics import (
    geometric_interval,
    grouped,
    mean_interval,
    ratio_interval,
    slope_interval,
)

ROOT = Path(__file__).resolve().parents[2]


def figure_of(**changes):
    """A figure whose rows are a line through the seeds."""
    known = {
        "TITLE": "Try",
        "cells": lambda: [
            {"kind": kind, "x": x, "seed": seed}
            for kind in ("one", "other")
            for x in (1.0, 2.0)
            for seed in range(3)
        ],
        "measure": lambda cell: [{"y": cell["x"] + cell["seed"] / 3}],
        "draw": lambda rows: Figure(),
        "text": lambda rows: f"{len(rows)} rows, {sum(r['y'] for r in rows):.3f}.",
    }
    return SimpleNamespace(**(known | changes))


@pytest.fixture
def only(monkeypatch, tmp_path):
    """Run given figures, in a folder of their own."""

    def choose(**figures):
        known = {"figures": figures, "data": {}}
        monkeypatch.setattr(run, "modules", known.__getitem__)
        monkeypatch.setattr(run, "BUILD", tmp_path / "build")
        monkeypatch.setattr(run, "DOCS", tmp_path / "docs")
        return tmp_path

    return choose


def test_a_run_writes_numbers_figure_and_page(only):
    folder = only(a_try=figure_of())
    run.main(["--jobs", "1"])
    lines = (folder / "docs/a_try.csv").read_text().splitlines()
    assert lines[:3] == ["kind,x,seed,y", "one,1,0,1", "one,1,1,1.33333"]
    assert len(lines) == 13
    text = (folder / "docs/README.md").read_text()
    assert "## A. Try" in text
    assert "(a_try.svg)" in text
    assert "12 rows, 22.000." in text  # of the numbers as they were written
    svg = (folder / "docs/a_try.svg").read_text()
    assert "<dc:date>" not in svg


def test_finished_cells_are_kept_and_others_run(only):
    ran = []

    def measure(cell):
        ran.append(cell)
        if len(ran) == 5:
            raise KeyboardInterrupt
        return [{"y": 0.5}]

    folder = only(a_try=figure_of(measure=measure))
    with pytest.raises(KeyboardInterrupt):
        run.main(["--jobs", "1"])
    with (folder / "build/a_try.jsonl").open("a") as file:
        file.write('{"cell": {"ki')  # a line that a stop has cut short
    run.main(["--jobs", "1"])
    assert len(ran) == 12 + 1  # the interrupted one twice
    assert len(store.read_csv(folder / "docs/a_try.csv")) == 12
    run.main(["--jobs", "1"])
    assert len(ran) == 13


def test_cells_in_the_csv_count_as_finished_if_asked(only):
    """With another table in the CSV, and cells of two kinds of keys."""
    ran = []

    def measure(cell):
        ran.append(cell)
        if "seed" not in cell:
            return [{"y": 0.9}]
        return [{"kind": "end", "y": 0.5}, {"kind": "path", "y": 0.1}]

    def cells():
        runs = [{"x": x, "seed": seed} for x in (0.03, 1.0) for seed in (0, 1)]
        return [*runs, {"x": 0.03, "kind": "bound"}]

    folder = only(a_try=figure_of(cells=cells, measure=measure))
    run.main(["--jobs", "1"])
    assert len(ran) == 5
    before = (folder / "docs/a_try.csv").read_text()
    path = folder / "docs/a_try.csv"
    rows = store.read_csv(path)
    store.write_csv(path, [r for r in rows if (r["x"], r.get("seed")) != (1, 1)])
    (folder / "build/a_try.jsonl").unlink()
    ran.clear()
    run.main(["--jobs", "1", "--keep"])
    assert ran == [{"x": 1.0, "seed": 1}]
    assert path.read_text() == before


def test_a_cell_that_fails_stops_no_other(only):
    def measure(cell):
        if cell["seed"] == 1:
            raise ValueError("no noise will do")
        return [{"y": 1.0}]

    folder = only(a_try=figure_of(measure=measure))
    with pytest.raises(SystemExit, match="no noise will do"):
        run.main(["--jobs", "1"])
    assert len(store.lines(folder / "build/a_try.jsonl")) == 8
    assert not (folder / "docs/a_try.csv").exists()


def test_cells_that_a_figure_no_longer_has_are_left_out(only):
    folder = only(a_try=figure_of())
    run.main(["--jobs", "1"])
    only(a_try=figure_of(cells=lambda: [{"kind": "one", "x": 1.0, "seed": 2}]))
    run.main(["--jobs", "1"])
    rows = store.read_csv(folder / "docs/a_try.csv")
    assert rows == [{"kind": "one", "x": 1, "seed": 2, "y": 1.66667}]


def test_absent_data_is_skipped_and_said(only, capsys):
    def measure(cell):
        if cell["kind"] == "one":
            raise FileNotFoundError("no such table")
        return [{"y": 1.0}]

    folder = only(a_try=figure_of(measure=measure))
    run.main(["--jobs", "1"])
    assert len(store.read_csv(folder / "docs/a_try.csv")) == 6
    assert capsys.readouterr().err.count("no such table") == 6
    assert len(store.lines(folder / "build/a_try.jsonl")) == 6  # to be tried again


def test_figures_may_be_based_on_another(only):
    derived = figure_of(
        BASED_ON="a_try", derive=lambda rows: [{"most": max(r["y"] for r in rows)}]
    )
    derived.text = lambda rows: f"At most {rows[0]['most']}."
    derived.losses = lambda rows: ["it lost"]
    derived.learnt = lambda rows: ["it is loose"]
    folder = only(a_try=figure_of(), b_more=derived)
    run.main(["b", "--jobs", "1"])
    assert "At most 2.66667." in (folder / "docs/README.md").read_text()
    assert "- B: it lost" in (folder / "docs/README.md").read_text()
    assert "- B: it is loose" in (folder / "docs/README.md").read_text()
    assert not (folder / "docs/a_try.csv").exists()


def test_quick_writes_to_build_alone(only):
    folder = only(a_try=figure_of())
    run.main(["--quick", "--jobs", "1"])
    assert not list((folder / "docs").glob("*")) if (folder / "docs").exists() else True
    rows = store.read_csv(folder / "build/quick/a_try.csv")
    assert [(r["kind"], r["x"], r["seed"]) for r in rows] == [
        ("one", 1, 0),
        ("other", 1, 0),
    ]


def test_an_unknown_figure_is_refused(only):
    only(a_try=figure_of())
    with pytest.raises(SystemExit, match="must be one of"):
        run.main(["z"])


def test_csv_files_keep_what_rows_say(tmp_path):
    rows = [{"a": "x", "b": 0.1 + 0.2, "c": True}, {"a": "w", "d": 3}]
    store.write_csv(tmp_path / "a.csv", rows)
    assert store.read_csv(tmp_path / "a.csv") == [
        {"a": "w", "d": 3},
        {"a": "x", "b": 0.3, "c": True},
    ]


def test_a_cell_is_found_whatever_its_order():
    assert store.key({"a": 1, "b": 2.0}) == store.key({"b": 2.0, "a": 1})


def test_page_without_losses_does_not_claim_any(tmp_path):
    page.write(tmp_path, {})
    assert "loses" not in (tmp_path / "README.md").read_text()


def test_the_page_says_what_the_numbers_say():
    """After a change of a text: ``python experiments/run.py --draw``."""
    folder = ROOT / "docs/evidence/experiments"
    shown = (folder / "README.md").read_text(encoding="utf-8")
    assert shown == page.written(folder, modules("figures"))
    for name in modules("figures"):
        assert (folder / f"{name}.svg").exists()


def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(0)
    drawn = rng.normal(3.0, 2.0, size=(2000, 10))
    held = [low <= 3.0 <= high for _, low, high in map(mean_interval, drawn)]
    assert np.mean(held) == pytest.approx(0.95, abs=0.02)


def test_interval_of_a_known_sample():
    mean, low, high = mean_interval([1.0, 2.0, 3.0])
    assert mean == 2
    assert high - mean == pytest.approx(4.302653 / np.sqrt(3))  # t(2) at 97.5 %
    assert mean - low == pytest.approx(high - mean)
    assert mean_interval([5.0]) == (5, 5, 5)
    assert geometric_interval([1.0, 100.0]).mean == pytest.approx(10)
    assert ratio_interval([2.0, 8.0], [1.0, 2.0]).mean == pytest.approx(8**0.5)


def test_slopes_have_intervals():
    x = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    assert slope_interval(x, 3 * x**-2).mean == pytest.approx(-2)
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(1000):
        _, low, high = slope_interval(x, x**1.5 * np.exp(rng.normal(0, 0.3, 5)))
        held += low <= 1.5 <= high
    assert held / 1000 == pytest.approx(0.95, abs=0.03)
    assert np.isnan(slope_interval([2.0, 2.0], [1.0, 3.0]).mean)


def test_groups_keep_their_order():
    rows = [{"a": 2, "b": 1}, {"a": 1, "b": 1}, {"a": 2, "b": 3}]
    assert list(grouped(rows, "a")) == [(2,), (1,)]
    assert [r["b"] for r in grouped(rows, "a")[2,]] == [1, 3]


def test_labels_are_pushed_apart_no_more_than_needed():
    assert spread([0.1, 0.5, 0.9], 0.1) == pytest.approx([0.1, 0.5, 0.9])
    moved = spread([0.5, 0.5, 0.52], 0.1)
    assert np.diff(moved) == pytest.approx([0.1, 0.1])
    assert np.mean(moved) == pytest.approx(np.mean([0.5, 0.5, 0.52]))


def test_files_of_the_page_turn_up_in_the_quick_run(tmp_path):
    """The examples of docs/evidence/experiments/adding.md work as printed."""
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks" / "tables.py", tmp_path / "benchmarks")
    shown = (ROOT / "docs/evidence/experiments/adding.md").read_text(encoding="utf-8")
    files = re.findall(r"```python\n# (experiments/\S+)\n(.*?)```", shown, re.DOTALL)
    assert [Path(name).parent.name for name, _ in files] == [
        "systems",
        "data",
        "samplings",
    ]
    for name, body in files:
        assert not (tmp_path / name).exists()
        (tmp_path / name).write_text(body, encoding="utf-8")
    # Few systems and samplings keep the test quick. The new ones are among them.
    for folder, kept in (("systems", "skgd_matrix"), ("samplings", "uniform")):
        for path in (tmp_path / "experiments" / folder).glob("[!_]*.py"):
            if path.stem not in (kept, *(Path(name).stem for name, _ in files)):
                path.unlink()
    command = [sys.executable, "experiments/run.py", "a", "d", "--quick", "--jobs", "1"]
    subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "SKDP_DATA": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    quick = tmp_path / "build/experiments/quick"
    rows = store.read_csv(quick / "a_systems.csv")
    assert {"hospital", "tumours"} == {row["table"] for row in rows}
    assert {"skgd_matrix", "full_batch"} == {row["system"] for row in rows}
    laws = {row["sampling"] for row in store.read_csv(quick / "d_importance.csv")}
    assert {"uniform", "by_width"} == laws
    text = (quick / "README.md").read_text(encoding="utf-8")
    assert "DP-GD, 100 steps" in text
    assert "tumours" in text
