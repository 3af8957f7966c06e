"""Rules for the source, which is read as syntax trees and not imported.

(But for the size of the trusted base, which is that of the files that a fit runs.)

Lists of files that may do a thing are short and give their reasons. A file that is not
on them and does it fails here, and so does a name on a list that no longer needs it.
"""

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[1] / "src" / "skdp"
FILES = sorted(p.relative_to(SRC).as_posix() for p in SRC.rglob("*.py"))
TRUSTED = [name for name in FILES if name.startswith("privacy/")]


@cache
def tree(name):
    return ast.parse((SRC / name).read_text(encoding="utf-8"))


def dotted(node):
    """`a.b.c` of an expression, or None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else f"?.{node.attr}"
    return None


def calls(name):
    """Last names of everything that a file calls, with the call."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Call):
            called = dotted(node.func)
            if called:
                yield called.split(".")[-1], node


def imports(name):
    """Modules that a file imports, `from a import b` as a and a.b, types included."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} imports relatively: name the package."
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def caller_files(function):
    return {name for name in FILES if any(c == function for c, _ in calls(name))}


# ---- where randomness is touched

#: Files outside privacy/ that name a source of randomness, and why they may.
RANDOM = {
    "datasets.py": "draws public tables, nobody's data",
    "descent/samplings.py": "is handed the public generator of Randomness; is "
    "handed the same public generator",
    "descent/algorithm1.py": "names the generator's type in a signature",
    "audit/fits.py": "names it too: a sampling that remembers its sets",
}
GENERATORS = re.compile(
    r"(^|\.)(default_rng|Generator|RandomState|SeedSequence|PCG64|MT19937|urandom|"
    r"getrandom|randbytes|standard_normal|normalvariate|token_bytes|check_random_state)$"
)
MODULES = re.compile(r"^(random|secrets|numpy\.random|torch|jax)(\.|$)")


def random_uses(name):
    found = [m for m in imports(name) if MODULES.match(m) or GENERATORS.search(m)]
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Attribute | ast.Name):
            used = dotted(node) or ""
            if GENERATORS.search(used) or re.search(r"(^|\.)np\.random\.", used):
                found.append(used)
    return found


def test_noise_and_generators_stay_where_they_belong():
    found = {name: used for name in FILES if (used := random_uses(name))}
    own = set(found.pop("privacy/randomness.py"))
    assert {"os.urandom", "np.random.default_rng"} <= own
    assert set(RANDOM) <= set(found), "An entry of RANDOM is no longer needed."
    others = {name: used for name, used in found.items() if name not in RANDOM}
    assert others == {}, "Only privacy/randomness.py may use these."


def test_those_that_may_draw_only_what_they_may():
    for name in RANDOM:
        used = set(random_uses(name))
        if name != "datasets.py":  # types in signatures; no generator is made
            assert used <= {"np.random.Generator"}, name
        assert not used & {"os.urandom", "urandom"}, name


def test_datasets_draws_read_no_records_of_a_user():
    """Its generator is seeded by a public argument: nothing private depends on it."""
    made = [c for c, _ in calls("datasets.py") if c == "default_rng"]
    assert made == ["default_rng"]


def test_normals_are_drawn_by_release_alone():
    assert caller_files("normals") == {"privacy/mechanism.py"}
    # The coins of an audit decide which made-up records are in a made-up table.
    public = {"descent/algorithm1.py", "audit/one_run.py"}
    assert caller_files("generator") == public
    words = {"privacy/randomness.py", "privacy/mechanism.py"}
    # Who is in a batch is as private as the noise, and comes from the same source.
    # So do the fold of a row, the coins of the exponential mechanism and of a random
    # search.
    choices = {
        "solvers/poisson_batches.py",
        "privacy/selection.py",
        "evaluation/folds.py",
    }
    assert caller_files("words") == words | choices


# ---- where sums are made and released

#: Every file that spends privacy. `grep release(` finds the same lines.
RELEASES = {
    "audit/mechanisms.py": "sums over tables that were made up for an audit",
    "descent/algorithm1.py": "each step of Algorithm 1",
    "descent/plan.py": "the number of rows, and what a geometry asks for",
    "descent/geometry.py": "the target's histogram, for a start, by the same "
    "task; the target's histogram, through the same task",
    "descent/matrix.py": "the Gram matrix, through the task it is handed; the "
    "sum of slopes, through the same task",
    "descent/sketches.py": "the Gram matrix, through the same task",
    "estimators/weights.py": "the counts of the classes, for balanced weights; "
    "the histogram of the weights, for their errors",
    "evaluation/evaluate.py": "counts that scores are computed from",
    "evaluation/score_cells.py": "counts from which bins and bounds are chosen first",
    "privacy/discovery.py": "ranges and categories that a schema does not give",
    "privacy/look.py": "histograms of all columns, before a fit",
    "solvers/dp_sgd.py": "each batch of DP-SGD, charged together beforehand",
    "solvers/dp_svrg.py": "full gradients, and batches charged together beforehand",
    "solvers/dp_cd.py": "mean squares of the columns, for step sizes",
    "solvers/adassp.py": "the normal equations, and an eigenvalue as printed",
    "solvers/dp_gcd.py": "all derivatives, or one; means of joint columns",
    "solvers/objective_perturbation.py": "a secret tilt, and the distance to a minimum",
    "solvers/output_perturbation.py": "a minimiser, once",
}

#: Every file that opens a budget.
BUDGETS = {
    "audit/games.py": "one per game, on synthetic tables",
    "audit/mechanisms.py": "the budget of a row count, in such a game",
    "descent/plan.py": "that of a run, unless one is handed in",
    "descent/descend.py": "that of a run of Algorithm 1 as printed",
    "estimators/opening.py": "that of a fit, a discovery or an evaluation; that of a "
    "fit which is only planned, where nothing is charged",
    "evaluation/search.py": "that of a search, which its trials are entered in; "
    "the part that a trial's score has of it",
    "estimators/saving.py": "one that was saved, with its releases",
    "cli/demo_fits.py": "what a command shows",
    "privacy/discovery.py": "a throw-away one, after the charge: the keys are private",
    "solvers/problem.py": "that of a solver's run, unless one is handed in; a "
    "throw-away one, after the charge, for what is charged beforehand",
    "solvers/objective_perturbation.py": "a throw-away one, after the charge: "
    "the tilt of the objective is secret, and what it hides is charged by a theorem",
}

#: Files that state a sensitivity themselves, and the theorem that it is.
STATED = {
    "descent/descend.py": "none: the caller's own, an assumption in the record",
    "solvers/adassp.py": "a record moves an eigenvalue by its squared norm (Weyl)",
    "solvers/objective_perturbation.py": "none for a zero; a certified distance",
    "solvers/output_perturbation.py": "minimisers of strongly convex sums are stable",
}


def test_sums_are_made_in_one_file():
    assert caller_files("BoundedSum") == {"privacy/queries.py"}


def test_sensitivities_are_stated_where_a_theorem_is():
    """`queries.state_sensitivity` takes a sensitivity on trust."""
    assert caller_files("state_sensitivity") == set(STATED)


def test_released_values_are_made_in_one_file():
    assert caller_files("Released") == {"privacy/mechanism.py"}


def test_every_spending_of_privacy_is_listed():
    found = caller_files("release")
    for name in sorted(found):
        lines = [node.lineno for called, node in calls(name) if called == "release"]
        print(f"release( in {name}: lines {lines}")
    assert found == set(RELEASES)


def test_every_budget_is_listed():
    """A release charged to a record that nobody keeps would be a free one."""
    made = caller_files("PrivacyRecord") | caller_files("SearchRecord")
    assert made <= set(BUDGETS)


def test_release_is_called_under_its_own_name():
    """An alias, or a reference that is not a call, could hide a spending."""
    for name in FILES:
        if name == "privacy/mechanism.py":
            continue
        aliases = [
            alias
            for node in ast.walk(tree(name))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.name in ("release", "Released", "BoundedSum", "PrivacyRecord")
        ]
        assert not [alias for alias in aliases if alias.asname], name
        if "release" not in {alias.name for alias in aliases}:
            continue  # then a local variable of that name is nothing to us
        called = {id(node.func) for _, node in calls(name)}
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.Name) and node.id == "release":
                assert id(node) in called, f"{name}:{node.lineno} passes release on"


def test_charges_are_made_by_release_alone():
    # Batches cost less together than one by one: all of them are charged first. What
    # the tilt of an objective hides is charged by the curve of the whole algorithm.
    # A trial of a search is charged as a whole until its own releases are entered.
    # A minimiser is charged before it is looked for.
    others = {"privacy/discovery.py", "privacy/selection.py", "solvers/problem.py"}
    # The exponential mechanism releases a choice, not a sum.
    others |= {"solvers/dp_gcd.py"}
    assert caller_files("charge") <= {"privacy/mechanism.py"} | others
    assert "privacy/mechanism.py" in caller_files("charge")


def test_release_charges_before_it_draws():
    function = next(
        node
        for node in tree("privacy/mechanism.py").body
        if isinstance(node, ast.FunctionDef) and node.name == "release"
    )
    line = {
        dotted(node.func).split(".")[-1]: node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    }
    assert line["charge"] < line["normals"] < line["Released"]


def test_caps_are_set_by_queries_alone():
    for name in FILES:
        for called, node in calls(name):
            keywords = {keyword.arg for keyword in node.keywords}
            if called == "Slopes":
                assert len(node.args) <= 2, f"{name} gives Slopes a metric by place."
            if called in ("Slopes", "replace") and keywords & {"caps", "metric"}:
                allowed = ("privacy/queries.py", "privacy/persons.py")
                assert name in allowed, f"{name} sets caps or a metric."
    replaced = [
        node
        for called, node in calls("privacy/queries.py")
        if called == "replace" and {k.arg for k in node.keywords} == {"caps", "metric"}
    ]
    assert len(replaced) == 1


def test_frozen_values_are_not_pried_open():
    """object.__setattr__ and vars(self).update serve __post_init__ alone."""
    for name in FILES:
        for function in ast.walk(tree(name)):
            if isinstance(function, ast.FunctionDef):
                pried = [
                    node
                    for node in ast.walk(function)
                    if isinstance(node, ast.Attribute)
                    and (
                        node.attr == "__setattr__"
                        or ast.unparse(node).startswith("vars(self).")
                    )
                ]
                assert not pried or function.name == "__post_init__", name


# ---- imports go one way

LAYERS = [
    ["typed_files", "formatting"],
    ["schema"],
    ["privacy"],
    ["ledger", "models", "tables"],
    ["engines"],
    ["descent"],
    ["inference"],
    ["solvers"],
    ["estimators", "datasets"],
    ["evaluation", "verification"],
    ["audit", "reporting"],
    ["cli"],
]
LEVEL = {part: i for i, parts in enumerate(LAYERS) for part in parts}
#: Imports against the order, and why they may be.
EXCEPTIONS: dict[tuple[str, str], str] = {}


def part_of(module):
    return module.removesuffix(".py").replace("/", ".").split(".")[0]


def test_imports_go_one_way():
    for name in FILES:
        if name == "__init__.py":
            continue
        own = part_of(name)
        assert own in LEVEL, f"Give {own} a place in LAYERS."
        for module in imports(name):
            if not module.startswith("skdp."):  # skdp is named before what is in it
                continue
            other = part_of(module.removeprefix("skdp."))
            if other not in LEVEL:
                known = other == "__version__" or own == "cli"
                assert known, f"{name} imports {module}, which LAYERS does not have."
            elif (name, other) not in EXCEPTIONS:
                allowed = other == own or LEVEL[other] < LEVEL[own]
                assert allowed, f"{name} imports {module}: imports go one way."


def test_the_package_does_without_the_experiments():
    """The wheel does not contain them."""
    outside = {"experiments", "benchmarks", "tests"}
    assert {n for n in FILES for m in imports(n) if m.split(".")[0] in outside} == set()


def test_privacy_imports_schema_and_itself_only():
    for name in FILES:
        if name.startswith("privacy/"):
            ours = {
                part_of(m.removeprefix("skdp."))
                for m in imports(name)
                if m.startswith("skdp.")
            }
            assert ours <= {"schema", "privacy"}, name


#: The budget on disk: SQLite and files, between runs.
LEDGER = {n for n in FILES if n.startswith("ledger/")}
THIRD = {"numpy", "scipy", "sklearn", "numba"}
STANDARD_IN_PRIVACY = {
    "__future__",
    "collections",
    "dataclasses",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "itertools",
    "math",
    "numbers",
    "os",
    "typing",
}


def test_trusted_files_lean_on_little():
    for name in TRUSTED:
        roots = {m.split(".")[0] for m in imports(name)} - {"skdp"}
        assert roots <= STANDARD_IN_PRIVACY | {"numpy", "scipy"}, name


# ---- code goes by the kind of a release

MATCHING = {"startswith", "endswith", "find", "index", "count", "partition", "split"}
MATCHING |= {"match", "fullmatch", "search", "findall", "finditer", "removeprefix"}
MATCHING |= {"removesuffix", "rfind", "rindex", "rpartition", "rsplit", "sub"}


def reads_a_sentence(node):
    """Whether an expression has a `.query`, a `query` or a `["query"]` in it."""
    return any(
        (isinstance(n, ast.Attribute) and n.attr == "query")
        or (isinstance(n, ast.Name) and n.id == "query")
        or (isinstance(n, ast.Subscript) and dotted_key(n) == "query")
        for n in ast.walk(node)
    )


def dotted_key(node):
    return node.slice.value if isinstance(node.slice, ast.Constant) else None


def matches_words(parsed):
    """Lines that compare, search or match the sentence of a release."""
    for node in ast.walk(parsed):
        parts = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            parts = [node.subject]
        elif isinstance(node, ast.Call):
            called = dotted(node.func) or ""
            if called.split(".")[-1] in MATCHING or called.startswith("re."):
                parts = [node.func, *node.args, *(k.value for k in node.keywords)]
            elif isinstance(node.func, ast.Attribute) and node.func.attr in MATCHING:
                parts = [node.func.value, *node.args]
        if any(reads_a_sentence(part) for part in parts):
            yield node.lineno


@pytest.mark.parametrize("name", FILES)
def test_no_code_reads_the_sentence_of_a_release(name):
    """A sentence is for people: rewording one must change no result."""
    assert not list(matches_words(tree(name)))


@pytest.mark.parametrize(
    "text",
    [
        "r.query == 'number of rows'",
        "'Gram' in one.query",
        "event.query.startswith('gradient')",
        "event.query[:8].endswith('x')",
        "re.fullmatch(pattern, release.query)",
        "PATTERN.search(release.query)",
        "lambda query: query == 'scores'",
        "one['query'].partition(' of ')",
    ],
)
def test_code_that_reads_a_sentence_is_found(text):
    assert list(matches_words(ast.parse(text)))


# ---- what is never done


FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "load_module"}
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve"}
FORBIDDEN_MODULES |= {"marshal", "random", "secrets"}
#: Files that may write a pickle, and why. None may read one.
PICKLES = {"cli/export_command.py": "scikit-learn has no other form for a pipeline"}


def test_no_pickle_eval_or_exec():
    for name in FILES:
        named = {
            node.func.id
            for node in ast.walk(tree(name))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not named & FORBIDDEN_CALLS, name
        pickles = {m.split(".")[0] for m in imports(name)} & FORBIDDEN_MODULES
        assert pickles == ({"joblib"} if name in PICKLES else set()), name
    for name in PICKLES:
        assert not {c for c, _ in calls(name)} & {"load", "loads"}, name


def test_privacy_raises_and_never_warns_prints_or_logs():
    telling = {"warn", "print", "warning", "debug", "info"}
    for name in TRUSTED:
        assert not telling & {c for c, _ in calls(name)}, name
        roots = {m.split(".")[0] for m in imports(name)}
        assert not roots & {"warnings", "logging"}, name


def test_privacy_does_not_lean_on_assertions():
    """python -O removes them."""
    for name in TRUSTED:
        assert not [n for n in ast.walk(tree(name)) if isinstance(n, ast.Assert)], name


# ---- how much must be read


@pytest.fixture
def trusted_base(monkeypatch):
    """`tools/trusted_base.py`, which counts lines and runs a documented fit."""
    monkeypatch.syspath_prepend(str(SRC.parents[1] / "tools"))
    return importlib.import_module("trusted_base")


def test_counter_counts(trusted_base):
    text = '''"""Module."""

X = 1
"""About X."""


def f(a,
      b):  # two lines
    """Doc

    string."""
    # why
    text = """kept
    twice"""
    return text
'''
    assert trusted_base.count_code_lines(text) == 1 + 2 + 2 + 1


def test_the_pages_state_the_size_of_the_trusted_base(trusted_base):
    """These are facts and not limits. The last one is that of a whole fit."""
    mechanism = trusted_base.MECHANISM
    core = [*mechanism, *trusted_base.DESCRIPTIONS, trusted_base.REFERENCE]
    fit = trusted_base.list_files_of_a_fit()
    sizes = [trusted_base.count_files(files) for files in (mechanism, core, fit)]
    pages = {
        "README.md": (r"[Aa]bout\s+\[(\S+)\s+lines\]", [sizes[0], sizes[2]]),
        "docs/guide/verification.md": (r"about ([\d,]+) lines", sizes),
    }
    for page, (words, stated) in pages.items():
        text = (SRC.parents[1] / page).read_text(encoding="utf-8")
        found = [int(n.replace(",", "")) for n in re.findall(words, text)]
        assert found == pytest.approx(stated, rel=0.1), page


def test_the_page_states_the_size_of_each_part_of_a_fit(trusted_base):
    """The page has a line for each part, so no part is left out."""
    page = SRC.parents[1] / "docs" / "guide" / "verification.md"
    rows = re.findall(r"^\| ([^|]+) \| ([\d,]+) \|", page.read_text("utf-8"), re.M)
    stated = {part: int(lines.replace(",", "")) for part, lines in rows}
    parts = trusted_base.divide_into_parts(trusted_base.list_files_of_a_fit())
    sizes = {part: trusted_base.count_files(files) for part, files in parts.items()}
    assert stated == pytest.approx(sizes, rel=0.2)
    assert set(parts["mechanism"]) == set(trusted_base.MECHANISM)  # all of it runs
    assert "engines/kernels.py" in parts["engine"]
    assert {"tables/batches.py", "tables/encoder.py"} < {*parts["opening and encoding"]}


def test_no_two_files_share_a_name():
    """A stranger who looks for a file finds one."""
    names = [Path(name).name for name in FILES if not name.endswith("__init__.py")]
    assert len(set(names)) == len(names)


def test_no_two_classes_share_a_name():
    """A search for a class finds one, even among private names."""
    places: dict[str, list[str]] = {}
    for name in FILES:
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name.lstrip("_"), []).append(name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_two_functions_share_a_name():
    """Methods may: their classes differ."""
    places: dict[str, list[str]] = {}
    for name in FILES:
        for node in tree(name).body:
            if isinstance(node, ast.FunctionDef):
                places.setdefault(node.name, []).append(name)
    del places["fit"]  # skdp.fit and skdp.audit.fit
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


# ---- what is promised


def public_functions(name):
    """(qualified name, node) of the public functions and methods of a file."""
    for node in tree(name).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            yield node.name, node
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
                    yield f"{node.name}.{item.name}", item


#: Functions whose promise is what privacy rests on.
PROMISES = {
    "privacy/grid.py": {
        "truncate",
        "truncate_column",
        "bound_rows",
        "SlopeGrid.units",
    },
    "privacy/encoding.py": {"encode"},
    "privacy/queries.py": {
        "gradient",
        "mapped_gradient",
        "gram",
        "counts",
        "histogram",
        "histograms",
        "state_sensitivity",
        "Metric.caps",
    },
    "privacy/discovery.py": {"release_ranges_and_texts", "release_levels"},
    "privacy/mechanism.py": {"release"},
    "privacy/selection.py": {
        "trial_delta",
        "search_epsilon",
        "search_delta",
        "trial_mu",
        "SearchRecord.end",
    },
    "privacy/randomness.py": {"Randomness.normals"},
    "privacy/budget.py": {"PrivacyRecord.charge", "PrivacyRecord.prepay"},
    "privacy/visits.py": {
        "Visits.of",
        "find_longest",
        "visit_gradients",
        "visit_images",
    },
    "ledger/ledger.py": {"Ledger.reserve"},
    "privacy/accountant.py": {
        "gdp_delta",
        "gdp_mu",
        "gdp_epsilon",
        "noise_multiplier",
        "calibrate",
        "spent_epsilon",
    },
    "descent/algorithm1.py": {"run_steps"},
}


@pytest.mark.parametrize("name", [n for n in FILES if n.startswith("privacy/")])
def test_notes_open_with_the_guarantee(name):
    for function, node in public_functions(name):
        text = ast.get_docstring(node) or ""
        notes = re.search(r"^Notes\n-----\n(.*)", text, re.MULTILINE)
        if notes:
            opening = notes.group(1)
            assert opening.startswith("**Guarantee.** "), f"{name}: {function}"


@pytest.mark.parametrize("name", sorted(PROMISES))
def test_what_privacy_rests_on_is_promised_with_quantifiers(name):
    found = dict(public_functions(name))
    for function in PROMISES[name]:
        text = " ".join((ast.get_docstring(found[function]) or "").split())
        _, _, promise = text.partition("**Guarantee.** ")
        assert promise, f"{name}: {function} promises nothing."
        quantified = r"For (all|every)|Whatever|The deviates are independent, each"
        assert re.match(quantified, promise), f"{name}: {function}: {promise[:60]}"


def test_every_maker_of_a_sum_promises_its_sensitivity():
    """A new query needs its guarantee."""
    for function, node in public_functions("privacy/queries.py"):
        made = {dotted(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
        if "BoundedSum" in made:
            assert function in PROMISES["privacy/queries.py"], function
