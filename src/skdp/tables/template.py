"""Write a template of a schema, for a person to complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skdp.schema import check
from skdp.schema.toml_files import BLANK, write_toml
from skdp.tables import readers
from skdp.tables.readers import Kind


def schema_template(table: Any, target: str | None = None) -> str:
    """Return a template of a table's schema, made from column names and types alone.

    No cell is read. Ranges and categories are public facts that a person must know
    without looking at the records, so they are left as ``"?"``. The categories of a
    categorical type are not copied either. `loads` reports the entries that are still
    missing.

    Parameters
    ----------
    table : table or path
        A table that `skdp.tables.batches` takes and whose columns have names, or a Dask
        data frame.
    target : str, optional
        Name of the column to predict.
    """
    if type(table).__module__.partition(".")[0] == "dask":
        table = table._meta  # a frame of pandas, without rows
    source = readers.open_source(table)
    check(
        source.names is not None,
        "A template requires column names. Pass a frame, a dict or a file.",
    )
    kind_of = dict(zip(source.names or (), source.kinds, strict=True))
    check(
        target is None or target in kind_of,
        f"The table has no column {target!r}. Its columns are {', '.join(kind_of)}.",
    )
    parts = [_HELP]
    for name, kind in kind_of.items():
        if name != target:
            body, comment = _BODIES[kind]
            parts.append(write_toml({"columns": {name: body}}) + comment)
    if target is not None:
        body, comment = _BODIES[kind_of[target]]
        parts.append(write_toml({"target": {"name": target} | body}) + comment)
    return "\n".join(parts)


_HELP = f"""\
# The schema of a table lists its public facts.
#
# Replace each "{BLANK}" by a fact that you know without looking at the records, from a
# form, a standard, a law, or the meaning of the column. Do not take it from the data.
# This would reveal something about the records that the privacy budget does not cover.
#
# kind = "numeric"      low, high: the range; values outside are clipped.
#                       Optional: scale = "log", bins, missing, indicator = true.
# kind = "categorical"  levels: the categories, such as ["no", "yes"] or [1, 2, 3].
#                       Optional: other = the level for all other values.
# kind = "vector"       names: several numeric columns; norm: a bound on their norm.
#
# Delete the columns that the model should not use. For the column to predict, replace
# [columns.NAME] by [target], with name = "NAME" below it.
"""
_CATEGORICAL = {"kind": "categorical", "levels": BLANK}
#: For each kind of column, its TOML table and a comment to write below the table.
_BODIES: Mapping[Kind, tuple[dict[str, Any], str]] = {
    "number": ({"kind": "numeric", "low": BLANK, "high": BLANK}, ""),
    "float": ({"kind": "numeric", "low": BLANK, "high": BLANK}, ""),
    "text": (_CATEGORICAL, ""),
    "category": (_CATEGORICAL, ""),
    "float category": (_CATEGORICAL, ""),
    "truth": ({"kind": "categorical", "levels": [False, True]}, ""),
    "unknown": ({"kind": BLANK}, "# low =\n# high =\n# levels =\n"),
    "other": (
        {"kind": BLANK},
        "# Dates and nested values cannot be read. Delete this column.\n",
    ),
}
