"""Weights of scaled features as coefficients in the user's units."""

from __future__ import annotations

import math

import numpy as np

from skdp.schema import FloatArray, Layout, Numeric, Schema, Vector


def user_units(
    schema: Schema, layout: Layout, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Coefficients (k, width) and intercepts (k,) of raw columns inside their ranges.

    A linear column x counts w·(x - low)/(high - low), hence the coefficient
    w/(high - low) and a share of the intercept; a log column has one per unit of
    log(1 + x - low); categories and bins have one each.
    """
    width = sum(group.width for group in layout.groups if group.kind != "ones")
    coef = weights[:width].T.copy()
    intercept = np.zeros(weights.shape[1])
    for group in layout.groups:
        if group.kind == "ones":
            intercept += weights[group.start]
            continue
        column = schema.columns[group.name]
        if isinstance(column, Vector):
            coef[:, group.coordinates] /= column.norm
        elif isinstance(column, Numeric) and column.bins is None:
            span = column.high - column.low
            own = coef[:, group.start]
            if column.scale == "log":
                coef[:, group.start] = own / math.log1p(span)
            else:
                intercept -= own * (column.low / span)
                coef[:, group.start] = own / span
    return coef, intercept


def centred(layout: Layout, weights: FloatArray) -> FloatArray:
    """Move the mean weight of each column's categories to the intercept, if any.

    Margins of rows that have a level in every column stay the same.
    """
    moved = weights.copy()
    if layout.groups[-1].kind == "ones":
        for group in layout.groups:
            if group.kind == "code":
                mean = moved[group.coordinates].mean(axis=0)
                moved[group.coordinates] -= mean
                moved[-1] += mean
    return moved
