"""Finished cells in lines of JSON, and rows of numbers in CSV files."""

import csv
import json
from pathlib import Path
from typing import Any

Rows = list[dict[str, Any]]


def key(cell: dict[str, Any]) -> str:
    """The cell itself, written in one way: what it is found again by."""
    return json.dumps(cell, sort_keys=True)


def append(path: Path, cell: dict[str, Any], rows: Rows, seconds: float) -> None:
    """Keep a finished cell, with the CPU seconds that it took."""
    line = json.dumps({"cell": cell, "rows": rows, "seconds": seconds})
    with path.open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")  # on a line of its own, even after a stop


def lines(path: Path) -> list[dict[str, Any]]:
    """Finished cells; a last line that a stop has cut short is not one."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def finished(path: Path) -> set[str]:
    """Keys of the cells that are finished."""
    return {key(line["cell"]) for line in lines(path)}


def collected(path: Path, cells: set[str]) -> tuple[Rows, float]:
    """Rows of those of some cells that are finished, and the CPU seconds of them."""
    once = {key(line["cell"]): line for line in lines(path)}
    kept = [once[k] for k in sorted(once) if k in cells]
    rows = [row for line in kept for row in line["rows"]]
    return rows, sum(line["seconds"] for line in kept)


def restore(path: Path, folder: Path, figure: str, cells: Rows) -> None:
    """Append the cells that a figure's CSV holds to its finished cells.

    Their time is their share of the time that was noted for the figure.
    """
    source, times = folder / f"{figure}.csv", folder / "times.csv"
    if not source.exists():
        return
    rows, by_names = read_csv(source), {}
    for names in {tuple(sorted(cell)) for cell in cells}:
        index = by_names[names] = {}
        for row in rows:
            if row.keys() >= set(names):
                index.setdefault(tuple(row[name] for name in names), []).append(row)
    kept = []
    for cell in cells:
        names = tuple(sorted(cell))
        values = tuple(value(shown(cell[name])) for name in names)
        kept.append((cell, by_names[names].get(values, [])))
    noted = read_csv(times) if times.exists() else []
    minutes = {row["figure"]: row["core_minutes"] for row in noted}.get(figure, 0.0)
    each = 60.0 * minutes / max(1, sum(bool(found) for _, found in kept))
    done = finished(path)
    for cell, found in kept:
        if found and key(cell) not in done:
            append(path, cell, found, each)


def shown(value: Any) -> str:
    """A number with six digits; other values as they are."""
    if isinstance(value, bool) or not isinstance(value, float):
        return "" if value is None else str(value)
    return f"{value:.6g}"


def write_csv(path: Path, rows: Rows) -> None:
    """Write rows, in the order of their values; a missing key is an empty field."""
    header = list(dict.fromkeys(name for row in rows for name in row))
    kinds = {
        name: any(isinstance(row.get(name), str) for row in rows) for name in header
    }

    def order(row: dict[str, Any]) -> list[Any]:
        return [
            ("" if kinds[name] else float("-inf"))
            if row.get(name) is None
            else str(row[name])
            if kinds[name]
            else row[name]
            for name in header
        ]

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for row in sorted(rows, key=order):
            writer.writerow([shown(row.get(name)) for name in header])


def read_csv(path: Path) -> Rows:
    """Read rows again; empty fields are left out."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {name: value(field) for name, field in row.items() if field != ""}
            for row in csv.DictReader(file)
        ]


def value(field: str) -> Any:
    """A whole number, a number, or the text."""
    for kind in (int, float):
        try:
            return kind(field)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(field, field)


def note_time(path: Path, figure: str, seconds: float) -> None:
    """Keep how long a figure's cells took, beside those of other figures."""
    known = {row["figure"]: row for row in read_csv(path)} if path.exists() else {}
    known[figure] = {"figure": figure, "core_minutes": round(seconds / 60, 2)}
    write_csv(path, list(known.values()))
