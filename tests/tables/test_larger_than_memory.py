import mmap
import os
import stat
import tempfile

import numpy as np
import pytest
from scipy.sparse import issparse

import skdp
from skdp.descent.plan import run
from skdp.engines.compiled import CompiledEngine
from skdp.privacy.encoding import Batch, encode
from skdp.schema import Categorical, Numeric, Schema, Vector
from skdp.tables.encoder import Encoder, FileChunk, measure_size

pytestmark = pytest.mark.skipif(
    not hasattr(mmap, "MADV_DONTNEED"), reason="records stay in memory on this system"
)


def encode_all(batches, schema, in_memory):
    work = Encoder(schema, intercept=True, max_weight=1.0)
    return work.collect(map(work, batches), in_memory)


def hospital_batches(n_batches=4, rows=1500):
    tables = [skdp.make_hospital(rows + seed, seed) for seed in range(n_batches)]
    return tables[0].schema, [table.batch for table in tables]


def wide_batches():
    """Joint columns that are kept sparse, numbers with indicators, a row norm."""
    rng = np.random.default_rng(0)
    names = [f"w{i}" for i in range(300)]
    schema = Schema(
        {
            "words": Vector(names),
            "few": Vector(["a", "b"]),
            "age": Numeric(0, 1, indicator=True),
        },
        target=Numeric(0, 1),
        row_norm=1.2,
    )
    rows = [64, 1, 33]
    return schema, [
        Batch(
            columns={
                "words": rng.normal(size=(n, 300)) * (rng.random((n, 300)) < 0.02),
                "few": rng.normal(size=(n, 2)),
                "age": np.where(rng.random(n) < 0.3, np.nan, rng.random(n)),
            },
            target=rng.random(n),
            weight=rng.random(n),
        )
        for n in rows
    ]


def dense(part):
    return part.toarray() if issparse(part) else np.asarray(part)


@pytest.mark.parametrize("made", [hospital_batches, wide_batches])
@pytest.mark.parametrize("n_in_memory", [0, 1, None])
def test_records_are_the_same_wherever_they_lie(made, n_in_memory):
    schema, batches = made()
    expected = encode(batches, schema)
    kept = encode_all(batches, schema, in_memory=1 << 40).chunks[:n_in_memory]
    room = sum(map(measure_size, kept))
    found = encode_all(batches, schema, in_memory=room)
    in_file = [isinstance(chunk, FileChunk) for chunk in found.chunks]
    assert in_file == [False] * len(kept) + [True] * (len(batches) - len(kept))
    assert found.layout == expected.layout
    for _ in range(2):  # again after the memory was given back
        for ours, theirs in zip(found.chunks, expected.chunks, strict=True):
            for mine, other in zip(ours.parts, theirs.parts, strict=True):
                assert mine.dtype == other.dtype
                np.testing.assert_array_equal(dense(mine), dense(other))
            np.testing.assert_array_equal(ours.target, theirs.target)
            np.testing.assert_array_equal(ours.weight, theirs.weight)
            if isinstance(ours, FileChunk):
                ours.rest()


@pytest.mark.parametrize("n_threads", [1, 2])
def test_a_fit_of_records_in_a_file_is_the_same(n_threads):
    schema, batches = hospital_batches()
    fits = []
    for in_memory in (0, 1 << 40):
        records = encode_all(batches, schema, in_memory=in_memory)
        n_rows = sum(len(chunk.target) for chunk in records.chunks)
        plan = skdp.make_default_plan(
            schema.layout(), skdp.Logistic(), n_rows=n_rows, epsilon=1.0
        )
        engine = CompiledEngine(records, n_threads=n_threads)
        made = run(
            plan, records, engine=lambda _, engine=engine: engine, random_state=0
        )
        fits.append(made.weights)
    np.testing.assert_array_equal(*fits)


def test_the_file_has_no_name_and_one_reader(monkeypatch, tmp_path):
    seen = []
    make = tempfile.TemporaryFile

    def watched(*arguments, **options):
        file = make(*arguments, **options)
        about = os.fstat(file.fileno())
        seen.append((about.st_nlink, stat.S_IMODE(about.st_mode), os.listdir(tmp_path)))
        return file

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", watched)
    schema, batches = hospital_batches(2)
    records = encode_all(batches, schema, in_memory=0)
    assert seen == [(0, 0o600, [])]
    assert os.listdir(tmp_path) == []
    assert not records.chunks[0].parts[0].flags.writeable


def test_weights_that_differ_are_not_shared():
    schema = Schema({"x": Numeric(0, 1)}, target=Categorical([0, 1]))
    unknown = skdp.Coded(np.array([0, 1, 7]), [0, 1])
    batch = Batch(columns={"x": np.zeros(3)}, target=unknown)
    records = encode_all([batch, batch], schema, in_memory=0)
    for chunk in records.chunks:
        assert chunk.weight.tolist() == [1, 1, 0]
