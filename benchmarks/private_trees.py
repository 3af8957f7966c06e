"""Our additive models beside boosted trees that are private, published and measured.

Two comparisons. S-BDT's results are published with its code, on Adult (AUC) and Abalone
(RMSE); ours are measured here at the same ε, δ and numbers of rows. dpmm draws private
synthetic rows (AIM or MST), on which boosted trees are fitted without further privacy;
it is run here in an environment of its own, on the split of `make bench NAME=peers`.

    python benchmarks/private_trees.py [--ours] [--dpmm MODEL:TABLE:EPSILON ...]

Without arguments, docs/evidence/peers/trees.md is written from the results that exist.
Abalone is read from the file that ``SKDP_ABALONE`` names (UCI's ``abalone.data``).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from additive import read_rows, write_for_peer
from sklearn.metrics import roc_auc_score

import skdp
from tables import ROOT, Table, load, split

OUT = ROOT / "docs" / "evidence" / "peers"
RESULTS = OUT / "trees.csv"
BUILD = ROOT / "build" / "peers"
DPMM = "dpmm==0.1.9"
FIELDS = ("method", "table", "metric", "epsilon", "delta", "seed", "value", "seconds")
#: Where S-BDT's code publishes its results, and the best of its settings at each ε,
#: chosen on the scores that are shown: the mean of 200 runs (Adult) or 1,000 (Abalone).
SOURCE = "kirschte/sbdt, code/cpp_gbdt/results"
SBDT = {
    "adult": {0.01: 0.787, 0.02: 0.831, 0.03: 0.849, 0.1: 0.876, 0.5: 0.893},
    "abalone": {0.05: 2.920, 0.1: 2.754, 0.2: 2.664, 0.3: 2.620, 0.5: 2.582},
}
SBDT_DELTA, FOLDS, SEEDS = 5e-8, 5, 2
ABALONE = {
    "length": (0, 1),
    "diameter": (0, 1),
    "height": (0, 0.5),
    "whole": (0, 3),
    "shucked": (0, 1.5),
    "viscera": (0, 1),
    "shell": (0, 1.2),
}
Row = dict[str, Any]


def load_adult() -> Table:
    """Return the 30,162 training rows of Adult without a missing cell."""
    table = load("adult")
    whole = pd.read_parquet(Path(os.environ["SKDP_DATA"]) / "adult.parquet")
    missing = (whole.astype(str) == "?").any(axis=1) | whole.isna().any(axis=1)
    kept = ((whole["split"] == "train") & ~missing).to_numpy()
    return Table(table.X[kept], table.y[kept], table.schema)


def load_abalone() -> Table:
    """Return UCI's Abalone, 4,177 rows."""
    names = ["sex", *ABALONE, "rings"]
    frame = pd.read_csv(os.environ["SKDP_ABALONE"], header=None, names=names)
    columns: dict[str, Any] = {n: skdp.Numeric(*pair) for n, pair in ABALONE.items()}
    columns["sex"] = skdp.Categorical(["F", "I", "M"])
    schema = skdp.Schema(columns, target=skdp.Numeric(0, 30))
    return Table(frame[list(columns)], frame["rings"].to_numpy(float), schema)


def measure_ours() -> Iterator[Row]:
    """Yield a row for each of our fits, in five folds."""
    for name, read in (("adult", load_adult), ("abalone", load_abalone)):
        if name == "abalone" and "SKDP_ABALONE" not in os.environ:
            continue
        table = read()
        fold = np.random.default_rng(0).permutation(len(table.y)) % FOLDS
        classes = table.classification
        kinds = {
            "additive": skdp.AdditiveClassifier if classes else skdp.AdditiveRegressor,
            "line": skdp.LogisticRegression if classes else skdp.LinearRegression,
        }
        for epsilon in SBDT[name]:
            for method, kind in kinds.items():
                for seed in range(FOLDS * SEEDS):
                    held = fold == seed % FOLDS
                    model = kind(
                        schema=table.schema,
                        epsilon=epsilon,
                        delta=SBDT_DELTA,
                        neighbours="zero-out",
                        random_state=seed,
                    )
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        model.fit(table.X[~held], table.y[~held])
                    yield {
                        "method": method,
                        "table": name,
                        "metric": "auc" if classes else "rmse",
                        "epsilon": epsilon,
                        "delta": SBDT_DELTA,
                        "seed": seed,
                        "value": score(model, table.X[held], table.y[held]),
                    }


def score(model: Any, X: Any, y: Any) -> float:
    """Return the AUC of a classifier, or the RMSE of a regressor."""
    if hasattr(model, "classes_"):
        return float(roc_auc_score(y == model.classes_[1], model.decision_function(X)))
    return float(np.sqrt(np.mean((model.predict(X) - y) ** 2)))


def find_python() -> Path:
    """Return the Python of dpmm; its environment is made if it is not there."""
    if "SKDP_DPMM" in os.environ:
        return Path(os.environ["SKDP_DPMM"])
    home = BUILD / "dpmm"
    if not (home / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
        pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, DPMM], check=True)
        (home / "made").touch()
    return home / "bin" / "python"


def measure_dpmm(asked: list[str]) -> Iterator[Row]:
    """Yield a row for each of dpmm's fits, asked for as MODEL:TABLE:EPSILON."""
    file = ROOT / "benchmarks" / "peers" / "run_dpmm.py"
    for words in asked:
        kind, name, epsilon = words.split(":")
        train, test = split(load(name))
        job = {
            "path": str(write_for_peer(name, train, test)),
            "epsilon": float(epsilon),
            "delta": 1e-6,
            "seed": 0,
            "setting": {"model": kind},
        }
        done = subprocess.run(
            [find_python(), file],
            input=json.dumps(job) + "\n",
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        said = json.loads(done.stdout)
        metric = "log-loss" if train.classification else "R²"
        row = {"method": kind, "table": name, "metric": metric, "delta": 1e-6}
        row |= {k: said[k] for k in ("epsilon", "seed", "value", "seconds")}
        yield row
        if "auc" in said:
            yield row | {"metric": "auc", "value": said["auc"]}


def read_results() -> list[Row]:
    """Return the results that exist."""
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="", encoding="utf-8") as file:
        rows: list[Row] = list(csv.DictReader(file))
    for row in rows:
        row |= {k: float(row[k]) for k in ("epsilon", "delta", "value")}
        row["seed"] = int(row["seed"])
    return rows


def write_results(rows: list[Row]) -> None:
    """Write results, sorted; a later one replaces an earlier one of the same fit."""
    same = {
        (r["table"], r["metric"], r["method"], r["epsilon"], r["seed"]): r for r in rows
    }
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for key in sorted(same):
            row = same[key]
            writer.writerow({f: row.get(f, "") for f in FIELDS} | {
                "value": f"{row['value']:.5f}"
            })  # fmt: skip


def average(rows: list[Row], **wanted: Any) -> str:
    """Return the mean and its standard error of such rows as text."""
    values = [r["value"] for r in rows if all(r[k] == v for k, v in wanted.items())]
    if not values:
        return "–"
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if values[1:] else 0.0
    return f"{np.mean(values):.3f}" + (f" ± {error:.3f}" if values[1:] else "")


def list_sbdt(rows: list[Row], name: str, title: str) -> Iterator[str]:
    """Yield the table of S-BDT's published results beside ours."""
    metric = "auc" if name == "adult" else "rmse"
    yield f"### {title}"
    yield ""
    yield "|  | " + " | ".join(f"ε = {e:g}" for e in SBDT[name]) + " |"
    yield "|---|" + "---|" * len(SBDT[name])
    published = " | ".join(f"{value:.3f}" for value in SBDT[name].values())
    yield f"| S-BDT, published | {published} |"
    for method, shown in (("additive", "additive"), ("line", "line")):
        cells = (
            average(rows, table=name, metric=metric, method=method, epsilon=e)
            for e in SBDT[name]
        )
        yield f"| skdp, {shown}, defaults | {' | '.join(cells)} |"
    yield ""


def list_dpmm(rows: list[Row]) -> Iterator[str]:
    """Yield the table of synthetic rows followed by trees, beside ours."""
    ours = read_rows()
    yield (
        "| table | ε | by | score | synthetic rows, then trees | skdp, additive | "
        "trees without privacy | CPU s |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        if row["method"] not in ("AIM", "MST") or row["metric"] == "auc":
            continue
        name, epsilon = row["table"], row["epsilon"]
        added = average(ours, table=name, method="additive", epsilon=epsilon)
        free = average(ours, table=name, method="boosted trees")
        yield (
            f"| {name} | {epsilon:g} | {row['method']} | {row['metric']} | "
            f"{row['value']:.3f} | {added} | {free} | {float(row['seconds']):.0f} |"
        )


INTRO = """# Private boosted trees

Written by `make bench NAME=private-trees` from [trees.csv](trees.csv). Boosted trees
are the usual choice for tables without privacy, so this page holds our additive models
against private trees in two ways.

## S-BDT, as published

S-BDT's authors publish their results ({source}): δ = 5e-8,
leaving out a row, the best of 9 or 18 settings at each ε *chosen on the scores that are
shown*. We did not run it. Ours: defaults with nothing to tune, the same δ and number of
rows, zero-out, {folds} folds with {seeds} seeds each, so each fit has four fifths of
the rows. Means ± their standard errors.
"""
DRAWN = """
## Synthetic rows, then boosted trees

{dpmm} measures marginals with noise (AIM or MST) and draws as many synthetic rows as
the table has. scikit-learn's boosted trees are fitted to these. δ = 1e-6. Numbers are
cut into 20 bins of equal width between their public ends, and dpmm and the trees have
their defaults otherwise. One seed, because a fit takes minutes. The split is that of
the other peers, and ours are the means of [additive.csv](../additive.csv) (zero-out).
Log-loss: lower is better. R²: higher is better. The synthetic rows can be used for
other purposes too, which our model cannot.
"""
END = """
AIM is not measured yet: a fit of Adult takes more than eight minutes of one core, and
`--dpmm AIM:adult:1.0` adds its line. The code of boosted AdaSSP cannot be installed by
name, so it is not a peer here. Our own version of it is among the systems of
[the experiments](../experiments/README.md).
"""


def page(rows: list[Row]) -> str:
    """Return the page in Markdown."""
    intro = INTRO.format(source=SOURCE, folds=FOLDS, seeds=SEEDS)
    lines = [
        intro,
        *list_sbdt(rows, "adult", "Adult, AUC (higher is better), 30,162 rows"),
        *list_sbdt(rows, "abalone", "Abalone, RMSE (lower is better), 4,177 rows"),
        *list_verdicts(rows),
        DRAWN.format(dpmm=DPMM.replace("==", " ")),
        *list_dpmm(rows),
        END,
    ]
    return "\n".join(lines)


def list_verdicts(rows: list[Row]) -> Iterator[str]:
    """Say where S-BDT's published number is the better one."""
    lost = []
    for name, published in SBDT.items():
        sign = 1 if name == "adult" else -1
        for epsilon, theirs in published.items():
            own = [
                r["value"]
                for r in rows
                if (r["table"], r["method"], r["epsilon"])
                == (name, "additive", epsilon)
                and r["metric"] in ("auc", "rmse")
                and r["delta"] == SBDT_DELTA
            ]
            if own and sign * (np.mean(own) - theirs) < 0:
                lost.append(f"{name} at ε = {epsilon:g}")
    yield (
        f"S-BDT's published number is better for {', '.join(lost)}."
        if lost
        else "In none of these cells is S-BDT's published number better."
    )


def main() -> None:
    """Measure the requested fits, and write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ours", action="store_true", help="measure our models")
    parser.add_argument("--dpmm", nargs="*", default=[], metavar="MODEL:TABLE:EPSILON")
    options = parser.parse_args()
    rows = read_results()
    for found in (
        measure_ours() if options.ours else (),
        measure_dpmm(options.dpmm),
    ):
        for row in found:
            rows.append(row)
            write_results(rows)
    (OUT / "trees.md").write_text(page(read_results()), encoding="utf-8")
    print((OUT / "trees.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
