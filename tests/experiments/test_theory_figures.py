"""Figures B, C and F: the simulation, the program, and text that says what rows say."""

import numpy as np
import pytest

from experiments import made_table
from experiments.figures import b_table1 as b
from experiments.figures import c_special_cases as c
from experiments.figures import f_accounting as f
from experiments.figures import j_strongly_convex as strong
from experiments.quadratics import Program, mean_with_start, simulate
from experiments.theory_table import Method, cases
from skdp.descent import algorithm1
from skdp.descent.bounds import distance_squared, sigma_squared
from skdp.descent.samplings import Blocks, Full, Nice, SingleCoordinate


def told(figure, rows):
    """A figure's text, on one line."""
    return " ".join(figure.text(rows).split())


D = 5
SMOOTHNESS = np.linspace(1.0, 3.0, D)
HESSIAN = SMOOTHNESS * np.linspace(0.1, 0.9, D)
START = np.linspace(1.0, -0.5, D)


def expected_excess(method, n_steps, noise_scale, shares, n_restarts=1):
    """E f(average) - f* by recursion: moments of (θ_j, average_j), 2 × 2 for each j."""
    n_releases = n_steps * n_restarts
    tails = np.cumsum(shares[::-1])[::-1]
    total = 0.0
    for j in range(D):
        p, power = 0.0, 0.0  # P(j ∈ S) and E[1{j ∈ S} σ_S²]
        pairs = zip(
            method.sampling.support,
            method.sampling.set_probabilities,
            method.lipschitz,
            strict=True,
        )
        for chosen, q, lipschitz in pairs:
            if j in chosen:
                p += q
                power += q * (noise_scale * lipschitz) ** 2 * n_releases
        moment = np.full((2, 2), START[j] ** 2)
        for step, tail in enumerate(np.tile(tails, n_restarts)):
            if step % n_steps == 0:  # the average is where a restart starts
                moment = np.full((2, 2), moment[1, 1])
            move = HESSIAN[j] / SMOOTHNESS[j]
            visited = np.array([[1 - move, 0], [-tail * move, 1]])
            noise = np.outer([1, tail], [1, tail]) / SMOOTHNESS[j] ** 2
            moment = p * visited @ moment @ visited.T + (1 - p) * moment + power * noise
        total += 0.5 * HESSIAN[j] * moment[1, 1]
    return total


@pytest.mark.parametrize(
    "sampling",
    [
        Full(D),
        SingleCoordinate.importance(SMOOTHNESS),
        Blocks.uniform([[0, 3], [1, 2, 4]]),
        Nice(D, 2),
    ],
    ids=lambda sampling: type(sampling).__name__,
)
def test_simulation_has_the_expected_excess(sampling):
    lipschitz = np.array([1.0 + len(chosen) for chosen in sampling.support])
    method = Method(sampling, SMOOTHNESS, lipschitz)
    rules = [algorithm1.mean, algorithm1.rising, algorithm1.last, mean_with_start]
    found = simulate(
        method,
        HESSIAN,
        START,
        30,
        noise_scale=0.03,
        averages=rules,
        rng=np.random.default_rng(0),
        n_runs=4000,
    )
    for runs, rule in zip(found, rules, strict=True):
        exact = expected_excess(method, 30, 0.03, rule(30))
        error = runs.std() / np.sqrt(runs.size)
        assert abs(runs.mean() - exact) < 4 * error < 0.2 * exact


def test_restarts_share_the_budget():
    method = Method(SingleCoordinate.uniform(D), SMOOTHNESS, np.ones(D))
    (runs,) = simulate(
        method,
        HESSIAN,
        START,
        10,
        n_restarts=3,
        noise_scale=0.1,
        averages=[algorithm1.mean],
        rng=np.random.default_rng(0),
        n_runs=4000,
    )
    exact = expected_excess(method, 10, 0.1, algorithm1.mean(10), n_restarts=3)
    error = runs.std() / np.sqrt(runs.size)
    assert abs(runs.mean() - exact) < 4 * error < 0.1 * exact


def test_restarts_go_on_from_the_first_average():
    method = Method(Full(D), SMOOTHNESS, np.ones(1))
    given = {"noise_scale": 0.0, "rng": np.random.default_rng(0), "n_runs": 1}
    once = simulate(method, HESSIAN, START, 4, averages=[algorithm1.mean], **given)
    path = [START * (1 - HESSIAN / SMOOTHNESS) ** k for k in range(1, 5)]
    assert once[0, 0] == pytest.approx(0.5 * HESSIAN @ np.mean(path, axis=0) ** 2)
    again = simulate(
        method, HESSIAN, START, 4, averages=[algorithm1.mean], n_restarts=2, **given
    )
    share = np.mean([(1 - HESSIAN / SMOOTHNESS) ** k for k in range(1, 5)], axis=0)
    assert again[0, 0] == pytest.approx(0.5 * HESSIAN @ (START * share**2) ** 2)


def test_the_program_is_the_simulated_method():
    """With next to no noise the two are the same numbers; with noise, see figure B."""
    hessian = np.array([0.5, 0.25, 0.125])
    start = np.array([0.5, -0.25, 0.125])
    program = Program.of(hessian, start, 800)
    assert np.array_equal(program.hessian, hessian)
    method = Method(Full(3), np.array([1.0, 0.5, 0.5]), np.ones(1))
    options = {"n_steps": 6, "n_restarts": 2}
    ran, presence = program.measure(
        method, epsilon=1e7, delta=1e-6, average=algorithm1.mean, seed=0, **options
    )
    (simulated,) = simulate(
        method,
        hessian,
        start,
        noise_scale=0.0,
        averages=[algorithm1.mean],
        rng=np.random.default_rng(0),
        n_runs=1,
        **options,
    )
    assert ran == pytest.approx(simulated[0], rel=1e-3)
    assert presence == 1.0


# ---- B


@pytest.mark.parametrize("name", b.ROWS)
def test_methods_stand_in_the_order_of_the_table(name):
    given = b.setting(name, **b.BASE)
    p, m = given.method.sampling.probabilities, given.method.smoothness
    sigma = sigma_squared(given.method.sampling, m, given.method.lipschitz)
    assert given.row.sigma_squared == pytest.approx(sigma)
    exact = distance_squared(m, p, np.full(len(p), b.CONVEX_START))
    if name == "blocks, importance":  # the row has a bound on it
        assert exact < given.row.distance_squared < 2 * exact
    else:
        assert given.row.distance_squared == pytest.approx(exact)
    modulus = (given.strong_hessian * p / m).min()
    assert given.row.condition == pytest.approx(1 / modulus)
    assert np.all(given.hardest <= given.true_smoothness)


PROGRAM_KEYS = ("program", "same", "presence")


def made_rows_of_b(power):
    """Measured excess is a power of the bound, as in no other place."""
    rows = []
    for cell in b.cells():
        row = cell | {"bound": 1.0, "strong_bound": 1.0}
        if cell["vary"] == "program":
            row |= {"hardest": 0.8, "strong": 0.6}
            keys = [f"{k}_{w}" for k in ("hardest", "strong") for w in PROGRAM_KEYS]
            rows.append(row | dict.fromkeys(keys, 0.4))
            continue
        bound = 0.1 / cell["value"]
        keys = ("bound", "strong_bound", "weighted_bound")
        row |= dict.fromkeys(keys, bound) | {"printed": 5 * bound}
        noise = 1 + 1e-3 * np.sin(cell["seed"])
        names = ("hardest", "sharp", "strong", "weighted")
        rows.append(row | dict.fromkeys(names, 0.3 * noise * bound**power))
    return rows


def test_b_counts_the_slopes_that_agree():
    right = told(b, made_rows_of_b(1.0))
    total = len(b.slopes(made_rows_of_b(1.0), "hardest"))
    assert f"{total} of {total} slopes agree." in right
    assert "≠" not in right.replace("**≠** marks", "")
    assert "0.300 to 0.300 of the bound" in right
    lower = b.above_lower(made_rows_of_b(1.0)).splitlines()
    assert [line.split(" | ")[0] for line in lower if " | " in line][1:] == [
        f"| {name}" for name in b.ROWS
    ]
    assert "is 5.0 to 5.0 times the corrected one" in right
    assert "18 of 18 intervals hold 1" in right
    assert "| DP-CD | 1 [1, 1] | 0.4 | 2 | 1 [1, 1] | 0.4 | 1.5 |" in right
    wrong = told(b, made_rows_of_b(1.5))
    assert f"0 of {total} slopes agree." in wrong
    assert "-1.00: -1.50 ± 0.00 **≠**" in wrong
    assert "-1.00: -0.50 ± 0.00 **≠**" in told(b, made_rows_of_b(0.5))
    assert b.REASONS["hardest", "b"] in wrong
    assert b.REASONS["hardest", "b"] not in right


# ---- C


def test_cases_are_found_by_their_names():
    names = {case.name for case in cases(8)}
    assert {
        f"{pair}: {case}" for pair, both in c.PAIRS.items() for case in both
    } == names


def test_c_says_who_wins():
    rows = []
    for cell in c.cells():
        root = np.sqrt(cell["d"])
        paper = c.PAIRS[cell["pair"]].index(cell["case"]) == 0
        speed = root if paper else 1 / root
        row = cell | {"n": 1, "steps": 7, "baseline_steps": 9}
        for kind in ("bound", *c.FUNCTIONS):
            row |= {kind: 1.0, f"baseline_{kind}": speed * (1 + 1e-6 * cell["seed"])}
        rows.append(row)
    said = told(c, rows)
    assert said.count("| +0.50 | +0.50 ± 0.00 |") == 3
    assert said.count("| -0.50 | -0.50 ± 0.00 |") == 3
    assert "importance / DP-CD: steep coordinate far | +0.50" in said
    assert "importance / DP-CD wins, 11.3" in said
    assert "importance / DP-CD loses, 0.0884" in said
    assert "at most 9 steps" in said
    assert "the order is that of the bounds everywhere" in said
    assert len(c.losses(rows)) == 3
    for row in rows:
        row["baseline_sharp"] = 0.5
    assert "in 15 places, where it is turned round" in told(c, rows)


# ---- F


def test_theorem_4_1_asks_for_more_noise_than_needed():
    (row,) = f.measure({"kind": "noise", "epsilon": 1.0, "delta": 1e-5})
    assert row["ratio"] == pytest.approx(1.575, abs=0.001)  # docs/guide/theory.md: 1.58


def test_f_says_what_rows_say():
    rows = []
    for cell in f.cells():
        kind = cell["kind"]
        if kind == "noise":
            row = {"ratio": 1 + cell["delta"] ** 0.1 / cell["epsilon"]}
        elif kind == "calibration":
            row = {"exact_bound": 1.0, "paper_bound": 1.5, "exact": 0.1, "paper": 0.25}
        elif kind == "steps":
            row = {"steps": 10, "excess": abs(np.log(cell["factor"] / 3.1623)) + 1}
        elif kind == "averages":
            row = {n: 1.0 / (1 + i) for i, n in enumerate(algorithm1.AVERAGES)}
        else:
            row = {"steps": 10, "bound": 1.0, "excess": 0.25, "sharp": 0.1}
        rows.append(cell | row)
    said = told(f, rows)
    assert (
        "| 0.1 | 1.50 | 2.5 [2.5, 2.5] | 0.1 [0.1, 0.1] | 0.25 [0.25, 0.25] |" in said
    )
    assert "above 1 at ε = 0.1, 0.3, 1, 3." in said
    assert "best of the K tried is 3.2 to 3.2 times K*" in said
    assert "hardest: last; sharp: last" in said
    assert "0.25 to 0.25 of its bound" in said
    assert f"(ε = {min(f.EPSILONS):g}, δ = {max(f.DELTAS):g}) times" in said
    assert any("“last”" in point for point in f.losses(rows))


def test_averages_of_a_run_are_those_of_the_program():
    """The mean that is computed from a callback is the one that a run returns."""
    plan = f.on_table("coordinates", factor=0.02)
    found = made_table.excesses(plan, seed=3)
    problem = made_table.objective().problem
    fit = made_table.run(
        plan, problem.records, engine=made_table.ENGINE, random_state=3
    )
    assert found["mean"] == pytest.approx(made_table.objective().excess(fit.weights))
    assert set(found) == set(algorithm1.AVERAGES)


# ---- J


def test_the_full_cell_of_table_1_never_beats_gradient_descent():
    """tr(M⁻¹)·M_max ≥ d: erratum 10. In the norm of M it does."""
    for d in (8, 32):
        (case,) = (x for x in cases(d, 8.0 * d) if x.name == strong.CASES[1])
        m = case.method.smoothness
        assert (1 / m).sum() * m.max() >= d
        for kind in strong.FUNCTIONS:
            budget = strong.budget_for(case, kind)
            ours, other = (
                strong.rates_of(method, case, kind, budget)
                for method in (case.method, case.baseline)
            )
            assert ours["restarts"].bound > other["restarts"].bound
            assert ours["restarts"].n_restarts >= 2
        assert ours["weighted"].bound < other["weighted"].bound


def test_j_says_what_rows_say():
    rows = []
    for cell in strong.cells():
        if "case" in cell:
            row = {"n": 1}
            for way in strong.WAYS:
                row |= {way: 1.0, f"{way}_bound": 2.0}
                row |= {f"baseline_{way}": 0.5, f"baseline_{way}_bound": 1.0}
            rows.append(cell | row)
            continue
        excess = {"B": 1.0, "D": 1.0, "E": 2.0, "F": 4.0}[cell["theorem"]]
        row = {"steps": 9, "excess": excess, "planned": 3.0, "bound": 5.0, "start": 9.0}
        rows.append(cell | row)
    said = told(strong, rows)
    total = len(strong.TABLES) * len(strong.EPSILONS) * len(strong.PLANS)
    over = len(strong.TABLES) * len(strong.EPSILONS)
    assert f"Of {total} settings the mean excess is above the bound at w* in 0" in said
    assert f"and above the planned one in {over}." in said
    assert "hospital, ε = 1: 2 [2, 2]" in said
    assert "Growing weights have 1 [1, 1] times the excess of restarts" in said
    assert len(strong.losses(rows)) == 6 + over
    assert (
        "full sampling's bound is 2 times gradient descent's" in strong.learnt(rows)[0]
    )
    assert f"are exceeded in 0 of {total} settings" in strong.learnt(rows)[1]


def test_the_elastic_net_has_its_minimum():
    goal = strong.objective("hospital", "D")
    gradient = goal.gradient(goal.minimiser)[:, 0]
    weights = goal.minimiser[:, 0]
    on = weights != 0
    assert 0 < on.sum() < len(on)  # some weights are zero
    assert np.abs(gradient[on] + strong.LASSO * np.sign(weights[on])).max() < 1e-7
    assert np.abs(gradient[~on]).max() <= strong.LASSO * (1 + 1e-6)


@pytest.mark.parametrize(
    "figure", [b, c, f, strong], ids=lambda figure: figure.__name__[-12:]
)
def test_quick_cells_run_are_drawn_and_told(figure, monkeypatch):
    for name in ("N_RUNS", "N_PROGRAM_RUNS"):
        if hasattr(figure, name):
            monkeypatch.setattr(figure, name, 2)
    rows = [
        cell | row
        for cell in figure.quick(figure.cells())
        for row in figure.measure(cell)
    ]
    assert len(figure.draw(rows).axes) >= 6
    assert len(figure.text(rows)) > 1000
