"""`skdp audit`: test the privacy of this installation by attacking its own fits."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skdp.cli.options import (
    AsJson,
    Quiet,
    open_console,
    print_json,
    shows_progress,
    silence_compiler,
)

if TYPE_CHECKING:
    from skdp.audit import Audit, OneRun
    from skdp.audit.suite import Setting

EXAMPLES = ["skdp audit", "skdp audit --epsilon 4 --json"]


def audit_command(
    epsilon: Annotated[float, typer.Option(help="The claimed ε to test.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The claimed δ.")] = 1e-6,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Try to refute this installation's privacy claims.

    This takes a few minutes. Every mechanism and several whole fits run many times on
    synthetic neighbouring tables. An attacker who sees everything that was released
    guesses which table was used. Each audit turns its correct guesses into a lower
    bound on ε, with confidence 99.9 %. A bound above the claim is a privacy bug. A
    refuted claim is tested again, and the command exits with 1 if it is refuted twice.
    Noise that is 20 % too small is found with probability 98 %.
    """
    from threadpoolctl import threadpool_limits

    from skdp import HuberRegressor
    from skdp.audit import one_run
    from skdp.audit.suite import list_quick_settings
    from skdp.privacy.budget import check_budget

    check_budget(epsilon, delta, 1)
    silence_compiler(as_json, quiet)
    settings = list_quick_settings(epsilon, delta)
    # Use one BLAS thread. Sums this small gain nothing from more threads, which make
    # them slower on a busy machine.
    with threadpool_limits(1, "blas"):
        found = _run_audits(settings, shows_progress(as_json, quiet))
        model = HuberRegressor(epsilon=epsilon, geometry="diagonal", n_steps=20)
        single = one_run(model.set_params(delta=delta), n_canaries=1000)
    passed = single.passed and all(result.passed for result in found)
    if as_json:
        audits = [result.to_dict() for result in found]
        print_json({"passed": passed, "audits": audits, "one_run": single.to_dict()})
    else:
        _show_audits(found, single, quiet and passed)
    if not passed:
        raise typer.Exit(1)


def _run_audits(settings: list[Setting], show: bool) -> list[Audit]:
    """Run all audits, and show a progress bar on stderr if `show`."""
    from rich.console import Console
    from rich.progress import Progress

    total = sum(setting.n_trials for setting in settings)
    progress = Progress(console=Console(stderr=True), transient=True)
    with progress if show else nullcontext():
        task = progress.add_task("audit", total=total)
        found = []
        for setting in settings:
            named = f"{setting.name}, {setting.neighbours}"
            progress.update(task, description=named)
            found.append(setting.run_and_confirm(lambda n: progress.advance(task, n)))
    return found


def _show_audits(found: list[Audit], single: OneRun, quiet: bool) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    console = open_console(quiet=quiet)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for name in ("audited", "neighbours"):
        table.add_column(name, no_wrap=True)
    for name in ("claim ε", "proved ≥", "trials", "s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for one in found:
        table.add_row(*_format_row(one))
    table.add_row(
        "one fit",
        "zero-out",
        f"{single.epsilon:.3g}",
        f"{single.epsilon_lower:.3g}",
        "1",
        f"{single.seconds:.1f}",
        "holds" if single.passed else "REFUTED",
    )
    console.print(table)
    for one in found:
        for why in one.violations:
            console.print(f"{one.name}, {one.neighbours}: {why}", markup=False)
    console.print(
        'In "one fit", coin flips decided which of a thousand canary rows were in the '
        f"table; {single.n_correct} of {single.n_guesses} guesses were right."
    )
    wrong = sum(not one.passed for one in found) + (not single.passed)
    console.print(
        f"[bold]{wrong} of {len(found) + 1} claims refuted.[/bold] "
        "An audit can refute a claim but not prove it."
    )


def _format_row(one: Audit) -> tuple[Any, ...]:
    return (
        one.name,
        one.neighbours,
        f"{one.epsilon:.3g}",
        f"{one.epsilon_lower:.3g}",
        f"{one.n_trials:,}",
        f"{one.seconds:.1f}",
        "REFUTED" if one.violations else "holds",
    )
