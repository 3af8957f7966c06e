"""Describe the public facts about a table, in Python and in schema files."""

from skdp.schema.columns import (
    Categorical,
    Column,
    Numeric,
    Pair,
    Target,
    Vector,
    level_key,
    split_hats,
)
from skdp.schema.products import Factor, Product
from skdp.schema.schema import Group, Layout, Schema, name_record
from skdp.schema.validation import (
    FloatArray,
    InputError,
    IntArray,
    check,
    check_integer,
    count_in_words,
    limit_codes,
)

__all__ = [
    "Categorical",
    "Column",
    "Factor",
    "FloatArray",
    "Group",
    "InputError",
    "IntArray",
    "Layout",
    "Numeric",
    "Pair",
    "Product",
    "Schema",
    "Target",
    "Vector",
    "check",
    "check_integer",
    "count_in_words",
    "level_key",
    "limit_codes",
    "name_record",
    "split_hats",
]
