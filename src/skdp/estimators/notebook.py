"""What a notebook shows of a model: scikit-learn's diagram and what is promised."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from skdp.planning.plan import default_delta

STYLE = "font-family:sans-serif;font-size:0.9em;margin:0.5em 0 0 0.3em;max-width:60em"


class Shown:
    """Adds the privacy statement to the diagram; comes before ``BaseEstimator``."""

    def _repr_html_inner(self) -> str:
        diagram: Any = super()._repr_html_inner  # type: ignore[misc]
        return f"{diagram()}{promise(self)}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: Any = super()._repr_mimebundle_  # type: ignore[misc]
        shown: dict[str, str] = bundle(**kwargs)
        if "text/html" in shown:  # not where scikit-learn is set to display text
            shown["text/html"] += promise(self)
        return shown


def promise(model: Any) -> str:
    """HTML of what a model has spent, or of what its fit would spend."""
    record = model.__dict__.get("privacy_")
    first, *rest = _planned(model) if record is None else str(record).splitlines()
    lines = "".join(f"<li>{escape(line)}</li>" for line in rest)
    more = "<code>skdp.statement(model)</code> says it in words."
    if record is None:
        more = "<code>skdp.plan(schema, n_rows, epsilon)</code> shows what to expect."
    return (
        f"<details style='{STYLE}'><summary><b>{escape(first)}</b></summary>"
        f"<ul>{lines}<li>{more}</li></ul></details>"
    )


def _planned(model: Any) -> list[str]:
    """What a fit would promise; parameters are not checked before it."""
    delta = "min(1e-6, 1/(10 rows))" if model.delta is None else str(model.delta)
    private_rows = model.neighbours == "add-remove" and model.n_rows is None
    if model.delta is None and private_rows:
        delta = f"{default_delta(None):g}"
    claim = f"A fit will spend ε = {model.epsilon}, δ = {delta}"
    if model.epsilon == math.inf:
        claim = "A fit will add no noise and claim no privacy (epsilon is infinite)"
    elif model.random_state is not None:
        claim = "A fit will claim no privacy (random_state is set)"
    lines = [claim, f"neighbouring tables: {model.neighbours}"]
    if private_rows:
        lines.append("The number of rows is released, for a hundredth of it.")
    if model.ledger is not None:
        lines.append("A ledger is charged first.")
    if model.schema is None and model.bounds is None:
        lines.append("Ranges and categories are found privately, for a tenth of it.")
    return lines
