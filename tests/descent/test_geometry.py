"""Diagonal and matrix geometries: shapes, steps, the Gram matrix put together, caps."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from skdp.datasets import make_hospital
from skdp.descent import algorithm1, samplings
from skdp.descent.geometry import Diagonal, Task
from skdp.descent.matrix import (
    InterceptOnly,
    Matrix,
    fill_gram,
    make_metric_prox,
    remove_noise,
    whiten,
)
from skdp.descent.plan import Plan, run
from skdp.engines.reference import ReferenceEngine, to_dense
from skdp.models.losses import Logistic, Softmax, Squared
from skdp.models.penalties import Box, ElasticNet, lasso, ridge
from skdp.privacy import queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.mechanism import release
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, Numeric, Schema, Vector

N_ROWS = 250
LEVELS = ["x", "y", "z"]
COLUMNS = {
    "a": Numeric(0, 1),
    "c": Categorical(LEVELS),
    "v": Vector(["p", "q"], 1.0),
    "e": Categorical(["s", "t"]),
}


def records(intercept=True, numeric=False, n_rows=N_ROWS):
    rng = np.random.default_rng(5)
    columns = {
        "a": rng.random(n_rows),
        "c": Coded(rng.integers(-1, 3, n_rows), LEVELS),  # some are unknown
        "v": rng.normal(size=(n_rows, 2)) * 0.7,
        "e": Coded(rng.integers(0, 2, n_rows), ["s", "t"]),
    }
    score = 3 * columns["a"] - columns["c"].codes + columns["v"] @ [2.0, -1.0]
    label = (score + rng.logistic(size=n_rows) > np.median(score)).astype(int)
    target = score if numeric else Coded(label, [0, 1])
    batch = Batch(columns=columns, target=target)
    column = Numeric(-5, 8) if numeric else Categorical([0, 1])
    schema = Schema(COLUMNS, target=column)
    return encode([batch], schema, intercept=intercept)


def features(table):
    (chunk,) = table.chunks
    at = np.arange(table.layout.n_features)
    return to_dense(chunk, slice(None), at, table.layout) / 2**14, chunk.target


def free(neighbours="replace-one"):
    return PrivacyRecord(epsilon=math.inf, delta=1e-6, neighbours=neighbours)


def task(table, penalty=None, neighbours="replace-one", z=0.0, loss=None):
    record, source = free(neighbours), Randomness(1)
    return Task(
        engine=ReferenceEngine(table),
        loss=loss or Logistic(),
        slopes=queries.Slopes(loss or Logistic()),
        curvature=0.25,
        neighbours=neighbours,
        n_rows=N_ROWS,
        penalty=penalty or ElasticNet(),
        release=lambda total, share: release(total, z, source, record),
    )


def matrix_plan(table, loss=None, **options):
    return Plan(
        **{
            "layout": table.layout,
            "loss": loss or Logistic(),
            "n_rows": N_ROWS,
            "epsilon": math.inf,
            "delta": 1e-6,
            "sampling": samplings.Full(table.layout.n_features),
            "geometry": Matrix(radius=1e4, floor=1e-6),
            "n_steps": 80,
            "average": algorithm1.last,
        }
        | options
    )


@pytest.mark.parametrize("neighbours", queries.NEIGHBOURS)
@pytest.mark.parametrize("alpha", [0.01, 0.3])
def test_matrix_steps_reach_the_optimum(alpha, neighbours):
    """A large radius caps nothing: 80 steps are enough, whatever the correlations."""
    table = records()
    X, y = features(table)
    penalty = ridge(alpha, table.layout.penalised)
    fit = run(
        matrix_plan(table, penalty=penalty, neighbours=neighbours),
        table,
        random_state=1,
    )
    model = LogisticRegression(C=1 / (alpha * N_ROWS), tol=1e-10, max_iter=10_000)
    model.fit(X[:, :-1], y)
    best = np.append(model.coef_[0], model.intercept_)[:, None]

    def objective(w):
        return Logistic().value(X @ w, y).mean() + penalty.value(w)

    assert -1e-8 < objective(fit.weights) - objective(best) < 1e-6


def test_matrix_steps_solve_least_squares_at_once():
    """With A = XᵀX/n and a squared loss the first step is the solution."""
    table = records(intercept=False, numeric=True)
    X, y = features(table)
    loss = Squared(slope_bound=16.0)
    plan = matrix_plan(table, loss, n_steps=1, geometry=Matrix(radius=1e4, floor=1e-9))
    w = run(plan, table, random_state=1).weights
    target = y / 2**13 - 1.0
    exact = np.linalg.lstsq(X, target, rcond=None)[0]
    assert np.abs(X @ w[:, 0] - X @ exact).max() < 1e-3
    assert np.abs(X @ exact).max() > 0.1


@pytest.mark.parametrize("penalised", [None, "intercept free"])
def test_ridge_prox_solves_its_system(penalised):
    """argmin_u β/2 ‖u - w‖²_A + ½ l2 Σ s_j u_j², against a search."""
    rng = np.random.default_rng(6)
    factor = rng.normal(size=(8, 4))
    A, beta, l2 = factor.T @ factor / 8, 0.25, 0.7
    strength = np.ones(4) if penalised is None else np.array([1.0, 1.0, 1.0, 0.0])
    penalty = ridge(l2, None if penalised is None else strength)
    w = rng.normal(size=(4, 2))
    at, inverse = np.arange(4), np.linalg.inv(beta * A)
    found = make_metric_prox(inverse, penalty, at)(w)

    def objective(u, column):
        away = u - w[:, column]
        return beta / 2 * away @ A @ away + l2 / 2 * strength @ u**2

    for column in range(2):
        best = minimize(objective, np.zeros(4), args=(column,), tol=1e-14)
        assert objective(found[:, column], column) <= best.fun + 1e-12
        np.testing.assert_allclose(found[:, column], best.x, atol=1e-5)
    assert (make_metric_prox(inverse, ElasticNet(), at)(w) == w).all()


@pytest.mark.parametrize(
    "penalty", [lasso(0.3), ElasticNet(l1=0.2, l2=0.5), Box(-0.2, 0.3), Box()]
)
def test_other_penalties_are_solved_in_the_metric(penalty):
    """The subgradient condition M(w - u) ∈ ∂ψ(u), for a badly conditioned M."""
    rng = np.random.default_rng(11)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    M = basis @ np.diag([1e-3, 0.01, 0.1, 0.5, 1.0, 4.0]) @ basis.T
    at, prox = np.arange(6), None
    for seed in range(3):  # the state of one call starts the next
        w = np.random.default_rng(seed).normal(size=(6, 2)) * 2
        prox = prox or make_metric_prox(np.linalg.inv(M), penalty, at)
        u = prox(w)
        pull = M @ (w - u)
        # u is the penalty's own prox of a step along its pull, in any metric.
        np.testing.assert_allclose(penalty.prox(u + pull, np.ones(6), at), u, atol=1e-3)
    assert np.abs(u - w).max() > 0.01


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("neighbours", queries.NEIGHBOURS)
def test_released_entries_are_put_in_place(neighbours, intercept):
    """Without noise the whole Gram matrix comes back, the known entries included."""
    table = records(intercept)
    X, _ = features(table)
    pattern = queries.GramPattern.of(table.layout, neighbours)
    total = queries.gram(ReferenceEngine(table), pattern)
    released = release(total, 0.0, Randomness(1), free(neighbours))
    full = fill_gram(table.layout, pattern, released.values, float(N_ROWS))
    np.testing.assert_allclose(full, X.T @ X, atol=1e-9)
    d = table.layout.n_features
    assert len(pattern.rows) < d * (d + 1) / 2  # some were known


@pytest.mark.parametrize("neighbours", queries.NEIGHBOURS)
def test_known_entries_carry_no_noise(neighbours):
    table = records()
    layout = table.layout
    pattern = queries.GramPattern.of(layout, neighbours)
    total = queries.gram(ReferenceEngine(table), pattern)
    released = release(total, 5.0, Randomness(1), free(neighbours))
    full = fill_gram(layout, pattern, released.values, float(N_ROWS))
    assert (full == full.T).all()
    one = layout.n_features - 1
    assert (full[one, one] == N_ROWS) == (neighbours != "add-remove")
    for group in layout.groups:
        if group.kind == "code":
            block = full[np.ix_(group.coordinates, group.coordinates)]
            assert (block == np.diag(np.diag(block))).all()
            assert (full[one, group.coordinates] == np.diag(block)).all()
    assert full[0, one] != full[0, 0]


def test_whitening_lifts_the_eigenvalues():
    rng = np.random.default_rng(7)
    basis = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    A = basis @ np.diag([-0.5, 0.0, 0.05, 0.4, 9.0]) @ basis.T
    white = whiten(A, 0.1, np.zeros(5))
    lifted = basis @ np.diag([0.1, 0.1, 0.15, 0.5, 9.1]) @ basis.T
    root = white.root
    np.testing.assert_allclose(root @ lifted @ root, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(root, root.T, atol=1e-12)
    # Eigenvalues that noise hides, up to 0.2, get their mean, which is below zero here.
    np.testing.assert_allclose(white.share, [0, 0, 0, 0.4 / 0.5, 9 / 9.1], atol=1e-12)
    assert white.dimension == pytest.approx(0.8 + 9 / 9.1)
    assert whiten(-A, 100.0, np.zeros(5)).dimension == 1.0  # noise hides all


def test_noise_is_taken_out_of_the_eigenvalues():
    """The effective dimension of a noisy matrix is about that of the exact one."""
    p, noise, errors, naive_errors = 60, 0.02, [], []
    exact = np.diag(np.r_[2.0, np.full(9, 0.5), np.full(50, 0.01)])
    floor = 0.5 * noise * (2 * p) ** 0.5
    for seed in range(20):
        raw = np.random.default_rng(seed).normal(size=(p, p)) * noise
        noise_matrix = (np.triu(raw, 1) + np.triu(raw, 1).T) / 2**0.5
        noisy = exact + noise_matrix + np.diag(np.diag(raw))
        white = whiten(noisy, floor, np.zeros(p))
        true = np.trace(white.root @ exact @ white.root.T)
        kept = np.maximum(np.linalg.eigvalsh(noisy), 0)
        errors.append(white.dimension - true)
        naive_errors.append((kept / (kept + floor)).sum() - true)
    assert np.mean(naive_errors) > 3
    assert abs(np.mean(errors)) < 0.6 * np.mean(naive_errors)
    assert remove_noise(np.array([1.0, 2.0]), 0.1).tolist() == [1.0, 2.0]


def test_whitened_rows_are_those_of_the_centred_matrix():
    """B takes rows as encoded: E‖Bx‖² = d without floor, whatever the centre."""
    table = records()
    X, _ = features(table)
    pattern = queries.GramPattern.of(table.layout, "zero-out", centred=True)
    assert pattern.shift[0] == 1
    total = queries.gram(ReferenceEngine(table), pattern)
    released = release(total, 0.0, Randomness(1), free("zero-out"))
    gram = fill_gram(table.layout, pattern, released.values, float(N_ROWS)) / N_ROWS
    centred = X - pattern.shift / 2.0
    np.testing.assert_allclose(gram, centred.T @ centred / N_ROWS, atol=1e-9)
    white = whiten(gram, 1e-9, pattern.shift.astype(float))
    Z = X @ white.root.T
    rank = np.linalg.matrix_rank(X)
    assert (Z**2).sum(axis=1).mean() == pytest.approx(rank, abs=1e-4)


@pytest.mark.parametrize("radius", [0.05, 0.5, 1e4])
def test_caps_bite(radius):
    """‖B g_i‖ ≤ C for every record, at any weights, and less is not given away."""
    table = records()
    X, y = features(table)
    root = whiten(X.T @ X / N_ROWS, 1e-3, np.zeros(X.shape[1])).root
    adder = ReferenceEngine(table)
    metric = queries.Metric.of(root, radius)
    slopes = queries.cap_slopes(adder, queries.Slopes(Logistic()), metric)
    w = np.random.default_rng(8).normal(size=(len(root), 1)) * 30
    (chunk,) = table.chunks
    units = slopes.units(X @ w, 0, chunk, slice(None))
    reach = np.abs(units[:, 0]) * slopes.grid.unit * np.linalg.norm(X @ root.T, axis=1)
    assert reach.max() <= radius * (1 + 1e-5)
    free_slopes = np.abs(Logistic().slope(X @ w, y)[:, 0])
    wanted = free_slopes * np.linalg.norm(X @ root.T, axis=1)
    np.testing.assert_allclose(reach, np.minimum(wanted, radius), atol=1e-3 * radius)
    assert (wanted > radius).any() == (radius < 1)
    total = queries.mapped_gradient(adder, slopes, w, "zero-out")
    assert total.sensitivity == pytest.approx(radius, rel=1e-9)
    total = queries.mapped_gradient(adder, slopes, w, "replace-one")
    assert total.sensitivity == pytest.approx(2 * radius, rel=1e-9)
    exact = root @ X.T @ (units * slopes.grid.unit)
    value = total.value.astype(float) * total.unit
    np.testing.assert_allclose(value, exact, atol=1e-4 * N_ROWS * radius / 10)


def test_a_tight_cap_moves_the_fit():
    table = records()
    loose, tight = (
        run(matrix_plan(table, geometry=Matrix(radius=r, floor=1e-3)), table).weights
        for r in (1e4, 0.2)
    )
    assert np.linalg.norm(tight - loose) > 0.1


def test_mapped_gradient_needs_capped_slopes():
    table = records()
    with pytest.raises(TypeError, match=r"queries\.cap_slopes"):
        queries.mapped_gradient(
            ReferenceEngine(table),
            queries.Slopes(Logistic()),
            np.zeros((9, 1)),
            "zero-out",
        )


def objective(table, penalty, weights):
    X, y = features(table)
    return Logistic().value(X @ weights, y).mean() + penalty.value(weights)


@pytest.mark.parametrize("penalty", [lasso(0.02), Box(-0.5, 0.5), ElasticNet(l2=0.01)])
def test_penalties_reach_the_optimum_in_the_matrix_metric(penalty):
    """-∇f(w) ∈ ∂ψ(w): w is the penalty's own prox of a gradient step."""
    table = records()
    X, y = features(table)
    geometry = Matrix(radius=1e4, floor=1e-4)
    plan = matrix_plan(table, penalty=penalty, n_steps=100, geometry=geometry)
    w = run(plan, table, random_state=1).weights
    gradient = X.T @ Logistic().slope(X @ w, y) / N_ROWS
    at = np.arange(9)
    np.testing.assert_allclose(penalty.prox(w - gradient, np.ones(9), at), w, atol=5e-4)
    free = run(matrix_plan(table, geometry=geometry), table, random_state=1).weights
    assert np.abs(w - free).max() > 0.05


@pytest.mark.parametrize("penalty", [ElasticNet(), ridge(0.05), lasso(0.02)])
def test_blocks_reach_the_optimum_in_the_matrix_metric(penalty):
    table = records()
    blocks = samplings.Blocks.uniform(table.layout.blocks)
    plan = matrix_plan(table, penalty=penalty, n_steps=400, sampling=blocks)
    whole = run(matrix_plan(table, penalty=penalty, n_steps=300), table, random_state=1)
    parts = run(plan, table, random_state=1)
    gap = objective(table, penalty, parts.weights)
    gap -= objective(table, penalty, whole.weights)
    assert abs(gap) < 1e-4


@pytest.mark.parametrize("neighbours", queries.NEIGHBOURS)
def test_a_block_costs_its_own_radius(neighbours):
    """On S the cap is C √(|S|/d), and ‖B_S x_S‖ is what is capped."""
    table = records()
    X, _ = features(table)
    at = table.layout.blocks[1]
    query, *_ = Matrix(radius=0.5, floor=0.1).prepare(
        task(table, neighbours=neighbours)
    )
    total = query(at, np.full((9, 1), 3.0))
    times = 2 if neighbours == "replace-one" else 1
    assert total.value.shape == (len(at), 1)
    expected = times * 0.5 * math.sqrt(len(at) / 9)
    assert total.sensitivity == pytest.approx(expected, rel=1e-9)
    centred = X - queries.GramPattern.of(table.layout, neighbours, True).shift / 2.0
    A = centred.T @ centred / N_ROWS + 0.1 * np.eye(9)
    back = np.eye(9)
    back[:-1, -1] += (
        queries.GramPattern.of(table.layout, neighbours, True).shift[:-1] / 2.0
    )
    A = (back @ A @ back.T)[np.ix_(at, at)]
    values, vectors = np.linalg.eigh(A)
    root = (vectors / np.sqrt(values)) @ vectors.T
    slope = Logistic().slope(X @ np.full((9, 1), 3.0), features(table)[1])
    length = np.linalg.norm(X[:, at] @ root, axis=1)
    cap = 0.5 * math.sqrt(len(at) / 9) / np.maximum(length, 1e-12)
    exact = root @ X[:, at].T @ np.clip(slope[:, 0], -cap, cap)
    value = total.value.astype(float)[:, 0] * total.unit
    np.testing.assert_allclose(value, exact, atol=2e-2)


def test_several_classes_reach_the_optimum_in_the_matrix_metric():
    """Softmax with the target's counts as a start, against scikit-learn."""
    hospital = make_hospital(600)
    table = encode([hospital.batch], hospital.schema)
    layout, penalty = table.layout, ridge(0.01, table.layout.penalised)
    plan = Plan(
        layout=layout,
        loss=Softmax(2),
        n_rows=600,
        epsilon=math.inf,
        delta=1e-6,
        sampling=samplings.Full(layout.n_features),
        geometry=Matrix(radius=1e4, floor=1e-6, target_share=0.1),
        n_steps=300,
        penalty=penalty,
        average=algorithm1.last,
    )
    fit = run(plan, table, random_state=1)
    assert [event.query for event in fit.record.events][1] == "counts of 2 classes"
    X, y = features(table)
    model = LogisticRegression(C=2 / (0.01 * 600), tol=1e-10, max_iter=10_000)
    model.fit(X[:, :-1], y)
    margin = fit.weights[:, 1] - fit.weights[:, 0]
    best = np.append(model.coef_[0], model.intercept_)
    np.testing.assert_allclose(X @ margin, X @ best, atol=2e-3)


def test_a_constant_model_moves_the_intercept_alone():
    table = records()
    _, y = features(table)
    plan = matrix_plan(table, geometry=InterceptOnly(radius=1.0), n_steps=60)
    fit = run(plan, table, random_state=1)
    assert (fit.weights[:-1] == 0).all()
    rate = 1 / (1 + math.exp(-fit.weights[-1, 0]))
    assert rate == pytest.approx(y.mean(), abs=1e-4)
    (event,) = fit.record.events
    assert event.sensitivity == pytest.approx(2.0)  # replace-one
    with pytest.raises(ValueError, match="requires an intercept"):
        InterceptOnly().prepare(task(records(intercept=False)))
    with pytest.raises(ValueError, match="radius must be positive"):
        InterceptOnly(radius=0.0)


@pytest.mark.parametrize("geometry", ["matrix", "diagonal", "intercept"])
def test_updates_refuse_what_is_not_released(geometry):
    table = records()
    made = {
        "matrix": Matrix(radius=1.0, floor=0.1),
        "diagonal": Diagonal(smoothness=np.ones(9)),
        "intercept": InterceptOnly(),
    }[geometry]
    query, update, *_ = made.prepare(task(table))
    at, start = np.arange(9), np.zeros((9, 1))
    total = query(at, start)
    for bare in (total, total.value, total.value.astype(float) * total.unit):
        with pytest.raises(TypeError, match="only released values"):
            update(start, bare, at)


@pytest.mark.parametrize(
    "options",
    [
        {"radius": 0.0},
        {"radius": math.inf},
        {"radius": math.nan},
        {"floor": 0.0},
        {"floor": -1.0},
        {"gram_share": 0.0},
        {"gram_share": 1.0},
        {"gram_share": math.nan},
        {"gram_share": 0.6, "target_share": 0.4},
    ],
)
def test_senseless_matrices_are_refused(options):
    with pytest.raises(ValueError, match=r"must lie strictly between 0.0 and .*, got "):
        Matrix(**{"radius": 1.0, "floor": 0.1} | options)


def test_a_cap_that_follows_the_target_needs_its_histogram():
    with pytest.raises(ValueError, match="scaled=True requires"):
        Matrix(radius=1.0, floor=0.1, scaled=True)
    with pytest.raises(
        ValueError, match="shrinkage and target_share must be at least 0"
    ):
        Matrix(radius=1.0, floor=0.1, shrinkage=-1.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_senseless_smoothness_is_refused(bad):
    with pytest.raises(ValueError, match="smoothness must be positive and finite"):
        Diagonal(smoothness=np.array([1.0, bad]))


def test_given_step_sizes_are_taken():
    """Γ = P M⁻¹: the step on S is Γ/p, whatever p."""
    table = records()
    gamma, p = np.linspace(0.1, 0.9, 9), np.linspace(0.2, 1.0, 9)
    query, update, *_ = Diagonal(smoothness=p / gamma).prepare(task(table))
    at = np.array([0, 3, 8])
    released = release(query(at, np.zeros((9, 1))), 0.0, Randomness(1), free())
    moved = update(np.zeros((9, 1)), released, at)
    expected = np.zeros(9)
    expected[at] = -(gamma / p)[at] * released.values[:, 0] / N_ROWS
    np.testing.assert_allclose(moved[:, 0], expected, rtol=1e-12)


def noise_cost(shape, at, layout, smoothness):
    """Σ s_j²/M_j at sensitivity one: what the noise adds to the objective."""
    reach = layout.squared_norm(at, 1.0 / shape**2)
    return reach * float((shape**2 / smoothness[at]).sum())


@pytest.mark.parametrize("at", [np.arange(9), np.array([0, 1, 2, 8]), np.array([4])])
def test_elliptical_noise_is_the_cheapest(at):
    """Against isotropic noise and against 2,000 shapes constant on groups."""
    table, rng = records(), np.random.default_rng(9)
    layout = table.layout
    smoothness = np.exp(rng.normal(size=9))
    shape = Diagonal(smoothness=smoothness, elliptical=True).shape(at, layout.group_of)
    best = noise_cost(shape, at, layout, smoothness)
    tau = np.bincount(layout.group_of[at], weights=1 / smoothness[at])
    assert best == pytest.approx(np.sqrt(tau).sum() ** 2)  # (Σ_G L_G √τ_G)²
    flat = Diagonal(smoothness=smoothness).shape(at, layout.group_of)
    assert (flat == 1).all()
    assert best <= noise_cost(flat, at, layout, smoothness) * (1 + 1e-12)
    for _ in range(2000):
        other = np.exp(rng.normal(size=len(layout.groups)))[layout.group_of[at]]
        assert best <= noise_cost(other, at, layout, smoothness) * (1 + 1e-12)


def test_shrinkage_is_a_ridge_in_the_metric():
    """Without noise the fixed point minimises f + ½ λ ‖w - w⁰‖²_A."""
    hospital = make_hospital(300)
    records = encode([hospital.batch], hospital.schema)
    layout = records.layout
    shrinkage = 0.05
    geometry = Matrix(
        radius=1e4, floor=1e-3, shrinkage=shrinkage / 1e4, target_share=0.1
    )
    plan = Plan(
        layout=layout,
        loss=Logistic(),
        n_rows=300,
        epsilon=math.inf,
        delta=1e-6,
        sampling=samplings.Full(layout.n_features),
        geometry=geometry,
        n_steps=400,
        average=algorithm1.last,
    )
    weights = run(plan, records, random_state=0).weights
    rows = to_dense(
        records.chunks[0], slice(None), np.arange(layout.n_features), layout
    )
    X = rows / 2**14
    shift = queries.GramPattern.of(layout, "replace-one", centred=True).shift
    centred = X - shift / 2.0
    back = np.eye(len(shift))  # x = back (x - shift/2)
    back[:-1, -1] += shift[:-1] / 2.0
    metric = centred.T @ centred / 300 + 1e-3 * np.eye(len(shift))
    metric = back @ metric @ back.T
    target = records.chunks[0].target
    chance = 1 / (1 + np.exp(-X @ weights[:, 0]))
    gradient = X.T @ (chance - target) / 300
    start = np.zeros(len(shift))
    start[-1] = math.log(target.mean() / (1 - target.mean()))
    left = gradient + shrinkage * metric @ (weights[:, 0] - start)
    assert np.abs(left).max() < 2e-5
