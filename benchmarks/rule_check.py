"""Whether the untuned rule is tuned to its tables: make bench NAME=rule.

Three questions, each answered by fits: what would other constants give, and would they
have been chosen without the table they are judged on (leave one out); what does the
rule give on generated tables that nobody looked at; and is it ever worse than the base
rate or the mean where rows are few or ε is small.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from utility import OUT, TIE, fit, floor, score

from skdp.descent import rule
from skdp.schema import Categorical, Numeric, Schema
from tables import NAMES, Table, load, split

#: Each constant of the rule, halved and doubled.
CONSTANTS = ("CAP", "COHERENCE", "FLOOR", "SHRINKAGE", "GRAM_SHARE")
EPSILONS, SEEDS = (0.1, 1.0), range(3)
SMALL_ROWS, SMALL_EPSILONS, SMALL_SEEDS = (500, 2000), (0.01, 0.1, 1.0), range(10)
Setting = tuple[str, float]


def settings() -> list[Setting]:
    """The rule as it is, and with one constant changed."""
    return [("as it is", 1.0)] + [(c, f) for c in CONSTANTS for f in (0.5, 2.0)]


@contextmanager
def changed(setting: Setting) -> Iterator[None]:
    """Change one constant of the rule, by a factor."""
    name, factor = setting
    if name == "as it is":
        yield
        return
    before = getattr(rule, name)
    setattr(rule, name, before * factor)
    try:
        yield
    finally:
        setattr(rule, name, before)


def log_excess(train: Table, test: Table, base: float, **given: Any) -> float:
    """Log of the mean excess over the fit without privacy, not below a tie."""
    sign = 1.0 if test.classification else -1.0
    values = [
        score(fit(train, neighbours="zero-out", random_state=seed, **given), test)
        for seed in SEEDS
    ]
    excess = sign * (float(np.mean(values)) - base)
    return math.log(max(excess, TIE[test.classification]))


def sensitivity(name: str) -> dict[tuple[str, Setting], float]:
    """Log-excesses of one table under every setting."""
    train, test = split(generated(name) if name in GENERATED else load(name))
    base = score(fit(train, epsilon=math.inf), test)
    found = {}
    for setting in settings():
        with changed(setting):
            logs = [log_excess(train, test, base, epsilon=e) for e in EPSILONS]
        found[name, setting] = float(np.mean(logs))
    return found


#: Generated tables: rows, numbers, categories (levels each), correlation, whether the
#: target is a class, and how strong the weights are.
GENERATED: dict[str, tuple[int, int, tuple[int, ...], float, bool, float]] = {
    "few strong numbers": (20_000, 4, (), 0.0, True, 3.0),
    "many weak numbers": (40_000, 60, (), 0.2, True, 0.3),
    "correlated numbers": (30_000, 20, (), 0.9, False, 1.0),
    "categories": (50_000, 0, (3, 8, 20, 40), 0.0, True, 1.0),
    "rare categories": (30_000, 2, (50, 50), 0.0, False, 1.0),
    "mixed, rare class": (60_000, 10, (4, 12), 0.5, True, 1.5),
}


def generated(name: str) -> Table:
    """Draw one of the tables above."""
    n, numbers, levels, correlation, classes, strength = GENERATED[name]
    rng = np.random.default_rng(list(GENERATED).index(name) + 100)
    columns: dict[str, Any] = {}
    described: dict[str, Any] = {}
    margin = np.zeros(n)
    common = rng.normal(size=n)
    for j in range(numbers):
        own = rng.normal(size=n)
        x = math.sqrt(correlation) * common + math.sqrt(1 - correlation) * own
        # Ranges are generous, as people give them: centres and widths differ.
        center, width = rng.uniform(-1, 1), rng.uniform(4, 12)
        columns[f"x{j}"] = x
        described[f"x{j}"] = Numeric(center - width / 2, center + width / 2)
        margin += strength * rng.normal() / math.sqrt(max(numbers, 1)) * x
    for j, count in enumerate(levels):
        shares = rng.dirichlet(np.full(count, 0.7))
        codes = rng.choice(count, n, p=shares)
        columns[f"c{j}"] = codes.astype(str)
        described[f"c{j}"] = Categorical([str(level) for level in range(count)])
        margin += strength * rng.normal(size=count)[codes] / math.sqrt(len(levels))
    if classes:
        shift = 3.0 if "rare" in name else 0.5
        y: Any = (rng.random(n) < 1 / (1 + np.exp(shift - margin))).astype(int)
        target: Any = Categorical([0, 1])
    else:
        y = margin + rng.standard_t(5, n) * margin.std()
        target = Numeric(*np.quantile(y, [0.0, 1.0]) * 1.5)  # generated: public
    import pandas as pd

    return Table(pd.DataFrame(columns), y, Schema(described, target=target))


def small(name: str) -> list[dict[str, Any]]:
    """The rule where rows are few, against the base rate or the mean."""
    train, test = split(load(name))
    sign = 1.0 if test.classification else -1.0
    rows = []
    for n in (*SMALL_ROWS, len(train.y)):
        X = train.X.iloc[:n] if hasattr(train.X, "iloc") else train.X[:n]
        part = Table(X, train.y[:n], train.schema)
        base = floor(part, test)
        for epsilon in SMALL_EPSILONS if n < len(train.y) else (0.01,):
            values = []
            for seed in SMALL_SEEDS:
                model = fit(
                    part, epsilon=epsilon, neighbours="zero-out", random_state=seed
                )
                values.append(sign * (score(model, test) - base))
            error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
            rows.append(
                {
                    "table": name,
                    "rows": n,
                    "epsilon": epsilon,
                    "worse by": float(np.mean(values)),
                    "error": error,
                    "fitted": type(model.plan_.geometry).__name__,
                }
            )
    return rows


def page(found: dict[tuple[str, Setting], float], few: list[dict[str, Any]]) -> str:
    """Write what was found, in Markdown."""
    lines = [
        "# Is the rule tuned to its tables?",
        "",
        "Each constant of [the default method](../../guide/method.md) is halved and "
        "doubled. Written by `make bench NAME=rule`.",
    ]
    for title, names in (("Public tables", NAMES), ("Generated", list(GENERATED))):
        lines += [
            "",
            f"## {title}: excess with a changed constant over the rule's excess",
            "",
            "Zero-out, ε = 0.1 and 1, geometric means over both and over three seeds.",
            "",
            "| table | " + " | ".join(f"{c} × {f:g}" for c, f in settings()[1:]) + " |",
            "|---" * len(settings()) + "|",
        ]
        for name in names:
            own = found[name, settings()[0]]
            ratios = [math.exp(found[name, s] - own) for s in settings()[1:]]
            cells = " | ".join(f"{r:.2f}" for r in ratios)
            lines.append(f"| {name} | {cells} |")
        means = [
            math.exp(
                float(np.mean([found[n, s] - found[n, settings()[0]] for n in names]))
            )
            for s in settings()[1:]
        ]
        lines.append("| all | " + " | ".join(f"{m:.2f}" for m in means) + " |")
    lines += [
        "",
        "## Leave one out",
        "",
        "The setting that is best on all public tables except one, and its excess on "
        "that table over the rule's. Above 1, the rule is better than the setting that "
        "would have been chosen without the table.",
        "",
        "| left out | chosen | its excess over the rule's |",
        "|---|---|---|",
    ]
    regrets = []
    for out in NAMES:
        others = [n for n in NAMES if n != out]
        best = min(settings(), key=lambda s: sum(found[n, s] for n in others))
        regret = found[out, best] - found[out, settings()[0]]
        regrets.append(regret)
        chosen = best[0] if best[1] == 1.0 else f"{best[0]} × {best[1]:g}"
        lines.append(f"| {out} | {chosen} | {math.exp(regret):.2f} |")
    lines += [
        "",
        f"Geometric mean: {math.exp(float(np.mean(regrets))):.2f}.",
        "",
        "## Few rows, small ε: compared with a constant",
        "",
        "Log-loss or R² by which the default is worse than the base rate or the mean "
        "of the same rows (negative: better), with the standard error over ten seeds.",
        "",
        "| table | rows | ε | worse by | fitted |",
        "|---|---|---|---|---|",
    ]
    for row in few:
        worse = f"{row['worse by']:+.4f} ± {row['error']:.4f}"
        lines.append(
            f"| {row['table']} | {row['rows']:,} | {row['epsilon']:g} | {worse} | "
            f"{'a constant' if row['fitted'] == 'InterceptOnly' else 'a model'} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure everything and write it down."""
    found: dict[tuple[str, Setting], float] = {}
    few: list[dict[str, Any]] = []
    with ProcessPoolExecutor(2) as pool:
        jobs = pool.map(sensitivity, [*NAMES, *GENERATED])
        more = pool.map(small, NAMES)
        for part in jobs:
            found |= part
            print(next(iter(part))[0], flush=True)
        for rows in more:
            few += rows
    with (OUT / "rule.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["table", "constant", "factor", "log_excess"])
        for (name, (constant, factor)), value in found.items():
            writer.writerow([name, constant, factor, f"{value:.6f}"])
    text = page(found, few)
    (OUT / "rule.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
