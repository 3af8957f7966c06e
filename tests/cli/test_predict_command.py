import numpy as np
import pandas as pd
import pytest

import skdp
from skdp.cli import predict_command as command


@pytest.fixture(scope="module")
def models(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for target, kind in (
        ("readmitted", skdp.LogisticRegression),
        ("visits", skdp.LinearRegression),
    ):
        schema = skdp.make_hospital(1, target=target).schema
        kind(schema=schema).fit(files / f"{target}.csv").save(folder / target)
    return folder


@pytest.mark.parametrize("target", ["readmitted", "visits"])
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_predictions_are_those_of_the_model(
    call, files, here, models, monkeypatch, target, form
):
    monkeypatch.setattr(command, "ROWS", 700)  # more than one piece, the last shorter
    words = ("predict", models / target, files / f"{target}.{form}")
    code, out, err = call(*words, "--out", f"new.{form}")
    assert (code, err) == (0, "")
    first, last = out.splitlines()
    assert first.startswith(f"The predictions are in new.{form}, one per row of ")
    assert last == "columns  prediction"
    read = pd.read_csv if form == "csv" else pd.read_parquet
    found = read(f"new.{form}")["prediction"].to_numpy()
    expected = skdp.load(models / target).predict(files / f"{target}.csv")
    assert len(found) == 3000
    if target == "visits":
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    else:
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize("partitioned", [False, True])
def test_probabilities(parsed, files, here, models, partitioned):
    """Cells that the names of directories stand for are no Arrow array."""
    table = files / "readmitted.csv"
    if partitioned:
        frame = pd.read_csv(table)[:50]
        table = "by department"
        frame.to_parquet(table, partition_cols=["department"], index=False)
    words = ("predict", models / "readmitted", table)
    shown = parsed(*words, "--probabilities", "--out", "deep/new.parquet")
    assert shown["columns"] == ["prediction", "probability of no", "probability of yes"]
    found = pd.read_parquet("deep/new.parquet").to_numpy()[:, 1:].astype(float)
    model = skdp.load(models / "readmitted")
    np.testing.assert_array_equal(found, model.predict_proba(table))


def test_a_file_without_target_or_rows_will_do(call, files, here, models):
    frame = pd.read_csv(files / "readmitted.csv").drop(columns="readmitted")
    frame["name"] = "ignored"
    frame[:0].to_csv("none.csv", index=False)
    frame[:5].to_csv("five.csv", index=False)
    for name, rows in (("none", 0), ("five", 5)):
        words = ("predict", models / "readmitted", f"{name}.csv", "--quiet")
        assert call(*words, "--out", f"{name}-out.csv") == (0, "", "")
        assert len(pd.read_csv(f"{name}-out.csv")) == rows


def test_no_half_written_predictions(call, files, here, models, monkeypatch):
    monkeypatch.setattr(command, "ROWS", 600)
    made, times = skdp.LogisticRegression.predict, []

    def fail_later(model, rows):
        times.append(len(rows))
        if len(times) == 4:  # after an empty piece and two whole ones
            raise OSError(28, "No space left on device")
        return made(model, rows)

    words = ("predict", models / "readmitted", files / "readmitted.csv")
    with monkeypatch.context() as patch:
        patch.setattr(skdp.LogisticRegression, "predict", fail_later)
        code, _, err = call(*words, "--out", "new.csv")
    assert times == [0, 600, 600, 600]
    assert (code, err) == (2, "skdp: No space left on device.\n")
    assert list(here.iterdir()) == []
    (here / "new.csv").write_text("precious")
    assert call(*words, "--out", "new.csv")[0] == 2
    assert (here / "new.csv").read_text() == "precious"
    assert call(*words, "--out", "new.csv", "--force")[0] == 0
    assert [path.name for path in here.iterdir()] == ["new.csv"]


def test_a_column_that_is_not_there_is_asked_for(call, files, models, here):
    pd.read_csv(files / "visits.csv").drop(columns="age").to_csv("no.csv", index=False)
    code, _, err = call("predict", models / "visits", "no.csv", "--out", "p.csv")
    assert code == 2
    assert "no column 'age'. Every column of the schema" in err
    table = pd.read_csv(files / "visits.csv").drop(columns="visits")
    with pytest.raises(ValueError, match=r"'visits'\. Every column of the schema"):
        skdp.evaluate(skdp.load(models / "visits"), table, epsilon=1.0)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["{models}/nothing", "{files}/visits.csv", "--out", "a.csv"],
            "no saved model",
        ),
        (
            ["{files}", "{files}/visits.csv", "--out", "a.csv"],
            "has no file 'model.json'",
        ),
        (
            ["{models}/visits", "{files}/visits.csv", "--out", "a.txt"],
            "must end in .csv",
        ),
        (["{models}/visits", "{files}/none.csv", "--out", "a.csv"], "There is no file"),
        (["{models}/visits", "{files}/visits.toml", "--out", "a.csv"], "must end in"),
        (
            ["{models}/visits", "{files}/visits.csv", "--out=a.csv", "--probabilities"],
            "has no probabilities",
        ),
    ],
)
def test_refusals(call, files, here, models, words, sentence):
    words = [word.format(models=models, files=files) for word in words]
    code, out, err = call("predict", *words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert list(here.iterdir()) == []
