"""DP-CD without its clips: uniform coordinates, the smoothness released.

With the same seed, M is the same as in DP-SkGD with importance sampling, and no slope
is clipped in either. The sampling, and the K* that follows from it, are all that
differs.
"""

import math
from functools import partial

from experiments.systems import dp_cd

NAME = "dp_cd_unclipped"
LABEL = "DP-CD, unclipped"
LOSSES, EPSILONS = dp_cd.LOSSES, dp_cd.EPSILONS

fit = partial(dp_cd.fit_clipped, math.inf)
