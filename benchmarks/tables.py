"""The public tables of the benchmarks, each with its schema: public bounds, no tuning.

Files are read where SKDP_DATA points, or beside the project at ../shared/data. Ranges
are those of the protocol; categories are the values that the file lists.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from skdp.schema import Categorical, Numeric, Schema, Vector

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("SKDP_DATA", ROOT.parent / "shared" / "data"))

NUMERIC: dict[str, dict[str, tuple[float, float]]] = {
    "adult": {
        "age": (17, 90),
        "education_num": (1, 16),
        "capital_gain": (0, 20000),
        "capital_loss": (0, 3000),
        "hours_per_week": (1, 99),
    },
    "bank": {
        "age": (18, 95),
        "balance": (-2000, 20000),
        "day": (1, 31),
        "duration": (0, 1500),
        "campaign": (1, 20),
        "pdays": (-1, 400),
        "previous": (0, 10),
    },
    "electricity": {
        "date": (0, 1),
        "period": (0, 1),
        "nswprice": (0, 0.2),
        "nswdemand": (0, 1),
        "vicprice": (0, 0.02),
        "vicdemand": (0, 1),
        "transfer": (0, 1),
    },
    "california": {
        "MedInc": (0, 15),
        "HouseAge": (1, 52),
        "AveRooms": (0, 12),
        "AveBedrms": (0, 3),
        "Population": (0, 6000),
        "AveOccup": (0, 7),
        "Latitude": (32, 42),
        "Longitude": (-125, -114),
    },
    "bike": dict.fromkeys(
        ["temp", "atemp", "hum", "windspeed", "yr", "holiday", "workingday"], (0, 1)
    ),
    "wine": {
        "fixed_acidity": (3, 16),
        "volatile_acidity": (0, 1.6),
        "citric_acid": (0, 1.7),
        "residual_sugar": (0, 30),
        "chlorides": (0, 0.4),
        "free_sulfur_dioxide": (0, 120),
        "total_sulfur_dioxide": (0, 350),
        "density": (0.985, 1.005),
        "pH": (2.7, 4.1),
        "sulphates": (0.2, 2),
        "alcohol": (8, 15),
    },
}
CATEGORICAL: dict[str, list[str]] = {
    "adult": [
        "workclass",
        "marital_status",
        "occupation",
        "relationship",
        "race",
        "sex",
        "native_country",
    ],
    "bank": [
        "job",
        "marital",
        "education",
        "default",
        "housing",
        "loan",
        "contact",
        "month",
        "poutcome",
    ],
    "electricity": ["day"],
    "california": [],
    "bike": ["season", "mnth", "hr", "weekday", "weathersit"],
    "wine": ["color"],
}
FILES = {
    "adult": "adult",
    "bank": "bank_marketing",
    "electricity": "electricity",
    "california": "california_housing",
    "bike": "bike_sharing_hour",
    "wine": "wine_quality",
}
CLASSES = {
    "adult": ("income", "<=50K", ">50K"),
    "bank": ("y", "no", "yes"),
    "electricity": ("class", "DOWN", "UP"),
}
NAMES = [*FILES, "a9a"]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows, their target, and what is public about both."""

    X: Any
    y: Any
    schema: Schema

    @property
    def classification(self) -> bool:
        """Whether the target is a class."""
        return isinstance(self.schema.target_column, Categorical)


def load(name: str) -> Table:
    """Read one of `NAMES`, or "reuters"."""
    if name in ("a9a", "reuters"):
        return _sparse(name)
    frame = pd.read_parquet(DATA / f"{FILES[name]}.parquet")
    if name == "california":
        frame = _per_household(frame)
    columns: dict[str, Any] = {c: Numeric(*pair) for c, pair in NUMERIC[name].items()}
    for column in CATEGORICAL[name]:
        frame[column] = frame[column].astype(str)
        columns[column] = Categorical(sorted(frame[column].unique()))
    if name in CLASSES:
        target, negative, positive = CLASSES[name]
        y: Any = np.where(frame[target] == positive, positive, negative)
        described: Any = Categorical([negative, positive])
    else:
        y, high = {
            "california": lambda: (frame["value"], 5.00001),
            "bike": lambda: (frame["cnt"] / 100.0, 10.0),
            "wine": lambda: (frame["quality"].astype(float), 10.0),
        }[name]()
        y, described = y.to_numpy(), Numeric(0.0, high)
    return Table(frame[list(columns)], y, Schema(columns, target=described))


def _per_household(d: pd.DataFrame) -> pd.DataFrame:
    bedrooms = d.total_bedrooms.fillna(0.2 * d.total_rooms)
    return pd.DataFrame(
        {
            "MedInc": d.median_income,
            "HouseAge": d.housing_median_age,
            "AveRooms": d.total_rooms / d.households,
            "AveBedrms": bedrooms / d.households,
            "Population": d.population,
            "AveOccup": d.population / d.households,
            "Latitude": d.latitude,
            "Longitude": d.longitude,
            "value": d.median_house_value / 1e5,
        }
    )


def _sparse(name: str) -> Table:
    z = np.load(DATA / {"a9a": "a9a.npz", "reuters": "reuters_moneyfx.npz"}[name])
    parts = (z["data"].astype(float), z["indices"], z["indptr"])
    X = sp.csr_matrix(parts, shape=z["shape"])
    names = [f"x{i}" for i in range(X.shape[1])]
    y = (z["y"] > 0).astype(int)
    target = Categorical([0, 1])
    if name == "a9a":
        binary: dict[str, Any] = dict.fromkeys(names, Numeric(0, 1))
        dense = X.toarray()
        return Table(dense, y, Schema(binary, target=target, row_norm=np.sqrt(14)))
    return Table(X, y, Schema({"words": Vector(names)}, target=target))


def split(table: Table) -> tuple[Table, Table]:
    """One 80/20 split, the same for everybody."""
    order = np.random.RandomState(12345).permutation(len(table.y))
    cut = int(0.8 * len(order))
    parts = []
    for at in (order[:cut], order[cut:]):
        X = table.X.iloc[at] if hasattr(table.X, "iloc") else table.X[at]
        parts.append(Table(X, table.y[at], table.schema))
    return parts[0], parts[1]
