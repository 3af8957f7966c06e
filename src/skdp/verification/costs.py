"""Read what a saved model claims, and compute the cost of its releases again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from skdp.descent.plan_files import plan_summary
from skdp.descent.rule import make_penalty
from skdp.estimators import saving
from skdp.estimators.saving import (
    RecordForm,
    ReleaseForm,
    SearchForm,
    list_parameters,
    make_model,
    make_unrecorded,
    model_digest,
    read_saved,
    saved_digest,
)
from skdp.ledger import released_digest
from skdp.models.losses import Loss
from skdp.models.penalties import ElasticNet
from skdp.privacy.look import Profile
from skdp.privacy.queries import Kind
from skdp.schema import FloatArray, Layout, Schema, check, count_in_words

# ---- Read the facts that verification uses: a model's public facts and its privacy
# record
#
# Bounds on records are computed from the schema's groups and the parameters. This code
# is independent of the code that makes the queries.


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """A model's public facts and its privacy record.

    Attributes
    ----------
    parameters, plan : dict
        The parameters and the plan of the model, as they are saved.
    record : RecordForm
        The privacy record, as it is saved.
    n_iter : int
        The number of steps that the model reports.
    schema : Schema
        The schema of the fit.
    layout : Layout
        The coordinates of an encoded row.
    loss : Loss
        The loss that the parameters and the schema imply.
    digest : callable
        A function that returns the digest of this model's releases. A ledger's entry
        that paid for the model has the same digest.
    profile : Profile or None
        What a look found, if there was one.
    """

    parameters: dict[str, Any]
    plan: dict[str, Any]
    record: RecordForm
    n_iter: int
    schema: Schema
    layout: Layout
    loss: Loss
    digest: Callable[[], str]
    profile: Profile | None

    @property
    def limits(self) -> Schema:
        """The schema before a look, if there was one, and else that of the fit."""
        return self.schema if self.profile is None else self.profile.limits

    @property
    def releases(self) -> list[ReleaseForm]:
        """The releases of the record, each with the number of times it was made."""
        return self.record.releases

    @property
    def search(self) -> SearchForm | None:
        """The search that chose the model, if any."""
        return self.record.search

    @property
    def apart(self) -> float:
        """The number of records in which neighbouring tables differ.

        It is 2 for replace-one, because one record is removed and another is added.
        """
        return 2.0 if self.record.neighbours == "replace-one" else 1.0

    @property
    def weight(self) -> float:
        """Bound on a record's weight."""
        return float(self.parameters.get("max_weight", 1.0))

    @property
    def slope(self) -> float:
        """Bound on a record's slope times its weight."""
        return self.loss.slope_bound * self.weight

    @property
    def intercept(self) -> bool:
        """Whether encoded rows have an intercept coordinate."""
        return any(group.kind == "ones" for group in self.layout.groups)

    def reach(self, scale: Any = None, at: Any = None) -> float:
        """Return a bound on Σ scaleⱼ xⱼ² over the coordinates `at`, for every row x.

        By default every scale is one and `at` contains all coordinates. In each column
        a row has norm at most one. Over all columns together its norm is at most the
        schema's row norm. The intercept is one and is not part of the row norm.
        """
        wanted = set(range(self.layout.n_features) if at is None else at)
        parts, constant = [], 0.0
        for group in self.layout.groups:
            inside = [j for j in group.coordinates.tolist() if j in wanted]
            most = max([1.0 if scale is None else scale[j] for j in inside], default=0)
            if group.kind == "ones":
                constant += most
            else:
                parts.append(most)
        total = math.fsum(parts)
        if self.layout.row_norm is not None and parts:
            total = min(total, self.layout.row_norm**2 * max(parts))
        return total + constant

    @property
    def single(self) -> float:
        """The largest possible |xⱼ| of a coordinate other than the intercept."""
        return min(1.0, self.layout.row_norm or 1.0)

    @property
    def penalty(self) -> ElasticNet:
        """The penalty that follows from the parameters."""
        return make_penalty(
            self.layout,
            self.loss,
            self.parameters.get("alpha", "auto"),
            self.parameters.get("l1_ratio", 0.0),
            float(self.record.epsilon),
        )

    def quadratic(self) -> list[float]:
        """Return the quadratic penalty on each coordinate, times the number of rows n.

        The penalty includes the ridge term that the solver adds.
        """
        net = self.penalty
        n, own = self.number("n_rows"), self.number("ridge")
        return [n * (net.l2 * on + own) for on in self.layout.penalised.tolist()]

    def number(self, name: str) -> float:
        """Return a number from the plan, or raise ValueError if there is none."""
        value = self.plan.get(name)
        right = isinstance(value, (int, float)) and not isinstance(value, bool)
        check(
            right and 0 <= float(value or 0) < 1e100,
            f"The plan in model.json was changed: it has no number {name!r}.",
        )
        return float(value or 0)


def read_given(model: Any) -> Given:
    """Return the facts of a saved model's directory or of a fitted estimator."""
    if isinstance(model, (str, PathLike)):
        return _read_directory(Path(model))
    model = getattr(model, "best_estimator_", model)
    check(
        hasattr(model, "privacy_") and hasattr(model, "plan_"),
        "verify takes a saved model's directory, a fitted estimator or an evaluation, "
        f"got {type(model).__name__}.",
    )
    parameters, _ = list_parameters(model)
    plan = plan_summary(model.plan_)
    return Given(
        parameters=parameters,
        plan=plan,
        record=saving.make_record_form(model.privacy_, plan),
        n_iter=model.n_iter_,
        schema=model.schema_,
        layout=model._layout,
        loss=model._loss(model.schema_),
        digest=lambda: model_digest(model),
        profile=model.profile_,
    )


def _read_directory(source: Path) -> Given:
    saved = read_saved(source)
    about, record, schema = saved.about, saved.record, saved.schema
    model = make_unrecorded(saved)  # refuses what does not fit together

    def digest() -> str:
        make_model(saved)  # what cannot be loaded is not a model that was paid for
        return saved_digest(saved)

    return Given(
        parameters=about.parameters,
        plan=about.plan,
        record=record,
        n_iter=about.n_iter,
        schema=schema,
        layout=model._layout,
        loss=model._loss(schema),
        digest=digest,
        profile=model.profile_,
    )


def read_evaluation(found: Any) -> tuple[RecordForm, str]:
    """Return the privacy record of an evaluation, and the digest of its releases."""
    record = found.privacy_
    return saving.make_record_form(record, {}), released_digest(record)


# ---- Recompute the cost of runs with releases that are not Gaussian
#
# Such a run is charged as a pair (μ, δ₀). For all ε ≥ 0, its δ(ε) must be at most δ₀
# plus the δ(ε) of μ-GDP (Gaussian differential privacy). This module recomputes the
# run's δ(ε) at several ε and compares it with this bound.


#: Limits on the largest ratio of a recomputed curve to the charged curve. Solvers
#: choose the noise so that the curves touch, so the ratio should be about 1 (observed:
#: .917 to .996). It may exceed 1 by at most ABOVE, because the two curves are rounded
#: up on different grids. It may fall short of 1 by at most BELOW.
ABOVE, BELOW = 0.05, 0.2
#: Number of points at which curves are compared, and the smallest δ of such a point.
POINTS, LEAST = 24, 1e-11
#: Slopes are read from tables. The curvature of a table may exceed that of the loss by
#: this factor.
STEEPER = 1.01
#: Relative rounding error of a float64.
U = 2.0**-53

Found = tuple[bool | None, str]


def recompute_delta(epsilon: FloatArray, mu: float) -> FloatArray:
    """Return δ(ε) of μ-GDP for many ε at once."""
    low = log_ndtr(-epsilon / mu - mu / 2) + epsilon
    return np.asarray(ndtr(-epsilon / mu + mu / 2) - np.exp(low))


def _choose_epsilons(mu: float) -> FloatArray:
    """Return values of ε at which δ(ε) of μ-GDP is not negligible."""
    ends = np.linspace(0.0, mu * (7.0 + mu), 1000)
    kept = ends[recompute_delta(ends, mu) > LEAST]
    return np.linspace(0.0, kept[-1] if len(kept) else 0.0, POINTS)


def check_batches(given: Given) -> Found:
    """Check the charge for Poisson batches with dp-accounting.

    Replacing a record means removing one and adding another. If the steps cost (μ, δ₀)
    when a record is removed, and as much when one is added, they cost
    (2μ, δ₀ + F(δ₀)) when one is replaced, with F(x) = Φ(Φ⁻¹(x) + μ).
    """
    charge = next(r for r in given.releases if r.kind == Kind.BATCHES)
    rate, z = given.number("rate"), given.number("noise_multiplier")
    steps = int(given.number("n_steps")) if "n_steps" in given.plan else 0
    if "n_epochs" in given.plan:
        epochs, inner = given.number("n_epochs"), given.number("n_inner")
        steps = int(epochs * (inner - 1))
    many = count_in_words(steps, "batch", "batches")
    said = f"{many} of rate {rate:.6g} with noise multiplier {z:.6g}"
    mu, delta = 1.0 / charge.noise_multiplier, float(charge.delta)
    if not (0 < rate <= 1 and z > 0 and 0 < steps < 1e7):
        return False, f"{said}: these settings are not valid"
    if given.apart == 2:
        mu, delta = mu / 2, _solve_one_way(mu / 2, delta)
    if rate == 1:
        exact = math.sqrt(steps) / z
        return exact <= mu * (1 + 1e-9), f"{said}: the cost is {exact:.6g}-GDP"
    try:
        dp = import_module("dp_accounting")
    except ModuleNotFoundError:
        return None, "dp-accounting is not installed: pip install 'skdp[verify]'"
    account = dp.pld.PLDAccountant(dp.NeighboringRelation.ADD_OR_REMOVE_ONE)
    drawn = dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(z))
    account.compose(dp.SelfComposedDpEvent(drawn, steps))
    epsilons = _choose_epsilons(mu)
    curve = np.array([account.get_delta(float(e)) for e in epsilons])
    return _compare(curve, recompute_delta(epsilons, mu) + delta, said)


def _solve_one_way(mu: float, delta: float) -> float:
    """Return the largest δ₀ with δ₀ + Φ(Φ⁻¹(δ₀) + μ) ≤ δ."""
    low, high = 0.0, delta
    for _ in range(80):
        middle = (low + high) / 2
        fits = middle + float(ndtr(ndtri(middle) + mu)) <= delta
        low, high = (middle, high) if fits else (low, middle)
    return low


def check_tilt(given: Given) -> Found:
    """Check the charge for objective perturbation's tilt, the random linear term.

    Let σ be the standard deviation of the tilt, let g be the bound on a record's
    gradient, and let m = g/σ. Let κ be the bound on a record's curvature divided by the
    curvature of the quadratic term, and let φ be the normal density. Then δ(ε) is at
    most

        (1/κ') ∫₀ᵐ max_t [(1+κ') φ(t+s) - e^ε φ(t)] ds   for every κ' ≥ κ,

    and also at most the δ of m-GDP at ε - log(1+κ). If slopes have both signs, both
    bounds are doubled. The proof is in `skdp.privacy.profiles`.
    """
    charge = next(r for r in given.releases if r.kind == Kind.TILT)
    std = given.number("noise_std")
    said = f"a tilt of standard deviation {std:.6g}"
    if not std > 0:
        return False, f"{said} protects nothing"
    signs = 1 if given.loss.one_sign else 2
    m = given.slope * math.sqrt(given.reach()) / std
    target = 1.0 / charge.noise_multiplier / given.apart
    bend = STEEPER * given.loss.curvature * given.weight
    kappa = bend * given.reach([1.0 / q for q in given.quadratic()])
    epsilons = _choose_epsilons(target)
    curve = np.full(POINTS, np.inf)
    shifted = epsilons - math.log1p(kappa)
    far = shifted >= (0.0 if signs == 1 else m * m / 2)
    curve[far] = signs * recompute_delta(shifted[far], m)
    for larger in kappa * np.geomspace(1.0, max(1.0, 8 * m / kappa), 6):
        curve = np.minimum(curve, signs * _integrate(epsilons, m, float(larger)))
    return _compare(curve, recompute_delta(epsilons, target), said)


def _integrate(epsilons: FloatArray, m: float, kappa: float) -> FloatArray:
    """Return (1/κ) ∫₀ᵐ max_t [(1+κ) φ(t+s) - e^ε φ(t)] ds, by the trapezoidal rule."""
    s = np.linspace(0.0, m, 121)[:, None]
    t = np.linspace(-12.0, 4.0, 1601)[None, :]
    ahead = (1 + kappa) * np.exp(-((t + s) ** 2) / 2) / math.sqrt(2 * math.pi)
    behind = np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi)
    found = []
    for epsilon in epsilons.tolist():
        peak = np.maximum((ahead - math.exp(epsilon) * behind).max(axis=1), 0.0)
        area = float(peak.sum() - (peak[0] + peak[-1]) / 2) * m / (len(peak) - 1)
        found.append(area / kappa)
    return np.array(found)


def _compare(curve: FloatArray, charged: FloatArray, said: str) -> Found:
    """Compare a recomputed curve with the charged one, and describe the result."""
    ratio = float((curve / charged).max())
    right = 1 - BELOW <= ratio <= 1 + ABOVE
    return right, f"{said}: δ(ε) is at most {ratio:.3g} times what was charged"


def bound_solver_error(given: Given) -> float:
    """Bound the distance between computed solutions with the same exact minimiser.

    Two neighbouring tables, with different tilts, may have the same exact minimiser.
    The computed solutions then differ only by rounding. This function recomputes the
    bounds of `skdp.solvers.certified`.
    """
    quadratic, n = given.quadratic(), int(given.number("n_rows"))
    full = max(2**24, 4 * n) if given.record.neighbours == "add-remove" else n
    most = 2 * full if full > n else n
    d, reach = len(quadratic), math.sqrt(given.reach([1.0 / q for q in quadratic]))
    cells = sum(group.n_entries for group in given.layout.groups)
    summed = (4096 + most / 2048 + 4) * given.slope
    fixed = 2 * most * reach * (512 * (given.weight + given.slope) + summed) * U
    bend = 1.01 * given.loss.curvature * given.weight * (cells + 4) * reach
    growth = (2 * most * reach * bend + 32) * U
    floor, std = math.sqrt(min(quadratic)), given.number("noise_std")
    pull = std * (1 + 2.0**-8) * (math.sqrt(d) + 8) / floor
    start = 1.01 * most * given.weight * max(1.0, given.loss.slope_bound)
    radius = 2 * pull + math.sqrt(2 * start)
    found = 2 * 4.1 * (1.01 * fixed + 2 * growth * radius) + 16 * U * radius
    found += radius / full if most > full else 0.0
    return found + 2 * math.sqrt(d) * (std * 2.0**-35 / floor + 2.0**-31)
