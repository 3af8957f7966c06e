"""Save and load models: model.json, schema.toml and privacy.json."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
import numpy as np
import sklearn
from msgspec import Meta, structs

import skdp
from skdp.descent.plan_files import plan_summary, summary_digest
from skdp.estimators import standard_errors
from skdp.estimators.classifiers import PrivateClassifier
from skdp.estimators.fit import ESTIMATORS, PrivateLinearModel
from skdp.estimators.opening import check_labels, sort_target
from skdp.ledger import transcript_digest
from skdp.ledger.digests import content_digest
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.look import (
    APART,
    FINE,
    Histogram,
    LevelShares,
    Profile,
    list_families,
    use_ranges,
)
from skdp.privacy.queries import Kind, Neighbours
from skdp.privacy.selection import SearchRecord
from skdp.privacy.visits import Visits
from skdp.schema import Categorical, Layout, Numeric, Schema, check, toml_files
from skdp.typed_files import (
    Count,
    Epsilon,
    Form,
    Value,
    convert,
    parse_json,
    read_file,
    to_json,
    to_python,
    write_json,
)

# ---- Convert a privacy record to privacy.json and back
#
# The releases in a file must add up to the ε that the file states. The file also has
# the digest of the plan that was run and the digest of the released values.
# `model_digest` covers the whole file and the model. A ledger's entry contains that
# digest, so a saved model can be compared with the ledger.


#: Largest number of trials of a search.
MOST_TRIALS = 10**6
#: Zero, or a number whose square is neither infinite nor rounded to zero.
Size = Annotated[float, Meta(ge=0, le=1e100)]
#: A probability below one.
Probability = Annotated[float, Meta(ge=0, lt=1)]


class ReleaseForm(Form, frozen=True, kw_only=True):
    """A release (`Event`), and the number of times that it was made."""

    kind: Kind
    query: str
    times: Annotated[int, Meta(ge=1, le=1 << 53)]
    sensitivity: Size
    noise_multiplier: Size
    n_draws: Count
    delta: Probability
    n_columns: Count
    presence: Annotated[float, Meta(gt=0, le=1)] = 1.0

    def __post_init__(self) -> None:
        least = min(self.sensitivity or 1.0, self.noise_multiplier or 1.0)
        check(least >= 1e-100, "a sensitivity or noise multiplier is below 1e-100")


class VisitsForm(Form, frozen=True, kw_only=True):
    """The content of `Visits`: how much of a run one record can take part in."""

    n_steps: Annotated[int, Meta(ge=1, le=1 << 53)]
    most: Annotated[float, Meta(ge=1, le=1 << 53)]
    profile: list[Size]


class SearchForm(Form, frozen=True, kw_only=True):
    """The parameters of the search that chose the model."""

    n_trials: Annotated[int, Meta(ge=1, le=MOST_TRIALS)]
    stop: Annotated[float, Meta(gt=1 / MOST_TRIALS, le=1)] | None


class RecordForm(Form, frozen=True, kw_only=True):
    """The content of privacy.json.

    It describes a `PrivacyRecord`, or a `SearchRecord` if `search` is not None.
    """

    search: SearchForm | None
    plan_digest: str
    transcript_digest: str
    epsilon: Epsilon
    delta: Annotated[float, Meta(gt=0, lt=1)]
    neighbours: Neighbours
    reserved_delta: Probability
    seeded: bool
    assumptions: list[str]
    releases: list[ReleaseForm]
    spent_epsilon: Epsilon
    unit: str | None = None
    visits: tuple[VisitsForm, ...] = ()


def make_record_form(record: PrivacyRecord, summary: dict[str, Any]) -> RecordForm:
    """Return a record and the digest of its plan as the content of privacy.json."""
    search = None
    if isinstance(record, SearchRecord):
        search = SearchForm(n_trials=record.n_trials, stop=record.stop)
    return RecordForm(
        search=search,
        plan_digest=summary_digest(summary),
        transcript_digest=transcript_digest(record),
        epsilon=to_json(record.epsilon),
        delta=record.delta,
        neighbours=record.neighbours,
        reserved_delta=record.reserved_delta,
        seeded=bool(record.seeded),
        assumptions=list(record.assumptions),
        releases=[
            ReleaseForm(times=times, **asdict(event))
            for event, times in record.events.items()
        ],
        spent_epsilon=to_json(record.spent_epsilon),
        unit=record.unit,
        visits=tuple(
            VisitsForm(n_steps=one.n_steps, most=one.most, profile=one.profile.tolist())
            for one in record.visits
        ),
    )


def read_record_form(form: RecordForm, summary: dict[str, Any]) -> PrivacyRecord:
    """Return the privacy record that privacy.json describes.

    Refuse the file if it belongs to another plan, if its releases do not add up to the
    stated ε, or if this ε exceeds the budget.
    """
    check(
        form.plan_digest == summary_digest(summary),
        "privacy.json and model.json have different plans. One of them was changed.",
    )
    common: dict[str, Any] = {
        "epsilon": float(form.epsilon),
        "delta": form.delta,
        "neighbours": form.neighbours,
        "assumptions": tuple(form.assumptions),
        "seeded": form.seeded,
        "reserved_delta": form.reserved_delta,
        "transcript_digest": form.transcript_digest,
        "unit": form.unit,
    }
    search = None if form.search is None else structs.asdict(form.search)
    record = PrivacyRecord(**common) if not search else SearchRecord(**search, **common)
    for release in form.releases:
        values = structs.asdict(release)
        times, event = values.pop("times"), Event(**values)
        check(event not in record.events, "privacy.json lists a release twice.")
        record.events[event] = times
    for one in form.visits:
        profile = np.array(one.profile, dtype=np.float64)
        found = Visits(n_steps=one.n_steps, most=one.most, profile=profile)
        record.visits.append(found)
    claimed = float(form.spent_epsilon)
    check(
        record.spent_epsilon == claimed,
        f"privacy.json says that ε = {claimed:g} was spent, but its releases add up to "
        f"{record.spent_epsilon:g}. It was changed.",
    )
    check(
        claimed <= record.epsilon * (1 + 1e-9),
        f"privacy.json has a budget of ε = {record.epsilon:g} but spends {claimed:g}. "
        "It was changed.",
    )
    return record


# ---- Save fitted models as directories of text files, and load them, without pickle
#
# A saved model is a directory of three files:
#
# ``model.json``
#     Format and versions, the estimator's name and parameters, the weights in full
#     precision, their standard errors, and a summary of the plan.
# ``schema.toml``
#     The public description that was used, as `skdp.schema.toml_files` writes it.
# ``privacy.json``
#     The privacy record: budget, neighbouring relation, assumptions, every release, and
#     the digest of the plan.
#
# Loading executes nothing. It reads numbers and strings through typed forms
# (`skdp.typed_files`), and recomputes the ε that the releases add up to. A seed is
# never written.
#
# The entry of a ledger that paid for a model has a digest of all that the three files
# say (`model_digest`), except `COSMETIC`. So whatever is changed in them, `skdp.verify`
# notices, if it is given the ledger.


F = TypeVar("F")
#: What a model's digest leaves out of model.json, and why. White space, the order of
#: keys and the comments of a TOML file are left out too, because they are not content.
#: Everything else in the three files is covered, so every change to it is detected.
COSMETIC: dict[tuple[str, ...], str] = {
    ("versions",): "The versions that wrote the file. They change if a model is loaded "
    "and saved again. The ledger's entry states the version of skdp that fitted.",
    ("parameters", "engine"): "Where sums are computed. All engines give the same "
    "sums, and a person who loads a model may have to choose another one.",
    ("parameters", "n_threads"): "How fast sums are computed.",
    ("parameters", "verbose"): "Whether a later fit shows its progress.",
}
#: The files of a saved model, and the largest size of each in bytes.
FILES = {
    "model.json": 1 << 30,
    "schema.toml": toml_files.LARGEST,
    "privacy.json": 1 << 24,
}
#: Types that classes may have. `read_classes` refuses strings that are longer than the
#: longest class, because numpy allocates as much memory as a type asks for.
DTYPE = r"^([<>|][biuf][1248]|[<>]f16|[<>]U[0-9]{1,5}|[|]O)\Z"
#: Largest numbers of characters that JSON takes for a number with its indentation, and
#: for a character of a text (``\\u00e4``).
LONGEST_NUMBER, LONGEST_ESCAPE = 32, 12
#: Largest number of edges and shares that a profile has for a number.
MOST_ENTRIES = 256
#: Parameters that are converted to be saved, and the types of the saved values.
SAVED_AS: dict[str, Any] = {
    "epsilon": Epsilon,
    "max_weight": Epsilon,
    "schema": str | None,
    "class_weight": list[tuple[bool | int | float | str, int | float]] | str | None,
}


class PlanNumbers(msgspec.Struct):
    """The numbers of a plan's summary that are used in computations.

    A summary has further keys, which are not checked.
    """

    n_rows: Count = 0
    n_steps: Count = 0
    n_restarts: Count = 0
    slope_bound: Size = 0.0
    radius: Size | None = None
    target_share: Size = 0.0
    level_share: Size = 0.0
    level_cap: Size | None = None


class HistogramForm(Form, frozen=True, kw_only=True):
    """A `Histogram` of a profile."""

    edges: list[Annotated[int, Meta(ge=0, le=FINE)]]
    values: list[float]
    error: Size


class LevelsForm(Form, frozen=True, kw_only=True):
    """The `LevelShares` of a profile."""

    values: list[float]
    error: Size


class ProfileForm(Form, frozen=True, kw_only=True):
    """The `Profile` that a fit released. `limits` is the text of a schema."""

    n_rows: Count
    limits: str | None
    numbers: dict[str, HistogramForm]
    levels: dict[str, LevelsForm]


class ModelForm(Form, frozen=True, kw_only=True):
    """The content of model.json."""

    format: Literal["skdp model"]
    format_version: Literal[1]
    versions: dict[str, str]
    estimator: str
    parameters: dict[str, Value]
    parameters_left_out: list[str]
    named: bool
    classes_dtype: Annotated[str, Meta(pattern=DTYPE)] | None
    n_iter: Count
    plan: dict[str, Value]
    weights: list[list[float]]
    uncertainty: standard_errors.ErrorsForm | str
    shares: list[Annotated[float, Meta(ge=0, le=1)]] | None = None
    exposed: bool = False
    profile: ProfileForm | None = None

    def check_plan(self) -> None:
        """Refuse a plan whose numbers are not numbers."""
        convert(self.plan, PlanNumbers, "The plan in model.json is wrong")


def save(model: PrivateLinearModel, directory: str | PathLike[str]) -> None:
    """Write a fitted model; see `PrivateLinearModel.save`."""
    target = Path(directory)
    # Another process may replace the model between two of these looks at it.
    check(
        is_model(target) or not target.exists() or is_model(target),
        f"{str(target)!r} exists and is not a saved model. Choose another name.",
    )
    about = make_model_form(model)
    about.check_plan()  # `load` would refuse it
    check_labels(model.schema_.target_column)  # `load` would refuse them
    record = make_record_form(model.privacy_, about.plan)
    texts = {
        "model.json": write_json(about, "The model cannot be saved"),
        "schema.toml": toml_files.dumps(model.schema_),
        "privacy.json": write_json(record, "The privacy record cannot be saved"),
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    # Write to a temporary directory and rename it, so `target` is never half a model.
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        made = beside / "new"
        made.mkdir()
        for name, text in texts.items():
            with (made / name).open("w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        if target.exists():
            target.rename(beside / "old")
        made.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def load(directory: str | PathLike[str]) -> PrivateLinearModel:
    """Read a model that ``save`` wrote.

    Parameters
    ----------
    directory : path
        The directory that ``save`` wrote.

    Returns
    -------
    estimator
        A fitted estimator whose predictions are the same, bit for bit. Its ``plan_`` is
        a dict that summarises the plan, its ``privacy_`` recomputes the ε that was
        spent, and its ``random_state`` is None.

    Raises
    ------
    ValueError
        If a file is missing, has another format or was changed. The message is one
        sentence.
    """
    return make_model(read_saved(Path(directory)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Saved:
    """The content of the three files of a saved model."""

    about: ModelForm
    record: RecordForm
    schema: Schema


def read_saved(source: Path) -> Saved:
    """Read the three files of a saved model, and refuse those that cannot be one."""
    check_files(source)
    schema = toml_files.read_toml(source / "schema.toml")
    check_size(source, schema)
    saved = Saved(
        about=read_form(source, "model.json", ModelForm),
        record=read_form(source, "privacy.json", RecordForm),
        schema=schema,
    )
    saved.about.check_plan()
    check_shape(saved)
    return saved


def make_model(saved: Saved) -> PrivateLinearModel:
    """Make a fitted estimator from the content of a saved model."""
    model = make_unrecorded(saved)
    model.privacy_ = read_record_form(saved.record, saved.about.plan)
    return model


def make_unrecorded(saved: Saved) -> PrivateLinearModel:
    """Make a fitted estimator without its privacy record.

    Everything that follows from something else in the files is checked.
    """
    about, schema = saved.about, saved.schema
    model = make_estimator(about)
    weights = np.array(about.weights, dtype=np.float64)
    weights = weights.reshape(len(about.weights), -1)
    model._set_fitted(weights, schema, about.named)
    model._known_shares = read_shares(about.shares, model._layout)
    model._exposed = about.exposed
    model.profile_ = read_profile(about.profile, schema)
    if isinstance(model, PrivateClassifier):
        model.classes_ = read_classes(about.classes_dtype, schema)
    model.plan_ = about.plan
    model.n_iter_ = about.n_iter
    model._errors = standard_errors.read_errors_form(about.uncertainty, model)
    return model


def check_size(source: Path, schema: Schema) -> None:
    """Refuse a model.json that is larger than any model of this schema.

    In memory, a file may be twenty times as large as on disk.
    """
    target = schema.target
    column = target[1] if isinstance(target, tuple) else target
    k = len(column.levels) if isinstance(column, Categorical) else 1
    numbers = (schema.width + 1) * (k * 7 + 1)  # weights, six kinds of errors, shares
    texts = (source / "schema.toml").stat().st_size * LONGEST_ESCAPE
    numbers += (len(schema.columns) + 1) * MOST_ENTRIES  # the profile
    largest = (1 << 20) + numbers * LONGEST_NUMBER + texts
    check(
        (source / "model.json").stat().st_size <= largest,
        f"{str(source / 'model.json')!r} is larger than {largest >> 20} MiB, so it is "
        "not that of a model with the schema beside it.",
    )


def check_shape(saved: Saved) -> None:
    """Refuse weights of a shape that contradicts the schema or the loss.

    This is done before the names of coordinates are made, because a few lines of a
    schema can describe millions of coordinates.
    """
    given, schema = saved.about.weights, saved.schema
    column = schema.target_column
    if isinstance(column, Categorical):
        check_labels(column)
    model = make_estimator(saved.about)
    loss = model._loss(schema)  # refuses a target that the estimator cannot have
    shape = (schema.width + bool(model.fit_intercept), loss.n_outputs)
    check(
        len(given) == shape[0] and all(len(row) == shape[1] for row in given),
        f"The weights in model.json must have shape {shape}, as schema.toml says.",
    )


def model_digest(model: PrivateLinearModel, record: PrivacyRecord | None = None) -> str:
    """Return one SHA-256 digest of all that a saved model states.

    It covers everything in the three files except `COSMETIC`. It is computed from
    public facts and released values alone. Saving and loading do not change it, and a
    model that cannot be saved has one too.

    Parameters
    ----------
    model : fitted estimator
        The model.
    record : PrivacyRecord, optional
        The privacy record, if the model does not have it yet.
    """
    about = make_model_form(model, write_schema=lambda _: None)
    form = make_record_form(record or model.privacy_, about.plan)
    given = model.schema
    own = None if given is None else find_own_schema(model)
    profile = model.profile_
    limits = None if profile is None else profile.limits
    return _digest(about, form, model.schema_, own, limits)


def saved_digest(saved: Saved) -> str:
    """Return the `model_digest` of a saved model."""
    text = saved.about.parameters.get("schema")
    own = toml_files.loads(text) if isinstance(text, str) else None
    looked = saved.about.profile
    limits = None if looked is None else toml_files.loads(looked.limits or "")
    return _digest(saved.about, saved.record, saved.schema, own, limits)


def _digest(
    about: ModelForm,
    record: RecordForm,
    schema: Schema,
    own: Schema | None,
    limits: Schema | None,
) -> str:
    """Return the digest of the content of the three files.

    `own` is the parameter ``schema``, and `limits` that of the profile. In model.json,
    both are TOML text.
    """
    stated = msgspec.structs.asdict(_as_read(about))
    stated["parameters"] = stated["parameters"] | {"schema": _list_schema(own)}
    if about.profile is not None:
        profile = msgspec.to_builtins(stated["profile"])
        stated["profile"] = profile | {"limits": _list_schema(limits)}
    for path in COSMETIC:
        *way, last = path
        at = stated
        for key in way:
            at[key] = dict(at[key])
            at = at[key]
        at.pop(last, None)
    return content_digest(
        {"model": stated, "schema": _list_schema(schema), "privacy": _as_read(record)}
    )


def _as_read(form: F) -> F:
    """Return a form with the types of numbers that reading its file gives.

    A form that cannot be written is returned unchanged.
    """
    try:
        plain = msgspec.to_builtins(form, enc_hook=to_python)
        return msgspec.convert(plain, type(form))
    except (msgspec.MsgspecError, TypeError, ValueError):
        return form


def _list_schema(schema: Schema | None) -> Any:
    """Return the parts of a schema in a list. The order of its columns matters."""
    if schema is None:
        return None
    columns = list(schema.columns.items())
    return [columns, schema.target, schema.row_norm, schema.unit]


def check_files(source: Path) -> None:
    """Refuse a directory in which a file is missing or too large."""
    check(os.path.isdir(source), f"There is no saved model {str(source)!r}.")
    check(
        os.path.lexists(source / "model.json"),
        f"{str(source)!r} is not a saved model, because it has no file 'model.json'.",
    )
    for name, largest in FILES.items():
        path = source / name
        check(
            path.is_file() and path.stat().st_size <= largest,
            f"{str(path)!r} is missing or larger than {largest >> 20} MiB.",
        )


def read_form(source: Path, name: str, form: type[F]) -> F:
    """Read a file of a saved model as a typed form."""
    text, what = read_file(source / name, FILES[name]), f"{name} is not part of a saved"
    found = parse_json(text, form, f"{what} skdp model")
    if form is not _Format:
        refuse_repeated_keys(text, f"{what} skdp model")
    return found


def refuse_repeated_keys(text: bytes, what: str) -> None:
    """Refuse JSON in which a key is repeated: readers may believe either value."""

    def count(pairs: list[tuple[str, Any]]) -> None:
        times = Counter(name for name, _ in pairs)
        twice = [name for name in times if times[name] > 1] or [""]
        check(len(times) == len(pairs), f"{what}: key {twice[0][:99]!r} is repeated.")

    # Numbers are kept as text, which is faster.
    json.loads(text, object_pairs_hook=count, parse_float=len, parse_int=len)


def make_estimator(about: ModelForm) -> PrivateLinearModel:
    """Make the estimator that model.json names. It is not fitted yet."""
    known = {kind.__name__: kind for kind in ESTIMATORS.values()}
    check(
        about.estimator in known,
        f"The estimator in model.json must be one of {sorted(known)}, got "
        f"{about.estimator[:99]!r}.",
    )
    kind = known[about.estimator]
    return kind(**read_parameters(about.parameters, kind))


class _Format(msgspec.Struct):
    """The key that model.json has in every version of the format."""

    format: Literal["skdp model"]


def is_model(target: Path) -> bool:
    """Return whether a directory contains a saved model and nothing else."""
    if not target.is_dir() or {p.name for p in target.iterdir()} != set(FILES):
        return False
    try:
        check_files(target)
        read_form(target, "model.json", _Format)
    except ValueError:
        return False
    return True


def make_model_form(
    model: PrivateLinearModel,
    write_schema: Callable[[Schema], str | None] = toml_files.dumps,
) -> ModelForm:
    """Return a fitted model as the content of model.json."""
    classes = getattr(model, "classes_", None)
    parameters, left_out = list_parameters(model, write_schema)
    shares = getattr(model, "_shares", None)
    return ModelForm(
        format="skdp model",
        format_version=1,
        versions={
            "skdp": skdp.__version__,
            "scikit-learn": sklearn.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        estimator=type(model).__name__,
        parameters=parameters,
        parameters_left_out=left_out,
        named=hasattr(model, "feature_names_in_"),
        classes_dtype=None if classes is None else classes.dtype.str,
        n_iter=int(model.n_iter_),
        plan=plan_summary(model.plan_),
        weights=model.weights_.tolist(),
        uncertainty=standard_errors.make_errors_form(model),
        shares=None if shares is None else shares.tolist(),
        exposed=model._exposed,
        profile=make_profile_form(model.profile_, write_schema),
    )


def make_profile_form(
    profile: Profile | None, write_schema: Callable[[Schema], str | None]
) -> ProfileForm | None:
    """Return a profile as a part of model.json."""
    if profile is None:
        return None
    return ProfileForm(
        n_rows=profile.n_rows,
        limits=write_schema(profile.limits),
        numbers={
            name: HistogramForm(
                edges=one.edges.tolist(), values=one.values.tolist(), error=one.error
            )
            for name, one in profile.numbers.items()
        },
        levels={
            name: LevelsForm(values=one.values.tolist(), error=one.error)
            for name, one in profile.levels.items()
        },
    )


def read_profile(form: ProfileForm | None, schema: Schema) -> Profile | None:
    """Make a profile from model.json. Refuse one from which `schema` does not follow.

    The columns of `schema` have the ranges that follow from the profile. Some of them
    may have become curves.
    """
    if form is None:
        return None
    limits = toml_files.loads(form.limits or "")
    numbers, levels = {}, {}
    for name, one in form.numbers.items():
        n, edges = len(one.edges), np.array(one.edges)
        whole = n > 1 and one.edges[0] == 0 and one.edges[-1] == FINE
        check(
            whole and bool((np.diff(edges) > 0).all()) and n <= MOST_ENTRIES // 2,
            f"The edges of {name!r} in the profile in model.json are wrong.",
        )
        check(
            len(one.values) == n - 1 + len(APART),
            f"The shares of {name!r} in the profile in model.json are wrong.",
        )
        values = np.array(one.values)
        numbers[name] = Histogram(edges=edges, values=values, error=one.error)
    described = {**limits.columns, "": limits.target_column}
    for name, own in form.levels.items():
        check(
            name in described and len(own.values) == described[name].width + 1,
            f"The shares of {name!r} in the profile in model.json are wrong.",
        )
        levels[name] = LevelShares(values=np.array(own.values), error=own.error)
    profile = Profile(limits=limits, n_rows=form.n_rows, numbers=numbers, levels=levels)
    families = {one.name for one in list_families(limits) if one.is_number}
    check(families == set(numbers), "The profile in model.json lacks a column.")
    used = use_ranges(profile)
    target: Any = used.target_column
    ends = [getattr(schema.target_column, end, None) for end in ("low", "high")]
    check(
        not isinstance(target, Numeric) or ends == [target.low, target.high],
        "The range of the target in schema.toml does not follow from the profile in "
        "model.json. One of them was changed.",
    )
    for name, column in used.columns.items():
        found: Any = schema.columns.get(name)
        ends = [(c.low, c.high) for c in (column, found) if isinstance(c, Numeric)]
        if isinstance(column, Numeric):
            narrow = column.narrow()
            ends.append((narrow.low, narrow.high))
        check(
            found is not None and (not ends or ends[1] in (ends[0], ends[-1])),
            f"The range of {name!r} in schema.toml does not follow from the profile in "
            "model.json. One of them was changed.",
        )
    return profile


def find_own_schema(model: PrivateLinearModel) -> Schema:
    """Return the parameter `schema` as a schema.

    If it is a path, this is the schema that was fitted or, if there was a look, that of
    its limits, because the file may have changed.
    """
    if isinstance(model.schema, Schema):
        return model.schema
    return model.schema_ if model.profile_ is None else model.profile_.limits


def list_parameters(
    model: PrivateLinearModel,
    write_schema: Callable[[Schema], str | None] = toml_files.dumps,
) -> tuple[dict[str, Any], list[str]]:
    """Return the parameters as JSON values, and the names of those left out.

    A `sampling` or `geometry` is left out if it is an object and not a name. The
    parameter `random_state` is never saved.
    """
    given = model.get_params(deep=False)
    del given["random_state"]
    for name in ("epsilon", "max_weight"):  # as `read_parameters` returns them
        given[name] = float(given[name])
    if isinstance(given["ledger"], str | os.PathLike):  # charged by a loaded model too
        given["ledger"] = os.path.abspath(os.fsdecode(given["ledger"]))
    if given["schema"] is not None:
        given["schema"] = write_schema(find_own_schema(model))
    if isinstance(given["class_weight"], Mapping):
        given["class_weight"] = [list(pair) for pair in given["class_weight"].items()]
    for name in ("bounds", "classes", "target_bounds"):
        if given[name] is not None:
            given[name] = [np.asarray(part).tolist() for part in given[name]]
    left_out = [
        name for name in ("sampling", "geometry") if not isinstance(given[name], str)
    ]
    kept = {name: to_json(v) for name, v in given.items() if name not in left_out}
    return kept, left_out


def read_parameters(
    given: dict[str, Any], kind: type[PrivateLinearModel]
) -> dict[str, Any]:
    """Return saved parameters as an estimator's constructor takes them.

    Names and types are checked here, because the constructor accepts anything.
    """
    known = kind().get_params(deep=False)
    for name in given:
        check(
            name in known and name != "random_state",
            f"model.json must not have a parameter {name!r}.",
        )
    typed = {
        name: convert(given[name], form, f"model.json has a wrong parameter {name}")
        for name, form in SAVED_AS.items()
        if name in given
    }
    for name in ("epsilon", "max_weight"):
        if name in typed:
            typed[name] = float(typed[name])
    if typed.get("schema") is not None:
        typed["schema"] = toml_files.loads(typed["schema"])
    if isinstance(typed.get("class_weight"), list):
        typed["class_weight"] = dict(typed["class_weight"])
    return given | typed


def read_shares(given: list[float] | None, layout: Layout) -> Any:
    """Return the shares of rows at categories and knots, or None.

    The shares of a column's categories or knots add up to one.
    """
    if given is None:
        return None
    width, shares = layout.n_features, np.array(given)
    check(
        len(given) == width,
        f"The shares in model.json must have length {width}, like its weights.",
    )
    for group in layout.groups:
        if group.kind in ("code", "hats"):
            total = float(shares[group.coordinates].sum())
            check(
                abs(total - 1) < 1e-6,
                f"The shares of column {group.name!r} in model.json must add up to "
                f"1, got {total:g}. They were changed.",
            )
    return shares


def read_classes(dtype: str | None, schema: Schema) -> Any:
    """Return the labels of the schema with the numpy type that was saved."""
    column = schema.target_column
    assert isinstance(column, Categorical)  # the loss has checked it
    check(
        sort_target(column) == column,
        "The classes in schema.toml must be sorted, but they are not.",
    )
    labels, typed = np.array(column.levels), None
    # Numbers have at most 16 bytes, and strings the length of the longest class.
    if dtype is not None and np.dtype(dtype).itemsize <= max(labels.itemsize, 16):
        try:
            typed = labels.astype(dtype)
        except (TypeError, ValueError, OverflowError):
            typed = None
    check(
        typed is not None
        and all(a == b for a, b in zip(typed.tolist(), column.levels, strict=True)),
        f"model.json says that classes have type {dtype!r}, but the classes in "
        "schema.toml have another type.",
    )
    return typed
