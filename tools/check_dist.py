"""Check the built wheel and sdist as a stranger would get them: `make dist`.

    python tools/check_dist.py [dist]

Looks into both archives, then installs the wheel in an empty environment: first
without extras (an import, a fit on numpy, the types of a user's script), then with
[cli] (the version, and the demo). Exits with 1 at the first thing that is wrong.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "skdp"
#: What a source archive is for: reading, testing and building again.
IN_SOURCE = {"src", "tests", "docs", "benchmarks", "experiments", "tools", "LICENSE"}
IN_SOURCE |= {"Makefile", "pyproject.toml", "README.md", "CONTRIBUTING.md"}
IN_SOURCE |= {"SECURITY.md", "CODE_OF_CONDUCT.md"}
IN_SOURCE |= {"CHANGELOG.md", "CITATION.cff", ".pre-commit-config.yaml", "examples"}
#: What hatchling adds itself.
ADDED = {"PKG-INFO", ".gitignore"}

FIT = """
import sys
import numpy as np
import skdp
rng = np.random.default_rng(0)
X = rng.uniform(size=(2000, 3))
y = (X[:, 0] > X[:, 1]).astype(int)
model = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1]).fit(X, y)
assert model.predict(X).shape == (2000,)
assert "differential privacy" in str(model.privacy_)
extras = {"pandas", "polars", "pyarrow", "rich", "typer", "matplotlib"}
assert not extras & set(sys.modules), extras & set(sys.modules)
"""

#: A user's script, for mypy --strict: it fails if our types are not found.
SCRIPT = """
from typing import assert_type
import skdp
from skdp.estimators.summary import Summary

schema = skdp.Schema(
    {"age": skdp.Numeric(17, 90), "job": skdp.Categorical(["a", "b"])},
    target=("income", skdp.Categorical(["low", "high"])),
)
plan = skdp.plan(schema, 1000, epsilon=1.0)
assert_type(plan, skdp.Plan)
model = skdp.LogisticRegression(epsilon=1.0, schema=schema).fit("table.csv")
assert_type(model, skdp.LogisticRegression)
assert_type(skdp.statement(model), str)
assert_type(model.summary(), Summary)
assert_type(model.card(format="registry"), str)
print(model.predict_proba("new.csv").mean(), plan.n_steps)
"""
#: The same with two mistakes, which must be found.
MISTAKES = SCRIPT + "skdp.plan(schema, rows=1000)\nskdp.Numeric('low', 90)\n"


def check(holds: bool, what: str) -> None:
    """Stop with a sentence unless something holds."""
    if not holds:
        raise SystemExit(f"check_dist: {what}")


def run(*command: str | Path, code: int = 0) -> str:
    """Run a command, which must exit with `code`; return what it printed."""
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        check=False,
        cwd=tempfile.gettempdir(),  # nothing of the source tree is importable there
    )
    said = done.stdout + done.stderr
    check(
        done.returncode == code,
        f"{' '.join(map(str, command))} exited with {done.returncode}:\n{said}",
    )
    return said


def check_wheel(wheel: Path) -> None:
    """The package, all of it, its data, its metadata, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        others = sorted({name.split("/")[0] for name in names} - {"skdp"})
        info = others[0]
        check(
            len(others) == 1 and info.endswith(".dist-info"),
            f"the wheel holds {others} beside skdp.",
        )
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        entries = archive.read(f"{info}/entry_points.txt").decode().split()
    source = {
        "skdp/" + path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    found = {name for name in names if name.startswith("skdp/")}
    check(found == source, f"the wheel differs from src: {sorted(found ^ source)}")
    check("skdp/py.typed" in found, "py.typed is missing.")
    check(f"{info}/licenses/LICENSE" in names, "the licence is missing.")
    wanted = ["[console_scripts]", "skdp", "=", "skdp.cli:main"]
    check(entries == wanted, f"entry points are {entries}.")
    check(bool(metadata["Keywords"]), "keywords are missing.")
    check(bool(metadata.get_all("Project-URL")), "addresses are missing.")
    versions = set(metadata.get_all("Classifier", []))
    python = {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)}
    check(python <= versions, f"classifiers lack {sorted(python - versions)}.")
    extras = set(metadata.get_all("Provides-Extra", []))
    check({"cli", "tables", "report", "verify"} <= extras, f"extras are {extras}.")


def check_source(archive: Path) -> None:
    """What is needed to read, test and build, and nothing else."""
    with tarfile.open(archive) as opened:
        paths = [PurePosixPath(name) for name in opened.getnames()]
    top = {path.parts[1] for path in paths if len(path.parts) > 1}
    check(
        top - ADDED == IN_SOURCE,
        f"the sdist differs from its list: {sorted((top - ADDED) ^ IN_SOURCE)}",
    )
    stray = [str(p) for p in paths if "__pycache__" in p.parts or p.suffix == ".pyc"]
    check(not stray, f"the sdist holds {stray[:3]}.")


def check_version(wheel: Path, said: str) -> None:
    """What ``skdp --version`` prints: the wheel's version, and the engine."""
    version = re.escape(wheel.name.split("-")[1])
    check(
        re.fullmatch(rf"skdp {version}, engine \w+\n", said) is not None,
        f"--version says {said}",
    )


def check_installed(wheel: Path) -> None:
    """A stranger's first minutes, in an environment with nothing else in it."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "env", with_pip=True)
        bin_ = place / "env" / ("Scripts" if sys.platform == "win32" else "bin")
        python = bin_ / "python"
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run(*pip, wheel)
        run(python, "-W", "error", "-c", FIT)
        said = run(bin_ / "skdp", code=2)
        check("pip install 'skdp[cli]'" in said, f"without the extra, skdp says {said}")
        for text, code in ((SCRIPT, 0), (MISTAKES, 1)):
            script = place / "script.py"
            script.write_text(text, encoding="utf-8")
            mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file="]
            said = run(*mypy, "--python-executable", python, script, code=code)
        check(said.count("error:") == 2, f"mypy finds other mistakes:\n{said}")
        run(*pip, f"{wheel}[cli]")
        check_version(wheel, run(bin_ / "skdp", "--version"))
        said = run(bin_ / "skdp", "demo", "-q")
        check(said == "", f"demo -q says {said}")


def main() -> None:
    """Check the one wheel and the one sdist of a directory."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dist", type=Path, nargs="?", default=ROOT / "dist")
    dist = parser.parse_args().dist.resolve()
    wheels, archives = sorted(dist.glob("*.whl")), sorted(dist.glob("*.tar.gz"))
    check(len(wheels) == len(archives) == 1, f"{dist} holds no one build: run make.")
    check_wheel(wheels[0])
    check_source(archives[0])
    run(sys.executable, "-m", "twine", "check", "--strict", *wheels, *archives)
    check_installed(wheels[0])
    print(f"{wheels[0].name} and {archives[0].name}: all checks passed")


if __name__ == "__main__":
    main()
