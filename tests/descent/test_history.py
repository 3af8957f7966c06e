"""A history holds every step."""

import numpy as np

import skdp


def test_a_history_holds_every_step():
    data = skdp.make_hospital(200)
    records = skdp.encode([data.batch], data.schema)
    plan = skdp.preset(
        "dp_skgd", records.layout, skdp.Logistic(), n_rows=200, n_steps=9
    )
    history = skdp.History()
    fit = skdp.run(plan, records, random_state=0, callback=history)
    assert len(history) == 9
    assert history.weights.shape == (9, *fit.weights.shape)
    np.testing.assert_allclose(history.weights.mean(axis=0), fit.weights)
    assert history.visits.sum() == sum(len(step.at) for step in history.steps)
    assert len(skdp.History().visits) == 0


def test_a_schema_becomes_text_and_back():
    schema = skdp.make_hospital(1).schema
    assert skdp.Schema.from_toml(schema.to_toml()) == schema
    form = skdp.schema_template({"age": np.zeros(3), "job": np.array(["a", "b", "a"])})
    assert "[columns.age]" in form
    assert '"a"' not in form
