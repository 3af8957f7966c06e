import json
import sys
from functools import cache

import pandas as pd
import pytest
import typer.main

import skdp
from skdp import cli
from skdp.engines import compilation
from skdp.schema import toml_files


@pytest.fixture(scope="session", autouse=True)
def _compiled():
    """Compile the sweep first. Each process prints one line on stderr when it does."""
    compilation.compile_sweep()


@pytest.fixture(scope="session", autouse=True)
def one_parser():
    """Build the parser of the command line once, and not for each command."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture
def call(monkeypatch, capsys):
    """Run the command in this process: exit code, stdout, stderr."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["skdp", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        shown = capsys.readouterr()
        return stopped.value.code, shown.out, shown.err

    return run


@pytest.fixture
def parsed(call):
    """Run the command with --json: the object that it prints, and nothing else."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    def run(*arguments):
        code, out, err = call(*arguments, "--json")
        assert (code, err) == (0, ""), err
        return json.loads(out, parse_constant=refuse)

    return run


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """A table as CSV and Parquet, and schemas of it."""
    folder = tmp_path_factory.mktemp("files")
    for target in ("readmitted", "visits"):
        data = skdp.make_hospital(3000, target=target)
        toml_files.write(data.schema, folder / f"{target}.toml")
        frame = pd.DataFrame(data.columns)
        frame.to_csv(folder / f"{target}.csv", index=False)
        frame.to_parquet(folder / f"{target}.parquet")
    return folder


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty directory that commands run in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path
