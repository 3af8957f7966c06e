import sys

import pytest

from skdp import cli


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
