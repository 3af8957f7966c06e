"""Plant mistakes, one at a time, and see which test catches each.

Most of them would break privacy. A mistake is a file of ``tests/mutants``: a function,
a text of it, and what takes its place. Each is planted in a copy of the source and the
tests, and its tests are run there until one fails, first the one that failed last time.
Then all tests that failed are run in a copy that nothing is planted in. One that fails
there too has caught nothing, and its mistakes are tried again without it. A mistake
that no test catches makes the exit code 1.

Run ``python benchmarks/mutants.py [--only NAME ...] [--jobs 2] [--write]``. With
``--write`` the results enter ``mutants.csv`` and ``mutants.md`` in ``docs/evidence``.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from planted import BUGS, Bug, read_bugs  # noqa: E402

#: What is run for a mistake that does not say which tests should catch it; short ones
#: come first.
FAST = (
    "tests/test_architecture.py",
    "tests/ledger/test_ceiling.py",
    "tests/ledger/test_ledger.py",
    "tests/privacy/test_mechanism.py",
    "tests/privacy/test_grid.py",
    "tests/privacy/test_budget.py",
    "tests/privacy/test_planted.py",
    "tests/ledger/test_tampering.py",
    "tests/evaluation/test_selection.py",
    "tests/evaluation/test_one_row.py",
    "tests/tables",
    "tests/ledger/test_together.py",
    "tests/privacy/test_encoding.py",
    "tests/audit/test_replay.py",
    "tests/privacy/test_discovery.py",
    "tests/privacy/test_queries.py",
    "tests/privacy/test_sensitivity.py",
    "tests/privacy/test_accountant.py",
    "tests/estimators/test_audited.py",
    "tests/estimators/test_interrupt.py",
    "tests/ledger/test_fits.py",
    "tests/conformance/test_engines.py",
    "tests/evaluation/test_evaluate.py",
    "tests/privacy/test_randomness.py",
    "tests/estimators/test_one_record.py",
    "tests/verification/test_verify.py",
)
#: Seconds after which a mistake counts as not caught.
PATIENCE = 900
OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "planted", "--hypothesis-seed=0")
#: A plugin of pytest: what is tested must be the copy; no example is made smaller.
GUARD = """\
import os

from hypothesis import Phase, settings

import skdp

assert skdp.__file__.startswith(os.environ["SKDP_COPY"]), skdp.__file__


def pytest_configure():
    own = settings.get_profile("skdp")
    phases = [Phase.explicit, Phase.generate]
    settings.register_profile("planted", own, phases=phases, database=None)
    settings.load_profile("planted")
"""
PAGE = """\
# Planted bugs

Each row is a realistic mistake, planted in a copy of the source, with the first test \
that fails. The same tests pass without it. Most mistakes would break privacy; some by \
*c* would make a statement wrong instead. The author of the bugs by *b* had not read \
the tests; these bugs are tried on one fixed fast subset, `FAST` in \
`benchmarks/mutants.py`. The bugs by *c* were found surviving by an outside attack: \
its author planted 40 bugs without knowing this list, and 12 of them passed all tests. \
Each of the 12 got a test. A bug is a file in `tests/mutants`. `make bench \
NAME=mutants` plants all of them (`--only NAME` plants one, `--write` renews this page).

{summary}

| bug | by | file | what it would leak | caught by | seconds |
|---|---|---|---|---|---|
{rows}
"""


@dataclass(frozen=True)
class Found:
    """The outcome of a mistake. `caught` is a test, or empty."""

    name: str
    author: str
    title: str
    file: str
    leaks: str
    caught: str
    seconds: float


def copied(source: Path, copy: Path) -> None:
    """Copy source and tests; times and compiled kernels are kept, bytecode is not."""
    for name in ("src", "tests"):
        ignored = shutil.ignore_patterns("*.pyc", ".hypothesis")
        shutil.copytree(source / name, copy / name, ignore=ignored)
    for path in ROOT.iterdir():
        if path.name not in ("src", "tests") and not path.name.startswith("."):
            (copy / path.name).symlink_to(path)
    (copy / "planted.py").write_text(GUARD, encoding="utf-8")


def run_tests(copy: Path, tests: tuple[str, ...], *more: str) -> tuple[int, str]:
    """Run some tests of a copy; return pytest's exit code and what it printed."""
    environment = os.environ | {
        "PYTHONPATH": f"{copy / 'src'}{os.pathsep}{copy}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SKDP_COPY": str(copy),
        "OPENBLAS_NUM_THREADS": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *OPTIONS, *more, *tests],
        cwd=copy,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=PATIENCE)
        except BaseException as stop:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(stop, subprocess.TimeoutExpired):
                raise
            return -1, f"not done after {PATIENCE} seconds"
    return process.returncode, printed


def failures(printed: str) -> list[str]:
    """Tests that failed, without files that cannot be imported."""
    return re.findall(r"^(?:FAILED|ERROR) (\S*::.*?)(?: - .*)?$", printed, re.M)


def tried(bug: Bug, healthy: Path, folder: Path, sick: list[str]) -> tuple[Found, str]:
    """Plant a mistake and run its tests until one fails; also what was printed."""
    copy = folder / bug.name
    copied(healthy, copy)
    package = copy / "src" / "skdp"
    file, planted = bug.plant(package)
    (package / file).write_text(planted, encoding="utf-8")
    start = time.monotonic()
    left_out = [f"--deselect={test}" for test in sick]
    options = ("-x", "--tb=short", *left_out)
    code, printed = -1, ""
    if before := _recall(bug.name):  # the test that caught it last time is likely to
        code, printed = run_tests(copy, (before,), *options)
    if code != 1:
        code, printed = run_tests(copy, bug.tests, *options)
    took = time.monotonic() - start
    shutil.rmtree(copy)
    failed = failures(printed)
    caught = failed[0] if code == 1 and failed else ""
    found = Found(
        bug.name, bug.author, bug.title, file, bug.leaks, caught, round(took, 1)
    )
    return found, printed


def _recall(name: str) -> str:
    """Return the test that caught a bug when the table was written, or nothing."""
    table = ROOT / "docs" / "evidence" / "mutants.csv"
    with table.open(encoding="utf-8", newline="") as file:
        return next(
            (r["caught"] for r in csv.DictReader(file) if r["name"] == name), ""
        )


def fail_without(tests: set[str], healthy: Path, jobs: int, bar: Progress) -> list[str]:
    """Return the tests that fail in a copy without any mistake."""
    files: dict[str, list[str]] = {}
    for test in sorted(tests):
        files.setdefault(test.partition("::")[0], []).append(test)
    task = bar.add_task("without bugs", total=len(files))
    sick: list[str] = []
    with ThreadPoolExecutor(jobs) as pool:
        futures = {
            pool.submit(run_tests, healthy, tuple(own)): file
            for file, own in files.items()
        }
        for future in as_completed(futures):
            code, printed = future.result()
            sick += failures(printed)
            if code not in (0, 1):
                bar.console.print(printed, markup=False)
                raise SystemExit(f"{futures[future]} cannot be run: mend it first.")
            bar.advance(task)
    return sorted(sick)


def written(results: list[Found], only: bool) -> None:
    """Enter results in the table and the page; `only` keeps the lines of others."""
    table = ROOT / "docs" / "evidence" / "mutants.csv"
    lines = {
        found.name: {name: str(value) for name, value in asdict(found).items()}
        for found in results
    }
    if only and table.exists():
        with table.open(encoding="utf-8", newline="") as file:
            lines = {line["name"]: line for line in csv.DictReader(file)} | lines
    kept = [lines[name] for name in sorted(lines) if (BUGS / f"{name}.toml").exists()]
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(kept[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
    rows = []
    for line in kept:
        test = line["caught"].removeprefix("tests/")
        caught = f"`{test}`" if test else "**nothing**"
        cells = [line["title"], line["author"], f"`{line['file']}`", line["leaks"]]
        cells = [cell.replace("|", "\\|") for cell in [*cells, caught, line["seconds"]]]
        rows.append("| " + " | ".join(cells) + " |")
    n_caught = sum(bool(line["caught"]) for line in kept)
    seconds = sum(float(line["seconds"]) for line in kept)
    by_b, by_c = (sum(line["author"] == name for line in kept) for name in "bc")
    summary = (
        f"{n_caught} of {len(kept)} are caught, {by_b} of them by *b* and {by_c} by "
        f"*c*; their tests took {seconds / 60:.0f} minutes of one core."
    )
    page = PAGE.format(summary=summary, rows="\n".join(rows))
    (ROOT / "docs" / "evidence" / "mutants.md").write_text(page, encoding="utf-8")


def main() -> int:
    """Try the requested mistakes, by default all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="some mistakes")
    parser.add_argument("--jobs", type=int, default=2, help="tests at a time")
    parser.add_argument("--write", action="store_true", help="renew the table in docs")
    parser.add_argument("--log", type=Path, help="a folder for what the tests print")
    given = parser.parse_args()
    known = read_bugs()
    bugs = [known[name] for name in given.only or known]
    bugs = [bug if bug.tests else replace(bug, tests=FAST) for bug in bugs]
    console, start = Console(), time.monotonic()
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn())
    bar = Progress(*columns, TimeElapsedColumn(), console=console)
    with bar, tempfile.TemporaryDirectory(prefix="skdp-mutants-") as name:
        folder = Path(name)
        healthy = folder / "healthy"
        copied(ROOT, healthy)
        for bug in bugs:
            bug.plant(healthy / "src" / "skdp")
        found: dict[str, Found] = {}
        sick: list[str] = []
        left = bugs
        while left:
            found |= _try_all(left, healthy, folder, sick, given.jobs, bar, given.log)
            tests = {found[bug.name].caught for bug in left} - {""}
            new = fail_without(tests, healthy, given.jobs, bar)
            for test in new:
                console.print(f"left out, fails without any bug: {test}", markup=False)
            left = [bug for bug in left if found[bug.name].caught in new]
            sick += new
    results = [found[name] for name in sorted(found)]
    table = Table("bug", "by", "caught by", "seconds")
    for found in results:
        caught = found.caught.removeprefix("tests/") or "NOTHING"
        table.add_row(found.name, found.author, caught, f"{found.seconds:.0f}")
    console.print(table)
    n_caught = sum(bool(found.caught) for found in results)
    took = (time.monotonic() - start) / 60
    console.print(f"{n_caught} of {len(results)} caught, in {took:.1f} minutes.")
    if given.write:
        written(results, only=bool(given.only))
    return int(n_caught < len(results) or bool(sick))


def _try_all(
    bugs: list[Bug],
    healthy: Path,
    folder: Path,
    sick: list[str],
    jobs: int,
    bar: Progress,
    log: Path | None,
) -> dict[str, Found]:
    """Try mistakes, some at a time, those that take all of `FAST` first."""
    results = {}
    task = bar.add_task("planted", total=len(bugs))
    with ThreadPoolExecutor(jobs) as pool:
        order = sorted(bugs, key=lambda bug: bug.tests != FAST)
        futures = [pool.submit(tried, bug, healthy, folder, sick) for bug in order]
        for future in as_completed(futures):
            found, printed = future.result()
            results[found.name] = found
            if log is not None:
                log.mkdir(parents=True, exist_ok=True)
                (log / f"{found.name}.txt").write_text(printed, encoding="utf-8")
            caught = found.caught or "caught by NOTHING"
            bar.console.print(f"{found.name}: {caught}", markup=False)
            bar.advance(task)
    return results


if __name__ == "__main__":
    raise SystemExit(main())
