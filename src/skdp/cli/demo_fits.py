"""The fits of the demo, and how they are shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.progress import Progress
from rich.table import Table
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

import skdp
from skdp.cli.console import hushed, print_json, screen, watched
from skdp.datasets import Dataset, compute_margins, make_hospital
from skdp.descent.matrix import Matrix
from skdp.engines.choice import choose_engine
from skdp.estimators.feature_map import centre_categories
from skdp.models.losses import Logistic
from skdp.planning.plan import Fit, Plan, run
from skdp.planning.presets import preset
from skdp.planning.rule import make_default_plan
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Records, encode
from skdp.schema import FloatArray, Layout, check

#: Seeds of the two public tables: the one that is fitted and the one that judges.
TABLE_SEED, FRESH_SEED = 0, 1
FRESH_ROWS, MAX_ROWS = 50_000, 2_000_000
#: Steps that a demo has time for: this many row visits, and never fewer than 200.
DEMO_VISITS = 250_000_000
#: Decimals of a log-loss that are shown.
PLACES = 4


def run_demo(
    rows: int, epsilon: float, seed: int | None, as_json: bool, quiet: bool = False
) -> None:
    """Fit the three models and show them."""
    check(rows <= MAX_ROWS, f"The demo takes up to {MAX_ROWS:,} rows. Got {rows:,}.")
    started = perf_counter()
    hushed(as_json, quiet)
    layout = make_hospital(1).schema.layout()
    jobs = _jobs(layout, rows, epsilon)
    console = screen(as_json, quiet)
    _show_plan(console, jobs, layout)
    table = make_hospital(rows, TABLE_SEED)
    fresh = make_hospital(FRESH_ROWS, FRESH_SEED)
    records = encode([table.batch], table.schema)
    engine = choose_engine()
    # Sums this small gain nothing from BLAS threads, and lose much on a busy machine.
    with (
        threadpool_limits(1, "blas"),
        _progress(jobs, watched(as_json, quiet)) as callbacks,
    ):
        fits = [
            run(job.plan, records, engine=engine, random_state=seed, callback=callback)
            for job, callback in zip(jobs, callbacks, strict=True)
        ]
    result = _Result(
        table=table,
        fits=fits,
        losses=_log_losses(table, fresh, fits, records),
        seconds=perf_counter() - started,
    )
    if as_json:
        print_json(result.to_dict())
    else:
        _show_result(console, result)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Job:
    """A fit of the demo: its name, its plan and what to say of it beforehand."""

    name: str
    plan: Plan
    words: str


def _jobs(layout: Layout, rows: int, epsilon: float) -> list[_Job]:
    """Plan the three fits: matrix geometry, the paper's method, and no privacy."""
    loss = Logistic()
    facts: dict[str, Any] = {
        "n_rows": rows,
        "epsilon": epsilon,
        "neighbours": "add-remove",
        "assumptions": ("The number of rows given is public.",),
    }
    matrix = make_default_plan(layout, loss, **facts)
    paper = preset("dp_skgd", layout, loss, **facts)
    most = max(200, min(5_000, DEMO_VISITS // rows))
    words = f"{matrix.n_steps} steps on the intercept alone, {_noise(matrix)}: too few "
    words += "rows for more at this ε"
    if isinstance(matrix.geometry, Matrix):
        words = (
            f"{matrix.geometry.share:.1%} of the budget releases the Gram matrix and "
            f"the class counts once, {matrix.geometry.floor:.3g} added to eigenvalues; "
            f"then {matrix.n_steps} steps on all {layout.n_features} coordinates in "
            f"its metric, each record's gradient capped at "
            f"{matrix.geometry.radius:.3g}, {_noise(matrix)}"
        )
    bound = "no bound on its error is proved"
    if paper.n_steps > most:
        bound = f"fewer than the {paper.n_steps:,} it asks for, to keep the demo short"
        paper = replace(paper, n_steps=most, rate=None)
    elif paper.rate is not None:
        bound = (
            f"predicted: expected excess of the mean loss ≤ {paper.rate.bound:.3g}, if "
            "each column's true weights have norm ≤ 1"
        )
    steps = (
        f"{paper.n_steps:,} steps, each on one of the {len(layout.groups)} columns "
        f"drawn at random, {_noise(paper)}; {bound}"
    )
    exact = make_default_plan(layout, loss, n_rows=rows)
    return [
        _Job(name="private, matrix geometry", plan=matrix, words=words),
        _Job(name="private, DP-SkGD of the paper", plan=paper, words=steps),
        _Job(
            name="no privacy",
            plan=exact,
            words=f"{exact.n_steps} exact steps, for comparison",
        ),
    ]


def _noise(plan: Plan) -> str:
    budget = PrivacyRecord(
        epsilon=plan.epsilon, delta=plan.delta, neighbours=plan.neighbours
    )
    return f"noise multiplier {plan.noise_multiplier(budget.budget):.4g}"


@contextmanager
def _progress(jobs: list[_Job], show: bool) -> Iterator[list[Callable[[object], None]]]:
    """Show bars with the time left on stderr, if anybody looks."""
    console = Console(stderr=True, quiet=not show)  # older ones end with an empty line
    with Progress(console=console, transient=True, disable=not show) as bars:

        def callback(job: _Job) -> Callable[[object], None]:
            bar = bars.add_task(job.name, total=job.plan.n_steps)
            return lambda step: bars.advance(bar)

        yield [callback(job) for job in jobs]


def _log_losses(
    table: Dataset, fresh: Dataset, fits: list[Fit], records: Records
) -> dict[str, float]:
    """Mean log-loss on the fresh table of everything that is compared."""
    judge = encode([fresh.batch], fresh.schema)
    target = np.concatenate([chunk.target for chunk in judge.chunks])

    def loss(weights: FloatArray) -> float:
        return float(np.mean(Logistic().value(compute_margins(judge, weights), target)))

    seen = np.concatenate([chunk.target for chunk in records.chunks])
    rate = (float(seen.sum()) + 0.5) / (len(seen) + 1.0)
    constant = np.zeros_like(table.weights)
    constant[-1] = math.log(rate / (1.0 - rate))
    matrix, paper, exact = (fit.weights for fit in fits)
    return {
        "true weights": loss(table.weights),
        "no privacy": loss(exact),
        "private, matrix geometry": loss(matrix),
        "private, DP-SkGD of the paper": loss(paper),
        "base rate alone": loss(constant),
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class _Result:
    table: Dataset
    fits: list[Fit]
    losses: dict[str, float]
    seconds: float

    def weights(self) -> dict[str, dict[str, float]]:
        """By coordinate: the true weight, the one without and the one with privacy."""
        layout = self.fits[0].plan.layout
        matrix, _, exact = (
            centre_categories(layout, fit.weights)[:, 0] for fit in self.fits
        )
        return {
            label: {"true": true, "no_privacy": float(free), "private": float(private)}
            for (label, true), free, private in zip(
                self.table.truth.items(), exact, matrix, strict=True
            )
        }

    def to_dict(self) -> dict[str, Any]:
        """Return everything that the demo shows, for JSON."""
        return {
            "skdp": skdp.__version__,
            "synthetic": True,
            "n_rows": self.fits[0].plan.n_rows,
            "privacy": _record(self.fits[0].record),
            "weights": self.weights(),
            "log_loss": self.losses,
            "seconds": round(self.seconds, 3),
        }


def _record(record: PrivacyRecord) -> dict[str, Any]:
    """Return what was promised and spent, without the released values."""
    claims = not record.seeded and record.budget < math.inf
    return {
        "claim": "differential privacy" if claims else "none",
        "epsilon": record.epsilon,
        "delta": record.delta,
        "spent_epsilon": record.spent_epsilon,
        "mu_squared": record.spent,
        "neighbours": record.neighbours,
        "releases": [asdict(e) | {"count": k} for e, k in record.events.items()],
    }


def _show_plan(console: Console, jobs: list[_Job], layout: Layout) -> None:
    plan = jobs[0].plan
    console.print(
        "A synthetic table of hospital stays: nobody's data, so that everything can be "
        "shown. Lines marked * use what a real private run could not show.\n"
    )
    console.print("[bold]The plan[/bold], made before a record is read")
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=False, min_width=12, max_width=18)
    grid.add_column()
    columns = f"{len(layout.groups) - 1} columns and the intercept"
    grid.add_row("table", f"{plan.n_rows:,} rows; {columns}")
    budget = (
        "ε = inf: no noise, no privacy"
        if plan.epsilon == math.inf
        else f"ε = {plan.epsilon:g}, δ = {plan.delta:.2g} for each private fit; "
        "neighbouring tables: one row added or removed"
    )
    grid.add_row("budget", budget)
    for job in jobs:
        star = " *" if job.plan.epsilon == math.inf else ""
        grid.add_row(job.name + star, job.words)
    console.print(Padding(grid, (0, 0, 1, 2)))


def _show_result(console: Console, result: _Result) -> None:
    fit = result.fits[0]
    console.print("[bold]The privacy record[/bold] of the fit in matrix geometry")
    console.print(Padding(str(fit.record), (0, 0, 1, 2)))

    console.print("[bold]Weights[/bold] (a category's are centred to sum to zero)")
    console.print(_weight_table(result, fit.plan.layout))

    console.print(f"[bold]Mean log-loss[/bold] on a fresh table of {FRESH_ROWS:,} rows")
    # Differences are of the numbers that are shown, so that a reader's sums come out.
    losses = {name: round(loss, PLACES) for name, loss in result.losses.items()}
    best = losses["true weights"]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("model")
    table.add_column("log-loss", justify="right")
    table.add_column("above true", justify="right")
    for name, loss in losses.items():
        star = "" if name.startswith("private") else " *"
        table.add_row(name + star, f"{loss:.{PLACES}f}", f"{loss - best:+.{PLACES}f}")
    console.print(table)
    console.print(_verdict(losses, fit))
    console.print(
        "The two private fits have a budget each; on a real table they would share one."
        "\n* Not for a real table: true weights are unknown there, and a fit without "
        "noise, a base rate and a score on private rows all leak."
    )
    console.print(f"{result.seconds:.1f} s")


def _weight_table(result: _Result, layout: Layout) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("coordinate", overflow="fold")
    for name in ("true *", "no privacy *", "private"):
        table.add_column(name, justify="right")
    weights = result.weights()
    for group in layout.groups:
        if group.kind == "code":
            table.add_row(group.name)
        for label in group.labels:
            name = "  " + label.split("=", 1)[1] if group.kind == "code" else label
            values = (f"{value:+.2f}" for value in weights[label].values())
            table.add_row(name, *values)
    return table


def _verdict(losses: dict[str, float], fit: Fit) -> str:
    private, free = losses["private, matrix geometry"], losses["no privacy"]
    gain = losses["base rate alone"] - free
    cost = f"Privacy at ε = {fit.plan.epsilon:g} cost {private - free:+.{PLACES}f} of "
    cost += "log-loss"
    if gain <= 0:
        return f"{cost}; this table is too small to learn from, even without it."
    if private >= losses["base rate alone"]:
        return f"{cost}, all that there was to gain: this budget needs more rows."
    kept = (losses["base rate alone"] - private) / gain
    return f"{cost}: {kept:.0%} of what the model gains over the base rate is kept."
