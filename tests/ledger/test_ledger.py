"""What a ledger promises: its ceiling, its sums, its refusals, its views."""

import contextlib
import copy
import csv
import hashlib
import io
import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from skdp import BudgetError, Categorical, Ledger, Numeric, PrivacyRecord, Schema
from skdp.ledger import Entry, Head, LedgerError, schema_digest
from skdp.ledger.ceiling import Amount, Terms, find_epsilon
from skdp.privacy import accountant
from skdp.privacy.budget import Event
from skdp.privacy.queries import Kind

SCHEMA = Schema(
    {"age": Numeric(0, 90), "job": Categorical(["a", "b"])}, target=Categorical([0, 1])
)
OTHER = Schema({"age": Numeric(0, 91)}, target=Categorical([0, 1]))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.db"


@pytest.fixture
def ledger(path):
    return Ledger(
        path, epsilon=1.0, delta=1e-6, neighbours="add-remove", reserved_delta=1e-7
    )


def ask(ledger, mu_squared, delta=0.0, **options):
    options = {"neighbours": "add-remove", "query": "a test"} | options
    return ledger.reserve(mu_squared, delta, **options)


def record_of(epsilon, delta=1e-6, **options):
    options = {"neighbours": "add-remove"} | options
    return PrivacyRecord(epsilon=epsilon, delta=delta, **options)


# ---- the ceiling, and opening a ledger


def test_a_fit_of_the_same_budget_fits_exactly_once(ledger, path):
    record = record_of(1.0, reserved_delta=1e-7)
    with ledger.spend(record, query="all") as reservation:
        assert record.budget == ledger.terms.mu_squared
        assert ledger.remaining == 0.0
        z = accountant.noise_multiplier(math.sqrt(record.budget), 1)
        record.charge(Event(Kind.STATED, "all of it", 1.0, z, 10, 1e-7))
        assert reservation.amount.mu_squared == Fraction(ledger.terms.mu_squared)
    assert 0.999 < ledger.spent_epsilon <= 1.0
    with pytest.raises(BudgetError):
        ask(Ledger(path), 1e-9)


def test_a_larger_fit_is_not_cut_down(ledger):
    for record in (record_of(1.01), record_of(1.0, delta=1e-5)):
        with pytest.raises(BudgetError), ledger.spend(record, query="too much"):
            pytest.fail("the block must not run")
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize(
    "terms",
    [
        {"epsilon": 0.0, "delta": 1e-6},
        {"epsilon": math.inf, "delta": 1e-6},
        {"epsilon": math.nan, "delta": 1e-6},
        {"epsilon": 1.0, "delta": 0.0},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "delta": 1e-6, "reserved_delta": 1e-6},
        {"epsilon": 1.0, "delta": 1e-6, "reserved_delta": -1e-9},
        {"epsilon": 1.0, "delta": 1e-6, "neighbours": "both"},
        {"epsilon": 1e-9, "delta": 1e-6},
    ],
)
def test_ceilings_that_mean_nothing_are_refused(path, terms):
    with pytest.raises(ValueError, match="got"):
        Ledger(path, **terms)
    assert not path.exists()


def test_opening_again(ledger, path):
    assert Ledger(path) == ledger
    assert (
        Ledger(str(path), epsilon=1, delta=1e-6, neighbours="add-remove").terms
        == ledger.terms
    )
    for other in (
        {"epsilon": 2.0},
        {"delta": 1e-7},
        {"reserved_delta": 0.0},
        {"neighbours": "zero-out"},
    ):
        with pytest.raises(LedgerError, match="got"):
            Ledger(path, **other)


def test_a_ledger_is_never_made_in_passing(path):
    with pytest.raises(LedgerError, match="There is no ledger"):
        Ledger(path)
    with pytest.raises(LedgerError, match="There is no ledger"):
        Ledger(path, epsilon=1.0)
    assert not path.exists()
    ledger = Ledger(path, epsilon=1.0, delta=1e-6, neighbours="add-remove")
    path.unlink()
    with pytest.raises(LedgerError, match="There is no ledger"):
        ask(ledger, 0.01)
    assert not path.exists()


def test_a_ledger_makes_no_folder(path):
    folder = path.parent / "none"
    with pytest.raises(LedgerError, match="no folder"):
        Ledger(folder / "l.db", epsilon=1.0, delta=1e-6, neighbours="add-remove")
    assert not folder.exists()


# ---- spending


def test_reserve_and_settle(ledger):
    whole = ledger.remaining
    reservation = ask(ledger, 0.02, 5e-8)
    assert ledger.remaining <= whole - 0.02
    assert ledger.remaining_delta == pytest.approx(5e-8)
    reservation.settle(0.01, 1e-8, n_draws=5)
    assert ledger.remaining == pytest.approx(whole - 0.01)
    assert ledger.remaining_delta == pytest.approx(9e-8)
    with pytest.raises(ValueError, match="already settled"):
        reservation.settle(0.0)


@pytest.mark.parametrize("more", [(0.03,), (0.01, 1e-9), (0.01, 0.0, 11)])
def test_no_more_is_settled_than_was_reserved(ledger, more):
    reservation = ask(ledger, 0.02, n_draws=10)
    left = ledger.remaining
    mu_squared, delta, draws = (*more, 0.0, 5)[:3]
    with pytest.raises(ValueError, match="reservation stays"):
        reservation.settle(mu_squared, delta, n_draws=int(draws))
    assert ledger.remaining == left


@pytest.mark.parametrize(
    "amount", [(-1e-9,), (math.nan,), (math.inf,), (0.01, -1e-9), (0.01, 1.0)]
)
def test_only_amounts_can_be_reserved(ledger, amount):
    with pytest.raises(ValueError, match="finite"):
        ask(ledger, *amount)


def test_each_sum_has_its_own_ceiling(ledger):
    with pytest.raises(BudgetError, match="not Gaussian"):
        ask(ledger, 0.0, 1.01e-7)
    with pytest.raises(BudgetError, match="draws of noise"):
        ask(ledger, 0.0, n_draws=ledger.terms.n_draws + 1)
    ask(ledger, ledger.terms.mu_squared, 1e-7, n_draws=ledger.terms.n_draws)
    assert (ledger.remaining, ledger.remaining_delta) == (0.0, 0.0)
    assert ledger.spent_epsilon == 1.0


def test_what_could_be_afforded_is_said_and_can_be(ledger):
    ask(ledger, ledger.terms.mu_squared * 0.7)
    said = r"epsilon=0\.\d+ is affordable"
    with (
        pytest.raises(BudgetError, match=said) as error,
        ledger.spend(record_of(0.9, delta=1e-7), query="The fit"),
    ):
        pytest.fail("the block must not run")
    words = str(error.value)
    assert words.startswith("The fit asks the ledger")
    assert "1 unsettled" in words
    assert "At δ = 1e-07" in words
    epsilon = float(words.partition("epsilon=")[2].split()[0])
    more = record_of(epsilon * 1.002, delta=1e-7)
    with pytest.raises(BudgetError), ledger.spend(more, query="more"):
        pytest.fail("the block must not run")
    with ledger.spend(record_of(epsilon, delta=1e-7), query="as much"):
        assert ledger.remaining >= 0


def test_an_affordable_epsilon_above_the_ceiling_is_explained(ledger):
    said = "is affordable, which is above the ledger's ε = 1 only because the fit's δ"
    with (
        pytest.raises(BudgetError, match=said),
        ledger.spend(record_of(9.0, delta=1e-12), query="The fit"),
    ):
        pytest.fail("the block must not run")


@given(st.floats(1e-6, 1.0), st.floats(-12, -3), st.floats(0, 0.9))
@settings(max_examples=50)
def test_affordable_is_the_largest_to_four_digits(mu_squared, exponent, share):
    delta = 10.0**exponent
    left = Amount.of(mu_squared, share * delta, 1 << 40)
    epsilon = find_epsilon(left, delta, share * delta)
    if epsilon == 0:  # too little for the sampler's slack
        assert mu_squared < 1e-4
        return
    assert float(f"{epsilon:.3e}") == epsilon
    fit = record_of(epsilon, delta, reserved_delta=share * delta)
    assert fit.budget <= mu_squared
    more = record_of(epsilon * 1.003, delta, reserved_delta=share * delta)
    assert more.budget > mu_squared


def test_a_block_that_raises_settles_what_was_charged(ledger):
    record = record_of(0.5)

    def fit():
        with ledger.spend(record, query="a fit"):
            record.charge(Event(Kind.STATED, "something", 1.0, 50.0, 3))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit()
    reserve, stop = ledger.entries()[1:]
    assert (reserve.kind, stop.kind, stop.of) == ("reserve", "stop", 1)
    assert record.spent < stop.mu_squared < record.spent * (1 + 1e-11)
    assert stop.mu_squared < reserve.mu_squared == record.budget
    assert stop.n_draws == 3


def test_a_block_that_commits_settles_no_less_than_was_released(ledger):
    record = record_of(0.5)
    z = accountant.noise_multiplier(math.sqrt(record.budget), 7)
    with ledger.spend(record, query="a fit"):
        for _ in range(7):
            record.charge(Event(Kind.STATED, "a step", 1.0, z, 3))
    exact = 7 / Fraction(z) ** 2
    commit = ledger.entries()[-1]
    assert exact <= Fraction(commit.mu_squared) <= Fraction(record.budget)
    assert commit.n_draws == 21  # equal releases are one event, made seven times


def test_what_claims_no_privacy_is_refused(ledger):
    for record, said in (
        (record_of(math.inf), "epsilon=inf"),
        (record_of(0.5, seeded=True), "seeded"),
    ):
        with (
            pytest.raises(ValueError, match=said),
            ledger.spend(record, query="a fit"),
        ):
            pytest.fail("the block must not run")
    assert len(ledger.entries()) == 1


def test_a_record_that_turns_out_seeded_is_not_settled(ledger):
    record = record_of(0.5)
    with pytest.raises(ValueError, match="seeded"), ledger.spend(record, query="a fit"):
        record.seeded = True
    assert [e.kind for e in ledger.entries()] == ["open", "reserve"]


def test_a_record_with_releases_is_too_late(ledger):
    record = record_of(0.5)
    record.charge(Event(Kind.STATED, "something", 1.0, 50.0, 3))
    with (
        pytest.raises(ValueError, match="before the first release"),
        ledger.spend(record, query="a fit"),
    ):
        pytest.fail("the block must not run")


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_relations_are_not_mixed(ledger, neighbours):
    with pytest.raises(LedgerError, match="do not add"):
        ask(ledger, 0.01, neighbours=neighbours)


def test_sums_are_exact(path):
    """Ten thousand small charges after a large one: floats would lose them."""
    terms = Terms.of(1e4, 1e-6)
    total = Amount.of(2.0**30, 0.0, 0)
    small = Amount.of(2.0**-40, 0.0, 0)
    for _ in range(10_000):
        total = total.plus(small)
    assert total.mu_squared == 2**30 + Fraction(10_000, 2**40)
    assert terms.ceiling.mu_squared == Fraction(terms.mu_squared)


# ---- tables and schemas


def test_a_ledger_belongs_to_a_table_and_takes_all_its_schemas(path):
    ledger = Ledger(
        path, epsilon=1.0, delta=1e-6, neighbours="add-remove", table="stays 2025"
    )
    for schema in (SCHEMA, OTHER, None):
        ask(ledger, 0.01, schema=schema)
    assert Ledger(path).table == Ledger(path, table="stays 2025").table == "stays 2025"
    assert "table: stays 2025" in str(ledger)
    assert [entry.table for entry in ledger.entries()] == ["stays 2025", *[None] * 3]
    with pytest.raises(LedgerError, match="belongs to the table 'stays 2025'"):
        Ledger(path, table="stays 2024")
    with pytest.raises(ValueError, match="nothing to admit"):
        ledger.admit(OTHER)


def test_a_table_without_a_name_has_that_of_the_file(ledger):
    assert ledger.table == "budget"


@pytest.mark.parametrize("name", ["", " ", "two\nlines", "\x1b[2J", "x" * 201, 5])
@pytest.mark.parametrize("which", ["table", "purpose", "user"])
def test_names_that_cannot_be_shown_are_refused(path, name, which):
    with pytest.raises(ValueError, match=f"{which} must have 1 to 200 printable"):
        Ledger(path, epsilon=1.0, delta=1e-6, neighbours="add-remove", **{which: name})
    assert not path.exists()


def test_a_ledger_made_with_a_schema_takes_no_other_unless_admitted(path):
    ledger = Ledger(
        path, epsilon=1.0, delta=1e-6, neighbours="add-remove", schema=SCHEMA
    )
    ask(ledger, 0.01, schema=SCHEMA)
    ask(ledger, 0.01, schema=Schema(SCHEMA.columns, target=("y", SCHEMA.target)))
    with pytest.raises(LedgerError, match="accepts only certain schemas"):
        ask(ledger, 0.01, schema=OTHER)
    with pytest.raises(LedgerError, match="accepts only certain schemas"):
        Ledger(path, schema=OTHER)
    ledger.admit(OTHER)
    ask(Ledger(path, schema=OTHER), 0.01, schema=OTHER)
    assert [e.kind for e in ledger.entries()][-2:] == ["admit", "reserve"]


# ---- who asks, and what for


def test_every_entry_has_a_purpose_and_a_user(path, monkeypatch):
    monkeypatch.setenv("LOGNAME", "ada")
    ledger = Ledger(
        path, epsilon=1.0, delta=1e-6, neighbours="add-remove", purpose="first look"
    )
    ask(ledger, 0.01).settle(0.01)
    other = ledger.for_purpose("yearly report", user="grace")
    ask(other, 0.01)
    ask(other.for_purpose("an appendix"), 0.01)
    ask(Ledger(path), 0.01)
    found = [(entry.purpose, entry.user) for entry in ledger.entries()]
    assert found == [
        *[("first look", "ada")] * 3,
        ("yearly report", "grace"),
        ("an appendix", "grace"),
        ("not stated", "ada"),
    ]
    rows = list(csv.DictReader(io.StringIO(ledger.export("csv"))))
    assert [(row["purpose"], row["user"]) for row in rows] == found


def test_copies_and_pickles_keep_the_purpose(ledger):
    asking = ledger.for_purpose("yearly report", user="grace")
    for other in (pickle.loads(pickle.dumps(asking)), copy.deepcopy(asking)):
        ask(other, 0.001)
        last = ledger.entries()[-1]
        assert (last.purpose, last.user) == ("yearly report", "grace")


def test_a_system_without_users_has_an_unknown_one(path, monkeypatch):
    def nobody():
        raise OSError("no name")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert (
        Ledger(path, epsilon=1.0, delta=1e-6, neighbours="add-remove").requester.user
        == "unknown"
    )


@pytest.mark.parametrize(
    "name", [name for name in Entry.__struct_fields__ if name not in ("seq", "hash")]
)
def test_every_field_is_in_the_hash(name, ledger):
    """A change to an entry changes its hash and all later ones."""
    ask(ledger, 0.01).settle(0.01)
    entry = ledger.entries()[-1]
    value = Terms.of(1.0, 1e-6) if name == "terms" else "changed"
    other = structs.replace(entry, **{name: value})
    assert Head().after(entry.text()) != Head().after(other.text())


def test_a_digest_is_of_what_the_schema_means():
    same = Schema(
        {"age": Numeric(np.float64(0), 90.0), "job": Categorical(("a", "b"))},
        target=Categorical([0.0, np.int64(1)]),
    )
    assert schema_digest(same) == schema_digest(SCHEMA)
    changes = [
        Schema(dict(reversed(SCHEMA.columns.items())), target=SCHEMA.target),
        Schema(SCHEMA.columns, target=Categorical([1, 0])),
        Schema(SCHEMA.columns, target=SCHEMA.target, row_norm=2.0),
        Schema(SCHEMA.columns | {"age": Numeric(0, 90, bins=4)}, target=SCHEMA.target),
        Schema({"Age": Numeric(0, 90)}, target=SCHEMA.target),
    ]
    assert len({schema_digest(s) for s in [SCHEMA, *changes]}) == 1 + len(changes)


# ---- views


def test_entries_say_what_was_asked(ledger):
    reservation = ask(ledger, 0.02, schema=SCHEMA)
    reservation.plan = "0" * 64
    reservation.settle(0.01)
    opening, reserve, commit = ledger.entries()
    assert opening.terms.epsilon == 1.0
    assert (reserve.query, reserve.schema) == ("a test", schema_digest(SCHEMA))
    assert (commit.plan, commit.of, commit.seq) == ("0" * 64, 1, 2)
    assert commit.time.endswith("+00:00")
    assert len(commit.time) == len("2025-01-31T23:59+00:00")
    assert 0 < commit.epsilon < reserve.epsilon < 1
    assert commit.epsilon == ledger.spent_epsilon


@pytest.mark.parametrize("fails", [False, True])
def test_a_ledger_does_not_say_how_long_a_fit_took(ledger, monkeypatch, fails):
    """One long cell makes a fit take longer."""
    for module in ("log", "ledger"):
        monkeypatch.setattr(f"skdp.ledger.{module}.read_clock", lambda: "now")
    record = PrivacyRecord(epsilon=0.1, delta=1e-7, neighbours=ledger.terms.neighbours)
    with contextlib.suppress(OSError), ledger.spend(record, query="a test"):
        monkeypatch.setattr("skdp.ledger.log.read_clock", lambda: "much later")
        if fails:
            raise OSError
    end = ledger.entries()[-1]
    assert (end.kind, end.time) == ("stop" if fails else "commit", "now")


def test_anybody_can_recompute_the_hashes_from_an_export(ledger):
    ask(ledger, 0.02, query='Γ "quoted",\n and broken').settle(0.01)
    before, lines = "0" * 64, ledger.export().splitlines()
    for line in lines:
        body, mark, told = line.rpartition(',"hash":"')
        assert mark
        text = f"{before}\n{body}}}"
        before = hashlib.sha256(text.encode()).hexdigest()
        assert told == f'{before}"}}'
    assert f"{len(lines)}:{before}" == str(ledger.head)
    rows = list(csv.DictReader(io.StringIO(ledger.export("csv"))))
    assert [row["hash"] for row in rows] == [json.loads(x)["hash"] for x in lines]
    with pytest.raises(ValueError, match="jsonl"):
        ledger.export("xml")


def test_words(ledger):
    ask(ledger, 0.02)
    text = str(ledger)
    for part in ("(1, 1e-06)-differential privacy", "add-remove", "in full: 1"):
        assert part in text
    assert str(ledger.head) in text
    assert repr(ledger) == f"Ledger({ledger.path!r})"


def test_copies_and_pickles_are_the_same_ledger(ledger, monkeypatch, tmp_path):
    ask(ledger, 0.02)
    stored = pickle.dumps(ledger)
    assert len(stored) < 1000
    monkeypatch.chdir("/")
    for other in (pickle.loads(stored), copy.copy(ledger), copy.deepcopy(ledger)):
        assert other == ledger
        before = ledger.remaining
        ask(other, 0.001)
        assert ledger.remaining < before
    assert len(list(tmp_path.iterdir())) == 1


def test_relative_paths_and_links_lead_to_the_same_file(ledger, path, monkeypatch):
    link = path.parent / "link.db"
    link.symlink_to(path)
    monkeypatch.chdir(path.parent)
    assert Ledger("budget.db").path == Ledger(link).path == str(path)
    monkeypatch.chdir("/")
    ask(Ledger(link), 0.01)
    assert ledger.remaining < ledger.terms.mu_squared


def test_a_dangling_link_does_not_become_a_ledger(path):
    path.symlink_to(path.parent / "nowhere" / "x.db")
    with pytest.raises(LedgerError):
        Ledger(path, epsilon=1.0, delta=1e-6, neighbours="add-remove")
