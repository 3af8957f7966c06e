"""Sketched steps: directions, bounds, equal steps of other geometries, laws."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import skdp.audit
from skdp.datasets import make_hospital
from skdp.descent import algorithm1
from skdp.descent.geometry import Diagonal
from skdp.descent.matrix import Matrix
from skdp.descent.plan import Plan, run
from skdp.descent.samplings import LAWS, Blocks, FollowingLaw, Full, Nice
from skdp.descent.sketches import (
    Sketched,
    bound_image,
    fix_signs,
    randomised_hadamard,
)
from skdp.engines.reference import ReferenceEngine, to_dense
from skdp.models.losses import Logistic, Softmax
from skdp.models.penalties import Box, ElasticNet, lasso, ridge
from skdp.privacy import grid, queries
from skdp.privacy.encoding import encode
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import Kind
from skdp.schema import Categorical, Numeric, Pair, Schema, Vector

N_ROWS = 300
HOSPITAL = make_hospital(N_ROWS)
RECORDS = encode([HOSPITAL.batch], HOSPITAL.schema)
LAYOUT = RECORDS.layout
D, COLUMNS = LAYOUT.n_features, LAYOUT.blocks
ROTATION = randomised_hadamard(D)
GRAM = {"gram_share": 0.2, "floor": 1e-3}


def halves(n_directions, n_sets=5):
    return Blocks.uniform(np.array_split(np.arange(n_directions), n_sets))


#: Directions, with a sampling of them.
SKETCHES = {
    "columns": (
        lambda **o: Sketched(directions=np.eye(D), **o),
        Blocks.uniform(COLUMNS),
    ),
    "columns, Gram": (
        lambda **o: Sketched(**{"directions": np.eye(D)} | GRAM | o),
        Blocks.uniform(COLUMNS),
    ),
    "rotation": (
        lambda **o: Sketched(directions=ROTATION, **o),
        halves(len(ROTATION)),
    ),
    "rotation, Gram": (
        lambda **o: Sketched(**{"directions": ROTATION} | GRAM | o),
        halves(len(ROTATION)),
    ),
    "eigenvectors": (lambda **o: Sketched(**GRAM | o), halves(D)),
    "all eigenvectors": (lambda **o: Sketched(**GRAM | o), Full(D)),
    "overlapping": (lambda **o: Sketched(**GRAM | o), Nice(D, 6)),
}


def planned(name="eigenvectors", options=None, **settings):
    make, sampling = SKETCHES[name]
    usual = {
        "layout": LAYOUT,
        "loss": Logistic(),
        "n_rows": N_ROWS,
        "epsilon": 1.0,
        "delta": 1e-6,
        "sampling": sampling,
        "geometry": make(**options or {}),
        "n_steps": 12,
    }
    return Plan(**usual | settings)


def features():
    (chunk,) = RECORDS.chunks
    return to_dense(chunk, slice(None), np.arange(D), LAYOUT) / 2**14, chunk.target


# ---- matrices


@pytest.mark.parametrize("d", [1, 2, 5, 8, 27])
def test_a_randomised_hadamard_matrix_is_a_rotation_of_signs(d):
    Q = randomised_hadamard(d)
    assert set(np.unique(Q)) <= {-1.0, 1.0}
    assert (len(Q) * np.eye(d) == Q.T @ Q).all()
    assert len(Q) < 2 * d
    assert (randomised_hadamard(d) == Q).all()
    assert d < 5 or (randomised_hadamard(d, seed=1) != Q).any()


HOSTILE = Schema(
    {
        "a": Numeric(0, 1),
        "c": Categorical(list("xyz")),
        "v": Vector(["p", "q", "r"]),
        "k": Numeric(0, 1, knots=4),
        "s": Numeric(0, 1, knots=3),
        "ks": Pair("k", "s", 2),
    },
    target=Categorical([0, 1]),
)


def extreme_rows(layout, rng, n=400):
    """Rows in the corners of what a layout allows."""
    rows = np.zeros((n, layout.n_features))
    for group in layout.groups:
        at = group.coordinates
        if group.kind == "dense" and group.width > 1:
            part = rng.normal(size=(n, group.width))
            part /= np.linalg.norm(part, axis=1, keepdims=True)
        elif group.kind in ("dense", "ones"):
            part = np.ones((n, 1))
        else:
            part = np.eye(group.width)[rng.integers(group.width, size=n)]
        rows[:, at] = part
    return rows


@pytest.mark.parametrize("row_norm", [None, 2.0])
def test_the_bound_of_an_image_holds_and_is_reached_by_blocks(row_norm):
    rng = np.random.default_rng(0)
    layout = replace(HOSTILE.layout(True), row_norm=row_norm)
    rows = extreme_rows(layout, rng)
    if row_norm is not None:
        inner = np.linalg.norm(rows[:, :-1], axis=1, keepdims=True)
        rows[:, :-1] *= np.minimum(1.0, row_norm / inner)
    for n_directions in (1, 3, layout.n_features):
        Q = rng.normal(size=(n_directions, layout.n_features))
        longest = np.linalg.norm(rows @ Q.T, axis=1).max()
        assert longest <= bound_image(layout, Q)
        assert bound_image(layout, Q) <= 4 * longest
    for block in layout.blocks:
        assert bound_image(layout, np.eye(layout.n_features)[block]) == pytest.approx(1)
    both = np.concatenate(layout.blocks[:2])
    assert bound_image(layout, np.eye(layout.n_features)[both]) <= math.sqrt(2) + 1e-12


# ---- steps


def test_columns_with_public_bounds_are_the_paper_s_blocks():
    """The same releases, noise included, and the same weights."""
    seen = [[], []]
    law = Blocks.uniform(COLUMNS)
    diagonal = Diagonal(smoothness=np.full(D, 0.25), elliptical=False)
    plan = planned("columns", n_steps=25)
    fits = [
        run(
            replace(plan, geometry=geometry, sampling=law),
            RECORDS,
            random_state=3,
            callback=steps.append,
        )
        for geometry, steps in zip((plan.geometry, diagonal), seen, strict=True)
    ]
    np.testing.assert_allclose(fits[0].weights, fits[1].weights, atol=1e-12)
    for ours, paper in zip(*seen, strict=True):
        assert (ours.at == paper.at).all()
        np.testing.assert_allclose(ours.released.noise_std, paper.released.noise_std)
        np.testing.assert_allclose(ours.released.values, paper.released.values)
    assert fits[0].record.spent == fits[1].record.spent


def test_all_eigenvectors_at_once_are_the_matrix_geometry():
    settings = {"epsilon": math.inf, "n_steps": 6, "penalty": ridge(0.02)}
    ours = planned("all eigenvectors", {"cap": 0.3}, **settings)
    matrix = Matrix(radius=0.3 * math.sqrt(D), floor=1e-3, gram_share=0.2)
    theirs = replace(ours, geometry=matrix)
    found = [run(plan, RECORDS, random_state=1).weights for plan in (ours, theirs)]
    # Caps are rounded to the grid of slopes, by another matrix with the same norm.
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)
    free = run(planned("all eigenvectors", **settings), RECORDS, random_state=1).weights
    assert np.abs(found[0] - free).max() > 0.1  # the caps matter


@pytest.mark.parametrize(
    ("name", "law"),
    [(name, "fixed") for name in SKETCHES]
    + [(name, law) for name in ("columns", "rotation, Gram") for law in LAWS[1:]],
)
def test_without_noise_the_optimum_is_reached(name, law):
    alpha = 0.3
    penalty = ridge(alpha, LAYOUT.penalised)
    plan = planned(
        name,
        {"law": law},
        epsilon=math.inf,
        n_steps={"rotation": 900, "eigenvectors": 150}.get(name, 400),
        penalty=penalty,
        average=algorithm1.last,
    )
    weights = run(plan, RECORDS, random_state=1).weights
    X, y = features()
    model = LogisticRegression(C=1 / (alpha * N_ROWS), tol=1e-10, max_iter=10_000)
    model.fit(X[:, :-1], y)
    best = np.append(model.coef_[0], model.intercept_)[:, None]

    def objective(w):
        return Logistic().value(X @ w, y).mean() + penalty.value(w)

    assert -1e-8 < objective(weights) - objective(best) < 1e-4


def test_many_classes_move_together():
    loss = Softmax(3)
    records = encode(
        [HOSPITAL.batch], replace(HOSPITAL.schema, target=Categorical([0, 1, 2]))
    )
    plan = planned("rotation, Gram", {"law": "norms"}, loss=loss)
    weights = run(plan, records, random_state=1).weights
    assert weights.shape == (D, 3)
    assert weights.any()


def test_columns_of_the_matrix_that_are_zero_are_not_read():
    """The sum is the same as that of all coordinates, and fewer of them are added."""
    read = []

    class Engine(ReferenceEngine):
        def gradient(self, units, at, slopes):
            read.append(at)
            return super().gradient(units, at, slopes)

    engine, matrix = Engine(RECORDS), np.zeros((2, D))
    matrix[0, 3], matrix[1, [1, D - 1]] = 0.7, [-2.0, 0.1]
    metric = queries.Metric.of(matrix, 0.4)
    slopes = queries.cap_slopes(engine, queries.Slopes(Logistic()), metric)
    total = queries.mapped_gradient(engine, slopes, np.zeros((D, 1)), "zero-out")
    whole = engine.gradient(np.zeros((D, 1)), np.arange(D), slopes)
    assert (total.value == grid.multiply(metric.units, whole)).all()
    assert read[0].tolist() == [1, 3, D - 1]


def test_dependent_directions_are_measured_once():
    """All rows of a tall matrix span d dimensions: no more are released."""
    tall = Sketched(directions=ROTATION, **GRAM)
    plan = planned(geometry=tall, sampling=Full(len(ROTATION)), n_steps=2)
    steps = []
    run(plan, RECORDS, random_state=1, callback=steps.append)
    assert [step.released.values.shape for step in steps] == [(D, 1)] * 2


def test_directions_depend_on_the_released_matrix_alone():
    """Two tables for which the same matrix is released have the same sketches."""
    other = encode([make_hospital(N_ROWS, random_state=5).batch], HOSPITAL.schema)
    plan, kept, roots = planned("eigenvectors", {"cap": 0.3}), [], []

    def release_once(total, share):
        if not kept:
            values = (total.value * total.unit).astype(float)
            kept.append(released(values + 0.1 * N_ROWS, 1.0, wide=False))
        return kept[0]

    for table in (RECORDS, other):
        task = plan.make_task(ReferenceEngine(table), release_once)
        steps = plan.geometry.prepare(task).query.__self__
        at = plan.sampling.support[1]
        roots.append(steps.part(at).root)
        total = steps.query(at, np.zeros((D, 1)))
        assert total.sensitivity == pytest.approx(2 * 0.3 * math.sqrt(len(at)))
    assert (roots[0] == roots[1]).all()


# ---- what is spent


@pytest.mark.parametrize("law", ["fixed", "norms", "largest"])
@pytest.mark.parametrize("name", ["columns", "rotation", "eigenvectors"])
def test_every_step_costs_the_same_whichever_set_it_draws(name, law):
    """Noise is a fixed multiple of the sensitivity of the set that was drawn."""
    if name == "eigenvectors":
        uneven = Blocks.uniform([np.arange(2), np.arange(2, 9), np.arange(9, D)])
        plan = planned(name, {"law": law, "cap": 0.7}, sampling=uneven, n_steps=30)
    else:
        plan = planned(name, {"law": law}, n_steps=30)
    steps = []
    fit = run(plan, RECORDS, callback=steps.append)
    assert fit.record.spent_epsilon <= 1.0
    assert fit.record.spent_epsilon > 1.0 - 1e-6
    gradients = [e for e in fit.record.events if e.kind == Kind.MAPPED_GRADIENT]
    (z,) = {event.noise_multiplier for event in gradients}
    most = fit.record.visits[0].most if fit.record.visits else 30
    assert (most < 30) == (name == "rotation" and law == "fixed")
    assert z == plan.noise_multiplier(fit.record.budget, most)
    stds = {float(np.max(step.released.noise_std)) for step in steps}
    assert stds == {z * event.sensitivity for event in gradients}
    if name == "eigenvectors":
        by_size = {len(step.at): float(step.released.noise_std.max()) for step in steps}
        assert by_size[7] == pytest.approx(by_size[2] * math.sqrt(3.5))


# ---- laws that follow releases


def released(values, std=1.0, wide=True):
    """A released value that no mechanism made."""
    values = np.asarray(values, float)
    values = values[:, None] if wide else values
    found = object.__new__(Released)
    for name, value in {
        "values": values,
        "noise_std": np.full(values.shape, std),
        "query": "",
    }.items():
        object.__setattr__(found, name, value)
    return found


THREE = Blocks([[0], [1], [2, 3]], [0.5, 0.25, 0.25])


def test_probabilities_follow_what_was_released():
    law = FollowingLaw(THREE, "norms", 0.2)
    np.testing.assert_allclose(law.probabilities(), THREE.set_probabilities)
    law.learn(np.array([0]), released([3.0]))
    # Sets that were never drawn come first.
    np.testing.assert_allclose(law.probabilities(), [0.1, 0.45, 0.45])
    law.learn(np.array([1]), released([0.5]))  # below its noise
    law.learn(np.array([2, 3]), released([3.0, 5.0]))
    root = np.sqrt([8.0, 0.0, 32.0])
    wanted = 0.2 * THREE.set_probabilities + 0.8 * root / root.sum()
    np.testing.assert_allclose(law.probabilities(), wanted)
    assert law.weigh(np.array([0])) == pytest.approx(0.1 / wanted[0])
    greedy = FollowingLaw(THREE, "largest", 0.2)
    for at, values in (([0], [3.0]), ([1], [0.5]), ([2, 3], [3.0, 5.0])):
        greedy.learn(np.array(at), released(values))
    np.testing.assert_allclose(greedy.probabilities(), [0.1, 0.05, 0.85])
    for at in ([0], [2, 3]):
        greedy.learn(np.array(at), released(np.zeros(len(at))))
    np.testing.assert_allclose(greedy.probabilities(), THREE.set_probabilities)


def test_sets_are_drawn_with_the_probabilities_of_their_step():
    rng, law = np.random.default_rng(0), FollowingLaw(THREE, "norms", 0.5)
    for at, values in (([0], [3.0]), ([1], [1.2]), ([2, 3], [3.0, 5.0])):
        law.learn(np.array(at), released(values))
    drawn = [len(at) + at[0] for at in law.sets(20_000, rng)]
    shares = [np.mean(np.array(drawn) == key) for key in (1, 2, 4)]
    np.testing.assert_allclose(shares, law.probabilities(), atol=0.015)


def test_adaptive_runs_visit_steep_sets_more_often():
    visits = {}
    for law in ("fixed", "largest"):
        steps = []
        options = {"law": law, "explore": 0.2}
        plan = planned("columns", options, epsilon=math.inf, n_steps=100)
        run(plan, RECORDS, random_state=1, callback=steps.append)
        counts = np.unique([step.at[0] for step in steps], return_counts=True)[1]
        assert len(counts) == len(COLUMNS)
        visits[law] = counts.max()
    assert visits["fixed"] < 20 < 25 < visits["largest"]


def test_laws_learn_from_released_values_only():
    with pytest.raises(TypeError, match="only on released"):
        FollowingLaw(THREE, "norms", 0.5).learn(np.array([0]), np.ones((1, 1)))
    plan = planned("columns", {"law": "norms"})
    prepared = plan.geometry.prepare(plan.make_task(ReferenceEngine(RECORDS), None))
    with pytest.raises(TypeError, match="only released"):
        prepared.update(prepared.start, np.ones((1, 1)), COLUMNS[0])


def test_weighted_steps_are_unbiased():
    """E[step] is φ Σ p̄(S) B_Sᵀ B_S g/(βn), whatever the adaptive probabilities are."""
    plan = planned("columns", {"law": "norms", "weighted": True}, epsilon=math.inf)
    prepared = plan.geometry.prepare(plan.make_task(ReferenceEngine(RECORDS), None))
    steps = []
    run(plan, RECORDS, random_state=1, callback=steps.append)
    law, start = prepared.law, prepared.start
    for step in steps:
        prepared.update(start, step.released, step.at)
    p = law.probabilities()
    assert p.max() > 2 * p.min()
    moved = np.zeros_like(start)
    scores = law._scores.copy()
    for share, at in zip(p, COLUMNS, strict=True):
        total = prepared.query(at, start)
        exact = released((total.value * total.unit).astype(float)[:, 0], 0.0)
        moved += share * (prepared.update(start, exact, at) - start)
        law._scores[:] = scores
    X, y = features()
    gradient = X.T @ Logistic().slope(X @ start, y) / N_ROWS
    wanted = -0.5 * gradient / 0.25 / len(COLUMNS)
    np.testing.assert_allclose(moved, wanted, atol=1e-5)


# ---- plans


@pytest.mark.parametrize("law", ["fixed", "largest"])
@pytest.mark.parametrize("name", SKETCHES)
def test_a_plan_that_was_written_runs_to_the_same_bits(name, law):
    options = {"law": law if name != "overlapping" else "fixed"}
    plan = planned(name, options | {"explore": 0.25}, n_steps=5)
    again = Plan.from_json(plan.to_json())
    assert again.to_json() == plan.to_json()
    first, second = (run(p, RECORDS, random_state=2).weights for p in (plan, again))
    assert (first == second).all()
    assert "is not forecast for the geometry Sketched." in str(plan)
    assert plan.geometry.describe() in str(plan)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"directions": np.ones((2, 2))}, "span"),
        ({"directions": np.array([[math.nan, 1.0]])}, "finite"),
        ({"directions": np.ones(3)}, "one direction per row"),
        ({}, "required if gram_share is 0"),
        ({"gram_share": 0.1}, "floor must be positive"),
        ({"gram_share": 1.0, "floor": 1.0}, "gram_share must be"),
        ({"directions": np.eye(2), "cap": 0.0}, "cap must be"),
        ({"directions": np.eye(2), "law": "greedy"}, "law must be one of"),
        ({"directions": np.eye(2), "explore": 0.0}, "explore must be"),
    ],
)
def test_what_is_public_and_wrong_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        Sketched(**options)


def test_samplings_and_penalties_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="must have 32 coordinates"):
        planned("rotation", sampling=Full(D))
    with pytest.raises(ValueError, match="must have 27 columns"):
        planned(geometry=Sketched(directions=np.eye(3)), sampling=Full(3))
    for penalty in (lasso(0.1), Box(), ElasticNet(l1=0.1, l2=0.1)):
        with pytest.raises(ValueError, match="ridge penalty or none"):
            run(planned("columns", penalty=penalty), RECORDS)
    with pytest.raises(ValueError, match="lists its sets"):
        run(planned("overlapping", {"law": "norms"}), RECORDS)


@pytest.mark.parametrize("law", ["fixed", "norms"])
def test_an_estimator_takes_a_sketch_and_its_record_is_verified(law, tmp_path):
    rng = np.random.default_rng(0)
    model = skdp.LogisticRegression(
        schema=Schema(
            {name: Numeric(0, 1) for name in "abc"}, target=Categorical([0, 1])
        ),
        geometry=Sketched(gram_share=0.2, floor=0.1, law=law),
        sampling=Blocks.uniform([[0, 1], [2, 3]]),
        n_steps=4,
    )
    model.fit(rng.random((60, 3)), rng.integers(0, 2, 60))
    model.save(tmp_path / "model")
    assert skdp.verify(tmp_path / "model").passed
    if law == "norms":
        with pytest.raises(ValueError, match="law='fixed'"):
            skdp.audit.fit(model, n_trials=2)


def test_signs_of_directions_do_not_depend_on_the_library():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20, 7))
    flipped = rows * rng.choice([-1.0, 1.0], size=(20, 1))
    assert np.array_equal(fix_signs(rows), fix_signs(flipped))
    assert (np.abs(fix_signs(rows)) == np.abs(rows)).all()
