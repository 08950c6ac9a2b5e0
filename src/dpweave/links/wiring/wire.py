r"""From probabilities to links: exact degrees on both sides, no pair twice, time and memory linear in the links.

A wiring problem is: a degree for every left and every right row (with equal sums), and a weight for every pair of row
types that says how much likelier such a pair is linked than by chance. It is solved in **slices** of about a million
links (fewer where row types are many), each with a share of the left rows and of the right stubs spread evenly over
all types, so that no step ever holds more than a slice and the time per link does not grow. Within a slice:

1. *Rake* the weights to the stubs per type on both sides: the expected number of links per pair of types.
2. *Round* them by error diffusion (:func:`round_types`): rows exact, and what one row of types rounds away the next one
   gets back, so sums over any run of left types stay right to within one link per right type.
3. *Place* the links of a right type on its rows. Stubs of one right row are spaced evenly in its type's queue and the
   links of one left row stand together, so a pair repeats only where both rows are heavy.
4. *Exchange* the right ends of what repeats, first with links of the same right type, then of the same left type,
   then with any. All exchanges keep all degrees, the first two keep every count per pair of types. The number of rounds
   is bounded; a link that still repeats is given any free right row, and only there a right degree may be missed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dpweave.errors import UsageError
from dpweave.links.row_types import RowTypes
from dpweave.links.wiring.assign import Candidates, assign, assign_at_random
from dpweave.links.wiring.constraints import NewPairs, NotItself, among, narrow, repeated
from dpweave.links.wiring.repeated_pairs import without_bad_links

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.wiring.exchange import Constraint

    Weights = Callable[[RowTypes, RowTypes], FloatArray]
    """Relative weight of a link for each pair of a left and a right type: ``(left.count, right.count)``."""

SLICE_LINKS = 1 << 17
"""Links per slice: what fits the caches of today's machines."""

WHOLE_CELLS = 1 << 22
"""Up to this many pairs of types a slice may see all of them."""

SLICE_CELLS = 1 << 18
"""Pairs of types per slice where there are more."""

_AHEAD = 2.0
_AT_ONCE = 0.25
_GOLDEN = (5**0.5 - 1) / 2
_RAKE_STEPS = 50
_GUESSES = 20
"""Right rows that a link may have if no exchange helps, before all of them are looked at."""


def round_types(expected: FloatArray, totals: IntArray, rng: np.random.Generator) -> IntArray:
    r"""Whole numbers near ``expected`` with row sums ``totals``, by error diffusion down the rows.

    Row u is rounded systematically: with cumulative sums :math:`c_v` of what is wanted,
    :math:`n_v = \lfloor c_v + r\rfloor - \lfloor c_{v-1} + r\rfloor` with a uniform r. What is wanted is the row's
    expectation times one plus a share of the carry, the difference between expected and given that the rows above left
    in each column. So in sorted order every run of rows has nearly the right sum in every column, and a row's own
    weights are not drowned by what others left: the feedback is proportional and on average nothing.

    Rows whose links, in the mean, take no more than a quarter of what their column expects to
    come, or of two, see the same carry and are rounded at once; that they fall on different
    columns is seen to by r, which goes on by the golden section from one to the next.

    >>> round_types(np.full((4, 2), 0.5), np.ones(4, dtype=np.int64), np.random.default_rng(0)).sum(axis=0)
    array([2, 2])
    """
    given = np.zeros(expected.shape, dtype=np.int64)
    carry = np.zeros(expected.shape[1])
    left_over = expected[::-1].cumsum(axis=0)[::-1]
    mass = expected.sum(axis=1)
    scale = np.divide(totals, mass, out=np.zeros(len(mass)), where=mass > 0)[:, None]
    totals = np.where(mass > 0, totals, 0)[:, None]
    taken = (expected * expected / np.clip(left_over, 1e-12, _AHEAD)).sum(axis=1) * scale[:, 0]
    blocks = np.concatenate([[0], np.flatnonzero(np.diff(np.floor(np.cumsum(taken) / _AT_ONCE))) + 1, [len(totals)]])
    bounds = np.zeros((int(np.diff(blocks).max()), expected.shape[1] + 1), dtype=np.int64)
    for first, end in pairwise(blocks.tolist()):
        wanted = expected[first:end] * scale[first:end]
        total = totals[first:end]
        # A column's carry is added to the rows that expect its next two links, or what is left of them.
        ahead = np.maximum(wanted, np.minimum(left_over[first:end], _AHEAD))
        edges = np.cumsum(wanted * np.maximum(1 + carry / np.maximum(ahead, 1e-12), 0.0), axis=1)
        edges *= total / np.where(edges[:, -1:] > 0, edges[:, -1:], np.inf)
        start = (rng.random() + np.arange(end - first) * _GOLDEN) % 1.0
        here = bounds[: end - first]
        here[:, 1:-1] = np.minimum(np.floor(edges[:, :-1] + start[:, None]), total)
        here[:, -1:] = total  # whatever rounding says: floor(total + start) = total
        np.subtract(here[:, 1:], here[:, :-1], out=given[first:end])
        carry += (wanted - given[first:end]).sum(axis=0)
    return given


def rake(weights: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Scale rows and columns of positive ``weights`` until they sum to ``rows`` and
    ``columns``; rows come out exact.
    """
    scaled = weights * columns
    tolerance = 1e-3 * rows.sum()
    for _ in range(_RAKE_STEPS):
        scaled *= (rows / np.maximum(scaled.sum(axis=1), 1e-300))[:, None]
        sums = scaled.sum(axis=0)
        if np.abs(sums - columns).sum() <= tolerance:
            break
        scaled *= columns / np.maximum(sums, 1e-300)
    else:
        scaled *= (rows / np.maximum(scaled.sum(axis=1), 1e-300))[:, None]
    return scaled


def spread(totals: IntArray, types: RowTypes, *, cap: int | IntArray, rng: np.random.Generator) -> IntArray:
    """Degrees of rows that add up to ``totals`` per type, each link on a row at random, none above its ``cap``.

    >>> types = RowTypes.of({"a": np.array([0, 0, 1])}, ["a"], shape={"a": 2})
    >>> spread(np.array([4, 1]), types, cap=2, rng=np.random.default_rng(0))
    array([2, 2, 1])
    """
    caps = np.broadcast_to(cap, types.rows)
    if (totals > np.bincount(types.of_row, weights=caps, minlength=types.count)).any():
        raise UsageError(f"more links than rows of a type can carry with at most {caps.max()} each")
    links = assign_at_random(np.repeat(np.arange(types.count), totals), types.of_row, caps, rng=rng)
    return np.bincount(links, minlength=types.rows)


def wire(
    weights: Weights,
    left: RowTypes,
    right: RowTypes,
    *,
    left_degrees: IntArray,
    right_degrees: IntArray,
    rng: np.random.Generator,
    same_table: bool = False,
) -> IntArray:
    """All links of :func:`wire_slices` in one array: one row per link, left and right row position."""
    slices = list(
        wire_slices(
            weights,
            left,
            right,
            left_degrees=left_degrees,
            right_degrees=right_degrees,
            rng=rng,
            same_table=same_table,
        )
    )
    return np.concatenate(slices) if slices else np.zeros((0, 2), dtype=np.int64)


def wire_slices(
    weights: Weights,
    left: RowTypes,
    right: RowTypes,
    *,
    left_degrees: IntArray,
    right_degrees: IntArray,
    rng: np.random.Generator,
    same_table: bool = False,
) -> Iterator[IntArray]:
    """Links with exactly these degrees and no pair twice, slice by slice; with ``same_table`` no row meets itself.

    One-to-many is left degrees of 1; one-to-one is degrees of at most 1 on both sides. Where no simple graph has these
    degrees, left degrees are kept and right degrees come as close as the repairs get.
    """
    _check(left, right, left_degrees, right_degrees, same_table)
    count = _slices(left, right, left_degrees, right_degrees)
    rows = _shuffled_by_type(left, rng)
    queue = _shuffled_by_type(right, rng)
    # From here on rows go by their places in these orders, so that memory is read from front to back and not at random.
    degrees, times = left_degrees[rows], right_degrees[queue]
    kinds, others = (np.repeat(np.arange(t.count), t.multiplicity) for t in (left, right))
    used = np.flatnonzero(degrees)
    stubs = np.repeat(np.arange(len(queue), dtype=np.int32 if len(queue) < 1 << 31 else np.int64), times)
    if count > 1:
        stubs = np.concatenate([stubs[b::count] for b in rng.permutation(count)])
    taken = 0
    for b in range(count):
        part = used[b::count]
        need = int(degrees[part].sum())
        piece = np.sort(stubs[taken : taken + need])
        taken += need
        if need:
            us, u = _runs(kinds[part])
            vs, v = _runs(others[piece])
            probability = weights(_subset(left, us), _subset(right, vs))
            yield _wire_slice(
                probability, (rows[part], u, degrees[part]), (queue[piece], v), right.rows, rng, same_table
            )


def _check(left: RowTypes, right: RowTypes, left_degrees: IntArray, right_degrees: IntArray, same_table: bool) -> None:
    if len(left_degrees) != left.rows or len(right_degrees) != right.rows:
        raise UsageError(
            f"{len(left_degrees)} and {len(right_degrees)} degrees for {left.rows} left and {right.rows} right rows"
        )
    if left_degrees.sum() != right_degrees.sum():
        raise UsageError(f"left degrees add up to {left_degrees.sum()}, right degrees to {right_degrees.sum()}")
    if len(left_degrees) and (min(left_degrees.min(), right_degrees.min(initial=0)) < 0):
        raise UsageError("a degree is negative")
    partners = right.rows - same_table
    if len(left_degrees) and left_degrees.max() > partners:
        raise UsageError(f"a left row has degree {left_degrees.max()}, but there are {partners} right rows to link to")


def _slices(left: RowTypes, right: RowTypes, left_degrees: IntArray, right_degrees: IntArray) -> int:
    """How many slices: by links, and by pairs of types where a slice cannot see them all."""
    links = int(left_degrees.sum())
    count = -(-links // SLICE_LINKS)
    if left.count * right.count <= WHOLE_CELLS and max(left.count, right.count) <= 1 << 16:
        return count
    rows = int((left_degrees > 0).sum())
    others = int((right_degrees > 0).sum())
    while min(left.count, rows / count) * min(right.count, others, links / count) > SLICE_CELLS and count < rows:
        count *= 2
    return min(count, rows)


def _shuffled_by_type(types: RowTypes, rng: np.random.Generator) -> IntArray:
    """All rows, types in order, rows within a type at random."""
    order = rng.permutation(types.rows)
    return order[np.argsort(narrow(types.of_row[order]), kind="stable")]


def _subset(types: RowTypes, used: IntArray) -> RowTypes:
    """Only the types ``used``; rows are left out, they are dealt with here."""
    nobody = np.zeros(0, dtype=np.int64)
    return RowTypes(types.columns, types.shape, types.codes[used], nobody, types.multiplicity[used])


def _runs(ordered: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct values of a sorted array, and which of them each entry is."""
    fresh = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=fresh[1:])
    return ordered[fresh], np.cumsum(fresh) - 1


def _wire_slice(
    weights: FloatArray,
    lefts: tuple[IntArray, IntArray, IntArray],
    rights: tuple[IntArray, IntArray],
    width: int,
    rng: np.random.Generator,
    same_table: bool,
) -> IntArray:
    """Link rows, with their types and degrees, to stubs, with theirs; both come sorted
    by type, stubs of a row together.
    """
    rows, u_of_row, degrees = lefts
    stubs, v_of_stub = rights
    row_totals = np.bincount(u_of_row, weights=degrees, minlength=weights.shape[0]).astype(np.int64)
    column_totals = np.bincount(v_of_stub, minlength=weights.shape[1])
    expected = rake(weights, row_totals.astype(np.float64), column_totals.astype(np.float64))
    counts = round_types(expected, row_totals, rng)

    # Links in the order of left types: within one, right types fall on the rows' stubs at random.
    i = np.repeat(rows, degrees)
    u = np.repeat(u_of_row, degrees)
    v = np.repeat(np.tile(np.arange(weights.shape[1]), weights.shape[0]), counts.ravel())
    order = rng.permutation(len(v))
    v = v[order[np.argsort(narrow(u[order]), kind="stable")]]
    v = _balance(v, column_totals, rng)

    queue = _queue(stubs, v_of_stub, rng)
    j = np.empty_like(queue)
    j[np.argsort(narrow(v), kind="stable")] = queue
    return np.stack([i, _without_repeats(i, j, (u, v), width, rng, same_table)], axis=1)


def _balance(v: IntArray, totals: IntArray, rng: np.random.Generator) -> IntArray:
    """Retype as few links as it takes to meet ``totals`` per right type, each to a near type in sorted order."""
    given = np.bincount(v, minlength=len(totals))
    excess = given - totals
    if not excess.any():
        return v
    order = rng.permutation(np.flatnonzero((excess > 0)[v]))
    order = order[np.argsort(narrow(v[order]), kind="stable")]
    sizes = np.where(excess > 0, given, 0)
    starts = np.cumsum(sizes) - sizes
    surplus = np.maximum(excess, 0)
    within = np.arange(surplus.sum()) - np.repeat(np.cumsum(surplus) - surplus, surplus)
    v[order[np.repeat(starts, surplus) + within]] = np.repeat(np.arange(len(totals)), np.maximum(-excess, 0))
    return v


def _queue(stubs: IntArray, v: IntArray, rng: np.random.Generator) -> IntArray:
    """Stubs by type, those of one row, which come together, evenly spaced within their type's queue."""
    fresh = np.ones(len(stubs), dtype=bool)
    np.not_equal(stubs[1:], stubs[:-1], out=fresh[1:])
    first = np.flatnonzero(fresh)
    times = np.diff(first, append=len(stubs))
    nth = np.arange(len(stubs)) - np.repeat(first, times)
    place = (nth + np.repeat(rng.random(len(first)), times)) / np.repeat(times, times)
    by_place = np.argsort((place * (1 << 16)).astype(np.uint16), kind="stable")
    return stubs[by_place[np.argsort(narrow(v[by_place]), kind="stable")]]


def _without_repeats(
    i: IntArray, j: IntArray, types: tuple[IntArray, IntArray], width: int, rng: np.random.Generator, same_table: bool
) -> IntArray:
    """Right ends of links with these left ends and types, such that no pair repeats and, if so, no row meets itself."""
    bad = repeated(i * width + j)
    keep: list[Constraint] = []
    if same_table:
        bad = np.union1d(bad, np.flatnonzero(i == j))
        keep.append(NotItself(i))
    if not len(bad):
        return j
    left, right = types
    keep.append(NewPairs.of(i, j, width))
    partners = (lambda _: right, lambda _: left, np.zeros_like)
    j, bad = without_bad_links(j, bad, keep, partners, rng=rng)
    return _reassigned(i, j, bad, width, rng, same_table) if len(bad) else j


def _reassigned(
    i: IntArray, j: IntArray, bad: IntArray, width: int, rng: np.random.Generator, same_table: bool
) -> IntArray:
    """Give each ``bad`` link a right row that its left row does not have yet: one of a few at random, or any."""
    row, end = np.repeat(np.arange(len(bad)), _GUESSES), rng.integers(0, width, len(bad) * _GUESSES)
    j = j.copy()
    j[bad] = -1
    j[bad] = _free_ends(i, j, bad, row, end, width, rng, same_table)
    for left in np.unique(i[bad[j[bad] < 0]]):
        some = bad[(i[bad] == left) & (j[bad] < 0)]
        row, end = np.repeat(np.arange(len(some)), width), np.tile(np.arange(width), len(some))
        j[some] = _free_ends(i, j, some, row, end, width, rng, same_table)
    return j


def _free_ends(
    i: IntArray,
    j: IntArray,
    links: IntArray,
    row: IntArray,
    end: IntArray,
    width: int,
    rng: np.random.Generator,
    same_table: bool,
) -> IntArray:
    """Assign ends to some links: link ``row`` of these may have ``end``, unless its left row has that already."""
    key = i[links[row]] * width + end
    taken = np.sort(i[j >= 0] * width + j[j >= 0])
    free = ~among(key, taken)
    if same_table:
        free &= i[links[row]] != end
    pairs, pair = np.unique(key[free], return_inverse=True)
    one = np.ones(len(pairs), dtype=np.int64)  # each pair is there once
    found = assign(Candidates(row[free], pair, len(links)), one, rng.random(len(pair)))
    return np.where(found >= 0, np.append(pairs, 0)[found] % width, -1)
