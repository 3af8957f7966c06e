"""Compute the standard errors of a fitted model in the user's units.

The mathematics is in `skdp.inference`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from msgspec import Meta, structs

from skdp.descent.plan import Plan
from skdp.estimators.predict import centre_categories, convert_to_user_units
from skdp.estimators.weights import make_weighting
from skdp.inference import covariances
from skdp.inference.covariances import Uncertainty
from skdp.inference.variances import Z
from skdp.schema import FloatArray, Layout, Pair, check
from skdp.typed_files import Form

#: In models with more coefficients than this, the coefficients of pairs have no
#: standard errors.
MOST_WITH_PAIRS = 250
#: Largest number of coefficients for which standard errors are computed. This many take
#: about 20 seconds, and the time grows with the cube of their number.
MOST_COORDINATES = 1500
#: Largest difference of saved effects from those of the weights, relative to the
#: largest effect. Other versions of numpy may add up in another order.
EFFECTS_CLOSE = 1e-9
#: A standard error in a file; null stands for infinity.
Std = Annotated[float, Meta(ge=0)] | None
#: The reason why a loaded or selected model may have no standard errors.
NOT_KEPT = "The released values from which standard errors are computed were not kept."


@dataclass(frozen=True, kw_only=True, eq=False)
class StandardErrors:
    """The standard errors of all coefficients.

    Each array has shape (width + 1, k), with the intercept last. k is the number of
    classes if there are three or more, and 1 otherwise.

    Attributes
    ----------
    noise_std, std : float64
        Standard errors of ``coef_`` and ``intercept_``: the part due to privacy, and
        the total. The total is infinite where noise hides the effect. Both are infinite
        where they were not computed.
    effects : float64
        The coefficients after centring. Centring makes the coefficients of categories
        relative to the mean of their column, and adds this mean to the intercept.
    effects_noise_std, effects_sampling_std : float64
        The standard deviations of `effects` due to privacy and due to sampling.
    effects_std : float64
        The standard errors of `effects`. They cover privacy, sampling, shrinkage and
        the bias from capped slopes.
    """

    noise_std: FloatArray
    std: FloatArray
    effects: FloatArray
    effects_noise_std: FloatArray
    effects_sampling_std: FloatArray
    effects_std: FloatArray


class ErrorsForm(Form, frozen=True, kw_only=True):
    """`StandardErrors` as they are stored in a file, where null stands for infinity.

    Each array is stored as a list, row by row.
    """

    noise_std: list[Std]
    std: list[Std]
    effects: list[float]
    effects_noise_std: list[Std]
    effects_sampling_std: list[Std]
    effects_std: list[Std]


def find_uncertainty(model: Any) -> Uncertainty | str:
    """Return the uncertainty of the weights of a model that was just fitted.

    Return the reason why it is not known for other models.
    """
    plan, transcript = model.plan_, model.privacy_.transcript
    if not isinstance(plan, Plan):
        if isinstance(plan, dict) and "solver" in plan:
            return "Standard errors are available only for solver='skgd'."
        return NOT_KEPT
    reason = covariances.find_obstacle(plan)
    if reason is not None:
        return reason
    if model.weights_.size > MOST_COORDINATES:
        return (
            "Standard errors are computed for at most "
            f"{MOST_COORDINATES:,} coefficients, got {model.weights_.size:,}."
        )
    if len(transcript) < plan.n_steps + 1:
        return NOT_KEPT
    weighting = make_weighting(model)
    if isinstance(weighting, str):
        return weighting
    one = 0.0
    if (
        plan.loss.target_law == "poisson"
    ):  # a count of 1, on the scale of the scaled target
        one = math.exp(-_find_target_units(model)[0])
    return covariances.estimate(
        plan,
        transcript,
        find_run_weights(model),
        weighting=weighting,
        count_unit=one,
        looked=model.profile_ is not None,
    )


def find_run_weights(model: Any) -> FloatArray:
    """Return the weights (d, k) with which the run of a fitted model ended."""
    known = model._run_weights
    return np.asarray(model.weights_ if known is None else known)


def compute_standard_errors(model: Any) -> StandardErrors | str:
    """Compute the standard errors of a model that was just fitted."""
    found = find_uncertainty(model)
    if isinstance(found, str):
        return found
    plain, contrasts = make_unit_matrices(model)
    asked = find_computed(model)
    errors = found.errors(plain[asked], contrasts[asked])

    def spread(values: FloatArray) -> FloatArray:
        whole = np.full((len(plain), model.weights_.shape[1]), math.inf)
        whole[asked] = values
        return whole

    fixed = find_reference_rows(model)[:, None]
    # Errors are those of the run. If terms were shrunk after it, intervals around the
    # new effects are made so wide that they contain the intervals of the run.
    moved = model.weights_ - find_run_weights(model)
    room, effects_room = (np.abs(matrix @ moved) / Z for matrix in (plain, contrasts))
    return StandardErrors(
        noise_std=spread(errors.noise_std),
        std=spread(errors.std) + room,
        effects=compute_class_effects(model),
        effects_noise_std=np.where(fixed, 0.0, spread(errors.contrasts_noise_std)),
        effects_sampling_std=np.where(
            fixed, 0.0, spread(errors.contrasts_sampling_std)
        ),
        effects_std=np.where(fixed, 0.0, spread(errors.contrasts_std) + effects_room),
    )


def find_computed(model: Any) -> npt.NDArray[np.bool_]:
    """Return a mask of the coefficients for which standard errors are computed.

    If there are more than `MOST_WITH_PAIRS` coefficients, those of pairs of columns
    are left out.
    """
    layout = model._layout
    every = sum(group.width for group in layout.groups if group.kind != "ones") + 1
    asked = np.ones(every, bool)
    if every > MOST_WITH_PAIRS:
        for group in layout.groups:
            if isinstance(model.schema_.columns.get(group.name), Pair):
                asked[group.coordinates] = False
    return asked


def make_unit_matrices(model: Any) -> tuple[FloatArray, FloatArray]:
    """Return the matrices (width + 1, d) that map weights to coefficients and effects.

    Effects are coefficients after centring, as `compute_class_effects` says.
    """
    layout, d = model._layout, len(model.weights_)
    coef, intercept = convert_to_user_units(model.schema_, layout, np.eye(d))
    to_coefficients = _find_target_units(model)[1] * np.vstack([coef.T, intercept])
    return to_coefficients, to_coefficients @ model._make_centring_matrix()


def compute_class_effects(model: Any) -> FloatArray:
    """Return the centred coefficients of each output, shape (width + 1, k).

    The intercept is last. The categories of each column are relative to their mean, or
    to the column's reference, which is part of the intercept.
    `skdp.estimators.additive` says what the effects of an additive model are. If there
    are several classes, the coefficients of each class are relative to the mean of all
    classes. Centring changes no prediction.
    """
    middle, scale = _find_target_units(model)
    weights = model.weights_ * scale
    if weights.shape[1] > 1:
        weights = weights - weights.mean(axis=1, keepdims=True)
    layout = model._layout
    moved = model._centre(weights)
    coef, intercept = convert_to_user_units(model.schema_, layout, moved)
    return np.vstack([coef.T, middle + intercept])


def make_centring_matrix(
    layout: Layout, references: Mapping[str, int] | None = None
) -> FloatArray:
    """Return the (d, d) matrix C for which C @ w equals `centre_categories` of w.

    The margin of a row stays the same if the row has a level in every categorical
    column.
    """
    return centre_categories(layout, np.eye(layout.n_features), references)


def find_reference_rows(model: Any) -> npt.NDArray[np.bool_]:
    """Return a mask of the effects (width + 1,) that are 0 by definition.

    They are those of reference categories, with which others are compared, those that
    are shown as part of others, and the intercept of a model without one.
    """
    groups = [group for group in model._layout.groups if group.kind != "ones"]
    rows = np.zeros(sum(group.width for group in groups) + 1, bool)
    for group in groups:
        place = model._references.get(group.name)
        if place is not None:
            rows[group.start + place] = True
        if group.name in model._absorbed:
            rows[group.coordinates] = True
    rows[-1] = model._layout.groups[-1].kind != "ones"
    return rows


def _find_target_units(model: Any) -> tuple[float, float]:
    units = getattr(model, "_target_units", None)
    return (0.0, 1.0) if units is None else units()


def make_errors_form(model: Any) -> ErrorsForm | str:
    """Return a model's standard errors as stored, or the reason why there are none."""
    known = model._standard_errors()
    if isinstance(known, str):
        return known
    values: dict[str, Any] = {
        name: [v if math.isfinite(v) else None for v in value.ravel().tolist()]
        for name, value in asdict(known).items()
    }
    return ErrorsForm(**values)


def read_errors_form(form: ErrorsForm | str, model: Any) -> StandardErrors | str:
    """Return the saved standard errors, or the reason why there are none.

    Each list must have one number for each coefficient of the model.
    """
    if isinstance(form, str):
        return form
    check(
        model.weights_.size <= MOST_COORDINATES,
        "model.json must not have standard errors, because it has more than "
        f"{MOST_COORDINATES:,} coefficients.",
    )  # before matrices of this many rows and columns are made
    k = model.weights_.shape[1]
    width = len(find_computed(model)) * k
    values = structs.asdict(form)
    check(
        all(len(part) == width for part in values.values()),
        f"model.json must have {width} standard errors of each kind, one for each "
        "coefficient.",
    )
    errors = StandardErrors(
        **{
            name: np.array([math.inf if v is None else v for v in part], float).reshape(
                -1, k
            )
            for name, part in values.items()
        }
    )
    parts = [*zip(form.noise_std, form.std, strict=True)]
    parts += zip(form.effects_noise_std, form.effects_std, strict=True)
    check(
        all(std is None for noise, std in parts if noise is None),
        "model.json has a standard error without its part due to privacy (noise_std).",
    )
    effects = compute_class_effects(model)
    size = float(np.max(np.abs(effects), initial=1.0))
    check(
        bool(np.all(np.abs(errors.effects - effects) <= EFFECTS_CLOSE * size)),
        "The effects in model.json do not follow from its weights. They were changed.",
    )
    return errors
