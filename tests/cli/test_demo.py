import json
from decimal import Decimal

import numpy as np
import pytest

from skdp.cli import demo_fits
from skdp.datasets import compute_true_margins, make_hospital
from skdp.privacy.encoding import encode


@pytest.fixture(autouse=True)
def _small_fresh_table(monkeypatch):
    monkeypatch.setattr(demo_fits, "FRESH_ROWS", 5_000)


def test_demo_says_what_it_will_do_then_what_it_did(call, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    order = []
    make = demo_fits.make_hospital

    def watched(n_rows, *seed):
        order.append((n_rows, capsys.readouterr().out))
        return make(n_rows, *seed)

    monkeypatch.setattr(demo_fits, "make_hospital", watched)
    code, rest, err = call("demo", "--rows", "2000")
    assert (code, err) == (0, "")
    before = "".join(text for _, text in order)
    # The plan is complete before a table is drawn (one row is asked for its schema).
    assert [rows for rows, _ in order] == [1, 2000, 5000]
    planned = " ".join(order[1][1].split())  # lines are broken anywhere
    assert "noise multiplier" in planned
    assert "predicted" in planned
    assert "Weights" not in before
    for words in ("differential privacy", "synthetic", "base rate alone *", "Oncology"):
        assert words in before + rest
    assert max(map(len, (before + rest).splitlines())) <= 60


def test_a_seeded_demo_claims_nothing(call):
    arguments = ("demo", "--rows", "2000", "--seed", "1")
    _, one, _ = call(*arguments)
    _, two, _ = call(*arguments)
    assert "seeded: no privacy claim" in one
    assert one.splitlines()[:-1] == two.splitlines()[:-1]  # all but the seconds


@pytest.mark.parametrize("epsilon", ["2", "inf"])
def test_json(call, epsilon):
    arguments = ("demo", "--rows", "3000", "--json", "--epsilon", epsilon)
    code, out, err = call(*arguments)
    assert (code, err) == (0, "")

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    shown = json.loads(out, parse_constant=refuse)
    assert shown["synthetic"] is True
    assert shown["n_rows"] == 3000
    assert list(shown["weights"]) == list(make_hospital(1).truth)
    assert shown["log_loss"]["true weights"] < shown["log_loss"]["base rate alone"]
    assert shown["privacy"]["claim"] == (
        "none" if epsilon == "inf" else "differential privacy"
    )
    if epsilon == "2":
        assert shown["privacy"]["spent_epsilon"] <= 2.0
        spent = sum(
            release["count"] / release["noise_multiplier"] ** 2
            for release in shown["privacy"]["releases"]
        )
        assert spent == pytest.approx(shown["privacy"]["mu_squared"])


def test_shown_numbers_add_up(call, monkeypatch):
    """Differences of rounded losses, not rounded differences."""
    losses = {
        "true weights": 0.31204,
        "no privacy": 0.31234,
        "private, matrix geometry": 0.31246,
        "private, DP-SkGD of the paper": 0.38888,
        "base rate alone": 0.41119,
    }
    monkeypatch.setattr(demo_fits, "_compute_log_losses", lambda *given: losses)
    _, out, _ = call("demo", "--rows", "500", "--seed", "1")
    rows = {
        name: [Decimal(cell) for cell in line.split()[-2:]]
        for line in out.splitlines()
        for name in losses
        if line.strip().startswith(name) and "+" in line.split()[-1]
    }
    assert list(rows) == list(losses)
    best = rows["true weights"][0]
    assert all(loss - best == above for loss, above in rows.values())
    cost = Decimal(out.split("log-loss by ", 1)[1].split()[0].rstrip("."))
    assert cost == rows["private, matrix geometry"][1] - rows["no privacy"][1]
    assert cost == Decimal("0.0002")


def test_long_jobs_are_cut_and_lose_their_bound():
    layout = make_hospital(1).schema.layout()
    short, long = (
        demo_fits._plan_fits(layout, rows, 8.0)[1] for rows in (2_000, 50_000)
    )
    assert short.plan.rate is not None
    assert "predicted" in short.words
    assert long.plan.rate is None
    assert long.plan.n_steps == 5_000
    assert "fewer than" in long.words


def test_centring_changes_no_prediction():
    data = make_hospital(500)
    records = encode([data.batch], data.schema)
    weights = np.random.default_rng(0).normal(size=data.weights.shape)
    moved = demo_fits.centre_categories(records.layout, weights)
    np.testing.assert_allclose(
        compute_true_margins(records, moved), compute_true_margins(records, weights)
    )
    for group in records.layout.groups:
        if group.kind == "code":
            assert abs(moved[group.coordinates].sum()) < 1e-12
