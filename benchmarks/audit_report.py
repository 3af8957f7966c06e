"""What benchmarks/audit.py found, as docs/evidence/audit.md, a table and a figure."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

FIELDS = (
    *("part", "label", "neighbours", "bug", "nominal", "epsilon", "delta", "mu"),
    *("epsilon_lower", "mu_lower", "plain_epsilon_lower", "reached", "group"),
    *("n_trials", "errors", "uncharged", "n_canaries", "n_guesses", "n_correct"),
    *("n_steps", "confidence", "cpu", "passed", "violations"),
)
#: Chance that a planted mistake is found; there are many, and all must be.
SURE = 0.9995
Row = dict[str, Any]


def write(rows: list[Row], docs: Path) -> list[str]:
    """Write the report; return what went wrong, if anything did."""
    rows = sorted(rows, key=_order)
    (docs / "audit").mkdir(exist_ok=True)
    with open(docs / "audit" / "results.csv", "w", newline="", encoding="utf-8") as out:
        table = csv.DictWriter(out, FIELDS, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows({k: _rounded(v) for k, v in row.items()} for row in rows)
    draw(rows, docs / "audit" / "audit.svg")
    (docs / "audit.md").write_text(text(rows), encoding="utf-8")
    claims = [r for r in rows if not r["bug"]]
    wrong = [f"refuted: {_named(r)}" for r in claims if not r["passed"]]
    bugs = [r for r in rows if r["bug"] and r["passed"]]
    return wrong + [f"not found: {r['bug']} in {_named(r)}" for r in bugs]


def read(docs: Path) -> list[Row]:
    """Return the rows of an earlier report."""
    path = docs / "audit" / "results.csv"
    with open(path, newline="", encoding="utf-8") as file:
        rows = [{k: _value(v) for k, v in row.items()} for row in csv.DictReader(file)]
    return [
        {k: v for k, v in row.items() if v is not None or k == "reached"}
        | {k: row[k] or "" for k in ("bug", "violations")}
        for row in rows
    ]


def _value(text: str) -> Any:
    """A number, a truth value, a word, or None for what a row does not have."""
    if text in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[text]
    try:
        return float(text) if any(c in text for c in ".en") else int(text)
    except ValueError:
        return text


def _order(row: Row) -> tuple[Any, ...]:
    parts = ("mechanism", "fit", "plain", "bug", "one run")
    epsilon = row.get("nominal", row["epsilon"])
    return parts.index(row["part"]), row["bug"], row["label"], _relation(row), epsilon


def _relation(row: Row) -> str:
    return str(row.get("neighbours", "zero-out"))


def _named(row: Row) -> str:
    return f"{row['label']}, {_relation(row)}, ε = {row['epsilon']:.3g}"


def _rounded(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def draw(rows: list[Row], path: Path) -> None:
    """Draw lower bounds against claims."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "skdp", "font.size": 9, "svg.fonttype": "none"}
    figure, axis = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    line = np.array([0.4, 10.0])
    axis.plot(line, line, color="black", lw=1, label="claim")
    kinds = {
        "mechanism": ("one mechanism, groups of records", "o", "tab:blue"),
        "fit": ("whole fits, groups of records", "s", "tab:orange"),
        "plain": ("one mechanism, plain bound", "^", "tab:green"),
        "one run": ("one fit with many canaries", "D", "tab:purple"),
    }
    for shift, (part, (label, marker, colour)) in enumerate(kinds.items()):
        lower = "plain_epsilon_lower" if part == "plain" else "epsilon_lower"
        shown = [r for r in rows if r["part"] == part and r["label"] != "rare level"]
        x = np.array([r.get("nominal", r["epsilon"]) for r in shown])
        y = np.array([r[lower] for r in shown], dtype=float)
        beside = x * 1.04 ** (shift - 1.5)
        above = y > 0.02
        style = {"marker": marker, "s": 14, "color": colour, "alpha": 0.7, "lw": 0}
        axis.scatter(beside[above], y[above], label=label, **style)
    axis.set(xscale="log", yscale="log", xlim=(0.4, 10), ylim=(0.02, 12))
    axis.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"], minor=False)
    axis.set_xticks([], minor=True)
    axis.set_xlabel("claimed ε at δ = 1e-6")
    axis.set_ylabel("proved ε ≥, with confidence 99.9 %")
    axis.legend(frameon=False, loc="lower right")
    figure.savefig(path, metadata={"Date": None})


def text(rows: list[Row]) -> str:
    """Return the report in words."""
    claims = [r for r in rows if r["part"] in ("mechanism", "fit", "plain")]
    bugs = [r for r in rows if r["part"] == "bug"]
    flagged = sum(not r["passed"] for r in claims)
    found = sum(not r["passed"] for r in bugs)
    minutes = sum(r["cpu"] for r in rows) / 60
    closest = max(r["mu_lower"] / r["mu"] for r in claims)
    return f"""# Audits

An attacker sees every released number and knows both tables. These are the bounds that
such an attacker can prove against the claims of skdp. They are written by
`make bench NAME=audit` in {minutes:.0f} minutes of processor time on two cores.
[results.csv](audit/results.csv) has every row, and `skdp audit` runs a short version.

- **{len(claims)} settings with right noise: {flagged} refuted.** The highest lower
  bound is {closest:.2f} of its μ.
- **{len(bugs)} planted mistakes: {found} found**, among them noise that is 20 % too
  small in every mechanism at ε = 1 and in whole fits at ε = 4 and 8.

![Lower bounds against claims](audit/audit.svg)

## How

A mechanism, or a whole fit, runs again and again on one of two neighbouring tables made
to be as far apart as one record allows: a record at the edge of every column, present
or zeroed out or removed, or with the opposite target. The attacker replays the run from
its transcript. Weights are a function of the released values, so the exact sums of
every step are known for both tables, and the likelihood ratio
Σ⟨released − (f + f′)/2, f′ − f⟩/σ² is the best possible test. A second attacker does
not trust the stated noise and measures its covariance in half of the games. It detects
noise that is shared, repeated or fixed.

Two bounds follow from wrong guesses, by Clopper and Pearson at 99.9 %:

- **gdp**: μ-GDP allows no error rate below Φ(−μ/2). This tests the claim itself, a μ,
  and ε is read from the proved μ at the same δ. A group of g records is protected by
  gμ (Dong, Roth and Su 2022, Theorem 2.14), so tables that differ in g ≈ 2/μ records
  show most with the fewest runs. Bounds are given for one record.
- **plain**: (ε, δ)-DP allows no 1 − β above e^ε α + δ. This assumes nothing, and stays
  far below the truth at any feasible number of runs.

Two more checks are exact. The distance of the two tables in units of the stated noise
(*reach*, as a share of the claim) must not exceed the charge, and every release must
have been charged.

A right claim is refuted by chance at most once in a thousand settings for each bound. A
refuted setting is therefore played again, and counts only if it is refuted twice. Over
these {len(claims)} settings the chance of a false alarm is below
{len(claims) * 4e-6:.1g}. The number of runs is chosen to find noise that is 20 % too
small with a chance of 99 %, or {SURE:.2%} where it is planted.

An audit can refute a claim but not prove it. It finds mistakes that are as large as
those below. Proofs and other tests deal with rounding, corner cases and side channels.

## Audit your own model

```python
from skdp import LogisticRegression, audit

print(audit.fit(LogisticRegression(epsilon=2.0, schema=schema)))  # whole fits
print(audit.mechanism("gram", epsilon=1.0))  # one kind of release
print(audit.one_run(LogisticRegression(epsilon=2.0)))  # one fit, many canaries
```

Tables are made up for the estimator's schema and parameters; no record is read and no
ledger charged.

## Right noise

The proved ε, with confidence 99.9 % each, beside the claim. The reach is in brackets
where it is not 1.

{_claim_table([r for r in claims if r["part"] != "plain"])}

`rare level` is a category that only one record has. It may be shown with probability
δ = 0.05 in this game, and hardly ever proves anything. Decisions of `levels` under
replace-one show at most 1/√2 of the distance. Under replace-one no pair of tables
reaches the charge of a matrix geometry, because records that are furthest apart in
gradients have the same Gram matrix. Under zero-out a zeroed record keeps its target, so
a histogram of targets reveals nothing. Fits have 4 steps unless they say otherwise.

## Single records

60,000 releases on tables that differ in one record, replace-one.

{_plain_table([r for r in claims if r["part"] == "plain"])}

## Planted mistakes

{_bug_table(bugs)}

Noise at 0.8 times its scale makes μ 1.25 times as large: ε = 1.27 instead of 1, 5.15
instead of 4, 10.4 instead of 8.

## One fit with many canaries

Steinke, Nasr and Jagielski (2023): a coin decides whether each canary is in the table,
and the attacker guesses those that are most certain. One fit proves less than thousands
of fits do.

{_one_table([r for r in rows if r["part"] == "one run"])}

## Floating point

`tests/privacy/test_floating_point_attack.py` runs the published attacks. On
`value + sigma * normal()` in doubles the inverse of Box and Muller's method tells two
neighbours apart with an advantage of 0.96 and is never wrong when it excludes one,
where ε = 1 allows 0.09; on released values it is wrong as often as right.
"""


def _claim_table(rows: list[Row]) -> str:
    epsilons = sorted({r["nominal"] for r in rows})
    lines = ["| audited | neighbours |" + "".join(f" ε = {e:g} |" for e in epsilons)]
    lines.append("|---|---|" + "---|" * len(epsilons))
    for key in dict.fromkeys((r["label"], r["neighbours"]) for r in rows):
        own = {r["nominal"]: r for r in rows if (r["label"], r["neighbours"]) == key}
        cells = [_cell(own[e]) if e in own else "" for e in epsilons]
        lines.append(f"| {key[0]} | {key[1]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: Row) -> str:
    bold = "" if row["passed"] else "**"
    reach = "" if row["reached"] is None else row["reached"] / row["mu"]
    note = f" ({reach:.2f})" if reach and reach < 0.995 else ""
    return f"{bold}{row['epsilon_lower']:.2f}{bold}{note}"


def _plain_table(rows: list[Row]) -> str:
    lines = ["| audited | claimed ε | gdp | plain |", "|---|---|---|---|"]
    for r in rows:
        lines.append(
            f"| {r['label']} | {r['epsilon']:.3g} | {r['epsilon_lower']:.2f} "
            f"| {r['plain_epsilon_lower']:.2f} |"
        )
    return "\n".join(lines)


def _bug_table(rows: list[Row]) -> str:
    lines = [
        "| mistake | in | neighbours | claimed ε | runs | found by |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['bug']} | {r['label']} | {r['neighbours']} | {r['epsilon']:.3g} "
            f"| {r['n_trials']:,} | {r['violations'] or '**not found**'} |"
        )
    return "\n".join(lines)


def _one_table(rows: list[Row]) -> str:
    lines = [
        "| model | canaries | claimed ε | guesses | right | proved ε ≥ |",
        "|---|---|---|---|---|---|",
    ]
    for r in sorted(rows, key=lambda r: (r["label"], r["n_canaries"], r["epsilon"])):
        lines.append(
            f"| {r['label']} | {r['n_canaries']:,} | {r['epsilon']:.3g} "
            f"| {r['n_guesses']:,} | {r['n_correct']:,} | {r['epsilon_lower']:.2f} |"
        )
    return "\n".join(lines)
