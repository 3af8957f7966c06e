"""Model cards: the same facts as the page, in the form that hubs read."""

import json

import pytest
from pages import model

import skdp


def read_metadata(text):
    """The lines of the YAML block, and what follows it."""
    assert text.startswith("---\n")
    block, _, rest = text[4:].partition("\n---\n")
    return block.splitlines(), rest


CARDS = [
    "plain",
    "seeded",
    "softmax",
    "poisson",
    "hostile",
    "persons",
    "many",
    "curves",
]


@pytest.mark.parametrize("name", CARDS)
def test_a_card_has_the_facts_of_the_page(name):
    made = model(name)
    card = json.loads(skdp.report(made, form="json"))
    assert card["privacy"]["claimed"] == (not made.privacy_.seeded)
    assert card["task"].startswith("tabular-")
    lines = len(made.summary().lines)
    assert len(card["summary"]["coefficients"]) == lines
    block, rest = read_metadata(skdp.report(made, form="markdown"))
    assert "library_name: skdp" in block
    assert f"pipeline_tag: {card['task']}" in block
    assert card["privacy"]["claim"] in rest.replace("\\", "")
    assert "model-index:" not in block


def test_a_card_of_persons_says_so():
    made = model("persons")
    card = json.loads(skdp.report(made, form="json"))
    assert "person" in card["privacy"]["promised"][0]
    assert "Persons" in card["facts"]


def test_a_card_of_many_classes_has_a_table_each():
    made = model("many")
    _, rest = read_metadata(skdp.report(made, form="markdown"))
    for level in made.classes_:
        assert f"\n| {level} | coef | sampling | privacy | std err |" in rest
    lines = json.loads(skdp.report(made, form="json"))["summary"]["coefficients"]
    assert [line["class"] for line in lines[:: len(lines) // 8]] == [*made.classes_]


def test_a_card_of_curves_has_a_line_for_each():
    made = model("curves")
    _, rest = read_metadata(skdp.report(made, form="markdown"))
    for term in made.summary().terms:
        assert rest.count(f"\n| {term.column} | {term.points} | ") == 1
    lines = json.loads(skdp.report(made, form="json"))["summary"]["coefficients"]
    assert ("age", "at 20") in [(line["column"], line["label"]) for line in lines]
    assert "age@" not in rest
    assert "curve" in rest


def test_scores_become_results_of_the_model_index():
    data = skdp.make_hospital(3000, random_state=1)
    made = skdp.LogisticRegression(schema=data.schema, epsilon=8.0).fit(data.columns)
    scores = skdp.evaluate(made, data.columns, epsilon=4.0)
    block, rest = read_metadata(skdp.report(made, form="markdown", scores=scores))
    shown = [name for name, one in scores.scores.items() if not one.too_noisy]
    assert sum(line.startswith("    - type:") for line in block) == len(shown)
    assert "    - type: roc_auc" in block
    assert "| true \\\\ predicted" in rest
    with pytest.raises(ValueError, match="Pass the model, and the evaluation as scor"):
        skdp.report(scores, form="json")
    with pytest.raises(ValueError, match=r"skdp.report\(scores\)"):
        skdp.report(made, scores=scores)
    with pytest.raises(ValueError, match="form must be one of"):
        skdp.report(made, form="pdf")


def test_names_of_strangers_mean_themselves():
    columns = {"a|b<script>": skdp.Numeric(0, 1), "*x*\n---": skdp.Numeric(0, 1)}
    table = {name: [0.1, 0.9] * 20 for name in columns} | {"y": [0, 1] * 20}
    schema = skdp.Schema(columns, target=("y", skdp.Categorical([0, 1])))
    with pytest.warns(UserWarning, match="constant"):
        made = skdp.LogisticRegression(schema=schema, n_rows=40).fit(table)
    text = skdp.report(made, form="markdown")
    assert "<script>" not in text
    assert text.count("\n---\n") == 1
    assert "a\\|b&lt;script&gt;" in text


def test_a_card_lists_its_releases_and_keeps_commands():
    made = model("plain")
    _, rest = read_metadata(skdp.report(made, form="markdown"))
    table = rest.split("## Releases")[1].split("## How to check")[0]
    assert table.count("\n| ") == len(made.privacy_.events) + 1
    assert "`skdp verify MODEL`" in rest
