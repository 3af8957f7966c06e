"""Every kind of fit charges its ledger before it reads a record."""

import copy
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import skdp
from skdp import BudgetError, Categorical, Ledger, Numeric, Schema
from skdp.descent.plan_files import plan_digest
from skdp.estimators.saving import model_digest
from skdp.ledger import LedgerError, schema_digest
from skdp.privacy.budget import PrivacyRecord
from skdp.tables import cells

rng = np.random.default_rng(5)
X = rng.uniform(size=(1500, 3))
Y = (X[:, 0] > 0.5).astype(int)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
SCHEMA = Schema({name: Numeric(0, 1) for name in "abc"}, target=Categorical([0, 1]))
FOLDS = skdp.RandomFolds(3)
GIVEN = {"bounds": (0, 1), "neighbours": "replace-one"}
ALL = [
    skdp.LogisticRegression(classes=[0, 1], delta=1e-6),
    skdp.LinearSVC(classes=[0, 1], delta=1e-6),
    skdp.LinearRegression(target_bounds=(0, 1), delta=1e-6),
    skdp.HuberRegressor(target_bounds=(0, 1), delta=1e-6),
    skdp.PoissonRegressor(target_bounds=(0, 1), delta=1e-6, n_steps=5),
]
named = pytest.mark.parametrize("estimator", ALL, ids=lambda m: type(m).__name__)


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "budget.db"
    return Ledger(
        path, epsilon=8.0, delta=1e-6, neighbours="replace-one", reserved_delta=5e-7
    )


def model(ledger, **options):
    options = {
        "epsilon": 1.0,
        "neighbours": "replace-one",
        "n_steps": 5,
        "bounds": (0, 1),
        "classes": [0, 1],
    } | options
    return skdp.LogisticRegression(ledger=ledger, **options)


def kinds(ledger):
    return [entry.kind for entry in ledger.entries()]


def commits(ledger):
    return [entry for entry in ledger.entries() if entry.kind == "commit"]


# ---- what is entered


@named
def test_every_estimator_charges(ledger, estimator):
    fitted = clone(estimator).set_params(**GIVEN, ledger=ledger).fit(X, Y)
    opening, reserve, commit = ledger.entries()
    assert (opening.kind, reserve.kind, commit.kind) == ("open", "reserve", "commit")
    assert reserve.query == f"fit of {type(estimator).__name__}"
    whole = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="add-remove").budget
    assert reserve.mu_squared == whole
    spent = fitted.privacy_.spent
    assert spent <= commit.mu_squared <= spent * (1 + 1e-11)
    assert commit.plan == plan_digest(fitted.plan_)
    assert commit.released == model_digest(fitted)
    assert reserve.released is None
    # A look narrows ranges, but the table is known by the schema before the look.
    assert commit.schema == schema_digest(fitted.profile_.limits) == reserve.schema
    assert commit.schema != schema_digest(fitted.schema_)
    assert commit.version == skdp.__version__
    assert commit.epsilon == pytest.approx(fitted.privacy_.spent_epsilon, rel=1e-6)


def test_what_is_found_is_charged(ledger):
    fitted = skdp.LogisticRegression(
        epsilon=4.0, n_steps=3, neighbours="replace-one", ledger=ledger
    ).fit(X, Y)
    _, reserve, commit = ledger.entries()
    assert reserve.delta == pytest.approx(1e-7)
    assert 0 < commit.delta <= reserve.delta
    found = schema_digest(fitted.profile_.limits)
    assert reserve.schema != found == commit.schema
    again = clone(fitted).set_params(schema=fitted.schema_, epsilon=0.1)
    again.fit(FRAME.set_axis(["x0", "x1", "x2"], axis=1), Y)
    assert len(commits(ledger)) == 2


def test_finding_categories_needs_a_part_of_delta(tmp_path):
    plain = Ledger(
        tmp_path / "plain.db", epsilon=8.0, delta=1e-6, neighbours="replace-one"
    )
    with pytest.raises(BudgetError, match="schema"):
        skdp.LogisticRegression(neighbours="replace-one", ledger=plain).fit(X, Y)
    model(plain).fit(X, Y)


def test_the_whole_budget_in_one_fit(tmp_path):
    ledger = Ledger(
        tmp_path / "one.db", epsilon=1.0, delta=1e-6, neighbours="replace-one"
    )
    fitted = model(ledger, epsilon=1.0).fit(X, Y)
    assert 0.999 < ledger.spent_epsilon <= 1.0
    assert fitted.privacy_.spent_epsilon <= 1.0
    with pytest.raises(BudgetError):
        model(ledger, epsilon=0.01).fit(X, Y)


@pytest.mark.parametrize("neighbours", ["zero-out", "add-remove"])
def test_other_relations_need_their_ledger(ledger, tmp_path, neighbours):
    with pytest.raises(LedgerError, match="do not add"):
        model(ledger, neighbours=neighbours, delta=1e-7).fit(X, Y)
    own = Ledger(tmp_path / "own.db", epsilon=8.0, delta=1e-6, neighbours=neighbours)
    model(own, neighbours=neighbours, delta=1e-7).fit(X, Y)
    assert kinds(own) == ["open", "reserve", "commit"]


def test_any_model_of_the_table_is_welcome(ledger):
    """Fewer columns, another target, other bounds: spending adds up the same."""
    model(ledger).fit(X, Y)
    model(ledger).fit(X[:, :2], Y)
    model(ledger, bounds=(0, 2)).fit(X, Y)
    other = skdp.LinearRegression(
        n_steps=5, **GIVEN, target_bounds=(0, 1), ledger=ledger
    )
    other.fit(FRAME[["a", "b"]], FRAME["c"])
    assert len({entry.schema for entry in commits(ledger)}) == 4
    one = commits(ledger)[0].mu_squared
    spent = ledger.terms.mu_squared - ledger.remaining
    assert spent == pytest.approx(4 * one)


def test_a_ledger_made_with_a_schema_refuses_others(tmp_path):
    path = tmp_path / "strict.db"
    strict = Ledger(
        path, epsilon=8.0, delta=1e-6, neighbours="replace-one", schema=SCHEMA
    )
    given = {"schema": SCHEMA, "bounds": None, "classes": None}
    fitted = model(strict, **given).fit(FRAME, Y)
    assert fitted.schema_ != SCHEMA  # but scores are of the same table
    skdp.evaluate(
        fitted, FRAME, Y, epsilon=0.5, neighbours="replace-one", ledger=strict
    )
    left = strict.remaining
    fewer = Schema({"a": Numeric(0, 1)}, target=Categorical([0, 1]))
    for options in (given | {"schema": fewer}, {"bounds": (0, 2)}):
        with pytest.raises(LedgerError, match="accepts only certain schemas"):
            model(strict, **options).fit(FRAME, Y)
    assert strict.remaining == left
    strict.admit(fewer)
    model(strict, **given | {"schema": fewer}).fit(FRAME, Y)


def test_a_fit_has_the_purpose_of_its_ledger(ledger):
    asking = ledger.for_purpose("yearly report", user="ada")
    clone(model(asking)).fit(X, Y)
    scores = skdp.evaluate(
        model(None).fit(X, Y),
        X,
        Y,
        epsilon=0.1,
        neighbours="replace-one",
        ledger=asking,
    )
    found = {(entry.purpose, entry.user) for entry in ledger.entries()[1:]}
    assert found == {("yearly report", "ada")}
    assert scores.privacy_.spent_epsilon <= 0.1


# One fit in a hundred finds a range that is far too wide, and warns.
@pytest.mark.filterwarnings("ignore::skdp.estimators.DoubtfulSchemaWarning")
def test_no_cell_enters_the_file(ledger):
    marked, labels = X.copy(), Y.astype(object)
    marked[7] = 0.123456789, 0.987654321, 0.5555551
    labels[labels == 1], labels[labels == 0] = "secret", "nothing"
    fitted = skdp.LogisticRegression(
        epsilon=4.0, n_steps=3, neighbours="replace-one", ledger=ledger
    )
    fitted.fit(marked, labels)
    with open(ledger.path, "rb") as file:
        stored = file.read()
    for value in marked[7]:
        assert np.float64(value).tobytes() not in stored
        assert np.float64(value).tobytes()[::-1] not in stored
        assert str(value).encode() not in stored
    assert b"secret" not in stored


# ---- nothing is read before the reservation


class Watched(str):
    """A cell that counts what is done with it."""

    touched = 0

    def __getattribute__(self, name):
        Watched.touched += 1
        return super().__getattribute__(name)

    def __hash__(self):
        Watched.touched += 1
        return super().__hash__()

    def __eq__(self, other):
        Watched.touched += 1
        return super().__eq__(other)


@pytest.fixture
def watched(monkeypatch):
    """A table of such cells; a reader calls none of their methods, but `plain`."""
    read = cells.plain

    def counted(cell):
        Watched.touched += 1
        return read(cell)

    monkeypatch.setattr(cells, "plain", counted)
    table, labels = np.empty((200, 2), dtype=object), np.empty(200, dtype=object)
    table[:] = [[Watched("0.5"), Watched("0.2")] for _ in range(200)]
    labels[:] = [Watched("1") for _ in range(200)]
    Watched.touched = 0
    return table, labels


def test_a_watched_cell_notices_a_fit(watched, ledger):
    model(ledger).fit(*watched)
    assert Watched.touched >= 600
    assert kinds(ledger) == ["open", "reserve", "commit"]


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 9.0},
        {"epsilon": 8.0, "delta": 2e-6},
        {"epsilon": np.inf},
        {"random_state": 0},
        {"random_state": np.random.RandomState(0)},
        {"neighbours": "zero-out"},
        {"classes": None, "epsilon": 0.01, "delta": 9e-4},
        {"ledger": "budget.db"},
        {"ledger": 5},
        {"ledger": "/nowhere/budget.db"},
    ],
    ids=lambda options: str(options).partition(" at 0x")[0],
)
def test_refused_before_a_cell_is_read(watched, ledger, options):
    bound = {"ledger": ledger} | options
    with pytest.raises(ValueError, match=r"ledger|Ledger"):
        model(**bound).fit(*watched)
    assert Watched.touched == 0
    assert kinds(ledger) == ["open"]


def test_a_ledger_that_was_changed_is_refused_before_a_cell_is_read(watched, ledger):
    with open(ledger.path, "r+b") as file:
        file.truncate(5000)
    for given in (ledger, ledger.path):
        with pytest.raises(LedgerError, match="refused"):
            model(given).fit(*watched)
    assert Watched.touched == 0


def test_no_row_of_a_file_is_encoded_before_the_reservation(
    ledger, tmp_path, monkeypatch
):
    path = tmp_path / "table.csv"
    FRAME.assign(y=Y).to_csv(path, index=False)
    schema = Schema(SCHEMA.columns, target=("y", SCHEMA.target))

    def encoded(*_):
        pytest.fail("a record was read")

    monkeypatch.setattr("skdp.privacy.encoding._encode_column", encoded)
    with pytest.raises(BudgetError, match="affordable"):
        skdp.LogisticRegression(
            epsilon=9.0, schema=schema, neighbours="replace-one", ledger=ledger
        ).fit(path)


def test_what_is_public_and_wrong_costs_nothing(ledger):
    for options in ({"delta": 0.5}, {"alpha": -1.0}, {"engine": "none"}):
        with pytest.raises(ValueError, match=r"delta|alpha|l2|engine"):
            model(ledger, **options).fit(X, Y)
    assert kinds(ledger) == ["open"]


# ---- no way round


def test_clones_copies_and_pickles_charge_the_same(ledger, tmp_path, monkeypatch):
    first = model(ledger)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    others = [
        clone(first),
        copy.copy(first),
        copy.deepcopy(first),
        pickle.loads(pickle.dumps(first)),
        model(ledger.path),
        model(tmp_path / "elsewhere" / ".." / "budget.db"),
        make_pipeline(FunctionTransformer(), first),
    ]
    for times, other in enumerate(others, start=1):
        other.fit(X, Y)
        assert len(commits(ledger)) == times
    assert len(list(tmp_path.iterdir())) == 2


def test_a_relative_path_is_refused_where_it_leads_somewhere_too(ledger, monkeypatch):
    """A worker may be in another folder, with another data set's ledger in it."""
    monkeypatch.chdir(os.path.dirname(ledger.path))
    with pytest.raises(ValueError, match="absolute"):
        model(os.path.basename(ledger.path)).fit(X, Y)
    assert kinds(ledger) == ["open"]


def test_a_fitted_model_charges_again(ledger):
    fitted = model(ledger).fit(X, Y)
    fitted.fit(X, Y)
    pickle.loads(pickle.dumps(fitted)).fit(X, Y)
    assert len(commits(ledger)) == 3


@pytest.mark.parametrize("as_path", [False, True])
def test_a_saved_model_charges_the_same_ledger(ledger, tmp_path, as_path):
    fitted = model(ledger.path if as_path else ledger).fit(X, Y)
    fitted.save(tmp_path / "model")
    loaded = skdp.load(tmp_path / "model")
    loaded.fit(X, Y)
    assert len(commits(ledger)) == 2


def test_cross_validation_charges_every_fold(ledger):
    cross_val_score(model(ledger), X, Y, cv=FOLDS)
    assert len(commits(ledger)) == 3
    one = commits(ledger)[0].mu_squared
    spent = ledger.terms.mu_squared - ledger.remaining
    assert spent == pytest.approx(3 * one)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_search_charges_every_fit(ledger, n_jobs):
    grid = {"alpha": [1e-4, 1.0], "epsilon": [0.3]}
    search = GridSearchCV(model(ledger), grid, cv=FOLDS, n_jobs=n_jobs)
    search.fit(X, Y)
    assert len(commits(ledger)) == 2 * 3 + 1
    assert ledger.spent_epsilon < 8.0


def test_a_search_stops_where_the_budget_does(tmp_path):
    ledger = Ledger(
        tmp_path / "small.db", epsilon=1.0, delta=1e-6, neighbours="replace-one"
    )
    search = GridSearchCV(
        model(ledger, epsilon=0.5),
        {"alpha": [1e-4, 1.0]},
        cv=FOLDS,
        error_score="raise",
    )
    with pytest.raises(BudgetError, match="affordable"):
        search.fit(X, Y)
    assert ledger.spent_epsilon <= 1.0


# ---- fits that stop

SCRIPT = """
import os, signal, sys
import numpy as np
import skdp
from skdp.engines.reference import ReferenceEngine

class Killed(ReferenceEngine):
    calls = 0
    def gradient(self, units, at, slopes):
        Killed.calls += 1
        if Killed.calls == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().gradient(units, at, slopes)

import skdp.engines.choice as choice
choice.choose_engine = lambda *_: Killed
X = np.random.default_rng(0).uniform(size=(500, 3))
model = skdp.LogisticRegression(
    epsilon=1.0, n_steps=5, bounds=(0, 1), classes=[0, 1], neighbours="replace-one",
    ledger=sys.argv[1])
model.fit(X, (X[:, 0] > 0.5).astype(int))
"""


def test_a_fit_that_is_killed_stays_charged_in_full(ledger):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), ledger.path], check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert kinds(ledger) == ["open", "reserve"]
    whole = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="add-remove").budget
    left = ledger.terms.mu_squared - whole
    assert ledger.remaining == pytest.approx(left, rel=1e-12)
    assert "in full: 1" in str(ledger)
    model(ledger).fit(X, Y)


def test_a_fit_that_is_interrupted_is_charged_for_what_it_released(ledger, monkeypatch):
    from skdp.engines.reference import ReferenceEngine

    class Interrupted(ReferenceEngine):
        calls = 0

        def gradient(self, units, at, slopes):
            Interrupted.calls += 1
            if Interrupted.calls == 3:
                raise KeyboardInterrupt
            return super().gradient(units, at, slopes)

    monkeypatch.setattr("skdp.engines.choice.choose_engine", lambda *_: Interrupted)
    with pytest.raises(KeyboardInterrupt) as stop:
        model(ledger).fit(X, Y)
    _, reserve, stopped = ledger.entries()
    assert stopped.kind == "stop"
    assert 0 < stopped.mu_squared < reserve.mu_squared
    told = float(stop.value.__notes__[0].split("(")[1].split(",")[0])
    assert stopped.epsilon == pytest.approx(told, rel=1e-5)


def test_a_ledger_lost_during_a_fit_does_not_hide_why_it_stopped(ledger, monkeypatch):
    def stop(*_):
        os.unlink(ledger.path)
        raise KeyboardInterrupt

    monkeypatch.setattr(skdp.LogisticRegression, "_set_coefficients", stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
        model(ledger).fit(X, Y)
    assert any("reservation stays" in note for note in stopped.value.__notes__)
