"""The site is whole: names have pages, links lead somewhere, maps name what exists."""

import doctest
import importlib
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import skdp

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
API = "\n".join(
    page.read_text(encoding="utf-8") for page in sorted((DOCS / "api").glob("*.md"))
)
DOCUMENTED = re.findall(r"^   (skdp\.[\w.]+)$", API, re.MULTILINE)
#: Packages and modules whose names are for users.
PUBLIC = [
    "skdp",
    "skdp.audit",
    "skdp.estimators",
    "skdp.ledger",
    "skdp.solvers",
    "skdp.tables",
    "skdp.descent.samplings",
    "skdp.descent.sketches",
    "skdp.descent.smoothness",
    "skdp.descent.eso_bounds",
    "skdp.descent.bounds",
]
#: Modules with a list of names that are not for users.
INSIDE = {
    "skdp.schema": "what the rest of the package uses; schemas are in skdp",
    "skdp.solvers.problem": "what solvers share; its public part is in skdp.solvers",
}
PAGES = sorted(
    path
    for path in [ROOT / "README.md", *DOCS.rglob("*.md")]
    if "generated" not in path.parts
)


def found(name):
    """The object that a dotted name stands for."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def test_every_public_name_has_a_page():
    pages = {id(found(name)): name for name in DOCUMENTED}
    for module in PUBLIC:
        names = importlib.import_module(module).__all__
        missing = [n for n in names if id(found(f"{module}.{n}")) not in pages]
        assert missing == [], f"Add {module}'s {missing} to docs/api."
    assert len(DOCUMENTED) == len(set(DOCUMENTED))


def test_every_list_of_public_names_is_looked_at():
    lists = {
        module.name
        for module in pkgutil.walk_packages(skdp.__path__, "skdp.")
        if "__all__ = " in Path(module.module_finder.path, *name_of(module)).read_text()
    }
    assert lists | {"skdp"} == set(PUBLIC) | set(INSIDE)


def name_of(module):
    """Parts of a module's file below the folder that it was found in."""
    last = module.name.rpartition(".")[2]
    return (last, "__init__.py") if module.ispkg else (f"{last}.py",)


#: Entries of a table of contents that a command writes, so that they may be missing.
WRITTEN = {"gallery/index": "make docs"}


def test_tables_of_contents_list_what_exists():
    """The build does not warn of them, because some pages are written later."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for table in re.findall(r"```{toctree}\n(.*?)```", text, re.DOTALL):
            for entry in re.findall(r"^[\w/*]+$", table, re.MULTILINE):
                found = list(page.parent.glob(f"{entry}.md"))
                assert found or entry in WRITTEN, entry


def test_links_lead_somewhere():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]+)", text):
            assert (page.parent / target).exists(), f"{page} links to {target}"


def test_the_map_of_equations_names_what_exists():
    """Each row: `file.py`: `name`, `name`; a file alone is looked up as a file."""
    table = (DOCS / "guide" / "method.md").read_text(encoding="utf-8")
    table = table.split("## What happens")[1].split("\n## ")[0]
    checked = 0
    for row in table.splitlines():
        if not row.startswith("| ") or row.startswith(("| equation", "| step")):
            continue
        for part in row.rsplit("|", 2)[1].split(";"):
            file, *names = re.findall(r"`([^`]+)`", part)
            paths = [p for p in (ROOT / "src/skdp").rglob("*.py") if named(p, file)]
            assert len(paths) == 1, file
            module = paths[0].relative_to(ROOT / "src").with_suffix("")
            home = importlib.import_module(".".join(module.parts))
            for name in names:
                value = home
                for attribute in name.split("."):
                    value = getattr(value, attribute)
                checked += 1
    assert checked > 30


def named(path, file):
    return path.as_posix().endswith(f"/skdp/{file}") or (
        "/" not in file and path.name == file and path.parent.name == "privacy"
    )


def test_examples_of_docstrings_run():
    """They are shown in the reference. Failures are printed with their file."""
    names = sorted({getattr(found(n), "__module__", "skdp") for n in DOCUMENTED})
    flags = doctest.NORMALIZE_WHITESPACE
    results = {
        name: doctest.testmod(importlib.import_module(name), optionflags=flags)
        for name in names
    }
    assert [name for name, result in results.items() if result.failed] == []
    assert sum(result.attempted for result in results.values()) > 50


def build_site(tmp_path):
    """Build what is in ``tmp_path/docs``, and return its pages.

    All but the pictures of the gallery, whose programs have a test of their own. The
    theme is the plainest, because furo's navigation takes half of the time.
    """
    pytest.importorskip("sphinx")
    built = subprocess.run(
        [
            *(sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going"),
            *("-D", "plot_gallery=0", "-D", "html_theme=basic"),
            *(tmp_path / "docs", tmp_path / "site"),
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert built.returncode == 0, built.stderr
    return list((tmp_path / "site").rglob("*.html"))


@pytest.mark.nightly
def test_the_site_builds_without_a_warning(tmp_path):
    for part in ROOT.iterdir():  # a copy: pages are made beside those that are written
        if part.suffix == ".md":  # included pages link to others beside them
            shutil.copy(part, tmp_path)
        elif part.name not in ("docs", "build") and not part.name.startswith("."):
            (tmp_path / part.name).symlink_to(part)
    made = shutil.ignore_patterns("generated", "gallery")
    shutil.copytree(DOCS, tmp_path / "docs", ignore=made)
    pages = build_site(tmp_path)
    assert len(pages) > 100
    remote = re.compile(r'<(?:script|img|link)[^>]+(?:src|href)="(?:https?:)?//')
    for page in pages:
        assert not remote.search(page.read_text(encoding="utf-8")), page


#: A site of one page of each kind: a guide, the reference of a class and of a function.
SMALL_SITE = """\
# A small site

```{toctree}
gallery/index
guide/sketches
```

```{eval-rst}
.. autosummary::
   :toctree: generated

   skdp.RandomFolds
   skdp.solvers.dp_cd
```
"""


def test_a_small_site_builds_without_a_warning(tmp_path):
    docs = tmp_path / "docs"
    for folder in ("_static", "_templates"):
        shutil.copytree(DOCS / folder, docs / folder)
    (docs / "guide").mkdir()
    (docs / "index.md").write_text(SMALL_SITE, encoding="utf-8")
    shutil.copy(DOCS / "conf.py", docs / "conf.py")
    guide = (DOCS / "guide/sketches.md").read_text(encoding="utf-8")
    alone = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", guide)  # without its links
    (docs / "guide/sketches.md").write_text(alone, encoding="utf-8")
    examples = tmp_path / "examples"
    examples.mkdir()
    for name in ("GALLERY_HEADER.rst", "plot_7_ledger.py"):
        shutil.copy(ROOT / "examples" / name, examples / name)
    built = {page.relative_to(tmp_path / "site") for page in build_site(tmp_path)}
    wanted = ["guide/sketches", "gallery/plot_7_ledger", "generated/skdp.RandomFolds"]
    assert {Path(f"{name}.html") for name in wanted} <= built
