"""Further public tables, from R's packages, each with a schema: read if they are there.

`pydataset` ships them. Install it anywhere and name its archive:
``SKDP_RDATASETS=.../site-packages/pydataset/resources.tar.gz``. Ranges are round and
generous, as a person would write them; categories are the values that a file lists.
"""

from __future__ import annotations

import os
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from skdp.schema import Categorical, Numeric, Schema
from tables import Table

ARCHIVE = Path(os.environ.get("SKDP_RDATASETS", ""))


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a table is, what is predicted, and what is public about its columns."""

    path: str
    target: str
    model: str
    numeric: dict[str, tuple[float, float]]
    categorical: list[str] = field(default_factory=list)
    range: tuple[float, float] | None = None


SOURCES = {
    "flchain": Source(
        path="survival/flchain",
        target="death",
        model="logistic",
        numeric={
            "age": (18, 110),
            "sample.yr": (1990, 2005),
            "kappa": (0, 20),
            "lambda": (0, 20),
            "flc.grp": (1, 10),
            "creatinine": (0, 10),
        },
        categorical=["sex", "mgus"],
    ),
    "Hdma": Source(
        path="Ecdat/Hdma",
        target="deny",
        model="logistic",
        numeric={
            "dir": (0, 1),
            "hir": (0, 1),
            "lvr": (0, 2),
            "ccs": (1, 6),
            "mcs": (1, 4),
            "uria": (0, 15),
        },
        categorical=["pbcr", "dmi", "self", "single", "comdominiom", "black"],
    ),
    "HI": Source(
        path="Ecdat/HI",
        target="whi",
        model="logistic",
        numeric={
            "whrswk": (0, 100),
            "experience": (0, 60),
            "kidslt6": (0, 6),
            "kids618": (0, 8),
            "husby": (0, 200),
        },
        categorical=["education", "race", "hispanic", "region", "hhi"],
    ),
    "VietNamI": Source(
        path="Ecdat/VietNamI",
        target="insurance",
        model="logistic",
        numeric={
            "pharvis": (0, 30),
            "lnhhexp": (0, 6),
            "age": (0, 5),
            "educ": (0, 12),
            "illness": (0, 10),
            "illdays": (0, 60),
        },
        categorical=["sex", "married", "injury"],
    ),
    "Benefits": Source(
        path="Ecdat/Benefits",
        target="ui",
        model="logistic",
        numeric={
            "stateur": (0, 20),
            "statemb": (0, 300),
            "age": (18, 65),
            "tenure": (0, 40),
            "yrdispl": (1, 10),
            "rr": (0, 1),
        },
        categorical=[
            "joblost",
            "nwhite",
            "school12",
            "sex",
            "smsa",
            "married",
            "dkids",
            "dykids",
        ],
    ),
    "nwtco": Source(
        path="survival/nwtco",
        target="rel",
        model="logistic",
        numeric={"age": (0, 240)},
        categorical=["instit", "histol", "stage", "study"],
    ),
    "Chile": Source(
        path="car/Chile",
        target="vote",
        model="logistic",
        numeric={
            "population": (0, 250_000),
            "age": (18, 90),
            "income": (0, 200_000),
            "statusquo": (-2.5, 2.5),
        },
        categorical=["region", "sex", "education"],
    ),
    "cut": Source(
        path="ggplot2/diamonds",
        target="cut",
        model="logistic",
        numeric={
            "carat": (0, 5),
            "depth": (40, 80),
            "table": (40, 80),
            "price": (0, 20_000),
        },
        categorical=["color", "clarity"],
    ),
    "diamonds": Source(
        path="ggplot2/diamonds",
        target="price",
        model="linear",
        numeric={
            "carat": (0, 5),
            "depth": (40, 80),
            "table": (40, 80),
            "x": (0, 12),
            "y": (0, 12),
            "z": (0, 8),
        },
        categorical=["cut", "color", "clarity"],
        range=(0, 20_000),
    ),
    "SLID": Source(
        path="car/SLID",
        target="wages",
        model="linear",
        numeric={"education": (0, 20), "age": (16, 95)},
        categorical=["sex", "language"],
        range=(0, 60),
    ),
    "Wages": Source(
        path="Ecdat/Wages",
        target="lwage",
        model="linear",
        numeric={"exp": (0, 50), "wks": (0, 52), "ed": (0, 20)},
        categorical=[
            "bluecol",
            "ind",
            "south",
            "smsa",
            "married",
            "sex",
            "union",
            "black",
        ],
        range=(4, 9),
    ),
    "Computers": Source(
        path="Ecdat/Computers",
        target="price",
        model="linear",
        numeric={
            "speed": (0, 120),
            "hd": (0, 2500),
            "ram": (0, 32),
            "screen": (12, 18),
            "ads": (0, 400),
            "trend": (0, 36),
        },
        categorical=["cd", "multi", "premium"],
        range=(0, 6000),
    ),
    "BudgetFood": Source(
        path="Ecdat/BudgetFood",
        target="wfood",
        model="linear",
        numeric={"totexp": (0, 5_000_000), "age": (16, 100), "size": (1, 20)},
        categorical=["town", "sex"],
        range=(0, 1),
    ),
    "Star": Source(
        path="Ecdat/Star",
        target="tmathssk",
        model="linear",
        numeric={"totexpk": (0, 30)},
        categorical=["classk", "sex", "freelunk", "race"],
        range=(300, 650),
    ),
    "Vocab": Source(
        path="car/Vocab",
        target="vocabulary",
        model="linear",
        numeric={"year": (1970, 2005), "education": (0, 20)},
        categorical=["sex"],
        range=(0, 10),
    ),
    "DoctorContacts": Source(
        path="Ecdat/DoctorContacts",
        target="mdu",
        model="poisson",
        numeric={
            "lc": (0, 5),
            "lpi": (0, 8),
            "fmde": (0, 9),
            "ndisease": (0, 60),
            "linc": (0, 11),
            "lfam": (0, 3),
            "educdec": (0, 25),
            "age": (0, 65),
        },
        categorical=["idp", "physlim", "health", "sex", "child", "black"],
        range=(0, 40),
    ),
    "rwm5yr": Source(
        path="COUNT/rwm5yr",
        target="docvis",
        model="poisson",
        numeric={"age": (18, 70), "hhninc": (0, 20), "educ": (6, 18)},
        categorical=["year", "outwork", "female", "married", "kids", "self"],
        range=(0, 50),
    ),
    "OFP": Source(
        path="Ecdat/OFP",
        target="ofp",
        model="poisson",
        numeric={
            "hosp": (0, 8),
            "numchron": (0, 8),
            "age": (6, 11),
            "school": (0, 18),
            "faminc": (0, 20),
        },
        categorical=(
            [
                "adldiff",
                "black",
                "sex",
                "maried",
                "employed",
                "privins",
                "medicaid",
                "region",
                "hlth",
            ]
        ),
        range=(0, 50),
    ),
    "pharvis": Source(
        path="Ecdat/VietNamI",
        target="pharvis",
        model="poisson",
        numeric={
            "lnhhexp": (0, 6),
            "age": (0, 5),
            "educ": (0, 12),
            "illness": (0, 10),
            "illdays": (0, 60),
        },
        categorical=["sex", "married", "injury", "insurance"],
        range=(0, 20),
    ),
    "azpro": Source(
        path="COUNT/azpro",
        target="los",
        model="poisson",
        numeric={},
        categorical=["procedure", "sex", "age75", "admit", "hospital"],
        range=(0, 60),
    ),
}


def names() -> list[str]:
    """Tables that can be read here: all of them, or none."""
    return list(SOURCES) if ARCHIVE.is_file() else []


def load(name: str) -> Table:
    """Read one of `SOURCES`; rows without a target are left out."""
    source = SOURCES[name]
    with tarfile.open(ARCHIVE) as archive:
        file = archive.extractfile(f"resources/rdata/csv/{source.path}.csv")
        assert file is not None
        frame = pd.read_csv(file, index_col=0).dropna(subset=[source.target])
    columns: dict[str, Any] = {
        column: Numeric(*pair) for column, pair in source.numeric.items()
    }
    for column in source.categorical:
        frame[column] = frame[column].map(str)
        columns[column] = Categorical(sorted(frame[column].unique()))
    y = frame[source.target]
    if source.range is not None:
        described: Any = Numeric(*source.range)
        y = y.astype(float)
    else:
        y = y.map(str)
        described = Categorical(sorted(y.unique()))
    return Table(frame[list(columns)], y.to_numpy(), Schema(columns, target=described))
