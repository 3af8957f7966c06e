"""The order of labels, and a word about those that match no level.

Classes are in the order that scikit-learn gives them, whatever order a schema lists
them in: scorers take ``classes_[1]`` for the positive class and the columns of
``predict_proba`` for sorted labels.

A row whose label is none of the levels adds nothing to any sum, and nothing may be said
of it: its owner would be found out. Counts of the classes, however, are released in
most fits. If they add up to far less than the number of rows, which is public or was
released, then most labels match nothing, and saying so costs no more.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from skdp.schema import Categorical, level_key

#: Share of the rows below which something must be wrong, and the standard deviations of
#: noise by which counts have to be below it.
EXPECTED, SURELY = 0.5, 4.0


def sorted_target(target: Any) -> Any:
    """Return a target's description with its levels sorted, if it has levels.

    The order is that of ``np.unique``: numbers by value, False before True, texts by
    code point. Levels of several types are compared as numpy reads them together, so
    numbers among texts are texts.
    """
    if isinstance(target, tuple):
        name, column = target
        return name, sorted_target(column)
    if not isinstance(target, Categorical):
        return target
    try:
        order = np.argsort(np.array(target.levels), kind="stable").tolist()
    except TypeError:  # objects that numpy cannot compare
        keys = [level_key(level) for level in target.levels]
        order = sorted(range(len(keys)), key=keys.__getitem__)
    return Categorical([target.levels[at] for at in order], target.other)


class UnknownLabelsWarning(UserWarning):
    """Released counts say that most labels are none of the classes."""


def unknown_labels(model: Any) -> str | None:
    """Return a sentence if a fit's released counts are of few of the rows.

    Weights of zero leave rows out on purpose: of weighted fits nothing is said.
    """
    levels = () if model._weighted else getattr(model, "classes_", ())
    query = f"counts of {len(levels)} classes"
    for released in model.privacy_.transcript if len(levels) > 1 else ():
        if released.query != query:
            continue
        rows, counted = model.plan_.n_rows, float(released.values.sum())
        noise = float(np.max(released.noise_std)) * math.sqrt(len(levels))
        if counted + SURELY * noise < EXPECTED * rows:
            share = max(0.0, counted) / rows
            return (
                "The released counts of the classes add up to about "
                f"{share:.0%} of {rows:,} rows: most labels are none of the levels, "
                "and count for nothing. Compare how they are written "
                "('no' is not 'No', 0 is not 'no'), and whether the file is UTF-8."
            )
    return None


def warn_of_unknown_labels(model: Any) -> None:
    """Warn where there is something to say."""
    said = unknown_labels(model)
    if said is not None:
        warnings.warn(said, UnknownLabelsWarning, stacklevel=3)
