"""Algorithm 1 on separable quadratics, where every assumption of the theory holds.

f(w) = ½ Σ_j h_j (w_j - w*_j)² with smoothness M, h ≤ M. `simulate` is the algorithm in
floating point, fast enough for thousands of runs; `Program` is `skdp.run` on records
whose mean loss is the same f: what is measured there is the program that users run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from experiments.paths import ENGINE
from experiments.theory_table import Method
from skdp import Batch, Plan, Schema, Squared, Vector, encode, run
from skdp.descent.geometry import Diagonal
from skdp.privacy.encoding import Records
from skdp.schema import Numeric
from skdp.solvers import Problem, dp_svrg

Array = NDArray[np.float64]
Average = Callable[[int], Array]


def mean_with_start(n_steps: int) -> Array:
    """Weights of the average of θ_0, …, θ_{K-1}, whose last entry θ_K has none.

    The program's averages are over θ_1, …, θ_K, this one is Theorem A's: it is given as
    K weights of θ_1, …, θ_K, and what is missing to one is the weight of θ_0.
    """
    return np.append(np.full(n_steps - 1, 1.0 / n_steps), 0.0)


@numba.njit(cache=True)
def _run(
    rng: Any,
    start: Any,
    contraction: Any,
    noise: Any,
    first: Any,
    members: Any,
    cumulative: Any,
    tails: Any,
    n_restarts: int,
    n_runs: int,
) -> Any:
    """Errors of the averages, (n_runs, n_averages, d); the first one is restarted from.

    Σ_k share_k θ_k = θ_0 + Σ_k (θ_k - θ_{k-1}) tail_k with tail_k = Σ_{i ≥ k} share_i:
    a step costs as much as the coordinates that it moves.
    """
    n_averages, n_steps = tails.shape
    result = np.empty((n_runs, n_averages, start.size))
    for one in range(n_runs):
        theta = start.copy()
        for _ in range(n_restarts):
            for j in range(start.size):
                result[one, :, j] = theta[j]
            for k in range(n_steps):
                drawn = np.searchsorted(cumulative, rng.random(), side="right")
                for place in range(first[drawn], first[drawn + 1]):
                    j = members[place]
                    push = noise[place] * rng.standard_normal()
                    move = -(contraction[j] * theta[j] + push)
                    theta[j] += move
                    for average in range(n_averages):
                        result[one, average, j] += tails[average, k] * move
            theta[:] = result[one, 0]
    return result


def simulate(
    method: Method,
    hessian: Array,
    displacement: Array,
    n_steps: int,
    *,
    noise_scale: float,
    averages: list[Average],
    rng: np.random.Generator,
    n_runs: int,
    n_restarts: int = 1,
) -> Array:
    """Excess f - f* of each average in independent runs, (n_averages, n_runs).

    Parameters
    ----------
    method : Method
        A sampling that lists its sets, M and one Lipschitz bound per set.
    hessian, displacement : array (d,)
        h and w⁰ - w*.
    n_steps, n_restarts : int
        K and T; a restart starts from the first average.
    noise_scale : float
        ν: the noise of a set S has standard deviation ν L_S √(KT).
    averages : list of callable K -> weights of θ_1, …, θ_K
        What is missing to one is the weight of θ_0.
    rng : Generator
        Sets and noise.
    n_runs : int
        How many runs.
    """
    sets, law = method.sampling.support, method.sampling.set_probabilities
    assert sets is not None
    assert law is not None
    sizes = [len(each) for each in sets]
    members = np.concatenate(sets)
    stds = noise_scale * np.sqrt(n_steps * n_restarts) * method.lipschitz
    shares = np.array([average(n_steps) for average in averages])
    errors = _run(
        rng,
        np.ascontiguousarray(displacement, dtype=np.float64),  # or it compiles anew
        hessian / method.smoothness,
        np.repeat(stds, sizes) / method.smoothness[members],
        np.cumsum([0, *sizes]),
        members,
        np.append(np.cumsum(law)[:-1], 1.0),
        np.cumsum(shares[:, ::-1], axis=1)[:, ::-1].copy(),
        n_restarts,
        n_runs,
    )
    return np.asarray(0.5 * np.square(errors) @ hessian).T


@dataclass(frozen=True, kw_only=True)
class Program:
    """Records whose mean loss is ½ Σ_j h_j (w_j - w*_j)², and a run on them.

    A record is a unit vector e_j with target w*_j, or zero; n·h_j of them, rounded,
    have j. Rows are bounded by a joint norm of one and slopes by one: L_S = 1 for every
    S. The loss is quadratic as long as no |w_j - w*_j| passes one.
    """

    records: Records
    hessian: Array
    displacement: Array

    @classmethod
    def of(cls, hessian: Array, displacement: Array, n_rows: int) -> "Program":
        """Make the records of h ≥ 0, Σ h ≤ 1, and |w⁰ - w*| < 1, w⁰ = 0."""
        counts = np.rint(n_rows * hessian).astype(int)
        assert counts.sum() <= n_rows
        d = len(hessian)
        kind = np.repeat([*range(d), d], [*counts, n_rows - counts.sum()])
        cells = np.eye(d + 1, d)[kind]
        target = np.append(-displacement, 0.0)[kind]
        schema = Schema(
            {"x": Vector([f"x{j}" for j in range(d)])}, target=Numeric(-1.0, 1.0)
        )
        batch = Batch(columns={"x": cells}, target=target)
        records = encode([batch], schema, intercept=False)
        return cls(records=records, hessian=counts / n_rows, displacement=displacement)

    def measure(
        self,
        method: Method,
        n_steps: int,
        *,
        epsilon: float,
        delta: float,
        average: Average,
        seed: int,
        n_restarts: int = 1,
    ) -> tuple[float, float]:
        """Excess f - f* of the weights that a run releases, under zero-out.

        Also return the largest part of the steps that a record takes part in. The
        noise is its root times that of `simulate` (Theorem V).
        """
        plan = Plan(
            layout=self.records.layout,
            loss=Squared(slope_bound=1.0),
            n_rows=len(self.records.chunks[0].target),
            epsilon=epsilon,
            delta=delta,
            sampling=method.sampling,
            geometry=Diagonal(smoothness=method.smoothness),
            n_steps=n_steps,
            n_restarts=n_restarts,
            average=average,
            neighbours="zero-out",
        )
        fit = run(plan, self.records, engine=ENGINE, random_state=seed)
        away = fit.weights[:, 0] + self.displacement
        presence = sum(visits.presence for visits in fit.record.visits) or 1.0
        return float(0.5 * np.square(away) @ self.hessian), presence

    def svrg_excess(self, *, epsilon: float, delta: float, seed: int) -> float:
        """Excess f - f* of DP-SVRG with its defaults, under zero-out."""
        problem = Problem(
            records=self.records,
            loss=Squared(slope_bound=1.0),
            n_rows=len(self.records.chunks[0].target),
            neighbours="zero-out",
        )
        budget = {"epsilon": epsilon, "delta": delta, "random_state": seed}
        weights = dp_svrg(problem, engine=ENGINE, **budget).weights[:, 0]
        return float(0.5 * np.square(weights + self.displacement) @ self.hessian)
