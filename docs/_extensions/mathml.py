"""Formulas as MathML, which browsers draw themselves: no script and no network."""

from docutils.nodes import SkipNode
from docutils.utils.math import wrap_math_code
from docutils.utils.math.latex2mathml import tex2mathml


def setup(app):
    """Offer the renderer as html_math_renderer = "mathml"."""
    app.add_html_math_renderer("mathml", (_visit, None), (_visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _visit(writer, node):
    writer.body.append(tex2mathml(node.astext()))
    raise SkipNode


def _visit_block(writer, node):
    code = wrap_math_code(node.astext(), as_block=True)
    writer.body.append(tex2mathml(code, as_block=True))
    raise SkipNode
