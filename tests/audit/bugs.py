"""Mistakes that are planted within a `with`. Each breaks a claim of privacy."""

import dataclasses
from contextlib import contextmanager
from unittest import mock

import numpy as np

from skdp.descent import sketches
from skdp.descent.samplings import FollowingLaw
from skdp.privacy import discovery, mechanism, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.randomness import Randomness


@contextmanager
def noise_times(factor):
    """Noise of a wrong scale, stated as if it were right."""
    right = mechanism._round_to_cell

    def wrong(k, std, drawn, source):
        return right(k, factor * std, drawn, source)

    with mock.patch.object(mechanism, "_round_to_cell", wrong):
        yield


@contextmanager
def no_factor_two():
    """A replaced record is taken to move a sum by one bound, not by two."""
    with mock.patch.object(queries, "count_changes", return_value=1):
        yield


@contextmanager
def uncharged(kind):
    """A release is made and nobody pays for it."""
    charge = PrivacyRecord.charge

    def forgetful(record, event):
        if event.kind != kind:
            charge(record, event)

    with mock.patch.object(PrivacyRecord, "charge", forgetful):
        yield


@contextmanager
def one_deviate_a_release():
    """All entries of a release get the same noise, as classes might."""
    normals = Randomness.normals

    def same(source, size):
        return normals(source, 1) * size

    with mock.patch.object(Randomness, "normals", same):
        yield


@contextmanager
def same_noise_each_step():
    """Every release of a run draws the same deviates again."""
    normals, kept = Randomness.normals, {}

    def again(source, size):
        if len(kept.get(source, ())) < size:
            kept[source] = kept.get(source, []) + normals(source, size)
        return kept[source][:size]

    with mock.patch.object(Randomness, "normals", again):
        yield


@contextmanager
def fixed_seed():
    """The source is seeded alike in every run."""
    make = Randomness.__init__

    def seeded(source, seed=None):
        make(source, 7)

    with mock.patch.object(Randomness, "__init__", seeded):
        yield


@contextmanager
def small_noise_off_the_diagonal():
    """Off-diagonal entries of the Gram matrix get half of the noise they need."""
    right = queries.GramPattern.of.__func__

    def wrong(cls, layout, neighbours):
        pattern = right(cls, layout, neighbours)
        off = np.where(pattern.rows == pattern.columns, 1.0, 0.5)
        return dataclasses.replace(pattern, shape=pattern.shape * off)

    with mock.patch.object(queries.GramPattern, "of", classmethod(wrong)):
        yield


@contextmanager
def low_threshold():
    """The threshold of categories forgets that a record counts for one itself."""
    right = discovery.compute_threshold

    def wrong(noise_std, delta, *rest):
        return right(noise_std, delta, *rest) - 1.0

    with mock.patch.object(discovery, "compute_threshold", wrong):
        yield


@contextmanager
def sketch_not_capped():
    """The image of a record under the sketch is not bounded by a cap of its slopes."""
    right = queries.cap_slopes

    def wrong(engine, slopes, metric):
        found = right(engine, slopes, metric)
        caps = [np.full_like(own, slopes.grid.cap) for own in found.caps]
        return dataclasses.replace(found, caps=caps)

    with mock.patch.object(queries, "cap_slopes", wrong):
        yield


@contextmanager
def sketch_caps_of_another_set():
    """All sets share the caps of the first one."""
    right = sketches._SketchSteps._make_part

    def wrong(steps, at):
        part, first = right(steps, at), right(steps, steps._task.sampling.support[0])
        slopes = dataclasses.replace(part.slopes, caps=first.slopes.caps)
        return dataclasses.replace(part, slopes=slopes)

    with mock.patch.object(sketches._SketchSteps, "_make_part", wrong):
        yield


@contextmanager
def sets_by_exact_gradients():
    """Probabilities follow the exact sums, and not what was released of them."""
    right = sketches._SketchSteps.query

    def wrong(steps, at, weights):
        total = right(steps, at, weights)
        exact = (total.value * total.unit).astype(float)
        place = steps.law._index[at.tobytes()]
        steps.law._scores[place] = float((exact**2).sum())
        return total

    nothing = mock.patch.object(FollowingLaw, "learn", return_value=None)
    with nothing, mock.patch.object(sketches._SketchSteps, "query", wrong):
        yield


@contextmanager
def sets_amplify():
    """Noise is scaled as if privacy were amplified by the draw of a set."""
    right = sketches._SketchSteps.query

    def wrong(steps, at, weights):
        total = right(steps, at, weights)
        share = steps.law.find_probability(at) ** 0.5
        return dataclasses.replace(total, sensitivity=total.sensitivity * share)

    with mock.patch.object(sketches._SketchSteps, "query", wrong):
        yield
