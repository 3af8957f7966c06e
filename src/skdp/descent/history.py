"""Define a callback that keeps all steps of a run, which are public or released."""

from __future__ import annotations

import numpy as np

from skdp.descent.algorithm1 import Step
from skdp.schema import FloatArray


class History:
    """Collect the steps of a run: ``run(plan, records, callback=history)``.

    Attributes
    ----------
    steps : list of Step
        All steps in order.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def __call__(self, step: Step) -> None:
        """Append a step to `steps`."""
        self.steps.append(step)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def weights(self) -> FloatArray:
        """Iterates θ after each step, shape (steps, d, k)."""
        return np.array([step.weights for step in self.steps])

    @property
    def visits(self) -> FloatArray:
        """Number of times each coordinate was moved, shape (d,)."""
        counts = np.zeros(len(self.steps[0].weights) if self.steps else 0)
        for step in self.steps:
            counts[step.at] += 1.0
        return counts
