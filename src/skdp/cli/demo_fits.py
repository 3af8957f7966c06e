"""Make the table and the fits of ``skdp demo``, and print them."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.progress import Progress
from rich.table import Table
from threadpoolctl import threadpool_limits

import skdp
from skdp.cli.options import (
    open_console,
    print_json,
    shows_progress,
    silence_compiler,
)
from skdp.datasets import Dataset, compute_true_margins, make_hospital
from skdp.descent.matrix import Matrix
from skdp.descent.plan import Fit, Plan, run
from skdp.descent.rule import make_default_plan, preset
from skdp.engines.choice import choose_engine
from skdp.estimators.predict import centre_categories
from skdp.models.losses import Logistic
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Records, encode
from skdp.schema import FloatArray, Layout, check, toml_files

#: Seeds of two public tables. Models are fitted to the first table. They are scored on
#: the second, which is called fresh.
TABLE_SEED, FRESH_SEED = 0, 1
FRESH_ROWS, MAX_ROWS = 50_000, 2_000_000
#: Limit on the number of steps times the number of rows, which keeps the demo short. At
#: least 200 steps are always allowed.
DEMO_VISITS = 250_000_000
#: Number of decimals with which a log-loss is printed.
PLACES = 4


def run_demo(
    rows: int, epsilon: float, seed: int | None, as_json: bool, quiet: bool = False
) -> None:
    """Fit the three models of the demo and show the results."""
    check(rows <= MAX_ROWS, f"--rows must be at most {MAX_ROWS:,}, got {rows:,}.")
    started = perf_counter()
    silence_compiler(as_json, quiet)
    layout = make_hospital(1).schema.layout()
    jobs = _plan_fits(layout, rows, epsilon)
    console = open_console(as_json, quiet)
    _show_plan(console, jobs, layout)
    table = make_hospital(rows, TABLE_SEED)
    fresh = make_hospital(FRESH_ROWS, FRESH_SEED)
    records = encode([table.batch], table.schema)
    engine = choose_engine()
    # Use one BLAS thread. Sums this small gain nothing from more threads, which make
    # them slower on a busy machine.
    with (
        threadpool_limits(1, "blas"),
        _show_progress(jobs, shows_progress(as_json, quiet)) as callbacks,
    ):
        fits = [
            run(job.plan, records, engine=engine, random_state=seed, callback=callback)
            for job, callback in zip(jobs, callbacks, strict=True)
        ]
    result = _Result(
        table=table,
        fits=fits,
        losses=_compute_log_losses(table, fresh, fits, records),
        seconds=perf_counter() - started,
    )
    if as_json:
        print_json(result.to_dict())
    else:
        _show_result(console, result)


def save_table(folder: Path, rows: int) -> list[Path]:
    """Write the demo's table to stays.csv and its schema to stays.toml.

    An existing file is never replaced; FileExistsError is raised instead.
    """
    table = make_hospital(rows, TABLE_SEED)
    folder.mkdir(parents=True, exist_ok=True)
    cells, schema = folder / "stays.csv", folder / "stays.toml"
    with cells.open("x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        columns = [column.tolist() for column in table.columns.values()]
        for row in zip(*columns, strict=True):
            writer.writerow(["" if cell != cell else cell for cell in row])
    with schema.open("x", encoding="utf-8", newline="\n") as file:
        file.write(toml_files.dumps(table.schema))
    return [cells, schema]


@dataclass(frozen=True, kw_only=True, eq=False)
class _DemoFit:
    """A fit of the demo: its name, its plan, and a description of the plan."""

    name: str
    plan: Plan
    words: str


def _plan_fits(layout: Layout, rows: int, epsilon: float) -> list[_DemoFit]:
    """Plan the three fits of the demo.

    The first is private and uses the matrix geometry. The second is private and uses
    the paper's method. The third has no privacy.
    """
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
    words = (
        f"{matrix.n_steps} steps on the intercept alone, {_describe_noise(matrix)}, "
        "because the table is too small for more at this ε"
    )
    if isinstance(matrix.geometry, Matrix):
        words = (
            f"{matrix.geometry.share:.1%} of the budget releases the Gram matrix (with "
            f"{matrix.geometry.floor:.3g} added to its eigenvalues), the class counts "
            "and the mean residual; then "
            f"{matrix.n_steps} steps on all {layout.n_features} "
            "coordinates in the metric of that matrix, each record's gradient clipped "
            f"at {matrix.geometry.radius:.3g}, {_describe_noise(matrix)}"
        )
    bound = "its error has no proved bound"
    if paper.n_steps > most:
        bound = f"fewer than the {paper.n_steps:,} of the paper, to keep the demo short"
        paper = replace(paper, n_steps=most, rate=None)
    elif paper.rate is not None:
        bound = (
            f"predicted: expected excess of the mean loss ≤ {paper.rate.bound:.3g}, if "
            "each column's true weights have norm ≤ 1"
        )
    steps = (
        f"{paper.n_steps:,} steps, each on one of the {len(layout.groups)} columns "
        f"drawn at random, {_describe_noise(paper)}; {bound}"
    )
    exact = make_default_plan(layout, loss, n_rows=rows)
    return [
        _DemoFit(name="private, matrix geometry", plan=matrix, words=words),
        _DemoFit(name="private, DP-SkGD of the paper", plan=paper, words=steps),
        _DemoFit(
            name="no privacy",
            plan=exact,
            words=f"{exact.n_steps} exact steps, for comparison",
        ),
    ]


def _describe_noise(plan: Plan) -> str:
    budget = PrivacyRecord(
        epsilon=plan.epsilon, delta=plan.delta, neighbours=plan.neighbours
    )
    return f"noise multiplier {plan.noise_multiplier(budget.budget):.4g}"


@contextmanager
def _show_progress(
    jobs: list[_DemoFit], show: bool
) -> Iterator[list[Callable[[object], None]]]:
    """Show a progress bar for each fit on stderr, and yield a callback for each bar."""
    # `disable` alone prints an empty line at the end in older versions of rich.
    console = Console(stderr=True, quiet=not show)
    with Progress(console=console, transient=True, disable=not show) as bars:

        def callback(job: _DemoFit) -> Callable[[object], None]:
            bar = bars.add_task(job.name, total=job.plan.n_steps)
            return lambda step: bars.advance(bar)

        yield [callback(job) for job in jobs]


def _compute_log_losses(
    table: Dataset, fresh: Dataset, fits: list[Fit], records: Records
) -> dict[str, float]:
    """Return the mean log-loss of each model on the fresh table.

    Two models are added for comparison: the true weights, and the base rate alone.
    """
    judge = encode([fresh.batch], fresh.schema)
    target = np.concatenate([chunk.target for chunk in judge.chunks])

    def loss(weights: FloatArray) -> float:
        return float(
            np.mean(Logistic().value(compute_true_margins(judge, weights), target))
        )

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

    def list_weights(self) -> dict[str, dict[str, float]]:
        """Return each coordinate's true, non-private and private weight."""
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
        """Return the results of the demo as plain values, for JSON."""
        return {
            "skdp": skdp.__version__,
            "synthetic": True,
            "n_rows": self.fits[0].plan.n_rows,
            "privacy": _describe_record(self.fits[0].record),
            "weights": self.list_weights(),
            "log_loss": self.losses,
            "seconds": round(self.seconds, 3),
        }


def _describe_record(record: PrivacyRecord) -> dict[str, Any]:
    """Return a record's claim and its list of releases, without released values."""
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


def _show_plan(console: Console, jobs: list[_DemoFit], layout: Layout) -> None:
    plan = jobs[0].plan
    console.print(
        "This is a synthetic table of hospital stays, so the demo can show everything. "
        "Lines marked * could not be shown for real private data.\n"
    )
    console.print("[bold]The plan[/bold], made before any record is read")
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

    console.print("[bold]Weights[/bold] (those of a categorical column sum to zero)")
    console.print(_make_weight_table(result, fit.plan.layout))

    console.print(f"[bold]Mean log-loss[/bold] on a fresh table of {FRESH_ROWS:,} rows")
    # Subtract rounded losses, so the printed differences agree with the printed losses.
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
    console.print(_describe_cost(losses, fit))
    console.print(
        "Each private fit has its own budget here; on a real table they would share "
        "one.\n* Not possible for a real table. Its true weights are unknown. A fit "
        "without noise, a base rate and a score on private rows would reveal records."
    )
    console.print(f"{result.seconds:.1f} s")


def _make_weight_table(result: _Result, layout: Layout) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("coordinate", overflow="fold")
    for name in ("true *", "no privacy *", "private"):
        table.add_column(name, justify="right")
    weights = result.list_weights()
    for group in layout.groups:
        if group.kind == "code":
            table.add_row(group.name)
        for label in group.labels:
            name = "  " + label.split("=", 1)[1] if group.kind == "code" else label
            values = (f"{value:+.2f}" for value in weights[label].values())
            table.add_row(name, *values)
    return table


def _describe_cost(losses: dict[str, float], fit: Fit) -> str:
    private, free = losses["private, matrix geometry"], losses["no privacy"]
    gain = losses["base rate alone"] - free
    cost = (
        f"Privacy at ε = {fit.plan.epsilon:g} changed the log-loss by "
        f"{private - free:+.{PLACES}f}."
    )
    if gain <= 0:
        return f"{cost} This table is too small to learn from, even without privacy."
    if private >= losses["base rate alone"]:
        return (
            f"{cost} The private model is no better than the base rate. Use more rows."
        )
    kept = (losses["base rate alone"] - private) / gain
    return f"{cost} The private model keeps {kept:.0%} of the gain over the base rate."
