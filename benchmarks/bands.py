"""How often the 95 % band of a curve holds the truth (make bench NAME=bands).

Tables are drawn from a logistic model with one wave and columns of pure noise that fill
a part of their range, as z = .3 + fill·(U - .3), as for the intervals of coefficients.
The true effect of a noise column is 0 at all knots. That of the wave is the wave less
its mean. A knot without a band holds the truth, and is counted.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

import skdp
from tables import ROOT

OUT = ROOT / "docs" / "evidence"
FILLS = {"fill 1": 1.0, "fill .5": 0.5, "fill .2": 0.2, "fill .05": 0.05}
#: The number of rows, ε, and whether there is a pair too.
CELLS = [(5_000, 1.0, False), (20_000, 0.3, False), (20_000, 1.0, False)]
CELLS += [(20_000, 1.0, True)]
FIELDS = ["n_rows", "epsilon", "pair", "seed", "column", "knots", "banded", "held"]
SCHEMA = skdp.Schema(
    dict.fromkeys(["wave", *FILLS], skdp.Numeric(0, 1)),
    target=skdp.Categorical([0, 1]),
)
Row = dict[str, Any]


def draw_table(n_rows: int, seed: int) -> tuple[pd.DataFrame, Any]:
    """Draw a table of the model."""
    rng = np.random.default_rng(seed)
    columns = {"wave": rng.uniform(size=n_rows)}
    for name, fill in FILLS.items():
        columns[name] = 0.3 + fill * (rng.uniform(size=n_rows) - 0.3)
    rate = expit(np.cos(2 * np.pi * columns["wave"]) - 1.0)
    return pd.DataFrame(columns), (rng.uniform(size=n_rows) < rate).astype(int)


def measure(n_rows: int, epsilon: float, pair: bool, seed: int) -> list[Row]:
    """Fit one table, and count the knots whose bands hold the truth."""
    X, y = draw_table(n_rows, seed)
    model = skdp.AdditiveClassifier(
        schema=SCHEMA,
        epsilon=epsilon,
        delta=1e-6,
        pairs=[("wave", "fill 1")] if pair else None,
        n_threads=1,
        random_state=seed,
    ).fit(X, y)
    curves, rows = model.curves_, []
    for name in SCHEMA.columns:
        own = curves[curves["column"] == name]
        value = own["value"].to_numpy(float)
        true = np.cos(2 * np.pi * value) if name == "wave" else np.zeros(len(own))
        given = np.isfinite(own["low"]) & np.isfinite(own["high"])
        held = ~given | ((own["low"] <= true) & (true <= own["high"]))
        rows.append(
            {"n_rows": n_rows, "epsilon": epsilon, "pair": pair, "seed": seed}
            | {"column": name, "knots": len(own)}
            | {"banded": int(given.sum()), "held": int(held.sum())}
        )
    return rows


def read_rows() -> list[Row]:
    """Return what was measured before."""
    path = OUT / "bands.csv"
    if not path.exists():
        return []
    with path.open() as file:
        rows: list[Row] = list(csv.DictReader(file))
    for row in rows:
        row |= {n: int(row[n]) for n in ("n_rows", "seed", "knots", "banded", "held")}
        row |= {"epsilon": float(row["epsilon"]), "pair": row["pair"] == "True"}
    return rows


def page(rows: list[Row]) -> str:
    """The page in Markdown."""
    cells: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        cells[row["n_rows"], row["epsilon"], row["pair"], row["column"]].append(row)
    heads = " | ".join(SCHEMA.columns)
    lines = [
        "# How often the bands of curves hold",
        "",
        "Share of knots whose 95 % band holds the truth and, in brackets, share of "
        "knots that have a band. A knot without a band counts as held. Tables have a "
        "wave and columns of noise that fill a part of their range. Fits use the "
        "defaults of `AdditiveClassifier` under add-remove with δ = 1e-6, without "
        "pairs or with one. Written by `make bench NAME=bands` "
        "(`benchmarks/bands.py`); [bands.csv](bands.csv) has every fit.",
        "",
        f"| rows | ε | pairs | fits | {heads} |",
        "|---" * (4 + len(SCHEMA.columns)) + "|",
    ]
    for n_rows, epsilon, pair in dict.fromkeys(key[:3] for key in cells):
        texts, fits = [], 0
        for name in SCHEMA.columns:
            found = cells[n_rows, epsilon, pair, name]
            knots, fits = sum(r["knots"] for r in found), len(found)
            held, banded = (sum(r[n] for r in found) for n in ("held", "banded"))
            texts.append(f"{held / knots:.3f} ({banded / knots:.2f})")
        about = f"{n_rows:,} | {epsilon:g} | {'one' if pair else 'none'} | {fits}"
        lines.append(f"| {about} | {' | '.join(texts)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--cells", type=int, nargs="*", default=range(len(CELLS)))
    given = parser.parse_args()
    rows = read_rows()
    for cell in (CELLS[at] for at in given.cells):
        names = ("n_rows", "epsilon", "pair", "seed")
        known = {tuple(row[name] for name in names) for row in rows}
        for seed in range(given.fits):
            if (*cell, seed) not in known:
                rows += measure(*cell, seed)
        with (OUT / "bands.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        (OUT / "bands.md").write_text(page(rows), encoding="utf-8")
        print(cell, file=sys.stderr, flush=True)
    print(page(rows))


if __name__ == "__main__":
    main()
