"""How the site is built: `make docs` writes it to build/docs, without the network."""

import pydoc
import sys
from pathlib import Path

import matplotlib

import skdp

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
matplotlib.use("Agg")

project = "skdp"
author = "The skdp developers"
release = version = skdp.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "mathml",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_extensions"]
templates_path = ["_templates"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}
nitpicky = True

# Pages: Markdown that reads well on a Git host too, headings as link targets.
myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]
suppress_warnings = [
    "toc.empty_glob",  # pages that `make experiments` has not written yet
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
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "abort_on_example_error": True,
    "copyfile_regex": r"$^",
}

html_math_renderer = "mathml"
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
    places = [name, f"{node.get('py:module')}.{name}", f"skdp.{name}"]
    return content if any(pydoc.locate(place) for place in places) else None
