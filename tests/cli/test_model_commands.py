"""summary, evaluate, export and discover: what Python has, from the shell."""

import json

import joblib
import numpy as np
import pandas as pd
import pytest

import skdp
from skdp.schema import toml_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, its schema, and a model without noise that was fitted to it."""
    place = tmp_path_factory.mktemp("models")
    data = skdp.make_hospital(2000, random_state=1)
    frame = pd.DataFrame(data.columns)
    frame.to_csv(place / "t.csv", index=False)
    toml_files.write(data.schema, place / "s.toml")
    model = skdp.LogisticRegression(schema=data.schema, random_state=0, epsilon=8.0)
    model.fit(frame).save(place / "m")
    return place


def test_summary(call, folder):
    code, out, _ = call("summary", folder / "m")
    assert code == 0
    assert out == f"{skdp.load(folder / 'm').summary()}\n"
    code, out, _ = call("summary", folder / "m", "--ratios", "--json")
    found = json.loads(out)
    assert sorted(found) == ["coefficients", "facts", "head", "notes", "terms", "title"]
    keys = ["coef", "column", "high", "label", "low", "noise_std", "p", "ratio"]
    keys += ["ratio_high", "ratio_low", "sampling_std", "std", "z"]
    assert sorted(found["coefficients"][0]) == keys


def test_evaluate(call, folder, tmp_path):
    table = folder / "t.csv"
    code, out, _ = call("evaluate", folder / "m", table, "--epsilon", 2, "--seed", 1)
    assert code == 0
    same = skdp.evaluate(skdp.load(folder / "m"), table, epsilon=2.0, random_state=1)
    assert out == f"{same}\n"
    page = tmp_path / "scores.html"
    code, out, _ = call(
        *("evaluate", folder / "m", table, "--epsilon", 2, "--metric", "auc"),
        *("--json", "--out", page),
    )
    found = json.loads(out)
    assert list(found["scores"]) == ["auc"]
    assert found["out"] == str(page)
    assert page.read_text().startswith("<!doctype html>")
    code, _, err = call(
        "evaluate", folder / "m", table, "--epsilon", 1, "--metric", "x"
    )
    assert code == 2
    assert "must be among" in err


def test_evaluate_subgroups(call, folder, tmp_path):
    frame = pd.read_csv(folder / "t.csv")
    path = tmp_path / "t.csv"
    frame.assign(sex=np.where(frame.index % 3, "f", "m")).to_csv(path, index=False)
    fixed = ("evaluate", folder / "m", path, "--epsilon", 9, "--json")
    for by, levels in (
        ("admission_type", ["Emergency", "Urgent", "Elective"]),
        ("sex=f, m", ["f", "m", None]),
    ):
        code, out, _ = call(*fixed, "--metric", "accuracy", "--by", by)
        assert code == 0
        assert [one["level"] for one in json.loads(out)["groups"]] == levels
    code, _, err = call(*fixed, "--by", "sex")
    assert code == 2
    assert "by must be a column of categories" in err


def test_budgets_are_charged_to_a_ledger_with_who_and_why(call, folder, tmp_path):
    ledger = tmp_path / "l.db"
    call(
        "ledger",
        "make",
        ledger,
        "--epsilon",
        4,
        "--delta",
        1e-6,
        "--reserved-delta",
        1e-7,
    )
    paid = ("--ledger", ledger, "--purpose", "a trial", "--user", "ada")
    code, _, err = call(
        "evaluate", folder / "m", folder / "t.csv", "--epsilon", 0.5, *paid
    )
    assert (code, err) == (0, "")
    code, _, err = call("discover", folder / "t.csv", "--epsilon", 0.5, *paid)
    assert (code, err) == (0, "")
    _, out, _ = call("ledger", "show", ledger, "--json")
    entries = [e for e in json.loads(out)["entries"] if e["kind"] == "commit"]
    assert [e["query"] for e in entries] == [
        "evaluation of a LogisticRegression",
        "discovery of a schema",
    ]
    assert {(e["purpose"], e["user"]) for e in entries} == {("a trial", "ada")}
    code, _, err = call(
        "discover", folder / "t.csv", "--epsilon", 1, "--seed", 1, "--ledger", ledger
    )
    assert code == 2
    assert "Omit --seed" in err


def test_discover_writes_a_schema_that_fits(call, folder, tmp_path):
    out = tmp_path / "found.toml"
    code, shown, _ = call(
        *("discover", folder / "t.csv", "--epsilon", 8, "--target", "readmitted"),
        *("--out", out),
    )
    assert code == 0
    assert f"schema written to {out}" in shown
    assert "(8, 1e-09)-differential privacy" in shown
    assert out.read_text("utf-8").startswith("# Found with ε = 8. Noise")
    found = toml_files.read_toml(out)
    assert found.target_name == "readmitted"
    assert found.columns["admission_type"].levels == ("Elective", "Emergency", "Urgent")
    code, text, _ = call("discover", folder / "t.csv", "--epsilon", 8, "--json")
    assert toml_files.loads(json.loads(text)["schema"]).target is None
    code, _, err = call("discover", folder / "t.csv", "--epsilon", 8, "--target", "x")
    assert code == 2
    assert "The table has no column 'x'. Its columns are age" in err


def test_export(call, folder, tmp_path):
    frame = pd.read_csv(folder / "t.csv").drop(columns=["readmitted"])
    model = skdp.load(folder / "m")
    code, out, _ = call(
        "export", folder / "m", "--out", tmp_path / "m.joblib", "--json"
    )
    assert json.loads(out)["form"] == "scikit-learn pipeline"
    pipeline = joblib.load(tmp_path / "m.joblib")
    assert (pipeline.predict(frame) == model.predict(frame)).all()
    onnx = pytest.importorskip("onnx")
    code, out, _ = call("export", folder / "m", "--out", tmp_path / "m.onnx")
    assert code == 0
    onnx.checker.check_model(onnx.load(tmp_path / "m.onnx"))
    code, _, err = call("export", folder / "m", "--out", tmp_path / "m.pmml")
    assert code == 2
    assert "--out must end in .onnx or .joblib" in err


@pytest.mark.parametrize("seed", range(3))
def test_ranges_are_rounded_outwards_to_readable_numbers(seed):
    rng = np.random.default_rng(seed)
    table = {"x": rng.normal(7.3, 2.2, 5000), "year": rng.integers(1950, 2020, 5000)}
    found = skdp.discover(table, epsilon=4.0, random_state=seed, categorical=["year"])
    column = found.schema.columns["x"]
    assert column.low <= np.quantile(table["x"], 0.01)
    assert column.high >= np.quantile(table["x"], 0.99)
    for end in (column.low, column.high):
        assert len(f"{abs(end):g}".replace(".", "").strip("0")) <= 2
    assert isinstance(found.schema.columns["year"], skdp.Categorical)
    assert found.privacy_.delta == 1e-9  # the number of rows is private
    assert skdp.Schema.discover(table, epsilon=4.0, random_state=seed).columns["x"]


def test_a_range_near_zero_starts_there_and_empty_columns_are_left_out():
    rng = np.random.default_rng(0)
    table = {
        "age": rng.uniform(18, 80, 5000),
        "year": rng.integers(1950, 2020, 5000),
        "name": [f"person {i}" for i in range(5000)],
    }
    found = skdp.discover(table, epsilon=4.0, random_state=0)
    assert found.schema.columns["age"].low == 0
    assert found.schema.columns["year"].low >= 1000
    assert found.left_out == ("name",)
    assert "no category was found: name." in str(found)


def test_a_schema_prints_as_a_table():
    schema = skdp.make_hospital(10, random_state=0).schema
    lines = str(schema).splitlines()
    assert lines[0].split() == ["column", "kind", "values"]
    assert lines[2].split() == ["age", "numeric", "18", "to", "95"]
    assert lines[-1].split() == ["readmitted", "(target)", "categorical", "no,", "yes"]
    assert schema._repr_html_().count("<tr>") == len(lines) - 1
