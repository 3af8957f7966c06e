"""Figure K: each variant leaves out one part, and the text says what rows say."""

from dataclasses import replace

import pytest

from experiments.figures import k_ablation as k
from experiments.figures.a_systems import OURS
from experiments.folders import modules
from experiments.problems import Objective, make_problem
from skdp import Numeric
from skdp.datasets import make_hospital
from skdp.descent.geometry import Diagonal
from skdp.descent.matrix import Matrix
from skdp.privacy.queries import Kind
from tables import Table

N_ROWS = 2000


def hospital(target):
    data = make_hospital(n_rows=N_ROWS, target=target)
    columns, schema = dict(data.columns), data.schema
    if target == "cost":
        schema = replace(schema, target=Numeric(0, 50_000))
    return Table(columns, columns.pop(target), schema)


@pytest.fixture(scope="module", params=["readmitted", "cost"])
def fits(request):
    """Every variant, fitted to one table, and the table."""
    table = hospital(request.param)
    return {name: k.fit(table, name, 3.0, 0) for name in k.VARIANTS}, table


def facts(model):
    """What a fit released, and the parameters of its geometry."""
    kinds = {event.kind for event in model.privacy_.events}
    return kinds, model.plan_.geometry


def test_each_variant_leaves_out_one_part(fits):
    models, _ = fits
    kinds, whole = facts(models[k.WHOLE])
    assert isinstance(whole, Matrix)
    assert {Kind.GRAM, Kind.LEVEL} <= kinds
    assert facts(models["look"])[0] - kinds == {Kind.LOOK, Kind.FINER_LOOK}
    assert isinstance(facts(models["metric"])[1], Diagonal)
    assert Kind.GRAM not in facts(models["metric"])[0]
    assert facts(models["level"])[0] == kinds - {Kind.LEVEL}
    caps = facts(models["caps"])[1]
    assert caps.floor == whole.floor
    assert not caps.scaled
    start = facts(models["start"])
    if whole.scaled:  # the spread of a number is still needed
        assert start[0] == kinds
    else:
        assert start[0] == kinds - {Kind.CLASS_COUNTS}
    weights = [tuple(model.weights_[:, 0]) for model in models.values()]
    assert len(set(weights)) == len(k.VARIANTS) - 2  # wide ranges are not in `fit`
    for model in models.values():
        assert model.privacy_.spent_epsilon == pytest.approx(3.0, rel=1e-6)


def test_the_whole_default_is_the_system_of_figure_a(fits):
    models, table = fits
    problem = make_problem(table)
    found = modules("systems")[OURS].fit(problem, epsilon=3.0, delta=k.DELTA, seed=0)
    objective = Objective(problem)
    model = models[k.WHOLE]
    excess = objective.excess(found)
    assert objective.excess(model.weights_) == pytest.approx(excess, rel=1e-3)
    ridge = problem.penalty.value(model.weights_)
    own = k.own_loss(model, table, problem) + ridge - objective.minimum
    assert own == pytest.approx(excess, abs=1e-4)


def test_only_numbers_get_wide_ranges():
    columns, wide = (
        k.table_of("hospital", wider).schema.columns for wider in (1.0, 10.0)
    )
    assert columns["age"].low == wide["age"].low
    length = columns["age"].high - columns["age"].low
    assert wide["age"].high == pytest.approx(columns["age"].low + 10 * length)
    categories = [key for key in columns if not isinstance(columns[key], Numeric)]
    assert all(columns[key] == wide[key] for key in categories)


def rows_of(looks, **ratios):
    return [
        {
            "table": table,
            "epsilon": 1.0,
            "seed": seed,
            "variant": variant,
            "loss": looks.get(variant, 0.5) + 0.01 * seed,
        }
        | ({"excess": ratios.get(variant, 1.0) * (1 + 0.01 * seed)} if plain else {})
        for table in ("adult", "bike")
        for variant in k.VARIANTS
        for plain in [variant not in k.LOOKS or variant == k.WHOLE]
        for seed in range(10)
    ]


def test_the_text_says_which_parts_pay():
    rows = rows_of({"look": 0.503, "wide, look": 0.4}, metric=4.0, start=0.5)
    said = " ".join(k.text(rows).split())
    assert "*metric* pays in 2 and costs in 0 of 2 settings, 4 [4, 4] over all" in said
    assert "*start* pays in 0 and costs in 2 of 2" in said
    assert "*level* pays in 0 and costs in 0 of 2" in said
    assert "| metric | 4 [4, 4] | 4 [4, 4] |" in k.text(rows)
    assert "| fitting | 1 | 3 [3, 3] | 3 [3, 3] |" in k.text(rows)
    assert "| wide | 1 | -100 [-100, -100] | -100 [-100, -100] |" in k.text(rows)
    start, look = k.losses(rows)
    assert start.startswith("without its start, our default has less excess on adult")
    assert look.startswith("where ranges fit, a look raises the loss on adult at ε = 1")
    assert len(k.draw(rows).axes) == len(k.EPSILONS)
