"""Export fitted models: to scikit-learn, to ONNX and to a directory of text files."""

from __future__ import annotations

from os import PathLike
from typing import Any

from sklearn.utils.validation import check_is_fitted


class ExportsMixin:
    """The methods of an estimator that export or save the fitted model."""

    def to_sklearn(self) -> Any:
        """Return a fitted scikit-learn ``Pipeline`` that makes the same predictions.

        The pipeline is computed from released weights alone, so it is as private as
        this model. `skdp.estimators.sklearn_export.make_pipeline` says which cells the
        pipeline accepts.
        """
        from skdp.estimators.sklearn_export import make_pipeline  # slow to import

        check_is_fitted(self, "weights_")
        return make_pipeline(self)

    def to_onnx(self) -> Any:
        """Return an ``onnx.ModelProto`` that makes the same predictions.

        The graph is computed from released weights alone, so it is as private as this
        model. `skdp.estimators.onnx_export.make_onnx_model` describes the graph's
        inputs and outputs.
        """
        from skdp.estimators.onnx_export import make_onnx_model  # needs an extra

        check_is_fitted(self, "weights_")
        return make_onnx_model(self)

    def save(self, directory: str | PathLike[str]) -> None:
        """Write the fitted model to a directory of text files; `skdp.load` reads it.

        Nothing is pickled, and a seed is never written. If `directory` is a saved
        model, it is replaced. If it exists and is anything else, an error is raised.
        """
        from skdp.estimators.saving import save  # which imports this file

        check_is_fitted(self, "weights_")
        fitted: Any = self
        save(fitted, directory)
