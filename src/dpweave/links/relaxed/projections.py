r"""Euclidean projections onto the feasible sets of the relaxed problem (paper, `thm::proj_cf`, `apx::one-to-many`).

The paper's reference code clips and rescales instead, which is not the projection and loses the guarantee of
`thm::convergence`.

All functions know weighted forms. A weight says how many equal entries one entry stands for, and the projection of the
expanded vector is constant on them, so that it is found without expanding.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.errors import UsageError

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray

_SMALL = 1 << 14
"""Up to this many undecided entries, sorting their breakpoints is cheaper than thinning them out further."""
_NEWTON = 1 << 20
"""Up to this many entries, some Newton steps over all of them are cheaper than sorting a sample first."""
_ROW_STEPS = 50
"""Newton steps after which rows are sorted instead. A handful is the rule."""


def project_capped_simplex(
    b: FloatArray, *, total: float, weights: FloatArray | None = None, near: FloatArray | None = None
) -> FloatArray:
    r"""Nearest point of :math:`\{x : 0 \le x_i \le 1, \sum_i w_i x_i = m\}` in the norm weighted by w (`thm::proj_cf`).

    It is :math:`\mathrm{clip}(b + y, 0, 1)` for one scalar ``y``, whose (weighted) sum is piecewise linear and
    non-decreasing in ``y``. Short vectors take a few Newton steps. For long ones the roots of a sample bracket it,
    after which only entries with a breakpoint inside the bracket are undecided, and halving those ends in O(N) for
    every input. The rounding error of the sum, about N ulp, is put on a few free entries, so that the sum is right to
    some ulp of ``total``. ``near`` is a point of the set that the answer may be near to, such as the iterate before:
    Newton then starts from the y that its free entries have on average. It saves time, nothing else.

    >>> project_capped_simplex(np.array([0.05, 0.04, 0.03, 0.02]), total=2.0)
    array([0.515, 0.505, 0.495, 0.485])
    """
    flat = np.ravel(b).astype(np.float64, copy=False)
    w = None if weights is None else np.ravel(weights).astype(np.float64, copy=False)
    mass = _possible(flat, w, total)
    if total == 0.0 or mass == 0.0:
        return np.zeros_like(b, dtype=np.float64)
    if total >= mass:
        return np.ones_like(b, dtype=np.float64)
    guess = 0.0 if near is None else _guess(flat, w, np.ravel(near))
    x = _clip(flat + _shift(flat, w, total, guess))
    _settle(x, w, total)
    return x.reshape(np.shape(b))


def rescale_capped_simplex(b: FloatArray, *, total: float, weights: FloatArray | None = None) -> FloatArray:
    r"""A point of the same set that is **not** the nearest: clip to 0 … 1, then multiply by what makes the sum right.

    The authors' code does this in place of `thm::proj_cf`. It moves large entries more than small ones: a step that
    adds a little to very many pairs takes the links it started from down by a factor, where the projection would take
    the little away again. Entries that the factor would bring past 1 stay there and the others make up for them (the
    code puts the largest at 1 first, which hardly ever comes up). Where all that is positive cannot make up the total,
    the nearest point is returned.

    >>> rescale_capped_simplex(np.array([0.8, 0.4, -0.2]), total=0.6)
    array([0.4, 0.2, 0. ])
    """
    flat = np.ravel(b).astype(np.float64, copy=False)
    w = np.ones_like(flat) if weights is None else np.ravel(weights).astype(np.float64, copy=False)
    _possible(flat, w, total)
    x = _clip(flat.copy())
    mass = float(w @ x)
    if mass >= total > 0.0:
        return (x * (total / mass)).reshape(np.shape(b))
    if total >= float(w[x > 0.0].sum()):
        return project_capped_simplex(b, total=total, weights=weights)
    factor, capped = total / mass, 0
    while (past := x * factor > 1.0).sum() > capped:
        capped = int(past.sum())
        factor = (total - float(w[past].sum())) / float(w[~past] @ x[~past])
    return np.minimum(x * factor, 1.0).reshape(np.shape(b))


def _possible(flat: FloatArray, w: FloatArray | None, total: float) -> float:
    """The largest total there can be; refuses one above it."""
    mass = float(len(flat) if w is None else w.sum())
    if not 0.0 <= total <= mass * (1 + 1e-12):
        raise UsageError(f"total = {total} outside 0 … {mass:g}: entries between 0 and 1 cannot add up to it")
    return mass


def _clip(x: FloatArray) -> FloatArray:
    """Clip to 0 … 1 in place."""
    np.maximum(x, 0.0, out=x)
    np.minimum(x, 1.0, out=x)
    return x


def _guess(v: FloatArray, w: FloatArray | None, near: FloatArray) -> float:
    """The shift that takes ``v`` to ``near`` on average over the entries that are free there."""
    free = (near > 0.0) & (near < 1.0)
    load = free.astype(np.float64) if w is None else w * free
    mass = float(load.sum())
    return float(load @ (near - v)) / mass if mass > 0.0 else 0.0


def _shift(v: FloatArray, w: FloatArray | None, total: float, guess: float) -> float:
    r"""The ``y`` with :math:`\sum_i w_i \mathrm{clip}(v_i + y, 0, 1) = m`."""
    if len(v) <= _NEWTON:
        y = _newton(v, w, total, guess)
        if y is not None:
            return y
    if len(v) <= _SMALL:
        return _shift_by_sorting(v, np.ones_like(v) if w is None else w, total)
    return _shift_by_halving(v, w, total)


def _newton(v: FloatArray, w: FloatArray | None, total: float, y: float, *, steps: int = 20) -> float | None:
    """Newton's method inside a bracket: exact as soon as no breakpoint lies between the last two points."""
    lo, hi = -float(v.max()), 1.0 - float(v.min())
    for _ in range(steps):
        if not lo < y < hi:
            y = 0.5 * (lo + hi)
        x = v + y
        free = (x > 0.0) & (x < 1.0)
        _clip(x)
        missing = total - float(x.sum() if w is None else x @ w)
        if abs(missing) <= 1e-13 * total:
            return y
        lo, hi = (y, hi) if missing > 0.0 else (lo, y)
        steepness = float(np.count_nonzero(free) if w is None else w @ free)
        y = y + missing / steepness if steepness > 0.0 else hi
    return None


def _shift_by_halving(v: FloatArray, w: FloatArray | None, total: float) -> float:
    """The root by quickselect among breakpoints, then by sorting the last of them: O(N) whatever the input.

    Roots of a sample bracket it first, which leaves few entries undecided unless many are equal; for those Newton.
    """
    lo, hi = -float(v.max()), 1.0 - float(v.min())
    offset = slope = 0.0  # entries that are decided contribute offset + slope * y
    random = np.random.default_rng(0)
    low, middle, high = _sampled_roots(v, w, total, random)
    everything = (v, w)
    pivots: tuple[float, ...] = (low, high)
    while True:
        for y in pivots:
            if lo < y < hi:
                lo, hi = (y, hi) if offset + slope * y + _clipped_sum(v, w, y) < total else (lo, y)
        v, w, more_offset, more_slope = _undecided(v, w, lo, hi)
        offset, slope = offset + more_offset, slope + more_slope
        if len(v) <= _SMALL:
            break
        if pivots == (low, high) and len(v) > len(everything[0]) // 2:
            found = _newton(*everything, total, middle)
            if found is not None:
                return found
        sample = v[random.integers(0, len(v), 501)]
        points = np.concatenate([-sample, 1.0 - sample])
        pivots = (float(np.median(points[(points > lo) & (points < hi)])),)  # every undecided entry has a point inside
    if len(v) == 0:
        return (total - offset) / slope if slope > 0.0 else lo
    return _shift_by_sorting(v, np.ones_like(v) if w is None else w, total, lo, hi, offset, slope)


def _sampled_roots(
    v: FloatArray, w: FloatArray | None, total: float, random: np.random.Generator
) -> tuple[float, float, float]:
    """Roots for a sample of entries: with the total four standard errors down, as it is, and four up."""
    at = random.integers(0, len(v), _SMALL)
    sample = v[at]
    heavy = np.ones(_SMALL) if w is None else w[at]
    mass = float(heavy.sum())
    share = total / (len(v) if w is None else float(w.sum()))
    middle = _shift_by_sorting(sample, heavy, mass * share)
    clipped = np.clip(sample + middle, 0.0, 1.0)
    spread = 4.0 * float(np.sqrt(((heavy * (clipped - share)) ** 2).sum()))
    low, high = max(mass * share - spread, 0.0), min(mass * share + spread, mass)
    return _shift_by_sorting(sample, heavy, low), middle, _shift_by_sorting(sample, heavy, high)


def _clipped_sum(v: FloatArray, w: FloatArray | None, y: float) -> float:
    x = _clip(v + y)
    return float(x.sum() if w is None else x @ w)


def _undecided(
    v: FloatArray, w: FloatArray | None, lo: float, hi: float
) -> tuple[FloatArray, FloatArray | None, float, float]:
    """Entries with a breakpoint strictly inside the bracket, and what the others add: offset + slope · y."""
    at_one = v >= 1.0 - lo
    free = (v >= -lo) & (v <= 1.0 - hi) & ~at_one
    keep = ~(at_one | free | (v <= -hi))
    if w is None:
        return v[keep], None, float(np.count_nonzero(at_one)) + float(v[free].sum()), float(np.count_nonzero(free))
    return v[keep], w[keep], float(w[at_one].sum() + v[free] @ w[free]), float(w[free].sum())


def _shift_by_sorting(
    v: FloatArray,
    w: FloatArray,
    total: float,
    lo: float | None = None,
    hi: float | None = None,
    offset: float = 0.0,
    slope: float = 0.0,
) -> float:
    """The root by sorting all breakpoints: the obvious algorithm, for the few entries that need it."""
    lo = -float(v.max()) if lo is None else lo
    hi = 1.0 - float(v.min()) if hi is None else hi
    points = np.concatenate([-v, 1.0 - v])
    change = np.concatenate([w, -w])
    inside = (points > lo) & (points < hi)
    order = np.argsort(points[inside], kind="stable")
    points = np.concatenate([[lo], points[inside][order], [hi]])
    shifted = v + lo
    start = slope + float(w[(shifted >= 0.0) & (shifted < 1.0)].sum())
    slopes = start + np.concatenate([[0.0], np.cumsum(change[inside][order])])
    at_lo = offset + slope * lo + float(np.clip(shifted, 0.0, 1.0) @ w)
    values = at_lo + np.concatenate([[0.0], np.cumsum(slopes * np.diff(points))])
    at = int(np.searchsorted(values, total))
    if at == 0:
        return float(points[0])
    if at == len(points):
        return float(points[-1])
    rise = values[at] - values[at - 1]
    return float(points[at - 1] + (points[at] - points[at - 1]) * (total - values[at - 1]) / rise)


def _settle(x: FloatArray, w: FloatArray | None, total: float) -> None:
    """Put the rounding error of the sum on entries that are strictly between the bounds, in place."""
    for _ in range(3):
        error = total - _accurate_sum(x, w)
        if abs(error) <= 4.0 * np.spacing(total):
            return
        for start in range(0, len(x), 1 << 16):
            part = x[start : start + (1 << 16)]
            free = np.flatnonzero((part > 1e-6) & (part < 1.0 - 1e-6))
            load = float(len(free)) if w is None else float(w[start + free].sum())
            if load > 0.0 and abs(error) / load < 1e-6:
                part[free] += error / load
                break
        else:
            return


def _accurate_sum(x: FloatArray, w: FloatArray | None) -> float:
    starts = range(0, len(x), 1 << 14)
    if w is None:
        return math.fsum(x[i : i + (1 << 14)].sum() for i in starts)
    return math.fsum(x[i : i + (1 << 14)] @ w[i : i + (1 << 14)] for i in starts)


def project_rows_simplex(
    b: FloatArray, *, weights: FloatArray | None = None, near: FloatArray | None = None
) -> FloatArray:
    r"""Nearest point to ``b`` whose rows are distributions: :math:`x_{ij} \ge 0, \sum_j w_{ij} x_{ij} = 1`.

    The per-row sets :math:`\Omega_i` of `apx::one-to-many`. With weights of at least 1 the bound x <= 1 holds by
    itself; entries of weight 0 do not exist and are set to 0. Row by row it is :math:`\max(b_{ij} + y_i, 0)`, whose sum
    is convex in :math:`y_i`: Newton's method comes from above and is there as soon as no entry changes sign. It starts
    with all entries positive, or with those that are so in ``near``, a point of the set that the answer may be near to.

    >>> project_rows_simplex(np.array([[0.5, 0.1, -1.0], [3.0, 0.0, 0.0]]))
    array([[0.7, 0.3, 0. ],
           [1. , 0. , 0. ]])
    """
    w = np.ones(b.shape) if weights is None else np.broadcast_to(weights, b.shape)
    if not (w.sum(axis=1) > 0.0).all():
        raise UsageError("a row has no entry that may be positive, so it cannot add up to 1")
    positive = w > 0.0 if near is None else (w > 0.0) & (near > 0.0)
    y = _row_shifts(b, w, positive)
    for _ in range(_ROW_STEPS):
        before = positive
        positive = b > -y[:, None]
        if (positive == before).all():
            break
        y = _row_shifts(b, w, positive)
    else:
        y = _row_shifts_by_sorting(b, w)
    x: FloatArray = np.where(w > 0.0, np.maximum(b + y[:, None], 0.0), 0.0)
    x /= (w * x).sum(axis=1, keepdims=True)
    return x


def _row_shifts(b: FloatArray, w: FloatArray, positive: np.ndarray[Any, np.dtype[np.bool_]]) -> FloatArray:
    """The ``y`` of each row if just these entries are positive; if none of a row is, the ``y`` at which all are."""
    heavy = w * positive
    mass = heavy.sum(axis=1)
    if not mass.all():
        heavy[mass == 0.0] = w[mass == 0.0]
        mass = heavy.sum(axis=1)
    y: FloatArray = (1.0 - np.einsum("ij,ij->i", heavy, b)) / mass
    return y


def _row_shifts_by_sorting(b: FloatArray, w: FloatArray) -> FloatArray:
    """The same by sorting each row: the obvious algorithm."""
    values = np.where(w > 0.0, b, -np.inf)
    order = np.argsort(-values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    heavy = np.take_along_axis(w, order, axis=1)
    mass = np.cumsum(heavy, axis=1)
    shift = (1.0 - np.cumsum(heavy * np.where(heavy > 0.0, ordered, 0.0), axis=1)) / np.maximum(mass, 1e-300)
    kept = np.count_nonzero(ordered + shift > 0.0, axis=1)
    y: FloatArray = np.take_along_axis(shift, np.maximum(kept, 1)[:, None] - 1, axis=1)[:, 0]
    return y
