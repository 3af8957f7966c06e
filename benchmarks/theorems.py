"""Try to break Theorems D, E and F by random search, and measure how tight B is.

Each of 10,000 problems per theorem has up to five coordinates, a convex function with a
known minimiser (a sum of quadratic and Huber functions of linear forms, and a linear
tilt), a sampling, the largest steps that the theorem allows or shorter ones, a penalty,
a start, noise or none, and up to 40 steps. The mean of F(θ_k) over the steps is
estimated by independent runs and compared with the theorem's bound. The value at the
average of the iterates is at most that mean.

Command: ``make bench NAME=theorems``, or ``python benchmarks/theorems.py``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skdp.descent.bounds import distance_squared
from skdp.descent.eso_bounds import eso_weighted_bound
from skdp.descent.samplings import (
    Blocks,
    ExplicitSets,
    Full,
    Independent,
    Nice,
    Sampling,
    SingleCoordinate,
)
from skdp.descent.smoothness import from_hessian

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from experiments.theory.rates import (
    composite_bound,
    eso_bound,
    matrix_distance_squared,
)

Array = NDArray[np.float64]
N_RUNS = 40
#: A mean above its bound by this many standard errors breaks a theorem.
ERRORS = 5.0


@dataclass(frozen=True)
class Smooth:
    """f(w) = Σ_i φ_i(a_i·w) + tilt·w, with f'' ⪯ Σ_i a_i a_iᵀ."""

    rows: Array
    widths: Array
    tilt: Array

    def value(self, w: Array) -> Array:
        """Return f at weights (..., d). A Huber function of infinite width is ½m²."""
        m = np.abs(w @ self.rows.T)
        with np.errstate(invalid="ignore"):
            far = self.widths * (m - self.widths / 2)
        return np.where(m <= self.widths, m**2 / 2, far).sum(-1) + w @ self.tilt

    def gradient(self, w: Array) -> Array:
        """Gradients at weights (..., d)."""
        slopes = np.clip(w @ self.rows.T, -self.widths, self.widths)
        return slopes @ self.rows + self.tilt

    @property
    def hessian(self) -> Array:
        """H with f'' ⪯ H."""
        return self.rows.T @ self.rows

    @property
    def least(self) -> Array:
        """The part of the Hessian that is there everywhere."""
        rows = self.rows[np.isinf(self.widths)]
        return rows.T @ rows


@dataclass(frozen=True)
class Separable:
    """ψ = Σ_j l1_j |w_j| + ½ l2_j w_j² on low ≤ w ≤ high."""

    l1: Array
    l2: Array
    low: Array
    high: Array

    def value(self, w: Array) -> Array:
        """ψ at weights in the box."""
        return (self.l1 * np.abs(w) + self.l2 / 2 * w**2).sum(-1)

    def prox(self, w: Array, metric: Array) -> Array:
        """The proximal map in a diagonal metric."""
        kept = np.maximum(np.abs(w) - self.l1 / metric, 0.0)
        shrunk = np.copysign(kept, w) / (1 + self.l2 / metric)
        return np.clip(shrunk, self.low, self.high)

    def subgradient(self, w: Array, rng: np.random.Generator) -> Array:
        """One subgradient at w, an extreme one as often as not."""
        free = rng.choice([-1.0, 1.0, 0.0, rng.uniform(-1, 1)], len(w))
        slope = self.l1 * np.where(w == 0, free, np.sign(w)) + self.l2 * w
        push = rng.exponential(1.0, len(w)) * rng.choice([0.0, 1.0], len(w))
        return slope + push * (w == self.high) - push * (w == self.low)


@dataclass(frozen=True)
class Problem:
    """What Algorithm 1 is run on, with the facts of the theorems."""

    smooth: Smooth
    sampling: Sampling
    root: Array  # M^(-½), block-diagonal
    stds: Array  # of the noise, in the metric of each set
    start: Array
    goal: Array
    prox: Callable[[Array], Array]
    penalty: Callable[[Array], Array]
    n_steps: int

    def run(self, rng: np.random.Generator, n_runs: int) -> Array:
        """F(θ_k) - F*, shape (n_runs, K + 1)."""
        d = len(self.goal)
        member = np.zeros((len(self.stds), d))
        for i, chosen in enumerate(self.sampling.support or ()):
            member[i, chosen] = 1.0
        law, least = self.sampling.set_probabilities, self.total(self.goal)
        theta = np.tile(self.start, (n_runs, 1))
        found = [self.total(theta) - least]
        for _ in range(self.n_steps):
            drawn = rng.choice(len(member), n_runs, p=law)
            push = rng.standard_normal((n_runs, d)) * self.stds[drawn][:, None]
            step = (self.smooth.gradient(theta) @ self.root + push) @ self.root
            theta = np.where(member[drawn] > 0, self.prox(theta - step), theta)
            found.append(self.total(theta) - least)
        return np.stack(found, axis=1)

    def total(self, w: Array) -> Array:
        """F = f + ψ."""
        return self.smooth.value(w) + self.penalty(w)

    @property
    def noises(self) -> tuple[float, float]:
        """N1 and N2."""
        p, sets = self.sampling.probabilities, self.sampling.support or ()
        law = self.sampling.set_probabilities
        assert law is not None
        parts = [(q * s**2, c) for q, s, c in zip(law, self.stds, sets, strict=True)]
        first = sum(size * float((1 / p[chosen]).sum()) for size, chosen in parts)
        return first, sum(size * len(chosen) for size, chosen in parts)


def draw_smooth(rng: np.random.Generator, d: int) -> tuple[Array, Array]:
    """Linear forms and the widths of their Huber functions."""
    n = int(rng.integers(1, d + 3))
    rows = rng.standard_normal((n, d)) * np.exp(rng.uniform(-2, 1, (n, 1)))
    if rng.random() < 0.4:  # one form of all coordinates: where blocks are worst
        rows[0] = np.exp(rng.uniform(0, 2)) * rng.uniform(0.5, 1.0, d)
    if rng.random() < 0.5:
        rows = np.vstack([rows, np.diag(np.exp(rng.uniform(-4, 0, d)))])
    widths = np.where(
        rng.random(len(rows)) < 0.5, np.inf, np.exp(rng.uniform(-5, 1, len(rows)))
    )
    return rows, widths


def draw_sampling(rng: np.random.Generator, d: int, partition: bool) -> Sampling:
    """Any sampling, or a partition into blocks."""
    kinds = ["full", "single", "blocks"]
    kinds += [] if partition else ["nice", "independent", "explicit"]
    kind = rng.choice(kinds)
    if kind == "full":
        return Full(d)
    if kind == "single":
        return SingleCoordinate(draw_law(rng, d))
    if kind == "nice":
        return Nice(d, int(rng.integers(1, d + 1)))
    if kind == "independent":
        return Independent(rng.uniform(0.1, 1.0, d))
    label = rng.integers(0, d, d)
    blocks: list[Any] = [np.flatnonzero(label == i) for i in np.unique(label)]
    if kind == "explicit":
        blocks.append(np.arange(d))
        return ExplicitSets(blocks, draw_law(rng, len(blocks)), d)
    return Blocks(blocks, draw_law(rng, len(blocks)))


def draw_law(rng: np.random.Generator, n: int) -> Array:
    """Uniform probabilities, or skewed ones."""
    weights = np.ones(n) if rng.random() < 0.5 else np.exp(rng.uniform(0, 2, n))
    return weights / weights.sum()


def draw_problem(rng: np.random.Generator, theorem: str) -> tuple[Problem, float]:
    """A problem, and for Theorem E the modulus ρ (else 0)."""
    d = int(rng.integers(1, 6))
    rows, widths = draw_smooth(rng, d)
    if theorem == "E":
        ridge = np.diag(np.exp(rng.uniform(-2, 1, d)))
        rows = np.vstack([rows, ridge])
        widths = np.append(widths, np.full(d, np.inf))
    hessian = rows.T @ rows
    sampling = draw_sampling(rng, d, partition=theorem == "F")
    longer = 1.0 if rng.random() < 0.6 else float(np.exp(rng.uniform(0, 2)))
    goal = rng.standard_normal(d) * rng.choice([0.0, 1.0, 1.0], d)
    if theorem == "F":
        metric, prox, penalty, slope = draw_blocks(rng, sampling, hessian, goal, longer)
    else:
        m = longer * from_hessian(sampling, hessian)
        metric = np.diag(m)
        psi = draw_separable(rng, d, goal)
        slope = psi.subgradient(goal, rng)
        prox, penalty = (lambda w: psi.prox(w, m)), psi.value
    bare = Smooth(rows, widths, np.zeros(d))
    smooth = Smooth(rows, widths, -bare.gradient(goal) - slope)
    values, vectors = np.linalg.eigh(metric)
    root = (vectors / np.sqrt(values)) @ vectors.T
    away = rng.standard_normal(d) * np.exp(rng.uniform(-2, 2))
    away *= rng.choice([0.0, 1.0], d) * (rng.random() < 0.7)
    start = prox(goal + away) if away.any() else goal.copy()
    sets = len(sampling.support or ())
    loud = rng.choice([0.0, 1.0]) * np.exp(rng.uniform(-4, 2))
    problem = Problem(
        smooth,
        sampling,
        root,
        loud * np.exp(rng.uniform(-0.5, 0.5, sets)),
        start,
        goal,
        prox,
        penalty,
        int(rng.integers(1, 41)),
    )
    p = sampling.probabilities
    scaled = np.sqrt(p)[:, None] * (root @ smooth.least @ root) * np.sqrt(p)
    modulus = float(np.linalg.eigvalsh(scaled)[0]) if theorem == "E" else 0.0
    return problem, min(modulus, 0.98 * float(p.min()))


def draw_separable(rng: np.random.Generator, d: int, goal: Array) -> Separable:
    """A penalty, of which the goal is a feasible point, often at a kink."""
    kind = rng.choice(["none", "l1", "ridge", "box", "all"])
    strong = np.exp(rng.uniform(-3, 1, d))
    l1 = strong if kind in ("l1", "all") else np.zeros(d)
    l2 = strong[::-1] if kind in ("ridge", "all") else np.zeros(d)
    low, high = np.full(d, -np.inf), np.full(d, np.inf)
    if kind in ("box", "all"):
        low = np.where(rng.random(d) < 0.5, goal, goal - 1.0)
        high = np.where(rng.random(d) < 0.3, goal, goal + 1.0)
    return Separable(l1, l2, low, high)


def draw_blocks(
    rng: np.random.Generator,
    sampling: Sampling,
    hessian: Array,
    goal: Array,
    longer: float,
) -> tuple[Array, Callable[[Array], Array], Callable[[Array], Array], Array]:
    """Matrices M_B ⪰ H_BB, and ψ = Σ_B λ_B ‖w_B‖ in their norms, with a subgradient."""
    d = len(goal)
    metric, roots = np.zeros((d, d)), []
    strength = np.exp(rng.uniform(-3, 1)) * rng.choice([0.0, 1.0])
    slope = np.zeros(d)
    for block in sampling.support or ():
        at = np.ix_(block, block)
        extra = rng.standard_normal((len(block), len(block)))
        part = longer * hessian[at] + 1e-6 * np.eye(len(block))
        part = part + rng.choice([0.0, 0.3]) * extra @ extra.T
        metric[at] = part
        roots.append((block, part))
        norm = float(np.sqrt(goal[block] @ part @ goal[block]))
        if norm > 0:
            slope[block] = strength * part @ goal[block] / norm

    def prox(w: Array) -> Array:
        result = w.copy()
        for block, part in roots:
            norm = np.sqrt(
                np.einsum("...i,ij,...j", w[..., block], part, w[..., block])
            )
            kept = np.maximum(1 - strength / np.maximum(norm, 1e-300), 0.0)
            result[..., block] = w[..., block] * np.asarray(kept)[..., None]
        return result

    def penalty(w: Array) -> Array:
        norms = [
            np.sqrt(np.einsum("...i,ij,...j", w[..., block], part, w[..., block]))
            for block, part in roots
        ]
        return strength * np.sum(norms, axis=0)

    return metric, prox, penalty, slope


def bound_of(theorem: str, problem: Problem, rho: float, start: bool) -> float:
    """The theorem's bound on the (weighted) mean of F(θ_k) - F*."""
    sampling, noises = problem.sampling, problem.noises
    away = problem.start - problem.goal
    metric = np.linalg.inv(problem.root @ problem.root)
    if theorem == "F":
        sets = sampling.support or ()
        parts = [metric[np.ix_(block, block)] for block in sets]
        law = sampling.set_probabilities
        assert law is not None
        distance = matrix_distance_squared(parts, sets, law, away)
    else:
        distance = distance_squared(np.diag(metric), sampling.probabilities, away)
    facts = {
        "distance_squared": distance,
        "excess": float(problem.total(problem.start) - problem.total(problem.goal)),
        "step_noise": noises[1],
        "smallest_probability": float(sampling.probabilities.min()),
        "include_start": start,
    }
    if theorem == "B":
        return eso_bound(problem.n_steps, noise=noises[0], **facts)
    if theorem == "E":
        more = {"noise": noises[0], "decay": rho, "composite": True}
        return eso_weighted_bound(problem.n_steps, **facts, **more)
    return composite_bound(problem.n_steps, **facts)


def ratio_of(
    theorem: str, problem: Problem, rho: float, rng: np.random.Generator, n_runs: int
) -> tuple[float, float]:
    """Largest mean over its bound, and the same less some standard errors."""
    values = problem.run(rng, n_runs)
    powers = (1 - rho) ** -np.arange(problem.n_steps + 1.0)
    found = []
    for start in (True, False):
        part = slice(0, -1) if start else slice(1, None)
        weights = powers[part] / powers[part].sum()
        runs = values[:, part] @ weights
        bound = bound_of(theorem, problem, rho, start)
        error = float(runs.std()) / np.sqrt(n_runs)
        slack = 1e-7 * (1 + float(np.abs(values[:, 0]).max()))
        mean = float(runs.mean())
        if bound > slack:
            found.append((mean / bound, (mean - ERRORS * error - slack) / bound))
    return max(found, default=(0.0, 0.0))


def search(theorem: str, n_problems: int, seed: int = 0) -> dict[str, float]:
    """Median and worst ratios, and the worst by the noise alone, from the minimiser."""
    raw, sure, noise = [], [], [0.0]
    for number in range(n_problems):
        rng = np.random.default_rng([seed, ord(theorem), number])
        problem, rho = draw_problem(rng, theorem)
        ratio = ratio_of(theorem, problem, rho, rng, N_RUNS)
        at_goal = bool(np.array_equal(problem.start, problem.goal))
        if ratio[0] > (0.5 if at_goal else 0.9):  # by chance? look again, longer
            ratio = ratio_of(theorem, problem, rho, rng, 40 * N_RUNS)
        raw.append(ratio[0])
        sure.append(ratio[1])
        noise += [ratio[0]] * at_goal
    return {
        "median": float(np.median(raw)),
        "worst": float(max(raw)),
        "worst beyond chance": float(max(sure)),
        "worst of the noise": float(max(noise)),
    }


def tightness(d: int, n_steps: int, n_runs: int = 40, slope: float = 0.03) -> float:
    """Mean of f(θ_k) over Theorem B's bound, for f that it is tight for.

    f is ½(1ᵀw)² plus a small Huber function of each coordinate. Steps move single
    coordinates, from the minimum, with noise of standard deviation 1. The ratio tends
    to 1 - 1/(2d) if the Huber functions are small and the run is long.
    """
    rng = np.random.default_rng(d)
    width = 1.0
    theta, total = np.zeros((n_runs, d)), 0.0
    curve = 1.0 + slope / width
    runs = np.arange(n_runs)
    for _ in range(n_steps):
        tail = np.abs(theta)
        huber = np.where(tail < width, tail**2 / (2 * width), tail - width / 2)
        total += float((theta.sum(1) ** 2 / 2 + slope * huber.sum(1)).mean())
        j = rng.integers(0, d, n_runs)
        pull = slope * np.clip(theta[runs, j] / width, -1, 1)
        noisy = theta.sum(1) + pull + rng.standard_normal(n_runs)
        theta[runs, j] -= noisy / curve
    return total / n_steps / (d / curve)


def main() -> None:
    """Print the worst ratios."""
    parser = argparse.ArgumentParser(description="Try to break the theorems.")
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--only", default="DEFB", help="letters of the theorems")
    asked = parser.parse_args()
    broken = False
    for theorem in (each for each in "DEF" if each in asked.only):
        found = search(theorem, asked.problems)
        broken |= found["worst beyond chance"] > 1
        if theorem == "D" or asked.only[:1] == theorem:
            print("| theorem | problems | " + " | ".join(found) + " |")
            print("|---" * (2 + len(found)) + "|")
        shown = " | ".join(f"{ratio:.3f}" for ratio in found.values())
        print(f"| {theorem} | {asked.problems:,} | {shown} |", flush=True)
    if "B" in asked.only:
        print(
            "\n| d | mean f(θ_k) over Theorem B's bound | 1 − 1/(2d) |\n|---|---|---|"
        )
        for d in (2, 4, 8):
            ratio = tightness(d, 40_000 * d)
            print(f"| {d} | {ratio:.3f} | {1 - 1 / (2 * d):.3f} |", flush=True)
    raise SystemExit(1 if broken else 0)


if __name__ == "__main__":
    main()
