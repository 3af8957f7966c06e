"""Make synthetic hospital tables with known true weights. No real data is used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from skdp.engines.reference import ROWS, to_dense
from skdp.privacy.encoding import AnyArray, Batch, Coded, Records, encode
from skdp.privacy.grid import FEATURE_ONE
from skdp.schema import Categorical, FloatArray, Numeric, Schema, Target, check

HospitalTarget = Literal["readmitted", "cost", "visits"]
Codes = npt.NDArray[np.intp]

#: The public description of the columns. A category that is not listed is encoded as
#: the category `other`.
COLUMNS: dict[str, Numeric | Categorical] = {
    "age": Numeric(18, 95),
    "length_of_stay": Numeric(0, 60, scale="log"),
    "prior_admissions": Numeric(0, 20, scale="log"),
    "creatinine": Numeric(0.3, 15, scale="log", missing=1.0),
    "medications": Numeric(0, 40),
    "department": Categorical(
        [
            "General medicine",
            "Surgery",
            "Cardiology",
            "Orthopaedics",
            "Neurology",
            "Oncology",
            "Nephrology",
            "Other",
        ],
        other="Other",
    ),
    "admission_type": Categorical(["Emergency", "Urgent", "Elective"], other="Urgent"),
    "insurance": Categorical(
        ["Medicare", "Private", "Medicaid", "Self-pay", "Other"], other="Other"
    ),
    "discharged_to": Categorical(
        ["Home", "Home care", "Nursing facility", "Rehabilitation", "Other"],
        other="Other",
    ),
}

TARGETS: dict[HospitalTarget, Target] = {
    "readmitted": Categorical(["no", "yes"]),
    "cost": Numeric(0, 200_000, scale="log"),
    "visits": Numeric(0, 40),
}

# Frequencies of the categories. Admission depends on the department. Insurance and
# discharge depend on age: below 65, or 65 and older.
_DEPARTMENT = [0.36, 0.20, 0.15, 0.10, 0.07, 0.05, 0.02, 0.05]
_ADMISSION = {"surgical": [0.40, 0.15, 0.45], "medical": [0.72, 0.19, 0.09]}
_INSURANCE = {
    "younger": [0.08, 0.55, 0.25, 0.09, 0.03],
    "older": [0.87, 0.09, 0.02, 0.01, 0.01],
}
_DISCHARGE = {
    "younger": [0.84, 0.09, 0.02, 0.03, 0.02],
    "older": [0.50, 0.23, 0.18, 0.06, 0.03],
}

# The true weights of each column's coordinates. The weights of a categorical column sum
# to zero, and the intercept contains their mean. Without this rule, different weights
# would give the same predictions.
_TRUTH: dict[HospitalTarget, dict[str, list[float]]] = {
    "readmitted": {
        "age": [0.5],
        "length_of_stay": [1.2],
        "prior_admissions": [3.0],
        "creatinine": [1.3],
        "medications": [0.8],
        "department": [0.05, -0.25, 0.15, -0.45, 0.0, 0.35, 0.3, -0.15],
        "admission_type": [0.25, 0.05, -0.3],
        "insurance": [0.1, -0.25, 0.25, 0.0, -0.1],
        "discharged_to": [-0.35, 0.1, 0.3, -0.05, 0.0],
        "intercept": [-3.6],
    },
    "cost": {
        "age": [0.02],
        "length_of_stay": [0.6],
        "prior_admissions": [0.05],
        "creatinine": [0.08],
        "medications": [0.12],
        "department": [-0.08, 0.12, 0.06, 0.09, -0.02, 0.03, -0.05, -0.15],
        "admission_type": [0.02, -0.01, -0.01],
        "insurance": [0.0, 0.02, -0.01, -0.03, 0.02],
        "discharged_to": [-0.04, -0.02, 0.03, 0.05, -0.02],
        "intercept": [0.1],
    },
    "visits": {
        "age": [0.4],
        "length_of_stay": [0.3],
        "prior_admissions": [1.2],
        "creatinine": [0.6],
        "medications": [0.5],
        "department": [0.0, -0.1, 0.1, 0.05, 0.0, 0.25, 0.2, -0.5],
        "admission_type": [0.0, 0.05, -0.05],
        "insurance": [0.1, 0.1, 0.05, -0.3, 0.05],
        "discharged_to": [-0.05, 0.15, -0.1, 0.1, -0.1],
        "intercept": [-3.2],
    },
}

# The standard deviation of the part of the target that the columns do not explain.
_SPREAD = {"readmitted": math.pi / math.sqrt(3.0), "cost": 0.12, "visits": 1.0}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Dataset:
    """A table, its schema, and the true weights from which its target was drawn.

    Attributes
    ----------
    schema : Schema
        The public description of the table.
    columns : dict of str to array (n_rows,)
        The columns of the table, including the target. Numbers are floats (nan if
        missing), and categories are strings. ``pandas.DataFrame(data.columns)`` makes a
        data frame.
    batch : Batch
        The same table, ready for ``encode([data.batch], data.schema)``.
    truth : dict of str to float
        The true weight of each coordinate, by the coordinate's label in
        ``schema.layout()``.
    """

    schema: Schema
    columns: Mapping[str, AnyArray]
    batch: Batch
    truth: Mapping[str, float]

    @property
    def weights(self) -> FloatArray:
        """The true weights in the order of the coordinates, shape (n_features, 1)."""
        return np.array(list(self.truth.values()))[:, None]


def make_hospital(
    n_rows: int = 50_000,
    random_state: int = 0,
    target: HospitalTarget = "readmitted",
    *,
    patients: int | None = None,
    icc: float = 0.0,
    bend: float = 0.0,
) -> Dataset:
    """Draw a synthetic table of hospital stays from a known model.

    Most patients are old. Length of stay, prior admissions and creatinine (mg/dL) have
    long tails. Insurance and discharge depend on age. Admission type and length of stay
    depend on the department.

    Let m = x·w, where x is the *encoded* row including the intercept and w are the true
    weights. The target follows exactly one of the models of skdp:

    - ``"readmitted"`` says whether a patient returns within 30 days. It suits
      `Logistic`: the value is "yes" with probability 1/(1 + exp(-m)), in about 15 % of
      the rows.
    - ``"cost"`` is the cost of the stay. It suits `Squared`: on its log scale from -1
      to 1, the cost is m plus normal noise with standard deviation 0.12. One cost in
      1,000 is clipped to the range.
    - ``"visits"`` is the number of visits in the following year. It suits `Poisson`:
      the number is a Poisson count with mean 40 exp(m), where 40 is the largest count
      that the schema allows.

    One creatinine value in eight is missing. A missing value is encoded as the schema's
    public default (1 mg/dL). The target is drawn from this default too, so the model
    stays exact.

    Parameters
    ----------
    n_rows : int
        Number of rows, at least 1.
    random_state : int
        The seed. The same seed gives the same table.
    target : {"readmitted", "cost", "visits"}
        The target to draw.
    patients : int, optional
        Number of patients, each with one or more stays. The column ``patient_id``
        identifies the patient and is the unit of the schema. Most patients have few
        stays, and some have many. Age and insurance are the same in all stays of a
        patient. By default each row is a patient of its own, and there is no such
        column.
    icc : float
        The intraclass correlation of a patient's stays, in [0, 1). Each patient has a
        normal intercept with variance v. Let r be the remaining variance that the
        columns do not explain. Then v is chosen so that v/(v + r) = `icc`. For
        ``"cost"``, v + r is 0.12², the variance of the noise. For ``"readmitted"``, r
        is π²/3, on the logistic scale. For ``"visits"``, r is taken as 1, on the log
        scale. The true weights describe the mean target for ``"cost"`` and
        ``"visits"``. For ``"readmitted"``, probabilities averaged over patients are
        less extreme than the true weights imply.
    bend : float
        The size of a curved effect of age: ``bend * bend_age(age)`` is added to m. With
        the default, 0, the effect of age is linear.

    Returns
    -------
    Dataset
        The table and its true weights.
    """
    check(n_rows >= 1, f"n_rows must be at least 1, got {n_rows}.")
    check(random_state >= 0, f"random_state must be at least 0, got {random_state}.")
    check(
        target in TARGETS,
        f"target must be one of {sorted(TARGETS)}, got {target!r}.",
    )
    check(
        patients is None or 1 <= patients <= n_rows,
        f"patients must be in [1, n_rows], got {patients}.",
    )
    check(
        0 <= icc < 1 and (icc == 0 or patients is not None),
        f"icc must be in [0, 1), and icc > 0 requires patients, got {icc}.",
    )
    rng = np.random.default_rng(random_state)
    unit = None if patients is None else "patient_id"
    schema = Schema(COLUMNS, target=(target, TARGETS[target]), unit=unit)
    cells = _draw_columns(n_rows, rng)
    patient = None if patients is None else _assign(cells, patients, n_rows, rng)
    weight = [w for column in _TRUTH[target].values() for w in column]
    truth = dict(zip(schema.layout().labels, weight, strict=True))
    unlabelled = Batch(columns=cells, target=np.zeros(n_rows))
    records = encode([unlabelled], Schema(COLUMNS, target=Numeric(0, 1)))
    margins = compute_true_margins(records, np.array(weight)[:, None])[:, 0]
    margins += bend * bend_age(cells["age"])
    if patient is not None and icc:
        spread = _SPREAD[target] * math.sqrt(icc)
        spread /= 1.0 if target == "cost" else math.sqrt(1.0 - icc)
        shift = -(spread**2) / 2 if target == "visits" else 0.0  # keeps the mean
        margins += shift + spread * rng.standard_normal(patients)[patient]
    drawn = _draw_target(target, margins, rng, math.sqrt(1.0 - icc))
    columns = {name: _decode(cell) for name, cell in cells.items()}
    columns |= {target: _decode(drawn)}
    divisor = None
    if patient is not None:
        columns |= {"patient_id": patient}
        divisor = np.bincount(patient)[patient]
    return Dataset(
        schema=schema,
        columns=columns,
        batch=Batch(columns=cells, target=drawn, divisor=divisor),
        truth=truth,
    )


def bend_age(age: FloatArray) -> FloatArray:
    """Return the curved effect of age: one cosine wave from age 18 to age 95."""
    return np.asarray(np.cos(2.0 * np.pi * (np.asarray(age) - 18.0) / 77.0))


def _assign(
    cells: dict[str, Any], patients: int, n_rows: int, rng: np.random.Generator
) -> Codes:
    """Draw the patient of each row. Give a patient's rows one age and one insurance."""
    often = rng.lognormal(0.0, 1.0, patients)
    more = rng.choice(patients, n_rows - patients, p=often / often.sum())
    patient = rng.permutation(np.concatenate([np.arange(patients), more]))
    first = np.unique(patient, return_index=True)[1]
    cells["age"] = cells["age"][first[patient]]
    insurance = cells["insurance"]
    cells["insurance"] = Coded(insurance.codes[first[patient]], insurance.values)
    return patient


def compute_true_margins(records: Records, weights: FloatArray) -> FloatArray:
    """Return the margins x·w of all rows, shape (n_rows, k).

    The weights have shape (n_features, k). The result has no noise and is not private,
    so use this function for public tables only.
    """
    at = np.arange(records.layout.n_features)
    return np.concatenate(
        [
            to_dense(chunk, slice(start, start + ROWS), at, records.layout) @ weights
            for chunk in records.chunks
            for start in range(0, len(chunk.target), ROWS)
        ]
    ) * (1.0 / FEATURE_ONE)


def _draw_columns(n_rows: int, rng: np.random.Generator) -> dict[str, Any]:
    """Draw all columns except the target.

    Numeric columns are floats, and categorical columns are codes.
    """
    age = np.floor(18 + 77 * rng.beta(2.6, 1.5, n_rows))
    older = age >= 65
    department = _choose(_DEPARTMENT, n_rows, rng)
    surgical = (department == 1) | (department == 3)
    nephrology = department == 6
    stay = rng.lognormal(np.where(surgical, 1.1, 1.3) + 0.3 * older, 0.75, n_rows)
    creatinine = rng.lognormal(-0.1 + 0.15 * older + 0.9 * nephrology, 0.4, n_rows)
    creatinine[rng.random(n_rows) < 0.125] = np.nan
    levels = {
        name: column.levels
        for name, column in COLUMNS.items()
        if isinstance(column, Categorical)
    }
    codes = {
        "department": department,
        "admission_type": _choose_either(surgical, _ADMISSION, n_rows, rng),
        "insurance": _choose_either(~older, _INSURANCE, n_rows, rng),
        "discharged_to": _choose_either(~older, _DISCHARGE, n_rows, rng),
    }
    return {
        "age": age,
        "length_of_stay": np.minimum(np.ceil(stay), 120.0),
        "prior_admissions": rng.negative_binomial(0.6, 0.4, n_rows).astype(float),
        "creatinine": np.round(creatinine, 2),
        "medications": rng.poisson(6 + 5 * older, n_rows).astype(float),
    } | {name: Coded(code, levels[name]) for name, code in codes.items()}


def _choose(frequency: list[float], n_rows: int, rng: np.random.Generator) -> Codes:
    return rng.choice(len(frequency), n_rows, p=frequency)


def _choose_either(
    first: npt.NDArray[np.bool_],
    frequencies: dict[str, list[float]],
    n_rows: int,
    rng: np.random.Generator,
) -> Codes:
    """Draw the category of each row.

    Rows for which `first` is true use the first of two lists of frequencies, and all
    other rows use the second.
    """
    one, two = (_choose(f, n_rows, rng) for f in frequencies.values())
    return np.where(first, one, two)


def _draw_target(
    target: HospitalTarget, m: FloatArray, rng: np.random.Generator, rest: float = 1.0
) -> Any:
    """Draw the target of each row from the row's margin m.

    The standard deviation of the noise in a cost is multiplied by `rest`.
    """
    if target == "readmitted":
        codes = (rng.random(len(m)) < 1.0 / (1.0 + np.exp(-m))).astype(np.intp)
        return Coded(codes, ["no", "yes"])
    column = TARGETS[target]
    assert isinstance(column, Numeric)
    if target == "visits":
        return rng.poisson(column.high * np.exp(m)).astype(float)
    spread = rest * _SPREAD["cost"]
    scaled = (m + spread * rng.standard_normal(len(m)) + 1.0) / 2.0
    return np.round(np.expm1(scaled * math.log1p(column.high)), 2)


def _decode(cells: Any) -> AnyArray:
    """Return a column as users see it, with category names in place of codes."""
    if isinstance(cells, Coded):
        return np.array(cells.values)[cells.codes]
    return np.asarray(cells)
