"""The published archives are complete: the cheap part of `make dist`, nightly all.

Both archives are built by hatchling alone. `make dist` builds them in an environment of
their own, and installs the wheel in an empty one.
"""

import importlib.util
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = """
import sys
from hatchling.build import build_sdist, build_wheel
print(build_wheel(sys.argv[1]), build_sdist(sys.argv[1]))
"""


def load_checks():
    path = ROOT / "tools" / "check_dist.py"
    spec = importlib.util.spec_from_file_location("check_dist", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHECKS = load_checks()


def run(*command, **options):
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the source archive."""
    out = tmp_path_factory.mktemp("dist")
    names = run("-c", BUILD, out, cwd=ROOT).split()
    return [out / name for name in names]


def test_archives_hold_what_they_should(built):
    wheel, archive = built
    CHECKS.check_wheel(wheel)
    CHECKS.check_source(archive)


def test_a_file_that_is_missing_from_the_wheel_is_told_of(built, tmp_path):
    wheel = tmp_path / built[0].name
    with zipfile.ZipFile(built[0]) as whole, zipfile.ZipFile(wheel, "w") as part:
        for name in whole.namelist():
            if name != "skdp/py.typed":
                part.writestr(name, whole.read(name))
    with pytest.raises(SystemExit, match=r"the wheel differs from src: .*py\.typed"):
        CHECKS.check_wheel(wheel)


def test_the_wheel_says_its_version(built, tmp_path):
    """`make dist` failed unnoticed when the command began to print the engine too."""
    with zipfile.ZipFile(built[0]) as archive:
        archive.extractall(tmp_path)
    program = "from skdp.cli import main; main()"
    place = {**os.environ, "PYTHONPATH": str(tmp_path)}
    said = run("-c", program, "--version", cwd=tmp_path, env=place)
    CHECKS.check_version(built[0], said)
    for wrong in ("", "skdp 0.0, engine numba\n", f"{said}and more\n"):
        with pytest.raises(SystemExit, match="--version says"):
            CHECKS.check_version(built[0], wrong)


def test_the_tests_build_as_the_project_is_built():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"]
    assert set(project["build-system"]["requires"]) <= set(extras["dev"])


@pytest.mark.nightly
def test_make_dist(built, tmp_path):
    """A stranger's first minutes: installs the wheel in an empty environment."""
    where = tmp_path / "env"
    run("-m", "venv", where)
    python = where / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    tools = project["project"]["optional-dependencies"]["dist"]
    for command in (
        [*pip, *tools],
        [python, ROOT / "tools" / "check_dist.py", built[0].parent],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "all checks passed" in done.stdout
