"""DP-SGD with the best of some settings, chosen on the excess itself.

No private user can tune like this: each trial would have to be paid for. It shows how
much of our advantage is due to settings. The default setting is one of them. The others
have steps up to eight times as long as those that are safe for every table, and total
times (the number of steps times their length) around that of the default. Where steps
are many, which is so for large budgets, there are no longer times and the clip is
chosen last, to save time. Batches are as large as the default's for that many steps.
"""

from functools import cache
from typing import Any

from experiments.paths import ENGINE, Callback, followed
from experiments.problems import Objective
from skdp.descent import algorithm1
from skdp.schema import FloatArray
from skdp.solvers import Problem, dp_sgd
from skdp.solvers.dp_sgd import choose_batch_rate, choose_sgd_steps
from skdp.solvers.poisson_batches import DELTA_SHARE
from skdp.solvers.problem import open_run

NAME = "dp_sgd_tuned"
LABEL = "DP-SGD, tuned (not private)"
LOSSES = ("logistic", "squared")
#: Tuning takes long, so it is run at three budgets.
EPSILONS = (0.03, 0.1, 1.0)
#: The length of the steps and the total time, relative to the default.
GRID = ((1.0, 1.0), (2.0, 1 / 3), (2.0, 1.0), (8.0, 1 / 3), (8.0, 1.0), (8.0, 3.0))
#: The same for settings with a longer time than those.
LONGER = ((2.0, 3.0), (8.0, 9.0))
#: The clip, relative to the largest gradient of a record. The default is a half.
CLIPS = (1 / 2, 1 / 8, 1 / 4, 1.0)
#: With more steps than this, by default, there are fewer trials.
MANY_STEPS = 1000
#: The seed of the trials, which is not one of those that are shown.
TRIAL_SEED = 1000
Setting = dict[str, Any]


def list_settings(problem: Problem, epsilon: float, delta: float) -> list[Setting]:
    """Return the settings of the grid, with the default clip."""
    facts = open_run(problem, epsilon=epsilon, delta=delta, delta_share=DELTA_SHARE)
    usual = choose_sgd_steps(problem, facts)
    safe = 1.9 / (problem.curvature * problem.row_norm**2)
    settings = []
    for length, time in GRID if usual > MANY_STEPS else GRID + LONGER:
        n_steps = max(1, round(usual * time / length))
        rate = choose_batch_rate(problem.n_rows, facts.mu, n_steps)
        steps = {"n_steps": n_steps, "rate": rate, "learning_rate": length * safe}
        settings.append(with_clip(steps, problem, CLIPS[0]))
    return settings


def with_clip(setting: Setting, problem: Problem, clip: float) -> Setting:
    """Return a setting with another clip."""
    return setting | {"clip": clip * problem.slope_bound * problem.row_norm}


@cache
def choose(problem: Problem, epsilon: float, delta: float) -> Setting:
    """Return the setting with the least excess, from one trial of each."""
    objective = Objective(problem)

    def try_out(setting: Setting) -> float:
        given = {"epsilon": epsilon, "delta": delta, "random_state": TRIAL_SEED}
        fit = dp_sgd(problem, engine=ENGINE, **given, **setting)
        return objective.excess(fit.weights)

    settings = list_settings(problem, epsilon, delta)
    if settings[0]["n_steps"] > MANY_STEPS:
        settings = [min(settings, key=try_out)]
    clipped = [with_clip(each, problem, clip) for each in settings for clip in CLIPS]
    return min(clipped, key=try_out)


def fit(
    problem: Problem,
    *,
    epsilon: float,
    delta: float,
    seed: int,
    callback: Callback | None = None,
) -> FloatArray:
    """Fit with the settings that are best for this table."""
    setting = choose(problem, epsilon, delta)
    after = followed(callback, lambda step: setting["rate"], algorithm1.most)
    return dp_sgd(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=seed,
        engine=ENGINE,
        callback=after,
        **setting,
    ).weights
