"""The corpus: what its descriptions say, and what its page counts as worse."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import corpus
import corpus_report
import corpus_tables
import r_tables

import tables
from skdp.schema import Categorical, Numeric


def test_enough_tables_are_described_and_none_has_chosen_a_constant():
    tasks = corpus_tables.read_tasks()
    halves = Counter(task.half for task in tasks.values())
    assert min(halves[half] for half in corpus_tables.HALVES) >= 44
    kinds = Counter((task.half, task.kind) for task in tasks.values())
    assert min(kinds.values()) >= 8
    assert len(kinds) == 6
    used = {one.path.split("/")[1] for one in r_tables.SOURCES.values()}
    used |= {"abalone", "fair", "Affairs", "Fair", *tables.NAMES}
    assert not used & {task.source.split("/")[1] for task in tasks.values()}
    for task in tasks.values():
        target = task.schema.target_column
        assert isinstance(target, Categorical if task.kind == "class" else Numeric)
        assert task.kind != "count" or target.low == 0


def test_a_table_of_a_folder_is_divided_and_scored(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    age = np.arange(600.0) % 100
    frame = pd.DataFrame({"age": age, "late": np.where(age > 50, "yes", "no")})
    frame.loc[:9, "late"] = None
    task = corpus_tables.Task(
        "trains", "", "class", {"late": ["no", "yes"]}, {"age": [0, 120]}
    )
    monkeypatch.setattr(corpus_tables, "read_tasks", lambda *_: {"trains": task})
    monkeypatch.setattr(corpus_tables, "read_package", lambda _: frame)
    corpus_tables.load.cache_clear()
    whole = corpus_tables.load("trains")
    corpus_tables.export("trains", tmp_path)
    monkeypatch.undo()
    again = corpus_tables.load("trains", tmp_path)
    assert corpus_tables.read_tasks(tmp_path) == {"trains": task}
    pd.testing.assert_frame_equal(again.X, whole.X)
    assert again.y.tolist() == whole.y.tolist()
    assert len(again.y) == 590
    folds = [corpus.divide(again, seed) for seed in range(5)]
    assert sum(len(test.y) for _, test in folds) == 590
    assert all(len(train.y) + len(test.y) == 590 for train, test in folds)
    share = rng.uniform(size=590)
    chance = np.column_stack([1 - share, share])
    losses = np.where(again.y == "yes", -np.log(share), -np.log(1 - share))
    assert np.isclose(corpus.score("class", chance, again), losses.mean())
    jobs = [(1.0, 0, method) for method in (*corpus.CONSTANTS, *corpus.METHODS)]
    rows = corpus.measure(task, tmp_path, jobs)
    found = {row["method"]: float(row["score"]) for row in rows}
    assert found["line"] < found["constant"] - 0.1
    assert abs(found["constant"] - found["mean"]) < 0.05


def test_worse_is_more_than_a_tie_and_two_standard_errors():
    def rows(kind, gaps):
        facts = {"table": "t", "kind": kind, "half": "judge", "epsilon": "1"}
        return [
            facts | {"seed": str(seed), "method": method, "score": str(score)}
            for seed, gap in enumerate(gaps)
            for method, score in (("line", 0.5), ("additive", 0.5 + gap))
        ]

    def verdict(kind, gaps):
        (cell,) = corpus_report.compare(rows(kind, gaps), "additive", "line")
        return cell.verdict

    assert verdict("number", [-0.02, -0.02]) == -1
    assert verdict("number", [-0.009, -0.009]) == 0
    assert verdict("number", [-0.05, 0.01]) == 0  # two standard errors
    assert verdict("number", [-0.5]) == 0  # no standard error
    assert verdict("class", [0.004, 0.0041]) == -1  # a loss: more is worse
    assert verdict("count", [0.02, 0.021]) == 1
