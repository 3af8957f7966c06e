"""Run the command line as a stranger would, and check what no run may ever do."""

import contextlib
import io
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

import skdp
from skdp import cli

#: Seconds that one command may take: of a processor, and however busy the machine is.
PATIENCE, LONGEST = 60, 900
#: What a terminal shows as it is.
SHOWN = re.compile(r"[^\x00-\x09\x0b-\x1f\x7f-\x9f]*")
SCHEMA = skdp.Schema(
    {"age": skdp.Numeric(0, 100), "job": skdp.Categorical(["a", "b"])},
    target=("y", skdp.Categorical([0, 1])),
)


def fuzzed(examples):
    """Settings of a test: so many examples, or SKDP_FUZZ of them, at random."""
    asked = int(os.environ.get("SKDP_FUZZ", "0"))
    return settings(
        deadline=None,
        max_examples=asked or examples,
        derandomize=not asked,
        database=None,
        phases=[Phase.explicit, Phase.generate],  # to shrink would take minutes
        suppress_health_check=list(HealthCheck),
    )


class Hang(BaseException):
    """A command that did not end."""


def _hang(*_):
    raise Hang


@contextlib.contextmanager
def limited():
    """Stop after PATIENCE seconds of computing or LONGEST seconds of waiting."""
    before = [signal.signal(s, _hang) for s in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        signal.signal(signal.SIGPROF, before[0])
        signal.signal(signal.SIGALRM, before[1])


def command(*words):
    """Exit code, stdout and stderr of ``skdp words``, which ends as every one must.

    That is with a code of ours and, if it is not 0, with a sentence; with no traceback
    and no mistake inside skdp (code 70); in time; and showing nothing that moves a
    terminal's cursor.
    """
    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["skdp", *map(str, words)]
    try:
        with (
            limited(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as stopped,
        ):
            cli.main()
    finally:
        sys.argv = argv
    code, out, err = stopped.value.code, out.getvalue(), err.getvalue()
    assert code in (0, 1, 2), (words, code, err)
    assert "Traceback" not in out + err
    assert code == 0 or out or err
    assert code != 2 or err
    assert SHOWN.fullmatch(out), (words, out)
    assert SHOWN.fullmatch(err), (words, err)
    return code, out, err


def files(folder):
    """Every file below a folder, with its bytes; links as what they point to."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_symlink() or path.is_file()
    }
