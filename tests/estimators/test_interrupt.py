"""A fit that is interrupted changes nothing, and says what it has spent."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from skdp.engines.reference import ReferenceEngine
from skdp.estimators import LogisticRegression
from skdp.privacy import discovery

rng = np.random.default_rng(6)
X = rng.uniform(size=(500, 3))
Y = (X[:, 0] > 0.5).astype(int)


class Interrupted(ReferenceEngine):
    """Stopped by its user at the fourth gradient."""

    calls = 0

    def gradient(self, units, at, slopes):
        Interrupted.calls += 1
        if Interrupted.calls == 4:
            raise KeyboardInterrupt
        return super().gradient(units, at, slopes)


@pytest.fixture
def interrupted(monkeypatch):
    Interrupted.calls = 0
    monkeypatch.setattr("skdp.engines.choice.choose_engine", lambda *_: Interrupted)


def model(**options):
    return LogisticRegression(bounds=(0, 1), classes=[0, 1], **options)


def test_a_first_fit_leaves_nothing(interrupted):
    stopped = model()
    before = dict(vars(stopped))
    with pytest.raises(KeyboardInterrupt) as stop:
        stopped.fit(X, Y)
    assert vars(stopped) == before
    with pytest.raises(NotFittedError):
        stopped.predict(X)
    (note,) = stop.value.__notes__
    assert note.startswith("Spent before the fit stopped:")
    assert "3 × gradient" in note
    assert "1 × number of rows, histograms of 3 columns and of the target" in note
    assert "1 × 10 entries of the Gram matrix" in note


def test_what_is_said_is_less_than_the_budget_and_more_than_nothing(interrupted):
    with pytest.raises(KeyboardInterrupt) as stop:
        model(epsilon=1.0).fit(X, Y)
    (note,) = stop.value.__notes__
    spent = float(note.split("(")[1].split(",")[0])
    assert 0.2 < spent < 0.9


def test_a_second_fit_leaves_the_first(monkeypatch):
    kept = model().fit(X, Y)
    before = {name: id(value) for name, value in vars(kept).items()}
    chance, record = kept.predict_proba(X), str(kept.privacy_)
    Interrupted.calls = 0
    monkeypatch.setattr("skdp.engines.choice.choose_engine", lambda *_: Interrupted)
    with pytest.raises(KeyboardInterrupt):
        kept.fit(X[:, :2], Y)
    assert {name: id(value) for name, value in vars(kept).items()} == before
    assert (kept.predict_proba(X) == chance).all()
    assert str(kept.privacy_) == record


def test_attributes_change_all_at_once(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    kept = model(random_state=0, n_steps=5).fit(X, Y)
    before = {name: id(value) for name, value in vars(kept).items()}
    monkeypatch.setattr(LogisticRegression, "_set_coefficients", stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
        kept.fit(X, Y)
    assert {name: id(value) for name, value in vars(kept).items()} == before
    assert "5 × gradient" in stopped.value.__notes__[0]


def test_nothing_is_said_before_anything_is_spent(monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(discovery, "release_ranges_and_texts", stop)
    with pytest.raises(KeyboardInterrupt) as stopped:
        LogisticRegression(classes=[0, 1]).fit(X, Y)
    assert not hasattr(stopped.value, "__notes__")


def test_an_error_half_way_says_what_was_spent_too():
    with pytest.raises(ValueError, match="more than one class") as error:
        LogisticRegression(epsilon=0.01).fit(X, Y)
    (note,) = error.value.__notes__
    assert "magnitudes of 3 columns" in note
