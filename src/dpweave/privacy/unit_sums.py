r"""Sums of vectors, one per unit, each no longer than a clip (docs/proofs, Theorem 6). Everything in here is private.

Unit u has :math:`n_u` rows per cell and code, and :math:`m_u` per cell. Its vector :math:`v_u = (n_u - \mu
m_u) / s`, with one scale s and one centre μ per code, is put on a grid of whole numbers, rounded towards 0:

.. math:: x_u = \Bigl[ v_u \min\Bigl(g, \frac{L}{\lVert v_u \rVert_2}\Bigr) \Bigr], \qquad L = \lfloor g C \rfloor,

where g is the power of two that puts gC between :math:`2^{20}` and :math:`2^{21}`. So
:math:`\lVert x_u \rVert_2 \le L`, and rounding costs a unit a millionth of the clip per cell.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpweave.errors import UsageError
from dpweave.privacy.window import UnitSum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.privacy.window import Code, Columns

BLOCK = 1 << 22
"""Rows, times codes, that are looked at together at least; all rows of a unit always are."""

MOST_CODES = 1 << 12
SMALLEST, LARGEST = 1e-100, 1e100
"""Between these lie clips and scales: their squares are floats."""

GRID = 1 << 20
"""Length of a unit's vector of categories, in whole numbers: rounding down costs a unit
with k of them √k parts in a million. Any number from a thousand on would do.
"""


def checked(unit_sum: UnitSum, sizes: Mapping[str, int]) -> UnitSum:
    """Return the unit sum in plain numbers, or refuse it: nothing that comes after the
    charge may fail for what a client asks.
    """
    codes = tuple(tuple((c, int(v)) for c, v in code) for code in unit_sum.codes)
    if not 1 <= len(codes) <= MOST_CODES or len(unit_sum.scales) != len(codes):
        raise UsageError(
            f"{len(codes)} codes and {len(unit_sum.scales)} scales: give 1 to {MOST_CODES:,} codes, and a scale for"
            " each"
        )
    for column, value in (pair for code in codes for pair in code):
        if not 0 <= value < sizes[column]:
            raise UsageError(f"{value} is no code of {column!r}, which has {sizes[column]}")
    numbers = [float(x) for x in (unit_sum.clip, *unit_sum.scales)]
    if not all(SMALLEST <= x <= LARGEST for x in numbers):
        raise UsageError(f"the clip {unit_sum.clip} and all scales must lie between {SMALLEST:g} and {LARGEST:g}")
    centres = tuple(float(x) for x in unit_sum.centres)
    if len(centres) not in (0, len(codes)) or not all(0 <= x <= 1 for x in centres):
        raise UsageError(f"{len(centres)} centres for {len(codes)} codes: give none, or a share from 0 to 1 for each")
    return UnitSum(unit_sum.columns, codes, tuple(numbers[1:]), numbers[0], centres)


def grid(clip: float) -> tuple[float, int]:
    """Return the grid g for a clip, and the length L that no unit's vector on it exceeds.

    >>> grid(10.0)
    (131072.0, 1310720)
    """
    step = 2.0 ** (21 - math.frexp(clip)[1])
    return step, math.floor(step * clip)


def share(categories: int, *, length: int) -> int:
    """Weight that each of a unit's categories gets, so that its vector is no longer than ``length``.

    >>> [share(k, length=100) for k in (1, 2, 4, 10_000, 10_001)]
    [100, 70, 50, 1, 0]
    """
    return math.isqrt(length * length // categories)


@np.errstate(all="ignore")  # whatever floats do with odd scales and centres, nobody hears of it
def clipped_sum(
    units: IntArray, cells: IntArray, columns: Mapping[str, IntArray], unit_sum: UnitSum, *, size: int
) -> IntArray:
    """Add up the units' vectors: one whole number for each of ``size`` cells and each code.

    A row is of unit ``units[i]``, falls into cell ``cells[i]`` and has the values ``columns[...][i]``; units ascend.

    Formal guarantees:
      - Without one unit's rows, the result differs by its vector alone, of length at
        most L of :func:`grid`: held in whole numbers.
    """
    step, most = grid(unit_sum.clip)
    width, scales, centres = (
        len(unit_sum.codes),
        np.array(unit_sum.scales),
        np.array(unit_sum.centres or (0.0,) * len(unit_sum.codes)),
    )
    out = np.zeros((width, size))
    start, rows = 0, max(BLOCK // width, 1)
    while start < len(units):
        block = slice(start, int(np.searchsorted(units, units[min(start + rows, len(units)) - 1], side="right")))
        whose = np.cumsum(np.diff(units[block], prepend=units[start]) != 0)
        at, place, n = np.unique(
            whose * size + np.clip(cells[block], 0, size - 1), return_inverse=True, return_counts=True
        )
        who, cell = np.divmod(at, size)
        vector = (_have(columns, unit_sum.codes, block, place, len(at)) - np.multiply.outer(centres, n)) / scales[
            :, None
        ]
        x = np.trunc(vector * np.minimum(step, most / np.maximum(np.sqrt(_squares(vector, who)), 1e-300))[who])
        x[:, ~(_squares(x, who) <= most**2)[who]] = 0.0  # whole numbers far below 2**53, hence exact
        out += [np.bincount(cell, row, minlength=size) for row in x]
        start = block.stop
    return out.T.astype(np.int64)


def _squares(vectors: FloatArray, who: IntArray) -> FloatArray:
    """Square of each unit's length, added up one code after the other, so that not even
    the last bit depends on the rows of others.
    """
    return np.asarray(np.bincount(who, sum(row * row for row in vectors)), dtype=np.float64)


def _have(
    columns: Mapping[str, IntArray], codes: Sequence[Code], block: slice, place: IntArray, size: int
) -> FloatArray:
    """How many rows of a block there are with each code at each of ``size`` places."""
    out = np.empty((len(codes), size))
    looks: dict[Columns, list[int]] = {}
    for j, code in enumerate(codes):
        looks.setdefault(tuple(c for c, _ in code), []).append(j)
    for names, at in looks.items():
        if len(at) == 1:  # the usual case, and faster by far
            there = [columns[c][block] == v for c, v in codes[at[0]]]
            out[at[0]] = np.bincount(place[np.logical_and.reduce(there)] if there else place, minlength=size)
            continue
        have, wanted = np.zeros(len(place), dtype=np.int64), np.zeros(len(at), dtype=np.int64)
        for i, name in enumerate(names):
            values, rows = np.array([codes[j][i][1] for j in at]), columns[name][block]
            last = values.max() + 1  # stands for all values that no code asks for
            have, wanted = have * (last + 1) + np.minimum(rows, last), wanted * (last + 1) + values
            # Numbered anew: at most one more than there are codes, whatever the rows are.
            known, wanted = np.unique(wanted, return_inverse=True)
            found = np.searchsorted(known, have)
            have = np.where(known[found % len(known)] == have, found, len(known))
        width = wanted.max() + 2
        out[at] = np.bincount(have * size + place, minlength=size * width).reshape(width, size)[wanted]
    return out
