"""Right noise is never flagged, planted mistakes always (docs/evidence/audit.md).

Right noise is flagged at most once in a million runs of a test, by the confidence.
Numbers of trials are such that a mistake is missed at most twice in a million runs.
"""

import json

import pytest
from bugs import (
    fixed_seed,
    low_threshold,
    no_factor_two,
    noise_times,
    one_deviate_a_release,
    same_noise_each_step,
    sets_amplify,
    sets_by_exact_gradients,
    sketch_caps_of_another_set,
    sketch_not_capped,
    small_noise_off_the_diagonal,
    uncharged,
)

import skdp
from skdp import audit
from skdp.audit import games
from skdp.privacy.queries import Kind

SURE = 1 - 1e-6
SETTINGS = [
    (name, neighbours)
    for name, mechanism in audit.MECHANISMS.items()
    for neighbours in mechanism.relations
]
#: Releases of numbers, with tables that reach the sensitivity.
GAUSSIAN = [(n, r) for n, r in SETTINGS if audit.MECHANISMS[n].gaussian]


@pytest.mark.parametrize(("name", "neighbours"), SETTINGS)
def test_right_noise_is_not_flagged(name, neighbours):
    delta = 0.05 if name == "rare level" else 1e-6
    found = audit.mechanism(
        name,
        epsilon=8.0,
        delta=delta,
        neighbours=neighbours,
        n_trials=60 if audit.MECHANISMS[name].slow else 200,
        confidence=SURE,
    )
    assert found.passed, found
    assert found.epsilon == pytest.approx(8.0, rel=0.01)
    assert "no violation found" in str(found)


@pytest.mark.parametrize(("name", "neighbours"), GAUSSIAN)
def test_tables_reach_the_stated_sensitivity(name, neighbours):
    found = audit.mechanism(name, neighbours=neighbours, n_trials=2, group=3)
    assert found.reached == pytest.approx(found.mu, rel=1e-4)


def test_groups_of_records_prove_as_much_of_one():
    found = audit.mechanism("gram", group=8, n_trials=1300, confidence=SURE)
    assert found.passed, found
    assert 0.6 * found.mu < found.mu_lower < found.mu
    assert found.plain_epsilon_lower is None


@pytest.mark.parametrize(
    "name",
    [
        "gradient",
        "matrix gradient",
        "gram",
        "centred gram",
        "counts",
        "row count",
        "levels",
    ],
)
def test_noise_a_fifth_too_small_is_found(name):
    n_each = games.trials_needed(1.53, confidence=SURE, power=SURE)
    with noise_times(0.8):
        found = audit.mechanism(
            name,
            epsilon=8.0,
            neighbours="add-remove",
            n_trials=2 * n_each,
            confidence=SURE,
        )
    assert any("gdp" in text for text in found.violations)


@pytest.mark.nightly
def test_noise_of_ranges_a_fifth_too_small_is_found():
    n_each = games.trials_needed(3.0, confidence=SURE, power=SURE)
    with noise_times(0.8):
        found = audit.mechanism(
            "ranges", epsilon=18.5, n_trials=2 * n_each, confidence=SURE
        )
    assert found.mu == pytest.approx(3.0, rel=0.1)
    assert any("gdp" in text for text in found.violations)


def test_half_the_noise_of_an_evaluation_is_found():
    with noise_times(0.5):
        found = audit.mechanism(
            "evaluation", epsilon=8.0, n_trials=400, confidence=SURE
        )
    assert any("gdp" in text for text in found.violations)


@pytest.mark.parametrize("name", ["gradient", "matrix gradient", "gram", "counts"])
def test_sensitivity_without_the_factor_two_is_found(name):
    """By the distance of the tables, and by guessing alone."""
    with no_factor_two():
        found = audit.mechanism(name, epsilon=8.0, n_trials=3000, confidence=SURE)
    assert any("gdp" in text for text in found.violations)
    assert any("tables differ" in text for text in found.violations)


def test_small_noise_off_the_diagonal_is_found():
    with small_noise_off_the_diagonal():
        found = audit.mechanism("gram", epsilon=8.0, n_trials=3400, confidence=SURE)
    assert any("gdp" in text for text in found.violations)
    assert any("tables differ" in text for text in found.violations)


def test_a_sketch_without_caps_is_found():
    with sketch_not_capped():
        found = audit.mechanism("sketch", epsilon=8.0, n_trials=400, confidence=SURE)
    assert any("gdp" in text for text in found.violations)
    assert any("tables differ" in text for text in found.violations)


@pytest.mark.parametrize(
    ("name", "bug"),
    [("sketch", sketch_caps_of_another_set), ("adaptive sets", sets_amplify)],
)
def test_too_little_noise_of_a_set_is_found(name, bug):
    """By the distance of the tables; the report guesses, which takes more trials."""
    with bug():
        found = audit.mechanism(name, epsilon=8.0, n_trials=20)
    assert any("tables differ" in text for text in found.violations)
    assert found.choices == 0


def test_sets_depend_on_releases_alone():
    """Sums of eight canaries are well above the noise, so they would show."""
    found = audit.mechanism(
        "adaptive sets", epsilon=8.0, neighbours="add-remove", n_trials=10, group=8
    )
    assert found.passed, found
    assert found.choices == 0


def test_sets_that_follow_exact_gradients_are_found():
    """By the probabilities of the sets on both tables, and by guessing alone."""
    with sets_by_exact_gradients():
        found = audit.mechanism(
            "adaptive sets",
            epsilon=0.25,
            neighbours="add-remove",
            n_trials=500,
            confidence=SURE,
        )
    assert "the sets that are drawn depend on records" in found.violations
    assert any("gdp" in text for text in found.violations)
    assert not any("tables differ" in text for text in found.violations)


@pytest.mark.parametrize("name", ["gradient", "ranges"])
def test_noise_shared_by_entries_is_found(name):
    with one_deviate_a_release():
        found = audit.mechanism(name, epsilon=1.0, n_trials=1300, confidence=SURE)
    assert found.mu_lower > 4 * found.mu


def test_noise_that_is_the_same_in_every_run_is_found():
    with fixed_seed():
        model = skdp.LinearRegression(
            epsilon=1.0, neighbours="zero-out", n_steps=1, look=False
        )
        # The second auditor needs more games than there are released numbers.
        found = audit.fit(model, n_trials=400, n_rows=20, twins=0, confidence=SURE)
    assert found.mu_lower > 4 * found.mu


def test_a_low_threshold_of_categories_is_found():
    """A category of one record has probability δ. No ε can make up for more."""
    with low_threshold():
        found = audit.mechanism(
            "rare level",
            epsilon=1.0,
            delta=0.05,
            neighbours="zero-out",
            n_trials=16_000,
            confidence=SURE,
        )
    assert any("plain" in text for text in found.violations)


FITTED = {"epsilon": 8.0, "delta": 1e-6, "n_steps": 2}
QUICK = {"n_rows": 60, "twins": 0, "confidence": SURE}


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out", "add-remove"])
@pytest.mark.parametrize("kind", [skdp.LogisticRegression, skdp.LinearRegression])
def test_fits_with_right_noise_are_not_flagged(kind, neighbours):
    found = audit.fit(kind(neighbours=neighbours, **FITTED), n_trials=30, **QUICK)
    assert found.passed, found
    assert found.epsilon == pytest.approx(8.0, rel=1e-6)
    assert json.loads(json.dumps(found.to_dict()))["passed"] is True


def test_fits_with_a_third_of_the_noise_are_found():
    """Half of it would take 800 fits."""
    model = skdp.LinearRegression(neighbours="zero-out", **FITTED)
    with noise_times(1 / 3):
        found = audit.fit(model, n_trials=320, **QUICK)
    assert any("gdp" in text for text in found.violations)


UNCHARGED = [Kind.GRAM, Kind.TARGET_HISTOGRAM, Kind.WEIGHT_HISTOGRAM]


@pytest.mark.parametrize("missing", UNCHARGED)
def test_a_release_that_is_not_charged_is_found(missing):
    model = skdp.LinearRegression(neighbours="add-remove", **FITTED)
    with uncharged(missing):
        found = audit.fit(model, n_trials=16, **QUICK)
    assert "1 release was not charged" in found.violations
    if missing == Kind.GRAM:
        assert any("tables differ" in text for text in found.violations)


def test_noise_repeated_in_each_step_is_found():
    """A canary adds something else at each step, which gives it away."""
    model = skdp.LinearRegression(neighbours="zero-out", geometry="diagonal", **FITTED)
    model.set_params(sampling="full", n_steps=4)
    with same_noise_each_step():
        found = audit.fit(model, n_trials=240, **QUICK)
    assert any("gdp" in text for text in found.violations)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"name": "laplace"}, "must be one of"),
        ({"name": "row count"}, "add-remove"),
        ({"name": "levels", "group": 2}, "does not scale with groups"),
        ({"name": "gram", "n_trials": 0}, "at least 2 trials"),
    ],
)
def test_what_cannot_be_audited_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        audit.mechanism(**given)


def test_progress_counts_every_trial():
    seen = []
    audit.mechanism("gram", n_trials=90, progress=seen.append)
    assert sum(seen) == 90
