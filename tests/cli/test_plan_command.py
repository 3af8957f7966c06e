import pytest

import skdp
from skdp.cli.options import set_target
from skdp.descent.forecast import forecast, format_cost
from skdp.descent.matrix import InterceptOnly
from skdp.schema import Categorical, Numeric, Schema, Vector, toml_files


def test_it_shows_the_plan_and_what_epsilon_buys(call, files, here):
    arguments = ("plan", "--schema", files / "readmitted.toml", "--rows", "50000")
    code, out, err = call(*arguments, "--epsilon", "0.7")
    assert (code, err) == (0, "")
    schema = toml_files.read_toml(files / "readmitted.toml")
    plan = skdp.plan(schema, 50_000, 0.7)
    assert str(plan).splitlines()[0] in out
    assert "→ 0.7" in out
    assert "█" in out
    assert max(map(len, out.splitlines())) <= 80
    seen = forecast(plan)
    row = next(line for line in out.splitlines() if "→" in line)
    assert f"{seen.low:.1g} to {seen.high:.1g}" in row
    assert "the expected cost in log-loss" in out
    assert call(*arguments, "--quiet") == (0, "", "")


def test_bars_shrink_as_the_budget_grows(call, files, here):
    _, out, _ = call("plan", "--schema", files / "visits.toml", "--rows", "9000")
    lengths = [
        line.count("█") + line.count("░")
        for line in out.splitlines()
        if ("█" in line or "░" in line) and "sampling error" not in line
    ]
    assert len(lengths) == 7
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1]


@pytest.mark.parametrize("columns", [40, 60, 120])
def test_numbers_stay_where_bars_have_no_room(call, files, here, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    schema = toml_files.read_toml(files / "readmitted.toml")
    for rows in (1000, 9000):
        _, out, _ = call("plan", "--schema", files / "readmitted.toml", "--rows", rows)
        assert max(map(len, out.splitlines())) <= columns
        table = out[out.index("What ε buys") :]
        assert ("█" in table) == ("on a log scale" in table) == (columns >= 60)
        fewest = skdp.plan(schema, rows, 0.1).geometry
        assert ("only a constant" in table) == isinstance(fewest, InterceptOnly)
        assert "…" not in table
        for epsilon in (0.1, 1.0, 10.0):
            plan = skdp.plan(schema, rows, epsilon)
            words = "– –"
            if not isinstance(plan.geometry, InterceptOnly):
                seen = forecast(plan)
                words = f"{format_cost(seen)} {seen.sampling_excess:.1g}"
            lines = [
                " ".join(line.replace("→", "").split()) for line in table.splitlines()
            ]
            assert any(line.startswith(f"{epsilon:g} {words}") for line in lines)


def test_budgets_that_buy_a_constant_promise_nothing(call, parsed, files, here):
    arguments = ("plan", "--schema", files / "visits.toml", "--rows", "600")
    _, out, _ = call(*arguments)
    lines = [line for line in out.splitlines() if "only a constant" in line]
    assert lines[0].split()[0] == "0.1"
    shown = parsed(*arguments)["forecasts"]
    constant = [line for line in shown if line["only_a_constant"]]
    assert len(lines) == len(constant) < len(shown)
    for name in ("privacy_excess", "privacy_excess_low", "privacy_excess_high"):
        assert {line[name] for line in constant} == {None}
        assert None not in {line[name] for line in shown if line not in constant}
    _, out, _ = call(*arguments[:-1], "20")
    assert out.count("only a constant") > len(lines)


@pytest.mark.parametrize(
    ("target", "model", "chosen"),
    [
        ("readmitted", None, "logistic"),
        ("visits", None, "linear"),
        ("visits", "poisson", "poisson"),
        ("readmitted", "svc", "svc"),
    ],
)
def test_the_target_chooses_the_model(parsed, files, here, target, model, chosen):
    more = () if model is None else ("--model", model)
    shown = parsed("plan", "--schema", files / f"{target}.toml", "--rows", 1000, *more)
    assert shown["model"] == chosen
    schema = toml_files.read_toml(files / f"{target}.toml")
    assert shown["in_words"] == str(skdp.plan(schema, 1000, model=chosen))
    assert f"engine: {shown['engine']}" in shown["in_words"]


def test_the_plan_can_be_kept(parsed, files, here):
    parsed(
        *("plan", "--schema", files / "readmitted.toml", "--rows", 1000),
        *("--neighbours", "zero-out", "--out", "plan.json"),
    )
    plan = skdp.Plan.from_json((here / "plan.json").read_text())
    assert (plan.n_rows, plan.neighbours) == (1000, "zero-out")


NUMBER, CLASS = Numeric(0, 1), Categorical([0, 1])


def test_the_target_is_found_where_it_is_described():
    named = Schema({"a": NUMBER}, target=("y", CLASS))
    assert set_target(named, None) == named
    assert set_target(named, "y") == named
    unnamed = Schema({"a": NUMBER}, target=CLASS)
    assert set_target(unnamed, "y") == named
    among = Schema({"a": NUMBER, "y": CLASS})
    assert set_target(among, "y") == named


@pytest.mark.parametrize(
    ("schema", "name", "sentence"),
    [
        (Schema({"a": NUMBER}), None, "has no named target"),
        (Schema({"a": NUMBER}, target=CLASS), None, "has no named target"),
        (
            Schema({"a": NUMBER}, target=("y", CLASS)),
            "a",
            "must be the schema's target",
        ),
        (Schema({"a": NUMBER}), "y", "does not describe"),
        (Schema({"v": Vector(["p", "q"])}), "v", "does not describe"),
    ],
)
def test_a_target_that_is_not_described_is_refused(schema, name, sentence):
    with pytest.raises(ValueError, match=sentence):
        set_target(schema, name)
