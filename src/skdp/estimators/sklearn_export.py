"""Export a fitted model as a scikit-learn pipeline.

This is post-processing of released weights.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline

from skdp.estimators.opening import check_width
from skdp.estimators.predict import accept_rows, compute_features
from skdp.schema import FloatArray, Schema


class SchemaFeatures(TransformerMixin, BaseEstimator):
    """Turn the cells of a table into the features of a model.

    Numbers are scaled to [0, 1], and each category, bin, knot and pair has a feature of
    its own. All of this follows from the schema, so nothing is learned from a table.

    Parameters
    ----------
    schema : Schema
        The model's schema.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Do nothing, because the features follow from the schema."""
        return self

    def transform(self, X: Any) -> Any:
        """Return the features of all rows, as an array or a sparse array."""
        table = accept_rows(X)
        check_width(table, len(self.schema.inputs), type(self).__name__)
        return compute_features(table, self.schema)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the names of the features, such as age or job=admin."""
        return np.array(self.schema.layout(intercept=False).labels, dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        inputs = tags.input_tags
        inputs.sparse = inputs.string = inputs.allow_nan = True
        return tags


def make_pipeline(model: Any) -> Pipeline:
    """Return a fitted scikit-learn ``Pipeline`` that makes the predictions of `model`.

    Parameters
    ----------
    model : PrivateLinearModel
        A fitted model.

    Notes
    -----
    The pipeline has two steps: `SchemaFeatures`, and scikit-learn's own model with the
    released weights. It takes every table that `model` takes. scikit-learn has no
    transformers that compare cells as `model` does: True, "True", "true" and 1 are the
    same level of a schema that lists only one of them. So the first step belongs to
    skdp, which must be installed where the pickled pipeline is loaded. The graph of
    ``to_onnx()`` does not need skdp.
    """
    layout, weights = model._layout, model.weights_
    constant = np.zeros(weights.shape[1])
    if layout.groups[-1].kind == "ones":
        weights, constant = weights[:-1], weights[-1]
    final = _make_final(model, weights, constant)
    return Pipeline([("features", SchemaFeatures(model.schema_)), ("model", final)])


def _make_final(model: Any, weights: FloatArray, constant: FloatArray) -> Any:
    """Return the scikit-learn model with these weights and constants (intercepts)."""
    final = resolve_name(model.sklearn_class)()
    final.n_features_in_ = len(weights)
    if hasattr(model, "classes_"):
        final.classes_ = model.classes_
        final.coef_, final.intercept_ = weights.T.copy(), constant
        final.n_iter_ = np.array([0])
        return final
    if model.link == "log":  # scikit-learn sets the link in fit
        final.fit(np.zeros((1, len(weights))), [1.0])
    middle, half = model._target_units()
    final.coef_ = weights[:, 0] * half
    final.intercept_ = float(middle + half * constant[0])
    return final
