"""The driver of the peers' benchmark: what it fits, resumes, computes and writes."""

import json
import math
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import peers
import peers_report

import tables
from skdp.schema import Categorical, Numeric, Schema

ROOT = Path(__file__).parents[1]

FAKE = """
import json, sys
for line in sys.stdin:
    job = json.loads(line)
    value = job["setting"]["lr"] * job["epsilon"] + job["seed"] / 1000
    print(json.dumps(job | {"version": "1", "value": value, "warnings": [],
                            "seconds": 0.1, "claimed": job["epsilon"]}), flush=True)
"""


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A peer that needs no installation, whose score is its step times ε."""
    (tmp_path / "fake.py").write_text(FAKE, encoding="utf-8")
    settings = [{"lr": lr} for lr in (0.3, 0.1, 0.2)]
    peer = peers.Peer(
        file="fake.py",
        defaults={"classes": {"lr": 1.0}, "numbers": {"lr": 1.0}},
        grid={"classes": settings, "numbers": settings},
    )
    monkeypatch.setitem(peers.PEERS, "fake", peer)
    monkeypatch.setattr(peers, "FILES", tmp_path)
    monkeypatch.setattr(peers, "export", lambda table: tmp_path / f"{table}.npz")
    return peer


@pytest.mark.parametrize(("table", "best"), [("adult", 0.1), ("bike", 0.3)])
def test_settings_are_chosen_on_the_loss_by_a_seed_that_is_not_reported(
    fake, tmp_path, table, best
):
    store = peers.Store(tmp_path / "results.csv")
    peers.measure("fake", table, store)
    n = len(peers.EPSILONS) * len(peers.SEEDS)
    variants = [row["variant"] for row in store.rows]
    assert {v: variants.count(v) for v in variants} == {
        "default": n,
        "grid": 3 * len(peers.EPSILONS),
        "tuned": n,
    }
    tuned = [row for row in store.rows if row["variant"] == "tuned"]
    assert {row["setting"]["lr"] for row in tuned} == {best}
    chosen_by = {row["seed"] for row in store.rows if row["variant"] == "grid"}
    assert not chosen_by & {row["seed"] for row in tuned}


def test_a_run_goes_on_where_it_was_interrupted(fake, tmp_path, monkeypatch):
    path = tmp_path / "results.csv"
    peers.measure("fake", "adult", peers.Store(path))
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:12]), encoding="utf-8")
    asked = []
    answers = peers.answers

    def spied(name, jobs, where):
        asked.extend(jobs)
        return answers(name, jobs, where)

    monkeypatch.setattr(peers, "answers", spied)
    peers.measure("fake", "adult", peers.Store(path))
    assert len(asked) == len(lines) - 12
    assert path.read_text(encoding="utf-8") == "".join(lines)
    peers.measure("fake", "adult", peers.Store(path))
    assert len(asked) == len(lines) - 12  # nothing was left to ask


def test_a_peer_that_fails_is_not_passed_over(fake, tmp_path):
    (tmp_path / "fake.py").write_text("raise SystemExit(3)", encoding="utf-8")
    with pytest.raises(RuntimeError, match="ended with 3"):
        peers.measure("fake", "adult", peers.Store(tmp_path / "results.csv"))


def test_rows_are_written_and_read_back():
    row = {
        **dict.fromkeys(peers.FIELDS),
        "peer": "Opacus",
        "version": "1.6.0",
        "table": "adult",
        "variant": "tuned",
        "epsilon": 0.1,
        "delta": 1e-6,
        "seed": 3,
        "setting": {"lr": 0.1, "a": 1},
        "value": 0.375,
        "seconds": 1.5,
        "warnings": ["UserWarning"],
        "steps": 390,
        "claimed": 0.0912,
        "noise_multiplier": 1 / 3,
        "rate": 1 / 153,
    }
    cells = {k: str("" if v is None else v) for k, v in peers.written_row(row).items()}
    assert peers.read_row(cells) == row


def test_tables_are_encoded_in_the_unit_cube_with_a_level_each():
    columns = {"age": Numeric(20, 60), "job": Categorical(["a", "b"])}
    schema = Schema(columns, target=Numeric(0, 1))
    frame = pd.DataFrame({"age": [10, 30, 99], "job": ["b", "a", "other"]})
    table = tables.Table(frame, np.zeros(3), schema)
    expected = [[0, 0, 1], [0.25, 1, 0], [1, 0, 0]]
    np.testing.assert_array_equal(peers.encoded(table), expected)


def test_row_norms_are_those_of_the_columns():
    norms = peers.row_norms()
    assert list(norms) == ["adult", "bank", "electricity", "a9a"]
    assert norms["adult"] == math.sqrt(12)


def test_both_accountants_agree_with_each_other_and_with_a_known_value():
    pytest.importorskip("dp_accounting")
    row = dict.fromkeys(peers.FIELDS)
    row |= {"noise_multiplier": 1.337890625, "rate": 1 / 153, "steps": 1530}
    found = peers.recomputed(row)
    # Opacus's accountant says 0.9956, an upper bound with an allowance of 0.01.
    assert found["epsilon_pld"] == pytest.approx(0.9856, abs=0.002)
    assert found["epsilon_skdp"] == pytest.approx(found["epsilon_pld"], rel=2e-3)
    assert peers.recomputed(dict.fromkeys(peers.FIELDS))["epsilon_pld"] is None


@pytest.mark.parametrize("row_norm", [1.0, 3.5])
def test_what_is_provable_bounds_what_a_row_does_to_the_determinant(row_norm):
    epsilon, inverse = 0.5, 1.0
    added = 0.25 * math.hypot(row_norm, 1) / math.expm1(epsilon / 4) - inverse
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(200):
        others = rng.normal(size=(2, 3)) * rng.choice([0.0, 0.1, 1.0])
        base = np.diag([inverse + added] * 2 + [added]) + others.T @ others
        x = rng.normal(size=2)
        x = np.append(x * row_norm / np.linalg.norm(x), 1.0)
        grown = np.linalg.det(base + np.outer(x, x) / 4) / np.linalg.det(base)
        worst = max(worst, math.log(grown))
    bound = peers_report.provable(epsilon, row_norm, inverse) - epsilon / 2
    assert 0.999 * bound < worst <= bound * (1 + 1e-9)


def test_nothing_is_provable_without_a_penalty_on_the_intercept():
    assert peers_report.provable(8.0, 1.0) == math.inf


def cells(peer, ours, table="adult"):
    return {
        (table, "Opacus, tuned", 1.0): (peer, 0.001),
        (table, "skdp, defaults", 1.0): (ours, 0.001),
    }


def test_a_loss_to_a_peer_is_reported_and_a_tie_is_not():
    lost = peers_report.beaten(cells(0.32, 0.33))
    assert lost == [("adult", "Opacus, tuned", 1.0, 0.32, 0.33)]
    assert not peers_report.beaten(cells(0.33, 0.32))
    assert not peers_report.beaten(cells(0.329, 0.33))
    assert peers_report.beaten(cells(0.70, 0.69, "bike"))
    assert not peers_report.beaten(cells(0.69, 0.70, "bike"))


def test_the_tuned_setting_has_the_best_mean(tmp_path):
    names = "table,method,setting,epsilon,seed,value,seconds,width"
    tried = '{""max_bins"": 8}'
    fits = [("{}", 0.3), ("{}", 0.5), (tried, 0.38), (tried, 0.40)]
    lines = [f'bank,DP-EBM,"{at}",1.0,0,{value},1,' for at, value in fits]
    (tmp_path / "additive.csv").write_text("\n".join([names, *lines]), "utf-8")
    rows = peers_report.read_additive(tmp_path / "additive.csv")
    found = peers_report.cells_of(rows)
    assert found["bank", "DP-EBM, defaults", 1.0][0] == pytest.approx(0.4)
    assert found["bank", "DP-EBM, tuned", 1.0][0] == pytest.approx(0.39)


def test_the_page_is_what_its_rows_say():
    folder = ROOT / "docs" / "evidence" / "peers"
    store = peers.Store(folder / "results.csv")
    assert {row["peer"] for row in store.rows} == set(peers.PEERS)
    found = json.loads((folder / "violations.json").read_text("utf-8"))
    additive = peers_report.read_additive(folder.parent / "additive.csv")
    page = peers_report.page(store.rows, additive, peers.row_norms(), found)
    assert page == (folder / "README.md").read_text("utf-8")
