import math

import numpy as np
import pytest

from skdp.datasets import COLUMNS, TARGETS, Dataset, compute_true_margins, make_hospital
from skdp.descent.matrix import InterceptOnly, Matrix
from skdp.descent.plan import run
from skdp.descent.rule import choose_cap, choose_geometry, make_default_plan
from skdp.models.losses import Logistic, Loss, Poisson, Squared
from skdp.privacy.encoding import Records, encode
from skdp.schema import Categorical

LOSS = {"readmitted": Logistic(), "cost": Squared(), "visits": Poisson()}


@pytest.fixture(scope="module", params=TARGETS)
def drawn(request: pytest.FixtureRequest) -> tuple[Dataset, Records, Loss]:
    data = make_hospital(50_000, random_state=5, target=request.param)
    return data, encode([data.batch], data.schema), LOSS[request.param]


def rows_of(records: Records) -> int:
    return sum(len(chunk.target) for chunk in records.chunks)


def test_the_truth_names_every_coordinate(drawn):
    data, records, _ = drawn
    assert list(data.truth) == records.layout.labels
    assert data.weights.shape == (records.layout.n_features, 1)
    for group in records.layout.groups:
        if group.kind == "code":
            assert data.weights[group.coordinates].sum() == pytest.approx(0, abs=1e-12)


def test_the_columns_are_the_batch(drawn):
    data, records, _ = drawn
    target = data.schema.target_name
    assert set(data.columns) == {*COLUMNS, target}
    assert {len(column) for column in data.columns.values()} == {50_000}
    assert rows_of(records) == 50_000
    for name, column in COLUMNS.items():
        if isinstance(column, Categorical):
            assert set(data.columns[name]) == set(column.levels)


def test_the_target_follows_the_model_at_the_true_weights(drawn):
    # The mean gradient at w* has mean zero; its size is that of a sum of n slopes.
    data, records, loss = drawn
    margin = compute_true_margins(records, data.weights)
    target = records.chunks[0].target
    slope = loss.slope(margin, target)[:, 0]
    for name in COLUMNS:
        if data.columns[name].dtype.kind == "f":
            part = np.nan_to_num(data.columns[name]) * slope
            assert abs(part.mean()) < 5 * part.std() / math.sqrt(len(part))
    # A wrong model is seen: half of each weight does not pass the same test.
    wrong = loss.slope(margin / 2, target)[:, 0]
    assert abs(wrong.mean()) > 20 * wrong.std() / math.sqrt(len(wrong))


def test_margins_are_the_encoded_row_times_the_weights():
    data = make_hospital(200)
    records = encode([data.batch], data.schema)
    expected = np.full(200, data.truth["intercept"])
    for name, column in COLUMNS.items():
        if isinstance(column, Categorical):
            weight = [data.truth[f"{name}={level}"] for level in data.columns[name]]
            expected += weight
        else:
            expected += data.truth[name] * column.rescale(data.columns[name])[0]
    got = compute_true_margins(records, data.weights)[:, 0]
    np.testing.assert_allclose(got, expected, atol=6 * 3 * 2**-14)


def test_a_missing_value_is_encoded_as_the_public_default():
    data = make_hospital(5_000)
    missing = np.isnan(data.columns["creatinine"])
    assert 0.1 < missing.mean() < 0.15
    part = encode([data.batch], data.schema).chunks[0].parts[3][:, 0]
    default = COLUMNS["creatinine"].rescale(np.array([1.0]))[0][0]
    assert set(part[missing]) == {math.floor(default * 2**14)}


def test_the_table_is_skewed_as_hospitals_are():
    data = make_hospital()
    assert 0.12 < (data.columns["readmitted"] == "yes").mean() < 0.20
    for name in ("length_of_stay", "prior_admissions", "creatinine"):
        values = data.columns[name]
        assert np.nanmean(values) > 1.05 * np.nanmedian(values)
    levels, counts = np.unique(data.columns["department"], return_counts=True)
    assert counts.max() > 10 * counts.min()
    assert len(levels) == 8


def test_the_seed_decides_the_table():
    one, same, other = make_hospital(50, 1), make_hospital(50, 1), make_hospital(50, 2)
    for name, column in one.columns.items():
        np.testing.assert_array_equal(column, same.columns[name])
    assert any((other.columns[name] != one.columns[name]).any() for name in COLUMNS)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"n_rows": 0}, "n_rows must be at least 1"),
        ({"random_state": -1}, "random_state must be at least 0"),
        ({"target": "mood"}, "must be one of"),
    ],
)
def test_what_is_wrong_is_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        make_hospital(**arguments)


@pytest.mark.parametrize("target", TARGETS)
def test_the_rule_without_noise_recovers_the_true_weights(target):
    data, loss = make_hospital(10_000, target=target), LOSS[target]
    records = encode([data.batch], data.schema)
    # The Poisson bound on the curvature is far above what these rates have.
    steps = 400 if target == "visits" else None
    plan = make_default_plan(records.layout, loss, n_rows=10_000, n_steps=steps)
    got, true = (
        compute_true_margins(records, w)
        for w in (run(plan, records).weights, data.weights)
    )
    seen = records.chunks[0].target
    # On its own table the optimum is below the truth, by about d/2n of the noise.
    assert loss.value(got, seen).mean() < loss.value(true, seen).mean()
    assert (got - true).std() < 0.2 * true.std()


def test_the_rule_follows_its_formulas():
    layout = make_hospital(1).schema.layout()
    geometry = choose_geometry(layout, Logistic(), 50_000, 0.1, "zero-out")
    assert (geometry.gram_share, geometry.target_share) == (0.15, 0.005)
    single = sum(g.kind == "dense" and g.width == 1 for g in layout.groups)
    squared = len(layout.groups) - 0.75 * single
    noise = math.sqrt(squared**2 - 1) / (5_000 * math.sqrt(0.15))
    assert geometry.floor == pytest.approx(0.5 * noise * math.sqrt(2 * 27))
    assert geometry.radius == pytest.approx(0.25 * 5_000 ** (1 / 3))
    assert (geometry.level_share, geometry.level_cap) == (0.02, math.inf)
    steps = 5_000 * math.sqrt(1 - 0.175)
    assert geometry.shrinkage == pytest.approx(0.2 * math.sqrt(27) / steps)
    assert not geometry.scaled
    number = choose_geometry(layout, Squared(), 50_000, 0.1, "zero-out")
    assert number.scaled
    assert (number.target_share, number.level_share) == (0.03, 0.02)
    tail = number.level_cap / 0.6  # where e⁻ᶜ and c/(nν√.02) have the least squares
    assert 2 * tail * math.exp(2 * tail) == pytest.approx(2 * 5_000**2 * 0.02)
    low = choose_geometry(layout, Logistic(), 1_250, 0.1, "zero-out")
    assert low.level_share == 0.1  # (40/125)² is more than the largest share
    assert low.radius == pytest.approx(0.65 * 0.25 * 125 ** (1 / 3))
    steps = 125 * math.sqrt(1 - low.share)
    assert low.shrinkage == pytest.approx(0.2 * math.sqrt(27) / steps / 0.65)
    few = choose_geometry(layout, Logistic(), 390, 0.1, "zero-out")
    assert isinstance(few, InterceptOnly)
    assert few.shrinkage == pytest.approx(39**-2)
    assert isinstance(
        choose_geometry(make_hospital(1).schema.layout(False), Logistic(), 390, 0.1),
        Matrix,
    )
    by_relation = {
        neighbours: make_default_plan(
            layout, Logistic(), n_rows=50_000, epsilon=1.0, neighbours=neighbours
        ).geometry
        for neighbours in ("replace-one", "zero-out")
    }
    ratio = by_relation["zero-out"].radius / by_relation["replace-one"].radius
    assert ratio == pytest.approx(2 ** (1 / 3))
    with pytest.raises(ValueError, match="n_rows must be at least 1"):
        make_default_plan(layout, Logistic(), n_rows=0, epsilon=1.0)
    with pytest.raises(ValueError, match="n_rows and mu must be positive"):
        choose_geometry(layout, Logistic(), 10, 0.0)


@pytest.mark.parametrize(("signal", "p"), [(50.0, 100), (1e3, 20), (1e5, 90)])
def test_the_cap_of_the_rule_loses_least(signal, p):
    """Against a grid: α² e⁻²ᶜ + p c²/(nν)² is smallest at the rule's c."""
    grid = np.linspace(1e-3, 15, 200_000)
    cost = (0.1 * np.exp(-grid)) ** 2 + p * (grid / signal) ** 2
    assert choose_cap(signal, p) == pytest.approx(grid[cost.argmin()], abs=2e-4)
