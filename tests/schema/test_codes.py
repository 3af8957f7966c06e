"""Codes of categories, whatever numbers a reader passes on."""

import numpy as np
import pytest

from skdp.schema import limit_codes


@pytest.mark.parametrize(
    "kind", ["i1", "u1", "i2", ">i2", "u2", "i4", "u4", "i8", "u8"]
)
@pytest.mark.parametrize("n", [0, 3, 127, 128, 255, 256, 40_000, 70_000])
def test_codes_that_are_no_index_become_the_last_place(kind, n):
    codes = np.frombuffer(np.random.default_rng(n).bytes(8000), kind).copy()
    codes[:100] = np.arange(100)
    codes[100:103] = np.iinfo(kind).min, np.iinfo(kind).max, 0
    expected = [code if 0 <= code < n else n for code in codes.tolist()]
    assert limit_codes(codes, n).tolist() == expected


def test_codes_may_be_floats():
    codes = np.array([0.0, 2.0, 3.0, -1.0, np.nan])
    assert limit_codes(codes, 3).tolist() == [0, 2, 3, 3, 3]
