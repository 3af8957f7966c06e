"""Only released values tell tables apart that differ in one record.

What is shown, how it ends and what is written are compared for pairs of files. Where
noise decides what is written, its shape is: names, keys, lengths, counts.
"""

import json
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runs import command, files

from skdp import Ledger

USUAL = [["1", "a", "0"], ["2", "b", "1"]] * 20
ODD = [
    *("", "nan", "-1e999", "9" * 5000, "\0", '"', 'a"b', "\ud800", "é"),
    *("\ufeff", "0x1", "secret", "x" * 99_999),
]


def csv(rows):
    cells = [["age", "job", "y"], *rows]
    quoted = [[cell.replace('"', '""').join('""') for cell in row] for row in cells]
    return "\n".join(map(",".join, quoted)).encode("utf-8", "surrogatepass")


def shape(value):
    """The content of a JSON file without its numbers."""
    if isinstance(value, dict):
        return {key: shape(part) for key, part in value.items()}
    if isinstance(value, list):
        return [shape(part) for part in value]
    return type(value).__name__ if isinstance(value, float) else value


def traces(file, *neighbours, options=()):
    """Return all that a fit shows and leaves behind, except noisy numbers."""
    for path in Path("l.db"), *Path().glob("l.db-*"):
        path.unlink(missing_ok=True)
    neighbours = neighbours or ("--neighbours", "replace-one")
    Ledger("l.db", epsilon=4.0, delta=1e-4, neighbours=neighbours[-1])
    fit = ["fit", file, "--schema", "s.toml", "--epsilon", "1", "--delta", "1e-4"]
    shown = command(
        *fit, "--out", "m", "--force", "--ledger", "l.db", *options, *neighbours
    )
    model = {
        name: json.loads(text) if name.endswith("json") else text.decode()
        for name, text in files("m").items()
    }
    model["model.json"] = shape(model["model.json"])
    model["schema.toml"] = shape(tomllib.loads(model["schema.toml"]))
    del model["privacy.json"]["transcript_digest"]  # of noisy numbers
    entries = [entry.values() for entry in Ledger("l.db").entries()]
    for entry in entries:
        del entry["time"], entry["released"]
    return shown, model, entries


def same(cells):
    """Whether a list has one value, the odd one being left out of a report."""
    return [at for at, trace in cells.items() if trace != cells["usual"]] == []


@pytest.mark.parametrize("column", range(3))
def test_one_odd_cell_of_a_csv_file(place, column):
    found = {}
    for cell in ["usual", *ODD]:
        rows = [list(row) for row in USUAL]
        if cell != "usual":
            rows[7][column] = cell
        Path("t.csv").write_bytes(csv(rows))
        found[cell] = traces("t.csv")
    assert found["usual"][0][0] == 0
    assert same(found)


@pytest.mark.parametrize("options", [[], ["--multiline"]])
def test_line_ends_inside_quotes_where_they_are_asked_for(place, options):
    """Else a line is a record: an open quote takes in no line of another."""
    Path("t.csv").write_bytes(csv(USUAL))
    usual = traces("t.csv", options=options)
    lines = csv(USUAL).split(b"\n")
    lines[7] = b'"a\nb","a","1"' if options else b'"1,a,0'
    Path("t.csv").write_bytes(b"\n".join(lines))
    assert traces("t.csv", options=options) == usual


@pytest.mark.parametrize(
    "record", [[], ["1"], ["1"] * 9, ["", "", ""], ["1", "a", "0"]]
)
def test_one_odd_record_of_a_csv_file(place, record):
    Path("t.csv").write_bytes(csv(USUAL))
    usual = traces("t.csv")
    Path("t.csv").write_bytes(csv([*USUAL[:7], record, *USUAL[8:]]))
    assert traces("t.csv") == usual


@pytest.mark.parametrize("most", [1, 40])
def test_one_record_more(place, most):
    """Under add-remove the number of rows does not show: it is released, or given."""
    found = {}
    for rows in (most - 1, most):
        Path("t.csv").write_bytes(csv(USUAL[:rows]))
        fit = traces("t.csv", "--rows", "40", "--neighbours", "add-remove")
        found["usual" if rows == most else rows] = fit
    assert found["usual"][0][0] == 0
    assert same(found)


@pytest.mark.parametrize("column", range(2))
def test_one_odd_cell_of_a_parquet_file(place, column):
    found = {}
    for cell in ["usual", None, float("nan"), float("-inf"), "", "é"]:
        columns = {"age": [1.0, 2.0] * 20, "job": ["a", "b"] * 20, "y": [0, 1] * 20}
        name = ("age", "job")[column]
        kind = (float, str)[column]
        if cell is None or (cell != "usual" and isinstance(cell, kind)):
            columns[name][7] = cell
        pq.write_table(pa.table(columns), "t.parquet")
        found[cell] = traces("t.parquet")
    assert found["usual"][0][0] == 0
    assert same(found)


@pytest.mark.parametrize("words", [["schema"], ["fit", "--schema", "bad.toml"]])
def test_refusals_are_of_the_public_part(place, words):
    """Errors about the schema or the options are the same for all records."""
    Path("bad.toml").write_text("[columns.none]\nkind = 'numeric'\nlow = 0\nhigh = 1\n")
    told = set()
    for cell in ("1", *ODD):
        rows = [*USUAL[:7], [cell, "a", "0"], *USUAL[8:]]
        Path("t.csv").write_bytes(csv(rows))
        more = ["--epsilon", "1", "--out", "m", "--target", "y"] if words[1:] else []
        told.add(command(words[0], "t.csv", *words[1:], *more))
    assert len(told) == 1
