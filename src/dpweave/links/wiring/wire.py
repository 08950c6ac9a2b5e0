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
4. *Repair* what repeats by swapping right ends, first with links of the same right type, then of the same left type,
   then with any. All swaps keep all degrees, the first two keep every count per pair of types. The number of rounds
   is bounded; a link that still repeats is given any free right row, and only there a right degree may be missed.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpweave.errors import UsageError
from dpweave.links.row_types import RowTypes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dpweave.arrays import FloatArray, IntArray

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
_SWAP_ROUNDS = 60
_GUESS_ROUNDS = 20


def round_types(expected: FloatArray, totals: IntArray, rng: np.random.Generator) -> IntArray:
    r"""Whole numbers near ``expected`` with row sums ``totals``, by error diffusion down the rows.

    Row u is rounded systematically: with cumulative sums :math:`c_v` of what is wanted,
    :math:`n_v = \lfloor c_v + r\rfloor - \lfloor c_{v-1} + r\rfloor` with a uniform r. What is wanted is the row's
    expectation times one plus a share of the carry, the difference between expected and given that the rows above left
    in each column. So in sorted order every run of rows has nearly the right sum in every column, and a row's own
    leaning is not drowned by what others left: the feedback is proportional and on average nothing.

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
        # A column's carry is made good over the rows that expect its next two links, or what is left of them.
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
    members, starts = types.members
    degrees = np.zeros(types.rows, dtype=np.int64)
    left_over = totals.copy()
    for _ in range(_SWAP_ROUNDS):
        if not left_over.any():
            return degrees
        of = np.repeat(np.arange(types.count), left_over)
        at = starts[of] + (rng.random(len(of)) * types.multiplicity[of]).astype(np.int64)
        degrees += np.bincount(members[at], minlength=types.rows)
        excess = np.maximum(degrees - caps, 0)
        degrees -= excess
        left_over = np.bincount(types.of_row, weights=excess, minlength=types.count).astype(np.int64)
    for u in np.flatnonzero(left_over):  # nearly full types: fill what room there is, in order
        rows = members[starts[u] : starts[u + 1]]
        room = np.cumsum(caps[rows] - degrees[rows])
        degrees[rows] += np.diff(np.minimum(room, left_over[u]), prepend=0)
    return degrees


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
    return order[np.argsort(_narrow(types.of_row[order]), kind="stable")]


def _narrow(codes: IntArray) -> np.ndarray[tuple[int], np.dtype[np.uint16]] | IntArray:
    """Sixteen bits where they suffice: NumPy then sorts by radix, in linear time."""
    return codes.astype(np.uint16) if len(codes) == 0 or codes.max() < 1 << 16 else codes


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
    v = v[order[np.argsort(_narrow(u[order]), kind="stable")]]
    v = _balance(v, column_totals, rng)

    queue = _queue(stubs, v_of_stub, rng)
    j = np.empty_like(queue)
    j[np.argsort(_narrow(v), kind="stable")] = queue
    pairs = Repair(i, j, u, v, width, same_table).run(rng)
    return np.stack(pairs, axis=1)


def _balance(v: IntArray, totals: IntArray, rng: np.random.Generator) -> IntArray:
    """Retype as few links as it takes to meet ``totals`` per right type, each to a near type in sorted order."""
    given = np.bincount(v, minlength=len(totals))
    excess = given - totals
    if not excess.any():
        return v
    order = rng.permutation(np.flatnonzero((excess > 0)[v]))
    order = order[np.argsort(_narrow(v[order]), kind="stable")]
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
    return stubs[by_place[np.argsort(_narrow(v[by_place]), kind="stable")]]


class Repair(NamedTuple):
    """A multigraph of links that shall become simple: left row, right row, left type, right type of each link."""

    i: IntArray
    j: IntArray
    u: IntArray
    v: IntArray
    width: int
    same_table: bool

    def keys(self, i: IntArray, j: IntArray) -> IntArray:
        """One number per pair."""
        return i * self.width + j

    def bad(self) -> IntArray:
        """Links that repeat an earlier one, or join a row to itself."""
        key = self.keys(self.i, self.j)
        ordered = np.sort(key)
        twice = ordered[1:][ordered[1:] == ordered[:-1]]
        suspects = np.flatnonzero(np.isin(key, twice)) if len(twice) else np.zeros(0, dtype=np.int64)
        _, first = np.unique(key[suspects], return_index=True)
        again = np.delete(suspects, first)
        return np.union1d(again, np.flatnonzero(self.i == self.j)) if self.same_table else again

    def run(self, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Swap right ends until no pair repeats, a bounded number of times; then reassign what is left."""
        bad = self.bad()
        if len(bad) == 0:
            return self.i, self.j
        taken = np.sort(self.keys(self.i, self.j))
        fresh = np.zeros(0, dtype=np.int64)
        groups = [_Group.of_types(self.v), _Group.of_types(self.u), None]
        for attempt in range(_SWAP_ROUNDS):
            if len(bad) == 0:
                break
            group = groups[min(3 * attempt // _SWAP_ROUNDS, 2)]
            partner = rng.integers(0, len(self.i), len(bad)) if group is None else group.draw(bad, rng)
            bad, fresh = self._swap(bad, partner, taken, fresh)
        if len(bad):
            self._reassign(bad, taken, fresh, rng)
        return self.i, self.j

    def _swap(self, bad: IntArray, partner: IntArray, taken: IntArray, fresh: IntArray) -> tuple[IntArray, IntArray]:
        """Swap right ends of each ``bad`` link and its partner where both new pairs are
        free; what stays bad, returned.
        """
        one, two = self.keys(self.i[bad], self.j[partner]), self.keys(self.i[partner], self.j[bad])
        fine = ~(_member(taken, one) | _member(taken, two) | np.isin(one, fresh) | np.isin(two, fresh)) & (one != two)
        fine &= ~np.isin(partner, bad)
        if self.same_table:
            fine &= (self.i[bad] != self.j[partner]) & (self.i[partner] != self.j[bad])
        # Two swaps of one round must share neither a partner nor a new pair: the first of them goes ahead.
        at = np.flatnonzero(fine)
        _, first = np.unique(partner[at], return_index=True)
        at = at[first]
        new = np.concatenate([one[at], two[at]])
        _, inverse, times = np.unique(new, return_inverse=True, return_counts=True)
        alone = (times[inverse] == 1).reshape(2, -1).all(axis=0)
        at = at[alone]
        a, b = bad[at], partner[at]
        self.j[a], self.j[b] = self.j[b], self.j[a]
        return np.delete(bad, at), np.concatenate([fresh, one[at], two[at]])

    def _reassign(self, bad: IntArray, taken: IntArray, fresh: IntArray, rng: np.random.Generator) -> None:
        """Give each ``bad`` link a right row that its left row does not have yet."""
        for _ in range(_GUESS_ROUNDS):
            j = rng.integers(0, self.width, len(bad))
            key = self.keys(self.i[bad], j)
            fine = ~(_member(taken, key) | np.isin(key, fresh))
            if self.same_table:
                fine &= self.i[bad] != j
            _, first = np.unique(key, return_index=True)
            at = np.intersect1d(np.flatnonzero(fine), first)
            self.j[bad[at]] = j[at]
            fresh = np.concatenate([fresh, key[at]])
            bad = np.delete(bad, at)
            if len(bad) == 0:
                return
        mine = np.isin(self.i, self.i[bad])
        mine[bad] = False
        for row in np.unique(self.i[bad]):
            links = bad[self.i[bad] == row]
            have = self.j[mine & (self.i == row)]
            if self.same_table:
                have = np.append(have, row)
            free = np.setdiff1d(np.arange(self.width), have)
            self.j[links] = rng.choice(free, len(links), replace=False)


class _Group(NamedTuple):
    """Links by type, to draw another of the same type."""

    of: IntArray
    order: IntArray
    starts: IntArray
    sizes: IntArray

    @classmethod
    def of_types(cls, types: IntArray) -> _Group:
        sizes = np.bincount(types)
        return cls(types, np.argsort(_narrow(types), kind="stable"), np.cumsum(sizes) - sizes, sizes)

    def draw(self, links: IntArray, rng: np.random.Generator) -> IntArray:
        kind = self.of[links]
        return self.order[self.starts[kind] + (rng.random(len(links)) * self.sizes[kind]).astype(np.int64)]


def _member(ordered: IntArray, values: IntArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return np.asarray(ordered[at] == values)
