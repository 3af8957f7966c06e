"""What noise does to small groups: to a model's predictions, and to their scores.

The table is Adult. A fifth of its rows are held out. A model without noise and private
models with several seeds are fitted to the others. On the rows held out, each group's
log-loss and mean prediction are compared with those of the model without noise. Then
one private model is evaluated by group on the rows held out, with several seeds. All
tables in docs/evidence/subgroups.md are written at the end.

    python benchmarks/subgroups.py [--seeds 20]
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import skdp

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

PAGE = ROOT / "docs" / "evidence" / "subgroups.md"
BUDGETS = (0.1, 0.5, 1.0, 4.0)
GROUPS = ("race", "sex")
#: One in five rows is held out.
PARTS = 5

HEAD = """# Small groups

Written by `make bench NAME=subgroups`: Adult, {fitted:,} rows to fit and {held:,}
held out, {seeds} seeds. Noise is added to sums, and it has the same size whoever the
rows belong to. So it weighs more, the fewer rows a group has. This page shows how
much more: in the model's predictions, and in the scores that tell you about them.

## The model

The model has the columns `race` and `sex` as categories. "Extra loss" is how much
higher the mean log-loss of the group is than with the model without noise: the mean
over seeds, and the worst of them. "Shift" is the root mean square, over seeds, of the
change of the group's mean predicted probability. The share without noise is what the
model without noise predicts.

| group | rows fitted | share without noise | {heads} |
|---|---|---|{lines}|
"""
MIDDLE = """
Most small groups lose more than large ones, and the more, the smaller ε is. Their rows
are few, so noise moves the coefficient of their own category and of the categories that
only they have, such as the countries that most of a group come from. All other
coefficients come from everybody's rows, and all groups lose alike by their noise. One
fit may do worse than the mean over seeds, so look at the worst seed too.

## Its scores

One model, fitted at ε = 1, is evaluated on the rows held out at ε = {epsilon:g}, with
`metrics=["accuracy", "log_loss"]` and `by=`. "Right" is the share of 95 % intervals
that hold the exact score of these rows. The intervals allow for sampling too, so it
should be at least 95 %.

| group | rows scored | score | exact | median width | right | too noisy |
|---|---|---|---|---|---|---|
"""
END = """
## What to do

- Decide before the fit which groups matter, and whether their numbers suffice: the
  noise of a count is about {noise:.0f} rows at this budget, for each group and at
  every size. A group of a few dozen rows cannot be scored, and the result says so
  instead of showing a number.
- Merge categories that are too rare to be told apart, where that is meaningful, or
  spend more on one evaluation of few metrics. Each column of cells makes the others
  noisier.
- An interval that holds zero difference is not a proof of equal treatment. With
  noise, absence of evidence is the normal case for small groups. State the group's
  size with each score.
- A group's privacy is not smaller because it is small: the guarantee is the same for
  every row. What differs is how much the group gets for it.
"""


def fit(X: Any, y: Any, schema: Any, epsilon: float, seed: int) -> Any:
    """Return a fitted model, without its warnings about constants."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = skdp.LogisticRegression(
            epsilon=epsilon, delta=1e-6, schema=schema, random_state=seed
        )
        return model.fit(X, y)


def losses(model: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """Return each row's log-loss, and its predicted probability of class 1."""
    chance = model.predict_proba(X)[:, 1]
    own = np.where(y == model.classes_[1], chance, 1.0 - chance)
    return -np.log(np.maximum(own, math.exp(-5.0))), chance


def measure_models(
    fitted: tuple[Any, Any], held: Any, y: Any, schema: Any, seeds: int
) -> Iterator[str]:
    """Yield a line for each group: what noise adds to its losses."""
    exact = losses(fit(*fitted, schema, math.inf, 0), held, y)
    private = {
        epsilon: [
            losses(fit(*fitted, schema, epsilon, s), held, y) for s in range(seeds)
        ]
        for epsilon in BUDGETS
    }
    for by in GROUPS:
        counts = fitted[0][by].value_counts()
        for level, n_rows in counts.items():
            at = (held[by] == level).to_numpy()
            cells = []
            for many in private.values():
                extra = [float((loss - exact[0])[at].mean()) for loss, _ in many]
                moved = [float((chance - exact[1])[at].mean()) for _, chance in many]
                shift = math.sqrt(np.mean(np.square(moved)))
                cells.append(f"{np.mean(extra):+.3f} ({max(extra):+.3f}), {shift:.3f}")
            share = float(exact[1][at].mean())
            yield f"| {by}: {level} | {n_rows:,} | {share:.3f} | {' | '.join(cells)} |"


def measure_scores(
    model: Any, held: Any, y: Any, epsilon: float, seeds: int
) -> Iterator[str]:
    """Yield a line for each group and score: how much an evaluation tells of it."""
    loss, chance = losses(model, held, y)
    right = (chance > 0.5) == (y == model.classes_[1])
    for by in GROUPS:
        column = model.schema_.columns[by]
        runs = [
            skdp.evaluate(
                model,
                held,
                y,
                epsilon=epsilon,
                delta=1e-6,
                metrics=["accuracy", "log_loss"],
                by=by,
                random_state=seed,
            )
            for seed in range(seeds)
        ]
        counts = held[by].value_counts()
        order = sorted(
            range(len(column.levels)), key=lambda i: -counts.get(column.levels[i], 0)
        )
        for i in order:
            at = (held[by] == column.levels[i]).to_numpy()
            for name, cells in (("accuracy", right), ("log_loss", loss)):
                exact = float(cells[at].mean())
                found = [run.groups[i].scores[name] for run in runs]
                width = float(np.median([one.high - one.low for one in found]))
                held_by = np.mean([one.low <= exact <= one.high for one in found])
                noisy = np.mean([one.too_noisy for one in found])
                yield (
                    f"| {by}: {column.levels[i]} | {at.sum():,} | {name} | "
                    f"{exact:.3f} | {width:.3f} | {held_by:.0%} | {noisy:.0%} |"
                )


def main() -> None:
    """Measure, and write the page."""
    from tables import load

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=1.0)
    options = parser.parse_args()
    table = load("adult")
    schema = table.schema
    held_out = np.random.default_rng(0).integers(PARTS, size=len(table.X)) == 0
    fitted = table.X[~held_out], table.y[~held_out]
    held, y = table.X[held_out], np.asarray(table.y[held_out])
    lines = list(measure_models(fitted, held, y, schema, options.seeds))
    model = fit(*fitted, schema, 1.0, 0)
    scored = list(measure_scores(model, held, y, options.epsilon, 2 * options.seeds))
    one = skdp.evaluate(
        model, held, y, epsilon=options.epsilon, delta=1e-6, by="sex",
        metrics=["accuracy", "log_loss"], random_state=0,
    )  # fmt: skip
    heads = " | ".join(f"ε = {e:g}: extra loss (worst), shift" for e in BUDGETS)
    head = HEAD.format(
        fitted=len(fitted[0]),
        held=len(held),
        seeds=options.seeds,
        heads=heads,
        lines="---|" * (len(BUDGETS) - 1) + "---",
    )
    end = END.format(noise=one.groups[0].n_rows_std)
    page = [head + "\n".join(lines), MIDDLE.format(epsilon=options.epsilon)]
    PAGE.write_text("\n".join(page) + "\n".join(scored) + "\n" + end, encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
