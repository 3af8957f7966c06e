"""Fit the model that a formula describes. This is the function `skdp.fit`.

A formula is parsed by formulaic, and then read with a schema alone. No record decides
what its terms mean, so ranges, levels and references are public.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any

from skdp.estimators.fit import ESTIMATORS
from skdp.schema import (
    Categorical,
    Column,
    Factor,
    InputError,
    Numeric,
    Pair,
    Product,
    Schema,
    check,
    toml_files,
)

#: The estimator of each family of distributions.
FAMILIES = {
    "gaussian": "linear",
    "binomial": "logistic",
    "poisson": "poisson",
    "huber": "huber",
}
#: Functions that would read records, and what to use instead.
_REFUSED = {
    "bs cr cs cc te hats lag": "Use Numeric(low, high, knots=...) in the schema, which "
    "makes the column a curve, or an additive model.",
    "poly": "Use Numeric(low, high, knots=...) in the schema, which makes the column a "
    "curve.",
    "scale center standardize": "Leave it out. Columns are scaled by their public "
    "ranges, and coefficients are in the units of the table.",
    "offset": "Pass offset= or exposure= to skdp.fit with family='poisson'.",
    "I": "Only log(x), log1p(x) and products such as a:b are computed. Compute other "
    "columns before the fit, and describe them in the schema.",
}


def fit(
    formula: str,
    table: Any,
    schema: Schema | str | PathLike[str],
    family: str = "gaussian",
    epsilon: float = 1.0,
    **parameters: Any,
) -> Any:
    """Fit a private model that a formula describes, as in R and statsmodels.

    Parameters
    ----------
    formula : str
        The target and the terms, such as
        ``"readmitted ~ age + C(ward, Treatment('a')) + age:sex"``. The terms are names
        of columns, ``C(x)``, ``C(x, Treatment('a'))``, ``C(x, Sum)``, ``log(x)``,
        ``log1p(x)``, and interactions ``a:b`` or ``a*b`` of two of them. ``.`` stands
        for all other columns of the schema, and ``- 1`` leaves out the intercept.
        Names with other characters are written in backticks.
    table : table
        The records, in any form that an estimator's ``fit`` takes.
    schema : Schema or path
        The public description of all columns that the formula names.
    family : {"gaussian", "binomial", "poisson", "huber"}
        The distribution of the target. "huber" is a robust linear regression.
    epsilon : float
        The privacy budget.
    **parameters
        Other parameters of the estimator or of its ``fit``, such as ``sample_weight``
        and ``exposure``.

    Returns
    -------
    model : PrivateLinearModel
        The fitted estimator. It predicts tables with the columns that the formula
        names, and has ``summary()`` and the results of statsmodels, such as ``params``.

    Notes
    -----
    Categories are compared with the level that ``Treatment`` names, or else the
    schema's reference, or else the first level of the schema. An interaction of numbers
    is their product. One of a number and a category is a slope for each level, relative
    to the reference if the number is also a term. One of two categories needs both as
    terms, and has a coefficient for each combination of levels other than references.
    Each coefficient belongs to a public column of the schema (`skdp.schema.Product`).
    If its columns are terms too, it is measured from the middle of the rows inside, and
    all coefficients are reported as if it was not.

    Examples
    --------
    >>> import skdp
    >>> table, schema = skdp.make_hospital(2_000, random_state=0)  # doctest: +SKIP
    >>> skdp.fit("readmitted ~ age", table, schema, "binomial")  # doctest: +SKIP
    """
    given = toml_files.accept_schema(schema)
    check(given is not None, "schema must be a Schema or a path, got None.")
    assert given is not None
    check(
        isinstance(family, str) and family in FAMILIES,
        f"family must be one of {sorted(FAMILIES)}, got {family!r}.",
    )
    described, intercept = read_formula(formula, given)
    for name in ("schema", "fit_intercept"):
        check(name not in parameters, f"The formula decides {name}. Leave it out.")
    made = ESTIMATORS[FAMILIES[family]]
    accepted = [*inspect.signature(made.fit).parameters][3:]  # after self, X and y
    options = {k: parameters.pop(k) for k in accepted if k in parameters}
    model = made(
        schema=described, fit_intercept=intercept, epsilon=epsilon, **parameters
    )
    return model.fit(table, **options)


def read_formula(formula: str, schema: Schema) -> tuple[Schema, bool]:
    """Return the schema that a formula describes, and whether there is an intercept.

    The columns of the result are the terms of the formula, with an additional column
    for each coefficient of an interaction.
    """
    check(isinstance(formula, str), f"formula must be a string, got {formula!r:.99}.")
    columns: dict[str, Column] = dict(schema.columns)
    if isinstance(schema.target, tuple):
        columns[schema.target[0]] = schema.target[1]
    target, parsed = _split_formula(formula, [*columns])
    check(
        target in columns and isinstance(columns[target], (Numeric, Categorical)),
        f"The schema does not describe the target {target!r} of the formula. Describe "
        f"it: target=({target!r}, ...).",
    )
    described = columns.pop(target)
    assert isinstance(described, (Numeric, Categorical))
    if isinstance(described, Categorical):
        described = replace(described, reference=None)
    intercept = () in parsed
    terms = [tuple(_read_word(one, columns) for one in term) for term in parsed if term]
    found = _Design(intercept)
    for term in sorted(terms, key=len):
        check(
            len(term) <= 2,
            f"An interaction may have two columns, got {':'.join(map(str, term))}.",
        )
        found.add(*term)
    check(bool(found.columns), "The formula has no columns. Add one after the ~.")
    made = Schema(
        found.columns,
        target=(target, described),
        row_norm=schema.row_norm,
        unit=schema.unit,
    )
    return made, intercept


def _split_formula(formula: str, names: list[str]) -> tuple[str, list[tuple[str, ...]]]:
    """Return the name of the target, and the parts of each term. () is the intercept.

    The `names` of the schema's columns are what a dot stands for.
    """
    try:
        parser = importlib.import_module("formulaic.parser")
        errors = importlib.import_module("formulaic.errors")
    except ImportError:
        raise ImportError(
            "A formula requires formulaic: pip install 'skdp[formula]'."
        ) from None
    context = {"__formulaic_variables_available__": names}
    shown = f"The formula {formula[:200]!r}"
    try:
        found = parser.DefaultFormulaParser().get_terms(formula, context=context)
        sides = found._structure
        (left,) = sides["lhs"]
        terms = [tuple(one.expr for one in term.factors) for term in sides["rhs"]]
        (target,) = (one.expr for one in left.factors)
    except errors.FormulaSyntaxError as error:
        first = str(error).partition("\n")[0]
        raise InputError(f"{shown} cannot be parsed. {first}") from None
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InputError(
            f"{shown} must have one target and one list of terms, as in 'y ~ a + b'."
        ) from None
    check(
        target in names,
        f"{shown} must have a column of the schema as its target, got {target!r}. "
        "Transform the column before the fit.",
    )
    kept = [() if term == ("1",) else term for term in terms]
    check(
        not any(one.replace(".", "", 1).isdigit() for term in kept for one in term),
        f"{shown} has a number as a factor. Leave it out.",
    )
    return target, kept


@dataclass(frozen=True)
class _Word:
    """One part of a term: a column, and what the formula says about it."""

    name: str
    column: Column
    transform: Any = "linear"
    #: Whether the formula only names the column, without C().
    bare: bool = False

    def __str__(self) -> str:
        plain = self.transform == "linear"
        return self.name if plain else f"{self.transform}({self.name})"

    def list_factors(self, full: bool) -> list[tuple[str, Factor]]:
        """Return a factor for each coefficient, with its name.

        A category has one for each level, without the reference unless `full`.
        """
        if not isinstance(self.column, Categorical):
            column: Any = self.column
            factor = Factor(self.name, column, transform=self.transform)
            return [(str(self), factor)]
        reference = self.column.reference_code
        check(
            full or reference is not None,
            f"An interaction of {self.name!r} requires a reference. Leave out Sum.",
        )
        plain = replace(self.column, reference=None)
        return [
            (
                f"{self.name}[{'' if full else 'T.'}{level}]",
                Factor(self.name, plain, level),
            )
            for code, level in enumerate(self.column.levels)
            if full or code != reference
        ]


@dataclass(frozen=True)
class _Design:
    """Collects the columns of the schema that terms stand for."""

    intercept: bool
    columns: dict[str, Column] = field(default_factory=dict)
    mains: dict[str, _Word] = field(default_factory=dict)

    def add(self, first: _Word, second: _Word | None = None) -> None:
        """Add a column, or an interaction of two."""
        if second is None:
            self._add_main(first)
            return
        first, second = parts = tuple(
            self.mains.get(str(part), part) if part.bare else part
            for part in (first, second)
        )
        for part in parts:
            check(
                isinstance(part.column, (Numeric, Categorical)),
                f"Column {part.name!r} is a {part.column.title}, so it cannot be part "
                "of an interaction.",
            )
            known = self.mains.get(str(part), part)
            check(
                known.column == part.column,
                f"The formula describes {part.name!r} in two ways. Write C({part.name}"
                ", ...) in the same way in all terms.",
            )
        levels = [isinstance(part.column, Categorical) for part in parts]
        mains = [str(part) in self.mains for part in parts]
        if all(levels):
            check(
                self.intercept and all(mains),
                f"The interaction {first}:{second} of two categories requires an "
                f"intercept and both columns as terms. Write {first} * {second}.",
            )
        # The slope of a number at the reference is its own coefficient, if it has one.
        full = [any(levels) and not all(levels) and not mains[1 - i] for i in (0, 1)]
        # What centring subtracts must have coefficients that can take it.
        centred = all(mains) and self.intercept
        for a, one in first.list_factors(full[0]):
            for b, other in second.list_factors(full[1]):
                self._put(f"{a}:{b}", Product.of(one, other, centred=centred))

    def _add_main(self, part: _Word) -> None:
        known = self.mains.get(str(part))
        check(
            known is None,
            f"The formula has {part.name!r} as two terms.",
        )
        self.mains[str(part)] = part
        if part.transform == "linear":
            self._put(part.name, part.column)
        else:
            ((name, factor),) = part.list_factors(True)
            self._put(name, Product.of(factor))

    def _put(self, name: str, column: Column) -> None:
        check(name not in self.columns, f"The formula describes {name!r} twice.")
        self.columns[name] = column


def _read_word(text: str, columns: Mapping[str, Column]) -> _Word:
    """Return what a part of a term says, or raise an error that says what to use."""
    if text in columns:
        return _Word(text, _choose_reference(text, columns), bare=True)
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        tree = None
    if not isinstance(tree, ast.Call):
        what = text if isinstance(tree, ast.Name) or tree is None else ""
        check(
            not what,
            f"The schema has no column {text!r}. Its columns are "
            f"{', '.join(map(str, columns))}.",
        )
        raise InputError(f"{text!r} cannot be part of a formula. {_REFUSED['I']}")
    called = ast.unparse(tree.func).removeprefix("np.").removeprefix("numpy.")
    name = _read_name(tree, columns, text)
    if called == "Q":
        return _Word(name, _choose_reference(name, columns))
    column = columns[name]
    if called in ("log", "log1p"):
        check(
            isinstance(column, Numeric) and len(tree.args) == 1 and not tree.keywords,
            f"{text!r} requires a numeric column.",
        )
        return _Word(name, column, called)
    if called != "C":
        for known, remedy in _REFUSED.items():
            if called in known.split():
                raise InputError(
                    f"{text!r} cannot be part of a private formula. {remedy}"
                )
        raise InputError(
            f"A formula has no function {called!r}, got {text!r}. {_REFUSED['I']}"
        )
    check(
        isinstance(column, Categorical),
        f"{text!r} requires levels that are public. Describe {name!r} in the schema as "
        "Categorical([...]).",
    )
    return _Word(name, _read_contrasts(tree, name, columns, text))


def _read_name(call: ast.Call, columns: Mapping[str, Column], text: str) -> str:
    """Return the column that a function is called with."""
    first = call.args[0] if call.args else None
    called = ast.unparse(call.func)
    if isinstance(first, ast.Call) and ast.unparse(first.func) == "Q":
        return _read_name(first, columns, text)
    name = first.id if isinstance(first, ast.Name) else None
    if called == "Q" and isinstance(first, ast.Constant):
        name = str(first.value)
    known = [one for names in _REFUSED for one in names.split()]
    if name is None:
        remedy = next((r for k, r in _REFUSED.items() if called in k.split()), None)
        raise InputError(
            f"{text!r} cannot be part of a formula. {remedy or _REFUSED['I']}"
        )
    check(
        name in columns or called in known,
        f"The schema has no column {name!r}. Its columns are "
        f"{', '.join(map(str, columns))}.",
    )
    return name


def _choose_reference(name: str, columns: Mapping[str, Column]) -> Column:
    """Return a column; a category is compared with its first level by default."""
    column = columns[name]
    check(
        not isinstance(column, Pair),
        f"{name!r} is a pair of the schema, which a formula cannot have. Use an "
        "additive model, or an interaction a:b.",
    )
    if isinstance(column, Categorical) and column.reference is None:
        return replace(column, reference=column.levels[0])
    return column


def _read_contrasts(
    call: ast.Call, name: str, columns: Mapping[str, Column], text: str
) -> Categorical:
    """Return the column of C(x), C(x, Treatment('a')) or C(x, Sum)."""
    column = _choose_reference(name, columns)
    assert isinstance(column, Categorical)
    rest = [*call.args[1:], *(k.value for k in call.keywords if k.arg == "contr")]
    problem = (
        f"{text!r} must be C({name}), C({name}, Treatment('level')) or C({name}, Sum). "
        "Levels are those of the schema."
    )
    check(
        len(rest) <= 1 and len(rest) == len(call.args) - 1 + len(call.keywords), problem
    )
    if not rest:
        return column
    given = rest[0]
    called = ast.unparse(given.func if isinstance(given, ast.Call) else given)
    levels: Iterable[ast.expr] = ()
    if isinstance(given, ast.Call):
        levels = [*given.args, *(one.value for one in given.keywords)]
    values = [one.value for one in levels if isinstance(one, ast.Constant)]
    if called in ("Sum", "contr.sum", "SumContrasts") and not [*levels]:
        return replace(column, reference=None)
    known = called in ("Treatment", "contr.treatment", "TreatmentContrasts")
    check(known and len(values) == len([*levels]) <= 1, problem)
    return replace(column, reference=values[0]) if values else column
