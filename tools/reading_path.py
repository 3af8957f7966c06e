"""Count the files that a reader of a fit goes through.

Each function of skdp that a fit calls is listed once, in the order of first calls. The
numbers are the files in this list, the changes from one file to another, and the
changes from one folder to another. Imports are not counted. Fits use one thread, so the
order is always the same.

    python tools/reading_path.py            # fit(df) and `skdp fit`
    python tools/reading_path.py --list     # with the functions
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import pandas as pd

import skdp
from skdp.cli import app

ROOT = Path(skdp.__file__).parent


def trace(action: Callable[[], Any]) -> list[tuple[str, str]]:
    """Return the (file, function) pairs that an action calls, by first call.

    The action runs twice, and only the second run is traced, so modules that are
    imported when they are first needed do not count.
    """
    found: dict[tuple[str, str, int], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event == "call" and code.co_name != "<module>" and ROOT in path.parents:
            file = path.relative_to(ROOT).as_posix()
            found[file, code.co_qualname, code.co_firstlineno] = None

    action()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return [(file, name) for file, name, _ in found]


def count_changes(files: list[str]) -> int:
    """Return how often two neighbours in a list differ."""
    return sum(before != after for before, after in pairwise(files))


def run_command(folder: Path) -> None:
    """Run `skdp fit` as a shell would."""
    schema, out = str(folder / "schema.toml"), str(folder / "model")
    words = ["fit", str(folder / "table.csv"), "--schema", schema, "--epsilon", "1"]
    words += ["--out", out, "--force", "--quiet", "--threads", "1"]
    app(words, standalone_mode=False)


def show() -> None:
    """Print the numbers, and with --list the functions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="show the functions too")
    listed = parser.parse_args().list
    warnings.simplefilter("ignore")
    data = skdp.make_hospital(2000)
    table = pd.DataFrame(dict(data.columns))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table.to_csv(folder / "table.csv", index=False)
        (folder / "schema.toml").write_text(data.schema.to_toml(), "utf-8")
        actions: dict[str, Callable[[], Any]] = {
            "fit(df)": lambda: skdp.LogisticRegression(
                schema=data.schema, n_threads=1
            ).fit(table),
            "skdp fit": lambda: run_command(folder),
        }
        for title, action in actions.items():
            calls = trace(action)
            files = [file for file, _ in calls]
            folders = [file.rpartition("/")[0] or file for file in files]
            print(
                f"{title}: {len(calls)} functions in {len(set(files))} files, "
                f"{count_changes(files)} changes of file, "
                f"{count_changes(folders)} of folder"
            )
            if listed:
                print(*(f"  {file}: {name}" for file, name in calls), sep="\n")


if __name__ == "__main__":
    show()
