"""What benchmarks/peers.py found, as docs/evidence/peers/README.md."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = ("california", "bike", "wine")
#: Differences that count as a tie, in log-loss and in R², as in benchmarks/utility.py.
TIE = {"classes": 0.0005, "numbers": 0.001}
#: The name of our additive model among the peers.
OURS_ADDED = "skdp, additive"
#: Line of a table -> peer, variant and, for ours, the neighbour relation.
LINES = {
    "skdp, defaults": ("skdp", "default", "zero-out"),
    "Opacus, defaults": ("Opacus", "default", None),
    "Opacus, tuned": ("Opacus", "tuned", None),
    "skdp, additive, defaults": (OURS_ADDED, "default", None),
    "DP-EBM, defaults": ("DP-EBM", "default", None),
    "DP-EBM, tuned": ("DP-EBM", "tuned", None),
    "skdp, defaults, replace-one": ("skdp", "default", "replace-one"),
    "diffprivlib, defaults": ("diffprivlib", "default", None),
    "diffprivlib, tuned": ("diffprivlib", "tuned", None),
}
#: Ours that a peer is held against: the same neighbours.
OURS = {
    "Opacus, defaults": "skdp, defaults",
    "Opacus, tuned": "skdp, defaults",
    "DP-EBM, defaults": "skdp, additive, defaults",
    "DP-EBM, tuned": "skdp, additive, defaults",
    "diffprivlib, defaults": "skdp, defaults, replace-one",
    "diffprivlib, tuned": "skdp, defaults, replace-one",
}
Row = dict[str, Any]
Cells = dict[tuple[str, str, float], tuple[float, float]]


def read_additive(path: Path) -> list[Row]:
    """Return the fits of additive models, which benchmarks/additive.py measured.

    They are in the form of the other rows, for each ε that DP-EBM has. The setting of
    DP-EBM with the best mean is the tuned one, for each table and ε. It may be the
    default, whose rows are then there twice.
    """
    names = {name: name for name in ("DP-EBM", "boosted trees")}
    names["additive"] = OURS_ADDED
    with path.open(newline="", encoding="utf-8") as file:
        found = [row for row in csv.DictReader(file) if row["method"] in names]
    shared = {row["epsilon"] for row in found if row["method"] != "additive"}
    found = [row for row in found if row["epsilon"] in shared]
    rows, settings = [], {}
    for row in found:
        one = {"peer": names[row["method"]], "table": row["table"]}
        one["setting"] = json.loads(row["setting"])
        one["variant"] = "grid" if one["setting"] else "default"
        one |= {name: float(row[name]) for name in ("epsilon", "value", "seconds")}
        rows.append(one)
        if one["peer"] == "DP-EBM":
            cell = settings.setdefault((one["table"], one["epsilon"]), {})
            cell.setdefault(row["setting"], []).append(one)
    for (table, _), tried in settings.items():
        sign = -1 if table in NUMBERS else 1
        best = min(
            tried.values(), key=lambda own: sign * np.mean([r["value"] for r in own])
        )
        rows += [row | {"variant": "tuned"} for row in best]
    return rows


def cells_of(rows: list[Row]) -> Cells:
    """Mean and standard error over seeds, by table, line and ε."""
    values: dict[tuple[str, str, float], list[float]] = {}
    for row in rows:
        for line, (peer, variant, neighbours) in LINES.items():
            same = (row["peer"], row["variant"]) == (peer, variant)
            if same and neighbours in (None, row["setting"].get("neighbours")):
                key = (row["table"], line, row["epsilon"])
                values.setdefault(key, []).append(row["value"])
    return {
        key: (float(np.mean(v)), float(np.std(v, ddof=1) / math.sqrt(len(v))))
        for key, v in values.items()
    }


def reference(rows: list[Row], table: str, peer: str = "scikit-learn") -> float | None:
    """Best score without privacy, at the defaults or tuned."""
    found = [
        r["value"]
        for r in rows
        if (r["peer"], r["table"]) == (peer, table) and r["variant"] != "grid"
    ]
    return (max if table in NUMBERS else min)(found, default=None)


def excess(table: str, value: float, base: float) -> float:
    """How much worse than without privacy; never less than a tie."""
    kind = "numbers" if table in NUMBERS else "classes"
    return max(base - value if kind == "numbers" else value - base, TIE[kind])


def beaten(cells: Cells) -> list[tuple[str, str, float, float, float]]:
    """Cells that a peer wins by more than a tie or the standard error of the gap.

    Each is (table, line, ε, the peer's mean, ours).
    """
    lost = []
    for (table, line, epsilon), (value, error) in cells.items():
        if line not in OURS or (table, OURS[line], epsilon) not in cells:
            continue
        ours, our_error = cells[table, OURS[line], epsilon]
        kind = "numbers" if table in NUMBERS else "classes"
        gain = value - ours if kind == "numbers" else ours - value
        if gain > max(TIE[kind], math.hypot(error, our_error)):
            lost.append((table, line, epsilon, value, ours))
    return lost


def ratios(rows: list[Row], cells: Cells) -> dict[str, tuple[float, int]]:
    """Geometric mean of our excess over each peer's, and over how many cells."""
    logs: dict[str, list[float]] = {line: [] for line in OURS}
    for (table, line, epsilon), (value, _) in cells.items():
        if line in OURS and (table, OURS[line], epsilon) in cells:
            trees = line.startswith("DP-EBM")
            base = reference(rows, table, "boosted trees" if trees else "scikit-learn")
            ours = excess(table, cells[table, OURS[line], epsilon][0], base)
            logs[line].append(math.log(ours / excess(table, value, base)))
    return {k: (math.exp(float(np.mean(v))), len(v)) for k, v in logs.items() if v}


def provable(epsilon: float, row_norm: float, inverse: float = 1.0) -> float:
    """ε that objective perturbation as diffprivlib runs it is proved to have.

    A record x with intercept adds at most ¼ (x, 1)(x, 1)ᵀ to a Hessian that is at least
    diag(C⁻¹ + Δ, Δ), so that its determinant grows at most by the factor
    1 + ¼ (R²/(C⁻¹ + Δ) + 1/Δ), with Δ what the formula adds; the noise on the gradient
    costs the rest. Without Δ the intercept is not bounded and nothing is proved.

    Parameters
    ----------
    epsilon : float
        What is claimed.
    row_norm : float
        R, ``data_norm``.
    inverse : float
        1/C.
    """
    norm = math.hypot(row_norm, 1.0)
    rest = epsilon - 2 * math.log1p(0.25 * norm / inverse)
    if rest > 0:
        return math.inf
    added = 0.25 * norm / math.expm1(epsilon / 4) - inverse
    bent = 0.25 * (row_norm**2 / (inverse + added) + 1 / added)
    return epsilon / 2 + math.log1p(bent)


# ---- Markdown


def number(value: float) -> str:
    """Four digits, or a power of ten where a score is far off."""
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.0e}"


def proved(epsilon: float, row_norm: float) -> str:
    """Three digits of what is provable."""
    value = provable(epsilon, row_norm)
    return "∞" if math.isinf(value) else f"{value:.3g}"


def table_of(heads: list[str], lines: list[list[str]]) -> list[str]:
    """Rows of a table, and a blank line."""
    rows = [heads, ["---"] * len(heads), *lines]
    return [*("| " + " | ".join(row) + " |" for row in rows), ""]


def scores(rows: list[Row], cells: Cells, table: str) -> list[str]:
    """Write one line per method and one column per ε, with the best score bold."""
    epsilons = sorted({e for t, _, e in cells if t == table})
    sign = -1 if table in NUMBERS else 1
    score = "R², higher is better" if table in NUMBERS else "log-loss, lower is better"
    lines = []
    for line in LINES:
        texts = []
        for epsilon in epsilons:
            if (table, line, epsilon) not in cells:
                texts.append("")
                continue
            mean, error = cells[table, line, epsilon]
            here = [key for key in cells if (key[0], key[2]) == (table, epsilon)]
            best = mean == min((cells[key][0] for key in here), key=lambda m: sign * m)
            text = number(mean) + (f" ± {error:.4f}" if abs(mean) < 100 else "")
            texts.append(f"**{text}**" if best else text)
        if any(texts):
            lines.append([line, *texts])
    base = f"a line {number(reference(rows, table))}"
    trees = reference(rows, table, "boosted trees")
    if trees is not None:
        base += f", boosted trees {number(trees)}"
    return [
        f"### {table} ({score}; without privacy: {base})",
        "",
        *table_of(["", *(f"ε = {e:g}" for e in epsilons)], lines),
    ]


def accounting(rows: list[Row]) -> list[str]:
    """What Opacus says that it spent, beside two other accountants."""
    lines = []
    spent = [row for row in rows if row["epsilon_pld"]]
    for epsilon in sorted({row["epsilon"] for row in spent}):
        here = [row for row in spent if row["epsilon"] == epsilon]
        columns = [f"{epsilon:g}", str(len({row["noise_multiplier"] for row in here}))]
        for name in ("claimed", "epsilon_pld", "epsilon_skdp"):
            values = [row[name] for row in here]
            columns.append(f"{min(values):.4f} to {max(values):.4f}")
        lines.append(columns)
    heads = ["ε asked for", "noise levels", "it says", "dp-accounting PLD", "skdp"]
    return table_of(heads, lines)


def page(
    rows: list[Row],
    additive: list[Row],
    norms: dict[str, float],
    found: dict[str, str],
) -> str:
    """Write the page: scores, where we lose, time, ε again, violations.

    Parameters
    ----------
    rows, additive : list of dict
        Of results.csv, and from `read_additive`.
    norms : dict
        Largest norm of a row, by table of classes.
    found : dict
        What the attacks and the import printed.
    """
    every = [*rows, *additive]
    cells = cells_of(every)
    tables = list(dict.fromkeys(row["table"] for row in rows))
    minutes = sum(row["seconds"] for row in rows) / 60
    versions = dict(sorted({(row["peer"], row["version"]) for row in rows}))
    text = [
        "# Other libraries on the same tables",
        "",
        "Released versions, each in its own environment, on the same encoded tables "
        "and the same 80/20 split: "
        + ", ".join(f"{k} {v}" for k, v in versions.items())
        + ", and DP-EBM of interpret-core 0.7.8. Written by `make bench NAME=peers` "
        "(`benchmarks/peers.py` and `benchmarks/peers/`). [results.csv](results.csv) "
        "has every fit with its setting and CPU time. Additive models were measured by "
        "`make bench NAME=additive`; [additive.csv](../additive.csv) has their fits.",
        "",
        "- δ = 1e-6. Means over five seeds of noise ± their standard error.",
        "- skdp runs with its defaults: a schema, ε and δ. Opacus protects a row that "
        "is added or removed while the number of rows is public, so it is compared "
        "with our zero-out. diffprivlib claims pure ε (δ = 0, a stronger claim) for a "
        "row that is replaced, so it is compared with our replace-one.",
        "- Opacus has no defaults for step, batch, epochs and clipping: SGD with 0.1, "
        "256, 10 and 1 (10 for numbers, whose targets reach 5 or 10) is what we would "
        "try first. diffprivlib gets the public bounds and otherwise its defaults.",
        "- **Tuned** means the best setting of a grid *on the test loss* of one more "
        "seed, at every ε. A private user cannot do that, and no budget pays for it, "
        "so it flatters the peers. For Opacus the grid has eight settings for classes "
        "and nine for numbers (step, clipping, SGD or Adam, batch 256 or 1024, 10 or "
        "30 epochs), for diffprivlib six values of C with 1000 iterations. Two cores "
        "fit it in half an hour. diffprivlib's linear regression has nothing to tune.",
        "- DP-EBM is the private additive model that people use today. It gets the "
        "same public bounds, and is compared with our additive model under zero-out. "
        "Tuned is the best mean of six settings (bins, rounds, learning rate) on the "
        "same seeds that are shown: "
        f"{seeds_of(additive, 'DP-EBM')} of them, and {seeds_of(additive, OURS_ADDED)} "
        "of ours. ε = 8 was not measured.",
        "",
        "## Scores on rows that were not fitted",
        "",
    ]
    for table in tables:
        text += scores(every, cells, table)
    text += ["## Where another library is better", ""]
    lost = beaten(cells)
    text += [
        f"- {table}, ε = {epsilon:g}: {line} {value:.4f}, ours {ours:.4f}"
        for table, line, epsilon, value, ours in lost
    ] or ["Nowhere by more than a tie."]
    text += [
        "",
        "A tie is the standard error of the difference, or .0005 in log-loss and .001 "
        "in R². Geometric mean of our excess over the score without privacy, divided "
        "by the peer's (below 1 is better for us). Without privacy, the score is that "
        "of a line, and that of boosted trees for additive models:",
        "",
        *table_of(
            ["against", "our excess over theirs", "cells"],
            [[k, f"{r:.2g}", str(n)] for k, (r, n) in ratios(every, cells).items()],
        ),
        "## CPU seconds of a fit",
        "",
        "Medians at the defaults, one thread. Our times include reading and encoding "
        "the columns; the others start from the encoded matrix. Opacus also spends "
        "seconds to calibrate its noise, once per setting and ε, which a median hides. "
        "All "
        f"{len(rows)} fits took {minutes:.0f} minutes.",
        "",
        *seconds(every, tables),
        "## ε by other accountants",
        "",
        "Opacus's noise, rate and number of steps, over all tables and settings, "
        "through its own accountant, Google's dp-accounting (privacy loss "
        "distributions) and `skdp.privacy.subsampling`:",
        "",
        *accounting(rows),
        "This confirms its ε. Its calibration stops within 0.01 below the requested ε, "
        "and its accountant adds 0.01 for its own error. At ε = 0.1 up to a fifth of "
        "the budget is left unused, which partly explains its results there.",
        "",
        "diffprivlib's logistic regression cites a theorem for rows of norm one and a "
        "penalty on every weight. Its formula charges data_norm where the proof needs "
        "its square, and leaves the intercept without penalty. The table shows the ε "
        "that the theorem's argument gives for its defaults on these tables "
        "(`provable` in `benchmarks/peers_report.py`; ∞ is no guarantee), if the "
        "minimiser is found. Its solver warned that it was not in "
        f"{unconverged(rows)} fits.",
        "",
        *table_of(
            ["claimed ε", *norms],
            [
                [f"{e:g}", *(proved(e, norm) for norm in norms.values())]
                for e in sorted({e for _, _, e in cells})
            ],
        ),
        "## Violations",
        "",
        "`benchmarks/peers/audit_diffprivlib.py` fits tables of two rows that differ "
        "in one and counts an event. Each lower bound on ε holds with confidence "
        "99.9 %. It printed:",
        "",
        "```text",
        found["audit"],
        "```",
        "",
        "So a search over settings is not charged (`clone` copies the accountant), "
        "and sums of squares of features in [0, 1] are used without noise. With "
        f"scikit-learn {versions['scikit-learn']}, `import diffprivlib.models` gives:",
        "",
        "```text",
        found["import"],
        "```",
        "",
        "For Opacus we know of no violation in what is run here, except that its noise "
        "is drawn in floating point (its secure mode was not used), which its proof "
        "does not cover.",
        "",
    ]
    return "\n".join(text)


def seeds_of(rows: list[Row], peer: str) -> str:
    """How many fits at the defaults a cell of a peer has, as text."""
    cells: dict[tuple[str, float], int] = {}
    for row in rows:
        if (row["peer"], row["variant"]) == (peer, "default"):
            at = row["table"], row["epsilon"]
            cells[at] = cells.get(at, 0) + 1
    low, high = min(cells.values()), max(cells.values())
    return f"{low}" if low == high else f"{low} or {high}"


def unconverged(rows: list[Row]) -> str:
    """How many logistic fits at diffprivlib's defaults ended before they converged."""
    fits = [
        row
        for row in rows
        if (row["peer"], row["variant"]) == ("diffprivlib", "default")
        and row["table"] not in NUMBERS
    ]
    stopped = sum("ConvergenceWarning" in row["warnings"] for row in fits)
    return f"{stopped} of {len(fits)}"


def seconds(rows: list[Row], tables: list[str]) -> list[str]:
    """Median time of a fit at the defaults, by peer and table."""
    lines = []
    for peer in dict.fromkeys(row["peer"] for row in rows):
        times = []
        for table in tables:
            taken = [
                row["seconds"]
                for row in rows
                if (row["peer"], row["table"], row["variant"])
                == (peer, table, "default")
            ]
            times.append(f"{np.median(taken):.2f}" if taken else "")
        lines.append([peer, *times])
    return table_of(["", *tables], lines)
