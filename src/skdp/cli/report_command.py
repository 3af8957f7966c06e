"""`skdp report`: write a page about a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from skdp.cli.options import (
    AsJson,
    Force,
    Quiet,
    check_out,
    escape,
    print_json,
    write_out,
)

EXAMPLES = [
    "skdp report model",
    "skdp report model --out for-the-officer.html --ledger ledger.sqlite",
    "skdp report model --out README.md",
    "skdp report model --out registry.yaml",
]


def report_command(
    model: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory of the saved model.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to write: .html is a page, .md and .json are model cards, .yaml "
            "is a registry entry.  [default: DIR.html]",
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The ledger that the fit was charged to."),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write a page or a model card about a saved model.

    The page says what was fitted, what is guaranteed under which assumptions, how the
    budget was spent, how certain each coefficient is, what more rows or a larger budget
    would change, and how to check all of it. It is one HTML file that loads nothing and
    runs no script. With --out FILE.md or FILE.json, a model card for a model hub is
    written instead, and with --out FILE.yaml an entry for the registry of deployments
    of differential privacy, in which open questions are marked. The privacy record is
    verified first, and nothing is written if a check fails.
    """
    from skdp.reporting import deployment_entry, model_card
    from skdp.reporting.report import read_subject, render_page
    from skdp.schema import check

    check(model.is_dir(), f"There is no saved model {str(model)!r}.")
    check(ledger is None or ledger.is_file(), f"There is no ledger {str(ledger)!r}.")
    if out is None:
        named = model if model.name not in ("", "..") else model.resolve()
        out = named.with_name(f"{named.name}.html")
    check(
        out.suffix in (".html", ".htm", ".md", ".json", ".yaml"),
        f"--out must end in .html, .md, .json or .yaml, got {str(out)!r}.",
    )
    check_out(out, force)
    about = read_subject(model, ledger)
    if out.suffix in (".md", ".json"):
        card = model_card.make_card(about)
        as_text = out.suffix == ".md"
        write = model_card.render_markdown if as_text else model_card.render_json
        write_out(out, write(card))
    elif out.suffix == ".yaml":
        entry = deployment_entry.make_entry(about)
        write_out(out, deployment_entry.render_entry(entry))
    else:
        write_out(out, render_page(about))
    claim = str(about.record).partition("\n")[0]
    if as_json:
        print_json(
            {
                "out": str(out),
                "claim": claim,
                "claims": about.claims,
                "epsilon": about.record.spent_epsilon,
                "delta": about.record.delta,
            }
        )
    elif not quiet:
        typer.echo(escape(f"{claim}\nreport written to {out}"))
