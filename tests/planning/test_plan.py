"""Plans and their runs: what is refused, what is spent, what must not show."""

import math
from dataclasses import replace

import numpy as np
import pytest

from skdp.datasets import compute_true_margins, make_hospital
from skdp.descent import algorithm1, samplings
from skdp.descent.bounds import paper_noise_multiplier
from skdp.descent.geometry import Diagonal
from skdp.descent.matrix import Matrix
from skdp.descent.plan import Plan, release_row_count, run
from skdp.descent.rule import PRESETS, preset
from skdp.descent.sketches import Sketched
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import LOSSES, Logistic, Softmax
from skdp.models.penalties import PENALTIES, ridge
from skdp.privacy import accountant, queries
from skdp.privacy.budget import BudgetError, PrivacyRecord
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.queries import NEIGHBOURS, Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import Schema

N_ROWS = 300
HOSPITAL = make_hospital(N_ROWS)
RECORDS = encode([HOSPITAL.batch], HOSPITAL.schema)
LAYOUT = RECORDS.layout
PRIVATE = [name for name in PRESETS if name != "skgd"]


def cells(column, chosen):
    if isinstance(column, Coded):
        return Coded(column.codes[chosen], column.values)
    return np.asarray(column)[chosen]


def rows(chosen, batch=HOSPITAL.batch):
    """Some rows of the table, in some order."""
    columns = {name: cells(column, chosen) for name, column in batch.columns.items()}
    return Batch(columns=columns, target=cells(batch.target, chosen))


def encoded(*parts):
    return encode(parts, HOSPITAL.schema)


def planned(name="dp_skgd", **options):
    settings = {"n_rows": N_ROWS, "epsilon": 1.0, "delta": 1e-6} | options
    if name == "matrix":
        return Plan(
            layout=LAYOUT,
            loss=Logistic(),
            sampling=samplings.Full(LAYOUT.n_features),
            geometry=Matrix(radius=1.0, floor=0.1),
            **{"n_steps": 12} | settings,
        )
    if name == "sketch":
        geometry = Sketched(gram_share=0.2, floor=0.1, cap=0.3, law="norms")
        blocks = np.array_split(np.arange(LAYOUT.n_features), 4)
        return Plan(
            layout=LAYOUT,
            loss=Logistic(),
            sampling=samplings.Blocks.uniform(blocks),
            geometry=geometry,
            **{"n_steps": 12} | settings,
        )
    return preset(name, LAYOUT, Logistic(), **settings)


# ---- what is spent


@pytest.mark.parametrize("calibration", ["exact", "paper"])
@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("name", [*PRIVATE, "matrix", "sketch"])
def test_a_run_spends_its_budget_and_no_more(name, neighbours, calibration):
    plan = planned(name, neighbours=neighbours, calibration=calibration)
    fit = run(plan, RECORDS)
    steps = plan.n_steps + (name == "sketch" or name.endswith("matrix"))
    assert sum(fit.record.events.values()) == steps
    assert fit.weights.shape == (LAYOUT.n_features, 1)
    assert np.isfinite(fit.weights).all()
    assert fit.record.spent_epsilon <= 1.0
    if calibration == "exact":
        assert fit.record.spent_epsilon > 1.0 - 1e-6
    else:
        assert 0.3 < fit.record.spent_epsilon < 0.9
    assert not fit.record.seeded
    assert str(fit.record).startswith(f"({fit.record.spent_epsilon:.6g}, 1e-06)-diff")


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 8.0])
@pytest.mark.parametrize("n_restarts", [1, 3])
def test_noise_is_that_of_the_calibration(epsilon, n_restarts):
    """z = √(KT)/μ, or √(3 KT log(1/δ))/ε."""
    options = {"epsilon": epsilon, "n_steps": 10, "n_restarts": n_restarts}
    for calibration, z in (
        ("exact", math.sqrt(10 * n_restarts) / accountant.gdp_mu(epsilon, 1e-6)),
        ("paper", paper_noise_multiplier(epsilon, 1e-6, 10 * n_restarts)),
    ):
        record = run(planned(calibration=calibration, **options), RECORDS).record
        for event in record.events:
            assert event.noise_multiplier == pytest.approx(z, rel=1e-5)
        assert sum(record.events.values()) == 10 * n_restarts
        assert record.spent_epsilon <= epsilon


def test_gram_takes_its_share():
    record = run(planned("matrix"), RECORDS).record
    gram, gradient = record.events
    assert gram.kind == Kind.GRAM
    assert gram.mu_squared == pytest.approx(0.15 * record.budget, rel=1e-9)
    assert 12 * gradient.mu_squared == pytest.approx(0.85 * record.budget, rel=1e-9)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_runs_without_noise(name):
    plan = planned(name, epsilon=math.inf, n_steps=30)
    fit = run(plan, RECORDS, random_state=1)
    assert fit.record.spent == math.inf
    assert "no privacy claim" in str(fit.record)
    target = RECORDS.chunks[0].target
    loss = Logistic().value(compute_true_margins(RECORDS, fit.weights), target).mean()
    assert loss < math.log(2) - 0.01  # that of no weights


@pytest.mark.parametrize("name", PRIVATE)
def test_presets_have_the_sets_of_their_names(name):
    plan = planned(name)
    support = plan.sampling.support
    blocks = [tuple(block) for block in LAYOUT.blocks]
    if name == "dp_gd":
        assert [len(s) for s in support] == [LAYOUT.n_features]
    elif name == "dp_cd":
        assert {len(s) for s in support} == {1}
        assert len(support) == LAYOUT.n_features
    else:
        assert sorted(tuple(s) for s in support) == sorted(blocks)
    assert plan.rate.n_steps == plan.n_steps
    floor = 0.5 if "importance" in name else 1.0
    smallest = plan.sampling.set_probabilities.min()
    assert smallest >= floor / len(support) * (1 - 1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_runs(loss):
    made = LOSSES[loss]()
    target = {"poisson": "visits", "squared": "cost", "huber": "cost"}
    table = make_hospital(100, target=target.get(loss, "readmitted"))
    records = encode([table.batch], table.schema)
    plan = preset("dp_skgd_shuffled", LAYOUT, made, n_rows=100, epsilon=2.0, n_steps=9)
    fit = run(plan, records)
    assert fit.weights.shape == (LAYOUT.n_features, made.n_outputs)
    assert fit.record.spent_epsilon <= 2.0


@pytest.mark.parametrize("penalty", PENALTIES)
def test_every_penalty_runs(penalty):
    plan = planned("dp_gd", n_steps=3, penalty=PENALTIES[penalty]())
    assert np.isfinite(run(plan, RECORDS).weights).all()


# ---- what is refused, in one sentence


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delta": 1 / N_ROWS}, r"delta must be positive and below 1/n_rows"),
        ({"delta": 0.5}, r"delta must be positive and below 1/n_rows"),
        ({"delta": 0.0}, r"delta must be positive and below 1/n_rows"),
        ({"delta": math.nan}, r"delta must be positive and below 1/n_rows"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"epsilon": -1.0}, "epsilon must be positive"),
        ({"epsilon": math.nan}, "epsilon must be positive"),
        ({"n_steps": 0}, "n_steps must be an integer of at least 1"),
        ({"n_steps": -3}, "n_steps must be an integer of at least 1"),
        ({"n_restarts": 0}, "n_restarts must be an integer of at least 1"),
        ({"n_rows": -1}, "n_rows must be at least 1"),
        ({"calibration": "rdp"}, "calibration must be 'exact' or 'paper'"),
    ],
)
@pytest.mark.parametrize("name", ["dp_gd", "matrix", "sketch"])
def test_what_is_public_and_wrong_is_refused(name, options, said):
    settings = {"n_steps": 5} | options
    with pytest.raises(ValueError, match=said) as refusal:
        planned(name, **settings)
    text = str(refusal.value)
    assert ", got " in text
    assert "\n" not in text


def test_unknown_presets_are_refused():
    with pytest.raises(ValueError, match=r"name must be one of .*, got 'dp_sgd'"):
        planned("dp_sgd")


def test_noiseless_preset_has_no_budget():
    with pytest.raises(ValueError, match="epsilon must be inf"):
        planned("skgd", epsilon=1.0)


def test_unknown_relations_are_refused_before_anything_is_released():
    """By the bound that chooses the steps, or by the record at the latest."""
    with pytest.raises(ValueError, match="replace-one"):
        planned(neighbours="replace_one")
    with pytest.raises(ValueError, match="replace-one"):
        run(planned(neighbours="replace_one", n_steps=3), RECORDS)


def test_a_sampling_of_another_layout_is_refused():
    with pytest.raises(ValueError, match=r"27 coordinates, .* got 3"):
        replace(planned(n_steps=3), sampling=samplings.Full(3))


def test_records_of_another_layout_are_refused():
    schema = Schema(
        dict(list(HOSPITAL.schema.columns.items())[1:]), HOSPITAL.schema.target
    )
    for other in (
        encode([HOSPITAL.batch], schema),
        encode([HOSPITAL.batch], HOSPITAL.schema, intercept=False),
    ):
        with pytest.raises(ValueError, match="must have the plan's layout"):
            run(planned(n_steps=3), other)


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out"])
def test_another_public_number_of_rows_is_refused(neighbours):
    fewer = encoded(rows(np.arange(N_ROWS - 1)))
    with pytest.raises(ValueError, match="300 rows, as planned, got 299"):
        run(planned(neighbours=neighbours, n_steps=3), fewer)


def test_paper_calibration_beyond_its_range_is_refused_when_planning():
    with pytest.raises(ValueError, match="epsilon must be at most"):
        planned("matrix", epsilon=20.0, calibration="paper")


def test_a_record_of_another_relation_is_refused():
    """A zero-out plan charged to a replace-one record would claim half of its ε."""
    plan = planned("dp_gd", neighbours="zero-out")
    record = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one")
    with pytest.raises(ValueError, match="same neighbours"):
        run(plan, RECORDS, record=record)
    assert record.events == {}


@pytest.mark.parametrize("neighbours", ["replace_one", "Replace-one", ""])
def test_an_unknown_relation_is_refused(neighbours):
    with pytest.raises(ValueError, match="neighbours must be one of"):
        planned("dp_gd", neighbours=neighbours, n_steps=3)
    with pytest.raises(KeyError):
        queries.counts(ReferenceEngine(RECORDS), 2, neighbours)


def test_a_spent_record_is_refused():
    plan = planned("dp_gd", n_steps=3)
    record = run(plan, RECORDS, random_state=0).record
    with pytest.raises(BudgetError, match="budget is exhausted"):
        run(plan, RECORDS, random_state=0, record=record)


@pytest.mark.parametrize(
    ("name", "value"), [("n_steps", 2.5), ("n_steps", True), ("average", "median")]
)
def test_what_would_fail_in_the_middle_is_refused_before(name, value):
    with pytest.raises(ValueError, match=name):
        planned("matrix", **{name: value})


def test_weights_stay_in_their_box():
    plan = planned("dp_gd", epsilon=1e-3, n_steps=50)
    assert np.abs(run(plan, RECORDS, random_state=0).weights).max() <= 1024


def test_a_run_that_does_not_fit_stops_at_the_budget():
    """The record's budget rules, whatever the plan thinks it may spend."""
    plan = planned(epsilon=5.0, calibration="paper", n_steps=20)
    record = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one")
    with pytest.raises(BudgetError):
        run(plan, RECORDS, record=record)
    assert record.spent <= record.budget
    assert record.spent_epsilon <= 1.0


# ---- the number of rows, where it is private


def test_add_remove_plans_do_not_look_at_the_number_of_rows():
    """One row fewer, one more, none at all: no error, and the same shapes."""
    plan = planned("matrix", neighbours="add-remove")
    tables = [
        RECORDS,
        encoded(rows(np.arange(N_ROWS - 1))),
        encoded(rows(np.append(np.arange(N_ROWS), 0))),
        encoded(rows(np.arange(0))),
    ]
    fits = [run(plan, table, random_state=1) for table in tables]
    assert {fit.weights.shape for fit in fits} == {(LAYOUT.n_features, 1)}
    assert len({str(fit.record) for fit in fits}) == 1
    shapes = {tuple(r.values.shape for r in fit.record.transcript) for fit in fits}
    assert len(shapes) == 1
    assert (fits[0].weights != fits[3].weights).any()


@pytest.mark.parametrize("share", [0.01, 0.3])
def test_row_count_is_charged_and_the_run_spends_the_rest(share):
    record = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="add-remove")
    counted = release_row_count(RECORDS, record, share=share)
    assert isinstance(counted, int)
    assert record.spent == pytest.approx(share * record.budget, rel=1e-9)
    std = 1 / math.sqrt(share * record.budget)
    assert abs(counted - N_ROWS) < 7 * std  # a false alarm in 4e11
    plan = planned(n_rows=max(counted, 10), neighbours="add-remove", n_steps=5)
    fit = run(plan, RECORDS, record=record)
    assert fit.record is record
    assert record.spent == pytest.approx(record.budget, rel=1e-9)
    assert record.spent_epsilon <= 1.0
    assert sum(record.events.values()) == 6


def test_row_count_is_noisy_and_at_least_one():
    """Counts of an empty table: the noise shows, a number below one does not."""
    counts = [
        release_row_count(
            encoded(rows(np.arange(n))),
            PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="add-remove"),
            noise=Randomness(seed),
        )
        for seed in range(8)
        for n in (0, N_ROWS)
    ]
    assert len(set(counts[1::2])) > 4
    assert min(counts) == 1


# ---- what must not show, and what must not matter


@pytest.mark.parametrize("name", ["dp_skgd", "dp_gd", "dp_cd", "matrix", "sketch"])
def test_same_seed_and_plan_same_bits_whatever_the_order_of_rows(name):
    plan = planned(name, n_steps=12)
    first = run(plan, RECORDS, random_state=7).weights
    order = np.random.default_rng(1).permutation(N_ROWS)
    parts = np.split(order, [1, 1, 40, 41, 200])
    for table in (
        RECORDS,
        encoded(rows(order)),
        encoded(*(rows(part) for part in parts)),
    ):
        assert run(plan, table, random_state=7).weights.tobytes() == first.tobytes()
    assert (run(plan, RECORDS, random_state=8).weights != first).any()
    assert (run(plan, RECORDS).weights != run(plan, RECORDS).weights).any()


def odd_batches():
    """The table with its first record replaced by every kind of odd one."""
    batch = HOSPITAL.batch
    for number, code in ((math.nan, -1), (math.inf, 10**6), (-1e308, 0), (5e-324, 1)):
        columns = {}
        for name, column in batch.columns.items():
            if isinstance(column, Coded):
                codes = column.codes.copy()
                codes[0] = code
                columns[name] = Coded(codes, column.values)
            else:
                values = np.array(column, dtype=float)
                values[0] = number
                columns[name] = values
        codes = batch.target.codes.copy()
        codes[0] = code
        yield Batch(columns=columns, target=Coded(codes, batch.target.values))


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("name", ["dp_skgd", "dp_gd", "matrix"])
def test_an_odd_record_shows_in_nothing_but_the_numbers(name, neighbours):
    """No error, no warning (they are errors), the same shapes, sets and events."""
    plan, seen = planned(name, n_steps=6, neighbours=neighbours), []
    for batch in [HOSPITAL.batch, *odd_batches()]:
        steps = []
        fit = run(plan, encoded(batch), random_state=3, callback=steps.append)
        seen.append(
            (
                fit.weights.shape,
                str(fit.record),
                tuple(fit.record.events.items()),
                tuple(tuple(step.at) for step in steps),
                tuple(step.released.values.shape for step in steps),
                tuple(step.released.noise_std.tobytes() for step in steps),
            )
        )
    assert len(set(seen)) == 1


def test_one_record_moves_a_release_by_its_sensitivity_at_most():
    """The same noise on both tables: what differs is what one record can do."""
    plan = planned("dp_gd", n_steps=1, neighbours="replace-one")
    base = run(plan, RECORDS, random_state=3).record.transcript[0]
    for batch in odd_batches():
        other = run(plan, encoded(batch), random_state=3).record.transcript[0]
        (event,) = run(plan, RECORDS, random_state=3).record.events
        shape = base.noise_std / base.noise_std.max()
        moved = np.linalg.norm((other.values - base.values) / shape)
        cell = base.noise_std.max() * 2.0**-10 * math.sqrt(base.values.size)
        assert moved <= event.sensitivity * shape.max() + cell
        assert moved > 0


def test_a_seeded_run_is_marked_even_on_a_record_that_was_passed_in():
    record = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one")
    fit = run(planned(n_steps=3), RECORDS, random_state=918273645, record=record)
    assert fit.record.seeded
    assert str(fit.record).startswith("seeded: no privacy claim")
    assert "918273645" not in str(fit.record) + repr(fit)


def test_callback_sees_every_step():
    steps = []
    plan = planned(n_steps=4, n_restarts=3)
    fit = run(plan, RECORDS, callback=steps.append)
    assert [(s.restart, s.index) for s in steps] == [
        (t, k) for t in range(3) for k in range(4)
    ]
    assert [s.released for s in steps] == fit.record.transcript


def test_restarts_begin_where_the_last_average_ended():
    """T loops of one step with its own average are T steps of one loop."""
    options = {"geometry": Diagonal(smoothness=np.full(27, 3.0)), "epsilon": math.inf}
    full = planned("dp_gd", n_steps=6, average=algorithm1.last, epsilon=math.inf)
    once = replace(full, **options)
    apart = replace(full, n_steps=1, n_restarts=6, average=algorithm1.mean, **options)
    one, two = (run(plan, RECORDS, random_state=1).weights for plan in (once, apart))
    np.testing.assert_allclose(one, two, rtol=1e-12)


def test_penalty_shrinks_all_but_the_intercept():
    options = {"epsilon": math.inf, "n_steps": 200, "average": algorithm1.last}
    free, held = (
        run(
            planned("dp_gd", penalty=penalty, **options), RECORDS, random_state=1
        ).weights
        for penalty in (ridge(0.0), ridge(10.0, LAYOUT.penalised))
    )
    assert np.abs(held[:-1]).max() < 0.1 * np.abs(free[:-1]).max()
    # about 15 % are readmitted: the intercept alone says so
    share = RECORDS.chunks[0].target.mean()
    assert held[-1, 0] == pytest.approx(math.log(share / (1 - share)), abs=0.1)


def test_softmax_on_two_classes_is_the_logistic_model():
    options = {"n_rows": N_ROWS, "n_steps": 400, "average": algorithm1.last}
    one = run(
        preset("dp_gd", LAYOUT, Logistic(), **options), RECORDS, random_state=1
    ).weights
    two = run(
        preset("dp_gd", LAYOUT, Softmax(2), **options), RECORDS, random_state=1
    ).weights
    # each column of a softmax moves with half the slope's curvature bound: same path
    np.testing.assert_allclose(two[:, 1] - two[:, 0], one[:, 0], atol=2e-3)
