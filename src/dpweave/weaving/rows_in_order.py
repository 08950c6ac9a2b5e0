r"""Rows of one owner in an order: when its rows are, and which row comes when.

Given when an owner's rows are, its **places** are these moments in order, each a gap after the one before. Where gaps
stand out of the noise, places are made anew: an owner keeps about the mean of its rows' times, its gaps are drawn as
they were measured, with how they go with the owner's columns, and its first place as owners were seen to begin. Then
the times of all places together are bent to those of all rows, bin by bin, so that the column stays as it was. A row
goes to a place in its own bin, if there is one of its own owner, else to one of an owner that is like it; which of the
rows of one bin goes where is settled by exchange (:mod:`dpweave.links.wiring.exchange_for_order`). So no row changes
what it says, but for the very moment inside its bin, and no owner its number of rows. Rows without a time stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpweave import chosen
from dpweave.arrays import running_number
from dpweave.links.wiring.exchange_for_order import OrderMoments, Places, exchange_for_order
from dpweave.links.wiring.exchange_for_siblings import CodedVectors, SiblingMoments
from dpweave.measure.per_unit.order_moments import OrderedRows, matrix
from dpweave.measure.per_unit.sibling_moments import (
    OWNERS_LOOKED_AT,
    TURNS,
    Clipped,
    Found,
    beyond_noise,
    kept_by_the_clip,
)
from dpweave.schema.codec import Codec
from dpweave.schema.domain import Attribute, Bins, Categories, Opaque, earlier, exactly, to_axis
from dpweave.tables.domains.learned_gaps import Gaps, gap_edges
from dpweave.weaving.key_targets import alike

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.plan.plan import Plan
    from dpweave.plan.relations import Relation
    from dpweave.privacy.window import Noisy, NoisyMoments
    from dpweave.weaving.state import WeavingState


class OrderAnswers(NamedTuple):
    """What was answered about the order of rows of one owner."""

    gaps: tuple[Noisy, ...]
    moments: NoisyMoments | None


@dataclass(frozen=True)
class OrderOf:
    """The order in which rows of one owner come by a relation, as the plan declares it."""

    plan: Plan
    relation: Relation
    by: str

    @classmethod
    def of(cls, plan: Plan, relation: Relation) -> OrderOf | None:
        """None where the plan declares none."""
        by = plan.table[relation.table].key[relation.key].order_by
        return None if by is None else cls(plan, relation, by)

    def codec(self, column: str) -> Codec:
        """How a column of the rows is coded."""
        planned = self.plan.table[self.relation.table].column[column]
        assert isinstance(planned.domain, Categories | Bins | Opaque)
        return Codec(planned.column, planned.domain)

    @property
    def own(self) -> tuple[str, ...]:
        """Columns of the rows, but for the one that orders them."""
        return tuple(n for n, a in self.relation.left if not a.path and a.column in self._columns and n != self.by)

    @cached_property
    def _columns(self) -> frozenset[str]:
        return frozenset(c.name for c in self.plan.table[self.relation.table].modelled)

    @property
    def before(self) -> dict[str, str]:
        """Columns of the row before, each with what it is called in that row."""
        return {earlier(c, self.by): c for c in self.own}

    @property
    def gap(self) -> str:
        """What the gap to the row before is called."""
        return earlier(self.by, self.by)

    @cached_property
    def edges(self) -> tuple[int, ...]:
        """Buckets of gaps; none where a number only counts the rows."""
        if self.by not in self._columns:
            return ()
        domain, kind = self.codec(self.by).domain, self.codec(self.by).column.type
        assert isinstance(domain, Bins)
        return gap_edges(int(to_axis(kind, domain.edges[-1])) - int(to_axis(kind, domain.edges[0])))

    def gaps(self, answers: tuple[Noisy, ...]) -> Gaps | None:
        """What was answered about gaps."""
        return Gaps.of(answers, self.gap, self.edges) if self.edges else None

    def times(self, codes: IntArray, rng: np.random.Generator) -> FloatArray:
        """Times of rows on the number line, drawn inside their bins; not a number where there is none."""
        codec = self.codec(self.by)
        missing = codes == codec.null_code if codec.column.nullable else np.zeros(len(codes), dtype=bool)
        low, high = codec.intervals(np.where(missing, 0, codes), rng)
        return np.where(missing, np.nan, rng.integers(low, np.maximum(high, low + 1)))

    def placed(
        self,
        own: Mapping[str, IntArray],
        other: Mapping[str, IntArray],
        owner: IntArray,
        time: FloatArray | None,
        gaps: Gaps | None,
    ) -> tuple[OrderedRows, IntArray]:
        """Rows in the order of their owners and times, and which row each of them is. Rows without a time come last,
        with nobody before them.
        """
        when = np.arange(len(owner), dtype=np.float64) if time is None else time
        order = np.lexsort((when, owner))
        own, other = ({c: v[order] for c, v in x.items()} for x in (own, other))
        owner, when = owner[order], when[order]
        has = np.append(False, owner[1:] == owner[:-1]) & ~np.isnan(when)
        before, shape = {}, {}
        for name, column in self.before.items():
            codec = self.codec(column).optional
            said = np.append(0, own[column][:-1])
            before[name] = np.where(has, said, codec.null_code)
            shape[name], shape[column] = codec.size, self.codec(column).size
        gap = {}
        if gaps is not None:
            step = np.where(has, np.diff(when, prepend=0.0), -1.0)
            gap, shape[self.gap] = {self.gap: gaps.codes(step)}, len(gaps.groups)
        return OrderedRows(owner, own, before, other, gap, shape), order


def bring_order(state: WeavingState, relation: Relation, answers: OrderAnswers, *, measured: float) -> Found | None:
    """Give rows places in the order of their owners' rows, as far as that can be seen through the noise.

    ``measured`` is the number of real rows that were asked about. Returns what was found about a row and the one before
    it; None without an answer.
    """
    order = OrderOf.of(state.plan, relation)
    links = state.links[relation.table, relation.key]
    if order is None or answers.moments is None or int((links >= 0).sum()) < 2:
        return None
    return _Bringing(state, relation, order, answers, answers.moments, measured).bring()


class _Lacking(NamedTuple):
    """What the data have beyond the copy as it was at first, and what of it the copy lacks yet."""

    real: Found
    missing: FloatArray


class _Bringing:
    """The rows of one relation on their way into an order."""

    def __init__(
        self,
        state: WeavingState,
        relation: Relation,
        order: OrderOf,
        answers: OrderAnswers,
        noisy: NoisyMoments,
        measured: float,
    ) -> None:
        self._state, self._relation, self._order, self._noisy = state, relation, order, noisy
        self._gaps, self._measured = order.gaps(answers.gaps), measured
        self._rng = state.rng("order", relation.table, relation.key)
        self._rows = np.flatnonzero(state.links[relation.table, relation.key] >= 0)
        self._own = {n: state.codes[relation.table][n][self._rows].astype(np.int64) for n in order.own}
        codes = state.codes[relation.table].get(order.by) if order.edges else None
        self._code = None if codes is None else codes[self._rows].astype(np.int64)
        names = dict(noisy.moments.centres)
        self._theirs = {
            n: state.seen(relation.target, Attribute(a.column, a.path[1:]))
            for n, a in relation.right
            if len(a.path) == 1 and n in names
        }
        self._asked = {c for pair in noisy.moments.together for c in pair}

    # -- what was asked, and what the copy has ---------------------------------------------------------------------

    def bring(self) -> Found | None:
        state, relation, order = self._state, self._relation, self._order
        links = state.links[relation.table, relation.key]
        owner = links[self._rows]
        time = None if self._code is None else order.times(self._code, self._rng)
        kept = self._in_common(owner)
        if self._gaps is not None and time is not None and self._gaps.stand_out(self._steps(owner, time)):
            owner, time = self._dealt(owner, time)
        found = None
        before: tuple[FloatArray, FloatArray] | None = None
        for _ in range(TURNS):
            placed, which = self._placed(owner, time)
            now = self._now(placed)
            before = before or now
            lacks = self._lacking(placed, now, before)
            found = found or lacks[0].real
            if not any(one.real.factors for one in lacks):
                break
            owner, time = self._exchanged(placed, which, time, (lacks[0].missing, lacks[1].missing), kept)
        links[self._rows] = owner
        if time is not None:
            exact = np.zeros(len(links), dtype=np.int64)
            exact[self._rows] = np.nan_to_num(time).astype(np.int64)
            rest = np.flatnonzero(links < 0)
            exact[rest] = np.nan_to_num(order.times(state.codes[relation.table][order.by][rest], self._rng))
            state.codes[relation.table][exactly(order.by)] = exact
        return found

    def _placed(self, owner: IntArray, time: FloatArray | None) -> tuple[OrderedRows, IntArray]:
        other = {n: v[owner] for n, v in self._theirs.items()}
        if self._code is not None:
            other[self._order.by] = self._code
        return self._order.placed(self._own, other, owner, time, self._gaps)

    @property
    def _scale(self) -> float:
        return self._shown_rows / self._measured

    @cached_property
    def _shown(self) -> FloatArray:
        """Share of each owner's rows that bounds show."""
        state, relation = self._state, self._relation
        counted = np.bincount(
            state.links[relation.table, relation.key][self._rows], minlength=state.rows[relation.target]
        )
        bound = state.plan.promise.bounds[relation.table, relation.key]
        return np.asarray(np.minimum(counted, bound) / np.maximum(counted, 1))

    @cached_property
    def _shown_rows(self) -> float:
        return float(self._shown[self._state.links[self._relation.table, self._relation.key][self._rows]].sum())

    def _vectors(self, placed: OrderedRows, names: tuple[str, ...]) -> CodedVectors:
        shares = dict(self._noisy.moments.centres)
        return CodedVectors.of([placed.codes[n] for n in names], [shares[n] for n in names], len(placed.owner))

    def _names(self, of: Mapping[str, object]) -> tuple[str, ...]:
        return tuple(n for n in of if n in self._asked)

    def _now(self, placed: OrderedRows) -> tuple[FloatArray, FloatArray]:
        """Moments of the copy as it is: of rows and those before, and of both with gaps."""
        own, before, gap = (self._names(x) for x in (placed.own, placed.before, placed.gap))
        shown, x = self._shown[placed.owner], self._vectors(placed, own)
        pairs = _together(x, self._vectors(placed, before), shown)
        both = self._vectors(placed, (*own, *before))
        return pairs, _together(both, self._vectors(placed, gap), shown) if gap else np.zeros((len(both.centre), 0))

    def _lacking(
        self, placed: OrderedRows, now: tuple[FloatArray, FloatArray], before: tuple[FloatArray, FloatArray]
    ) -> tuple[_Lacking, _Lacking]:
        """What of the measured moments the copy lacks. What stands out of the noise is judged by the copy as it was
        ``before`` anything was exchanged, as for siblings (:mod:`dpweave.weaving.unit_composition`).
        """
        own, earlier, gap = (self._names(x) for x in (placed.own, placed.before, placed.gap))
        lost, moments, sigma = self._clipped(placed).lost, self._noisy.moments, self._noisy.sigma * self._scale
        found = []
        for rows, columns, got, had in zip((own, (*own, *earlier)), (earlier, gap), now, before, strict=True):
            asked, gone = (matrix(moments, v, rows, columns) for v in (self._noisy.values * self._scale, lost))
            real = beyond_noise(asked + gone - had, sigma)
            more = got - had
            found.append(_Lacking(real, (real.matrix - more) / kept_by_the_clip(more, gone)))
        return found[0], found[1]

    def _clipped(self, placed: OrderedRows) -> Clipped:
        """What the clip would do to the moments of the copy, by what it does to some units."""
        state, relation = self._state, self._relation
        above = state.position(relation.target, [k for _, k in state.plan.promise.chain(relation.target)])
        units = above[placed.owner]
        every = np.unique(units)
        some = np.flatnonzero(units <= every[min(len(every), OWNERS_LOOKED_AT) - 1])
        some = some[np.lexsort((placed.owner[some], units[some]))]
        codes = {n: placed.codes[n][some] for n, _ in self._noisy.moments.centres}
        bound = state.plan.promise.bounds[relation.table, relation.key]
        found = Clipped.of(units[some], placed.owner[some], codes, self._noisy.moments, bound=bound)
        return found.times(len(every) / max(min(len(every), OWNERS_LOOKED_AT), 1))

    # -- places ----------------------------------------------------------------------------------------------------

    def _steps(self, owner: IntArray, time: FloatArray) -> IntArray:
        """Gaps between the copy's rows, -1 where there is none."""
        order = np.lexsort((time, owner))
        owner, time = owner[order], time[order]
        has = np.append(False, owner[1:] == owner[:-1]) & ~np.isnan(time)
        return np.where(has, np.diff(np.nan_to_num(time), prepend=0.0), -1.0).astype(np.int64)

    def _with(self, names: tuple[str, ...]) -> FloatArray:
        """What was found about how codes of some columns go with gaps, beyond noise, as shares of all rows."""
        if not names or not {self._order.gap, *names} <= self._asked:
            return np.zeros((0, len(self._gaps.groups) if self._gaps else 0))
        values = matrix(self._noisy.moments, self._noisy.values, names, (self._order.gap,))
        return beyond_noise(values, self._noisy.sigma).matrix / self._measured

    def _dealt(self, owner: IntArray, time: FloatArray) -> tuple[IntArray, FloatArray]:
        """Make places, and give each a row of its bin."""
        assert self._gaps is not None
        assert self._code is not None
        here = np.flatnonzero(~np.isnan(time))
        if not len(here):
            return owner, time
        total = np.bincount(owner[here], time[here], minlength=len(self._shown))
        count = np.bincount(owner[here], minlength=len(self._shown))
        mean = total / np.maximum(count, 1)
        whose = np.repeat(np.arange(len(count)), count)
        nth = running_number(whose)
        since = self._since(whose, nth)
        half = (np.bincount(whose, since, minlength=len(count)) / np.maximum(count, 1))[count > 0]
        begins = np.zeros(len(count))
        begins[count > 0] = self._begins(mean[count > 0] - half, time[here])
        raw = begins[whose] + since
        # The k-th place of all gets a row of the bin of the k-th row.
        by_time, place = here[np.argsort(time[here], kind="stable")], np.argsort(raw, kind="stable")
        moment = _bent(raw[place], time[by_time], self._bins())
        code = self._code[by_time]
        row = _given(code, whose[place], owner[by_time], self._kind, self._rng)
        owner, time = owner.copy(), time.copy()
        owner[by_time[row]], time[by_time[row]] = whose[place], moment
        return owner, time

    @cached_property
    def _kind(self) -> IntArray:
        return alike(list(self._theirs.values()), len(self._shown))

    def _bins(self) -> FloatArray:
        codec = self._order.codec(self._order.by)
        assert isinstance(codec.domain, Bins)
        return np.array([float(to_axis(codec.column.type, e)) for e in codec.domain.edges])

    def _since(self, whose: IntArray, nth: IntArray) -> FloatArray:
        """How long after its owner's first place each place is."""
        assert self._gaps is not None
        groups = len(self._gaps.groups) - 1
        shares = np.array(self._gaps.group_shares[:groups])
        names = tuple(n for n in self._theirs if n in self._asked)
        beyond, at, odds = self._with(names), 0, np.tile(shares / max(shares.sum(), 1e-300), (len(self._shown), 1))
        for name in names:
            centre = np.array(dict(self._noisy.moments.centres)[name])
            more = beyond[at : at + len(centre), :groups] / np.maximum(centre, 1 / self._measured)[:, None]
            odds += more[self._theirs[name]]
            at += len(centre)
        odds = np.cumsum(np.maximum(odds, 0.0), axis=1)
        odds /= np.maximum(odds[:, -1:], 1e-300)
        drawn = (self._rng.random(len(whose))[:, None] > odds[whose]).sum(axis=1)
        gap = np.where(nth > 0, self._gaps.drawn(np.minimum(drawn, groups - 1), self._rng), 0)
        total = np.cumsum(gap.astype(np.float64))
        first = np.flatnonzero(nth == 0)
        return total - np.repeat(total[first], np.diff(np.append(first, len(whose))))

    def _begins(self, wanted: FloatArray, times: FloatArray) -> FloatArray:
        """When owners begin: in the order of what is ``wanted``, at times as they were measured, if these are seen."""
        by = self._order.by
        beyond = self._with((by,))
        if not beyond.any() or self._gaps is None:
            return wanted
        centre = np.array(dict(self._noisy.moments.centres)[by])
        first = np.maximum(beyond[:, -1] / max(self._gaps.group_shares[-1], 1e-300) + centre, 0.0)
        if not first.any():
            return wanted
        codes = self._rng.choice(len(first), len(wanted), p=first / first.sum())
        drawn = self._order.times(codes, self._rng)
        drawn = np.where(np.isnan(drawn), self._rng.choice(times, len(drawn)), drawn)
        out = np.empty(len(wanted))
        out[np.argsort(wanted, kind="stable")] = np.sort(drawn)
        return out

    # -- exchange --------------------------------------------------------------------------------------------------

    def _in_common(self, owner: IntArray) -> SiblingMoments | None:
        """What rows of one owner have in common before they move, which is to stay."""
        names = self._names(self._own)
        if self._code is None or not names:
            return None
        shares = dict(self._noisy.moments.centres)
        theirs = self._names(self._theirs)
        x = CodedVectors.of([self._own[n] for n in names], [shares[n] for n in names], len(self._rows))
        y = CodedVectors.of([self._theirs[n] for n in theirs], [shares[n] for n in theirs], len(self._shown))
        return SiblingMoments.of(x, y, owner, self._shown)

    def _exchanged(
        self,
        placed: OrderedRows,
        which: IntArray,
        time: FloatArray | None,
        missing: tuple[FloatArray, FloatArray],
        kept: SiblingMoments | None,
    ) -> tuple[IntArray, FloatArray | None]:
        """Let rows of one bin, or of one owner where there are no bins, exchange places."""
        own, before, gap = (self._names(x) for x in (placed.own, placed.before, placed.gap))
        nothing = [np.array([self._order.codec(self._order.before[n]).optional.null_code]) for n in before]
        shares = dict(self._noisy.moments.centres)
        x = self._vectors(placed, own)
        y = CodedVectors.of(
            [np.append(placed.own[self._order.before[n]], none) for n, none in zip(before, nothing, strict=True)],
            [shares[n] for n in before],
            len(which) + 1,
        )
        apart = np.append(False, placed.owner[1:] == placed.owner[:-1])
        if time is not None:
            apart &= ~np.isnan(time[which])
        places = Places.of(placed.owner, apart, self._vectors(placed, gap), self._shown)
        stay = None
        if kept is not None:
            now = SiblingMoments.of(x, kept.y, placed.owner, self._shown)
            stay = now.aiming_at(kept.off - now.off, kept.off_owners - now.off_owners, weight=1.0)
        group = placed.owner if self._code is None else self._code[which]
        moments = OrderMoments.of(x, y, places, group, stay, *missing)
        ends = exchange_for_order(moments, rng=self._rng)
        owner = np.empty_like(which)
        owner[which] = placed.owner[ends]
        if time is None:
            self._reorder(which, ends)
            return owner, None
        moved = np.empty_like(time)
        moved[which] = time[which][ends]
        return owner, moved

    def _reorder(self, which: IntArray, ends: IntArray) -> None:
        """Put rows of one owner, which are numbered as they lie, where their places are."""
        table = self._relation.table
        rows = self._rows[which]
        for codes in self._state.codes[table].values():
            codes[rows[ends]] = codes[rows].copy()
        self._own = {n: self._state.codes[table][n][self._rows].astype(np.int64) for n in self._order.own}


def _together(x: CodedVectors, y: CodedVectors, shown: FloatArray) -> FloatArray:
    out = np.zeros((len(x.centre), len(y.centre)))
    for some in x.blocks():
        out += (x.at(some) * shown[some][:, None]).T @ y.at(some)
    return out


def _bent(raw: FloatArray, wanted: FloatArray, bins: FloatArray) -> FloatArray:
    """Bend ``raw`` times, which ascend, to those ``wanted``, which do too: alike at some knots and at the edges of
    bins, and in proportion between.

    >>> _bent(np.array([0.0, 1.0, 2.0, 10.0]), np.array([5.0, 6.0, 7.0, 8.0]), np.array([5.0, 9.0])).tolist()
    [5.0, 6.0, 7.0, 8.0]
    """
    n = len(raw)
    knots = np.unique(
        np.concatenate(
            [[0, n - 1], np.searchsorted(wanted, bins), np.linspace(0, n - 1, chosen.FINE_CELLS).astype(np.int64)]
        )
    )
    knots = knots[(knots >= 0) & (knots < n)]
    before, after = raw[knots], wanted[knots]
    fresh = np.append(True, np.diff(before) > 0)
    bent = np.interp(raw, before[fresh], after[fresh])
    bin_ = np.clip(np.searchsorted(bins, wanted, side="right") - 1, 0, len(bins) - 2)
    return np.asarray(np.clip(np.floor(bent), bins[bin_], np.maximum(bins[bin_ + 1] - 1, bins[bin_])))


def _given(code: IntArray, places: IntArray, rows: IntArray, kind: IntArray, rng: np.random.Generator) -> IntArray:
    """Which row each place gets, of the same code: one of its own owner, else of one of the same kind, else any."""
    row = np.full(len(code), -1, dtype=np.int64)
    by_chance = rng.random(len(code))
    free_places, free_rows = np.arange(len(code)), np.arange(len(code))
    for label in (np.arange(len(kind)), kind, np.zeros_like(kind)):
        a, b = (
            _numbered(code[free], label[of[free]], by_chance[free])
            for free, of in ((free_places, places), (free_rows, rows))
        )
        _, i, j = np.intersect1d(a, b, assume_unique=True, return_indices=True)
        row[free_places[i]] = free_rows[j]
        free_places, free_rows = np.delete(free_places, i), np.delete(free_rows, j)
    return row


def _numbered(code: IntArray, label: IntArray, by_chance: FloatArray) -> IntArray:
    """One number for each, the same in two lists for the n-th that has the same code and label."""
    same = code * (int(label.max(initial=0)) + 1) + label
    order = np.lexsort((by_chance, same))
    nth = np.empty(len(code), dtype=np.int64)
    nth[order] = running_number(same[order])
    return same * (1 << 31) + nth
