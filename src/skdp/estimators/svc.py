"""Private linear support vector classification."""

from __future__ import annotations

from typing import Any

from skdp.estimators.logistic import PrivateClassifier, check_classes
from skdp.models.losses import Loss, SmoothedHinge
from skdp.schema import Schema


class LinearSVC(PrivateClassifier):
    """A linear support vector machine under differential privacy, two classes.

    The hinge is rounded by a parabola of width ½. Parameters and attributes are those
    of `LogisticRegression`; there are no probabilities.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _loss(self, schema: Schema) -> Loss:
        check_classes(schema, at_most=2)
        return SmoothedHinge()
