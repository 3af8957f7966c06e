"""Sort the labels of a target, and give inferred labels a type."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from skdp.schema import Categorical, check, level_key
from skdp.tables.cells import text_number

#: Largest number of classes times the length of the longest. Each character takes four
#: bytes.
MOST_LETTERS = 1 << 22


def check_labels(column: Any) -> None:
    """Refuse labels that would take too much memory as an array.

    numpy takes as much memory for each label as for the longest.
    """
    levels = column.levels if isinstance(column, Categorical) else ()
    longest = max((len(one) for one in levels if isinstance(one, str)), default=0)
    check(
        len(levels) * longest <= MOST_LETTERS,
        f"The number of classes times the length of the longest must be at most "
        f"{MOST_LETTERS:,}, got {len(levels):,} × {longest:,}.",
    )


def sort_target(target: Any) -> Any:
    """Return a target's description with its levels sorted, if it has levels.

    Classes are sorted as scikit-learn sorts them, whatever their order in the schema.
    Scorers take ``classes_[1]`` as the positive class, and expect the columns of
    ``predict_proba`` in the order of sorted labels. Levels are ordered as by
    ``np.unique``: numbers by value, False before True, strings by code point. If levels
    have several types, numpy converts them to one type first, so numbers among strings
    become strings.
    """
    if isinstance(target, tuple):
        name, column = target
        return name, sort_target(column)
    if not isinstance(target, Categorical):
        return target
    check_labels(target)
    try:
        order = np.argsort(np.array(target.levels), kind="stable").tolist()
    except TypeError:  # objects that numpy cannot compare
        keys = [level_key(level) for level in target.levels]
        order = sorted(range(len(keys)), key=keys.__getitem__)
    return Categorical([target.levels[at] for at in order], target.other)


def type_labels(column: Categorical) -> Categorical:
    """Sort released labels, and give them a type that follows from the labels alone.

    The labels true and false become booleans. If all labels are integers, they become
    integers. Otherwise they are strings. The type of the table's column is ignored,
    because one cell can change it: integers become floats if one cell is missing, and
    strings if one cell is not a number.
    """
    check(
        len(column.levels) >= 2,
        "A classifier needs more than one class, but the labels could not be inferred "
        "within the budget. Pass classes=[...] with all possible labels, or use a "
        "regressor if the target is continuous.",
    )
    texts = sorted(str(level) for level in column.levels)
    if set(texts) <= {"false", "true"}:
        return Categorical([False, True])
    values = [_parse_number(text) for text in texts]
    if any(math.isnan(value) for value in values):
        return Categorical(texts)
    check(
        all(math.isinf(v) or v == int(v) for v in values),
        "Unknown label type: continuous. Pass classes=[...] if numbers with decimals "
        "are labels.",
    )
    return Categorical(sorted(values))


def _parse_number(text: str) -> float:
    """Return a label as a number (an exact int for an integer), or nan."""
    digits = text.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and len(digits) <= 18
    return int(text) if plain else text_number(text)
