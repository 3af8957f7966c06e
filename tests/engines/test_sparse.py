"""Wide joint columns are kept sparse."""

import numpy as np
import pytest
from scipy.sparse import csr_array, issparse
from sklearn.linear_model import LogisticRegression as Reference

from skdp.descent.rule import MATRIX_LIMIT
from skdp.engines.compiled import CompiledEngine
from skdp.engines.reference import to_dense
from skdp.estimators import LogisticRegression
from skdp.privacy.encoding import SPARSE_WIDTH, Batch, Coded, encode
from skdp.schema import Categorical, Numeric, Schema, Vector
from skdp.tables import batches

WIDE = SPARSE_WIDTH + 40
SCHEMA = Schema(
    {"age": Numeric(0, 1), "text": Vector([f"t{j}" for j in range(WIDE)], norm=2.0)},
    target=Categorical([0, 1, 2]),
)


def random_array(rng, shape, density):
    """A sparse matrix; scipy's own function of that name has other words for `rng`."""
    return csr_array(rng.random(shape) * (rng.random(shape) < density))


def batch(rng, n_rows):
    text = 3 * random_array(rng, (n_rows, WIDE), 0.03).toarray()
    text[rng.random(n_rows) < 0.1] = 0.0
    text.flat[:3] = [np.nan, np.inf, 1e308]
    return Batch(
        columns={"age": rng.uniform(size=n_rows), "text": text},
        target=Coded(rng.integers(0, 3, n_rows), [0, 1, 2]),
    )


def records(seed=0, sizes=(5, 700, 3000)):
    rng = np.random.default_rng(seed)
    return encode([batch(rng, n) for n in sizes], SCHEMA)


def test_only_entries_that_are_not_zero_are_kept():
    for chunk in records().chunks:
        assert issparse(chunk.parts[1])
        assert chunk.parts[1].dtype == np.int16
        assert chunk.parts[1].nnz < 0.05 * chunk.parts[1].shape[0] * WIDE
        squares = chunk.parts[1].astype(np.int64).power(2).sum(axis=1)
        assert squares.max() <= 2**28


def test_a_part_of_other_columns_is_refused():
    table = records(sizes=(20,))
    chunk = table.chunks[0]
    narrow = (chunk.parts[0], chunk.parts[1][:, :-1], chunk.parts[2])
    broken = type(chunk)(narrow, chunk.target, chunk.weight)
    with pytest.raises(ValueError, match="A sparse part must have"):
        CompiledEngine(type(table)(table.layout, (broken,)))


def test_a_sparse_matrix_is_fitted_as_its_dense_self():
    rng = np.random.default_rng(2)
    X = random_array(rng, (400, WIDE), 0.05)
    y = rng.integers(0, 2, 400)
    schema = Schema(
        {"text": Vector([f"t{j}" for j in range(WIDE)])}, target=Categorical([0, 1])
    )
    fits = [
        LogisticRegression(schema=schema, n_steps=5, random_state=0).fit(table, y)
        for table in (X, X.tocsc(), X.toarray())
    ]
    assert (fits[0].coef_ == fits[1].coef_).all()
    assert (fits[0].coef_ == fits[2].coef_).all()
    encoded = encode(batches(X, schema, target=y), schema)
    rows = [
        to_dense(chunk, slice(None), np.arange(WIDE), encoded.layout)
        for chunk in encoded.chunks
    ]
    assert np.abs(np.vstack(rows) / 2**14).max() <= 1


def test_a_wide_table_without_noise_reaches_the_optimum():
    """Beyond the Gram matrix's reach steps are accelerated instead."""
    rng = np.random.default_rng(3)
    wide = MATRIX_LIMIT + 50
    X = random_array(rng, (300, wide), 0.02)
    X.data = np.trunc(X.data / 4 * 2**14) / 2**14
    y = (X[:, [0, 1, 2, 3, 4, 5, 6, 7]].sum(axis=1) > 0.1).astype(int)
    names = [f"t{j}" for j in range(wide)]
    schema = Schema({"text": Vector(names, norm=2.0)}, target=Categorical([0, 1]))
    alpha = 1e-3
    model = LogisticRegression(schema=schema, epsilon=np.inf, alpha=alpha).fit(X, y)
    assert model.plan_.geometry.momentum
    # Weights are penalised on features over the norm: w_scaled = 2 w.
    other = Reference(C=1 / (4 * alpha * 300), tol=1e-10, max_iter=10_000).fit(X, y)

    def objective(coef, intercept):
        margin = X @ coef + intercept
        loss = np.mean(np.logaddexp(0, margin) - y * margin)
        return loss + alpha / 2 * 4 * (coef @ coef)

    ours = objective(model.coef_[0], model.intercept_[0])
    assert ours - objective(other.coef_[0], other.intercept_[0]) < 1e-6
    largest = np.abs(other.coef_).max()
    assert np.abs(model.coef_ - other.coef_).max() < 1e-3 * largest
