"""Rows from a calibrated model: expected counts rounded along the tree, not independent draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray, IntArray
    from dpweave.tables.graphical.inference import Calibrated


def generate(model: Calibrated, rows: int, rng: np.random.Generator) -> list[IntArray]:
    """Codes of ``rows`` rows, one array per variable.

    Clique by clique, parents first: the rows that share a value of the separator are divided among the values of the
    clique's other variables as :func:`apportion` divides them. Each count differs from its expectation given the
    parents by less than one.
    """
    tree = model.engine.tree
    codes: list[IntArray] = [np.zeros(rows, dtype=np.int64) for _ in tree.sizes]
    for clique, separator, conditional in zip(tree.cliques, tree.separators, model.conditionals, strict=True):
        group = np.zeros(rows, dtype=np.int64)
        for v in separator:
            group = group * tree.sizes[v] + codes[v]
        value = assign(group, conditional, rng)
        for v in reversed(clique[len(separator) :]):
            value, codes[v] = np.divmod(value, tree.sizes[v])
    return codes


def assign(group: IntArray, conditional: FloatArray, rng: np.random.Generator) -> IntArray:
    """One column of ``conditional`` for each row, so that every group's shares come out as nearly as they can."""
    present, sizes = np.unique(group, return_counts=True)
    counts = apportion(sizes, conditional[present], rng)
    shuffled = rng.permutation(group.size)
    order = shuffled[np.argsort(group[shuffled], kind="stable")]
    cells = np.broadcast_to(np.arange(conditional.shape[1]), counts.shape)
    value = np.empty(group.size, dtype=np.int64)
    value[order] = np.repeat(cells.ravel(), counts.ravel())
    return value


def apportion(sizes: IntArray, shares: FloatArray, rng: np.random.Generator) -> IntArray:
    """Whole counts per row of ``shares`` that add up to ``sizes``: the expectation rounded up or down, unbiased.

    The fractional parts of a row are sampled systematically. Starting points of successive rows follow van der
    Corput's sequence from a random origin, so that rounding errors cancel across rows as well as within them.
    A cell with share zero gets nothing.
    """
    expected = sizes[:, np.newaxis] * (shares / np.maximum(shares.sum(axis=1, keepdims=True), np.finfo(float).tiny))
    counts = np.floor(expected)
    passed = np.cumsum(expected - counts, axis=1)
    missing = sizes[:, np.newaxis] - counts.sum(axis=1, keepdims=True)
    last = passed[:, -1:]
    # Exact at the end, and constant wherever a cell adds nothing.
    passed = np.where(last > 0, passed / np.where(last > 0, last, 1.0), 0.0) * missing
    origin = (_van_der_corput(len(sizes)) + rng.random()) % 1.0
    ticks = np.floor(passed + origin[:, np.newaxis])
    counts += np.diff(ticks, axis=1, prepend=0.0)
    result: IntArray = counts.astype(np.int64)
    return result


def _van_der_corput(length: int) -> FloatArray:
    index = np.arange(length)
    value = np.zeros(length)
    scale = 0.5
    while index.any():
        value += scale * (index & 1)
        index >>= 1
        scale /= 2
    return value
