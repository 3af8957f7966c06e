"""scikit-learn's own checks, without noise for all estimators, and with it for two.

Without noise every label is found, and the classes are not given, because no list of
them would suit all checks. Steps are few, because the checks do not require an optimum.
With default parameters and noise, one classifier and one regressor run, because all
estimators share the code that adds noise. They are seeded. Without a seed, labels near
the threshold would be found in some runs and not in others.

A check that is expected to fail must fail for the stated reason: the first exception of
its chain has the reason's type and words. Any other exception fails the test.
"""

import math
import re
import warnings
from typing import NamedTuple
from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from skdp.estimators import (
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    NotPrivateWarning,
    PoissonRegressor,
)
from skdp.schema.validation import InputError

CLASSIFIERS = (LogisticRegression, LinearSVC)
REGRESSORS = (LinearRegression, HuberRegressor, PoissonRegressor)

#: With noise.
NOISY = (LogisticRegression, PoissonRegressor)


class Reason(NamedTuple):
    """Why a check must fail, and the exception by which it does."""

    why: str
    type: type[Exception]
    pattern: str


LABELS = Reason(
    "labels are found within the budget, and a table this small cannot show them",
    InputError,
    "^A classifier needs more than one class, but the labels could not be inferred",
)
VALUES = Reason(
    "a value must not raise: its owner would be found out",
    AssertionError,
    "should have raised error on fitting array y with inf value",
)
ZEROS = Reason(
    "weights must not raise: that all others are zero would be found out",
    AssertionError,
    r"^Did not raise: \[<class 'ValueError'>\]",
)
ROWS = Reason(
    "whether a table has a row at all is private under add-remove",
    AssertionError,
    "does not raise a ValueError when an empty data is used to train",
)
WEIGHTS = Reason(
    "sums are divided by the public number of rows, never by the sum of weights",
    AssertionError,
    "`sample_weight` is not equivalent to fitting with removed or repeated data",
)

#: Why a check fails for all of them. (Classifiers with noise stop at the labels.)
ALWAYS = {
    "check_all_zero_sample_weights_error": ZEROS,
    "check_sample_weight_equivalence_on_dense_data": WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": WEIGHTS,
}
#: Checks that scikit-learn 1.6.0 does not have yet.
LATER = {
    "check_all_zero_sample_weights_error",
    "check_array_api_input",
    "check_estimator_sparse_tag",
}
#: For regressors; a classifier finds no labels in such a target and says so.
REGRESSION = {
    "check_supervised_y_no_nan": VALUES,
    "check_estimators_empty_data_messages": ROWS,
}
#: For classifiers that are not told the classes.
UNTOLD = dict.fromkeys(
    (
        "check_fit_score_takes_y",
        "check_estimators_overwrite_params",
        "check_dont_overwrite_parameters",
        "check_estimators_fit_returns_self",
        "check_readonly_memmap_input",
        "check_n_features_in_after_fitting",
        "check_positive_only_tag_during_fit",
        "check_estimators_dtypes",
        "check_sample_weights_pandas_series",
        "check_sample_weights_not_an_array",
        "check_sample_weights_list",
        "check_sample_weights_shape",
        "check_sample_weights_not_overwritten",
        "check_dtype_object",
        "check_pipeline_consistency",
        "check_estimator_sparse_tag",
        "check_estimator_sparse_array",
        "check_estimator_sparse_matrix",
        "check_estimators_pickle",
        "check_array_api_input",
        "check_f_contiguous_array_estimator",
        "check_classifier_data_not_an_array",
        "check_classifiers_classes",
        "check_classifiers_train",
        "check_supervised_y_2d",
        "check_class_weight_classifiers",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_fit2d_1feature",
        "check_dict_unchanged",
        "check_fit_idempotent",
        "check_fit_check_is_fitted",
        "check_n_features_in",
        "check_fit2d_predict1d",
        "check_decision_proba_consistency",
        *ALWAYS,
    ),
    LABELS,
)


def with_bounds(kind, most, **options):
    if kind in REGRESSORS:
        low = 0 if kind is PoissonRegressor else -most
        options["target_bounds"] = (low, most)
    return kind(**options)


def with_noise(kind):  # a range that many targets miss would be warned of
    return with_bounds(kind, 1000, random_state=0)


def without_noise(kind):
    return with_bounds(kind, 10, epsilon=math.inf, bounds=(-2, 2), n_steps=50)


def expected(kind, noise):
    if kind in REGRESSORS:
        return ALWAYS | REGRESSION
    return UNTOLD if noise else ALWAYS


RUNS = [
    *((kind, True, with_noise(kind)) for kind in NOISY),
    *((kind, False, without_noise(kind)) for kind in (*CLASSIFIERS, *REGRESSORS)),
]


def named_checks(model):
    for estimator, check in estimator_checks_generator(model, mark=None):
        yield estimator, check, getattr(check, "func", check).__name__


def checks():
    for kind, noise, model in RUNS:
        reasons, found = expected(kind, noise), list(named_checks(model))
        for number, (estimator, check, name) in enumerate(found):
            reason = reasons.get(name)
            run = "noise" if noise else "noiseless"
            label = f"{kind.__name__}-{run}-{number}-{name}"
            yield pytest.param(estimator, check, reason, id=label)


def find_cause(error):
    """Return the exception that a chain of exceptions began with."""
    while (earlier := error.__cause__ or error.__context__) is not None:
        error = earlier
    return error


@pytest.mark.parametrize(("estimator", "check", "reason"), list(checks()))
def test_scikit_learn_check(estimator, check, reason, monkeypatch):
    """A check passes, or it fails for the stated reason."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # or one check would be skipped
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)  # checks score as they like
        try:
            check(estimator)
        except SkipTest as skipped:
            pytest.exit(f"a check was skipped: {skipped}")
        except Exception as error:
            cause = find_cause(error)
            if reason is None or type(cause) is not reason.type:
                raise
            if not re.search(reason.pattern, str(cause)):
                raise
        else:
            assert reason is None, "The check was expected to fail."
            return
    pytest.xfail(reason.why)  # pytest would take long to print what a check raised


@pytest.mark.parametrize(("kind", "noise", "model"), RUNS)
def test_expected_failures_have_reasons_of_privacy(kind, noise, model, capsys):
    reasons, found = expected(kind, noise), list(named_checks(model))
    failing = [name for _, _, name in found if name in reasons]
    run = "default parameters" if noise else "without noise"
    with capsys.disabled():
        print(
            f"\n{kind.__name__}, {run}: {len(failing)} of {len(found)} checks are "
            "expected to fail"
        )
    # None is out of date.
    assert set(reasons) - LATER <= {name for _, _, name in found}
    assert set(reasons.values()) <= {LABELS, VALUES, ZEROS, ROWS, WEIGHTS}
    if not noise:
        assert set(failing) <= {*ALWAYS, *REGRESSION}
