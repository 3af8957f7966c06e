"""Standard errors of a fitted model, in the user's units; no mathematics."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from skdp.estimators.units import centred, user_units
from skdp.inference import covariances
from skdp.planning.plan import Plan
from skdp.schema import FloatArray, Layout, check

#: Standard errors that may be infinite; JSON has null for them.
UNBOUNDED = ("std", "effects_std")
#: Why a loaded or searched model may have none.
NOT_KEPT = "The released values that standard errors follow from were not kept."


@dataclass(frozen=True, kw_only=True, eq=False)
class StandardErrors:
    """Of each coefficient, the intercept's last: (width + 1,) each.

    Attributes
    ----------
    noise_std, std : float64
        Of ``coef_`` and ``intercept_``: due to privacy, and in all. A standard error is
        infinite where the effect cannot be told.
    effects, effects_noise_std, effects_std : float64
        The same model with each column's categories relative to their mean, which the
        intercept holds.
    """

    noise_std: FloatArray
    std: FloatArray
    effects: FloatArray
    effects_noise_std: FloatArray
    effects_std: FloatArray


class Uncertain:
    """Attributes that say how far coefficients may be from the true ones.

    They follow from what was released, and are computed when they are first asked for.
    Where they are not known they are absent, and the error says why.
    """

    #: Known ones, those of a loaded model too; None until they are asked for.
    _errors: StandardErrors | str | None

    def _standard_errors(self) -> StandardErrors | str:
        """Standard errors, or a sentence that says why there are none."""
        known = self._errors
        if known is None:
            known = self._errors = standard_errors(self)
        return known

    def _error(self, name: str, which: str) -> FloatArray:
        if "weights_" not in self.__dict__:
            raise AttributeError(f"{name} is known after fit: fit the model first.")
        known = self._standard_errors()
        if isinstance(known, str):
            raise AttributeError(f"There is no {name}. {known}")
        return np.asarray(getattr(known, which))

    @property
    def coef_noise_std_(self) -> Any:
        """Standard deviation of ``coef_`` due to the noise that privacy asks for."""
        return self._shaped(self._error("coef_noise_std_", "noise_std"), "coef_")

    @property
    def coef_std_(self) -> Any:
        """Standard error of ``coef_``, of sampling and privacy.

        It is infinite where the effect cannot be told: noise hides how much the column
        varies.
        """
        return self._shaped(self._error("coef_std_", "std"), "coef_")

    @property
    def intercept_noise_std_(self) -> Any:
        """Standard deviation of ``intercept_`` due to the noise of privacy."""
        errors = self._error("intercept_noise_std_", "noise_std")
        return self._shaped(errors, "intercept_")

    @property
    def intercept_std_(self) -> Any:
        """Standard error of ``intercept_``, of sampling and privacy."""
        return self._shaped(self._error("intercept_std_", "std"), "intercept_")

    def _shaped(self, errors: FloatArray, like: str) -> Any:
        """Part of the errors, in the form of the attribute that they belong to."""
        part = errors[:-1] if like == "coef_" else errors[-1:]
        form = getattr(self, like)
        return float(part[0]) if isinstance(form, float) else part.reshape(form.shape)

    def summary(self) -> Any:
        """Return a table of coefficients, standard errors and 95 % intervals.

        Print it, or show it in a notebook. Categories are relative to the mean of their
        column. Three classes or more are relative to the mean of the classes, and have
        no standard errors. ``docs/uncertainty.md`` says what intervals cover and what
        not.
        """
        from skdp.estimators.summary import summary  # which works on models

        return summary(self)


def standard_errors(model: Any) -> StandardErrors | str:
    """Compute the standard errors of a model that was just fitted."""
    plan, transcript = model.plan_, model.privacy_.transcript
    if not isinstance(plan, Plan):
        if isinstance(plan, dict) and "solver" in plan:
            return "Standard errors are known for solver='skgd'."
        return NOT_KEPT
    reason = covariances.find_obstacle(plan)
    if reason is not None:
        return reason
    if model.__dict__.get("_weighted"):
        return "Standard errors are known where all records count the same."
    if len(transcript) < plan.n_steps + 1:
        return NOT_KEPT
    found = covariances.estimate(plan, transcript, model.weights_)
    errors = found.errors(*maps(model))
    return StandardErrors(
        noise_std=errors.noise_std,
        std=errors.std,
        effects=effects(model),
        effects_noise_std=errors.contrasts_noise_std,
        effects_std=errors.contrasts_std,
    )


def maps(model: Any) -> tuple[FloatArray, FloatArray]:
    """Matrices (width + 1, d) from weights to coefficients, and to effects."""
    layout, d = model._layout, len(model.weights_)
    coef, intercept = user_units(model.schema_, layout, np.eye(d))
    plain = _target_units(model)[1] * np.vstack([coef.T, intercept])
    return plain, plain @ centring(layout)


def effects(model: Any) -> FloatArray:
    """Coefficients (width + 1,) of a model's first output: see `class_effects`."""
    return class_effects(model)[:, 0]


def class_effects(model: Any) -> FloatArray:
    """Coefficients (width + 1, k) of each output, the intercept's last.

    Each column's categories are relative to their mean, which the intercept holds.
    Several classes are relative to the mean of the classes. No prediction changes.
    """
    middle, scale = _target_units(model)
    weights = model.weights_ * scale
    if weights.shape[1] > 1:
        weights = weights - weights.mean(axis=1, keepdims=True)
    layout = model._layout
    coef, intercept = user_units(model.schema_, layout, centred(layout, weights))
    return np.vstack([coef.T, middle + intercept])


def centring(layout: Layout) -> FloatArray:
    """Matrix (d, d) that moves the mean weight of a column's levels to the intercept.

    Margins of rows that have a level in every column stay the same.
    """
    matrix = np.eye(layout.n_features)
    for group in layout.groups:
        if group.kind == "code" and layout.groups[-1].kind == "ones":
            at = group.coordinates
            matrix[np.ix_(at, at)] -= 1.0 / group.width
            matrix[-1, at] += 1.0 / group.width
    return matrix


def _target_units(model: Any) -> tuple[float, float]:
    units = getattr(model, "_target_units", None)
    return (0.0, 1.0) if units is None else units()


def described(model: Any) -> dict[str, Any]:
    """Return a model's standard errors as JSON takes them."""
    known = model._standard_errors()
    if isinstance(known, str):
        return {"unknown": known}
    return {
        name: [v if math.isfinite(v) else None for v in value.tolist()]
        for name, value in asdict(known).items()
    }


def read(about: Any, model: Any) -> StandardErrors | str:
    """Read what `described` wrote; files of earlier versions have nothing."""
    if about is None:
        return NOT_KEPT
    check(isinstance(about, dict), "model.json needs standard errors: it was changed.")
    if set(about) == {"unknown"}:
        check(isinstance(about["unknown"], str), "model.json needs a sentence there.")
        return str(about["unknown"])
    names = set(StandardErrors.__dataclass_fields__)
    width = len(maps(model)[0])
    numbers = set(about) == names and all(
        isinstance(values, list)
        and len(values) == width
        and all(
            (type(v) in (int, float) and math.isfinite(v))
            or (v is None and name in UNBOUNDED)
            for v in values
        )
        for name, values in about.items()
    )
    check(
        numbers,
        f"model.json needs {width} finite standard errors of each kind, as its schema "
        "says: it was changed.",
    )
    return StandardErrors(
        **{
            name: np.array([math.inf if v is None else v for v in values], float)
            for name, values in about.items()
        }
    )
