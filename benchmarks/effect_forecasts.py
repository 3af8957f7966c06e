"""Compare forecasts of intervals with fits: make bench NAME=effect-forecasts.

A plan forecasts which effects a fit will tell, and how wide their intervals will be,
from public facts and an assumption about rows. Here the same plans are carried out on
tables that do not follow this assumption, and on one that does. Results are written
to effect_forecasts.md and effect_forecasts.csv.

    python benchmarks/effect_forecasts.py [--fits 20] [--only skewed]
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import skdp
from skdp import datasets
from skdp.descent.forecast import LIKELY
from skdp.estimators.effects import compute_effects
from skdp.estimators.fit import ESTIMATORS

EVIDENCE = Path(__file__).resolve().parents[1] / "docs" / "evidence"
PAGE = """\
# Forecasts of intervals

    make bench NAME=effect-forecasts

A plan says before a fit which columns are likely to get an interval, and how wide it
will be. It knows the schema, the number of rows and ε. It assumes that rows fill a
third of each range like a bell, that columns are independent, and that the k-th level
of a column is a k-th as frequent as the first. Here {fits} tables of each kind are
fitted. In the first kind this is so. In the others it is not: columns are skewed and
correlated, ranges are up to a hundred times as wide as what rows fill, and levels are
rarer.

- **Told or not:** {total:.0f} % of {forecasts} forecasts are right ({parts}). A column
  with several levels has several effects. “Likely” is right if more than half of the
  effects in all fits have an interval, “unlikely” if fewer have one, and “may be” if
  neither (nearly) all nor (nearly) none have one.
- **Widths:** {within:.0f} % of the told columns have intervals between half and
  twice as wide as forecast (median ratio {median:.2f}). Ratios are of medians of fits.
  From 20,000 rows on these are {within_long:.0f} %. At 2,000 rows noise hides some
  numbers of a table, which a plan cannot know. What they may add is part of the
  intervals of all others, which are then several times as wide.
- **Chosen on these tables:** the width of the bell (five standard deviations), the
  frequencies of levels and what counts as right, with five fits of each kind.

{table}
"""
SIZES, EPSILONS = (2_000, 20_000), (1.0, 4.0)
#: Schemas of the drawn tables. Ranges are as generous as a person would write them.
DRAWN = {
    "as assumed": {
        "age": skdp.Numeric(0, 120),
        "score": skdp.Numeric(-3, 3),
        "hours": skdp.Numeric(0, 90),
        "sex": skdp.Categorical(["f", "m"]),
        "region": skdp.Categorical([*"abcd"]),
    },
    "skewed": {
        "age": skdp.Numeric(0, 120),
        "visits": skdp.Numeric(0, 100),
        "cost": skdp.Numeric(0, 100_000),
        "bmi": skdp.Numeric(10, 80),
        "sex": skdp.Categorical(["f", "m"]),
        "ward": skdp.Categorical([*"abcde"]),
    },
}
DESIGNS = {
    "as assumed": "logistic",
    "hospital": "logistic",
    "skewed": "linear",
    "visits": "poisson",
}


def draw(design: str, n_rows: int, seed: int) -> tuple[Any, skdp.Schema]:
    """Return a fresh table and its schema."""
    if design in ("hospital", "visits"):
        target = {"hospital": "readmitted", "visits": "visits"}[design]
        data = datasets.make_hospital(n_rows, random_state=seed, target=target)
        return pd.DataFrame(dict(data.columns)), data.schema
    rng = np.random.default_rng([seed, 2])
    columns = DRAWN[design]
    if design == "as assumed":
        table = {
            name: _draw_bell(column, rng, n_rows)
            if isinstance(column, skdp.Numeric)
            else _draw_levels(column, rng, n_rows)
            for name, column in columns.items()
        }
        margin = (table["age"] - 60) / 20 + 0.7 * table["score"] - 0.5
        margin = margin + 0.6 * (table["region"] == "b") - (table["hours"] - 45) / 20
        target = (rng.uniform(size=n_rows) < 1 / (1 + np.exp(-margin))).astype(int)
        described: Any = skdp.Categorical([0, 1])
    else:
        common = rng.standard_normal(n_rows)
        normal = 0.6 * common[:, None] + 0.8 * rng.standard_normal((n_rows, 4))
        table = {
            "age": (48 + 17 * normal[:, 0]).clip(0, 120),
            "visits": np.floor(np.exp(0.8 + 0.8 * normal[:, 1])).clip(0, 100),
            "cost": np.exp(6.5 + normal[:, 2]).clip(0, 100_000),
            "bmi": (26 + 5 * normal[:, 3]).clip(10, 80),
            "sex": np.where(rng.uniform(size=n_rows) < 0.3, "f", "m"),
            "ward": rng.choice([*"abcde"], n_rows, p=[0.5, 0.25, 0.15, 0.07, 0.03]),
        }
        margin = 0.4 * table["age"] + 1.5 * table["visits"] + 0.001 * table["cost"]
        target = 20 + margin + 4 * (table["ward"] == "b")
        target = target + 10 * rng.standard_normal(n_rows)
        described = skdp.Numeric(0, 300)
    return pd.DataFrame(table | {"y": target}), skdp.Schema(
        columns, target=("y", described)
    )


def _draw_bell(column: skdp.Numeric, rng: Any, n_rows: int) -> Any:
    at = (0.5 + rng.standard_normal(n_rows) / 15).clip(1 / 3, 2 / 3)
    return column.low + (column.high - column.low) * at


def _draw_levels(column: skdp.Categorical, rng: Any, n_rows: int) -> Any:
    shares = 1 / np.arange(1, column.width + 1)
    return rng.choice(column.levels, n_rows, p=shares / shares.sum())


def measure(
    design: str, n_rows: int, epsilon: float, fits: int
) -> list[dict[str, Any]]:
    """Return a line for each column: what was forecast, and what the fits gave."""
    model, schema = DESIGNS[design], draw(design, 10, 0)[1]
    plan = skdp.plan(schema, n_rows, epsilon, model=model)
    outlook = plan.outlook()
    assert not isinstance(outlook, str), outlook
    stds = []
    for seed in range(fits):
        table, _ = draw(design, n_rows, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = ESTIMATORS[model](
                schema=schema, epsilon=epsilon, random_state=seed
            ).fit(table)
        (output,) = compute_effects(fitted)
        names = [one.column for one in output.effects]
        stds.append([one.std for one in output.effects])
    found = np.array(stds)
    lines = []
    for one in outlook.effects:
        own = found[:, [name == one.column for name in names]]
        told = np.isfinite(own)
        width = 2 * 1.96 * float(np.median(own[told])) if told.any() else np.nan
        lines.append(
            {
                "design": design,
                "rows": n_rows,
                "epsilon": epsilon,
                "column": one.column,
                "forecast": say(one.told),
                "told": float(told.mean()),
                "forecast_width": one.width,
                "width": width,
            }
        )
    return lines


def say(told: float) -> str:
    """Return what the plan says in words."""
    if told >= LIKELY:
        return "likely"
    return "unlikely" if told <= 1 - LIKELY else "may be"


def is_right(line: dict[str, Any]) -> bool:
    """Return whether more than half of the fits did what was forecast."""
    share = line["told"]
    if line["forecast"] == "may be":
        return bool(0.05 <= share <= 0.95)
    return bool((share > 0.5) == (line["forecast"] == "likely"))


def write(lines: list[dict[str, Any]], fits: int) -> None:
    """Write the table and the page."""
    with (EVIDENCE / "effect_forecasts.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in one.items()}
            for one in lines
        )
    rows = ["| table | rows | ε | right of columns | told | width over forecast |"]
    rows.append("|---|---|---|---|---|---|")
    cells = dict.fromkeys((one["design"], one["rows"], one["epsilon"]) for one in lines)
    for cell in cells:
        own = [x for x in lines if (x["design"], x["rows"], x["epsilon"]) == cell]
        ratios = find_ratios(own)
        spread = (
            f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"
            if len(ratios)
            else "none told"
        )
        told = 100 * float(np.mean([one["told"] for one in own]))
        rows.append(
            f"| {cell[0]} | {cell[1]:,} | {cell[2]:g} | {sum(map(is_right, own))} of "
            f"{len(own)} | {told:.0f} % | {spread} |"
        )
    ratios = find_ratios(lines)
    said = Counter(one["forecast"] for one in lines)
    right = Counter(one["forecast"] for one in lines if is_right(one))
    within = float(np.mean((ratios > 0.5) & (ratios < 2)))
    long = find_ratios([one for one in lines if one["rows"] >= 20_000])
    right_said = ", ".join(f"{right[k]} of {said[k]} “{k}”" for k in said)
    text = PAGE.format(
        fits=fits,
        total=100 * sum(right.values()) / len(lines),
        forecasts=len(lines),
        parts=right_said,
        within=100 * within,
        within_long=100 * float(np.mean((long > 0.5) & (long < 2))),
        median=np.median(ratios),
        table="\n".join(rows),
    )
    (EVIDENCE / "effect_forecasts.md").write_text(text, encoding="utf-8")
    print(text)


def find_ratios(lines: list[dict[str, Any]]) -> Any:
    """Return the width in fits over the forecast, where both are known."""
    pairs = [(one["width"], one["forecast_width"]) for one in lines]
    return np.array([a / b for a, b in pairs if np.isfinite(a) and np.isfinite(b)])


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description="Forecasts of intervals, and fits.")
    parser.add_argument("--fits", type=int, default=20)
    parser.add_argument("--only", choices=[*DESIGNS], nargs="+", default=[*DESIGNS])
    given = parser.parse_args()
    start, lines = time.process_time(), []
    for design in given.only:
        for n_rows in SIZES:
            for epsilon in EPSILONS:
                lines += measure(design, n_rows, epsilon, given.fits)
        print(design, f"{time.process_time() - start:.0f} CPU seconds", flush=True)
    if given.only == [*DESIGNS]:
        write(lines, given.fits)
    else:
        print(pd.DataFrame(lines).to_string())


if __name__ == "__main__":
    main()
