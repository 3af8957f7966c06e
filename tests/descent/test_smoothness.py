import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdp.descent.samplings import (
    SAMPLINGS,
    Blocks,
    ExplicitSets,
    Full,
    Independent,
    Nice,
    Sampling,
    SingleCoordinate,
)
from skdp.descent.smoothness import (
    from_bounds,
    from_hessian,
    is_valid,
    is_valid_for_bounds,
)

NAMES = sorted(SAMPLINGS)
BETA = 0.25


class Unlisted(Sampling):
    """A sampling that tells its pairs and nothing else."""

    def __init__(self, inner: Sampling) -> None:
        super().__init__(inner.probabilities)
        self._inner = inner

    def draw(self, rng):
        return self._inner.draw(rng)

    def pair_probabilities(self, block):
        return self._inner.pair_probabilities(block)


EVERY = {
    **SAMPLINGS,
    "unlisted": lambda d: Unlisted(SAMPLINGS["explicit"](d)),
}


def excess(sampling, hessian, v):
    """Largest eigenvalue of E[I_S H I_S] against Diag(p∘v), minus one.

    Listed sets are added up one by one, so this shares no code with what it checks.
    """
    inner = getattr(sampling, "_inner", sampling)
    p, expected = np.zeros(len(v)), np.zeros_like(hessian)
    for s, probability in zip(inner.support, inner.set_probabilities, strict=True):
        p[s] += probability
        expected[np.ix_(s, s)] += probability * hessian[np.ix_(s, s)]
    root = np.sqrt(p * v)
    return np.linalg.eigvalsh(expected / np.outer(root, root))[-1] - 1


def random_groups(d, rng):
    cuts = np.sort(rng.choice(np.arange(1, d), rng.integers(0, d), replace=False))
    return np.split(rng.permutation(d), cuts)


def bounded_table(groups, d, rng):
    """Rows of norm at most one on each group: one-hot, scalar or a vector."""
    X = np.zeros((int(rng.integers(1, 12)), d))
    kind = rng.integers(3)
    for row in X:
        for group in groups:
            if kind == 0:
                row[rng.choice(group)] = 1
            else:
                x = rng.standard_normal(len(group))
                row[group] = x / np.linalg.norm(x) * (1 if kind == 1 else rng.random())
    return X


def random_hessian(d, rng):
    """Low rank, badly scaled, one-hot, with dead columns, or equal everywhere."""
    kind = rng.integers(5)
    if kind == 0:
        X = rng.standard_normal((int(rng.integers(1, 2 * d)), d))
    elif kind == 1:
        X = rng.standard_normal((int(rng.integers(1, d + 1)), d))
        X *= np.exp(rng.uniform(-8, 8, d))
    elif kind == 2:
        X = bounded_table(random_groups(d, rng), d, rng)
    elif kind == 3:
        X = rng.standard_normal((4, d)) * (rng.random(d) < 0.6)
    else:
        X = np.ones((1, d))
    return BETA * X.T @ X / len(X)


@pytest.mark.parametrize("name", EVERY)
def test_from_hessian_is_valid_on_random_hessians(name):
    rng = np.random.default_rng(7)
    for trial in range(60):
        d = 2 + trial % 7
        sampling, hessian = EVERY[name](d), random_hessian(d, rng)
        v = from_hessian(sampling, hessian)
        assert v.shape == (d,)
        assert np.all(v > 0)
        assert excess(sampling, hessian, v) <= 1e-10
        assert is_valid(sampling, hessian, v)


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    entries=st.lists(st.floats(-1e6, 1e6, width=32), min_size=10, max_size=30),
)
def test_from_hessian_is_valid_on_hostile_hessians(name, entries):
    X = np.array(entries[: len(entries) // 5 * 5]).reshape(-1, 5)
    sampling, hessian = EVERY[name](5), X.T @ X
    v = from_hessian(sampling, hessian)
    assert np.all(np.isfinite(v) & (v > 0))
    assert excess(sampling, hessian, v) <= 1e-10


@pytest.mark.parametrize("name", EVERY)
def test_from_hessian_is_valid_for_an_indefinite_hessian(name):
    rng = np.random.default_rng(11)
    for _ in range(20):
        # Not positive semidefinite, though every pair of coordinates is.
        correlation = np.tanh(rng.standard_normal((6, 6)))
        root = np.exp(rng.standard_normal(6))
        hessian = np.triu(correlation, 1) * np.outer(root, root)
        hessian = hessian + hessian.T + np.diag(root**2)
        assert np.linalg.eigvalsh(hessian)[0] < 0
        v = from_hessian(EVERY[name](6), hessian)
        assert np.all(v > 0)
        assert excess(EVERY[name](6), hessian, v) <= 1e-10


@pytest.mark.parametrize("name", EVERY)
def test_from_hessian_of_many_coordinates_is_valid(name):
    # Too many for nice and independent sets to be listed.
    rng = np.random.default_rng(5)
    hessian = random_hessian(13, rng)
    assert is_valid(EVERY[name](13), hessian, from_hessian(EVERY[name](13), hessian))


@pytest.mark.parametrize("name", [name for name in EVERY if name != "independent"])
def test_from_hessian_is_tight(name):
    # All-ones H: every bound of the table is attained, so 1 % less must be refused.
    sampling, hessian = EVERY[name](6), np.ones((6, 6))
    v = from_hessian(sampling, hessian)
    assert not is_valid(sampling, hessian, 0.99 * v)
    assert excess(sampling, hessian, 0.99 * v) > 0.009


@pytest.mark.parametrize("name", ["explicit", "unlisted"])
def test_from_hessian_is_scaled_down_until_it_touches(name):
    rng = np.random.default_rng(8)
    for _ in range(20):
        sampling, hessian = EVERY[name](6), random_hessian(6, rng)
        v = from_hessian(sampling, hessian)
        assert excess(sampling, hessian, v) == pytest.approx(0, abs=1e-9)


def test_from_hessian_is_the_table():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((20, 6)) * [1, 2, 3, 4, 5, 6]
    H = X.T @ X / 20
    h = np.diag(H)

    def stretch(rows):
        scaled = H[np.ix_(rows, rows)] / np.sqrt(np.outer(h[rows], h[rows]))
        return np.linalg.eigvalsh(scaled)[-1]

    full = stretch(np.arange(6)) * h
    blocks = [[0, 3, 4], [1], [2, 5]]
    by_block = h.copy()
    for block in blocks:
        by_block[block] *= stretch(np.array(block))
    pi = np.linspace(0.1, 1, 6)
    for sampling, expected in [
        (SingleCoordinate.importance(h), h),
        (Full(6), full),
        (Blocks.importance(blocks, h), by_block),
        (Nice(6, 3), 0.6 * h + 0.4 * full),
        (Nice(6, 1), h),
        (Nice(6, 6), full),
        (Independent(pi), (1 - pi) * h + pi * full),
    ]:
        np.testing.assert_allclose(from_hessian(sampling, H), expected, rtol=1e-9)


def test_shrunk_smoothness_is_found_invalid():
    tight = np.ones((4, 4))
    v = from_hessian(Full(4), tight)
    np.testing.assert_allclose(v, 4)
    assert is_valid(Full(4), tight, v)
    assert not is_valid(Full(4), tight, 0.5 * v)
    assert not is_valid(Full(4), tight, np.diag(tight))


def test_is_valid_agrees_with_adding_up_the_sets():
    rng = np.random.default_rng(2)
    answers = []
    for name in NAMES:
        for _ in range(20):
            sampling, hessian = SAMPLINGS[name](6), random_hessian(6, rng)
            v = from_hessian(sampling, hessian) * rng.uniform(0.8, 1.5, 6)
            answers.append(is_valid(sampling, hessian, v))
            assert answers[-1] == (excess(sampling, hessian, v) <= 1e-9)
    assert 20 < sum(answers) < len(answers) - 20  # both answers occur


def test_one_hot_block_has_the_smoothness_of_single_coordinates():
    rng = np.random.default_rng(0)
    X = np.hstack([np.eye(4)[rng.integers(4, size=50)], rng.random((50, 2))])
    H = BETA * X.T @ X / 50
    v = from_hessian(Blocks.uniform([[0, 1, 2, 3], [4], [5]]), H)
    np.testing.assert_allclose(v, np.diag(H), rtol=1e-9)


def test_a_dead_column_gets_a_small_positive_smoothness():
    H = np.diag([2.0, 0.0, 1.0])
    for name in EVERY:
        v = from_hessian(EVERY[name](3), H)
        assert 0 < v[1] < 1e-7
        np.testing.assert_allclose(v[[0, 2]], [2, 1], rtol=1e-9)
        assert from_hessian(EVERY[name](3), np.zeros((3, 3))).tolist() == [1, 1, 1]
        assert np.all(from_hessian(EVERY[name](3), np.full((3, 3), 5e-324)) > 0)


def test_coordinatewise_smoothness_diverges_with_blocks_and_ours_does_not():
    # Erratum 8: f = ½(1ᵀw)², six coordinates in two blocks, no noise.
    sampling = Blocks.uniform([[0, 1, 2], [3, 4, 5]])
    hessian = np.ones((6, 6))

    def values(v, n_steps=12):
        w, f = np.ones(6), [18.0]
        for chosen in sampling.sets(n_steps, np.random.default_rng(0)):
            w[chosen] -= (hessian @ w)[chosen] / v[chosen]
            f.append(0.5 * w.sum() ** 2)
        return np.array(f)

    coordinatewise = values(np.diag(hessian))
    np.testing.assert_allclose(coordinatewise[1:] / coordinatewise[:-1], 4)
    ours = values(from_hessian(sampling, hessian))
    assert np.all(np.diff(ours) <= 1e-12)
    assert ours[-1] <= 1e-12


@pytest.mark.parametrize("name", EVERY)
def test_from_bounds_is_valid_for_random_tables(name):
    rng = np.random.default_rng(13)
    for trial in range(60):
        d = 2 + trial % 7
        groups = random_groups(d, rng)
        X = bounded_table(groups, d, rng)
        sampling, ridge = EVERY[name](d), rng.random(d) * (trial % 2)
        hessian = BETA * X.T @ X / len(X) + np.diag(ridge)
        v = from_bounds(sampling, groups, BETA, ridge=ridge)
        assert excess(sampling, hessian, v) <= 1e-10
        assert is_valid_for_bounds(sampling, groups, BETA, v, ridge=ridge)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "independent"])
def test_from_bounds_is_tight(name):
    # Groups of one and a single record of ones attain the bound.
    sampling, groups = SAMPLINGS[name](6), [[j] for j in range(6)]
    v = from_bounds(sampling, groups, BETA)
    assert is_valid(sampling, BETA * np.ones((6, 6)), v)
    assert not is_valid(sampling, BETA * np.ones((6, 6)), 0.99 * v)
    assert not is_valid_for_bounds(sampling, groups, BETA, 0.99 * v)


def test_from_bounds_is_the_table():
    groups = [[0, 1, 2], [3], [4, 5]]
    pi = np.linspace(0.1, 1, 6)
    blocks = [[0, 1], [2, 3, 4], [5]]
    overlapping = ExplicitSets([[0, 1, 2], [0, 3, 4, 5]], [0.25, 0.75])
    for sampling, expected in [
        (SingleCoordinate.uniform(6), np.ones(6)),
        (Full(6), np.full(6, 3)),
        (Blocks.uniform(groups), np.ones(6)),
        (Blocks.uniform(blocks), [1, 1, 3, 3, 3, 1]),
        (Nice(6, 3), np.full(6, 0.6 + 0.4 * 3)),
        (Independent(pi), 1 - pi + 3 * pi),
        (overlapping, [0.25 + 0.75 * 3, 1, 1, 3, 3, 3]),
        (Unlisted(overlapping), np.full(6, 3)),
    ]:
        v = from_bounds(sampling, groups, BETA)
        np.testing.assert_allclose(v, BETA * np.array(expected))
        with_ridge = from_bounds(sampling, groups, BETA, ridge=0.5)
        np.testing.assert_allclose(with_ridge, v + 0.5)


def test_bounds_certificate_is_exact_for_disjoint_sets():
    # A table that attains sup_x Σ x_j²/v_j: one-hot on the flattest of each group.
    rng = np.random.default_rng(4)
    answers = []
    for trial in range(200):
        d = 2 + trial % 6
        groups = random_groups(d, rng)
        sampling = Blocks.uniform(random_groups(d, rng))
        v = from_bounds(sampling, groups, BETA) * rng.uniform(0.6, 2, d)
        worst = -1.0
        for block in sampling.blocks:
            x = np.zeros(d)
            for group in groups:
                inside = np.intersect1d(group, block)
                if inside.size:
                    x[inside[np.argmin(v[inside])]] = 1
            worst = max(worst, excess(sampling, BETA * np.outer(x, x), v))
        answers.append(is_valid_for_bounds(sampling, groups, BETA, v))
        assert answers[-1] == (worst <= 1e-9)
    assert 20 < sum(answers) < 180


@pytest.mark.parametrize("name", EVERY)
def test_bounds_certificate_is_never_wrong(name):
    rng = np.random.default_rng(6)
    certified = 0
    for _ in range(150):
        groups = random_groups(6, rng)
        sampling = EVERY[name](6)
        v = from_bounds(sampling, groups, BETA) * rng.uniform(0.8, 2.5, 6)
        if is_valid_for_bounds(sampling, groups, BETA, v):
            certified += 1
            for _ in range(5):
                x = bounded_table(groups, 6, rng)[0]
                assert excess(sampling, BETA * np.outer(x, x), v) <= 1e-9
    assert certified > 10


def test_bounds_certificate_takes_uneven_shares_and_the_ridge():
    groups = [[0], [1]]
    v = BETA * np.array([4, 4 / 3])  # shares of 1/4 and 3/4
    assert is_valid_for_bounds(Full(2), groups, BETA, v)
    assert not is_valid_for_bounds(Full(2), groups, BETA, v - [0, 0.01])
    assert not is_valid_for_bounds(Full(2), groups, BETA, v, ridge=0.1)
    assert is_valid_for_bounds(Full(2), groups, BETA, v + 0.1, ridge=0.1)
    assert not is_valid_for_bounds(Full(2), groups, BETA, v, ridge=9.0)
    assert is_valid_for_bounds(Unlisted(Full(2)), groups, BETA, v)


F, I2, G = Full(2), np.eye(2), [[0], [1]]
BAD = {
    "hessian-shape": (lambda: from_hessian(F, np.eye(3)), "hessian"),
    "hessian-nan": (lambda: from_hessian(F, np.nan * I2), "hessian"),
    "hessian-lopsided": (lambda: from_hessian(F, [[1, 1], [0, 1]]), "hessian"),
    "hessian-indefinite": (lambda: from_hessian(F, [[1, 2], [2, 1]]), "hessian"),
    "hessian-negative": (lambda: from_hessian(F, -I2), "hessian"),
    "valid-shape": (lambda: is_valid(F, np.eye(3), [1, 1]), "hessian"),
    "valid-v": (lambda: is_valid(F, I2, [1]), "smoothness"),
    "valid-zero": (lambda: is_valid(F, I2, [1, 0]), "smoothness"),
    "valid-nan": (lambda: is_valid(F, I2, [1, np.nan]), "smoothness"),
    "groups-gap": (lambda: from_bounds(F, [[0]], 1.0), "groups"),
    "groups-range": (lambda: from_bounds(F, [[0], [1], [2]], 1.0), "groups"),
    "groups-twice": (lambda: from_bounds(F, [[0, 1], [1]], 1.0), "groups"),
    "curvature-zero": (lambda: from_bounds(F, G, 0.0), "curvature"),
    "curvature-nan": (lambda: from_bounds(F, G, np.nan), "curvature"),
    "ridge-negative": (lambda: from_bounds(F, G, 1.0, ridge=-1.0), "ridge"),
    "ridge-length": (lambda: from_bounds(F, G, 1.0, ridge=[1.0]), "ridge"),
    "certificate-groups": (
        lambda: is_valid_for_bounds(F, [[0]], 1.0, [1, 1]),
        "groups",
    ),
    "certificate-v": (lambda: is_valid_for_bounds(F, G, 1.0, [1]), "smoothness"),
    "certificate-curvature": (
        lambda: is_valid_for_bounds(F, G, -1.0, [1, 1]),
        "curvature",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_by_name(case):
    make, parameter = BAD[case]
    with pytest.raises(ValueError, match=rf"(?s)^\w[\w.]*: {parameter} must .*, got "):
        make()
