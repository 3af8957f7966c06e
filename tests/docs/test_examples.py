"""Every program of the gallery runs, prints something and draws a picture."""

import runpy
from pathlib import Path

import pytest

plt = pytest.importorskip("matplotlib.pyplot")
EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
#: Numbers of the examples that take most of the time.
LONG = {2, 3, 5, 6, 9}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            id=path.stem,
            marks=[pytest.mark.nightly] * (int(path.stem.split("_")[1]) in LONG),
        )
        for path in EXAMPLES
    ],
)
def test_the_example_runs(path, monkeypatch, capsys):
    plt.switch_backend("Agg")
    drawn = []
    monkeypatch.setattr(plt, "show", lambda: drawn.append(plt.gcf()))
    try:
        runpy.run_path(str(path), run_name="__main__")
        assert capsys.readouterr().out.strip()
        assert len(drawn) == 1
        assert any(axes.has_data() for axes in drawn[0].axes)
    finally:
        plt.close("all")


def test_there_are_examples():
    assert len(EXAMPLES) >= 8
