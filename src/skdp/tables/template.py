"""A schema's form: a table's column names and types, for a person to complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skdp.schema import check
from skdp.schema.toml_files import BLANK, toml_key, toml_string
from skdp.tables import readers
from skdp.tables.source import Kind


def schema_template(table: Any, target: str | None = None) -> str:
    """Write the schema of a table as far as its column names and types tell.

    No cell is read: ranges and categories are public facts that a person must know
    without looking at the records, so they are left as ``"?"``. Not even the
    categories of a categorical type are taken over. `loads` says what is still open.

    Parameters
    ----------
    table : table or path
        Whatever `skdp.tables.batches` takes, if its columns have names.
    target : str, optional
        Name of the column that is to be predicted.
    """
    source = readers.source(table)
    check(
        source.names is not None,
        "A template needs column names: give a frame, a dict or a file.",
    )
    kind_of = dict(zip(source.names or (), source.kinds, strict=True))
    check(
        target is None or target in kind_of,
        f"The table has no column {target!r} to be the target: name one of its own.",
    )
    parts = [_HELP]
    for name, kind in kind_of.items():
        if name != target:
            parts.append(f"[columns.{toml_key(name)}]\n{_BODIES[kind]}")
    if target is not None:
        name = toml_string(target)
        parts.append(f"[target]\nname = {name}\n{_BODIES[kind_of[target]]}")
    return "\n".join(parts)


_HELP = f"""\
# The schema of a table: what is public about it.
#
# Replace every "{BLANK}" by what you know without looking at the records: from a form,
# a standard, a law, the meaning of the column. Do not read it off the data: that
# would be a release of them which no budget pays for.
#
# kind = "numeric"      low, high: the range; values outside are clipped.
#                       Optional: scale = "log", bins, missing, indicator = true.
# kind = "categorical"  levels: the categories, such as ["no", "yes"] or [1, 2, 3].
#                       Optional: other = the level that anything else counts as.
# kind = "vector"       names: several numeric columns; norm: bound of their joint norm.
#
# Delete the columns that are not to be learned from. Turn [columns.NAME] of what is to
# be predicted into [target], with name = "NAME" below it.
"""
_BODIES: Mapping[Kind, str] = {
    "number": f'kind = "numeric"\nlow = "{BLANK}"\nhigh = "{BLANK}"\n',
    "text": f'kind = "categorical"\nlevels = "{BLANK}"\n',
    "category": f'kind = "categorical"\nlevels = "{BLANK}"\n',
    "truth": 'kind = "categorical"\nlevels = [false, true]\n',
    "unknown": f'kind = "{BLANK}"\n# low =\n# high =\n# levels =\n',
    "other": f'kind = "{BLANK}"  # dates and nested values are not read: delete it\n',
}
