"""The first pages are true: the readme runs, names resolve, files parse."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from threadpoolctl import threadpool_info

import skdp

ROOT = Path(__file__).parents[1]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def python(program):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
        check=True,
    ).stdout


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", read(page))
    assert all((ROOT / target).exists() for target in targets), targets


def test_what_is_named_exists():
    table = read("docs/guide/code.md").split("## In the repository")[1]
    paths = re.findall(r"`(src/[^`]+|\w+/)`", table)
    files = {path.name for path in (ROOT / "src").rglob("*.py")}
    assert set(re.findall(r"`(\w+\.py)`", table)) <= files
    assert len(paths) > 15
    for path in paths:
        assert (ROOT / path).exists(), path
    readme, makefile = read("README.md"), read("Makefile")
    assert "make demo " in readme
    for target in set(re.findall(r"make (\w+) ", readme + read("CONTRIBUTING.md"))):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_contributing_names_registries_that_exist():
    modules = {"SAMPLINGS": "skdp.descent.samplings", "SOLVERS": "skdp.solvers"}
    named = set(re.findall(r"`([A-Z]+)`", read("CONTRIBUTING.md")))
    assert set(modules) <= named
    for name, module in modules.items():
        assert getattr(importlib.import_module(module), name)


def test_public_names_resolve_and_are_listed():
    assert sorted(skdp.__all__) == sorted(skdp._HOME)
    for name in skdp.__all__:
        assert getattr(skdp, name) is not None
    assert {*skdp.__all__, "audit", "solvers", "__version__"} == {*dir(skdp)}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = skdp.nothing


def test_importing_is_fast_because_it_is_lazy():
    program = (
        "import sys, time; start = time.process_time(); import skdp;"
        "took = time.process_time() - start;"
        "print(took, *{'numpy', 'scipy', 'sklearn', 'numba'} & set(sys.modules))"
    )
    took, *loaded = python(program).split()
    assert loaded == []
    assert float(took) < 1.0  # about 0.01 s on an idle machine


def test_every_file_has_the_version():
    assert python("from skdp.cli import app; app(['--version'])") == (
        f"skdp {skdp.__version__}, engine compiled\n"
    )
    assert f"\nversion: {skdp.__version__}\n" in read("CITATION.cff")
    assert f"## [{skdp.__version__}] - 20" in read("CHANGELOG.md")


def test_the_changelog_opens_every_version_with_privacy():
    versions = re.split(r"^## ", read("CHANGELOG.md"), flags=re.MULTILINE)[1:]
    assert len(versions) > 1
    for version in versions:
        sections = re.findall(r"^### (\w+)", version, re.MULTILINE)
        assert sections[:1] in ([], ["Privacy"])
        assert sections or version.startswith("[Unreleased]")


@pytest.mark.parametrize("name", ["CITATION.cff", ".pre-commit-config.yaml"])
def test_yaml_parses(name):
    yaml = pytest.importorskip("yaml")
    parsed = yaml.safe_load(read(name))
    if name == "CITATION.cff":
        assert parsed["cff-version"] == "1.2.0"
        assert parsed["title"]
        assert parsed["authors"]
        assert len(parsed["preferred-citation"]["authors"]) == 3


def test_measurements_are_named_as_they_are_run():
    """Pages name only entries of benchmarks/run.py."""
    spec = importlib.util.spec_from_file_location("run", ROOT / "benchmarks" / "run.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    for one in program.MEASUREMENTS.values():
        path = one.command.split()[0]
        assert path == "-m" or (ROOT / path).is_file(), path
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py")]
    for page in pages:
        named = re.findall(r"make bench NAME=([\w-]+)", page.read_text("utf-8"))
        assert set(named) <= set(program.MEASUREMENTS), page


def test_pre_commit_runs_what_make_lint_runs():
    recipes = re.findall(r"^\t\$\(BIN\)/((?:ruff|mypy).*)$", read("Makefile"), re.M)
    hooks = re.findall(
        r"entry: \.venv/bin/(.*)$", read(".pre-commit-config.yaml"), re.M
    )
    checks = [
        line for line in recipes if "--fix" not in line and line != "ruff format ."
    ]
    assert hooks == checks


def test_linear_algebra_of_the_tests_has_one_thread():
    """`tests/conftest.py` must set this before numpy is imported."""
    pools = [one for one in threadpool_info() if one["user_api"] == "blas"]
    assert all(pool["num_threads"] == 1 for pool in pools), pools


def test_what_is_missing_is_told_with_the_extra_that_has_it(tmp_path):
    """By the same class of error everywhere, in an installation without extras."""
    program = """
import sys
missing = "pandas polars pyarrow rich matplotlib onnx mpmath jinja2 distributed cupy"
sys.modules.update(dict.fromkeys(missing.split()))
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in missing else found(name)
import skdp
data = skdp.make_hospital(300)
model = skdp.LogisticRegression(schema=data.schema, random_state=0, n_steps=2)
model.fit(data.columns)
open("t.csv", "w").write(",".join(data.columns) + "\\n")
for call in (
    lambda: model.fit("t.csv"),
    lambda: model.set_params(verbose=1).fit(data.columns),
    lambda: model.set_params(verbose=0, engine="dask").fit(data.columns),
    lambda: model.set_params(engine="cuda").fit(data.columns),
    lambda: model.summary().to_frame(),
    model.plot,
    model.to_onnx,
    lambda: skdp.report(model),
    lambda: skdp.verify(model),
):
    try:
        call()
    except ImportError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    extras = [re.search(r"pip install 'skdp\[(\w+)\]'\.", line)[1] for line in lines]
    expected = "tables cli dask cuda tables report onnx report verify"
    assert extras == expected.split()
