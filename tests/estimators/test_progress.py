"""Bars on standard error, for those who ask for them."""

import numpy as np
import pytest

import skdp
from skdp.schema import Categorical, Numeric, Schema

SCHEMA = Schema({"x": Numeric(0, 1)}, target=("y", Categorical([0, 1])))
BARS = ["counting rows", "reading", "fitting"]


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("verbose", [0, 1])
def test_every_pass_over_a_file_has_a_bar(tmp_path, capsys, verbose, neighbours):
    x = np.random.default_rng(0).random(1000)
    lines = [f'"{a:.3f}",{int(a > 0.5)}' for a in x]
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *lines]))
    ledger = skdp.Ledger(
        tmp_path / "t.ledger", epsilon=2, delta=1e-5, neighbours=neighbours
    )
    skdp.LogisticRegression(
        epsilon=1.0,
        schema=SCHEMA,
        neighbours=neighbours,
        ledger=ledger,
        verbose=verbose,
    ).fit(str(tmp_path / "t.csv"))
    shown = capsys.readouterr()
    assert not shown.out
    # A private number of rows is not counted exactly.
    bars = BARS[1:] if neighbours == "add-remove" else BARS
    assert [bar for bar in BARS if bar in shown.err] == (bars if verbose else [])
    assert verbose or not shown.err


def draw():
    x = np.random.default_rng(0).random(1000)
    return {"x": x, "y": (x > 0.5).astype(int)}


def evaluate(verbose):
    model = skdp.LogisticRegression(schema=SCHEMA, epsilon=8.0).fit(draw())
    skdp.evaluate(model, draw(), epsilon=8.0, verbose=verbose)


def discover(verbose):
    skdp.discover(draw(), epsilon=8.0, categorical=["y"], verbose=verbose)


def search(verbose):
    model, table = skdp.LogisticRegression(schema=SCHEMA), draw()
    grid = {"alpha": [1e-5, 1.0]}
    found = skdp.PrivateSearchCV(model, grid, epsilon=8.0, verbose=verbose)
    found.fit({"x": table["x"]}, table["y"])


@pytest.mark.parametrize(
    ("work", "bar"),
    [(evaluate, "scoring"), (discover, "discovering"), (search, "searching")],
)
def test_other_work_has_a_bar_too(work, bar, capsys):
    work(0)
    assert not capsys.readouterr().err
    work(1)
    shown = capsys.readouterr()
    assert bar in shown.err
    assert not shown.out


def test_a_notebook_without_widgets_shows_text(capsys, monkeypatch):
    """Rich would warn there, and show nothing."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("skdp.estimators.progress.find_spec", lambda name: None)
    discover(1)
    assert "discovering" in capsys.readouterr().err
