"""Draw links for any rows from a fit: degrees where they are not given, then wiring."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.degrees import UNKNOWN, Degrees, fill, match_total, whole
from dpweave.links.row_types import RowTypes
from dpweave.links.wiring.exchange_for_counts import exchange_for_counts
from dpweave.links.wiring.wire import WHOLE_CELLS, spread, wire
from dpweave.links.wiring.within_groups import assign_within_groups

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.link_fit import LinkFit
    from dpweave.links.link_method import LinkProblem
    from dpweave.links.wiring.within_groups import UnitGroups

_EVEN_CELLS = 1 << 20
"""Up to this many pairs of types, links are drawn evenly over all columns."""
_RENEWED_CELLS = 1 << 26
"""Up to this many pairs of types, left rows are chosen anew for links that bounds hid: about a second."""
_SHARED_CELLS = 1 << 26
"""Up to this many pairs of types, shares of links are summed over all left types; of more, a sample stands for all."""
_RAKES = 10
_NOBODY = np.zeros(0, dtype=np.int64)


def draw_links(fit: LinkFit, problem: LinkProblem, *, degrees: Degrees = UNKNOWN, rng: np.random.Generator) -> IntArray:
    """Links of the rows of ``problem``, of its kind exactly; degrees that are not given follow from the fit.

    Where row types are too many to be rounded together, links are exchanged afterwards until their counts fit.
    """
    if not problem.links or not problem.left_rows or not problem.right_rows:
        return np.zeros((0, 2), dtype=np.int64)
    if problem.units is not None:
        return _drawn_within_groups(fit, problem, degrees, problem.units, rng)
    renewed = renewed_rows(fit, problem, degrees, rng) if problem.left_may_repeat else None
    if renewed is not None:
        problem = replace(problem, left={c: codes[renewed] for c, codes in problem.left.items()})
    left, right = _drawing_types(fit, problem)
    one_left = problem.kind != "many-to-many"
    one_right = problem.kind == "one-to-one"
    partners = problem.right_rows - problem.bars_self
    left_cap = 1 if one_left else min(degrees.left_bound or partners, partners)
    right_cap: IntArray = np.full(problem.right_rows, 1 if one_right else problem.left_rows, dtype=np.int64)
    if degrees.right_bound is not None:
        right_cap = np.minimum(right_cap, degrees.right_bound)
    wanted = np.ones(problem.left_rows, dtype=np.int64) if problem.kind == "one-to-many" else degrees.left
    if wanted is not None:
        wanted = np.minimum(wanted, 1 if one_left else partners)
    links = problem.links if wanted is None else int(wanted.sum())
    likely = degrees.right if degrees.right is not None else degrees.right_weights
    shares: tuple[FloatArray, FloatArray] = (np.ones(left.count), np.ones(right.count))
    if wanted is None or degrees.right is None:
        shares = _type_shares(fit, left, right, wanted, likely, degrees.left_seen, rng)
    if wanted is None:
        links = min(links, left_cap * problem.left_rows, int(right_cap.sum()))
        wanted = _spread_shares(shares[0], left, links, np.full(problem.left_rows, left_cap), rng)
    if degrees.right is not None:
        most = 1 if one_right else problem.left_rows
        others = match_total(np.minimum(degrees.right, most), links, cap=most, rng=rng)
    elif degrees.right_weights is not None:
        each = shares[1][right.of_row] * degrees.right_weights / np.maximum(_mass(right, likely), 1e-300)[right.of_row]
        room = _relaxed(right_cap, links).astype(np.float64)
        others = whole(fill(each / each.sum() * links, room, float(links)), links, rng, shuffle=True)
    else:
        others = _spread_shares(shares[1], right, links, _relaxed(right_cap, links), rng)
    pairs = wire(
        fit.weights, left, right, left_degrees=wanted, right_degrees=others, rng=rng, same_table=problem.bars_self
    )
    sparse = one_left and left.count * right.count > _EVEN_CELLS
    pairs = exchange_for_counts(pairs, problem, fit.joint, rng=rng) if sparse else pairs
    return pairs if renewed is None else np.stack([renewed[pairs[:, 0]], pairs[:, 1]], axis=1)


def renewed_rows(fit: LinkFit, problem: LinkProblem, degrees: Degrees, rng: np.random.Generator) -> IntArray | None:
    r"""Positions of left rows, each as often as the links that bounds hid call for;
    None where nothing calls for another choice.

    Left rows come as the view shows them: of the :math:`D_v` links of right rows of
    type v it shows :math:`q_v`, and of those of heavy owners fewer. A hidden link of v
    is taken to be like a seen one of v, so that a row of left type u should come

    .. math:: \frac{\sum_v D_v w(u, v) / \sum_v D_v}{\sum_v q_v w(u, v) / \sum_v q_v}

    times as often, w being how much likelier than by chance the fit links u to v. Where it knows of no
    association, that is 1.
    """
    if degrees.right is None or degrees.right_seen is None or not fit.theta:
        return None
    every = degrees.right.astype(np.float64)
    shown = every * degrees.right_seen
    left = RowTypes.of(problem.left, fit.left, shape=problem.shape, rows=problem.left_rows)
    right = RowTypes.of(problem.right, fit.right, shape=problem.shape, rows=problem.right_rows)
    if not shown.sum() or left.count * right.count > _RENEWED_CELLS:
        return None
    wholes, views = (np.bincount(right.of_row, weights=w / w.sum(), minlength=right.count) for w in (every, shown))
    if np.allclose(wholes, views, rtol=0, atol=1e-9):
        return None
    step = max(WHOLE_CELLS // right.count, 1)
    blocks = [fit.weights(_cut(left, slice(i, i + step)), right) for i in range(0, left.count, step)]
    times = np.concatenate([(b @ wholes) / np.maximum(b @ views, 1e-300) for b in blocks])[left.of_row]
    order = np.lexsort((rng.random(problem.left_rows), left.of_row))
    often = whole(times[order] * (problem.left_rows / times.sum()), problem.left_rows, rng)
    return np.sort(np.repeat(order, often))


def _drawn_within_groups(
    fit: LinkFit, problem: LinkProblem, degrees: Degrees, groups: UnitGroups, rng: np.random.Generator
) -> IntArray:
    """Links of rows that may lead to some others alone, each with at most one."""
    bound = 1 if problem.kind == "one-to-one" else degrees.right_bound
    log_odds = partial(fit.log_odds_of_pairs, problem.left, problem.right)
    target = assign_within_groups(groups, bound=bound, rng=rng, log_odds=log_odds)
    linked = np.flatnonzero(target >= 0)
    return np.stack([linked, target[linked]], axis=1)


def _drawing_types(fit: LinkFit, problem: LinkProblem) -> tuple[RowTypes, RowTypes]:
    """Types to draw by: over all columns while pairs of them are few, so that rounding is even in columns
    that nothing is known about, else over the columns that matter.
    """
    left = RowTypes.of(problem.left, tuple(problem.left), shape=problem.shape, rows=problem.left_rows)
    right = RowTypes.of(problem.right, tuple(problem.right), shape=problem.shape, rows=problem.right_rows)
    if left.count * right.count <= _EVEN_CELLS:
        return left, right
    narrow = RowTypes.of(problem.right, fit.right, shape=problem.shape, rows=problem.right_rows)
    if left.count * narrow.count <= _EVEN_CELLS:
        return left, narrow
    left = RowTypes.of(problem.left, fit.left, shape=problem.shape, rows=problem.left_rows)
    return (left, right) if left.count * right.count <= _EVEN_CELLS else (left, narrow)


def _relaxed(cap: IntArray, links: int) -> IntArray:
    """Relax bounds that cannot hold: exact left degrees come first."""
    short = links - int(cap.sum())
    return cap if short <= 0 else cap - (-short // len(cap))


def _spread_shares(
    shares: FloatArray, types: RowTypes, links: int, cap: IntArray, rng: np.random.Generator
) -> IntArray:
    capacity = np.bincount(types.of_row, weights=cap, minlength=types.count).astype(np.float64)
    return spread(whole(fill(shares * links, capacity, float(links)), links, rng), types, cap=cap, rng=rng)


def _type_shares(
    fit: LinkFit,
    left: RowTypes,
    right: RowTypes,
    left_degrees: IntArray | None,
    right_degrees: IntArray | FloatArray | None,
    left_seen: FloatArray | None,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Expected share of links per left and right type: rows by their degrees where known, else by the fit.

    A fit looks at a sample of left types (ALGORITHMS B4). Where left degrees are known, the view's share of all types
    has the fit's own margins again, and all links differ from it as far as rows do that bounds hid (:func:`_settled`).
    """
    rows, columns = _mass(left, left_degrees), _mass(right, right_degrees)
    known = left_degrees is not None
    shown = rows if left_seen is None or left_degrees is None else _mass(left, left_degrees * left_seen)
    some, times = np.arange(left.count), np.ones(left.count)
    most = max(_SHARED_CELLS // max(right.count, 1), 1)
    if left.count > most:  # a sample in proportion to mass stands for all
        picked = whole(rows * (most / rows.sum()), most, rng)
        some = np.flatnonzero(picked)
        times = picked[some] / rows[some]
    sample = RowTypes(left.columns, left.shape, left.codes[some], _NOBODY, left.multiplicity[some])
    masses = np.stack([rows[some] * times, shown[some] * times])
    inner, totals, highest = np.zeros(len(some)), np.zeros((2, right.count)), -np.inf
    step = max(WHOLE_CELLS // max(right.count, 1), 1)
    for block in (slice(i, i + step) for i in range(0, len(some), step)):
        odds = fit.log_odds(_cut(sample, block), right)
        if known:
            weight = np.exp(odds - odds.max(axis=1, keepdims=True)) * columns
            totals += (masses[:, block] / np.maximum(weight.sum(axis=1), 1e-300)) @ weight
            continue
        higher = max(highest, float(odds.max()))  # one scale for all blocks
        inner, totals = (x * np.exp(highest - higher) for x in (inner, totals))
        weight, highest = np.exp(odds - higher) * columns, higher
        inner[block] = weight.sum(axis=1)
        totals += masses[:, block] @ weight
    shares = rows if known or len(some) < left.count else rows * inner
    total = _settled(fit, right, *totals) if known else totals[0]
    return shares / shares.sum(), total / total.sum()


def _settled(fit: LinkFit, right: RowTypes, total: FloatArray, shown: FloatArray) -> FloatArray:
    """Scale the shares of right types by what takes those in the view to how the fit
    spreads links over each right column that was counted.

    Where types differ only by the columns that matter, a column whose counts
    were too noisy to tell anything is none of them.
    """
    alone = {w.right[0]: table.ravel() for w, (table, _) in fit.joint.items() if not w.left and len(w.right) == 1}
    margins = {c: table for c, table in alone.items() if c in right.columns}
    for _ in range(_RAKES):
        for c, wanted in margins.items():
            at = right.codes[:, right.columns.index(c)]
            have = np.bincount(at, weights=shown / shown.sum(), minlength=len(wanted))
            times = np.where((have > 0) & (wanted > 0), wanted / np.maximum(have, 1e-300), 1.0)[at]
            shown, total = shown * times, total * times
    return total


def _mass(types: RowTypes, degrees: IntArray | FloatArray | None) -> FloatArray:
    if degrees is None:
        return types.multiplicity.astype(np.float64)
    mass: FloatArray = np.bincount(types.of_row, weights=degrees, minlength=types.count).astype(np.float64)
    return mass if mass.sum() > 0 else types.multiplicity.astype(np.float64)


def _cut(types: RowTypes, block: slice) -> RowTypes:
    return RowTypes(types.columns, types.shape, types.codes[block], _NOBODY, types.multiplicity[block])
