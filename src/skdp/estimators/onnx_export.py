"""A fitted model as an ONNX graph, in double precision: post-processing, no privacy."""

from __future__ import annotations

import itertools
import math
from importlib import import_module
from typing import Any

import numpy as np

from skdp.estimators.sklearn_export import as_numbers, as_text
from skdp.schema import Categorical, FloatArray, Numeric, Vector, check

#: Versions of operators that every runtime since 2021 knows.
OPSETS = {"": 15, "ai.onnx.ml": 2}
IR_VERSION = 8


def onnx_model(model: Any) -> Any:
    """Return an ``onnx.ModelProto`` that predicts as `model` does.

    Parameters
    ----------
    model : PrivateLinearModel
        A fitted one, whose schema has no ``row_norm``.

    Notes
    -----
    Inputs are the columns by name, (n, 1) each: doubles, nan where a cell is missing,
    or texts for categories whose levels are not all numbers (true and false are 1 and
    0), written as in the schema; anything else, such as an empty text, is unknown. A
    model of an array without texts has one input ``X`` of doubles instead.

    Outputs are ``label`` and ``probabilities`` (or ``margin``, where a model gives
    none), or ``variable`` for regressors, (n,) or (n, k). All is computed in double
    precision: numbers agree to about 1e-12, and a label, or the bin of a value on a
    log scale, can differ only where rounding decides.
    The graph's metadata hold the privacy record under ``privacy``.
    """
    check(
        model.schema_.row_norm is None,
        "A schema with row_norm has no ONNX graph: use the model itself.",
    )
    graph = _Graph(model.schema_.inputs)
    texts = any(
        isinstance(c, Categorical) and as_numbers(c.levels) is None
        for c in model.schema_.columns.values()
    )
    together = not hasattr(model, "feature_names_in_") and not texts
    if together:
        graph.input("X", "DOUBLE", len(model.schema_.inputs))
    margin = graph.constant(np.zeros((1, model.weights_.shape[1])))
    place = 0
    for group in model._layout.groups:
        weights = model.weights_[group.coordinates]
        if group.kind == "ones":
            margin = graph.node("Add", margin, graph.constant(weights))
            continue
        column = model.schema_.columns[group.name]
        names = list(column.names) if isinstance(column, Vector) else [group.name]
        cells = []
        for name in names:
            if together:
                at = graph.constant(np.array([place]))
                cells.append(graph.node("Gather", "X", at, axis=1))
            else:
                is_text = isinstance(column, Categorical)
                is_text = is_text and as_numbers(column.levels) is None
                cells.append(graph.input(name, "STRING" if is_text else "DOUBLE", 1))
            place += 1
        part = _part(graph, column, cells, weights)
        margin = graph.node("Add", margin, part)
    _outputs(graph, model, margin)
    return graph.finished(type(model).__name__, {"privacy": str(model.privacy_)})


class _Graph:
    """Nodes in the order in which they are added; what they give has made-up names."""

    def __init__(self, taken: list[str]) -> None:
        self._onnx = _library("onnx")
        self._taken = {*taken, "X"}
        self._numbers = itertools.count()
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def _name(self) -> str:
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
        self._inputs.append(self._value(name, kind, width))
        return name

    def constant(self, values: Any) -> str:
        name = self._name()
        array = np.asarray(values)
        array = array.astype(object) if array.dtype.kind == "U" else array
        self._constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add an operator; return the name of what it gives."""
        name = self._name()
        made = self._onnx.helper.make_node(
            kind, list(inputs), [name], domain=domain, **attributes
        )
        self._nodes.append(made)
        return name

    def cast(self, value: str, kind: str) -> str:
        return self.node("Cast", value, to=getattr(self._onnx.TensorProto, kind))

    def output(self, value: str, name: str, kind: str, width: int | None) -> None:
        """Give a value its public name; without a width it becomes (n,)."""
        while name in self._taken:  # of a column that is called so
            name += "_"
        shape = self.constant(np.array([-1] if width is None else [-1, width]))
        made = self._onnx.helper.make_node("Reshape", [value, shape], [name])
        self._nodes.append(made)
        self._outputs.append(self._value(name, kind, width))

    def finished(self, name: str, properties: dict[str, str]) -> Any:
        helper = self._onnx.helper
        graph = helper.make_graph(
            self._nodes, name, self._inputs, self._outputs, self._constants
        )
        opsets = [helper.make_opsetid(*pair) for pair in OPSETS.items()]
        whole = helper.make_model(
            graph, producer_name="skdp", opset_imports=opsets, ir_version=IR_VERSION
        )
        helper.set_model_props(whole, properties)
        self._onnx.checker.check_model(whole, full_check=True)
        return whole


def _part(graph: _Graph, column: Any, cells: list[str], weights: FloatArray) -> str:
    """What a column adds to the margins, (n, k)."""
    if isinstance(column, Vector):
        whole = graph.node("Concat", *cells, axis=1)
        return graph.node(
            "MatMul", _shortened(graph, whole, column.norm), graph.constant(weights)
        )
    if isinstance(column, Categorical):
        return _picked(graph, _codes(graph, cells[0], column), weights)
    scaled, missing = _scaled(graph, cells[0], column)
    if column.bins is not None:
        bins = graph.node("Mul", scaled, graph.constant(float(column.bins)))
        last = graph.constant(column.bins - 1.0)
        codes = graph.node("Min", graph.node("Floor", bins), last)
        if column.indicator:
            apart = graph.constant(float(column.bins))
            codes = graph.node("Where", missing, apart, codes)
        return _picked(graph, graph.cast(codes, "INT64"), weights)
    if column.indicator:
        scaled = graph.node("Where", missing, graph.constant(0.0), scaled)
        scaled = graph.node("Concat", scaled, graph.cast(missing, "DOUBLE"), axis=1)
    return graph.node("MatMul", scaled, graph.constant(weights))


def _scaled(graph: _Graph, cells: str, column: Numeric) -> tuple[str, str]:
    """As `Numeric.scaled`: values in [0, 1], and which of them were missing."""
    middle = (column.low + column.high) / 2
    default = middle if column.missing is None else column.missing
    missing = graph.node("IsNaN", cells)
    known = graph.node("Where", missing, graph.constant(float(default)), cells)
    clipped = _between(graph, known, column.low, column.high)
    above = graph.node("Sub", clipped, graph.constant(float(column.low)))
    span = float(column.high) - float(column.low)
    if column.scale == "log":
        above = graph.node("Log", graph.node("Add", above, graph.constant(1.0)))
        span = math.log1p(span)
    scaled = graph.node("Div", above, graph.constant(span))
    return _between(graph, scaled, 0.0, 1.0), missing


def _between(graph: _Graph, values: str, low: float, high: float) -> str:
    """Values that are not nan, clipped; runtimes differ in what Clip does with nan."""
    most = graph.node("Min", values, graph.constant(float(high)))
    return graph.node("Max", most, graph.constant(float(low)))


def _codes(graph: _Graph, cells: str, column: Categorical) -> str:
    """Codes (n, 1) of levels; what is none of them has the default's."""
    numbers = as_numbers(column.levels)
    if numbers is None:
        return graph.node(
            "LabelEncoder",
            cells,
            domain="ai.onnx.ml",
            keys_strings=[as_text(level) for level in column.levels],
            values_int64s=list(range(len(column.levels))),
            default_int64=column.default_code,
        )
    # The first level that is equal, or what comes after all of them.
    equal = graph.node("Equal", cells, graph.constant(numbers[None, :]))
    order = np.append(np.arange(len(numbers)), column.default_code).astype(np.int64)
    none = graph.node("Not", graph.cast(_any(graph, equal), "BOOL"))
    all_ = graph.node("Concat", equal, none, axis=1)
    first = graph.node("ArgMax", graph.cast(all_, "INT32"), axis=1, keepdims=1)
    return graph.node("Gather", graph.constant(order), first)


def _any(graph: _Graph, truths: str) -> str:
    numbers = graph.cast(truths, "DOUBLE")
    return graph.node("ReduceMax", numbers, axes=[1], keepdims=1)


def _picked(graph: _Graph, codes: str, weights: FloatArray) -> str:
    """Rows of weights by code (n, 1); a code beyond them picks zeros."""
    padded = np.vstack([weights, np.zeros((1, weights.shape[1]))])
    rows = graph.node("Gather", graph.constant(padded), codes)
    shape = graph.constant(np.array([-1, weights.shape[1]]))
    return graph.node("Reshape", rows, shape)


def _shortened(graph: _Graph, rows: str, norm: float) -> str:
    """As `design.within_norm`."""
    none, one = graph.constant(0.0), graph.constant(1.0)
    known = graph.node("Where", graph.node("IsNaN", rows), none, rows)
    huge = float(np.finfo(np.float64).max)
    finite = _between(graph, known, -huge, huge)
    largest = graph.node("ReduceMax", graph.node("Abs", finite), axes=[1], keepdims=1)
    some = graph.node("Greater", largest, none)
    direction = graph.node("Div", finite, graph.node("Where", some, largest, one))
    squares = graph.node("Mul", direction, direction)
    length = graph.node("ReduceSum", squares, graph.constant(np.array([1])), keepdims=1)
    length = graph.node("Where", some, graph.node("Sqrt", length), one)
    own = graph.node("Div", largest, graph.constant(float(norm)))
    scale = graph.node("Min", own, graph.node("Div", one, length))
    return graph.node("Mul", direction, scale)


def _outputs(graph: _Graph, model: Any, margin: str) -> None:
    """Labels and probabilities, or values."""
    if not hasattr(model, "classes_"):
        middle, half = model._target_units()
        value = graph.node("Mul", margin, graph.constant(float(half)))
        value = graph.node("Add", value, graph.constant(float(middle)))
        if type(model).__name__ == "PoissonRegressor":
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
    if not hasattr(model, "predict_proba"):
        graph.output(margin, "margin", "DOUBLE", None)
        return
    if n_outputs == 1:
        chance = graph.node("Sigmoid", margin)
        other = graph.node("Sub", graph.constant(1.0), chance)
        chance = graph.node("Concat", other, chance, axis=1)
    else:
        chance = graph.node("Softmax", margin, axis=1)
    graph.output(chance, "probabilities", "DOUBLE", len(model.classes_))


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ImportError(
            "to_onnx needs onnx. Install it: pip install 'skdp[onnx]'."
        ) from None
