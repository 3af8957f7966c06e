import tempfile
from functools import cache
from pathlib import Path

import pytest
import typer.main
from runs import SCHEMA

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
def place(monkeypatch):
    """A directory that commands run in, with a schema and a table."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None  # ledgers sync a lot
    with (
        tempfile.TemporaryDirectory(dir=memory) as folder,
        monkeypatch.context() as patch,
    ):
        patch.chdir(folder)
        toml_files.write(SCHEMA, "s.toml")
        Path("t.csv").write_text("age,job,y\n" + "1,a,0\n2,b,1\n" * 20)
        yield Path(folder)
