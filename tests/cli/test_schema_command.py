import pandas as pd
import pytest

from skdp.schema import toml_files


def test_a_form_shows_names_and_types_only(call, files, here):
    frame = pd.read_csv(files / "readmitted.csv")
    for name in ("readmitted.csv", "readmitted.parquet"):
        code, out, err = call("schema", files / name)
        assert (code, err) == (0, "")
        form = out[out.index("[columns") :]
        assert all(f"[columns.{column}]" in form for column in frame.columns)
        assert not any(level in form for level in ("Surgery", "Medicare", "yes"))
        assert not any(character.isdigit() for character in form)


def test_the_form_does_not_depend_on_records(call, here):
    frame = pd.DataFrame({"age": [20, 30], "job": ["a", "b"]})
    other = pd.DataFrame({"age": [99, -7], "job": ["zzz", ""]})
    shown = []
    for table in (frame, other):
        table.to_csv("t.csv", index=False)
        table.to_parquet("t.parquet")
        shown.append([call("schema", name) for name in ("t.csv", "t.parquet")])
    assert shown[0] == shown[1]


def test_out_target_and_json(call, parsed, files, here):
    arguments = ("schema", files / "readmitted.parquet", "--target", "readmitted")
    code, out, _ = call(*arguments, "--out", "form.toml")
    assert code == 0
    assert "skdp plan --schema form.toml" in out
    text = (here / "form.toml").read_text()
    assert '[target]\nname = "readmitted"\nkind = "categorical"' in text
    assert "[columns.readmitted]" not in text
    with pytest.raises(ValueError, match="not complete"):
        toml_files.loads(text)
    shown = parsed(*arguments)
    assert shown["template"] == text
    assert {"name": "age", "type": "number"} in shown["columns"]
    assert call(*arguments, "--out", "form.toml")[0] == 2
    assert call(*arguments, "--out", "form.toml", "--force", "-q") == (0, "", "")
    # The form is the result, so --quiet does not hide it.
    assert call(*arguments, "-q") == (0, text, "")
    assert "the result if --out is not given" in call("schema", "--help")[1]


def test_an_unknown_target_is_refused(call, files, here):
    code, _, err = call("schema", files / "readmitted.csv", "--target", "nope")
    assert code == 2
    assert "no column 'nope'" in err
