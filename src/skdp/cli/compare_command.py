"""`skdp compare`: fit a model at several budgets and show them side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skdp.cli.fit_command import fit_file, summarise_fit
from skdp.cli.options import (
    AsJson,
    Delta,
    Encoding,
    Force,
    Ledger,
    MaxRowsPerUnit,
    ModelName,
    Multiline,
    Neighbours,
    NeighboursName,
    Purpose,
    Quiet,
    SchemaFile,
    Seed,
    Table,
    TargetName,
    Unit,
    User,
    check_out,
    choose_model,
    choose_reader,
    escape,
    open_console,
    open_ledger_file,
    print_json,
    read_schema,
    shows_progress,
    silence_compiler,
)

if TYPE_CHECKING:
    from skdp.descent.forecast import Forecast
    from skdp.estimators.fit import PrivateLinearModel
    from skdp.evaluation.results import Evaluation
    from skdp.privacy.budget import PrivacyRecord
    from skdp.schema import Schema

#: Largest number of budgets. More would not fit side by side on a terminal.
MOST = 6
#: The scores by which models are compared. More scores would make each score noisier.
SCORES = ("log_loss", "accuracy", "auc", "r2", "rmse", "mae")
#: Printed below the table, to explain the scores of `Side.format_lines`.
PLUS_MINUS = (
    "±: one standard deviation of the privacy noise, without the sampling error."
)

EXAMPLES = [
    "skdp compare stays.csv --schema stays.toml --epsilon 0.5 --epsilon 1 "
    "--total 1.5 --out models",
]


def compare_command(
    file: Table,
    schema: SchemaFile,
    epsilon: Annotated[
        list[float], typer.Option(help="ε of one fit; repeat for each fit.")
    ],
    total: Annotated[float, typer.Option(help="Largest total ε of fits and scores.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Directory for all models.")],
    score: Annotated[
        float | None,
        typer.Option(help="ε of each model's scores. Without it, no model is scored."),
    ] = None,
    target: TargetName = None,
    delta: Delta = None,
    model: ModelName = None,
    neighbours: NeighboursName = Neighbours.add_remove,
    unit: Unit = None,
    max_rows_per_unit: MaxRowsPerUnit = 1,
    rows: Annotated[
        int | None,
        typer.Option(help="Number of rows, if it is public (add-remove only)."),
    ] = None,
    multiline: Multiline = False,
    encoding: Encoding = "utf-8",
    ledger: Ledger = None,
    purpose: Purpose = None,
    user: User = None,
    seed: Seed = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit at several ε and show the models side by side.

    Every fit and every score spends privacy. Their total cost is computed first, and
    the command stops if that cost exceeds --total. `skdp plan` forecasts what a budget
    buys, and spends nothing.
    """
    from skdp.schema import check

    silence_compiler(as_json, quiet)
    epsilons = sorted(set(epsilon))
    check(
        2 <= len(epsilons) <= MOST,
        f"--epsilon must be given 2 to {MOST} times, got {len(epsilons)}.",
    )
    for budget in epsilons:
        check_out(out / f"epsilon-{budget:g}", force)
    described = read_schema(schema, target, unit)
    found = compare_budgets(
        choose_reader(file, multiline, encoding),
        described,
        epsilons=epsilons,
        total=total,
        score=score,
        out=out,
        model=choose_model(model, described),
        delta=delta,
        neighbours=neighbours.value,
        max_rows_per_unit=max_rows_per_unit,
        n_rows=rows,
        ledger=open_ledger_file(ledger, purpose, user, seed),
        seed=seed,
        verbose=shows_progress(as_json, quiet),
    )
    if as_json:
        print_json(found.to_dict())
    else:
        _show_comparison(found, quiet)


def _show_comparison(found: BudgetComparison, quiet: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    console = open_console(quiet=quiet)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("", overflow="fold")
    for side in found.sides:
        table.add_column(f"ε = {side.epsilon:g}", justify="right")
    lines = [side.format_lines() for side in found.sides]
    for name in lines[0]:
        table.add_row(Text(escape(name)), *(line[name] for line in lines))
    console.print(table)
    for note in found.notes:
        console.print(escape(note), markup=False)
    console.print(f"[bold]{found.claim}[/bold]")
    console.print(f"models  {found.sides[0].out.parent}", markup=False)


def compose_records(records: Sequence[PrivacyRecord], delta: float) -> float:
    """Return the total ε of all releases in the privacy records, at the given δ."""
    from skdp.privacy import accountant

    events = [item for record in records for item in record.events.items()]
    mu = math.sqrt(math.fsum(record.spent for record in records))
    draws = sum(times * event.n_draws for event, times in events)
    extra = math.fsum(times * event.delta for event, times in events)
    return accountant.spent_epsilon(mu, delta, draws, extra)


def compose_budgets(epsilons: Sequence[float], delta: float) -> float:
    """Return the total ε of all fits and scores, before any of them runs.

    `epsilons` holds the budget of each fit and of each evaluation.
    """
    from skdp.privacy import accountant
    from skdp.privacy.budget import ALLOWED_DRAWS

    squares = (accountant.calibrate(e, delta, ALLOWED_DRAWS) ** 2 for e in epsilons)
    draws = ALLOWED_DRAWS * len(epsilons)
    return accountant.spent_epsilon(math.sqrt(math.fsum(squares)), delta, draws)


@dataclass(frozen=True, kw_only=True, eq=False)
class Side:
    """A model fitted at one budget, with its directory, forecast and scores."""

    epsilon: float
    out: Path
    model: PrivateLinearModel
    expected: Forecast
    scored: Evaluation | None

    def format_lines(self) -> dict[str, str]:
        """Return this fit's column of the printed table, as a dict from rows to cells.

        All values are public or released.
        """
        from skdp.descent.forecast import format_cost
        from skdp.estimators.fit_warnings import describe_constant

        seen = self.expected
        cost = format_cost(seen)
        lines = {
            f"expected cost of privacy in {seen.score}": (
                "only a constant" if describe_constant(self.model) else cost
            )
        }
        for name, score in self.list_scores().items():
            lines[name] = f"{score['value']:.4g} ± {score['noise_std']:.1g}"
        for name, coef in self.list_coefficients().items():
            lines[name] = f"{coef:+.3g}"
        return lines

    def list_coefficients(self) -> dict[str, float]:
        """Return the coefficients by name, and by class if there are more than two.

        The coefficients of a column's categories are relative to their mean. With more
        than two classes, they are also relative to the mean over classes. Without this,
        fits with the same predictions could differ by a constant.
        """
        from skdp.estimators.standard_errors import compute_class_effects

        found = compute_class_effects(self.model)[:-1]
        names = [str(name) for name in self.model.get_feature_names_out()]
        marks = [""]
        if found.shape[1] > 1:
            marks = [f" [{level}]" for level in self.model.classes_]
        return {
            f"{name}{mark}": float(coef)
            for name, coefs in zip(names, found, strict=True)
            for mark, coef in zip(marks, coefs, strict=True)
        }

    def list_scores(self) -> dict[str, dict[str, float]]:
        """Return each score's value and the standard deviation of its noise."""
        if self.scored is None:
            return {}
        return {
            name: {"value": score.value, "noise_std": score.noise_std}
            for name, score in self.scored.scores.items()
        }

    def list_records(self) -> list[PrivacyRecord]:
        """Return the privacy record of the fit and, if it was scored, of the scores."""
        scored = [] if self.scored is None else [self.scored.privacy_]
        return [self.model.privacy_, *scored]


@dataclass(frozen=True, kw_only=True, eq=False)
class BudgetComparison:
    """The fits at all budgets, and the δ that they share."""

    sides: list[Side]
    delta: float

    @property
    def spent_epsilon(self) -> float:
        """The ε of all fits and scores together."""
        records = [record for side in self.sides for record in side.list_records()]
        return compose_records(records, self.delta)

    @property
    def seeded(self) -> bool:
        """Whether a seed was set. Anyone who knows it can recompute the noise."""
        records = [record for side in self.sides for record in side.list_records()]
        return any(record.seeded for record in records)

    @property
    def notes(self) -> list[str]:
        """The sentences that explain the numbers shown."""
        from skdp.estimators.summary import note_units

        one = self.sides[0]
        return [*([PLUS_MINUS] if one.list_scores() else []), *note_units(one.model)]

    @property
    def claim(self) -> str:
        """The privacy guarantee of all fits and scores together."""
        if self.seeded:
            return "seeded: no privacy claim"
        return (
            f"({self.spent_epsilon:.6g}, {self.delta:g})-differential privacy for all "
            f"{len(self.sides)} models together"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the claim and the facts about each model, for JSON."""
        return {
            "claim": "none" if self.seeded else "differential privacy",
            "spent_epsilon": None if self.seeded else self.spent_epsilon,
            "delta": self.delta,
            "models": [
                summarise_fit(side.model, side.out)
                | {"expected_privacy_excess": side.expected.privacy_excess}
                | {"expected_range": [side.expected.low, side.expected.high]}
                | {"expected_in": side.expected.score}
                | {"scores": side.list_scores()}
                for side in self.sides
            ],
        }


def compare_budgets(
    file: PathLike[str],
    schema: Schema,
    *,
    epsilons: Sequence[float],
    total: float,
    score: float | None,
    delta: float | None,
    out: Path,
    **options: Any,
) -> BudgetComparison:
    """Fit and score a model at each budget.

    If all fits and scores together would exceed the total, ValueError is raised before
    any of them runs.

    Parameters
    ----------
    file, schema
        The table, and public facts about it.
    epsilons, total : floats
        The ε of each fit, and the largest ε allowed for all fits and scores together.
    score : float, optional
        The ε of each model's scores. If it is None, models are not scored.
    delta : float, optional
        The δ of each fit, which is also the δ of all fits and scores together.
    out : path
        Directory that holds the directories of all models.
    **options
        Further options of `skdp.cli.fit_command.fit_file`.
    """
    from skdp.descent.forecast import forecast
    from skdp.estimators.opening import open_table
    from skdp.privacy.budget import check_budget, default_delta
    from skdp.schema import check

    rows = options["n_rows"]
    if options["neighbours"] != "add-remove":
        rows = open_table(file, None, schema=schema).count_records(options["verbose"])
    delta = default_delta(rows) if delta is None else delta
    scores = [] if score is None else [score] * len(epsilons)
    for epsilon in [*epsilons, *scores]:
        check_budget(epsilon, delta, rows or 1)
        check(epsilon < math.inf, f"--epsilon must be finite, got {epsilon}.")
    spent = compose_budgets([*epsilons, *scores], delta)
    check(
        spent <= total,
        f"The fits and scores would spend ε = {spent:.4g} at δ = {delta:g}, but "
        f"--total is {total:g}.",
    )
    sides = []
    for epsilon in epsilons:
        place = out / f"epsilon-{epsilon:g}"
        options |= {"epsilon": epsilon, "delta": delta, "out": place}
        model = fit_file(file, schema, **options)
        scored = None if score is None else _score_model(model, file, score, options)
        sides.append(
            Side(
                epsilon=epsilon,
                out=place,
                model=model,
                expected=forecast(model.plan_),
                scored=scored,
            )
        )
    return BudgetComparison(sides=sides, delta=delta)


def _score_model(
    model: PrivateLinearModel,
    file: PathLike[str],
    epsilon: float,
    options: dict[str, Any],
) -> Evaluation:
    import skdp
    from skdp.evaluation.metrics import list_metrics

    known = list_metrics(model, model.schema_)
    return skdp.evaluate(
        model,
        file,
        epsilon=epsilon,
        metrics=[name for name in SCORES if name in known],
        delta=options["delta"],
        neighbours=options["neighbours"],
        n_rows=options["n_rows"],
        random_state=options["seed"],
        ledger=options["ledger"],
    )
