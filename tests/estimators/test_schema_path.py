"""A schema may be given as the path of its file; what is fitted is what it says."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

import skdp
from skdp.audit.fits import complete_schema
from skdp.schema import toml_files

DATA = skdp.make_hospital(500)


@pytest.fixture(params=[str, Path])
def path(request, tmp_path):
    toml_files.write(DATA.schema, tmp_path / "stays.toml")
    return request.param(tmp_path / "stays.toml")


def test_a_fit_is_that_of_the_schema(path):
    model = clone(skdp.LogisticRegression(schema=path, random_state=1))
    model.fit(DATA.columns)
    own = skdp.LogisticRegression(schema=DATA.schema, random_state=1).fit(DATA.columns)
    np.testing.assert_array_equal(model.weights_, own.weights_)
    assert model.schema_ == own.schema_
    assert model.get_params()["schema"] == path
    assert str(model.privacy_) == str(own.privacy_)


@pytest.mark.parametrize("look", [True, False])
def test_a_saved_model_keeps_what_was_fitted(look, path, tmp_path):
    model = skdp.LogisticRegression(schema=path, look=look).fit(DATA.columns)
    Path(path).unlink()
    model.save(tmp_path / "model")
    loaded = skdp.load(tmp_path / "model")
    assert loaded.schema == DATA.schema
    assert loaded.schema_ == model.schema_
    assert (loaded.schema_ == DATA.schema) == (not look)
    np.testing.assert_array_equal(loaded.weights_, model.weights_)


def test_plans_and_audits_take_it_too(path):
    plan = skdp.plan(path, 500)
    assert plan.to_json() == skdp.plan(DATA.schema, 500).to_json()
    model = complete_schema(skdp.LogisticRegression(schema=path))
    assert model.schema.columns == DATA.schema.columns


@pytest.mark.parametrize("wrong", [{"age": (0, 1)}, 3, [DATA.schema]])
def test_anything_else_is_refused_in_a_sentence(wrong):
    sentence = f"the path of its TOML file, got {type(wrong).__name__}"
    with pytest.raises(ValueError, match=sentence):
        skdp.LogisticRegression(schema=wrong).fit(DATA.columns)
    with pytest.raises(ValueError, match=sentence):
        skdp.plan(wrong, 500)
    with pytest.raises(ValueError, match=r"There is no file 'none\.toml'"):
        skdp.LogisticRegression(schema="none.toml").fit(DATA.columns)
    with pytest.raises(ValueError, match="schema must be a Schema"):
        skdp.plan(None, 500)
    with pytest.raises(ValueError, match="model= names the estimator"):
        skdp.plan(skdp.LogisticRegression(schema=DATA.schema), 500)
