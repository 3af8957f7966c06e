"""`skdp fit`: fit a private model to a file and save it as a directory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skdp.cli.options import (
    AsJson,
    Cluster,
    Delta,
    Encoding,
    Epsilon,
    Exposure,
    Force,
    Ledger,
    MaxExposure,
    MaxRowsPerUnit,
    ModelName,
    Multiline,
    Neighbours,
    NeighboursName,
    NoLook,
    Offset,
    Purpose,
    Quiet,
    SchemaFile,
    Seed,
    Table,
    TargetName,
    Threads,
    Unit,
    User,
    check_out,
    choose_cluster,
    choose_model,
    choose_reader,
    open_console,
    open_ledger_file,
    print_json,
    read_exposure,
    read_schema,
    shows_progress,
    silence_compiler,
)

if TYPE_CHECKING:
    import skdp
    from skdp.estimators.fit import PrivateLinearModel
    from skdp.schema import Schema

#: Largest ε without a warning. Larger values hardly protect anyone in practice.
MOST = 10

EXAMPLES = [
    "skdp fit stays.csv --schema stays.toml --epsilon 1 --out model",
    "skdp fit stays.parquet --schema stays.toml --epsilon 0.5 --force --out model",
    "skdp fit visits.csv --schema visits.toml --model poisson --exposure years "
    "--max-exposure 5 --epsilon 1 --out model",
    "skdp fit stays/ --schema stays.toml --epsilon 1 --cluster host:8786 --out model",
]


def fit_command(
    file: Table,
    schema: SchemaFile,
    epsilon: Epsilon,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory to save the model in.")
    ],
    target: TargetName = None,
    delta: Delta = None,
    model: ModelName = None,
    neighbours: NeighboursName = Neighbours.add_remove,
    unit: Unit = None,
    max_rows_per_unit: MaxRowsPerUnit = 1,
    exposure: Exposure = None,
    offset: Offset = None,
    max_exposure: MaxExposure = None,
    rows: Annotated[
        int | None,
        typer.Option(
            help="Number of rows, or of persons with --unit, if it is public. "
            "Without it, fits under add-remove release this number with noise."
        ),
    ] = None,
    multiline: Multiline = False,
    encoding: Encoding = "utf-8",
    ledger: Ledger = None,
    purpose: Purpose = None,
    user: User = None,
    seed: Seed = None,
    threads: Threads = None,
    cluster: Cluster = None,
    no_look: NoLook = False,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Fit a private model to CSV, Parquet or Feather files.

    The file may be larger than memory. Everything that is printed or saved is public,
    or was released with noise and charged to the budget.
    """
    from skdp.reporting.statement import describe_neighbours

    silence_compiler(as_json, quiet)
    check_out(out, force)
    described = read_schema(schema, target, unit)
    made = fit_file(
        choose_reader(file, multiline, encoding),
        described,
        model=choose_model(model, described),
        epsilon=epsilon,
        delta=delta,
        neighbours=neighbours.value,
        max_rows_per_unit=max_rows_per_unit,
        max_weight=1.0 if max_exposure is None else max_exposure,
        given=read_exposure(exposure, offset, max_exposure),
        n_rows=rows,
        ledger=open_ledger_file(ledger, purpose, user, seed),
        seed=seed,
        n_threads=threads,
        look=not no_look,
        engine=choose_cluster(cluster),
        verbose=shows_progress(as_json, quiet),
        out=out,
    )
    if as_json:
        print_json(summarise_fit(made, out))
        return
    console = open_console(quiet=quiet)
    claim, tables, *_ = str(made.privacy_).splitlines()
    hidden = describe_neighbours(made.privacy_)
    hidden = f" ({hidden})" if made.privacy_.unit is None else f": {hidden}"
    console.print(f"[bold]{claim}[/bold]\n{tables}{hidden}")
    if MOST < epsilon < math.inf and seed is None:  # otherwise nothing is claimed
        console.print(
            f"ε = {epsilon:g} hardly protects anyone. Choose {MOST} or less (see "
            "Choose ε in the docs).",
            markup=False,
        )
    if (limit := find_limit(made)) is not None:
        console.print(limit, markup=False)
    console.print(f"model  {out}", markup=False, soft_wrap=True)
    for line in (
        f"next   skdp summary {out}",
        f"       skdp predict {out} NEW.csv --out predictions.csv",
    ):
        console.print(line, markup=False, soft_wrap=True)


def fit_file(
    file: PathLike[str],
    schema: Schema,
    *,
    model: str,
    ledger: skdp.Ledger | None,
    given: Mapping[str, Any] | None = None,
    **options: Any,
) -> PrivateLinearModel:
    """Fit a model to a file and save it.

    Parameters
    ----------
    file : path
        The table.
    schema : Schema
        Public facts about the table, including the name of its target.
    model : str
        The short name of an estimator, as `skdp.plan` takes it.
    ledger : Ledger, optional
        The ledger to charge.
    given : mapping, optional
        Further arguments of ``fit``, such as the exposure.
    **options
        ``out`` is the directory to save the model in, and ``seed`` is the estimator's
        ``random_state``. All others are parameters of the estimator.

    Returns
    -------
    PrivateLinearModel
        The fitted model.
    """
    from skdp.estimators import saving
    from skdp.estimators.additive import find_estimator
    from skdp.schema import check

    out, seed = options.pop("out"), options.pop("seed")
    check(
        not out.exists() or saving.is_model(out),
        f"--force replaces only saved models, but {str(out)!r} is not a saved model.",
    )
    made = find_estimator(model, schema)(
        schema=schema, random_state=seed, ledger=ledger, **options
    )
    if given:
        check(
            model == "poisson",
            f"--{next(iter(given))} requires --model poisson, got {model}.",
        )
    made.fit(file, **(given or {}))
    try:
        made.save(out)
    except (OSError, KeyboardInterrupt) as error:
        error.add_note(
            f"The model could not be saved in {str(out)!r} and is lost. The budget "
            f"of this fit stays spent:\n{made.privacy_}"
        )
        raise
    return made


def find_limit(model: PrivateLinearModel) -> str | None:
    """Return the most important warning about a new fit, or None if there is none.

    Warnings about unknown labels come first. Then come columns whose schema contradicts
    released sums, and last a budget that supports only a constant model.
    """
    from skdp.estimators.fit_warnings import (
        describe_constant,
        describe_doubts,
        describe_unknown_labels,
    )

    limits = [
        describe_unknown_labels(model),
        *describe_doubts(model),
        describe_constant(model),
    ]
    return next((limit for limit in limits if limit is not None), None)


def summarise_fit(model: PrivateLinearModel, out: Path) -> dict[str, Any]:
    """Return the facts about a fitted model that --json prints."""
    import numpy as np

    record = model.privacy_
    claims = not record.seeded and record.budget < math.inf
    names = [str(name) for name in model.get_feature_names_out()]
    coef = np.atleast_2d(model.coef_)
    intercept = np.atleast_1d(np.asarray(model.intercept_))
    return {
        "model": type(model).__name__,
        "out": str(out),
        "claim": "differential privacy" if claims else "none",
        "seeded": record.seeded,
        "epsilon": record.epsilon,
        "delta": record.delta,
        "spent_epsilon": record.spent_epsilon if claims else None,
        "neighbours": record.neighbours,
        "unit": record.unit,
        "note": find_limit(model),
        "assumptions": list(record.assumptions),
        "coefficients_of": "coef_, in which the weights of categories are not centred. "
        "For centred weights and standard errors, run skdp summary --json.",
        "coefficients": [
            dict(zip(names, map(float, row), strict=True)) for row in coef
        ],
        "intercept": intercept.tolist(),
    }
