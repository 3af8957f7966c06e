"""DP-SGD: its batches, its clipping, both of its forms and what they cost."""

import itertools
import math

import numpy as np
import pytest
from cases import features, objective, problem_of, watched
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.sparse import csr_array
from scipy.stats import binom, chi2

from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Chunk, Records
from skdp.privacy.randomness import Randomness
from skdp.solvers import dp_sgd, poisson_batches
from skdp.solvers.dp_sgd import compute_bassily_noise
from skdp.solvers.poisson_batches import Batches, draw_batch, round_rate
from skdp.solvers.problem import open_run

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def epsilon_of(z, rate, n_steps, delta):
    one = pld.from_gaussian_mechanism(
        z, sampling_prob=rate, value_discretization_interval=2e-4
    )
    return one.self_compose(n_steps).get_epsilon_for_delta(delta)


@pytest.mark.parametrize("neighbours", ["zero-out", "add-remove"])
@pytest.mark.parametrize(("rate", "n_steps"), [(0.05, 100), (0.2, 30), (0.5, 300)])
def test_dp_accounting_finds_the_same_epsilon(neighbours, rate, n_steps):
    problem = problem_of(neighbours=neighbours)
    solved = dp_sgd(problem, random_state=0, rate=rate, n_steps=n_steps, **BUDGET)
    z = solved.settings["noise_multiplier"]
    found = epsilon_of(z, solved.settings["rate"], n_steps, 1e-6)
    assert 0.96 < found <= 1.0 == pytest.approx(solved.record.spent_epsilon, rel=1e-3)


def test_noise_that_is_measured_buys_the_budget(monkeypatch):
    """From what was released alone: ε of the noise seen, and of a wrong one."""
    seen = watched(monkeypatch)
    solved = dp_sgd(problem_of(), random_state=5, rate=0.1, n_steps=300, **BUDGET)
    noise = np.concatenate(
        [
            (one.released.values - one.total.value.astype(float) * one.total.unit)
            / one.total.sensitivity
            for one in seen
        ]
    ).ravel()
    measured = math.sqrt((noise**2).mean())
    low, high = np.sqrt(chi2.ppf([1e-9, 1 - 1e-9], len(noise)) / len(noise))
    z = solved.settings["noise_multiplier"]
    assert low * z <= measured <= high * z
    assert high < 1.2
    assert epsilon_of(measured / low, 0.1, 300, 1e-6) <= 1.0
    assert epsilon_of(measured / high / 1.5, 0.1, 300, 1e-6) > 1.1
    assert all(not one.known for one in seen), "batches are not charged one by one"


def test_a_full_batch_is_gaussian_and_exact():
    solved = dp_sgd(problem_of(), random_state=0, rate=1.0, n_steps=50, **BUDGET)
    record = solved.record
    z = solved.settings["noise_multiplier"]
    assert record.spent == pytest.approx(50 / z**2, rel=1e-12)
    assert all(event.delta == 0 for event in record.events)
    assert record.spent_epsilon == pytest.approx(1.0, rel=1e-6)


def test_replacement_needs_twice_the_noise():
    z = {}
    for neighbours in ("zero-out", "replace-one"):
        problem = problem_of(neighbours=neighbours)
        solved = dp_sgd(problem, random_state=0, rate=0.2, n_steps=100, **BUDGET)
        z[neighbours] = solved.settings["noise_multiplier"]
    assert 1.8 < z["replace-one"] / z["zero-out"] < 2.1


def test_all_batches_are_one_event_charged_before_the_first_draw(monkeypatch):
    problem, order = problem_of(), []
    charge, words = PrivacyRecord.charge, Randomness.words
    monkeypatch.setattr(
        PrivacyRecord,
        "charge",
        lambda self, event: (order.append(event), charge(self, event))[1],
    )
    monkeypatch.setattr(
        Randomness,
        "words",
        lambda self, size: (order.append(size), words(self, size))[1],
    )
    solved = dp_sgd(problem, random_state=0, rate=0.1, n_steps=20, **BUDGET)
    (event,) = solved.record.events
    assert order[0] is event
    assert event.n_draws == 20 * problem.start.size
    assert event.delta == pytest.approx(1e-7)
    assert len(solved.record.transcript) == 20
    assert "20 Poisson batches" in str(solved.record)


# ---- batches


def test_everybody_is_drawn_by_himself_with_the_rate():
    problem, noise, rate, times = problem_of(), Randomness(1), round_rate(0.3), 400
    job = problem.layout.groups[2].name
    assert job == "job"
    counts = np.zeros(problem.n_rows)
    sizes = []
    whole = problem.records.chunks[0]
    marks = np.arange(problem.n_rows)
    marked = Chunk(whole.parts, marks, whole.weight)
    records = Records(problem.layout, (marked,), 1.0)
    for _ in range(times):
        (chunk,) = draw_batch(records, rate, noise).chunks
        counts[chunk.target] += 1
        sizes.append(len(chunk.target))
        assert all(len(part) == len(chunk.target) for part in chunk.parts)
        assert np.array_equal(chunk.parts[2], whole.parts[2][chunk.target])
    low, high = binom.ppf([1e-8, 1 - 1e-8], times, rate)
    assert low <= counts.min() <= counts.max() <= high
    spread = np.var(sizes) / (problem.n_rows * rate * (1 - rate))
    assert 0.6 < spread < 1.5, "sizes vary as independent draws do"
    assert not plausibly(counts.sum(), times, 0.27)
    assert plausibly(counts.sum(), times, rate)


def plausibly(total, times, rate, n_rows=600):
    low, high = binom.ppf([1e-8, 1 - 1e-8], times * n_rows, rate)
    return low <= total <= high


def test_a_seed_draws_the_same_rows_however_they_are_cut(monkeypatch):
    monkeypatch.setattr(poisson_batches, "DRAWN_ROWS", 100)
    layout, drawn = problem_of().layout, []
    for sizes in ([600], [150, 0, 450], [1] * 600, [599, 1]):
        parts = np.split(np.arange(600), np.cumsum(sizes[:-1]))
        chunks = [Chunk((), part, np.ones(len(part), np.float32)) for part in parts]
        batch = draw_batch(
            Records(layout, tuple(chunks)), round_rate(0.4), Randomness(2)
        )
        assert len(batch.chunks) == len(sizes)
        drawn.append([row for chunk in batch.chunks for row in chunk.target.tolist()])
    assert drawn[0] == drawn[1] == drawn[2] == drawn[3]
    assert 180 < len(drawn[0]) < 300
    assert not draw_batch(Records(layout, ()), round_rate(0.4), Randomness(2)).chunks


def test_sparse_columns_are_drawn_by_rows():
    sparse = csr_array(np.arange(40).reshape(8, 5))
    chunk = Chunk((sparse,), np.arange(8), np.ones(8, np.float32))
    records = Records(problem_of().layout, (chunk,), 1.0)
    (batch,) = draw_batch(records, round_rate(0.5), Randomness(2)).chunks
    assert 0 < len(batch.target) < 8
    assert np.array_equal(batch.parts[0].toarray(), sparse.toarray()[batch.target])


def test_rates_are_what_is_charged():
    assert round_rate(0.1) >= 0.1
    assert round_rate(0.1) * 2**32 == int(round_rate(0.1) * 2**32)
    assert round_rate(1.0) == 1.0
    assert round_rate(1e-12) == 2.0**-32
    with pytest.raises(ValueError, match="rate must be"):
        round_rate(1.5)
    run = open_run(problem_of(), **BUDGET, delta_share=0.1)
    assert Batches.calibrate(run, 0.3, 5).rate == round_rate(0.3)


def test_empty_batches_are_released_too():
    solved = dp_sgd(problem_of(), random_state=0, rate=2e-3, n_steps=30, **BUDGET)
    assert np.isfinite(solved.weights).all()
    assert len(solved.record.transcript) == 30


# ---- clipping


@pytest.mark.parametrize("clip", [0.3, 1.0])
def test_clipping_bounds_each_records_gradient(monkeypatch, clip):
    seen = watched(monkeypatch)
    problem = problem_of()
    dp_sgd(problem, random_state=0, rate=1.0, n_steps=2, clip=clip, **BUDGET)
    assert seen[0].total.sensitivity == pytest.approx(clip)
    # At w = 0 every slope is ±½: a record's gradient is shortened to norm `clip`.
    X = features(problem)
    target = problem.records.chunks[0].target
    each = (0.5 - target)[:, None] * X
    norms = np.linalg.norm(each, axis=1, keepdims=True)
    expected = (each * np.minimum(1.0, clip / norms)).sum(axis=0)
    found = seen[0].total.value[:, 0].astype(float) * seen[0].total.unit
    assert np.allclose(found, expected, atol=0.02)


def test_without_noise_nothing_is_clipped_by_default(monkeypatch):
    seen = watched(monkeypatch)
    problem = problem_of()
    dp_sgd(problem, random_state=0, n_steps=1, epsilon=math.inf)
    assert seen[0].total.sensitivity == pytest.approx(problem.row_norm)


# ---- as analysed


def test_printed_noise_is_the_theorems():
    """σ² = 32 L² n² log(n/δ) log(1/δ)/ε² on n times a gradient, for n² steps."""
    n, delta, epsilon, lipschitz = 500, 1e-6, 0.7, 3.0
    sigma = math.sqrt(32 * math.log(n / delta) * math.log(1 / delta)) / epsilon
    sigma *= lipschitz * n
    z = compute_bassily_noise(epsilon, delta, n, 1 / n, n**2)
    assert z * lipschitz * n == pytest.approx(sigma, rel=1e-12)


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_printed_noise_costs_far_less_than_it_claims(neighbours):
    problem = problem_of(neighbours=neighbours)
    options = {"form": "analysed", "n_steps": 400, "random_state": 0} | BUDGET
    printed = dp_sgd(problem, calibration="paper", **options)
    tight = dp_sgd(problem, calibration="exact", **options)
    assert printed.record.spent_epsilon < 0.2
    assert tight.record.spent_epsilon == pytest.approx(1.0, rel=1e-3)
    ratio = printed.settings["noise_multiplier"] / tight.settings["noise_multiplier"]
    assert ratio > 8
    z, rate = printed.settings["noise_multiplier"], printed.settings["rate"]
    assert rate == pytest.approx(1 / 20)
    once = epsilon_of(z, rate, 400, 1e-6)
    assert once <= printed.record.spent_epsilon * 1.01


@pytest.mark.parametrize(("neighbours", "apart"), [("zero-out", 1), ("replace-one", 2)])
def test_printed_noise_on_whole_tables_costs_as_many_gaussian_releases(
    neighbours, apart
):
    """z is told relative to one record's part, and a replaced record has two parts."""
    options = {"form": "analysed", "calibration": "paper", "rate": 1.0, "n_steps": 6}
    problem = problem_of(neighbours=neighbours)
    solved = dp_sgd(problem, random_state=0, **options, **BUDGET)
    z = solved.settings["noise_multiplier"]
    assert solved.record.spent == pytest.approx(6 * (apart / z) ** 2, rel=1e-9)


def test_analysed_steps_shrink_and_stay_in_the_ball():
    problem, steps = problem_of(), []
    dp_sgd(
        problem,
        epsilon=math.inf,
        form="analysed",
        rate=1.0,
        n_steps=200,
        radius=0.5,
        callback=steps.append,
    )
    norms = [np.linalg.norm(step.weights) for step in steps]
    assert max(norms) <= 0.5 * (1 + 1e-12)
    moves = [
        np.linalg.norm(b.weights - a.weights) for a, b in itertools.pairwise(steps)
    ]
    assert moves[-1] < moves[0]
    start = objective(problem, problem.start)
    assert objective(problem, steps[-1].weights) < start


def test_refusals():
    problem = problem_of()
    with pytest.raises(ValueError, match="form must be"):
        dp_sgd(problem, form="other", **BUDGET)
    with pytest.raises(ValueError, match="form='analysed'"):
        dp_sgd(problem, calibration="paper", **BUDGET)
    with pytest.raises(ValueError, match="clip must be positive"):
        dp_sgd(problem, clip=-1.0, n_steps=2, **BUDGET)
    with pytest.raises(ValueError, match="n_steps must be an integer"):
        dp_sgd(problem, n_steps=2.5, **BUDGET)
