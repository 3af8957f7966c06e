"""What the defaults reach on public tables (make bench NAME=utility).

The protocol: one 80/20 split, public bounds, δ = 1e-6, all neighbour relations, ten
seeds of noise. Ours are the estimators' defaults, nothing tuned. A peer's figure is its
best over a grid chosen on the test loss, which no private user has; they are read from
the file that SKDP_BASELINES names (``baselines.csv`` beside the data by default) and
left out where it is absent.
"""

from __future__ import annotations

import csv
import math
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from skdp.estimators import LinearRegression, LogisticRegression
from tables import DATA, NAMES, ROOT, Table, load, split

EPSILONS = (0.05, 0.1, 0.5, 1.0, 3.0, 8.0)
NEIGHBOURS = ("zero-out", "replace-one", "add-remove")
SEEDS = range(10)
#: A wide table takes a hundred times longer: fewer seeds, and one relation.
WIDE, WIDE_SEEDS = "reuters", range(5)
DELTA = 1e-6
#: Tables whose target is a number.
NUMBERS = ("california", "bike", "wine")
OUT = ROOT / "docs" / "evidence" / "utility"
#: Differences that count as a tie, in log-loss and in R².
TIE = {True: 0.0005, False: 0.001}


def score(model: Any, test: Table) -> float:
    """Log-loss for classes, R² for numbers, on rows that were not fitted."""
    if not test.classification:
        residual = np.mean((model.predict(test.X) - test.y) ** 2)
        return float(1 - residual / np.var(test.y))
    chance = np.clip(model.predict_proba(test.X)[:, 1], 1e-15, 1 - 1e-15)
    positive = test.y == model.classes_[1]
    return float(-np.mean(np.where(positive, np.log(chance), np.log1p(-chance))))


def floor(train: Table, test: Table) -> float:
    """The score of the base rate, or of the mean."""
    if not test.classification:
        return float(1 - np.mean((train.y.mean() - test.y) ** 2) / np.var(test.y))
    positive = test.schema.target_column.levels[1]
    rate, seen = np.mean(train.y == positive), np.mean(test.y == positive)
    return float(-(seen * np.log(rate) + (1 - seen) * np.log(1 - rate)))


def fit(train: Table, **given: Any) -> Any:
    """Fit the default model."""
    kind = LogisticRegression if train.classification else LinearRegression
    model = kind(schema=train.schema, delta=DELTA, n_threads=1, **given)
    return model.fit(train.X, train.y)


def measure(name: str) -> list[dict[str, Any]]:
    """All fits of one table."""
    train, test = split(load(name))
    better = "logloss" if test.classification else "r2"
    rows = [
        {
            "table": name,
            "score": better,
            "method": "floor",
            "value": floor(train, test),
        },
        {
            "table": name,
            "score": better,
            "method": "no privacy",
            "value": score(fit(train, epsilon=math.inf), test),
        },
    ]
    wide = name == WIDE
    for neighbours in NEIGHBOURS[:1] if wide else NEIGHBOURS:
        for epsilon in EPSILONS:
            for seed in WIDE_SEEDS if wide else SEEDS:
                model = fit(
                    train, epsilon=epsilon, neighbours=neighbours, random_state=seed
                )
                rows.append(
                    {
                        "table": name,
                        "score": better,
                        "method": "skdp",
                        "neighbours": neighbours,
                        "epsilon": epsilon,
                        "seed": seed,
                        "value": score(model, test),
                    }
                )
        print(f"{name} {neighbours}", file=sys.stderr, flush=True)
    return rows


def peers() -> dict[tuple[str, float], tuple[float, str]]:
    """Best peer's mean score by table and ε, and its name."""
    path = Path(os.environ.get("SKDP_BASELINES", DATA.parent / "baselines.csv"))
    if not path.exists():
        return {}
    cells: dict[tuple[str, float, str], list[float]] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            if row["eps"] and row["delta"] and float(row["delta"]) == DELTA:
                table = row["dataset"].removesuffix("_marketing")
                value = row["logloss"] or row["r2"]
                method = f"{row['method']} ({row['variant']})"
                key = (table, float(row["eps"]), method)
                cells.setdefault(key, []).append(float(value))
    best: dict[tuple[str, float], tuple[float, str]] = {}
    for (table, epsilon, method), values in cells.items():
        sign = -1.0 if table in NUMBERS else 1.0
        mean = float(np.mean(values))
        known = best.get((table, epsilon))
        if known is None or sign * mean < sign * known[0]:
            best[table, epsilon] = (mean, method)
    return best


def cells_of(
    rows: list[dict[str, Any]], neighbours: str
) -> dict[tuple[str, float], Any]:
    """Mean and standard error of ours by table and ε."""
    values: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        if row["method"] == "skdp" and row["neighbours"] == neighbours:
            values.setdefault((row["table"], row["epsilon"]), []).append(row["value"])
    return {
        key: (float(np.mean(v)), float(np.std(v, ddof=1) / math.sqrt(len(v))))
        for key, v in values.items()
    }


def page(rows: list[dict[str, Any]]) -> str:
    """The tables in Markdown."""
    best = peers()
    plain = {(r["table"], r["method"]): r["value"] for r in rows if "seed" not in r}
    lines = [
        "# What the defaults reach",
        "",
        "Test log-loss (adult, bank, electricity, a9a, reuters: lower is better) and "
        "R² (california, bike, wine: higher is better) of `LogisticRegression` and "
        "`LinearRegression` with only a schema, ε and δ = 1e-6. Under add-remove the "
        "number of rows is released too. Numbers are means over ten seeds of noise "
        "(five on reuters, whose 8,315 columns are fitted under zero-out only). The "
        "best peer, tuned on the test loss, is in brackets. Written by "
        "`make bench NAME=utility` (`benchmarks/utility.py`); "
        "[results.csv](results.csv) has every fit.",
        "",
        "![Loss against ε](utility.svg)",
        "",
    ]
    for neighbours in NEIGHBOURS:
        ours = cells_of(rows, neighbours)
        heads = " | ".join(f"ε = {e:g}" for e in EPSILONS)
        lines += [f"## {neighbours}", "", f"| table | {heads} | no privacy | floor |"]
        lines.append("|---" * (len(EPSILONS) + 3) + "|")
        logs, lost = [], []
        for name in [*NAMES, *([WIDE] if neighbours == "zero-out" else [])]:
            cells = []
            loss = name not in NUMBERS
            sign, tie = (1.0 if loss else -1.0), TIE[loss]
            base = plain[name, "no privacy"]
            for epsilon in EPSILONS:
                mean, error = ours[name, epsilon]
                text = f"{mean:.4f}"
                if (name, epsilon) in best and neighbours == "zero-out":
                    peer = best[name, epsilon][0]
                    text += f" ({peer:.4f})"
                    excess = max(sign * (mean - base), tie)
                    logs.append(math.log(excess / max(sign * (peer - base), tie)))
                    if sign * (mean - peer) > max(error, tie):
                        lost.append(f"{name} at ε = {epsilon:g}")
                cells.append(text)
            end = f"{base:.4f} | {plain[name, 'floor']:.4f}"
            lines.append(f"| {name} | {' | '.join(cells)} | {end} |")
        lines.append("")
        if logs:
            ratio = math.exp(float(np.mean(logs)))
            lines += [
                f"Geometric mean of our excess over the best peer's: **{ratio:.2f}** "
                f"over {len(logs)} cells. Cells that a peer wins by more than a tie "
                f"(one standard error, or .0005 log-loss, .001 R²): "
                f"{', '.join(lost) if lost else 'none'}.",
                "",
            ]
        elif neighbours != "zero-out":
            zero = cells_of(rows, "zero-out")
            ratios = [
                max(abs(ours[k][0] - plain[k[0], "no privacy"]), 5e-4)
                / max(abs(zero[k][0] - plain[k[0], "no privacy"]), 5e-4)
                for k in ours
            ]
            middle = math.exp(float(np.mean(np.log(ratios))))
            lines += [
                f"Geometric mean of the excess over zero-out's: {middle:.2f}.",
                "",
            ]
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]]) -> None:
    """Draw one panel per table: ours and the best peer against ε, and the two lines."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "skdp"
    from matplotlib import pyplot as plt

    best = peers()
    plain = {(r["table"], r["method"]): r["value"] for r in rows if "seed" not in r}
    figure, axes = plt.subplots(3, 3, figsize=(13, 9), constrained_layout=True)
    for axis, name in zip(axes.flat, [*NAMES, WIDE], strict=False):
        for neighbours, style in zip(NEIGHBOURS, ("-", "--", ":"), strict=True):
            ours = cells_of(rows, neighbours)
            if (name, EPSILONS[0]) not in ours:
                continue
            points = [ours[name, e][0] for e in EPSILONS]
            label = f"skdp, {neighbours}"
            axis.plot(EPSILONS, points, style, color="C0", marker=".", label=label)
        known = [e for e in EPSILONS if (name, e) in best]
        points = [best[name, e][0] for e in known]
        if known:
            axis.plot(known, points, "o-", color="C3", label="best peer, tuned")
        axis.axhline(plain[name, "no privacy"], color="0.3", lw=1, label="no privacy")
        axis.axhline(
            plain[name, "floor"], color="0.7", lw=1, ls="--", label="base rate or mean"
        )
        axis.set_xscale("log")
        axis.set_title(name)
        axis.set_xlabel("ε")
        regression = name in NUMBERS
        axis.set_ylabel("test R²" if regression else "test log-loss")
        if regression:
            axis.set_ylim(-0.1, None)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    axes.flat[-1].axis("off")
    axes.flat[-1].legend(handles, labels, loc="center", frameon=False)
    figure.savefig(OUT / "utility.svg", metadata={"Date": None})


def known() -> list[dict[str, Any]]:
    """Read earlier results, for a run on only some of the tables."""
    if not (OUT / "results.csv").exists():
        return []
    with (OUT / "results.csv").open() as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for row in rows:
        row["value"] = float(row["value"])
        if row["seed"]:
            row["seed"], row["epsilon"] = int(row["seed"]), float(row["epsilon"])
        else:
            del row["seed"]
    return rows


def main() -> None:
    """Measure all tables, or those that are named, and write it down."""
    OUT.mkdir(parents=True, exist_ok=True)
    names = sys.argv[1:] or [WIDE, *NAMES]
    rows = [row for row in known() if row["table"] not in names]
    with ProcessPoolExecutor(2) as pool:  # the wide table takes as long as the rest
        rows += [row for part in pool.map(measure, names) for row in part]
    fields = ["table", "score", "method", "neighbours", "epsilon", "seed", "value"]
    with (OUT / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows({**r, "value": f"{r['value']:.6f}"} for r in rows)
    text = page(rows)
    (OUT / "README.md").write_text(text, encoding="utf-8")
    plot(rows)
    print(text)


if __name__ == "__main__":
    main()
