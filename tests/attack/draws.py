"""Random schemas, hostile cells and parameters: what a pair of tables is drawn from."""

import math
from typing import Any

import numpy as np
from watch import NULL

import skdp
from skdp.schema import Categorical, Numeric, Pair, Schema, Vector

RANGES = [
    *((0.0, 1.0), (0.0, 1.0), (-5.0, 5.0), (0.0, 1e5), (-1.0, 0.0)),
    *((0.0, 1e-300), (1e6, 1e6 + 1e-9), (-8e307, 8e307), (5e-324, 1e-323)),
]
NORMS = (1.0, 1.0, 1e-3, 30.0, 1e300, 1e-300)
FLOATS = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 2.0**70]
CELLS = [None, True, "", "x", "nan", "1e999", 10**400, b"\xff", (1, 2), 1j, "é\n"]
EPSILONS = (0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
WEIGHTS = (1.0, 1.0, 1.0, 1.0, 0.5, 0.1, 1e-4, 1e-6, 3.0, 17.3, 1e3)
ROWS = (1, 2, 3, 5, 8, 13, 30, 30, 60, 150, 300)
SAMPLINGS = ("auto", "full", "coordinates", "columns", "importance", "shuffled")
CERTIFIED = ("output_perturbation", "objective_perturbation")
CLASSIFIERS = (skdp.LogisticRegression, skdp.AdditiveClassifier, skdp.LinearSVC)
REGRESSORS = (
    skdp.LinearRegression,
    skdp.HuberRegressor,
    skdp.PoissonRegressor,
    skdp.AdditiveRegressor,
)


class Draw:
    """Random choices of one pair."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share):
        return bool(self.rng.random() < share)

    def maybe(self, share, options):
        """One of some options, or None."""
        return self.pick(options) if self.chance(share) else None

    # ---- schemas

    def column(self, name):
        kind = self.pick(
            ["linear"] * 3
            + ["log", "bins", "indicator", "binned", "missing", "category", "category"]
            + ["vector", "vector", "curve", "curve"]
        )
        if kind == "category":
            levels = self.pick(
                [["a", "b", "c"], [1, 2, 3.5, "x"], [True, False], ["a"]]
            )
            return Categorical(levels, other=self.maybe(0.3, levels))
        if kind == "vector":
            width = self.pick([1, 2, 3, 5, 5, 31, 260 if self.chance(0.02) else 4])
            names = [f"{name}{j}" for j in range(width)]
            return Vector(names, norm=self.pick(NORMS))
        low, high = self.pick(RANGES)
        options: dict[str, Any] = {
            "log": {"scale": "log"},
            "bins": {"bins": self.pick([2, 3, 7])},
            "indicator": {"indicator": True},
            "binned": {"bins": 3, "indicator": True, "scale": "log"},
            "missing": {"missing": self.pick([low, high])},
            "curve": {
                "knots": self.pick([2, 3, 9]),
                "indicator": self.chance(0.3),
                "scale": self.pick(["linear", "log"]),
            },
        }.get(kind, {})
        return Numeric(low, high, **options)

    def schema(self, target):
        n = self.pick([1, 1, 2, 3, 3, 5])
        columns = {f"c{i}": self.column(f"c{i}") for i in range(n)}
        single = [k for k, c in columns.items() if not isinstance(c, Vector)]
        for i in range(1, len(single)):
            if self.chance(0.3):
                scale, knots = self.pick([1.0, 0.5]), self.pick([2, 3])
                columns[f"p{i}"] = Pair(*single[i - 1 : i + 1], knots, scale)
        groups = Schema(columns).layout(False).groups
        codes = sum(g.kind != "dense" for g in groups)
        norm = self.maybe(0.2, [0.3, 1.0, 2.0])
        norm = None if norm is None else math.sqrt(codes + norm**2)
        return Schema(columns, target=("y", target), row_norm=norm)

    def classes(self, most):
        levels: Any = self.pick(
            [["no", "yes"], [0, 1], [0, 1], [False, True]]
            if most == 2 or self.chance(0.7)
            else [["a", "b", "c"], [1, 2, 3, 4]]
        )
        return Categorical(levels, other=self.maybe(0.15, levels))

    # ---- cells

    def number(self, column, style, plain):
        low, high = column.low, column.high
        if style == "corner":
            return float(self.pick([low, high, high]))
        if style == "odd":
            return self.pick(FLOATS if plain or self.chance(0.5) else CELLS)
        return float(low + self.rng.random() * (high - low))

    def category(self, column, style):
        unknown = ["zzz", None, np.nan, "", 7, (1,), b"a"]
        if style == "odd":
            return self.pick(unknown)
        return self.pick(column.levels)

    def vector(self, column, style, plain):
        m, norm = len(column.names), column.norm
        if style == "odd":
            odd = FLOATS if plain else [*FLOATS, *CELLS]
            return [self.pick(odd) for _ in range(m)]
        if style == "corner":
            cells = self.rng.choice([-1.0, 1.0], m)
            if self.chance(0.5):
                cells *= np.arange(m) == self.rng.integers(m)
            return (cells * norm * self.pick([1.0, 1.0, 1e3])).tolist()
        return (self.rng.normal(size=m) * norm / math.sqrt(m)).tolist()

    def row(self, schema, style, plain):
        found = {}
        for key, column in schema.columns.items():
            if isinstance(column, Pair):
                continue
            own = style if style != "mixed" else self.pick(["corner", "odd", "usual"])
            if isinstance(column, Categorical):
                found[key] = self.category(column, own)
            elif isinstance(column, Vector):
                cells = self.vector(column, own, plain)
                found |= dict(zip(column.names, cells, strict=True))
            else:
                found[key] = self.number(column, own, plain)
        target, own = schema.target_column, style if style != "mixed" else "odd"
        if isinstance(target, Categorical):
            known = own != "odd" or self.chance(0.5)
            found["y"] = self.category(target, "usual" if known else "odd")
        else:
            found["y"] = self.number(target, own, plain)
        found["w"] = {
            "usual": lambda: float(self.rng.random()),
            "corner": lambda: 1e308,
        }.get(own, lambda: self.pick([*FLOATS, 0.0, -1.0]))()
        return found

    def opposed(self, schema, row):
        """The same features with the target at the other end."""
        target = schema.target_column
        if isinstance(target, Categorical):
            others = [level for level in target.levels if level != row["y"]]
            return row | {"y": self.pick(others or target.levels)}
        middle = target.low + (target.high - target.low) / 2
        number = row["y"] if isinstance(row["y"], float) else math.nan
        return row | {"y": target.low if number > middle else target.high}

    def rows(self, schema, n, plain):
        style = self.pick(["usual", "usual", "corner", "mixed", "constant"])
        if style == "constant":
            return [self.row(schema, "corner", plain)] * n
        return [self.row(schema, style, plain) for _ in range(n)]

    def neighbouring_tables(self, schema, neighbours, least=1, most=300):
        """Rows of two tables, and `lone`."""
        n = self.pick([n for n in ROWS if least <= n <= most])
        plain = self.chance(0.3)
        rows = self.rows(schema, n, plain)
        at = int(self.rng.integers(n))
        own = self.row(schema, self.pick(["corner", "corner", "mixed"]), plain)
        rows[at] = own
        if neighbours == "add-remove":
            pair, lone = [rows, rows[:at] + rows[at + 1 :]], (at, n)
        else:
            other = self.pick([self.opposed(schema, own), *self.rows(schema, 1, plain)])
            other = own | {"y": NULL} if neighbours == "zero-out" else other
            pair, lone = [rows, [*rows[:at], other, *rows[at + 1 :]]], None
        if self.chance(0.5):
            pair.reverse()
        return [tabled(schema, some, plain) for some in pair], n, lone

    def tables_of_persons(self, schema, neighbours):
        """Two tables that differ in one person's rows, and the number of persons."""
        n, plain = self.pick([1, 5, 30, 100]), self.chance(0.3)
        make = self.pick([int, str, lambda i: 2**60 + i, lambda i: f"p{i}"])
        ids = [make(int(i)) for i in self.rng.integers(0, max(2, n // 3), n)]
        others = [
            row | {"id": one}
            for row, one in zip(self.rows(schema, n, plain), ids, strict=True)
        ]
        if self.chance(0.3):
            others[0]["id"] = None
        own = make(-1)
        if neighbours == "add-remove" and self.chance(0.2):
            own = None  # such rows count for nothing
        pair = [[*others, *self.rows_of(schema, own, plain)], others]
        if neighbours == "replace-one":
            pair[1] = [
                *others,
                *self.rows_of(schema, self.pick([own, make(-2)]), plain),
            ]
        if self.chance(0.5):
            pair.reverse()
        tables = []
        for rows in pair:
            order = [rows[i] for i in self.rng.permutation(len(rows))]
            tables.append(tabled(schema, order, plain))
            # The type of a column is public, so no id may turn others into floats.
            tables[-1]["id"] = np.array([row["id"] for row in order], dtype=object)
        return tables, len({row["id"] for row in others} - {None}) + 1

    def rows_of(self, schema, one, plain):
        """Rows of one person."""
        many = self.pick([1, 1, 2, 10, 100])
        style = self.pick(["corner", "corner", "mixed"])
        rows = [self.row(schema, style, plain)] * many
        if self.chance(0.3):
            rows = [self.row(schema, style, plain) for _ in range(many)]
        return [row | {"id": one} for row in rows]

    # ---- parameters

    def budget(self):
        return {
            "epsilon": self.pick(EPSILONS),
            "delta": self.pick([None, None, 1e-5, 5e-4]),
        }

    def penalty(self, ridge):
        alpha = self.pick(["auto", "auto", 0.0, 1e-3, 0.1, 10.0])
        return {"alpha": alpha, "l1_ratio": 0.0 if ridge else self.pick([0.0, 0.5, 1])}

    def weighing(self, schema):
        """Whether rows have weights, and what they and classes count for."""
        found = {"max_weight": self.pick(WEIGHTS)}
        if isinstance(schema.target_column, Categorical) and self.chance(0.2):
            level, weight = schema.target_column.levels[0], self.pick([0, 0.5, 7, 1e9])
            found["class_weight"] = self.pick([{level: weight}, "balanced"])
        return found, self.maybe(0.4, ["w"])

    def kind(self, losses=()):
        """An estimator and a target for it."""
        if losses == ("squared",):
            kind = skdp.LinearRegression
        else:
            kind = self.pick(CLASSIFIERS + REGRESSORS)
        if kind in REGRESSORS:
            low, high = self.pick(RANGES[:4])
            counts = kind is skdp.PoissonRegressor
            return kind, Numeric(0.0 if counts else low, max(high, 1.0))
        several = issubclass(kind, skdp.LogisticRegression) and not losses
        return kind, self.classes(4 if several else 2)

    def estimator(self, solver, neighbours, schema, kind, n):
        """Parameters of an estimator, and the column of weights."""
        own, weight = self.weighing(schema)
        own |= self.budget() | {"neighbours": neighbours, "schema": schema}
        own |= self.penalty(solver in ("adassp", *CERTIFIED))
        own["fit_intercept"] = self.chance(0.8)
        own["engine"] = self.pick(["reference"] * 4 + ["compiled"])
        if kind in REGRESSORS:
            own["slope_bound"] = self.pick(["auto", "auto", 0.01, 0.3, 2.0])
        if neighbours == "add-remove":
            own["n_rows"] = self.pick([None, n, n + 3, 1])
        if solver == "skgd":
            own["geometry"] = self.pick(["auto", "auto", "matrix", "diagonal"])
            if own["geometry"] != "matrix":
                own["sampling"] = self.pick(SAMPLINGS)
            own["calibration"] = self.pick(["exact", "exact", "exact", "paper"])
            own["n_steps"] = self.pick([1, 2, 3, 5])
            own["verbose"] = int(self.chance(0.02))
        elif solver in ("dp_sgd", "dp_cd", "dp_gcd", "dp_sega"):
            own["n_steps"] = self.pick([1, 2, 3])
        if solver != "skgd":
            own["solver"] = solver
        return own, weight


def tabled(schema, rows, plain):
    """Rows as columns: of floats where cells are nothing else, of objects if not."""
    names = [*schema.inputs, "y", "w", *schema.unit_columns]
    numeric = {"w"}
    for key, column in schema.columns.items():
        if not isinstance(column, Categorical):
            numeric |= set(column.names if isinstance(column, Vector) else [key])
    typed = numeric if plain else set()
    return {
        name: np.fromiter(
            (row[name] for row in rows),
            dtype=float if name in typed else object,
            count=len(rows),
        )
        for name in names
    }
