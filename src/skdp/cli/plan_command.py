"""`skdp plan`: forecast what a budget buys, without reading any data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skdp.cli.options import (
    AsJson,
    Delta,
    Epsilon,
    Force,
    MaxRowsPerUnit,
    ModelName,
    Neighbours,
    NeighboursName,
    NoLook,
    Quiet,
    SchemaFile,
    TargetName,
    Unit,
    check_out,
    choose_model,
    open_console,
    print_json,
    read_schema,
    write_out,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from skdp.descent.plan import Plan

#: Values of ε to show in addition to the requested one.
OTHERS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
#: Largest length of a bar, and the gap between numbers and bars, in characters.
LONGEST, GAP = 28, 3
CONSTANT = "only a constant"

EXAMPLES = [
    "skdp plan --schema stays.toml --rows 50000",
    "skdp plan --schema stays.toml --rows 50000 --epsilon 0.5 --out plan.json",
]


def plan_command(
    schema: SchemaFile,
    rows: Annotated[
        int,
        typer.Option(
            help="Number of rows, or of persons with --unit. Guess it if it is private."
        ),
    ],
    epsilon: Epsilon = 1.0,
    delta: Delta = None,
    target: TargetName = None,
    model: ModelName = None,
    neighbours: NeighboursName = Neighbours.add_remove,
    unit: Unit = None,
    max_rows_per_unit: MaxRowsPerUnit = 1,
    no_look: NoLook = False,
    out: Annotated[
        Path | None, typer.Option(metavar="JSON", help="File to write the plan to.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Show what a fit would do and how accurate it may be. No data is read."""
    check_out(out, force)
    described = read_schema(schema, target, unit)
    chosen = choose_model(model, described)

    import skdp  # only now, because estimators are slow to import
    from skdp.descent.forecast import forecast
    from skdp.engines.choice import name_engine

    def make_plan(budget: float) -> Plan:
        return skdp.plan(
            described,
            rows,
            budget,
            delta,
            chosen,
            neighbours=neighbours.value,
            max_rows_per_unit=max_rows_per_unit,
            look=not no_look,
        )

    asked = make_plan(epsilon)
    budgets = sorted({*OTHERS, epsilon} - {math.inf})
    plans = {budget: make_plan(budget) for budget in budgets}
    # A constant model has no forecast. Its error depends on how much the columns would
    # have explained, which a plan does not know.
    forecasts = {
        budget: None if made.geometry.is_constant else forecast(made)
        for budget, made in plans.items()
    }
    if out is not None:
        write_out(out, asked.to_json())
    if as_json:
        print_json(
            {
                "model": chosen,
                "n_rows": rows,
                "n_coefficients": asked.layout.n_features,
                "epsilon": epsilon,
                "delta": asked.delta,
                "neighbours": neighbours.value,
                "score": forecast(asked).score,
                "n_steps": asked.n_steps * asked.n_restarts,
                "engine": name_engine(),
                "in_words": str(asked),
                "forecasts": [
                    {
                        "epsilon": budget,
                        "only_a_constant": seen is None,
                        "privacy_excess": seen and seen.privacy_excess,
                        "privacy_excess_low": seen and seen.low,
                        "privacy_excess_high": seen and seen.high,
                        "sampling_excess": seen and seen.sampling_excess,
                    }
                    for budget, seen in forecasts.items()
                ],
                "out": None if out is None else str(out),
            }
        )
        return
    console = open_console(quiet=quiet)
    console.print(str(asked), markup=False)
    longest = _measure_room(console, _make_forecast_table(forecasts, epsilon, 0))
    scale = ", on a log scale" if longest else ""
    score = forecast(asked).score
    console.print(f"\nWhat ε buys: the expected cost in {score}{scale}")
    console.print(_make_forecast_table(forecasts, epsilon, longest))
    console.print(
        ("█ privacy, ░ sampling error. " if longest else "")
        + ("–: only a constant. " if not longest and None in forecasts.values() else "")
        + "This is a forecast from public facts and from experience with other tables, "
        "not a bound. In 80 % of fits, the cost of privacy lies in the range shown."
    )


def _measure_room(console: Console, numbers: Table) -> int:
    """Return how many characters are left for bars beside the numbers.

    Return 0, which means no bars, if the terminal is too narrow.
    """
    wide = console.options.update(width=1000)
    room = console.width - console.measure(numbers, options=wide).maximum - GAP
    return min(room, LONGEST) if room >= len(CONSTANT) else 0


def _make_forecast_table(
    forecasts: dict[float, Any], asked: float, longest: int
) -> Table:
    """Make the table of forecasts, with bars of up to `longest` characters.

    If `longest` is 0, the table has no bars.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from skdp.descent.forecast import format_cost

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("ε", "privacy", "sampling", *([""] if longest else [])):
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    totals = [seen.excess for seen in forecasts.values() if seen] or [1.0]
    low, high = math.log(min(totals) / 2), math.log(max(totals))
    for budget, seen in forecasts.items():
        cells, bar = ["–"] * 2, CONSTANT
        if seen is not None:
            cells = [format_cost(seen), f"{seen.sampling_excess:.1g}"]
            length = longest * (math.log(seen.excess) - low) / (high - low)
            bar = _draw_bar(max(1, round(length)), seen.privacy_excess / seen.excess)
        mark = "→ " if budget == asked else ""
        table.add_row(f"{mark}{budget:g}", *cells, *([bar] if longest else []))
    return table


def _draw_bar(length: int, share: float) -> str:
    private = round(length * share)
    return "█" * private + "░" * (length - private)
