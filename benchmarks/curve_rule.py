"""Are the constants of curves and pairs right for a new table? (NAME=curve-rule).

The constants were chosen by looking at six tables. Here each table is left out in turn:
the constants that are best on the other tables with the same kind of target are applied
to it. Two constants are judged: the ratio of intervals to the signal, without pairs,
and the signal from which pairs are added. The protocol is that of `additive.py`, and
the measure is the mean logarithm of the loss (log-loss, or 1 - R²). Every fit is
written down at once.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
from utility import DELTA, NUMBERS, score

from skdp.descent import curves
from skdp.descent.curves import CLASS_INTERVALS, NUMBER_INTERVALS
from skdp.estimators import AdditiveClassifier, AdditiveRegressor
from skdp.privacy import accountant
from tables import FILES, ROOT, load, split

EPSILONS = (0.1, 0.5, 1.0)
RATIOS = (0.45, 0.64, 0.9, 1.27, 1.8)
#: The number of fits without pairs, and with pairs, which take longer.
SEEDS, PAIR_SEEDS = 3, 1
OUT = ROOT / "docs" / "evidence"
FIELDS = ["table", "epsilon", "seed", "pairs", "ratio", "signal", "loss"]
Row = dict[str, Any]


def list_jobs(name: str) -> list[Row]:
    """List the fits of one table."""
    jobs = []
    for epsilon in EPSILONS:
        for seed in range(SEEDS):
            one = {"table": name, "epsilon": epsilon, "seed": seed}
            jobs += [one | {"pairs": "none", "ratio": ratio} for ratio in RATIOS]
            if seed < PAIR_SEEDS:
                jobs.append(one | {"pairs": "auto", "ratio": find_ratio(name)})
    return jobs


def find_ratio(name: str) -> float:
    """Return the ratio of the rule for a table."""
    return NUMBER_INTERVALS if name in NUMBERS else CLASS_INTERVALS


def measure(train: Any, test: Any, job: Row) -> Row:
    """Fit with other constants than the rule's. Pairs are added at any signal."""
    curves.NUMBER_INTERVALS = curves.CLASS_INTERVALS = job["ratio"]
    curves.NUMBER_PAIRS = curves.CLASS_PAIRS = 0.0
    kind: Any = AdditiveClassifier if train.classification else AdditiveRegressor
    model = kind(
        schema=train.schema,
        epsilon=job["epsilon"],
        delta=DELTA,
        neighbours="zero-out",
        pairs=None if job["pairs"] == "none" else "auto",
        n_threads=1,
        random_state=job["seed"],
    ).fit(train.X, train.y)
    found = score(model, test)
    rows = len(train.y) * accountant.gdp_mu(job["epsilon"], DELTA)
    n_pairs = len(model.schema_.columns) - len(train.schema.columns)
    signal = rows * math.sqrt(0.95) / (1 + len(train.schema.columns) + n_pairs / 4)
    return {"signal": signal, "loss": 1 - found if job["table"] in NUMBERS else found}


def read_rows() -> list[Row]:
    """Return what was measured before."""
    path = OUT / "curve_rule.csv"
    if not path.exists():
        return []
    with path.open() as file:
        rows: list[Row] = list(csv.DictReader(file))
    for row in rows:
        row |= {name: float(row[name]) for name in ("epsilon", "ratio", "signal")}
        row |= {"seed": int(row["seed"]), "loss": float(row["loss"])}
    return rows


def find_losses(rows: list[Row], **wanted: Any) -> dict[tuple[str, float], float]:
    """Return the mean loss of each table and ε over the seeds."""
    found: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        if all(row[key] == value for key, value in wanted.items()):
            found.setdefault((row["table"], row["epsilon"]), []).append(row["loss"])
    return {key: float(np.mean(values)) for key, values in found.items()}


def judge(losses: dict[tuple[str, float], float], tables: list[str]) -> float:
    """Return the mean logarithm of the loss on some tables."""
    return float(np.mean([math.log(v) for (t, _), v in losses.items() if t in tables]))


def show(loss: float, name: str) -> str:
    """Write a loss as log-loss or as R²."""
    return f"{1 - loss if name in NUMBERS else loss:.4f}"


def page(rows: list[Row]) -> str:
    """The page in Markdown."""
    known = {row["table"] for row in rows}
    tables = [name for name in FILES if name in known]
    by_ratio = {r: find_losses(rows, pairs="none", ratio=r) for r in RATIOS}
    ruled = [row for row in rows if row["ratio"] == find_ratio(row["table"])]
    first = [row for row in ruled if row["seed"] < PAIR_SEEDS]
    chosen = find_losses(ruled, pairs="none")
    plain, joined = (find_losses(first, pairs=pairs) for pairs in ("none", "auto"))
    signals = {
        (r["table"], r["epsilon"]): r["signal"] for r in first if r["pairs"] == "auto"
    }
    lines = [
        "# Constants of curves and pairs, chosen without the table they are used on",
        "",
        "Each table is left out in turn. The ratio c of c (nν/(R²√p))^(1/2) intervals "
        f"is the one of {', '.join(map(str, RATIOS))} that is best on the other tables "
        "with the same kind of target, without pairs. The least nν/R² for pairs lies "
        "between two measured cells, where it is best for these tables. Scores are "
        f"log-loss or R², means of {SEEDS} fits (with pairs, of {PAIR_SEEDS}) at ε = "
        f"{', '.join(map(str, EPSILONS))}. The best constant for a table is chosen on "
        "its own test rows. Written by `make bench NAME=curve-rule` "
        "(`benchmarks/curve_rule.py`); [curve_rule.csv](curve_rule.csv) has every fit.",
        "",
        "| left out | c of the others | scores with it | c of the rule | scores with "
        "it | its best c | scores with that |",
        "|---|---|---|---|---|---|---|",
    ]

    def scores(losses: dict[tuple[str, float], float], name: str) -> str:
        return " ".join(show(losses[name, e], name) for e in EPSILONS)

    for name in tables:
        rest = [t for t in tables if t != name and (t in NUMBERS) == (name in NUMBERS)]
        other = min(RATIOS, key=lambda r: judge(by_ratio[r], rest))
        own = min(RATIOS, key=lambda r: judge(by_ratio[r], [name]))
        cells = [name, f"{other:g}", scores(by_ratio[other], name)]
        cells += [f"{find_ratio(name):g}", scores(chosen, name)]
        cells += [f"{own:g}", scores(by_ratio[own], name)]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "| left out | least nν/R² of the others | nν/R² | without pairs | with pairs | "
        "pairs are added | right |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in tables:
        rest = [t for t in tables if t != name and (t in NUMBERS) == (name in NUMBERS)]
        own_cells = [(name, e) for e in EPSILONS]
        cells = [(t, e) for t in rest for e in EPSILONS]
        least = find_threshold(cells, signals, plain, joined)
        added = [signals[c] >= least for c in own_cells]
        right = [
            a == (joined[c] < plain[c]) for a, c in zip(added, own_cells, strict=True)
        ]
        texts = [name, f"{least:.0f}", " ".join(f"{signals[c]:.0f}" for c in own_cells)]
        texts += [scores(plain, name), scores(joined, name)]
        texts += [" ".join("yes" if a else "no" for a in added)]
        texts += [f"{sum(right)} of {len(right)}"]
        lines.append(f"| {' | '.join(texts)} |")
    return "\n".join([*lines, ""])


def find_threshold(
    cells: list[tuple[str, float]],
    signals: dict[tuple[str, float], float],
    plain: dict[tuple[str, float], float],
    joined: dict[tuple[str, float], float],
) -> float:
    """Return the signal from which on pairs should be added, judged on some cells."""
    ends = sorted(signals[cell] for cell in cells)
    between = [math.sqrt(a * b) for a, b in pairwise(ends)]

    def cost(least: float) -> float:
        chosen = [joined if signals[cell] >= least else plain for cell in cells]
        return sum(math.log(losses[c]) for losses, c in zip(chosen, cells, strict=True))

    return min([0.5 * ends[0], *between, 2.0 * ends[-1]], key=cost)


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", nargs="*", default=list(FILES))
    warnings.simplefilter("ignore")
    for name in parser.parse_args().tables:
        known = {tuple(str(row[f]) for f in FIELDS[:5]) for row in read_rows()}
        train, test = split(load(name))
        for job in list_jobs(name):
            if tuple(str(job[f]) for f in FIELDS[:5]) in known:
                continue
            row = job | measure(train, test, job)
            new = not (OUT / "curve_rule.csv").exists()
            with (OUT / "curve_rule.csv").open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow(row | {n: f"{row[n]:.6g}" for n in ("signal", "loss")})
            print(*row.values(), file=sys.stderr, flush=True)
    text = page(read_rows())
    (OUT / "curve_rule.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
