"""No pair of neighbouring tables is told apart by anything but noise that was paid for.

A fixed, modest number of random pairs for everything that reads records; `make bench
NAME=attack` runs many more. `watch` says what is compared, and `pairs` what is
drawn.
"""

import itertools
import math
import re
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pairs import NEIGHBOURS, RELATIONS, SUBJECTS, pair
from watch import NULL, compare, distance

import skdp
from skdp.estimators import opening
from skdp.models.losses import SmoothedHinge
from skdp.privacy import queries
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.queries import Kind
from skdp.schema import Categorical, Numeric, Schema, Vector
from skdp.solvers import Problem, output_perturbation
from skdp.tables import batches

#: Pairs of each subject and relation.
PAIRS = {
    "skgd": 25,
    "persons": 20,
    "preset": 8,
    "sketch": 12,
    "evaluate": 8,
    "discovery": 8,
    "dp_gcd()": 25,
}
PAIRS |= {"objective_perturbation": 2, "objective_perturbation()": 3}  # slow
USUAL = 5
#: Queries whose bound some pair reaches, by the start of their text.
REACHED = {
    "skgd": ("gradient of", "counts of", "histogram of", "# entries of"),
    "sketch": ("gradient of # coordinates in a matrix metric", "# entries of"),
    "discovery": ("magnitudes of", "counts of categories"),
    "evaluate": ("scores",),
    "dp_sgd()": ("gradient of",),
    "adassp": ("# entries of",),
}


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    """Compile the kernels first. Each process prints a line on stderr when it does."""
    model = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1], engine="compiled")
    model.fit(np.ones((9, 2)), [0, 1, 1] * 3)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_neighbours_differ_by_what_was_paid_for(subject):
    ratios, refused, tried = defaultdict(float), 0, 0
    for neighbours in RELATIONS.get(subject, NEIGHBOURS):
        for seed in range(PAIRS.get(subject, USUAL)):
            drawn = pair(seed, subject, neighbours)
            found = drawn.compare()
            assert not found.wrong, (seed, subject, neighbours, drawn.told, found.wrong)
            tried += 1
            refused += found.error is not None
            for query, ratio in found.ratios.items():
                ratios[query] = max(ratio, ratios[query])
    assert refused <= 0.6 * tried, "Too few of the pairs are fitted at all."
    for start in REACHED.get(subject, ()):
        reached = max(r for query, r in ratios.items() if query.startswith(start))
        assert reached > 0.99, f"No pair comes near the bound of {start!r}: {reached}"


# ---- pairs that once were told apart


@pytest.mark.parametrize("neighbours", NEIGHBOURS[:2])
@pytest.mark.parametrize("solver", ["output_perturbation", "objective_perturbation"])
@pytest.mark.parametrize("max_weight", [0.5, 1e-4])
def test_a_row_without_a_weight_counts_no_more_than_the_largest(
    solver, max_weight, neighbours
):
    n = 20
    schema = Schema(
        {"id": Numeric(0, n, bins=n)}, target=("ill", Categorical(["no", "yes"]))
    )
    table = {
        "id": np.arange(n) + 0.5,
        "ill": np.array(["no", "yes"] * (n // 2), dtype=object),
    }
    other = table | {"ill": table["ill"].copy()}
    other["ill"][3] = NULL if neighbours == "zero-out" else "no"

    def act(given):
        return skdp.LogisticRegression(
            epsilon=0.1,
            schema=schema,
            solver=solver,
            max_weight=max_weight,
            fit_intercept=False,
            neighbours=neighbours,
        ).fit(given)

    found = compare(act, table, other, neighbours=neighbours)
    assert found.error is None
    assert found.wrong == []
    assert max(found.ratios.values()) > 0.1


@pytest.mark.parametrize("ridge", [1e-8, 1e-5, 1e-2])
@pytest.mark.parametrize("seed", range(3))
def test_no_minimiser_is_found_for_one_of_two_tables_only(seed, ridge):
    """Whether a hinge with a tiny ridge can be solved depends on records."""
    n, width, rng = 40, 31, np.random.default_rng(seed)
    names = [f"v{j}" for j in range(width)]
    schema = Schema({"v": Vector(names)}, target=Categorical([0, 1]))
    table = rng.normal(size=(n, width)), rng.integers(0, 2, n)
    other = table[0].copy(), table[1].copy()
    other[0][0], other[1][0] = 0.0, 1 - table[1][0]

    def act(given):
        rows, labels = given
        batch = Batch(columns={"v": rows}, target=Coded(labels, [0, 1]))
        problem = Problem(
            records=encode([batch], schema),
            loss=SmoothedHinge(),
            n_rows=n,
            neighbours="replace-one",
        )
        return output_perturbation(problem, epsilon=1.0, ridge=ridge)

    assert compare(act, table, other, neighbours="replace-one").wrong == []


def test_the_progress_of_an_empty_table_is_that_of_any():
    """Under add-remove, whether there is a row at all is private."""
    schema, table, _ = usual()
    tables = [{name: column[:n] for name, column in table.items()} for n in (1, 0)]

    def act(given):
        return skdp.LogisticRegression(
            schema=schema, n_steps=1, neighbours="add-remove", n_rows=5, verbose=1
        ).fit(given)

    found = compare(act, *tables, neighbours="add-remove", lone=(0, 1))
    assert (found.wrong, found.error) == ([], None)


@pytest.mark.parametrize("seconds", [0.0, 0.4, 100.0])
def test_a_bar_shows_neither_how_much_was_read_nor_how_long_it_took(
    capsys, monkeypatch, tmp_path, seconds
):
    """One long cell makes a file longer and slower to read."""
    clock = itertools.count(0.0, seconds)
    monkeypatch.setattr("rich.console.monotonic", lambda: next(clock))
    schema, table, _ = usual()
    path = tmp_path / "t.csv"
    pd.DataFrame(table | {"text": "a" * int(1 + seconds)}).to_csv(path, index=False)
    opening.read_records(
        path,
        schema,
        target=None,
        sample_weight=None,
        class_weight=None,
        intercept=True,
        max_weight=1.0,
        verbose=1,
    )
    assert re.fullmatch(r"reading ━+\s*", capsys.readouterr().err)


@pytest.mark.parametrize("setting", ["raise", "warn"])
@pytest.mark.parametrize("read", ["fit", "encode"])
def test_settings_of_numpy_show_no_cell(read, setting):
    """An exposure that underflows must not become an error or a warning."""
    schema, table, _ = usual()
    schema = replace(schema, target=("y", Numeric(0, 1)))
    tables = [table | {"w": np.array([one, *[0.5] * 11])} for one in (0.5, 1e-40)]

    def act(given):
        with np.errstate(all=setting):
            if read == "encode":
                encode(batches(given, schema, sample_weight="w"), schema)
                return None
            own = {"schema": schema, "n_steps": 1, "neighbours": "replace-one"}
            return skdp.PoissonRegressor(**own).fit(given, exposure="w")

    found = compare(act, *tables, neighbours="replace-one")
    assert (found.wrong, found.error) == ([], None)


# ---- the harness can fail


def usual():
    """A table of two numbers and a class, and its neighbour."""
    rng = np.random.default_rng(0)
    schema = Schema(
        {"a": Numeric(0, 1), "b": Numeric(0, 1)}, target=("y", Categorical([0, 1]))
    )
    table = {name: rng.random(12) for name in "ab"} | {"y": np.array([0, 1] * 6)}
    other = {name: column.copy() for name, column in table.items()}
    other["a"][5] = 1.0
    return schema, table, other


def leaks():
    """Side effects of a fit on its table, besides releases."""
    return {
        "prints": lambda _, table: print(table["a"].max()),
        "raises": lambda _, table: 1 // int(table["a"].max() < 1.0),
        "keeps": lambda model, table: setattr(model, "largest_", table["a"].max()),
        "rounds": lambda model, table: model.weights_.__iadd__(
            1e-16 * table["a"].max()
        ),
        "remembers": lambda model, table: vars(model).update(
            _seen=len(table["a"][table["a"] == 1.0])
        ),
    }


@pytest.mark.parametrize("leak", [None, *leaks()])
def test_what_shows_beside_releases_is_found(leak):
    schema, table, other = usual()

    def act(given):
        model = skdp.LogisticRegression(
            schema=schema, n_steps=2, geometry="diagonal", neighbours="replace-one"
        ).fit(given)
        if leak is not None:
            leaks()[leak](model, given)
        return model

    found = compare(act, table, other, neighbours="replace-one")
    assert bool(found.wrong) == (leak is not None)
    assert found.n_releases == 2  # steps


def test_a_record_more_is_found_by_what_a_fit_counts():
    schema, table, _ = usual()
    shorter = {name: column[:-1] for name, column in table.items()}

    def act(given, n_rows):
        return skdp.LogisticRegression(
            schema=schema, n_steps=2, neighbours="add-remove", n_rows=n_rows
        ).fit(given)

    for n_rows in (None, 12):
        found = compare(
            lambda given, n_rows=n_rows: act(given, n_rows),
            table,
            shorter,
            neighbours="add-remove",
            lone=(11, 12),
        )
        assert found.wrong == []
    found = compare(
        lambda given: act(given, len(given["y"])),
        table,
        shorter,
        neighbours="add-remove",
        lone=(11, 12),
    )
    assert any("n_rows" in line for line in found.wrong)


def test_distances_are_exact_where_they_are_near_the_bound():
    def total(values, sensitivity=1.0):
        integers = np.array(values, dtype=object)
        return queries.BoundedSum(
            integers, 2.0**-70, np.ones(2), sensitivity, Kind.STATED, "q"
        )

    one, zero = total([2**70, 0]), total([0, 0])
    assert distance(zero, one) == 1.0
    assert distance(zero, total([2**70 + 1, 0])) > 1.0
    assert distance(zero, total([2**70, 1])) > 1.0
    assert distance(zero, total([2**69, 0])) == 0.5
    assert distance(zero, zero) == 0.0
    below = total([2**70, 0], math.nextafter(1.0, 0.0))
    assert distance(below, zero) > 1.0
