"""Define the classifiers: logistic regression and linear support vector machines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin

from skdp.estimators.fit import PrivateLinearModel
from skdp.estimators.fit_warnings import ScoreMixin
from skdp.estimators.opening import LEVELS
from skdp.models.losses import Logistic, Loss, SmoothedHinge, Softmax
from skdp.privacy.encoding import Coded
from skdp.schema import Categorical, FloatArray, Schema, Target, check
from skdp.schema.validation import list_values
from skdp.tables import readers
from skdp.tables.batches import check_rows
from skdp.tables.cells import Levels, codes


class PrivateClassifier(ScoreMixin, ClassifierMixin, PrivateLinearModel):
    """The base class of all classifiers, which handles labels and decisions."""

    def _target(self) -> Any:
        check(
            self.target_bounds is None,
            "target_bounds is for regressors. A classifier takes classes=[...].",
        )
        if self.classes is None:
            return LEVELS
        return Categorical(list_values(self.classes, "classes"))

    def _set_fitted(self, weights: FloatArray, schema: Schema, named: bool) -> None:
        super()._set_fitted(weights, schema, named)
        column = schema.target_column
        levels = column.levels if isinstance(column, Categorical) else ()
        self.classes_ = np.array(levels)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # On the small tables of scikit-learn's tests, noise hides every effect.
        tags.classifier_tags.poor_score = self.epsilon != math.inf
        return tags

    def decision_function(self, X: Any) -> FloatArray:
        """Return margins: (n,) for two classes, (n, n_classes) for more."""
        margins = self._margins(X)
        return margins[:, 0] if margins.shape[1] == 1 else margins

    def predict(self, X: Any) -> Any:
        """Return the class with the largest margin for each row."""
        margins = self._margins(X)
        if margins.shape[1] == 1:
            return self.classes_[(margins[:, 0] > 0).astype(int)]
        return self.classes_[np.argmax(margins, axis=1)]

    def _compute_score(self, X: Any, y: Any, sample_weight: Any) -> float:
        """Return the share of rows, or of their weights, with the right label."""
        from sklearn.metrics import accuracy_score  # slow to import

        predicted, column = self.predict(X), self.schema_.target_column
        assert isinstance(column, Categorical)
        cells = codes(readers.read_column(y, "y"), Levels(column))
        found = column.compute_features(Coded(cells, column.levels))
        check_rows(len(found) == len(predicted), "y")
        known = found < len(column.levels)
        right = known & (self.classes_[np.where(known, found, 0)] == predicted)
        weights: Any = {"sample_weight": sample_weight}
        return float(accuracy_score(np.ones_like(right), right, **weights))

    def _count_classes(self, target: Target, at_most: int | None = None) -> int:
        """Return the number of classes.

        Raise if the target or `slope_bound` does not suit a classifier.
        """
        check(
            isinstance(target, Categorical) and len(target.levels) >= 2,
            "A classifier needs a categorical target with two classes or more. "
            "Describe it in the schema: Categorical([...]) in Python, kind = "
            "'categorical' in a TOML file. Or pass classes=[...]. To predict numbers, "
            "use LinearRegression (--model linear).",
        )
        assert isinstance(target, Categorical)
        check(
            at_most is None or len(target.levels) <= at_most,
            "Only binary classification is supported, got "
            f"{len(target.levels)} classes. Use LogisticRegression for more.",
        )
        check(
            isinstance(self.slope_bound, str) and self.slope_bound == "auto",
            f"slope_bound is for regressors, got {self.slope_bound!r}. The slopes of a "
            "classifier's loss are bounded already, so leave slope_bound out.",
        )
        return len(target.levels)


class LogisticRegression(PrivateClassifier):
    """Logistic regression under differential privacy, binary or multinomial.

    Minimises the mean log-loss plus alpha (l1_ratio ‖w‖₁ + ½ (1 - l1_ratio) ‖w‖²),
    where w are the weights of features scaled to [0, 1]. The intercept is not
    penalised. Three classes or more are fitted by one softmax model.

    Parameters
    ----------
    epsilon : float
        Privacy budget ε; ``inf`` fits without noise and claims no privacy.
    delta : float, optional
        Privacy budget δ, which must be below 1/n for n rows. The default is
        min(1e-6, 1/(10 n)) if the number of rows is public, and 1e-9 if it is private.
    schema : Schema or path, optional
        Public ranges, categories and labels, or the path of a TOML file with them.
        Missing entries are inferred privately, for a tenth of the budget.
    bounds : (low, high), optional
        Public ranges of the columns, as two numbers or two arrays. For numeric tables
        they can replace a schema.
    classes : sequence, optional
        All possible labels, if the schema does not list them. Without them, labels are
        inferred privately. Inferred labels become integers if all of them are integers.
        The type of `y` is ignored, because a single cell may decide it.
    target_bounds : (low, high), optional
        Range of a numeric target, for regressors.
    alpha, l1_ratio : float or "auto", float
        Strength of the penalty, and the share of L1 in the penalty. The default is a
        light ridge penalty. Its alpha is 1e-5 for classifiers and 1e-4 for regressors,
        which have smaller weights.
    fit_intercept : bool
        Whether to fit an intercept.
    class_weight : dict or "balanced", optional
        Public weight of each class, 1 if it is not listed. It multiplies the sample
        weights. Only ratios matter: if a weight is above `max_weight`, all of them are
        divided so that the largest is `max_weight`. "balanced" gives all classes the
        same total weight. It releases the counts of the classes for a fiftieth of the
        budget, and reads the table twice.
    max_weight : float
        Sample weights above this bound count as the bound, which is 1 by default. Set
        it to the largest weight that is possible, from public knowledge.
    sampling : str or Sampling
        The weights that a step updates: all ("full"), one at random ("coordinates"),
        those of one random column ("columns", "importance"), or those of one column
        after another in random order ("shuffled"). With "auto", the plan chooses.
    geometry : str or Geometry
        How a step is scaled: by a released matrix ("matrix"), or by one number per
        weight ("diagonal"). With "auto", the plan chooses.
    n_steps : int or "auto"
        Number of steps. `skdp.descent.rule` computes the default.
    slope_bound : float or "auto"
        Bound on each record's slope (the derivative of the loss), for regressors. The
        slopes of a classifier's loss are bounded already, so it takes only "auto".
    solver : str
        "skgd", or another algorithm of `skdp.solvers` for comparisons. Another
        algorithm uses its own default settings, and ``plan_`` is then a dict of them.
    calibration : {"exact", "paper"}
        How the noise is computed from the budget: by exact Gaussian accounting, or by
        the constant of the paper's Theorem 4.1.
    neighbours : {"add-remove", "zero-out", "replace-one"}
        Which pairs of tables must be hard to distinguish. They differ in one row, which
        is added or removed, left out of every sum, or replaced, respectively. If there
        is a unit (columns that identify persons), they differ in all rows of one person
        instead. Under add-remove the number of rows is private. A noisy count is then
        released by the look, or alone for a hundredth of the budget, unless `n_rows` is
        given. Under the other two relations the number of rows is public.
    n_rows : int, optional
        The number of rows, for add-remove. Give it only if it is public. With a unit,
        it is the number of persons, or of rows if `max_rows_per_unit` is above 1.
    max_rows_per_unit : int
        How the rows of a person are weighted, if there is a unit. By default every
        person counts once, however many rows the person has. If this is m > 1, each row
        counts 1/m, but all rows of a person together count at most once. Use m > 1 to
        model rows, not persons. It requires neighbours="add-remove".
    ledger : Ledger or absolute path, optional
        The ledger that keeps the table's total budget. It is charged before a record
        is read; see `skdp.Ledger`.
    engine : str
        "auto" or an engine of `skdp.engines.choice.ENGINES`, such as "dask", or
        "dask://host:port" for the address of a cluster. All engines give the same
        result, bit for bit.
    n_threads : int, optional
        Number of threads of the compiled engine.
    look : bool
        Whether a look at the table comes first. For at most a twentieth of the budget
        (and more for a numeric target of few rows), noisy histograms of all columns
        find the number of rows and the part of each range that the rows fill, so
        generous ranges cost little. It reads the table once more. With False, ranges
        are used as they are. Fits with ``epsilon=inf``, an L1 penalty, `row_norm`,
        another solver, or a geometry or sampling other than "auto", "matrix" and
        "full" make no look.
    random_state : int, optional
        For tests only. A seeded fit claims no privacy, because anyone who knows the
        seed can undo the noise. ``save`` never writes the seed, but pickle does.
    verbose : int
        Whether to show progress on standard error (0 for no).

    Attributes
    ----------
    coef_, intercept_ : arrays
        Coefficients and intercepts in the user's units. ``coef_`` has one column per
        name in ``get_feature_names_out()``.
    classes_ : array
        The labels, sorted as ``np.unique`` sorts them. Probabilities, margins and
        coefficients are in this order. If there are two, ``classes_[1]`` is the
        positive class.
    plan_ : Plan
        The plan, made from public and released facts before the first step.
    privacy_ : PrivacyRecord
        The record of the budget that was spent.
    schema_ : Schema
        The schema that was used, including inferred entries. After a look, it has the
        part of each range that the rows fill.
    profile_ : Profile or None
        What the look found. ``profile_.limits`` is the schema before it, and ``print``
        shows what the rows of each column fill.
    n_features_in_, n_iter_ : int
        Number of columns that were read, and number of steps taken.
    feature_names_in_ : array of str
        Names of the columns, if they have names. The columns of new tables are found
        by these names.

    Examples
    --------
    >>> import numpy as np, skdp
    >>> X = np.random.default_rng(0).uniform(size=(5000, 2))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> clf = skdp.LogisticRegression(epsilon=1.0, bounds=(0, 1), classes=[0, 1])
    >>> bool(clf.fit(X, y).score(X[:100], y[:100]) > 0.8)
    True
    """

    short_name = "logistic"
    title = "Logistic regression"
    sklearn_class = "sklearn.linear_model:LogisticRegression"
    link = "logit"

    def _make_loss(self, target: Target) -> Loss:
        n_classes = self._count_classes(target)
        return Logistic() if n_classes == 2 else Softmax(n_classes)

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the probability of each class, shape (n, n_classes)."""
        margins = self._margins(X)
        if margins.shape[1] > 1:
            return np.asarray(softmax(margins, axis=1))
        chance = expit(margins)
        return np.hstack([1.0 - chance, chance])

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Return the logarithm of the probabilities."""
        margins = self._margins(X)
        if margins.shape[1] > 1:
            return np.asarray(log_softmax(margins, axis=1))
        return np.hstack([log_expit(-margins), log_expit(margins)])


class LinearSVC(PrivateClassifier):
    """A linear support vector machine for two classes, under differential privacy.

    The loss is the hinge loss, with its corner smoothed by a parabola of width ½. This
    class has the same parameters and attributes as `LogisticRegression`, but does not
    predict probabilities.
    """

    short_name = "svc"
    title = "Linear support vector classifier"
    sklearn_class = "sklearn.svm:LinearSVC"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _make_loss(self, target: Target) -> Loss:
        self._count_classes(target, at_most=2)
        return SmoothedHinge()
