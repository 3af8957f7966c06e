"""Scores of subgroups: those of their rows, for the price of scores of all rows."""

import math

import numpy as np
import pandas as pd
import pytest

import skdp
from skdp.estimators.opening import open_table
from skdp.evaluation import score_cells
from skdp.evaluation.evaluate import Grouping, encode_table
from skdp.evaluation.metrics import CONFUSION, LOSS, predict_rows
from skdp.evaluation.score_cells import make_confusion, make_moments, split_by_group
from skdp.privacy.encoding import Records

N = 900
rng = np.random.default_rng(4)
TABLE = pd.DataFrame(
    {
        "age": rng.uniform(0, 90, N),
        "ward": rng.choice(["a", "b", "c"], N),
        "sex": rng.choice(["f", "m", "?"], N, p=[0.3, 0.6, 0.1]),
        "who": rng.integers(0, 300, N),
    }
)
TABLE["left"] = np.where(TABLE["age"] + 20 * rng.normal(size=N) > 45, "yes", "no")
TABLE["days"] = TABLE["age"] / 10 + rng.normal(size=N)
COLUMNS = {"age": skdp.Numeric(0, 90), "ward": skdp.Categorical(["a", "b"], other="b")}
LEFT = skdp.Schema(COLUMNS, target=("left", skdp.Categorical(["no", "yes"])))
DAYS = skdp.Schema(COLUMNS, target=("days", skdp.Numeric(-5, 15)))
SEX = ("sex", skdp.Categorical(["f", "m", "none"]))
EXACT = {"epsilon": math.inf, "neighbours": "zero-out", "n_steps": 20}
MODELS = {
    "classes": skdp.LogisticRegression(schema=LEFT, **EXACT).fit(TABLE),
    "numbers": skdp.LinearRegression(schema=DAYS, **EXACT).fit(TABLE),
    "curves": skdp.AdditiveClassifier(
        schema=LEFT, knots=3, pairs=[("age", "ward")], **EXACT
    ).fit(TABLE),
}


def score(kind, table=TABLE, **options):
    options = {"epsilon": math.inf, "max_residual": 20.0} | options
    if kind != "numbers":
        del options["max_residual"]
        options.setdefault("metrics", ["accuracy", "log_loss", "f1"])
    return skdp.evaluate(MODELS[kind], table, **options)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("by", ["ward", SEX], ids=["in the model", "beside it"])
def test_a_subgroup_has_the_scores_of_its_rows(kind, by):
    found, name = score(kind, by=by), by if isinstance(by, str) else by[0]
    assert found.values == pytest.approx(score(kind).values)
    assert sum(group.n_rows for group in found.groups) == pytest.approx(N)
    levels = [group.level for group in found.groups]
    assert levels == (["a", "b"] if by == "ward" else ["f", "m", "none", None])
    for group in found.groups:
        own = {"b": ["b", "c"], None: ["?"]}.get(group.level, [group.level])
        rows = TABLE[TABLE[name].isin(own)]
        assert group.n_rows == pytest.approx(len(rows))
        expected = score(kind, rows).values if len(rows) else {}
        values = {name: one.value for name, one in group.scores.items()}
        for metric in set(expected) - {"r2"}:  # the target is clipped elsewhere
            assert values[metric] == pytest.approx(expected[metric]), metric
    assert found.to_frame().shape == ((len(levels) + 1) * len(found.scores), 6)


@pytest.mark.parametrize("neighbours", ["add-remove", "zero-out", "replace-one"])
def test_subgroups_cost_what_scores_of_all_rows_cost(neighbours):
    options = {"epsilon": 1.0, "random_state": 0, "neighbours": neighbours}
    alone, apart = score("classes", **options), score("classes", by=SEX, **options)
    (one,), (other,) = alone.privacy_.events, apart.privacy_.events
    assert one.mu_squared == other.mu_squared
    assert one.sensitivity == other.sensitivity
    assert "accuracy" not in other.query
    assert "by sex" in other.query
    assert "The categories of 'sex' are public." in apart.privacy_.assumptions
    spread = [e.privacy_.transcript[-1].noise_std.max() for e in (alone, apart)]
    assert spread[0] == spread[1]


def test_nothing_is_said_of_a_subgroup_that_may_be_empty():
    for seed in range(8):
        empty = score("classes", by=SEX, epsilon=1.0, random_state=seed).groups[2]
        assert empty.level == "none"
        assert empty.n_rows <= 6 * empty.n_rows_std
        assert all(one.too_noisy for one in empty.scores.values())


def add_up(table, unit=None):
    """The exact sums of two columns by sex, one list for each column."""
    grouping = Grouping.of(MODELS["classes"], SEX)
    opened = open_table(table, None, schema=grouping.schema, unit=unit)
    records: Records = encode_table(
        MODELS["classes"], opened, 1.0, schema=grouping.schema
    )
    columns = [
        make_confusion(CONFUSION, 2),
        make_moments(LOSS, lambda rows: rows.compute_log_loss(5.0)),
    ]
    columns = [split_by_group(one, len(grouping.levels), "sex") for one in columns]
    rows = predict_rows(records, grouping.weights, False, grouping.place)
    found = score_cells.sum_columns(columns, rows, "replace-one")
    return np.split(found.value, [columns[0].size]), found.sensitivity


def test_a_record_divides_one_unit_among_all_subgroups():
    """The rows of a person too, though they are in different subgroups."""
    whole, sensitivity = add_up(TABLE)
    for row in (0, 1, 2, 3):
        rest, _ = add_up(TABLE.drop(index=row))
        for one, other in zip(whole, rest, strict=True):
            assert min(one - other) >= 0
            assert sum(one - other) == score_cells.UNIT
    changed, _ = add_up(TABLE.assign(sex=["m", *TABLE["sex"][1:]]))
    apart = np.concatenate(whole) - np.concatenate(changed)
    assert math.sqrt(sum(int(x) ** 2 for x in apart)) <= sensitivity
    by_person, _ = add_up(TABLE, "who")
    person = TABLE["who"].mode()[0]
    rest, _ = add_up(TABLE[TABLE["who"] != person], "who")
    assert TABLE.loc[TABLE["who"] == person, "sex"].nunique() > 1
    for one, other in zip(by_person, rest, strict=True):
        assert min(one - other) >= 0
        assert 0.99 * score_cells.UNIT < sum(one - other) <= score_cells.UNIT


def test_what_cannot_divide_the_rows_is_refused():
    model = MODELS["classes"]
    for by in ("age", "sex", 3, ("sex", ["f", "m"])):
        with pytest.raises(ValueError, match="by must be"):
            skdp.evaluate(model, TABLE, epsilon=1.0, by=by)
    with pytest.raises(ValueError, match="describes 'ward' already"):
        skdp.evaluate(model, TABLE, epsilon=1.0, by=("ward", SEX[1]))
    with pytest.raises(ValueError, match="has no column 'sex'"):
        skdp.evaluate(model, TABLE.drop(columns="sex"), epsilon=1.0, by=SEX)
    many = skdp.Categorical([*map(str, range(60))])
    with pytest.raises(ValueError, match="at most 50 subgroups, got 61"):
        skdp.evaluate(model, TABLE, epsilon=1.0, by=("who", many))


def test_they_are_printed_and_saved():
    found = score("classes", by=SEX)
    lines = str(found).splitlines()
    assert sum(line.startswith("sex ") for line in lines) == 3
    assert sum(line.startswith("(no category)") for line in lines) == 3
    groups = found.to_dict()["groups"]
    assert [one["level"] for one in groups] == ["f", "m", "none", None]
    assert "Scores by sex" in skdp.report(found)
