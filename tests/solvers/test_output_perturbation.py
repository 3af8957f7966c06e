"""Output perturbation: how far one record moves a minimiser."""

import importlib
import math

import numpy as np
import pytest
from cases import problem_of, rows

from skdp.models.losses import LOSSES
from skdp.models.penalties import ridge as ridge_penalty
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.schema import Categorical, Numeric, Schema
from skdp.solvers import SOLVERS, certified, output_perturbation
from skdp.solvers.certified import (
    Bounds,
    Objective,
    bound_reach,
    find_least_ridge,
    locate_minimiser,
)
from skdp.solvers.problem import Problem

module = importlib.import_module("skdp.solvers.output_perturbation")


def minimiser(problem, quadratic):
    bounds = Bounds.of(problem, quadratic)
    found = locate_minimiser(Objective(problem, quadratic), bounds, proved=True)
    return found * np.sqrt(quadratic), bounds.slack


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize("loss", ["logistic", "huber", "squared", "hinge", "poisson"])
def test_no_neighbour_moves_a_minimiser_beyond_the_bound(loss, neighbours):
    """Tables of few rows, little and much penalty: the worst come near the bound."""
    rng, largest = np.random.default_rng(4), 0.0
    for trial in range(24):
        n_rows = int(rng.integers(1, 4))
        columns, target, weight = rows(loss, 4)
        columns = {key: column[:n_rows].copy() for key, column in columns.items()}
        target, weight = target[:n_rows].copy(), weight[:n_rows].copy()
        columns["x"][0] = columns["z"][0] = 1.0
        target[0] = trial % 2
        other, label, gone = dict(columns), target.copy(), weight.copy()
        if neighbours == "zero-out":
            gone[0] = 0.0
        else:
            label[0] = 1 - target[0]
        one = problem_of(loss, neighbours, (columns, target, weight))
        two = problem_of(loss, neighbours, (other, label, gone))
        quadratic = np.exp(rng.uniform(-1, 6, size=one.layout.n_features))
        first, slack = minimiser(one, quadratic)
        second, _ = minimiser(two, quadratic)
        bound = module.bound_sensitivity(one, quadratic, slack)
        largest = max(largest, float(np.linalg.norm(first - second)) / bound)
    assert largest <= 1
    assert largest > (0.9 if loss == "huber" else 0.3)


def test_the_bound_is_the_papers_where_the_penalty_is_the_same_everywhere():
    problem = problem_of("logistic", "replace-one", penalty=ridge_penalty(0.1))
    found = output_perturbation(problem, epsilon=1.0, ridge=0.0, random_state=0)
    n, norm = problem.n_rows, problem.row_norm
    in_weights = found.settings["sensitivity"] / math.sqrt(n * 0.1)
    assert in_weights == pytest.approx(2 * norm / (n * 0.1), rel=1e-6)


def test_the_tolerance_is_paid_for():
    problem = problem_of()
    settings = output_perturbation(problem, epsilon=1.0, random_state=0).settings
    quadratic = certified.read_ridge(problem) + problem.n_rows * settings["ridge"]
    exact = problem.slope_bound * bound_reach(problem, quadratic)
    slack = Bounds.of(problem, quadratic).slack
    assert slack > 2 * settings["tolerance"] > 0
    assert settings["sensitivity"] >= exact + slack
    assert settings["sensitivity"] < 1.001 * exact


def test_it_is_charged_before_records_are_read(monkeypatch):
    class Read(Exception):
        pass

    def refuse(*_, **__):
        raise Read

    record = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="zero-out")
    monkeypatch.setattr(module, "Objective", refuse)
    with pytest.raises(Read):
        output_perturbation(problem_of(), epsilon=1.0, random_state=0, record=record)
    assert record.spent == pytest.approx(record.budget)


@pytest.mark.parametrize("neighbours", ["zero-out", "add-remove"])
@pytest.mark.parametrize("max_weight", [1.0, 1e-2, 1e-6])
@pytest.mark.parametrize("name", ["output_perturbation", "objective_perturbation"])
def test_a_record_without_weight_counts_no_more_than_max_weight(
    name, max_weight, neighbours
):
    """One bin per record: without enough noise each weight would tell its label."""
    n = 400
    secret = np.random.default_rng(1).integers(0, 2, n)
    schema = Schema({"id": Numeric(0, n, bins=n)}, target=Categorical([0, 1]))
    batch = Batch(columns={"id": np.arange(n) + 0.5}, target=Coded(secret, [0, 1]))
    records = encode([batch], schema, intercept=False, max_weight=max_weight)
    problem = Problem(
        records=records, loss=LOSSES["logistic"](), n_rows=n, neighbours=neighbours
    )
    solved = SOLVERS[name].run(problem, epsilon=0.1, delta=1e-6, random_state=2)
    right = int(((solved.weights[:, 0] > 0) == secret).sum())
    # At ε = .1 a guess is right with chance .525; 6 standard deviations above that.
    assert right < 0.525 * n + 6 * math.sqrt(n) / 2


@pytest.mark.parametrize("name", ["output_perturbation", "objective_perturbation"])
def test_a_small_ridge_is_refused_for_every_table_alike(name):
    one = problem_of("hinge", "replace-one", rows("hinge", 40))
    columns, target, weight = rows("hinge", 40)
    other = problem_of("hinge", "replace-one", (columns, 0 * target, weight))
    said = []
    for problem in (one, other):
        record = PrivacyRecord(epsilon=8.0, delta=1e-6, neighbours="replace-one")
        with pytest.raises(ValueError, match="ridge") as error:
            SOLVERS[name].run(problem, epsilon=8.0, ridge=1e-9, record=record)
        said.append((str(error.value), record.spent))
    assert said[0] == said[1]
    assert said[0][1] == 0
    least = find_least_ridge(one)
    for problem in (one, other):
        output_perturbation(problem, epsilon=8.0, ridge=least, random_state=0)


def test_every_coordinate_must_be_penalised():
    with pytest.raises(ValueError, match="every coordinate"):
        output_perturbation(problem_of(), epsilon=1.0, ridge=0.0, random_state=0)
    with pytest.raises(ValueError, match="one output"):
        output_perturbation(problem_of("softmax"), epsilon=1.0, random_state=0)
    with pytest.raises(ValueError, match="ridge must be"):
        output_perturbation(problem_of(), epsilon=1.0, ridge=-1.0, random_state=0)
