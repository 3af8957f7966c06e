"""Theorems D, E and F: random problems, limits, and what they coincide with."""

import math

import numpy as np
import pytest
import theorems

from experiments.theory.rates import (
    composite_bound,
    eso_bound,
    matrix_distance_squared,
    weighted_bound,
)
from skdp.descent.bounds import (
    Budget,
    convex_bound,
    distance_squared,
    sigma_squared,
    step_sigma_squared,
)
from skdp.descent.eso_bounds import (
    convex_composite,
    eso_weighted_bound,
    matrix_sigmas,
    strongly_convex_eso,
)
from skdp.descent.samplings import SAMPLINGS, Blocks, Full, Nice

BUDGET = Budget(n_rows=3_000, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("theorem", "DEF")
def test_random_problems_do_not_break_it(theorem):
    """120 of the problems of ``make bench NAME=theorems``."""
    found = theorems.search(theorem, 120, seed=1)
    assert found["worst beyond chance"] <= 1
    assert found["worst"] > 0.5  # the search reaches the bound's neighbourhood


@pytest.mark.parametrize("theorem", "DEF")
def test_steps_that_are_too_long_break_it(theorem):
    """The search has power: with M six times too small, bounds are passed."""
    worst = 0.0
    for number in range(60):
        rng = np.random.default_rng([2, number])
        problem, rho = theorems.draw_problem(rng, theorem)
        fields = {n: getattr(problem, n) for n in problem.__dataclass_fields__}
        fields |= {"root": problem.root * math.sqrt(6), "prox": lambda w: w}
        fields |= {"penalty": lambda w: np.zeros(w.shape[:-1]), "n_steps": 60}
        tilt = theorems.Smooth(problem.smooth.rows, problem.smooth.widths, 0)
        flat = -tilt.gradient(problem.goal)
        fields["smooth"] = theorems.Smooth(tilt.rows, tilt.widths, flat)
        long = theorems.Problem(**fields)
        with np.errstate(over="ignore", invalid="ignore"):
            worst = max(worst, theorems.ratio_of(theorem, long, rho, rng, 20)[1])
    assert worst > 1


def test_theorem_b_is_tight_in_its_noise():
    """Its factor 2 over Theorem A's noise cannot be dropped: 3/4 of it is reached."""
    assert theorems.tightness(2, 8_000, n_runs=60) > 0.6  # Theorem A would say 0.5


def test_theorem_b_is_twice_too_large_for_quadratics():
    """From the minimiser: exactly half of it, in the limit, if M = diag H."""
    d, n_steps = 5, 400
    law = SAMPLINGS["single-uniform"](d)
    hessian = 0.4 * np.eye(d) + 0.6
    moment, total = np.zeros((d, d)), 0.0
    for _ in range(n_steps):
        total += 0.5 * float(np.sum(hessian * moment))
        new = np.zeros((d, d))
        for j in range(d):
            step = np.eye(d)
            step[j] -= hessian[j]
            new += (step @ moment @ step.T + np.diag(np.arange(d) == j)) / d
        moment = new
    bound = eso_bound(
        n_steps,
        distance_squared=0.0,
        excess=0.0,
        noise=float(d),
        step_noise=1.0,
        smallest_probability=float(law.probabilities.min()),
    )
    assert 0.47 < total / n_steps / bound <= 0.5


# ---- what the formulas are


FACTS = {"distance_squared": 7.0, "excess": 0.6, "step_noise": 0.02}


@pytest.mark.parametrize("include_start", [True, False])
def test_with_equal_probabilities_a_penalty_costs_nothing(include_start):
    facts = FACTS | {"smallest_probability": 0.2, "include_start": include_start}
    plain = eso_bound(50, noise=0.02 / 0.2, **facts)
    assert composite_bound(50, **facts) == pytest.approx(plain)
    visits, first = 5.0, 5.0 if include_start else 4.0
    expected = (3.5 + first * 0.6) / 50 + visits * 0.02
    assert composite_bound(50, **facts) == pytest.approx(expected)


@pytest.mark.parametrize("include_start", [True, False])
@pytest.mark.parametrize("composite", [True, False])
def test_without_strong_convexity_e_is_b_or_d(composite, include_start):
    facts = FACTS | {"smallest_probability": 0.2, "include_start": include_start}
    found = eso_weighted_bound(50, noise=0.07, decay=1e-9, composite=composite, **facts)
    other = composite_bound if composite else eso_bound
    more = {} if composite else {"noise": 0.07}
    assert found == pytest.approx(other(50, **facts, **more), rel=1e-6)


def test_theorem_c_of_later_iterates_tends_to_theorem_a():
    facts = {"distance_squared": 7.0, "noise": 0.3}
    found = weighted_bound(
        50, **facts, decay=1e-9, loss=1e-9, include_start=False, start_excess=0.6
    )
    expected = convex_bound(50, **facts, include_start=False, start_excess=0.6)
    assert found == pytest.approx(expected, rel=1e-6)


def test_theorem_c_holds_for_later_iterates():
    """Weights (1-ρ)^(-k), k = 1..K: exact moments of random quadratics."""
    rng = np.random.default_rng(5)
    for trial in range(40):
        d, n_steps = 3, int(rng.integers(1, 40))
        p = float(rng.choice([1.0, 0.4]))
        smooth = rng.uniform(1.0, 3.0, d)
        bends = smooth * rng.uniform(0.02, 1.0, d)
        modulus = min(float((bends * p / smooth).min()), 0.9 * p)
        start, noise = rng.standard_normal(d), float(rng.choice([0.0, 0.5]))
        square, values = start**2, []
        for _ in range(n_steps + 1):
            values.append(0.5 * float(bends @ square))
            moved = (1 - bends / smooth) ** 2 * square + (noise / smooth) ** 2
            square = p * moved + (1 - p) * square
        weights = (1 - modulus) ** -np.arange(1.0, n_steps + 1)
        mean = float(np.dot(weights, values[1:]) / weights.sum())
        bound = weighted_bound(
            n_steps,
            distance_squared=distance_squared(smooth, np.full(d, p), start),
            noise=float(np.sum(noise**2 / smooth)),
            decay=modulus,
            loss=modulus / p,
            include_start=False,
            start_excess=values[0],
        )
        assert mean <= bound * (1 + 1e-9), trial


@pytest.mark.parametrize("composite", [True, False])
def test_the_number_of_steps_is_the_best_integer(composite):
    facts = {
        "distance_squared": 7.0,
        "step_sigma_squared": 0.4,
        "smallest_probability": 0.2,
        "excess": 0.6,
    }
    scale = BUDGET.noise_scale**2
    more = {"modulus": 0.01, "sigma_squared": 2.5, "composite": composite}
    rate = strongly_convex_eso(**facts, **more, budget=BUDGET)
    bounds = [
        eso_weighted_bound(
            k,
            distance_squared=7.0,
            excess=0.6,
            noise=k * scale * 2.5,
            step_noise=k * scale * 0.4,
            smallest_probability=0.2,
            decay=0.01,
            composite=composite,
        )
        for k in range(1, 3000)
    ]
    assert rate.n_steps == 1 + int(np.argmin(bounds))
    assert rate.bound == pytest.approx(min(bounds))
    assert rate.decay == 0.01
    convex = convex_composite(**facts, budget=BUDGET)
    closed = 2 * math.sqrt(scale * (3.5 + 3.0) * 0.4 / 0.2)
    assert convex.bound == pytest.approx(closed, rel=1e-3)


def test_a_large_modulus_is_not_used_in_full():
    facts = {"distance_squared": 7.0, "sigma_squared": 2.0, "step_sigma_squared": 0.4}
    rate = strongly_convex_eso(
        **facts, modulus=0.2, smallest_probability=0.2, excess=0.6, budget=BUDGET
    )
    assert rate.decay == 0.1
    with pytest.raises(ValueError, match="decay must be in"):
        eso_weighted_bound(9, **FACTS, noise=0.1, smallest_probability=0.2, decay=0.2)


def test_matrices_per_block_contain_the_diagonal_case():
    blocks, q = [[0, 2], [1]], np.array([0.3, 0.7])
    m, away = np.array([1.0, 2.0, 3.0]), np.array([1.0, -1.0, 2.0])
    parts = [np.diag(m[block]) for block in blocks]
    law = Blocks(blocks, q)
    found = matrix_distance_squared(parts, blocks, q, away)
    assert found == pytest.approx(distance_squared(m, law.probabilities, away))
    # A = I, β = 2: M = 2, and a cap on the gradient of a block is its L_B.
    first, step = matrix_sigmas([2, 1], q, [1.5, 0.5], 2.0)
    lipschitz = np.array([1.5, 0.5])
    assert first == pytest.approx(sigma_squared(law, np.full(3, 2.0), lipschitz))
    assert step == pytest.approx(step_sigma_squared(law, np.full(3, 2.0), lipschitz))


# ---- sets that are not listed


@pytest.mark.parametrize("name", ["nice", "independent"])
def test_sums_over_unlisted_sets_are_bounded_by_pairs(name):
    """Exact for single columns, and never too small for wider ones."""
    rng = np.random.default_rng(3)
    law, d = SAMPLINGS[name](8), 8
    m = rng.uniform(1, 3, d)
    for parts in ([[j] for j in range(d)], [[0, 1, 2], [3, 4], [5], [6, 7]]):
        label = np.empty(d, dtype=int)
        for number, part in enumerate(parts):
            label[part] = number
        bounds = rng.uniform(0.5, 2.0, len(parts)) ** 2

        def lipschitz(at, bounds=bounds, label=label):
            return math.sqrt(bounds[np.unique(label[at])].sum())

        exact = [f(law, m, lipschitz) for f in (sigma_squared, step_sigma_squared)]
        law._support, kept = None, law._support
        found = [
            f(law, m, lipschitz, parts) for f in (sigma_squared, step_sigma_squared)
        ]
        law._support = kept
        if len(parts) == d:
            assert found == pytest.approx(exact)
        assert all(f >= e * (1 - 1e-12) for f, e in zip(found, exact, strict=True))
        assert all(f < 1.5 * e for f, e in zip(found, exact, strict=True))


def test_an_estimator_chooses_k_for_nice_sets():
    import skdp

    data = skdp.make_hospital(500)
    model = skdp.LogisticRegression(
        epsilon=1.0,
        schema=data.schema,
        sampling=Nice(27, 5),
        geometry="diagonal",
        engine="reference",
        random_state=0,
        neighbours="zero-out",
    )
    columns = dict(data.columns)
    target = columns.pop("readmitted")
    fitted = model.fit(columns, target)
    assert fitted.plan_.n_steps > 1
    assert "Theorem B" in fitted.plan_.rate.theorem
    full = skdp.LogisticRegression(
        epsilon=1.0,
        schema=data.schema,
        sampling=Full(27),
        geometry="diagonal",
        engine="reference",
        random_state=0,
        neighbours="zero-out",
    ).fit(columns, target)
    assert "Theorem A" in full.plan_.rate.theorem


# ---- presets


def hospital_plan(name, **options):
    import skdp

    layout = skdp.make_hospital(50).schema.layout(True)
    settings = {"n_rows": 5_000, "epsilon": 1.0, "delta": 1e-6} | options
    return skdp.preset(name, layout, skdp.Logistic(), **settings)


def test_the_strong_preset_averages_by_its_theorem():
    from skdp.models.penalties import ElasticNet

    plan = hospital_plan("dp_skgd_strong", penalty=ElasticNet(l2=0.1))
    assert plan.rate.theorem.startswith("Theorem E: strongly convex; if every block")
    b, m = len(plan.layout.blocks), 0.25 + 0.1
    assert plan.rate.decay == pytest.approx(0.1 / (b * m))
    weights = plan.average(50)
    assert weights[-1] / weights[-2] == pytest.approx(1 / (1 - plan.rate.decay))
    convex = hospital_plan("dp_skgd", penalty=ElasticNet(l2=0.1))
    assert plan.rate.bound < convex.rate.bound
    sparse = hospital_plan("dp_skgd_strong", penalty=ElasticNet(l1=0.01, l2=0.1))
    assert "with a penalty" in sparse.rate.theorem
    for penalty in (
        ElasticNet(l1=0.1),
        ElasticNet(l2=0.1, penalised=plan.layout.penalised),
    ):
        with pytest.raises(ValueError, match="penalises every coordinate"):
            hospital_plan("dp_skgd_strong", penalty=penalty)


def test_the_matrix_preset_counts_what_the_gram_matrix_leaves():
    import skdp

    plan = hospital_plan("dp_skgd_matrix")
    matrix, b = plan.geometry, len(plan.layout.blocks)
    assert (matrix.target_share, matrix.level_share, matrix.share) == (0, 0, 0.15)
    sizes = np.array([len(block) for block in plan.layout.blocks])
    caps = matrix.radius * np.sqrt(sizes / sizes.sum())
    curvature = 0.25 + matrix.shrinkage * matrix.radius
    scale = Budget(n_rows=5_000, epsilon=1.0, delta=1e-6).noise_scale
    noise = scale**2 * plan.n_steps * float(sizes @ caps**2) / curvature / 0.85
    start = (b * b * curvature / 2 + b * math.log(2)) / plan.n_steps
    assert plan.rate.noise == pytest.approx(noise)
    assert plan.rate.initial == pytest.approx(start)
    assert "no slope is capped" in str(plan)
    other = {"loss": skdp.Squared(), "n_rows": 500, "epsilon": 1.0}
    with pytest.raises(ValueError, match="requires a classification loss"):
        skdp.preset("dp_skgd_matrix", plan.layout, **other)


def test_the_bound_takes_the_penalty_into_account_at_the_same_steps():
    from skdp.models.penalties import Box, ElasticNet

    plain = hospital_plan("dp_gd").rate
    ridge = hospital_plan("dp_gd", penalty=ElasticNet(l2=0.5)).rate
    net = hospital_plan("dp_gd", penalty=ElasticNet(l1=0.5)).rate
    box = hospital_plan("dp_gd", penalty=Box(-1, 1)).rate
    assert plain.n_steps == ridge.n_steps == net.n_steps == box.n_steps
    assert ridge.theorem.startswith("Theorem A")
    m = 0.25 * len(hospital_plan("dp_gd").layout.blocks)
    stretch = (m + 0.5) / m
    assert ridge.initial == pytest.approx(plain.initial * stretch)
    assert ridge.noise == pytest.approx(plain.noise / stretch)
    assert net.theorem.startswith("Theorem D")
    assert net.noise == pytest.approx(2 * plain.noise)
    excess = math.log(2) / net.n_steps
    assert net.initial == pytest.approx(plain.initial + excess)
    assert box.bound == net.bound


def test_plans_say_what_their_bound_assumes():
    said = str(hospital_plan("dp_skgd"))
    assert "if every block of w⁰ - w* has norm at most 1" in said
    assert "the excess of w⁰ is at most 0.693. This is assumed" in said
    assert "isotropic noise" in said
    shuffled = str(hospital_plan("dp_skgd_shuffled", elliptical=True))
    assert "none is proved for shuffled blocks" in shuffled
    assert "elliptical noise" in shuffled
