"""How often 95 % intervals hold the truth, by design: make bench NAME=coverage-designs.

Fresh tables are drawn from models whose coefficients are known: columns that are
correlated or have long tails, generous ranges, rare levels, columns of pure noise, and
a wrong model. Linear, logistic, Poisson and additive models are fitted with defaults.
A line of the file counts the fits in which the interval of one coefficient was given,
and in which it held the truth. A run goes on where the last one stopped.

    python benchmarks/interval_designs.py [--only linear] [--scale 1] [--output FOLDER]
"""

from __future__ import annotations

import argparse
import csv
import math
import time
import warnings
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import expit

import skdp

EVIDENCE = Path(__file__).resolve().parents[1] / "docs" / "evidence"
PAGE = """\
# How often intervals hold, by design

    make bench NAME=coverage-designs

Fresh tables from models whose coefficients are known are fitted with the defaults,
under add-remove. Each has an age, a body mass, log-normal visits and costs, a lab value
without any effect, all of them correlated (.5 unless the design says otherwise), a
column of pure noise and a ward of three levels or five. The skewed columns end at about
ten times their median, except in “long tails”. Ranges × 10 and × 30 are that many times
as wide as what rows fill, from the low end. In the “wrong model”, the square of the age
matters too, classes follow a complementary log-log link, counts a softplus of the
margin with gamma noise, and residuals are skewed and grow with age. The truth is then
what the model without noise finds in three million rows. Additive models are drawn from
lines, and each knot and category is counted.

Fits of each design and model: 60 of 500 to 20,000 rows, 20 of 200,000 rows, 30 without
a look; additive models 20. [interval_designs.csv](interval_designs.csv) has each cell.

**In short.** Of {told:,} told intervals of linear, logistic and Poisson models,
{held} % hold. Of null effects that are told, {alarms} % are false alarms (7 % allowed).
Taken over rows and ε, {below} of {n_shares} coefficients hold in fewer than 93 % of the
fits that tell them, and the worst of a hundred in {hundredth:.1f} % (90 % required).
The worst of all is {where}: {worst:.1f} %.

## Designs

All rows and ε together, in percent. “Worst” is the coefficient that holds least often
where it is told, and “false” the share of told null effects whose interval leaves out
zero.

{designs}

Many effects of columns with correlation .9 are not told: what a column varies by itself
is a tenth of its variance, and is hidden by the noise of the Gram matrix.

## Rows and ε

All designs together, in percent.

{cells}

## With and without a look

Without a look, a number that fills a small part of its range is hidden. What it may add
to the others makes their intervals so wide that they say nothing, or they are not told.

{before}
"""


@dataclass(frozen=True, kw_only=True)
class Design:
    """What the rows of a table look like.

    Attributes
    ----------
    correlation : float
        The correlation of all pairs of the five numbers behind the columns.
    stretch : float
        The ranges are this many times as wide as what rows fill, from the low end.
    has_tails : bool
        Whether the skewed columns keep their tails. Otherwise they end at 10 times
        their median or so, where their ranges end too.
    shares : tuple of float
        The shares of the levels of the ward.
    n_noise : int
        The number of columns of pure noise.
    is_wrong : bool
        Whether targets follow another model than the one that is fitted.
    """

    correlation: float = 0.5
    stretch: float = 1.0
    has_tails: bool = False
    shares: tuple[float, ...] = (0.6, 0.3, 0.1)
    n_noise: int = 1
    is_wrong: bool = False


DESIGNS = {
    "correlation .3": Design(correlation=0.3),
    "correlation .6": Design(correlation=0.6),
    "correlation .9": Design(correlation=0.9),
    "long tails": Design(has_tails=True),
    "ranges × 10": Design(stretch=10.0),
    "ranges × 30": Design(stretch=30.0),
    "rare levels": Design(shares=(0.6, 0.25, 0.1, 0.04, 0.01)),
    "12 columns of noise": Design(n_noise=12),
    "wrong model": Design(is_wrong=True),
}


Cell = tuple[int, float, bool, int]
#: Cells of each design: rows, ε, whether there is a look, and the number of fits.
CELLS: list[Cell] = [
    (500, 4.0, True, 60),
    (2_000, 1.0, True, 60),
    (2_000, 4.0, True, 60),
    (20_000, 0.3, True, 60),
    (20_000, 1.0, True, 60),
    (20_000, 4.0, True, 60),
    (200_000, 1.0, True, 20),
    (200_000, 8.0, True, 20),
    (2_000, 4.0, False, 30),
    (20_000, 1.0, False, 30),
]
#: Those of additive models, which take longer.
FEW_CELLS: list[Cell] = [
    (2_000, 4.0, True, 20),
    (20_000, 1.0, True, 20),
    (20_000, 4.0, True, 20),
]


class Family(NamedTuple):
    """A model, its target, how strong its effects are, and what is fitted."""

    estimator: Any
    target: Any
    strength: float = 1.0
    cells: list[Cell] = CELLS
    can_be_wrong: bool = True


CLASSES = skdp.Categorical([0, 1])
#: Additive models are drawn from lines, so the truth at each knot is known. Curves
#: would follow the square of the wrong model.
FAMILIES = {
    "linear": Family(skdp.LinearRegression, skdp.Numeric(-20, 40)),
    "logistic": Family(skdp.LogisticRegression, CLASSES),
    "poisson": Family(skdp.PoissonRegressor, skdp.Numeric(0, 50), 0.5),
    "additive": Family(skdp.AdditiveClassifier, CLASSES, 1.0, FEW_CELLS, False),
}
#: The columns: the low end of their range, the end of what rows fill, the end with
#: tails, and the effect of one unit. The lab has no effect, but is correlated.
NUMBERS = {
    "age": (0.0, 100.0, 100.0, 0.03),
    "bmi": (10.0, 50.0, 50.0, -0.08),
    "visits": (0.0, 15.0, 100.0, 0.15),
    "cost": (0.0, 15_000.0, 100_000.0, 0.0002),
    "lab": (-5.0, 5.0, 5.0, 0.0),
}
#: Effects of the levels of the ward, compared with the first.
WARD = (0.0, 0.5, -0.7, 0.4, 0.8)
#: Rows from which the coefficients of a wrong model are computed.
POPULATION = 3_000_000
#: The least number of told intervals of a coefficient that is listed as the worst.
FEWEST = 60
KEY = ("family", "design", "rows", "epsilon", "look")
HEAD = (*KEY, "coefficient", "fits", "told", "held", "std")


def draw(
    design: Design, family: str, n_rows: int, rng: Any
) -> tuple[pd.DataFrame, Any]:
    """Return a fresh table and its target."""
    rho = design.correlation
    z = math.sqrt(rho) * rng.standard_normal((n_rows, 1))
    z = z + math.sqrt(1 - rho) * rng.standard_normal((n_rows, 5))
    made = {
        "age": 45 + 12 * z[:, 0],
        "bmi": 27 + 4 * z[:, 1],
        "visits": np.exp(0.5 + 0.7 * z[:, 2]),
        "cost": 1000 * np.exp(0.9 * z[:, 3]),
        "lab": z[:, 4],
    }
    strength = FAMILIES[family].strength
    margin, columns = np.full(n_rows, -0.5), {}
    for name, (low, end, tail, effect) in NUMBERS.items():
        column = made[name].clip(low, tail if design.has_tails else end)
        # Means would explode if counts grew with the exponential of a long tail.
        part = 0.3 if design.has_tails and family == "poisson" else 1.0
        if name in ("age", "bmi"):
            part = 1.0
        middle = {"age": 45, "bmi": 27}.get(name, 0)
        margin += strength * part * effect * (column - middle)
        columns[name] = column
    for k in range(design.n_noise):
        columns[f"noise {k + 1}"] = rng.uniform(size=n_rows)
    ward = rng.choice(len(design.shares), n_rows, p=design.shares)
    columns["ward"] = np.array([*"abcde"])[ward]
    margin += strength * np.array(WARD)[ward]
    target = draw_target(family, margin, columns["age"], design.is_wrong, rng)
    return pd.DataFrame(columns), target


def draw_target(family: str, margin: Any, age: Any, is_wrong: bool, rng: Any) -> Any:
    """Return targets of these margins, of the right model or of a wrong one.

    The wrong models have a square of the age, and another link (complementary log-log
    for classes, softplus for counts) or skewed residuals of unequal size.
    """
    if is_wrong:
        margin = margin + 0.001 * (age - 45) ** 2
    if family in ("logistic", "additive"):
        chance = -np.expm1(-np.exp(margin - 0.4)) if is_wrong else expit(margin)
        return (rng.uniform(size=len(margin)) < chance).astype(int)
    if family == "linear":
        if is_wrong:
            residual = rng.exponential(size=len(margin)) - 1.0
            return (margin + 0.04 * age * residual).clip(-20, 40)
        return (margin + 2.0 * rng.standard_normal(len(margin))).clip(-20, 40)
    mean = np.exp(margin)
    if is_wrong:
        mean = np.log1p(mean) * rng.gamma(2.0, 0.5, len(margin))
    return rng.poisson(mean).clip(0, 50)


def describe(design: Design, family: str) -> skdp.Schema:
    """Return the schema of a table."""
    columns: dict[str, Any] = {}
    for name, (low, end, tail, _) in NUMBERS.items():
        high = low + design.stretch * ((tail if design.has_tails else end) - low)
        columns[name] = skdp.Numeric(low, high)
    for k in range(design.n_noise):
        columns[f"noise {k + 1}"] = skdp.Numeric(0, design.stretch)
    levels = [*"abcde"[: len(design.shares)]]
    columns["ward"] = skdp.Categorical(levels, reference="a")
    return skdp.Schema(columns, target=FAMILIES[family].target)


@cache
def find_truth(name: str, family: str) -> dict[str, float]:
    """Return the true coefficient of each name, by the model that is fitted."""
    design, strength = DESIGNS[name], FAMILIES[family].strength
    schema = describe(design, family)
    if design.is_wrong:
        rng = np.random.default_rng(zlib.crc32(f"{family} population".encode()))
        return solve(family, *draw(design, family, POPULATION, rng))
    tails = design.has_tails and family == "poisson"
    truth = {
        key: strength * effect * (0.3 if tails and key not in ("age", "bmi") else 1.0)
        for key, (*_, effect) in NUMBERS.items()
    }
    truth |= {key: 0.0 for key in schema.columns if key.startswith("noise")}
    levels = schema.columns["ward"].levels[1:]
    return truth | {f"ward[T.{k}]": strength * WARD["abcde".index(k)] for k in levels}


def solve(family: str, X: pd.DataFrame, y: Any) -> dict[str, float]:
    """Return the coefficients of the greatest likelihood, by Newton's method."""
    numbers = X.drop(columns="ward").to_numpy(float)
    middle, size = numbers.mean(axis=0), numbers.std(axis=0)
    levels = sorted(X["ward"].unique())[1:]
    dummies = np.column_stack([X["ward"] == level for level in levels])
    rows = np.column_stack([(numbers - middle) / size, dummies, np.ones(len(X))])
    w = np.zeros(rows.shape[1])
    if family == "poisson":
        w[-1] = math.log(y.mean())
    for _ in range(1 if family == "linear" else 12):
        margin = rows @ w
        mean = {"linear": lambda m: m, "poisson": np.exp}.get(family, expit)(margin)
        bend = {"linear": np.ones_like, "poisson": np.exp}.get(
            family, lambda m: expit(m) * expit(-m)
        )(margin)
        w += np.linalg.solve((rows.T * bend) @ rows, rows.T @ (y - mean))
    names = [*X.columns.drop("ward"), *(f"ward[T.{level}]" for level in levels)]
    w[: len(size)] /= size
    return dict(zip(names, w[:-1].tolist(), strict=True))


def fit_once(
    name: str, family: str, n_rows: int, epsilon: float, look: bool, seed: int
) -> Iterator[tuple[str, float, float]]:
    """Yield the name, the error and the standard error of each coefficient."""
    design, own = DESIGNS[name], FAMILIES[family]
    rng = np.random.default_rng([zlib.crc32(f"{family} {name}".encode()), n_rows, seed])
    X, y = draw(design, family, n_rows, rng)
    model = own.estimator(
        schema=describe(design, family),
        epsilon=epsilon,
        look=look,
        n_threads=1,
        **({"pairs": None} if family == "additive" else {}),
    )
    model.fit(X, y)
    truth = find_truth(name, family)
    if family == "additive":
        yield from compare_curves(model, X, truth)
        return
    try:
        params, bse = model.params, model.bse
    except AttributeError:  # a constant model has no errors
        params = bse = None
    for key, true in truth.items():
        if params is None:
            yield key, math.nan, math.inf
        else:
            yield key, float(params[key] - true), float(bse[key])


def compare_curves(
    model: Any, X: pd.DataFrame, truth: dict[str, float]
) -> Iterator[tuple[str, float, float]]:
    """Yield the error and the standard error at each knot and category.

    Effects have a mean of zero over the rows.
    """
    for name, own in model.curves_.groupby("column", sort=False):
        effect = own["effect"].to_numpy(float)
        std = (own["high"] - own["low"]).to_numpy(float) / 2 / 1.96
        if name == "ward":
            true = np.array([truth.get(f"ward[T.{v}]", 0.0) for v in own["value"]])
            true = (
                true - X["ward"].map(dict(zip(own["value"], true, strict=True))).mean()
            )
        else:
            true = truth[str(name)] * (own["value"].to_numpy(float) - X[name].mean())
        std = np.where(np.isfinite(std), std, math.inf)
        for error, each in zip(effect - true, std, strict=True):
            yield str(name), float(error), float(each)


def measure(family: str, name: str, cell: Cell) -> list[dict[str, Any]]:
    """Return a line for each coefficient of a cell."""
    n_rows, epsilon, look, fits = cell
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for seed in range(fits):
        for key, error, std in fit_once(name, family, n_rows, epsilon, look, seed):
            found[key].append((error, std))
    lines = []
    for key, pairs in found.items():
        error, std = np.array(pairs).T
        told = np.isfinite(std)
        held = told & (np.abs(error) <= 1.96 * std)
        values = (family, name, n_rows, epsilon, look, key, len(pairs), told.sum())
        width = f"{np.median(std[told]):.4g}" if told.any() else ""
        lines.append(dict(zip(HEAD, (*values, held.sum(), width), strict=True)))
    return lines


def is_null(line: dict[str, Any]) -> bool:
    """Whether the coefficient of a line is zero by the model that is fitted."""
    name = str(line["coefficient"])
    return name.startswith("noise") or (
        name == "lab" and not DESIGNS[line["design"]].is_wrong
    )


def count(lines: Iterable[dict[str, Any]]) -> tuple[int, int, int]:
    """Return the numbers of intervals, of those told, and of those that held."""
    parts = [(one["fits"], one["told"], one["held"]) for one in lines]
    total = np.array(parts, dtype=int).reshape(-1, 3).sum(axis=0)
    return int(total[0]), int(total[1]), int(total[2])


def percent(part: int, whole: int) -> str:
    """Return a share in percent, or nothing of nothing."""
    return f"{100 * part / whole:.1f}" if whole else "–"


def find_worst(lines: list[dict[str, Any]]) -> tuple[str, float]:
    """Return the coefficient whose told intervals held least often, and how often.

    Cells are taken together, and coefficients that are told less than `FEWEST` times
    are left out.
    """
    parts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in lines:
        parts[one["coefficient"]].append(one)
    shares = {}
    for name, own in parts.items():
        _, told, held = count(own)
        if told >= FEWEST:
            shares[name] = held / told
    if not shares:
        return "", math.nan
    worst = min(shares, key=lambda name: shares[name])
    return worst, shares[worst]


def write_page(lines: list[dict[str, Any]]) -> str:
    """Return the page in Markdown."""
    looked = [one for one in lines if one["look"]]
    plain = [one for one in looked if one["family"] != "additive"]
    _, told, held = count(plain)
    nulls = [one for one in plain if is_null(one)]
    _, null_told, null_held = count(nulls)
    groups: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for one in looked:
        groups[one["design"], one["family"]].append(one)
    worst = [
        (share, design, family, name)
        for (design, family), own in groups.items()
        for name, share in [find_worst(own)]
        if family != "additive" and not math.isnan(share)
    ]
    each = [
        count(cell)
        for own in groups.values()
        for name in {one["coefficient"] for one in own}
        for cell in [[one for one in own if one["coefficient"] == name]]
        if own[0]["family"] != "additive"
    ]
    shares = np.sort([h / t for _, t, h in each if t >= FEWEST])
    share, design, family, name = min(worst)
    return PAGE.format(
        told=told,
        held=percent(held, told),
        alarms=percent(null_told - null_held, null_told),
        n_shares=len(shares),
        below=int((shares < 0.93).sum()),
        hundredth=100 * float(np.quantile(shares, 0.01)),
        worst=100 * share,
        where=f"{name} of “{design}”, {family}",
        designs="\n".join(list_designs(groups)),
        cells="\n".join(list_cells(looked)),
        before="\n".join(list_looks(lines)),
    )


def list_designs(groups: dict[tuple[str, str], list[dict[str, Any]]]) -> Iterator[str]:
    """Yield the table of designs."""
    yield "| design | model | told | hold if told | hold or not told | worst | false |"
    yield "|---|---|---|---|---|---|---|"
    order = sorted(groups, key=lambda k: ([*DESIGNS].index(k[0]), k[1]))
    for design, family in order:
        own = groups[design, family]
        fits, told, held = count(own)
        name, share = find_worst(own)
        worst = "–" if math.isnan(share) else f"{100 * share:.1f} ({name})"
        nulls = [one for one in own if is_null(one)]
        _, null_told, null_held = count(nulls)
        cells = (
            percent(told, fits),
            percent(held, told),
            percent(fits - told + held, fits),
            worst,
            percent(null_told - null_held, null_told),
        )
        yield f"| {design} | {family} | {' | '.join(cells)} |"


def list_cells(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of rows and ε: told, and held if told."""
    yield f"| rows | ε | {' | '.join(FAMILIES)} |"
    yield "|---" * (2 + len(FAMILIES)) + "|"
    for n_rows, epsilon in dict.fromkeys((o["rows"], o["epsilon"]) for o in lines):
        texts = []
        for family in FAMILIES:
            key = family, n_rows, epsilon
            own = [o for o in lines if (o["family"], o["rows"], o["epsilon"]) == key]
            fits, told, held = count(own)
            pair = f"{percent(told, fits)} told, {percent(held, told)} hold"
            texts.append(pair if fits else "")
        yield f"| {n_rows:,} | {epsilon:g} | {' | '.join(texts)} |"


def list_looks(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of cells that were fitted without a look too."""
    keys = [(one["design"], one["rows"], one["epsilon"]) for one in lines]
    bare = dict.fromkeys(
        key for key, one in zip(keys, lines, strict=True) if not one["look"]
    )
    yield "| design | rows | ε | told without a look | hold | told with it | hold |"
    yield "|---|---|---|---|---|---|---|"
    for design, n_rows, epsilon in sorted(bare, key=lambda k: [*DESIGNS].index(k[0])):
        key = design, n_rows, epsilon
        cells = []
        for look in (False, True):
            own = [
                one
                for one, other in zip(lines, keys, strict=True)
                if other == key and one["look"] == look and one["family"] != "additive"
            ]
            fits, told, held = count(own)
            cells += [percent(told, fits), percent(held, told)]
        yield f"| {design} | {n_rows:,} | {epsilon:g} | {' | '.join(cells)} |"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return what was measured before."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        lines: list[dict[str, Any]] = list(csv.DictReader(file))
    for one in lines:
        one |= {name: int(one[name]) for name in ("rows", "fits", "told", "held")}
        one |= {"epsilon": float(one["epsilon"]), "look": one["look"] == "True"}
    return lines


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description="Coverage of intervals, by design.")
    parser.add_argument("--only", choices=[*FAMILIES])
    parser.add_argument("--scale", type=float, default=1.0, help="of the fits")
    parser.add_argument("--output", type=Path, default=EVIDENCE)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    given.output.mkdir(parents=True, exist_ok=True)
    path = given.output / "interval_designs.csv"
    lines = read_lines(path)
    for family, own in FAMILIES.items():
        if given.only not in (None, family):
            continue
        start = time.process_time()
        for name, design in DESIGNS.items():
            if design.is_wrong and not own.can_be_wrong:
                continue
            for n_rows, epsilon, look, fits in own.cells:
                key = family, name, n_rows, epsilon, look
                if any(tuple(one[k] for k in KEY) == key for one in lines):
                    continue
                fits = max(2, round(given.scale * fits))
                lines += measure(family, name, (n_rows, epsilon, look, fits))
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, HEAD, lineterminator="\n")
                writer.writeheader()
                writer.writerows(lines)
        print(family, f"{time.process_time() - start:.0f} CPU seconds", flush=True)
    text = write_page(lines)
    (given.output / "interval_designs.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
