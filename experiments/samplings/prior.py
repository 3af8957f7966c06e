"""A prior from the schema: each column moves the margin alike over its range.

Then |w0 - w*| ∝ 1/range, and the units that M is in cancel.
"""

from experiments.samplings import Facts
from skdp.descent.samplings import Blocks, Sampling

NAME = "prior of the schema"


def make(facts: Facts) -> Sampling:
    return Blocks.prior(facts.blocks, facts.smoothness, 1.0 / facts.ranges)
