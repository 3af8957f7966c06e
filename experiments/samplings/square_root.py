"""q ∝ √M: the best law, by the bound, if all raw weights are as far from the start."""

import numpy as np

from experiments.samplings import Facts
from skdp.descent.samplings import Blocks, Sampling

NAME = "square root, q ∝ √M"


def make(facts: Facts) -> Sampling:
    return Blocks.importance(facts.blocks, np.sqrt(facts.smoothness))
