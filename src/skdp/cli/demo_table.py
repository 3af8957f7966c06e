"""The demo's table as files: nobody's data, to try the other commands on."""

from __future__ import annotations

import csv
from pathlib import Path

from skdp.cli.demo_fits import TABLE_SEED
from skdp.datasets import make_hospital
from skdp.schema import toml_files


def write(folder: Path, rows: int) -> list[Path]:
    """Write stays.csv and stays.toml; files that are there already stay."""
    table = make_hospital(rows, TABLE_SEED)
    folder.mkdir(parents=True, exist_ok=True)
    cells, schema = folder / "stays.csv", folder / "stays.toml"
    with cells.open("x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.columns)
        columns = [column.tolist() for column in table.columns.values()]
        for row in zip(*columns, strict=True):
            writer.writerow(["" if cell != cell else cell for cell in row])
    with schema.open("x", encoding="utf-8", newline="\n") as file:
        file.write(toml_files.dumps(table.schema))
    return [cells, schema]
