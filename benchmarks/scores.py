"""How often intervals of scores hold, and that no score is impossible.

A model is fitted once without noise to a large hospital table. Each run draws a fresh
table of 1,785 rows from the same population and evaluates the model on it at ε = 0.5
with the default metrics. The truth is the score on a table of 400,000 rows, with the
same clipping. Every number must be in its range, and every interval is counted as right
if it holds the truth. The table in docs/evidence/scores.md is written at the end.

    python benchmarks/scores.py [--runs 200] [--rows 1785] [--epsilon 0.5]
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import metrics

import skdp

PAGE = Path(__file__).parents[1] / "docs" / "evidence" / "scores.md"
POPULATION = 400_000
#: Ranges of all scores that have one.
LOW = {"r2": -1.0, "d2": -1.0}
HIGH = {"log_loss": 16.0, "mae": math.inf, "rmse": math.inf, "deviance": math.inf}


def make_case(kind: str) -> tuple[Any, Any, Any, Any]:
    """Return a model, a population and its target, as features in [0, 1]."""
    drawn = np.random.default_rng(7)
    X = drawn.beta(2, 3, size=(POPULATION, 4))
    margin = X @ [3.0, -3.0, 2.0, -1.0] - 0.4
    if kind == "two classes":
        y: Any = (drawn.random(POPULATION) < 1 / (1 + np.exp(-2 * margin))).astype(int)
        model: Any = skdp.LogisticRegression(classes=[0, 1])
    elif kind == "a rare class":
        y = (drawn.random(POPULATION) < 1 / (1 + np.exp(3 - margin))).astype(int)
        model = skdp.LogisticRegression(classes=[0, 1])
    elif kind == "three classes":
        noisy = margin + drawn.normal(0, 0.8, POPULATION)
        y = np.digitize(noisy, [-0.6, 0.8])
        model = skdp.LogisticRegression(classes=[0, 1, 2])
    elif kind == "numbers":
        y = np.clip(margin + drawn.normal(0, 0.7, POPULATION), -20, 20)
        model = skdp.LinearRegression(target_bounds=(-20, 20))
    else:
        y = np.minimum(drawn.poisson(np.exp(0.7 + margin / 2)), 50)
        model = skdp.PoissonRegressor(target_bounds=(0, 50))
    model.set_params(epsilon=math.inf, bounds=(0, 1), n_rows=20_000)
    model.fit(X[:20_000], y[:20_000])
    return model, X, y, kind


def compute_truth(model: Any, X: Any, y: Any) -> dict[str, float]:
    """Return the scores of the population, with losses clipped as by default."""
    found: dict[str, float] = {}
    guess = model.predict(X)
    if not hasattr(model, "classes_"):
        low, high = (0, 50) if model.link == "log" else (-20, 20)
        guess = np.clip(guess, low, high)
        mse = metrics.mean_squared_error(y, guess)
        found |= {"rmse": math.sqrt(mse), "r2": metrics.r2_score(y, guess)}
        found["mae"] = metrics.mean_absolute_error(y, guess)
        if model.link == "log":
            found["deviance"] = metrics.mean_poisson_deviance(y, guess)
            found["d2"] = metrics.d2_tweedie_score(y, guess, power=1)
        return found
    chance = model.predict_proba(X)
    own = chance[np.arange(len(y)), y]
    found["log_loss"] = float(np.minimum(-np.log(own), 5.0).mean())
    share = np.bincount(y) / len(y)
    found["d2"] = 1 + found["log_loss"] / float((share * np.log(share)).sum())
    found["accuracy"] = metrics.accuracy_score(y, guess)
    found["balanced_accuracy"] = metrics.balanced_accuracy_score(y, guess)
    average = "binary" if len(share) == 2 else "macro"
    for name in ("precision", "recall", "f1"):
        score = getattr(metrics, f"{name}_score")
        found[name] = score(y, guess, average=average, zero_division=0.0)
    if len(share) == 2:
        found["auc"] = metrics.roc_auc_score(y, chance[:, 1])
    return found


def find_error(chance: Any, y: Any, lines: Any) -> float:
    """Return the population's calibration error over the bins of one evaluation."""
    at = np.searchsorted([line.high for line in lines][:-1], chance, side="right")
    gaps = np.bincount(at, y - chance, minlength=len(lines))
    return float(np.abs(gaps).sum()) / len(y)


def check_possible(found: Any) -> None:
    """Raise if any number that is shown is impossible."""
    for name, score in found.scores.items():
        low, high = LOW.get(name, 0.0), HIGH.get(name, 1.0)
        assert low <= score.low <= score.value <= score.high <= high, (name, score)
        assert math.isfinite(score.value + score.noise_std + score.sampling_std), name
    for one in found.calibration:
        assert 0 <= one.low <= one.predicted <= one.high <= 1, one
        assert 0 <= one.positives <= one.count, one
        assert 0 <= one.rate_low <= one.rate <= one.rate_high <= 1, one
    if found.confusion is not None:
        assert min(min(row) for row in found.confusion.counts) >= 0
    steps = np.array(found.roc or [(0.0, 0.0)])
    assert (np.diff(steps, axis=0) >= 0).all()
    assert 0 <= steps.min() <= steps.max() <= 1
    assert found.n_rows >= 1


def measure(case: tuple[Any, Any, Any, Any], options: Any) -> list[str]:
    """Return the lines of the table for one model."""
    model, X, y, kind = case
    truth = compute_truth(model, X, y)
    own = model.predict_proba(X)[:, 1] if hasattr(model, "predict_proba") else None
    right, wide, hidden = defaultdict(int), defaultdict(list), defaultdict(int)
    errors: dict[str, list[float]] = defaultdict(list)
    drawn = np.random.default_rng(11)
    for _ in range(options.runs):
        at = drawn.integers(0, POPULATION, options.rows)
        found = skdp.evaluate(model, X[at], y[at], epsilon=options.epsilon)
        check_possible(found)
        if "ece" in found.scores:
            truth["ece"] = find_error(own, y, found.calibration)
        for name, score in found.scores.items():
            right[name] += score.low <= truth[name] <= score.high
            wide[name].append(score.high - score.low)
            hidden[name] += score.too_noisy
            errors[name].append(score.value - truth[name])
        for line in found.calibration:
            inside = (own >= line.low) & (own < line.high)
            rate = float(y[inside].mean()) if inside.any() else line.rate
            right["calibration line"] += line.rate_low <= rate <= line.rate_high
            wide["calibration line"].append(line.rate_high - line.rate_low)
            hidden["calibration line"] += line.too_noisy
            errors["calibration line"].append(line.rate - rate)
    lines = []
    for name, widths in wide.items():
        n = len(widths)
        true = f"{truth[name]:.3f}" if name in truth else "–"
        cells = [kind, name, true, f"{np.mean(errors[name]):+.3f}"]
        cells += [f"{np.median(widths):.3f}", f"{right[name] / n:.1%}"]
        lines.append(f"| {' | '.join(cells)} | {hidden[name] / n:.0%} |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Measure all models and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1785)
    parser.add_argument("--epsilon", type=float, default=0.5)
    parser.add_argument("--output", type=Path, default=PAGE)
    parser.add_argument("--only", default=None)
    options = parser.parse_args()
    kinds = ["two classes", "a rare class", "three classes", "numbers", "counts"]
    kept = [kind for kind in kinds if options.only in (None, kind)]
    lines = [line for kind in kept for line in measure(make_case(kind), options)]
    text = f"""# Intervals of scores

Written by `make bench NAME=scores`. Each of {options.runs} runs evaluates a model on a
fresh table of {options.rows:,} rows at ε = {options.epsilon:g} (add-remove, the number
of rows private) with the default metrics. No run showed an impossible number: each
value was in its range and inside its interval, no count was negative, and nothing was
NaN. The rules behind the scores and their intervals were chosen on these same synthetic
cases, so this table says that they do what they were made for, not how they do
elsewhere. "Right" is the share of 95 % intervals that hold the score of the population
of {POPULATION:,} rows. The last column is the share of runs that said "too noisy
to say".

| model | score | truth | mean error | median width | right | too noisy |
|---|---|---|---|---|---|---|
"""
    if options.only is None:
        options.output.write_text(text + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
