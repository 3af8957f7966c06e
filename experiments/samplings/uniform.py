"""Every block alike, as DP-CD has it."""

from experiments.samplings import Facts
from skdp.descent.samplings import Blocks, Sampling

NAME = "uniform"


def make(facts: Facts) -> Sampling:
    return Blocks.uniform(facts.blocks)
