"""How the site is built: `make docs` writes it to build/docs, without the network."""

import pydoc
import re
import sys
from pathlib import Path

import matplotlib

import skdp

HERE = Path(__file__).parent
matplotlib.use("Agg")

project = "skdp"
author = copyright = "The skdp developers"
release = version = skdp.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
nitpicky = True

# Pages: Markdown that reads well on a Git host too, headings as link targets.
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
suppress_warnings = [
    "toc.not_readable",  # pages that are written later; a test looks at the others
]

# Reference: one page a public name; text in single backquotes is a name of ours.
default_role = "py:obj"
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say it in words
autodoc_default_options = {"members": True, "inherited-members": True}
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "write_computation_times": False,  # a page that asks the network for a script
    "show_signature": False,
    "abort_on_example_error": True,
    "copyfile_regex": r"$^",
}

html_theme = "furo"
html_title = "skdp"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False


def setup(app):
    """Leave out what scikit-learn documents; check names that have no page."""
    app.connect("autodoc-skip-member", _is_not_ours)
    app.connect("missing-reference", _without_a_page)
    app.connect("source-read", _from_the_root)


def _from_the_root(app, page, source):
    """Lead links to files of the repository's root to their pages of the site."""
    source[0] = re.sub(r"\]\((\.\./)+((?!README)[A-Z_]+\.md)", r"](/\2", source[0])


def _is_not_ours(app, what, name, member, skip, options):
    module = getattr(member, "__module__", None)
    if isinstance(member, property):
        module = getattr(member.fget, "__module__", None)
    if module is not None and not module.startswith("skdp"):
        return True
    return None


def _without_a_page(app, env, node, content):
    """Take parameters, and names inside skdp that exist; others are mistakes."""
    name = node["reftarget"]
    if "." not in name or node.get("refdomain") != "py":
        return content if node.get("refdomain") == "py" else None
    ours = [module for module in sys.modules if module.split(".")[0] == "skdp"]
    places = [name, *(f"{module}.{name}" for module in ours)]
    return content if any(pydoc.locate(place) for place in places) else None
