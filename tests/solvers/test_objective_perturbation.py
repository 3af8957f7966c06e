"""Objective perturbation: the law of its result on neighbouring tables.

With one or two coordinates the law is known, because b is a function of w and b is
normal. An attacker's gain is computed from this law and compared with the cost in the
record, for the noise and the ridge that the solver chose.
"""

import importlib
import math

import numpy as np
import pytest
from cases import distance, problem_of, rows, watched
from scipy.special import expit, ndtr

from skdp.models.losses import LOSSES, SmoothedHinge
from skdp.privacy import profiles
from skdp.privacy.accountant import gdp_delta
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.queries import Kind
from skdp.schema import Categorical, Numeric, Schema
from skdp.solvers import certified, objective_perturbation
from skdp.solvers.certified import Objective
from skdp.solvers.problem import Problem

module = importlib.import_module("skdp.solvers.objective_perturbation")
EPSILONS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0, 1.4)


def line(loss, n_rows=3, neighbours="zero-out"):
    """A table of one column, no intercept."""
    classes = loss.kind in ("logistic", "hinge")
    target = Categorical(["a", "b"]) if classes else Numeric(0, 1)
    schema = Schema({"x": Numeric(0, 1)}, target=target)
    labels = np.zeros(n_rows, dtype=int)
    batch = Batch(
        columns={"x": np.ones(n_rows)},
        target=Coded(labels, ["a", "b"]) if classes else labels.astype(float),
    )
    records = encode([batch], schema, intercept=False)
    return Problem(records=records, loss=loss, n_rows=n_rows, neighbours=neighbours)


def read_charge(solved):
    """μ of the one event that objective perturbation is charged as."""
    (event,) = [e for e in solved.record.events if e.kind == Kind.TILT]
    return math.sqrt(event.mu_squared)


def chances(loss, rows, quadratic, std):
    """Chances of w in small intervals, for records (x, target) on a line."""
    w = np.concatenate(
        [-np.geomspace(3000, 1e-6, 6000), np.geomspace(1e-6, 3000, 6000)]
    )
    total = quadratic * w
    for x, target in rows:
        total = total + x * loss.slope((x * w)[:, None], np.full(len(w), target))[:, 0]
    return np.diff(ndtr(total / std), prepend=0, append=1)


def gained(one, other, epsilon):
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def excesses(loss, tables, settings, mu, noise=1.0):
    """Over all ε and both orders: what is gained over what is charged."""
    quadratic, std = settings
    laws = [chances(loss, rows, quadratic, std * noise) for rows in tables]
    return max(
        gained(one, other, epsilon) - gdp_delta(epsilon, mu)
        for epsilon in EPSILONS
        for one, other in (laws, laws[::-1])
    )


def pairs(loss, neighbours):
    top = 1 if loss.kind in ("logistic", "hinge") else 1 << 14
    for others in ([], [(1.0, 0)], [(1.0, top), (0.5, 0)]):
        for x in (1.0, 0.3):
            for y in (0, top):
                if neighbours == "zero-out":
                    yield others, [*others, (x, y)]
                else:
                    yield [*others, (x, y)], [*others, (1.0, top - y)]


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize("calibration", ["exact", "paper"])
@pytest.mark.parametrize("name", ["logistic", "hinge", "huber", "squared", "poisson"])
def test_no_attacker_gains_more_than_is_charged(name, calibration, neighbours):
    loss = SmoothedHinge(0.01) if name == "hinge" else LOSSES[name]()
    problem = line(loss, neighbours=neighbours)
    options = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0}
    solved = objective_perturbation(problem, calibration=calibration, **options)
    settings = 3 * solved.settings["ridge"], solved.settings["noise_std"]
    mu = read_charge(solved)
    assert mu <= math.sqrt(solved.record.budget)
    seen = [excesses(loss, pair, settings, mu) for pair in pairs(loss, neighbours)]
    assert max(seen) <= 1e-9
    if calibration == "exact":  # with less noise somebody would gain more
        less = 0.75 if name in ("logistic", "hinge") else 0.4
        less /= 2 if neighbours == "replace-one" else 1  # a line has no worst pair
        caught = [
            excesses(loss, p, settings, mu, less) for p in pairs(loss, neighbours)
        ]
        assert max(caught) > 1e-4


def plane(rows, quadratic, std, w):
    """Density of w (m, m, 2) for logistic records (x, y) in the plane."""
    total, hessian = quadratic * w, np.zeros((*w.shape, 2))
    hessian[..., 0, 0] = hessian[..., 1, 1] = quadratic
    for x, y in rows:
        x = np.asarray(x)
        chance = expit(w @ x)
        total = total + (chance - y)[..., None] * x
        bend = (chance * (1 - chance))[..., None, None]
        hessian = hessian + bend * np.outer(x, x)
    density = np.exp(-(total**2).sum(axis=-1) / (2 * std**2)) / (2 * math.pi * std**2)
    return density * np.linalg.det(hessian)


def test_records_in_the_plane_are_no_worse_than_on_a_line():
    target, norm = 0.8, math.sqrt(2)
    kappa = 0.5
    quadratic = 0.25 * norm**2 / kappa
    std = norm / profiles.objective_mu(target, kappa, 1)
    reach = 8 * std / quadratic
    axis = np.linspace(-reach, reach, 700)
    w = np.stack(np.meshgrid(axis, axis), axis=-1)
    cell = (axis[1] - axis[0]) ** 2
    others = [((1.0, 0.2), 1), ((0.3, 1.0), 0), ((1.0, 1.0), 1)]
    for x, y in (((1.0, 1.0), 0), ((1.0, 1.0), 1), ((1.0, 0.0), 0)):
        laws = [
            plane(rows, quadratic, std, w) * cell
            for rows in (others, [*others, (x, y)])
        ]
        for law in laws:
            assert law.sum() == pytest.approx(1, abs=1e-6)
        for epsilon in EPSILONS:
            for one, other in (laws, laws[::-1]):
                assert gained(one, other, epsilon) <= gdp_delta(epsilon, target) + 1e-6


def test_the_result_minimises_the_tilted_objective(monkeypatch):
    problem = problem_of()
    seen = watched(monkeypatch)
    solved = objective_perturbation(problem, epsilon=1.0, delta=1e-6, random_state=5)
    *levels, last = seen
    tilt = sum(one.released.values for one in levels)
    assert not any(one.known for one in seen)  # all were charged beforehand
    quadratic = (
        certified.read_ridge(problem) + problem.n_rows * solved.settings["ridge"]
    )
    exact = last.total.value.astype(float)[:, 0] * last.total.unit / np.sqrt(quadratic)
    objective = Objective(problem, quadratic, tilt)
    gradient = objective.gradient(exact)
    allowed = solved.settings["tolerance"] + 2.0**-30 * objective.steepness * 3
    assert objective.norm(gradient) <= allowed
    assert np.linalg.norm(tilt) > solved.settings["noise_std"]


def test_the_tilt_is_never_handed_out(monkeypatch):
    seen = watched(monkeypatch)
    solved = objective_perturbation(
        problem_of(), epsilon=1.0, delta=1e-6, random_state=5
    )
    (shown,) = solved.record.transcript
    assert (shown.kind, shown.query) == module.QUERY
    assert shown is seen[-1].released
    for value in (*solved.settings.values(), *vars(solved.record).values()):
        for hidden in seen[: module.LEVELS]:
            assert value is not hidden.released
    assert len(solved.record.events) == 2
    draws = sum(event.n_draws for event in solved.record.events)
    assert draws == (module.LEVELS + 1) * 9


def test_it_is_charged_before_anything_is_drawn(monkeypatch):
    class Drawn(Exception):
        pass

    def refuse(*_):
        raise Drawn

    record = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="zero-out")
    monkeypatch.setattr(module, "release", refuse)
    with pytest.raises(Drawn):
        objective_perturbation(problem_of(), epsilon=1.0, random_state=0, record=record)
    assert record.spent == pytest.approx(record.budget)


def test_it_is_charged_before_records_are_read(monkeypatch):
    class Read(Exception):
        pass

    def refuse(*_, **__):
        raise Read

    record = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="zero-out")
    monkeypatch.setattr(module, "Objective", refuse)
    with pytest.raises(Read):
        objective_perturbation(problem_of(), epsilon=1.0, random_state=0, record=record)
    assert record.spent == pytest.approx(record.budget)


@pytest.mark.parametrize("length", [0.0, 1.0, 1e3, 1e9])
def test_no_tilt_moves_what_is_released_beyond_its_bound(length, monkeypatch):
    """Tilts as no sampler draws them: the bound needs no tail, so δ pays for none."""
    problem, real = problem_of("logistic", "zero-out", rows("logistic", 30)), []
    w = np.random.default_rng(0).normal(size=problem.layout.n_features)

    def tilt(own, run, std, d):
        quadratic = certified.read_ridge(own) + own.n_rows * ridge
        objective = Objective(own, quadratic)
        return -objective.gradient(length * w)

    solved = objective_perturbation(problem, epsilon=1.0, delta=1e-6, random_state=0)
    assert all(event.delta == 0 for event in solved.record.events)
    ridge = solved.settings["ridge"]
    columns, target, weight = rows("logistic", 30)
    gone = weight.copy()
    gone[0] = 0.0
    for weights in (weight, gone):
        other = problem_of("logistic", "zero-out", (columns, target, weights))
        with monkeypatch.context() as patch:
            seen = watched(patch)
            patch.setattr(module, "_draw_tilt", tilt)
            objective_perturbation(other, epsilon=1.0, delta=1e-6, random_state=0)
        real.append(seen[-1].total)
    assert distance(*real) <= real[0].sensitivity


def test_the_tilt_is_fine_grained_and_of_the_right_size(monkeypatch):
    tilts = []
    for seed in range(60):
        with monkeypatch.context() as patch:
            seen = watched(patch)
            solved = objective_perturbation(
                problem_of(), epsilon=1.0, random_state=seed
            )
        tilts.append(sum(one.released.values for one in seen[:-1]))
    tilt, std = np.concatenate(tilts), solved.settings["noise_std"]
    assert 0.85 < tilt.std() / std < 1.15
    cell = 2.0 ** (math.frexp(std)[1] - 11)  # what `release` alone rounds to
    first = seen[0].released.values / cell
    assert (first == np.rint(first)).all()
    assert np.abs(tilt / cell - np.rint(tilt / cell)).max() > 0.3


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_printed_noise(neighbours):
    problem = problem_of("logistic", neighbours)
    solved = objective_perturbation(
        problem, epsilon=1.0, delta=1e-6, random_state=0, calibration="paper"
    )
    times = 2 if neighbours == "replace-one" else 1
    size = times * problem.row_norm * math.sqrt(8 * math.log(2e6) + 4)
    assert solved.settings["noise_std"] == pytest.approx(size, rel=1e-9)
    least = 2 * 0.25 * problem.row_norm**2 / problem.n_rows
    assert solved.settings["ridge"] >= least * (1 - 1e-9)
    assert solved.record.spent <= solved.record.budget


def test_replace_one_takes_twice_the_noise():
    one, two = (
        objective_perturbation(
            problem_of("logistic", neighbours), epsilon=1.0, ridge=2.0, random_state=0
        ).settings["noise_std"]
        for neighbours in ("zero-out", "replace-one")
    )
    assert two >= 1.95 * one


def test_refusals():
    with pytest.raises(ValueError, match="every coordinate"):
        objective_perturbation(problem_of(), epsilon=1.0, ridge=0.0)
    with pytest.raises(ValueError, match="too small"):
        objective_perturbation(problem_of(), epsilon=0.1, ridge=1e-4)
    with pytest.raises(ValueError, match="one output"):
        objective_perturbation(problem_of("softmax"), epsilon=1.0)
    with pytest.raises(ValueError, match="must be > 0"):
        objective_perturbation(
            problem_of(), epsilon=1.0, calibration="paper", ridge=0.0
        )


def test_printed_noise_that_no_ridge_makes_good_is_refused(monkeypatch):
    monkeypatch.setattr(profiles, "is_dominated", lambda *_: False)
    with pytest.raises(ValueError, match="Use calibration='exact'"):
        objective_perturbation(problem_of(), epsilon=1.0, calibration="paper")
