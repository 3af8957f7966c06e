"""Algorithm 1: without noise it finds the optimum, with noise it keeps its bounds.

Optima are found by scikit-learn or by scipy on exactly the features that the encoded
table holds, and objectives are compared: ours may be above theirs by 1e-6 at most.
"""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import Lasso, LogisticRegression, PoissonRegressor, Ridge

from skdp.descent import algorithm1, bounds, samplings, smoothness
from skdp.descent.algorithm1 import Step, draw_course, run_steps
from skdp.descent.geometry import Diagonal, make_diagonal_update
from skdp.descent.plan import Plan, run
from skdp.engines.reference import to_dense
from skdp.models.losses import LOSSES, Huber, Poisson, SmoothedHinge, Softmax, Squared
from skdp.models.penalties import ElasticNet, lasso, ridge
from skdp.privacy import queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Numeric, Schema, Vector

N_ROWS, TOLERANCE = 300, 1e-6
LEVELS = ["x", "y", "z"]


def table(target):
    """300 rows of 7 coordinates: a number, a category, a vector of two, the ones."""
    rng = np.random.default_rng(3)
    columns = {
        "a": rng.random(N_ROWS),
        "c": Coded(rng.integers(0, 3, N_ROWS), LEVELS),
        "v": rng.normal(size=(N_ROWS, 2)) * 0.6,
    }
    score = 2 * columns["a"] - columns["c"].codes + columns["v"] @ [1.5, -1.0]
    score = score + rng.normal(scale=0.5, size=N_ROWS)
    if target == "numeric":
        column, cells = Numeric(-4, 4), score + 8 * (rng.random(N_ROWS) < 0.05)
    elif target == "count":
        column = Numeric(0, 10)
        cells = rng.poisson(np.minimum(2 * np.exp(score / 3), 8)).astype(float)
    else:
        n_classes = {"binary": 2, "classes": 3}[target]
        edges = np.quantile(score, np.arange(1, n_classes) / n_classes)
        noisy = score + rng.normal(scale=1.0, size=N_ROWS)
        column = Categorical(list(range(n_classes)))
        cells = Coded(np.searchsorted(edges, noisy), list(range(n_classes)))
    schema = Schema(
        {"a": Numeric(0, 1), "c": Categorical(LEVELS), "v": Vector(["p", "q"], 1.0)},
        target=column,
    )
    return encode([Batch(columns=columns, target=cells)], schema)


def parts(records):
    """Features and targets as they are on the grid."""
    (chunk,), d = records.chunks, records.layout.n_features
    X = to_dense(chunk, slice(None), np.arange(d), records.layout) / 2**14
    return X, chunk.target


def optimum_by_scipy(loss, X, y, alpha, penalised):
    """Minimise the mean loss plus a ridge by a quasi-Newton method, to rounding."""

    def both(w):
        margin = X @ w[:, None]
        value = loss.value(margin, y).mean() + alpha / 2 * penalised @ w**2
        slope = true_slope(loss, margin, y)
        return value, X.T @ slope[:, 0] / len(X) + alpha * penalised * w

    options = {"gtol": 1e-12, "maxiter": 5000, "ftol": 1e-16}
    start = np.zeros(X.shape[1])
    return minimize(both, start, jac=True, method="L-BFGS-B", options=options).x[
        :, None
    ]


def true_slope(loss, margin, y):
    """Slopes by central differences of the value: no table is read."""
    t = 1e-6
    return ((loss.value(margin + t, y) - loss.value(margin - t, y)) / (2 * t))[:, None]


def by_sklearn(X, weights, intercept):
    """Weights of a fitted model, the intercept last, shape (d, k)."""
    return np.vstack([np.atleast_2d(weights).T, np.atleast_1d(intercept)[None]])


def logistic_optimum(loss, X, y, alpha, penalised):
    model = LogisticRegression(C=1 / (alpha * len(X)), tol=1e-10, max_iter=10_000)
    model.fit(X[:, :-1], y)
    return by_sklearn(X, model.coef_, model.intercept_)


def ridge_optimum(loss, X, y, alpha, penalised):
    model = Ridge(alpha * len(X), tol=1e-12).fit(X[:, :-1], y / 2**13 - 1)
    return by_sklearn(X, model.coef_, model.intercept_)


def lasso_optimum(loss, X, y, alpha, penalised):
    model = Lasso(alpha, tol=1e-12, max_iter=100_000).fit(X[:, :-1], y / 2**13 - 1)
    return by_sklearn(X, model.coef_, model.intercept_)


def poisson_optimum(loss, X, y, alpha, penalised):
    model = PoissonRegressor(alpha=alpha, tol=1e-10, max_iter=10_000)
    model.fit(X[:, :-1], y / 2**14)
    return by_sklearn(X, model.coef_, model.intercept_)


#: Name -> target, loss, penalty of a strength, the strength, who knows the optimum.
PROBLEMS = {
    "logistic": ("binary", LOSSES["logistic"](), ridge, 0.05, logistic_optimum),
    "softmax": ("classes", Softmax(3), ridge, 0.1, logistic_optimum),
    "ridge": ("numeric", Squared(slope_bound=8.0), ridge, 0.1, ridge_optimum),
    "huber": ("numeric", Huber(slope_bound=0.1), ridge, 0.1, optimum_by_scipy),
    "hinge": ("binary", SmoothedHinge(), ridge, 0.2, optimum_by_scipy),
    "lasso": ("numeric", Squared(slope_bound=8.0), lasso, 0.02, lasso_optimum),
}


def hessian(loss, X):
    return loss.curvature * X.T @ X / len(X)


def noiseless(records, loss, sampling, v, n_steps, penalty, **options):
    return Plan(
        layout=records.layout,
        loss=loss,
        n_rows=N_ROWS,
        epsilon=math.inf,
        delta=1e-6,
        sampling=sampling,
        geometry=Diagonal(smoothness=v),
        n_steps=n_steps,
        penalty=penalty,
        **{"average": algorithm1.last} | options,
    )


#: Every problem on three samplings, and every sampling on two problems.
RUNS = [
    (problem, sampling)
    for problem in PROBLEMS
    for sampling in samplings.SAMPLINGS
    if problem in ("softmax", "lasso")
    or sampling in ("full", "blocks-uniform", "single-importance")
]


@pytest.mark.parametrize(("problem", "sampling"), RUNS)
def test_without_noise_the_optimum_is_reached(problem, sampling):
    target, loss, make, alpha, solve = PROBLEMS[problem]
    records = table(target)
    X, y = parts(records)
    penalised = records.layout.penalised
    penalty, law = make(alpha, penalised), samplings.SAMPLINGS[sampling](7)
    best = solve(loss, X, y, alpha, penalised)

    def objective(w):
        return float(loss.value(X @ w, y).mean()) + penalty.value(w)

    v = smoothness.from_hessian(law, hessian(loss, X))
    n_steps = 150 + math.ceil(100 / law.probabilities.min())
    fit = run(
        noiseless(records, loss, law, v, n_steps, penalty), records, random_state=1
    )
    excess = objective(fit.weights) - objective(best)
    assert -1e-8 < excess < TOLERANCE
    assert objective(np.zeros_like(best)) - objective(best) > 1e-3
    assert excess < 1e-3 * (objective(np.zeros_like(best)) - objective(best))


@pytest.mark.parametrize("sampling", ["full", "blocks-uniform", "single-uniform"])
def test_public_bounds_reach_the_optimum_too(sampling):
    records = table("binary")
    X, y = parts(records)
    loss, law = LOSSES["logistic"](), samplings.SAMPLINGS[sampling](7)
    v = smoothness.from_bounds(law, records.layout.blocks, loss.curvature)
    penalty = ridge(0.1, records.layout.penalised)
    best = logistic_optimum(loss, X, y, 0.1, None)
    n_steps = math.ceil(300 / law.probabilities.min())
    fit = run(noiseless(records, loss, law, v, n_steps, penalty), records)
    values = [
        loss.value(X @ w, y).mean() + penalty.value(w) for w in (fit.weights, best)
    ]
    assert -1e-8 < values[0] - values[1] < TOLERANCE


@pytest.mark.parametrize("sampling", ["full", "blocks-uniform"])
def test_poisson_regression_reaches_its_optimum(sampling):
    """Rates are far below the curvature bound, so it takes more steps than others."""
    records = table("count")
    X, y = parts(records)
    loss, law = Poisson(slope_bound=1.0), samplings.SAMPLINGS[sampling](7)
    penalty = ridge(0.1, records.layout.penalised)
    best = poisson_optimum(loss, X, y, 0.1, None)
    v = smoothness.from_hessian(law, hessian(loss, X))
    n_steps = math.ceil(1000 / law.probabilities.min())
    fit = run(
        noiseless(records, loss, law, v, n_steps, penalty), records, random_state=1
    )
    values = [
        loss.value(X @ w, y).mean() + penalty.value(w) for w in (fit.weights, best)
    ]
    assert -1e-8 < values[0] - values[1] < TOLERANCE


def test_clipped_slopes_matter_where_they_should():
    """The Huber problem is not the ridge one: its optimum is elsewhere."""
    records = table("numeric")
    X, y = parts(records)
    penalised = records.layout.penalised
    robust = optimum_by_scipy(Huber(slope_bound=0.1), X, y, 0.1, penalised)
    plain = ridge_optimum(None, X, y, 0.1, penalised)
    assert np.abs(robust - plain).max() > 0.01


# ---- the loop itself, on functions that are known


def free(epsilon=math.inf):
    return PrivacyRecord(epsilon=epsilon, delta=1e-6, neighbours="replace-one")


class Quadratic:
    """½ wᵀHw - bᵀw, asked for on sets through `queries.state_sensitivity`."""

    def __init__(self, d, rank, seed=0, sensitivity=1.0):
        rng = np.random.default_rng(seed)
        factor = rng.normal(size=(rank, d)) * np.linspace(0.5, 1.5, d)
        self.hessian = factor.T @ factor / rank
        self.best = rng.normal(size=(d, 1))
        self.linear = self.hessian @ self.best
        self.sensitivity = sensitivity
        self.asked = []

    def query(self, at, theta):
        self.asked.append((at.copy(), theta.copy()))
        values = self.hessian[at] @ theta - self.linear[at]
        return queries.state_sensitivity(
            values, self.sensitivity, Kind.STATED, f"quadratic on {len(at)}"
        )

    def excess(self, w):
        away = w - self.best
        return float(away[:, 0] @ self.hessian @ away[:, 0]) / 2

    def descend(self, law, v, n_steps, z=0.0, seed=0, **options):
        settings = {
            "query": self.query,
            "update": make_diagonal_update(1.0 / v, ElasticNet(), 1.0),
            "average": algorithm1.last,
            "start": np.zeros_like(self.best),
            "randomness": Randomness(seed),
            "record": free(),
        } | options
        course = draw_course(
            law.sets,
            None,
            n_steps=n_steps,
            n_restarts=settings.pop("n_restarts", 1),
            randomness=settings["randomness"],
        )
        return run_steps(course=course, noise_multiplier=z, **settings)


def test_the_loop_is_algorithm_1_written_out():
    """K = 5 and T = 3, each inner loop from the mean of the one before, S public."""
    f, d = Quadratic(6, 6), 6
    law = samplings.SAMPLINGS["explicit"](d)
    gamma = np.linspace(0.05, 0.2, d)
    geometry = Diagonal(smoothness=law.probabilities / gamma)
    steps, record = [], free()
    w = f.descend(
        law,
        geometry.smoothness,
        5,
        z=0.3,
        seed=4,
        n_restarts=3,
        average=algorithm1.mean,
        callback=steps.append,
        record=record,
    )
    assert sum(record.events.values()) == len(record.transcript) == len(steps) == 15
    assert [(s.restart, s.index) for s in steps] == [
        (t, k) for t in range(3) for k in range(5)
    ]
    sets = [
        at
        for public in [Randomness(4).generator()]
        for _ in range(3)
        for at in law.sets(5, public)
    ]
    by_hand = np.zeros((d, 1))
    for t in range(3):
        theta, iterates = by_hand, []
        for k in range(5):
            step = steps[5 * t + k]
            at, before = f.asked[5 * t + k]
            assert (at == step.at).all()
            assert (at == sets[5 * t + k]).all()
            np.testing.assert_allclose(before, theta, rtol=1e-12)
            assert step.released is record.transcript[5 * t + k]
            # Γ C g̃ with C = I_S P⁻¹, the paper's line 6
            sketched = np.zeros((d, 1))
            sketched[at] = step.released.values / law.probabilities[at, None]
            theta = theta - gamma[:, None] * sketched
            np.testing.assert_allclose(step.weights, theta, rtol=1e-12)
            iterates.append(theta)
        by_hand = np.mean(iterates, axis=0)
    np.testing.assert_allclose(w, by_hand, rtol=1e-12)


@pytest.mark.parametrize("n_steps", [1, 2, 3, 10, 11])
def test_averages_are_their_formulas(n_steps):
    k = np.arange(1, n_steps + 1)
    expected = {
        "mean": np.full(n_steps, 1 / n_steps),
        "tail": (k > n_steps // 2) / (k > n_steps // 2).sum(),
        "most": (k > n_steps // 5) / (k > n_steps // 5).sum(),
        "rising": k / k.sum(),
        "last": k == n_steps,
    }
    assert set(expected) == set(algorithm1.AVERAGES)
    for name, weights in expected.items():
        np.testing.assert_allclose(algorithm1.AVERAGES[name](n_steps), weights)
    rate = 0.2
    growing = (1 - rate) ** -k.astype(float)
    np.testing.assert_allclose(
        algorithm1.growing(rate)(n_steps), growing / growing.sum(), rtol=1e-12
    )


def test_growing_weights_do_not_overflow():
    weights = algorithm1.growing(0.5)(5000)
    assert weights[-2:].tolist() == [0.25, 0.5]
    assert weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["mean", "tail", "last", "growing"])
def test_result_is_the_weighted_sum_of_what_the_callback_saw(name):
    f, seen = Quadratic(4, 4), []
    average = algorithm1.AVERAGES.get(name, algorithm1.growing(0.1))
    full = samplings.Full(4)
    v = smoothness.from_hessian(full, f.hessian)
    w = f.descend(full, v, 7, z=0.5, average=average, callback=seen.append)
    iterates = np.array([step.weights for step in seen])
    np.testing.assert_allclose(w, np.tensordot(average(7), iterates, 1), rtol=1e-12)


def test_callback_sees_public_and_released_values_only():
    """A step contains neither an exact sum nor the records, at any depth."""
    f, seen = Quadratic(4, 4), []
    full = samplings.Full(4)
    f.descend(full, np.full(4, 9.0), 3, z=1.0, callback=seen.append)
    assert [type(step) for step in seen] == [Step] * 3
    for step, (at, theta) in zip(seen, f.asked, strict=True):
        assert set(vars(step)) == {"restart", "index", "at", "released", "weights"}
        assert type(step.released) is Released
        assert set(vars(step.released)) == {"values", "noise_std", "kind", "query"}
        exact = f.hessian[at] @ theta - f.linear[at]
        assert (step.released.values != exact).all()


@pytest.mark.parametrize("what", ["array", "sum", "list"])
def test_updates_take_released_values_only(what):
    update = make_diagonal_update(np.ones(3), ElasticNet(), 1.0)
    total = queries.state_sensitivity(np.ones((3, 1)), 1.0, Kind.STATED, "test")
    bare = {"array": np.ones((3, 1)), "sum": total, "list": [1.0, 1.0, 1.0]}[what]
    with pytest.raises(TypeError, match="only released values"):
        update(np.zeros((3, 1)), bare, np.arange(3))


def test_an_update_moves_its_set_alone():
    update = make_diagonal_update(np.array([1.0, 2.0, 4.0]), ElasticNet(), 2.0)
    start, at = np.ones((3, 1)), np.array([0, 2])
    released = Released(np.array([[1.0], [0.5]]), np.ones((2, 1)), Kind.STATED, "test")
    moved = update(start, released, at)
    assert moved.tolist() == [[0.5], [1.0], [0.0]]
    assert start.tolist() == [[1.0], [1.0], [1.0]]


@pytest.mark.parametrize(("n_steps", "n_restarts"), [(0, 1), (1, 0), (-1, 2)])
def test_no_steps_are_refused(n_steps, n_restarts):
    f = Quadratic(3, 3)
    with pytest.raises(ValueError, match="n_steps and n_restarts must be at least 1"):
        f.descend(samplings.Full(3), np.ones(3), n_steps, n_restarts=n_restarts)
    assert f.asked == []


@pytest.mark.parametrize("name", samplings.SAMPLINGS)
def test_sketch_is_unbiased_through_the_loop(name):
    """E[C g̃] = ∇f at the start: 4,000 first steps, within 6 deviations."""
    f, d, n_runs = Quadratic(5, 5, sensitivity=0.5), 5, 4000
    law = samplings.SAMPLINGS[name](d)
    gradient = -f.linear[:, 0]
    moves, noise = np.zeros((n_runs, d)), []
    source, record = Randomness(6), free()
    start = np.zeros((d, 1))

    def update(theta, released, at):
        run_of = len(noise)
        moves[run_of, at] = released.values[:, 0] / law.probabilities[at]
        noise.append(released.values[:, 0] - gradient[at])
        return start

    f.descend(
        law,
        np.ones(d),
        n_runs,
        z=2.0,
        update=update,
        randomness=source,
        record=record,
    )
    error = moves.std(axis=0) / math.sqrt(n_runs)  # less for shuffled cycles
    assert (np.abs(moves.mean(axis=0) - gradient) < 6 * error).all()
    # and the noise is the multiplier times the sensitivity for every set
    squares = np.concatenate(noise) ** 2
    assert squares.mean() == pytest.approx(1.0, abs=6 * math.sqrt(2 / squares.size))


def mean_excess(f, law, v, rate, z, n_runs):
    """Mean and its standard error over runs through release()."""
    shared = {"randomness": Randomness(8), "average": algorithm1.mean}
    runs = [
        f.excess(f.descend(law, v, rate.n_steps, z=z, **shared)) for _ in range(n_runs)
    ]
    return np.mean(runs), np.std(runs) / math.sqrt(n_runs)


@pytest.mark.parametrize("name", ["full", "blocks-uniform"])
def test_noisy_runs_keep_the_bound_that_is_printed(name):
    """E f(mean of θ) - f* for 250 runs of descend(), each release of it noisy.

    A table of n rows whose records have gradients of norm at most 1 would have
    sensitivity 2/n for the mean.
    """
    d, n_rows = 6, 200
    f = Quadratic(d, 4, seed=2, sensitivity=2.0 / n_rows)
    law = samplings.SAMPLINGS[name](d)
    v = smoothness.from_hessian(law, f.hessian + 1e-3 * np.eye(d))
    budget = bounds.Budget(n_rows=n_rows, epsilon=1.0, delta=1e-5)
    distance = bounds.distance_squared(v, law.probabilities, f.best[:, 0])
    sigma = bounds.sigma_squared(law, v, lambda at: 1.0)
    if name == "full":
        rate = bounds.convex_tight(
            distance_squared=distance, sigma_squared=sigma, budget=budget
        )
    else:
        rate = bounds.convex_eso(
            distance_squared=distance,
            sigma_squared=sigma,
            step_sigma_squared=bounds.step_sigma_squared(law, v, lambda at: 1.0),
            smallest_probability=float(law.probabilities.min()),
            excess=f.excess(np.zeros((d, 1))),
            budget=budget,
        )
    z = math.sqrt(rate.n_steps) / budget.mu
    mean, error = mean_excess(f, law, v, rate, z, 250)
    assert mean - 5 * error < rate.bound
    # A bound for the wrong noise would show: with forty times as much it breaks.
    louder, error = mean_excess(f, law, v, rate, 40 * z, 30)
    assert louder - 5 * error > rate.bound
