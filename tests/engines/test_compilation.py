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
    (line,) = said(tmp_path).splitlines()
    assert "compiling" in line
    assert "kept on disk" in line
    assert said(tmp_path) == ""
