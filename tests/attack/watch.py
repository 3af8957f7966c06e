"""Fit a table, replay what was released into a neighbour's fit, compare the rest.

The first run is recorded. In the second, each exact sum is compared with the one that
the first run had at the same place, and the first one's is released instead, with the
same noise. Noise comes from a fixed stream of bytes, so both runs show the same unless
something depends on records in another way.

Each place where randomness meets records has a comparison of its own:

================================ =======================================================
`release`                        ‖(value - value')·unit/shape‖ ≤ sensitivity, exactly;
                                 same query, sensitivity, unit, shape, noise multiplier
releases of Poisson batches      the same, with the same records in both batches; twice
                                 the sensitivity where a record is replaced by another
choices (`selection.choose`)   the range by which scores move costs no more than what
                                 was charged for the choice
objective perturbation           at the first run's minimiser: gradients differ by no
                                 more than charged, curvatures by no more than κ each
categories (`discover.levels`)   counts differ by no more than their sensitivity, and
                                 what one table alone has is counted once
================================ =======================================================

A record that is zeroed out adds nothing to any sum (`NULL`): it has weight zero, no
features, and no row in Gram matrices and scores.
"""

import contextlib
import hashlib
import importlib
import math
import pkgutil
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import FunctionType

import numpy as np
from looks import differences, frozen, look

import skdp
from skdp.estimators import opening
from skdp.evaluation import folds, metrics
from skdp.privacy import (
    discovery,
    mechanism,
    profiles,
    queries,
    randomness,
    selection,
    subsampling,
)
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Chunk, Records
from skdp.privacy.queries import Kind
from skdp.solvers import certified, poisson_batches
from skdp.solvers.certified import Objective
from skdp.solvers.objective_perturbation import bound_steepness
from skdp.solvers.poisson_batches import Batches

#: The target of a record that was zeroed out.
NULL = "(zeroed out)"
#: Relative room for what is computed in floating point here, not in a release.
ROOM = 1e-9

for _module in pkgutil.walk_packages(skdp.__path__, "skdp."):
    with contextlib.suppress(ImportError):  # of an extra
        importlib.import_module(_module.name)
MODULES = [module for name, module in sys.modules.items() if name.startswith("skdp.")]
#: Functions that use records and randomness, by the name of the method that watches.
REAL = {
    "release": mechanism.release,
    "gram": queries.gram,
    "release_levels": discovery.release_levels,
    "read_records": opening.read_records,
    "predict_rows": metrics.predict_rows,
    "draw_batch": poisson_batches.draw_batch,
    "choose": selection.choose,
    "minimise": certified.minimise,
}
CHARGE, CHARGED = PrivacyRecord.charge, Batches.charge_all
#: Numerical accounting: a function of public numbers that takes most of the time.
KEPT = [
    lru_cache(4096)(function)
    for function in (
        subsampling.calibrate_noise,
        subsampling.compute_profile,
        subsampling.smallest_mu,
        profiles.objective_mu,
        selection.trial_mu,
        selection.choose_stop,
    )
]


@dataclass(frozen=True, kw_only=True)
class Compared:
    """The outcome of a pair.

    Attributes
    ----------
    ratios : dict of str to float
        By kind of query, the largest difference over what was claimed.
    wrong : list of str
        All that differed and should not.
    error : str or None
        What both runs raised.
    n_releases : int
        How many were compared.
    """

    ratios: dict
    wrong: list
    error: str | None
    n_releases: int


class Stream(randomness.Randomness):
    """Bits that depend on a name and on how often they were asked for."""

    def __init__(self, name):
        super().__init__()
        self.name, self.calls = name, 0

    def words(self, size):
        self.calls += 1
        return _words(f"{self.name} {self.calls}", size)


def _words(key, size):
    data = hashlib.shake_256(key.encode()).digest(8 * size)
    return np.frombuffer(data, dtype="<u8").astype(np.uint64)


def compare(act, table, other, *, neighbours, seed=0, lone=None):
    """Run `act` on a table, then on its neighbour with the first run's releases.

    Parameters
    ----------
    act : callable table -> result
        What is attacked.
    table, other : tables
        Neighbours under `neighbours`.
    neighbours : str
        Which neighbours they are.
    seed : int
        Of all randomness.
    lone : (int, int), optional
        Position of the row that one table has and the other has not, and how many the
        larger one has.
    """
    watch = Watch(neighbours=neighbours, seed=seed, lone=lone)
    with watch.run(first=True):
        one = look(lambda: act(table))
    with watch.run(first=False):
        two = look(lambda: act(other))
    watch.check_the_end()
    watch.wrong += [f"seen{line}" for line in differences(one, two)]
    error = one.get("error")
    return Compared(
        ratios=dict(watch.ratios),
        wrong=watch.wrong,
        error=None if error is None else f"{error[0]}: {error[1]}",
        n_releases=watch.n_compared,
    )


class Watch:
    """Two runs, the second on what the first one released."""

    def __init__(self, *, neighbours, seed, lone):
        self.neighbours, self.seed, self.lone = neighbours, seed, lone
        self.script = defaultdict(list)
        self.done = Counter()
        self.ratios = defaultdict(float)
        self.wrong = []
        self.n_compared = 0
        self.batches = []
        self.in_levels = False

    @contextlib.contextmanager
    def run(self, *, first):
        """Everything that draws goes through this watch."""
        self.first, self.calls, self.drawings = first, 0, 0
        self.charges, self.batches = [], []
        with contextlib.ExitStack() as stack:

            def put(owner, name, value):
                stack.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, value)

            swapped = {function: getattr(self, name) for name, function in REAL.items()}
            swapped |= {kept.__wrapped__: kept for kept in KEPT}
            for module in MODULES:
                for name, value in list(vars(module).items()):
                    if isinstance(value, FunctionType) and value in swapped:
                        put(module, name, swapped[value])
            watch = self
            put(randomness.Randomness, "words", lambda _, size: watch.words(size))
            put(randomness, "POOL", 64)
            put(folds, "Randomness", lambda _: watch.fold_words())
            put(PrivacyRecord, "charge", lambda *given: watch.charge(*given))
            put(Batches, "charge_all", lambda *given: watch.charge_all(*given))
            yield
        if not first:
            self._same("charges", self.script["charges"], [self.charges])
        else:
            self.script["charges"] = [self.charges]

    def words(self, size):
        """Bits of the run: the same calls get the same bits."""
        self.calls += 1
        return _words(f"{self.seed} {self.calls}", size)

    def charge(self, record, event):
        """Note what is charged, and whether to a budget that has an end."""
        self.charges.append((event, record.budget < math.inf))
        CHARGE(record, event)

    def charge_all(self, plan, run, *given):
        """Note the record that releases of private batches go to."""
        record = CHARGED(plan, run, *given)
        self.batches.append(record)
        return record

    def _next(self, kind, made):
        """Return what the first run had here or, in the first run, `made()`."""
        if self.first:
            value = made()
            self.script[kind].append(value)
            return value
        at = self.done[kind]
        self.done[kind] += 1
        if at >= len(self.script[kind]):
            self.wrong.append(f"{kind}: more than {at} on the second table")
            raise RuntimeError(f"There was no {kind} {at + 1} on the first table.")
        return self.script[kind][at]

    def check_the_end(self):
        """The second run must have asked for all that the first one did."""
        for kind, done in self.script.items():
            if kind != "charges" and self.done[kind] < len(done):
                found = f"{self.done[kind]} of {len(done)}"
                self.wrong.append(f"{kind}: {found} on the second table")

    def _reached(self, kind, ratio, claim=1.0):
        kind = re.sub(r"\d+", "#", kind)
        self.ratios[kind] = max(self.ratios[kind], float(ratio))
        if ratio > claim:
            self.wrong.append(f"{kind}: differs by {float(ratio):.9g} of its claim")

    def _same(self, what, one, two):
        self.wrong += [
            f"{what}{line}" for line in differences(frozen(one), frozen(two))
        ]

    # ---- sums

    def release(self, total, z, noise, record, presence=1.0):
        """Release the first run's sum, compared with the second's."""
        if self.in_levels:
            self.counted = total
            return REAL["release"](total, 0.0, noise, record)
        before, z_before = self._next("releases", lambda: (total, (z, presence)))
        if not self.first:
            self.n_compared += 1
            parts = [
                (t.kind, t.query, t.sensitivity, t.unit, t.shape)
                for t in (before, total)
            ]
            self._same(f"release {self.n_compared}", parts[0], parts[1])
            self._same("noise multiplier", z_before, (z, presence))
            if total.value.shape == before.value.shape:
                twice = self.neighbours == "replace-one" and any(
                    record is batch for batch in self.batches
                )
                self._reached(total.query, distance(before, total, 2 if twice else 1))
            else:
                self.wrong.append(f"{total.query}: sums of other shapes")
            self._check_paid(total, z, record)
        return REAL["release"](before, z, noise, record, presence)

    def _check_paid(self, total, z, record):
        """A charge to a discarded record must also be on a record that is kept."""
        zero = not total.value.any()  # as the tilt of an objective is
        if zero or record.budget < math.inf or any(record is b for b in self.batches):
            return
        claim = total.kind, total.query, total.sensitivity, z
        if not any(
            paid and (e.kind, e.query, e.sensitivity, e.noise_multiplier) == claim
            for e, paid in self.charges
        ):
            self.wrong.append(f"{total.query}: nobody paid for it")

    def draw_batch(self, records, rate, noise):
        """Draw the same records from both tables."""
        self.drawings += 1
        source = Stream(f"rows {self.seed} {self.drawings}")
        return REAL["draw_batch"](records, rate, _Rows(source, self.lone, self.wrong))

    def fold_words(self):
        """Give a row that both tables have the same fold on both."""
        self.drawings += 1
        source = Stream(f"folds {self.seed} {self.drawings}")
        return _Rows(source, self.lone, self.wrong)

    def gram(self, engine, pattern):
        """Leave out a record that was zeroed out: it adds nothing."""
        at = _null_rows(engine.records)
        if at is not None:
            engine = type(engine)(_without(engine.records, at))
        return REAL["gram"](engine, pattern)

    def predict_rows(self, records, *given):
        """Leave out a record that was zeroed out: it adds to no score."""
        at = _null_rows(records)
        records = records if at is None else _without(records, at)
        return REAL["predict_rows"](records, *given)

    def read_records(self, table, schema, **given):
        """Empty the record whose target is `NULL`."""
        records = REAL["read_records"](table, schema, **given)
        target = given["target"]
        cells = table[schema.target_name] if target is None else target
        at = [
            i for i, cell in enumerate(cells) if isinstance(cell, str) and cell == NULL
        ]
        if not at:
            return records
        (chunk,) = records.chunks
        parts = []
        for group, part in zip(records.layout.groups, chunk.parts, strict=True):
            part = part.tolil() if hasattr(part, "tolil") else part.copy()
            if group.kind != "ones":
                part[at] = group.width if group.kind == "code" else 0
            parts.append(part.tocsr() if hasattr(part, "tocsr") else part)
        target, weight = chunk.target.copy(), chunk.weight.copy()
        target[at], weight[at] = 0, 0
        emptied = _Emptied(tuple(parts), target, weight)
        object.__setattr__(emptied, "at", at)
        return Records(records.layout, (emptied,), records.max_weight)

    # ---- other than sums

    def choose(self, scores, rate, noise):
        """Compare scores in the exponential mechanism; choose as the first run did."""
        before, rate_before, chosen = self._next(
            "choices",
            lambda: (scores, rate, REAL["choose"](scores, rate, Stream("choice"))),
        )
        if not self.first:
            self._same("choice", (len(before), rate_before), (len(scores), rate))
            moved = [a - b for a, b in zip(before, scores, strict=True)]
            width = float(rate * (max(moved) - min(moved)))
            cost = profiles.bounded_range_mu(width) if width else 0.0
            charged, _ = self.charges[-1]
            self._reached(charged.query, cost * charged.noise_multiplier)
        return chosen

    def minimise(self, objective, *given, **more):
        """Tilt the second objective so that both have one minimiser, and compare."""
        if objective.linear is None:
            return REAL["minimise"](objective, *given, **more)

        def solved():
            found = REAL["minimise"](objective, *given, **more)
            weights = getattr(found, "weights", found)
            return found, weights, _slopes(objective, weights)

        found, weights, (gradient, hessian) = self._next("tilted minima", solved)
        if self.first:
            return found
        other_gradient, other_hessian = _slopes(objective, weights)
        shift = other_gradient - gradient
        charged = next(e for e, _ in self.charges if e.kind == Kind.TILT)
        claim = charged.sensitivity
        self._reached(
            "gradient that a tilt hides", np.linalg.norm(shift) / claim, 1 + ROOM
        )
        root = np.sqrt(objective.quadratic)
        bent = (other_hessian - hessian) / np.outer(root, root)
        kappa = bound_steepness(objective.problem, objective.quadratic)
        most = float(np.abs(np.linalg.eigvalsh(bent)).max())
        self._reached("curvature of a record", most / kappa, 1 + ROOM)
        tilted = Objective(
            objective.problem, objective.quadratic, objective.linear - shift
        )
        return REAL["minimise"](tilted, *given, **more)

    def release_levels(self, cells, names, z, delta, noise, record, persons=False):
        """Compare counts of categories; find those that the first run found."""
        assert not persons, "Persons are not attacked here."
        cells = [(dict(columns), own) for columns, own in cells]
        counts = Counter(
            (name, str(columns[name].values[code]))
            for columns, _ in cells
            for name in names
            for code in columns[name].codes.tolist()
            if 0 <= code < len(columns[name].values)
        )
        self.in_levels = True
        try:
            found = REAL["release_levels"](cells, names, z, delta, noise, record)
        finally:
            self.in_levels = False
        if sorted(self.counted.value.tolist()) != sorted(counts.values()):
            self.wrong.append("categories: what was counted is not what is there")
        before, kept = self._next("categories", lambda: (counts, found))
        if not self.first:
            moved = {key: counts[key] - before[key] for key in {*counts, *before}}
            squares = sum(n * n for n in moved.values())
            ratio = math.sqrt(squares) / self.counted.sensitivity
            self._reached("counts of categories", ratio)
            for key in counts.keys() ^ before.keys():
                if counts[key] + before[key] > 1:
                    self.wrong.append("a category of many records is in one table only")
            for name in names:
                own = {key for at, key in moved if at == name and moved[at, key]}
                lists = [[k for k in f[name] if k not in own] for f in (kept, found)]
                self._same(f"categories of {name}", *lists)
        return kept


def distance(one, other, times=1):
    """‖(value - value')·unit/shape‖ over the sensitivity; above 1 only if it is."""
    squares = defaultdict(int)  # exact, by shape
    shapes = np.broadcast_to(one.shape, one.value.shape).ravel().tolist()
    moved = (other.value - one.value).ravel().tolist()
    for entry, shape in zip(moved, shapes, strict=True):
        squares[shape] += entry * entry
    exact = sum(Fraction(n) / Fraction(shape) ** 2 for shape, n in squares.items())
    exact *= (Fraction(one.unit) / (times * Fraction(one.sensitivity))) ** 2
    ratio = math.sqrt(exact)
    return min(ratio, 1.0) if exact <= 1 else max(ratio, math.nextafter(1.0, 2.0))


class _Rows:
    """Words for rows: a row that both tables have gets the same on both."""

    def __init__(self, noise, lone, wrong):
        self.noise, self.lone, self.wrong = noise, lone, wrong

    def words(self, size):
        if self.lone is None:
            return self.noise.words(size)
        at, largest = self.lone
        words = self.noise.words(largest)
        if size == largest - 1:
            return words[:-1]
        if size != largest:
            self.wrong.append(f"a batch is drawn from {size} of {largest} rows")
        return np.insert(words[:-1], at, words[-1])


class _Emptied(Chunk):
    """A chunk with records that were zeroed out, at the rows `at`."""


def _null_rows(records):
    return next((getattr(chunk, "at", None) for chunk in records.chunks), None)


def _without(records, at):
    (chunk,) = records.chunks
    keep = np.setdiff1d(np.arange(len(chunk.target)), at)
    parts = tuple(part[keep] for part in chunk.parts)
    left = Chunk(parts, chunk.target[keep], chunk.weight[keep])
    return Records(records.layout, (left,), records.max_weight)


def _slopes(objective, w):
    """Gradient and Hessian of the records' part of an objective."""
    linear = objective.gradient(w) - objective.quadratic * w - objective.linear
    hessian, step = np.zeros((len(w), len(w))), 1.0 / 128
    for matrix, target, weight in objective._blocks:
        margin, dense = (matrix @ w)[:, None], matrix.toarray()
        up, down = (objective._slope(margin + h, target) for h in (step, -step))
        hessian += dense.T @ (dense * (up - down) * weight / (2 * step))
    return linear, hessian
