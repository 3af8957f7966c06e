"""Covariances of released weights: the recursion, made-up rows, caps, simulation."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import root as solve
from scipy.special import expit

from skdp import datasets
from skdp.descent import algorithm1, samplings
from skdp.descent.geometry import Diagonal
from skdp.descent.plan import run
from skdp.descent.rule import make_default_plan
from skdp.descent.sketches import Sketched
from skdp.inference import covariances, slopes, variances
from skdp.inference.slopes import Classes, Correction, Weighting, find_bias
from skdp.models.losses import Logistic, SmoothedHinge, Squared
from skdp.models.penalties import lasso
from skdp.privacy import queries
from skdp.privacy.encoding import Batch, encode
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import Kind
from skdp.schema import Categorical, Numeric, Schema


@pytest.mark.parametrize("name", ["rising", "mean", "last"])
def test_recursion_is_that_of_the_steps(name):
    """Unit noise at one step at a time, and a unit force at all, run by hand."""
    values, beta, pull, n_steps = np.array([0.0, 0.02, 0.2]), 0.25, 0.01, 30
    shares = algorithm1.AVERAGES[name](n_steps)
    noise, response = variances.solve_recursion(values, beta, pull, shares)

    def returned(forces):
        u, total = np.zeros(3), np.zeros(3)
        for share, force in zip(shares, forces, strict=True):
            u = u - (values * u + force) / beta
            u = u - pull / (beta + pull) * u
            total += share * u
        return total

    each = [returned(np.eye(n_steps)[j]) for j in range(n_steps)]
    np.testing.assert_allclose(noise, np.square(each).sum(axis=0))
    np.testing.assert_allclose(response, -returned(np.ones(n_steps)))


def test_a_long_run_answers_a_force_by_the_inverse_hessian():
    values, pull = np.array([0.05, 0.2]), 0.01
    _, response = variances.solve_recursion(values, 0.25, pull, algorithm1.last(2000))
    np.testing.assert_allclose(response, 1.0 / (values + pull), rtol=1e-6)


@pytest.fixture(scope="module")
def hospital():
    data = datasets.make_hospital(20_000, random_state=5)
    return encode([data.batch], data.schema)


def exact_gram(records, n_rows):
    """The Gram matrix without noise, as a release would hand it over."""
    from skdp.engines.reference import ReferenceEngine

    pattern = queries.GramPattern.of(records.layout, "replace-one", centred=True)
    total = queries.gram(ReferenceEngine(records), pattern)
    values = total.value.astype(np.float64) * total.unit
    return pattern, Released(values, np.zeros(values.shape), total.kind, total.query)


def test_made_up_rows_have_the_moments_that_were_released(hospital):
    pattern, released = exact_gram(hospital, 20_000)
    known = slopes.estimate_moments(hospital.layout, pattern, released, 20_000)
    at = np.arange(hospital.layout.n_features)
    true = np.concatenate(
        [datasets.compute_true_margins(hospital, np.eye(len(at)))[:, [j]] for j in at],
        axis=1,
    )
    np.testing.assert_allclose(known.mean, true.mean(axis=0), atol=1e-6)
    rows = slopes.make_rows(hospital.layout, known)
    np.testing.assert_allclose(rows.mean(axis=0), true.mean(axis=0), atol=0.012)
    codes = [g.coordinates for g in hospital.layout.groups if g.kind == "code"]
    for group in codes:  # one level each
        np.testing.assert_array_equal(rows[:, group].sum(axis=1), 1.0)
    assert rows.min() >= 0
    assert rows.max() <= 1
    gram, ours = true.T @ true / len(true), rows.T @ rows / len(rows)
    values, vectors = np.linalg.eigh(gram)
    white = vectors[:, values > 1e-6] / np.sqrt(values[values > 1e-6])
    ratios = np.linalg.eigvalsh(white.T @ ours @ white)
    assert ratios.min() > 0.6
    assert ratios.max() < 1.8
    assert np.median(np.abs(ratios - 1.0)) < 0.1


def test_a_covariance_of_three_deviations_is_kept():
    """Without it, columns that nearly determine each other would seem independent."""
    rng, n = np.random.default_rng(0), 10_000
    first = rng.random(n)
    names = [f"x{j}" for j in range(12)]
    columns = {name: rng.random(n) for name in names}
    columns |= {"x0": first, "x1": 0.5 * first + 0.5 * columns["x1"]}
    schema = Schema(dict.fromkeys(names, Numeric(0, 1)), target=Numeric(0, 1))
    records = encode([Batch(columns=columns, target=first)], schema)
    pattern, exact = exact_gram(records, n)
    covariance = float(np.cov(columns["x0"], columns["x1"])[0, 1])
    std = np.full(exact.values.shape, covariance * n / 3.0)
    released = Released(exact.values, std, exact.kind, exact.query)
    known = slopes.estimate_moments(records.layout, pattern, released, n)
    assert known.covariance[0, 1] > 0.5 * covariance
    assert known.covariance[0, 2] == 0


def test_a_category_that_cannot_be_told_adds_to_the_others_errors():
    plain, contrasts = np.eye(4), np.eye(4)
    contrasts[1:, 1:] -= 1.0 / 3.0  # a number, and a column of three categories
    std = np.array([1.0, 1.0, np.inf, 1.0])
    weights = covariances._weigh_untold(plain, contrasts, std)
    np.testing.assert_allclose(weights[[0, 1, 3]], [0.0, 1.0 / 3.0, 1.0 / 3.0])


def test_positive_numbers_are_raised_no_more_than_noise_allows():
    value, std = np.array([10.0, 0.0, -3.0, 2.0]), np.array([1.0, 1.0, 1.0, 0.0])
    raised = slopes._estimate_positive(value, std)
    np.testing.assert_allclose(raised[[0, 1, 3]], [10.0, 0.797885, 2.0], atol=1e-5)
    assert 0 < raised[2] < 0.5


def test_what_caps_hide_is_found():
    """Fit capped slopes in expectation; the bias leads back to the true weights."""
    rng = np.random.default_rng(0)
    rows = np.hstack([rng.random((2000, 2)), np.ones((2000, 1))])
    true = np.array([2.0, -1.0, -2.0])
    caps = np.where(rows[:, 0] > 0.7, 0.3, 0.9)
    chance = expit(rows @ true)

    def mean_slope(w):
        p = expit(rows @ w)
        low, high = np.minimum(p, caps), np.minimum(1.0 - p, caps)
        return rows.T @ ((1.0 - chance) * low - chance * high) / len(rows)

    reached = solve(mean_slope, true).x
    assert np.abs(reached - true).max() > 0.3
    bias = find_bias(
        Classes(np.ones(2)), Weighting.equal(), rows, reached[:, None], caps
    )
    np.testing.assert_allclose(bias[:, 0], reached - true, atol=0.01)


def test_larger_weights_make_the_noise_of_a_corrected_intercept_relatively_smaller():
    """The released sum is divided by the number of rows times the largest weight."""
    rng = np.random.default_rng(0)
    rows, weights = np.column_stack([rng.random(500), np.ones(500)]), [[1.0], [-0.5]]
    chance = expit(rows @ np.array(weights))
    steep = float((chance * (1.0 - chance)).mean())
    for most in (0.5, 1.0, 4.0):
        found = Correction.of(
            Classes(np.ones(2)),
            Weighting.equal(most),
            rows,
            np.array(weights),
            noise_std=30.0,
            cap=most,
            n_rows=1000,
        )
        std = 30.0 / (1000 * most) / steep
        np.testing.assert_allclose(np.sqrt(found.noise), std, rtol=1e-9)


def test_the_noise_of_a_variance_is_that_of_all_entries_that_it_is_made_of():
    """qᵀGq is linear in the released entries: move each by one standard deviation."""
    _, layout = small(Categorical(["n", "y"]), 10)
    pattern = queries.GramPattern.of(layout, "add-remove", centred=True)
    rng = np.random.default_rng(2)
    n_entries = len(pattern.rows)
    values, std = rng.normal(size=(2, n_entries))
    made = [
        variances.ReleasedGram(
            layout=layout,
            pattern=pattern,
            released=Released(values + moved, np.abs(std), Kind.GRAM, "a Gram matrix"),
            n_rows=50,
        )
        for moved in [np.zeros(n_entries), *np.diag(np.abs(std))]
    ]
    directions = rng.normal(size=(3, layout.n_features))
    (value, said), *others = (gram.evaluate_forms(directions) for gram in made)
    each = np.array([other - value for other, _ in others])
    np.testing.assert_allclose(said, np.linalg.norm(each, axis=0), rtol=1e-9)


def small(target, n_rows=4000):
    rng = np.random.default_rng(1)
    schema = Schema(
        {"a": Numeric(0, 1), "b": Numeric(0, 1), "c": Categorical(["x", "y", "z"])},
        target=target,
    )
    from skdp.privacy.encoding import Coded

    a, b, c = rng.random(n_rows), rng.beta(2, 5, n_rows), rng.integers(0, 3, n_rows)
    margin = 1.5 * a - 2.0 * b + 0.3 * c - 0.5
    if isinstance(target, Categorical):
        y = Coded((rng.random(n_rows) < expit(margin)).astype(np.intp), ["n", "y"])
    else:
        y = 0.2 * margin + 0.1 * rng.standard_normal(n_rows)
    cells = {"a": a, "b": b, "c": Coded(c, ["x", "y", "z"])}
    return encode([Batch(columns=cells, target=y)], schema), schema.layout()


@pytest.mark.parametrize(
    ("loss", "target"),
    [(Logistic(), Categorical(["n", "y"])), (Squared(), Numeric(-1, 1))],
    ids=["logistic", "squared"],
)
def test_noise_is_as_large_as_it_is_said_to_be(loss, target):
    """One table, fresh noise: the weights spread by what `noise_std` says.

    Levels are taken relative to their mean: what they have in common with the intercept
    also depends on the metric, which is as noisy.
    """
    records, layout = small(target)
    levels = np.eye(layout.n_features)
    levels[2:5, 2:5] -= 1 / 3
    levels[5, 2:5] += 1 / 3
    plan = make_default_plan(layout, loss, n_rows=4000, epsilon=4.0, n_steps=40)
    fits, said = [], []
    for seed in range(50):
        fit = run(plan, records, random_state=seed)
        found = covariances.estimate(plan, fit.record.transcript, fit.weights)
        fits.append(levels @ fit.weights[:, 0])
        said.append(found.errors(levels, levels).contrasts_noise_std[:, 0])
        assert np.all(found.usual.std(levels) >= found.usual.noise_std(levels))
    ratio = np.mean(said, axis=0) / np.std(fits, axis=0)
    assert np.all((ratio > 0.7) & (ratio < 1.45)), ratio


def test_a_bias_widens_by_what_95_percent_need():
    one = np.eye(1)
    for bias, wide in ((0.0, 1.0), (10.0, (10.0 + 1.6449) / 1.96)):
        found = covariances.Covariances(
            noise=one * 0.5,
            sampling=one * 0.25,
            shrinkage=one * 0.25,
            bias=np.array([bias]),
        )
        np.testing.assert_allclose(found.std(one), wide, rtol=1e-3)
        np.testing.assert_allclose(found.noise_std(one), 0.5**0.5)


def test_what_is_not_known_is_said():
    _, layout = small(Numeric(-1, 1), 10)
    plan = make_default_plan(layout, Logistic(), n_rows=4000, epsilon=4.0)
    assert covariances.find_obstacle(plan) is None
    bare = Schema({"a": Numeric(0, 1)}, target=Numeric(0, 1)).layout(False)
    d = layout.n_features
    for said, other in {
        "likelihood": replace(plan, loss=SmoothedHinge()),
        "diagonal geometry": replace(plan, geometry=Diagonal(smoothness=np.ones(d))),
        "this geometry": replace(plan, geometry=Sketched(directions=np.eye(d))),
        "full steps": replace(plan, sampling=samplings.Nice(d, 2)),
        "intercept": make_default_plan(bare, Logistic(), n_rows=4000, epsilon=4.0),
        "ℓ₁ penalty": replace(plan, penalty=lasso(0.1)),
        "histogram": make_default_plan(layout, Squared(), n_rows=4000),
    }.items():
        assert said in (covariances.find_obstacle(other) or "")
        with pytest.raises(ValueError, match=said):
            covariances.estimate(other, [], np.zeros((d, 1)))
