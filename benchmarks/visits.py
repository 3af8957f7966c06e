"""What fits on coordinates gain if they pay only for the steps a record takes part in.

Two tables: a9a (123 binary columns, a joint bound on rows) and reuters (8,315 words in
one vector). "Every step" is the cost of Theorem P, "visits" that of Theorem V. The
number of steps follows from the noise in both. Run ``make bench NAME=visits``; it takes
about six minutes of one core.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import utility

from skdp.privacy.visits import Visits
from tables import ROOT, load, split

OUT = ROOT / "docs" / "evidence" / "visits.md"
#: Fits by table: options, budgets and seeds.
FITS: dict[str, list[tuple[str, dict[str, Any], tuple[float, ...], int]]] = {
    "a9a": [
        ("default", {}, (0.1, 1.0), 5),
        ("DP-CD", {"solver": "dp_cd"}, (0.1, 1.0), 5),
        ("coordinates", {"sampling": "coordinates"}, (0.1, 1.0), 5),
    ],
    "reuters": [
        ("default", {}, (1.0,), 2),
        ("DP-GCD", {"solver": "dp_gcd"}, (1.0,), 2),
        ("coordinates", {"sampling": "coordinates"}, (1.0,), 1),
    ],
}
PAGE = """\
# What coordinates gain from exact accounting

A record takes part in few of the steps on single coordinates, and pays for those alone
([Theorem V](../guide/theory.md)). The table has the test log-loss of fits that are
charged for every step (Theorem P) and for their visits, under zero-out at δ = 10⁻⁶. The
number of steps follows from the noise in both. Means are over five seeds for a9a, and
two for reuters, or one where no error is shown. `make bench NAME=visits` writes this
page.

| table | method | ε | every step | steps | visits | steps |
|---|---|---|---|---|---|---|
{rows}

The default moves all coordinates in each step, so it does not change. For tables with
more than 1,000 coefficients this is no loss. A pass over single coordinates costs as
much as one full step, and has the same noise. Its steps may be longer by the number of
columns, so it takes fewer passes, but the noise at a given distance from the start is
the same. DP-GCD releases the whole gradient in each step, and its sets follow what was
released. Text gains most: 35 times as many steps on single words cost the same. But
they start at zero and not at a constant, which has 0.2552 on reuters, so they remain
behind the default.
"""


@contextmanager
def _charge_every_step() -> Any:
    """Charge all steps to every record."""

    def of(layout: Any, profile: Any, n_steps: int) -> Visits:
        return Visits(n_steps=n_steps, most=float(n_steps), profile=profile)

    with patch.object(Visits, "of", of):
        yield


def measure(train: Any, test: Any, options: dict[str, Any], epsilon: float, n: int):
    """Return the mean log-loss of n fits, its standard error, and the steps."""
    fits = [
        utility.fit(
            train, epsilon=epsilon, neighbours="zero-out", random_state=seed, **options
        )
        for seed in range(n)
    ]
    scores = [utility.score(model, test) for model in fits]
    error = np.std(scores, ddof=1) / np.sqrt(n) if n > 1 else None
    shown = f"{np.mean(scores):.4f}" + (f" ± {error:.4f}" if n > 1 else "")
    return shown, f"{fits[0].n_iter_:,}"


def main() -> None:
    """Measure all fits, and write the page."""
    warnings.simplefilter("ignore")
    rows = []
    for name, fits in FITS.items():
        train, test = split(load(name))
        for method, options, budgets, n in fits:
            for epsilon in budgets:
                with _charge_every_step():
                    before = measure(train, test, options, epsilon, n)
                after = measure(train, test, options, epsilon, n)
                row = (name, method, f"{epsilon:g}", *before, *after)
                rows.append(f"| {' | '.join(row)} |")
                print(rows[-1], flush=True)
    Path(OUT).write_text(PAGE.format(rows="\n".join(rows)), encoding="utf-8")


if __name__ == "__main__":
    main()
