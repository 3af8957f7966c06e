"""Count the lines of code that a documented fit runs, by what one must believe of them.

The fit is that of the guide: a CSV file, a schema that names persons, a ledger, and the
default engine. Every file counts as a whole if the fit runs any of its functions.
Comments, docstrings and blank lines do not count.

    python tools/trusted_base.py            # the parts
    python tools/trusted_base.py --list     # with the files
"""

from __future__ import annotations

import argparse
import ast
import io
import tempfile
import tokenize
import warnings
from functools import cache
from pathlib import Path

import pandas as pd
from reading_path import trace

import skdp

ROOT = Path(skdp.__file__).parent
#: Files of privacy/ that a default run does not need: they find, choose or keep things
#: between runs, or are for steps that move only some coordinates.
BESIDE = {
    "privacy/visits.py",
    *("privacy/discovery.py", "privacy/selection.py", "privacy/profiles.py"),
    *("privacy/subsampling.py", "privacy/look.py"),
}
#: What decides what leaves encoded records, on the reference engine.
MECHANISM = [
    path.relative_to(ROOT).as_posix() for path in ROOT.glob("privacy/[!_]*.py")
]
MECHANISM = [*sorted(set(MECHANISM) - BESIDE), "descent/algorithm1.py"]
#: What describes a column, bounds a row and says whose row it is.
DESCRIPTIONS = [
    *(f"schema/{n}.py" for n in ("columns", "schema")),
    "tables/ids.py",
]
REFERENCE = "engines/reference.py"
#: The parts of a documented fit. A file belongs to the first part that has it or the
#: folder that it is in. The last part has all other files.
PARTS = {
    "mechanism": MECHANISM,
    "descriptions of columns, and ids": DESCRIPTIONS,
    "geometry and first releases": [
        *("descent/geometry.py", "descent/matrix.py", "privacy/discovery.py"),
        *("descent/plan.py", "privacy/look.py"),
    ],
    "engine": ["engines/"],
    "opening and encoding": ["tables/", "schema/"],
    "ledger": ["ledger/"],
    "losses, plans and the rest of the descent": ["models/", "descent/"],
    "estimator": [],
}


def count_code_lines(text: str) -> int:
    """Count the lines that hold code: no blank lines, comments or docstrings."""
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT}
    skipped |= {tokenize.DEDENT, tokenize.ENDMARKER, tokenize.ENCODING}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - _find_docstrings(ast.parse(text)))


def _find_docstrings(root: ast.AST) -> set[int]:
    lines: set[int] = set()
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(root):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for before, statement in zip([None, *body], body, strict=False):
            bare = isinstance(statement, ast.Expr)
            bare = bare and isinstance(statement.value, ast.Constant)
            if not (bare and isinstance(statement.value.value, str)):
                continue
            first = before is None and isinstance(node, kinds)
            if first or isinstance(before, ast.Assign | ast.AnnAssign):
                lines |= set(range(statement.lineno, statement.end_lineno + 1))
    return lines


def count_files(files: list[str]) -> int:
    """Count the lines of code of some files of skdp."""
    return sum(count_code_lines((ROOT / file).read_text("utf-8")) for file in files)


@cache
def list_files_of_a_fit(n_rows: int = 1000) -> list[str]:
    """Return the files of skdp whose functions a documented fit runs."""
    data = skdp.make_hospital(n_rows)
    table = pd.DataFrame(dict(data.columns))
    table["patient"] = [f"p{row // 2}" for row in range(n_rows)]
    schema = skdp.Schema(data.schema.columns, target=data.schema.target, unit="patient")
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some fits fall back to a constant
        path = Path(name, "stays.csv")
        table.to_csv(path, index=False)
        ledger = skdp.Ledger(
            Path(name, "stays.ledger"), epsilon=3.0, delta=1e-5, unit="patient"
        )
        # One thread: only the calls of the main thread are seen.
        model = skdp.LogisticRegression(schema=schema, ledger=ledger, n_threads=1)
        calls = trace(lambda: model.fit(path))
    return sorted({file for file, _ in calls})


def divide_into_parts(files: list[str]) -> dict[str, list[str]]:
    """Return the files of each part."""
    parts: dict[str, list[str]] = {part: [] for part in PARTS}
    for file in files:
        places = {file, f"{file.partition('/')[0]}/"}
        own = (part for part, names in PARTS.items() if places & set(names))
        parts[next(own, "estimator")].append(file)
    return parts


def show() -> None:
    """Print the size of each part, and with --list its files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="show the files too")
    listed = parser.parse_args().list
    print(f"run(plan, records), reference engine: {count_files(MECHANISM):,} lines")
    whole = [*MECHANISM, *DESCRIPTIONS, REFERENCE]
    print(f"with descriptions, ids and that engine: {count_files(whole):,} lines")
    files = list_files_of_a_fit()
    print(f"a documented fit: {count_files(files):,} lines in {len(files)} files")
    for part, own in divide_into_parts(files).items():
        print(f"{count_files(own):7,}  {part}")
        if listed:
            print(*(f"         {count_files([one]):5,} {one}" for one in own), sep="\n")


if __name__ == "__main__":
    show()
