"""Export a fitted model as an ONNX graph that computes in double precision.

This is post-processing of released weights. `RENDERERS` maps each kind of column to the
function that renders the column's feature map.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from skdp.estimators.predict import convert_to_numbers
from skdp.schema import (
    Categorical,
    FloatArray,
    Numeric,
    Pair,
    Product,
    Vector,
    check,
)
from skdp.tables.cells import MISSING, Levels, codes, is_exact, number

#: Versions of the operator sets, which every runtime since 2021 supports.
OPSETS = {"": 15, "ai.onnx.ml": 2}
IR_VERSION = 8
#: The same for graphs with inputs of strings, which every runtime since 2024 supports.
#: Older operators cannot look into strings.
OPSETS_OF_TEXTS = {"": 20, "ai.onnx.ml": 2}
IR_VERSION_OF_TEXTS = 9

#: The characters that `str.strip` removes, for use between the brackets of a regular
#: expression. They stand for themselves, because syntaxes disagree on escapes.
_BLANKS = "".join(c for c in map(chr, range(sys.maxunicode + 1)) if c.isspace())
#: The strings, without blanks around them, that `skdp.tables.cells` takes as numbers.
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:inf(inity)?)"
#: Smaller integers are exact as doubles.
_EXACT = 2.0**53


def make_onnx_model(model: Any) -> Any:
    """Return an ``onnx.ModelProto`` that makes the same predictions as `model`.

    Parameters
    ----------
    model : PrivateLinearModel
        A fitted model whose schema has no ``row_norm``.

    Notes
    -----
    The graph has one input per column, with the column's name and shape (n, 1). Inputs
    are doubles, with nan for a missing cell and 1 and 0 for true and false. The input
    of a categorical column is a string, unless all of its levels are booleans or
    numbers that doubles represent exactly. If the model was fitted to an array and no
    input is a string, there is a single input ``X`` of doubles instead.

    A string finds its level as in `model`: the cells ``"1"``, ``"01"``, ``"1.0"`` and
    ``"true"`` are the level 1. A string that is no level, such as an empty one, counts
    as missing. ONNX cannot remove the blanks around a string. The graph therefore
    refuses a string with blanks around it, unless it is a level as it stands. It also
    refuses unusual spellings of levels that are numbers of 2⁵³ or more, and numbers
    that are out of the range of a double.

    The outputs of a classifier are ``label`` and ``probabilities``, or ``label`` and
    ``margin`` if the model has no probabilities. The output of a regressor is
    ``variable``. Outputs have shape (n,) or (n, k). The graph computes in double
    precision, so numbers agree to about 1e-12. Labels, and the bins of values on a log
    scale, can differ where rounding decides. The graph's metadata contain the privacy
    record under the key ``privacy``.
    """
    check(
        model.schema_.row_norm is None,
        "A model whose schema has row_norm cannot be exported to ONNX.",
    )
    lines = {key: name for name, key in model.schema_.lines.items()}
    check(
        not any(
            isinstance(column, Product) and key not in lines
            for key, column in model.schema_.columns.items()
        ),
        "A model with interactions or logarithms of a formula cannot be "
        "exported to ONNX.",
    )
    graph = _Graph(model.schema_.inputs)
    texts = any(map(_holds_texts, model.schema_.columns.values()))
    together = not hasattr(model, "feature_names_in_") and not texts
    if together:
        graph.input("X", "DOUBLE", len(model.schema_.inputs))
    margin = graph.constant(np.zeros((1, model.weights_.shape[1])))
    cells: dict[str, list[str]] = {}
    place = 0
    for key, column in model.schema_.columns.items():
        cells[key] = []
        for name in () if key in lines else column.list_inputs(key):
            if together:
                at = graph.constant(np.array([place]))
                cells[key].append(graph.node("Gather", "X", at, axis=1))
            else:
                kind = "STRING" if _holds_texts(column) else "DOUBLE"
                cells[key].append(graph.input(name, kind, 1))
            place += 1
    for group in model._layout.groups:
        weights = model.weights_[group.coordinates]
        if group.kind == "ones":
            margin = graph.node("Add", margin, graph.constant(weights))
            continue
        column = model.schema_.columns[group.name]
        own = cells[group.name]
        if isinstance(column, Product):
            (factor,) = column.factors
            column, own = factor.column, cells[lines[group.name]]
        if isinstance(column, Pair):
            own = cells[column.first] + cells[column.second]
        part = RENDERERS[type(column)](graph, column, own, weights)
        margin = graph.node("Add", margin, part)
    _add_outputs(graph, model, margin)
    return graph.make_model(type(model).__name__, {"privacy": str(model.privacy_)})


def _holds_texts(column: Any) -> bool:
    """Return whether the graph takes the cells of a column as strings."""
    if not isinstance(column, Categorical):
        return False
    numbers = convert_to_numbers(column.levels)
    return numbers is None or not is_exact(numbers).all()


class _Graph:
    """Collect the nodes of a graph in order, and give each output an unused name."""

    def __init__(self, taken: Sequence[str]) -> None:
        self._onnx = _import_library("onnx")
        self._taken = {*taken, "X"}
        self._numbers = itertools.count()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._opsets, self._ir_version = OPSETS, IR_VERSION
        #: The codes of the levels of categorical columns, by the names of the cells.
        self.codes: dict[str, str] = {}

    def _make_name(self) -> str:
        name = next(n for n in map(str, self._numbers) if n not in self._taken)
        self._taken.add(name)
        return name

    def _value(self, name: str, kind: str, width: int | None) -> Any:
        shape = ["rows"] if width is None else ["rows", width]
        numbers = self._onnx.TensorProto
        return self._onnx.helper.make_tensor_value_info(
            name, getattr(numbers, kind), shape
        )

    def input(self, name: str, kind: str, width: int) -> str:
        if kind == "STRING":
            self._opsets, self._ir_version = OPSETS_OF_TEXTS, IR_VERSION_OF_TEXTS
        self._inputs.append(self._value(name, kind, width))
        return name

    def constant(self, values: Any) -> str:
        name = self._make_name()
        array = np.asarray(values)
        array = array.astype(object) if array.dtype.kind == "U" else array
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add an operator, and return the name of the operator's output.

        An attribute ``name`` names the operator itself.
        """
        name = self._make_name()
        made = self._onnx.helper.make_node(
            kind, list(inputs), [name], domain=domain, **attributes
        )
        self._nodes.append(made)
        return name

    def largest(self, values: str) -> str:
        """Return the largest value of each row, (n, 1)."""
        if self._opsets is OPSETS:  # later, axes are an input
            return self.node("ReduceMax", values, axes=[1], keepdims=1)
        return self.node("ReduceMax", values, self.constant(np.array([1])), keepdims=1)

    def matches(self, value: str, pattern: str) -> str:
        """Return which strings match a regular expression as a whole."""
        return self.node("RegexFullMatch", value, pattern=pattern)

    def refuse(self, wrong: str, reason: str) -> str:
        """Return zeros, but fail and state the reason if any element is true.

        No operator raises an error, so a position is looked up that does not exist.
        Runtimes add the node's name to their message.
        """
        place = self.cast(wrong, "INT64")
        zero = self.constant(np.array([0], np.int64))
        return self.node("Gather", zero, place, name=reason)

    def cast(self, value: str, kind: str) -> str:
        return self.node("Cast", value, to=getattr(self._onnx.TensorProto, kind))

    def output(self, value: str, name: str, kind: str, width: int | None) -> None:
        """Make a value an output of shape (n, width), or (n,) if `width` is None."""
        while name in self._taken:  # a column has this name
            name += "_"
        shape = self.constant(np.array([-1] if width is None else [-1, width]))
        made = self._onnx.helper.make_node("Reshape", [value, shape], [name])
        self._nodes.append(made)
        self._outputs.append(self._value(name, kind, width))

    def make_model(self, name: str, properties: dict[str, str]) -> Any:
        helper = self._onnx.helper
        graph = helper.make_graph(
            self._nodes, name, self._inputs, self._outputs, self._constants
        )
        opsets = [helper.make_opsetid(*pair) for pair in self._opsets.items()]
        whole = helper.make_model(
            graph,
            producer_name="skdp",
            opset_imports=opsets,
            ir_version=self._ir_version,
        )
        helper.set_model_props(whole, properties)
        self._onnx.checker.check_model(whole, full_check=True)
        return whole


def _add_vector(
    graph: _Graph, column: Vector, cells: list[str], weights: FloatArray
) -> str:
    """Scale rows as `skdp.schema.columns.divide_by_norm` does, and apply weights."""
    rows = graph.node("Concat", *cells, axis=1)
    none, one = graph.constant(0.0), graph.constant(1.0)
    known = graph.node("Where", graph.node("IsNaN", rows), none, rows)
    huge = float(np.finfo(np.float64).max)
    finite = _add_clip(graph, known, -huge, huge)
    largest = graph.largest(graph.node("Abs", finite))
    some = graph.node("Greater", largest, none)
    direction = graph.node("Div", finite, graph.node("Where", some, largest, one))
    squares = graph.node("Mul", direction, direction)
    length = graph.node("ReduceSum", squares, graph.constant(np.array([1])), keepdims=1)
    length = graph.node("Where", some, graph.node("Sqrt", length), one)
    own = graph.node("Div", largest, graph.constant(float(column.norm)))
    scale = graph.node("Min", own, graph.node("Div", one, length))
    scaled = graph.node("Mul", direction, scale)
    return graph.node("MatMul", scaled, graph.constant(weights))


def _add_numeric(
    graph: _Graph, column: Numeric, cells: list[str], weights: FloatArray
) -> str:
    """Map cells as `Numeric.compute_features` does, and apply weights."""
    if column.bins is not None:
        codes = graph.cast(_add_positions(graph, column, cells[0]), "INT64")
        return _pick_rows(graph, codes, weights)
    if column.n_knots is not None:
        hats = _add_hats(graph, column, cells[0])
        return graph.node("MatMul", hats, graph.constant(weights))
    missing, scaled = _rescale(graph, column, cells[0])
    if column.indicator:
        scaled = graph.node("Where", missing, graph.constant(0.0), scaled)
        scaled = graph.node("Concat", scaled, graph.cast(missing, "DOUBLE"), axis=1)
    return graph.node("MatMul", scaled, graph.constant(weights))


def _rescale(graph: _Graph, column: Numeric, cells: str) -> tuple[str, str]:
    """Return which cells are missing, and the cells as `Numeric.rescale` maps them."""
    missing = graph.node("IsNaN", cells)
    default = graph.constant(float(column.default))
    known = graph.node("Where", missing, default, cells)
    clipped = _add_clip(graph, known, *column.ends)
    above = graph.node("Sub", clipped, graph.constant(float(column.low)))
    if column.scale == "log":
        above = graph.node("Log", graph.node("Add", above, graph.constant(1.0)))
    scaled = graph.node("Div", above, graph.constant(float(column.span)))
    return missing, _add_clip(graph, scaled, 0.0, 1.0)


def _add_positions(graph: _Graph, column: Numeric | Categorical, cells: str) -> str:
    """Return each cell's bin index, position among knots or level code, (n, 1)."""
    if isinstance(column, Categorical):
        return graph.cast(_find_codes(graph, column, cells), "DOUBLE")
    missing, scaled = _rescale(graph, column, cells)
    if column.bins is not None:
        bins = graph.node("Mul", scaled, graph.constant(float(column.bins)))
        last = graph.constant(column.bins - 1.0)
        places = graph.node("Min", graph.node("Floor", bins), last)
    else:
        # For each interval between knots, compute the share that lies below the value.
        # The position is the sum of these shares.
        knots = column.place_knots()
        above = graph.node("Sub", scaled, graph.constant(knots[None, :-1]))
        parts = graph.node("Div", above, graph.constant(np.diff(knots)[None]))
        axis = graph.constant(np.array([1]))
        places = graph.node("ReduceSum", _add_clip(graph, parts, 0.0, 1.0), axis)
    if column.indicator:
        apart = graph.constant(column.width - 1.0)
        places = graph.node("Where", missing, apart, places)
    return places


def _add_hats(graph: _Graph, column: Numeric | Categorical, cells: str) -> str:
    """Return max(0, 1 - |position - j|) for each knot or level j, (n, width)."""
    places = _add_positions(graph, column, cells)
    knots = graph.constant(np.arange(column.width, dtype=np.float64)[None, :])
    away = graph.node("Abs", graph.node("Sub", places, knots))
    return graph.node(
        "Max", graph.node("Sub", graph.constant(1.0), away), graph.constant(0.0)
    )


def _add_pair(
    graph: _Graph, column: Pair, cells: list[str], weights: FloatArray
) -> str:
    """Multiply the hats of both columns, and apply weights."""
    a, b = column.parts
    parts = []
    for part, cell, shape in (
        (a, cells[0], (-1, a.width, 1)),
        (b, cells[1], (-1, 1, b.width)),
    ):
        hats = _add_hats(graph, part, cell)
        parts.append(graph.node("Reshape", hats, graph.constant(np.array(shape))))
    whole = graph.constant(np.array([-1, column.width]))
    products = graph.node("Reshape", graph.node("Mul", *parts), whole)
    return graph.node("MatMul", products, graph.constant(weights))


def _add_categorical(
    graph: _Graph, column: Categorical, cells: list[str], weights: FloatArray
) -> str:
    """Pick the weights of each cell's level. Unknown levels count as `default_code`."""
    return _pick_rows(graph, _find_codes(graph, column, cells[0]), weights)


def _find_codes(graph: _Graph, column: Categorical, cells: str) -> str:
    """Return the code of each cell's level, (n, 1)."""
    if cells not in graph.codes:  # a pair may need the same codes again
        levels, default = Levels(column), column.default_code
        if _holds_texts(column):
            made = _find_codes_of_texts(graph, levels, default, cells)
        else:
            values = np.unique(np.array(column.levels, np.float64))
            known = dict(zip(values.tolist(), codes(values, levels), strict=True))
            made = _find_codes_of_numbers(graph, known, default, cells)
        graph.codes[cells] = made
    return graph.codes[cells]


def _find_codes_of_numbers(
    graph: _Graph, known: dict[float, int], default: int, cells: str
) -> str:
    """Return the code of each number (n, 1), which is `default` if it is not known."""
    # Pick the value that equals the cell, or else the default, which is last.
    equal = graph.node("Equal", cells, graph.constant(np.array([list(known)])))
    order = np.array([*known.values(), default], np.int64)
    found = graph.largest(graph.cast(equal, "DOUBLE"))
    none = graph.node("Not", graph.cast(found, "BOOL"))
    all_ = graph.node("Concat", equal, none, axis=1)
    first = graph.node("ArgMax", graph.cast(all_, "INT32"), axis=1, keepdims=1)
    return graph.node("Gather", graph.constant(order), first)


def _find_codes_of_texts(
    graph: _Graph, levels: Levels, default: int, cells: str
) -> str:
    """Return the code of each string's level (n, 1), as `Levels.code` does."""
    keys = list(levels.exact)
    exact = graph.node(
        "LabelEncoder",
        cells,
        domain="ai.onnx.ml",
        keys_strings=keys,
        values_int64s=list(levels.exact.values()),
        default_int64=MISSING,
    )
    rest = graph.node("Less", exact, graph.constant(np.array([0], np.int64)))
    # A string of nothing but blanks could only be the empty level.
    inner = f".*[^{_BLANKS}].*" if "" not in keys else ".*"
    padded = graph.matches(cells, f"(?s)[{_BLANKS}]{inner}|{inner}[{_BLANKS}]")
    padded = graph.node("And", rest, padded)
    parts = [graph.refuse(padded, f"Remove the blanks around cells of {cells!r}")]
    if levels.by_number:
        parts += _find_codes_by_number(graph, levels, default, cells, rest)
    else:
        parts += [graph.constant(np.array([default], np.int64))]
    other = functools.reduce(functools.partial(graph.node, "Add"), parts)
    return graph.node("Where", rest, other, exact)


def _find_codes_by_number(
    graph: _Graph, levels: Levels, default: int, cells: str, rest: str
) -> Iterator[str]:
    """Yield codes (n, 1) to add up: those of the strings' numbers, and a refusal.

    Only the strings of the rows `rest` are looked up.
    """
    text = graph.constant(np.array(["nan"]))
    one, zero = graph.constant(np.array(["1"])), graph.constant(np.array(["0"]))
    patterns = {cells: _NUMBER, one: "(?i:true)", zero: "(?i:false)"}
    for own, pattern in patterns.items():
        match = graph.node("And", rest, graph.matches(cells, pattern))
        text = graph.node("Where", match, own, text)
    values = graph.cast(text, "DOUBLE")
    known, large = {math.nan: MISSING}, []
    for value, code in levels.by_number.items():
        if abs(value) < _EXACT or math.isinf(value):
            known[float(value)] = code
        else:
            large.append(number(value))
    yield _find_codes_of_numbers(graph, known, default, values)
    if large:  # a double may stand for several integers
        equal = graph.node("Equal", values, graph.constant(np.array([large])))
        wrong = graph.cast(graph.largest(graph.cast(equal, "DOUBLE")), "BOOL")
        yield graph.refuse(wrong, f"Write numbers of {cells!r} as in the schema")


#: Functions that render what a column of each kind adds to the margins (n, k).
RENDERERS: dict[type, Callable[[_Graph, Any, list[str], FloatArray], str]] = {
    Numeric: _add_numeric,
    Categorical: _add_categorical,
    Vector: _add_vector,
    Pair: _add_pair,
}


def _add_clip(graph: _Graph, values: str, low: float, high: float) -> str:
    """Clip values, none of which may be nan.

    Min and Max are used because runtimes disagree about Clip.
    """
    most = graph.node("Min", values, graph.constant(float(high)))
    return graph.node("Max", most, graph.constant(float(low)))


def _pick_rows(graph: _Graph, codes: str, weights: FloatArray) -> str:
    """Return the row of weights for each code (n, 1), or zeros if a code has no row."""
    padded = np.vstack([weights, np.zeros((1, weights.shape[1]))])
    rows = graph.node("Gather", graph.constant(padded), codes)
    shape = graph.constant(np.array([-1, weights.shape[1]]))
    return graph.node("Reshape", rows, shape)


def _add_outputs(graph: _Graph, model: Any, margin: str) -> None:
    """Add the outputs of a classifier, or the output of a regressor."""
    if not hasattr(model, "classes_"):
        middle, half = model._target_units()
        value = graph.node("Mul", margin, graph.constant(float(half)))
        value = graph.node("Add", value, graph.constant(float(middle)))
        if model.link == "log":
            value = graph.node("Exp", value)
        graph.output(value, "variable", "DOUBLE", None)
        return
    n_outputs = model.weights_.shape[1]
    if n_outputs == 1:
        index = graph.cast(graph.node("Greater", margin, graph.constant(0.0)), "INT64")
    else:
        index = graph.node("ArgMax", margin, axis=1)
    label = graph.node("Gather", graph.constant(model.classes_), index)
    kinds = {"U": "STRING", "i": "INT64", "b": "BOOL", "f": "DOUBLE"}
    graph.output(label, "label", kinds[model.classes_.dtype.kind], None)
    if model.link != "logit":
        graph.output(margin, "margin", "DOUBLE", None)
        return
    if n_outputs == 1:
        chance = graph.node("Sigmoid", margin)
        other = graph.node("Sub", graph.constant(1.0), chance)
        chance = graph.node("Concat", other, chance, axis=1)
    else:
        chance = graph.node("Softmax", margin, axis=1)
    graph.output(chance, "probabilities", "DOUBLE", len(model.classes_))


def _import_library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ImportError("to_onnx requires onnx: pip install 'skdp[onnx]'.") from None
