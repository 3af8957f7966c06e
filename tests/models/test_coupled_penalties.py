"""Every penalty that couples coordinates: its proximal map minimises what it says."""

import json
import math

import numpy as np
import pytest
from sklearn.isotonic import isotonic_regression

from skdp.descent.geometry import Diagonal
from skdp.descent.matrix import make_metric_prox
from skdp.descent.plan import Plan
from skdp.descent.samplings import Blocks, Full, SingleCoordinate
from skdp.models.losses import Logistic
from skdp.models.penalties import (
    PENALTIES,
    GroupLasso,
    Monotone,
    NuclearNorm,
    Penalty,
    Simplex,
    TotalVariation,
)
from skdp.schema import Categorical, Numeric, Pair, Schema

COUPLED = [name for name, make in PENALTIES.items() if not make().separable]
ALL = np.arange(8)


def case(name, seed, outputs=2):
    """A penalty, a point (8, k) and a metric in which it has a proximal map."""
    rng = np.random.default_rng([seed, 1])
    penalty = PENALTIES[name]()
    point = rng.normal(size=(8, outputs)) * rng.choice([0.1, 1.0, 10.0])
    metric = penalty.raise_metric(np.exp(rng.normal(size=8)), ALL)
    return penalty, point, metric, rng


def check_minimises(penalty, found, pull, rng, prox, tolerance=1e-10):
    """⟨pull, v - u⟩ ≤ ψ(v) - ψ(u) for all v: pull is a subgradient of ψ at u.

    Points v are images of `prox`, where ψ is finite, far away and near u.
    """
    assert penalty.value(found) < math.inf
    size = 1.0 + np.abs(pull).max() * (1.0 + np.abs(found).max())
    for scale in (100.0, 1.0, 0.01):
        for _ in range(10):
            there = prox(found + scale * rng.normal(size=found.shape))
            for t in (1.0, 1e-2, 1e-4):
                other = found + t * (there - found)
                gained = float((pull * (other - found)).sum())
                lost = penalty.value(other) - penalty.value(found)
                assert gained <= lost + tolerance * t * size * (1 + scale)


@pytest.mark.parametrize("name", COUPLED)
@pytest.mark.parametrize("seed", range(6))
def test_prox_minimises_its_objective(name, seed):
    penalty, point, metric, rng = case(name, seed)
    found = penalty.prox(point, metric, ALL)
    pull = metric[:, None] * (point - found)
    check_minimises(penalty, found, pull, rng, lambda w: penalty.prox(w, metric, ALL))


@pytest.mark.parametrize("name", COUPLED)
@pytest.mark.parametrize("seed", range(2))
def test_prox_minimises_in_the_metric_of_a_matrix(name, seed):
    penalty, point, metric, rng = case(name, seed)
    factor = rng.normal(size=(8, 8))
    matrix = factor @ factor.T / 8 + 0.05 * np.eye(8)
    prox = make_metric_prox(np.linalg.inv(matrix), penalty, ALL)
    prox(point + 1.0)  # the next call starts at this solution
    found = prox(point)
    pull = matrix @ (point - found)
    check_minimises(
        penalty, found, pull, rng, lambda w: penalty.prox(w, metric, ALL), 1e-8
    )


@pytest.mark.parametrize("name", COUPLED)
def test_prox_is_a_contraction_in_its_metric(name):
    for seed in range(20):
        penalty, one, metric, rng = case(name, seed)
        two = one + rng.normal(size=one.shape) * rng.choice([1e-6, 1.0, 1e3])
        u, v = (penalty.prox(w, metric, ALL) for w in (one, two))
        moved, apart = (
            float((metric[:, None] * d**2).sum()) for d in (u - v, one - two)
        )
        assert moved <= apart * (1 + 1e-9)


@pytest.mark.parametrize("name", COUPLED)
def test_values_are_convex(name):
    penalty, one, metric, rng = case(name, 0)
    for _ in range(20):
        two = penalty.prox(rng.normal(size=one.shape), metric, ALL)
        one = penalty.prox(rng.normal(size=one.shape), metric, ALL)
        middle = penalty.value((one + two) / 2)
        assert middle <= (penalty.value(one) + penalty.value(two)) / 2 + 1e-12


@pytest.mark.parametrize("name", COUPLED)
def test_a_step_moves_all_of_a_part_or_none(name):
    penalty, point, metric, _ = case(name, 3)
    part = np.sort(penalty.parts[-1])
    rest = np.setdiff1d(ALL, part)
    assert penalty.splits(ALL)
    assert penalty.splits(part)
    assert penalty.splits(rest)
    whole = penalty.prox(point, metric, ALL)
    for at in (part, rest):
        piece = penalty.prox(point[at], metric[at], at)
        assert np.array_equal(piece, whole[at])
    first = np.array([penalty.parts[0][0]])
    assert not penalty.splits(first)
    with pytest.raises(ValueError, match=r"couples coordinates.*dp_sega"):
        penalty.prox(point[first], metric[first], first)


@pytest.mark.parametrize("name", COUPLED)
def test_coordinates_in_no_part_are_left_alone(name):
    penalty, point, metric, _ = case(name, 4)
    free = np.setdiff1d(ALL, [j for part in penalty.parts for j in part])
    assert len(free)
    moved = penalty.prox(point, metric, ALL)
    assert np.array_equal(moved[free], point[free])
    assert not np.array_equal(moved, point)
    far = moved.copy()
    far[free] = 1e6
    assert penalty.value(far) == penalty.value(moved)


@pytest.mark.parametrize("name", COUPLED)
def test_saved_and_read_again(name):
    penalty, point, metric, _ = case(name, 5)
    state = json.loads(json.dumps(penalty.to_dict()))
    again = Penalty.from_dict(state)
    assert type(again) is type(penalty)
    assert again.to_dict() == penalty.to_dict()
    assert np.array_equal(
        again.prox(point, metric, ALL), penalty.prox(point, metric, ALL)
    )


def planned(sampling, penalty):
    schema = Schema({"a": Categorical(list("wxyz"))}, target=Categorical([0, 1]))
    return Plan(
        layout=schema.layout(True),
        loss=Logistic(),
        n_rows=100,
        epsilon=1.0,
        delta=1e-6,
        sampling=sampling,
        geometry=Diagonal(smoothness=np.ones(5)),
        n_steps=2,
        penalty=penalty,
    )


def test_a_plan_refuses_to_cut_a_part():
    """Before a record is read or charged for."""
    penalty = Monotone([(0, 1, 2)])
    for law in (SingleCoordinate.uniform(5), Blocks.uniform([[0, 1], [2, 3, 4]])):
        with pytest.raises(ValueError, match=r"couples coordinates.*dp_sega"):
            planned(law, penalty)
    for law in (Full(5), Blocks.uniform([[0, 1, 2], [3], [4]])):
        plan = planned(law, penalty)
        assert plan.penalty is penalty
        assert Plan.from_json(plan.to_json()).penalty.to_dict() == penalty.to_dict()


# ---- one by one


def test_group_lasso_takes_whole_groups_out():
    penalty = GroupLasso(1.0, [(0, 1), (2, 3)])
    weights = np.array([[0.3], [-0.4], [3.0], [-4.0]])
    found = penalty.prox(weights, np.ones(4), np.arange(4))
    assert (found[:2] == 0).all()
    assert found[2:] == pytest.approx(weights[2:] * (1 - math.sqrt(2) / 5))
    assert penalty.value(weights) == pytest.approx(math.sqrt(2) * 5.5)


def test_total_variation_by_hand():
    penalty = TotalVariation(0.5, [(0, 1, 2)])
    weights = np.array([[0.0], [3.0], [1.0]])
    found = penalty.prox(weights, np.ones(3), np.arange(3))
    assert found[:, 0] == pytest.approx([0.5, 2.0, 1.5])
    strong = TotalVariation(50.0, [(0, 1, 2)])
    metric = np.array([1.0, 2.0, 1.0])
    found = strong.prox(weights, metric, np.arange(3))
    assert found[:, 0] == pytest.approx([7 / 4] * 3)
    assert penalty.value(weights) == 0.5 * 5


def test_monotone_is_isotonic_regression():
    rng = np.random.default_rng(0)
    weights, metric = rng.normal(size=(8, 1)), np.exp(rng.normal(size=8))
    found = Monotone([ALL]).prox(weights, metric, ALL)
    known = isotonic_regression(weights[:, 0], sample_weight=metric)
    assert found[:, 0] == pytest.approx(known, abs=1e-12)
    down = Monotone([ALL[::-1]]).prox(weights, metric, ALL)
    assert (np.diff(down[:, 0]) <= 0).all()


def test_simplex_by_hand():
    found = Simplex([(0, 1, 2)], total=2.0).prox(
        np.array([[3.0], [2.0], [-5.0]]), np.ones(3), np.arange(3)
    )
    assert found[:, 0] == pytest.approx([1.5, 0.5, 0.0])


def test_nuclear_norm_lowers_singular_values():
    weights = np.diag([3.0, 1.0, 0.2])
    penalty = NuclearNorm(1.0, [(0, 1, 2)])
    assert penalty.value(weights) == pytest.approx(4.2)
    found = penalty.prox(weights, np.full(3, 2.0), np.arange(3))
    assert found == pytest.approx(np.diag([2.5, 0.5, 0.0]))
    with pytest.raises(ValueError, match="the same smoothness"):
        penalty.prox(weights, np.array([1.0, 2.0, 1.0]), np.arange(3))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: GroupLasso(-1.0, [(0,)]), "strength must be"),
        (lambda: TotalVariation(math.nan, [(0, 1)]), "strength must be"),
        (lambda: NuclearNorm(math.inf, [(0, 1)]), "strength must be"),
        (lambda: Simplex([(0, 1)], total=0.0), "total must be"),
        (lambda: Monotone([]), "parts must be one or more"),
        (lambda: Monotone([(0, 1), ()]), "parts must be one or more"),
        (lambda: Monotone([(-1, 0)]), "parts must be one or more"),
        (lambda: GroupLasso(1.0, [(0, 1), (1, 2)]), "parts must be disjoint"),
        (lambda: Monotone([(0, 0)]), "parts must be disjoint"),
    ],
)
def test_senseless_parameters_are_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_columns_as_parts():
    schema = Schema(
        {
            "age": Numeric(0, 9),
            "size": Numeric(0, 1, bins=3, indicator=True),
            "curve": Numeric(0, 1, knots=4, indicator=True),
            "grade": Categorical(["low", "mid", "high"]),
            "both": Pair("age", "curve", 2),
        },
        target=Categorical([0, 1]),
    )
    layout = schema.layout(True)
    named = {g.name: g.coordinates.tolist() for g in layout.groups[:-1]}
    assert layout.list_columns() == list(named.values())
    assert layout.list_columns(["grade"]) == [named["grade"]]
    ordered = layout.list_columns(ordered=True)
    assert ordered == [named["size"][:3], named["curve"][:4], named["grade"]]
    with pytest.raises(ValueError, match="has no ordered coordinates"):
        layout.list_columns(["age"], ordered=True)
    with pytest.raises(ValueError, match="must be columns of the schema"):
        layout.list_columns(["intercept"])
