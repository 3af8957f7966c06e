"""The statement's numbers are the record's, and it says what it must."""

import math
import re

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

import skdp
from skdp.privacy.accountant import gdp_delta
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.queries import Kind
from skdp.privacy.selection import SearchRecord, choose_stop
from skdp.reporting.statement import detection_rate, failure_rate, statement

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(500, 2))
Y = (X[:, 0] > 0.5).astype(int)


def record(epsilon=1.0, delta=1e-6, neighbours="replace-one", **given):
    made = PrivacyRecord(epsilon=epsilon, delta=delta, neighbours=neighbours, **given)
    z = 1 / math.sqrt(made.budget) if epsilon < math.inf else 0.0
    made.charge(Event(Kind.STATED, "some sums", 2.0, z * (1 + 1e-9), 4))
    return made


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_numbers_are_those_of_the_record(epsilon):
    one = record(epsilon)
    mu = math.sqrt(one.spent)
    told = words(statement(one))
    assert f"({one.spent_epsilon:.4g}, 1e-06)-differential privacy" in told
    assert f"factor of at most {math.exp(one.spent_epsilon):.4g}" in told
    assert f"finds at most {ndtr(ndtri(0.05) + mu):.2%} of the rows" in told
    assert f"add up to μ = {mu:.6g}" in told
    noise = 1 / mu
    assert f"some sums, once, noise {noise:.4g} times the largest change that" in told


@pytest.mark.parametrize("mu", [0.2, 1.0])
def test_no_test_between_gaussians_finds_more(mu):
    """The likelihood-ratio test, simulated, reaches the rate and nothing beats it."""
    one = record()
    one.events.clear()
    one.events[Event(Kind.STATED, "q", 1.0, 1 / mu, 1)] = 1
    draws = RNG.normal(size=400_000)
    threshold = np.quantile(draws, 0.95)
    found = np.mean(RNG.normal(mu, size=400_000) > threshold)
    assert detection_rate(one) == pytest.approx(found, abs=0.004)
    one.events[Event(Kind.STATED, "q", 1.0, 1e9, 1, 1e-3)] = 2
    assert detection_rate(one) == pytest.approx(found + 2e-3, abs=0.004)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_odds_change_more_no_oftener_than_said(epsilon):
    """For the Gaussian mechanism itself |loss| > ε has a known probability."""
    one = record(epsilon, 1e-5)
    mu, reached = math.sqrt(one.spent), one.spent_epsilon
    truth = ndtr(mu / 2 - reached / mu) + ndtr(-mu / 2 - reached / mu)
    assert gdp_delta(reached, mu) < truth <= failure_rate(one) < 10 * truth


def test_a_random_search_is_described_by_its_own_curve():
    """Not by that of the one trial whose releases are listed."""
    stop = choose_stop(20.0)
    one = SearchRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one", stop=stop)
    one.end(one.begin(one.budget), [])
    one.charge(
        Event(Kind.STATED, "some sums", 2.0, 1 / math.sqrt(one.budget) * (1 + 1e-9), 4)
    )
    mu = math.sqrt(one.spent)
    assert detection_rate(one) > ndtr(ndtri(0.05) + mu) + 0.02
    assert detection_rate(one) <= 0.05 * math.e + 1e-6
    assert failure_rate(one) > 1e-6
    told = words(statement(one))
    assert f"finds at most {detection_rate(one):.2%} of the rows" in told
    assert "They belong to one trial of a search" in told


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out", "add-remove"])
def test_relation_and_assumptions_are_said(neighbours):
    told = words(
        statement(record(neighbours=neighbours, assumptions=("Snow is white.",)))
    )
    assert "Snow is white." in told
    assert ("The number of rows is public." in told) == (neighbours != "add-remove")
    deed = {"replace-one": "replaced", "zero-out": "left out", "add-remove": "added or"}
    assert f"one row is {deed[neighbours]}" in told


def test_what_is_not_protected_is_said():
    told = words(statement(skdp.LogisticRegression(bounds=(0, 1)).fit(X, Y)))
    assert "A LogisticRegression computed from a confidential table" in told
    for said in (
        "Several rows of one person",
        "How long",
        "cv_results_",
        "best_params_",
        "ledger",
    ):
        assert said in told
    assert "categories of 1 column" in told


@pytest.mark.parametrize("given", [{"random_state": 5}, {"epsilon": math.inf}])
def test_nothing_is_promised_where_there_is_no_noise_or_a_seed(given):
    model = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1], n_steps=5, **given)
    told = words(statement(model.fit(X, Y)))
    assert "What is promised NOTHING: " in told
    assert "differential privacy" not in told
    assert not re.search(r"factor of at most", told)


def test_a_statement_needs_a_record(tmp_path):
    """A model's, which may be a saved one."""
    model = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1], n_steps=5)
    with pytest.raises(ValueError, match="must be fitted"):
        statement(model)
    model.fit(X, Y).save(tmp_path / "model")
    assert statement(tmp_path / "model") == statement(model)


def test_printed_records_warn_of_scores_and_searches():
    assert "score(), cv_results_" in str(record())
