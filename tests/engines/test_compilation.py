"""A cold compilation is announced, once; a warm start says nothing."""

import os
import subprocess
import sys

CALL = """
import skdp.engines.compiled
from skdp.engines import kernels
kernels._clip(2.0, 0.0, 1.0)
kernels._clip(2, 0, 1)
"""


def said(directory):
    """What a fresh process writes to the standard error."""
    return subprocess.run(
        [sys.executable, "-c", CALL],
        env=os.environ | {"NUMBA_CACHE_DIR": str(directory)},
        capture_output=True,
        text=True,
        check=True,
    ).stderr


def test_only_a_cold_start_is_announced(tmp_path):
    """Two signatures are compiled, one line is written; then both are on disk."""
    assert said(tmp_path).splitlines() == [
        "skdp is compiling its kernels, for about 10 seconds: "
        "once, as they are kept on disk."
    ]
    assert said(tmp_path) == ""
