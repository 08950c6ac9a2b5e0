"""Which rows come together in one unit: those that have in common what rows of one owner have, and those that lead to
each other there (a household has the father of its child).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from dpweave.arrays import running_number
from dpweave.links.link_fit import LinkFit
from dpweave.links.row_types import RowTypes
from dpweave.links.wiring.exchange import Effort, exchange
from dpweave.links.wiring.exchange_for_siblings import CodedVectors, Levels, SiblingMoments, exchange_for_siblings
from dpweave.links.wiring.unit_members import Members, Moves, Seekers, choose_members, draw_partners
from dpweave.links.wiring.wire import wire
from dpweave.links.wiring.within_groups import UnitGroups, assign_within_groups
from dpweave.measure.per_unit.sibling_moments import (
    OWNERS_LOOKED_AT,
    TURNS,
    Clipped,
    Found,
    Matrices,
    beyond_noise,
    kept_by_the_clip,
    matrices,
    symmetric_beyond_noise,
)
from dpweave.schema.domain import Attribute
from dpweave.weaving.kept_rules.acyclic_keys import ordered_codes, time_along_links
from dpweave.weaving.key_targets import alike

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.link_method import LinkProblem
    from dpweave.links.wiring.exchange import Exchanges
    from dpweave.links.wiring.unit_members import LogOddsTable
    from dpweave.plan.relations import Relation
    from dpweave.privacy.window import NoisyMoments
    from dpweave.weaving.state import Mask, WeavingState

    Fits = Mapping[tuple[str, str], object]

_EFFORT = Effort(rounds=6, patience=0)
"""At most so many rows may leave one unit for want of room."""


def shuffle_among_alike(state: WeavingState, relation: Relation) -> None:
    """Let rows change places at random between owners that agree in all columns, so that no owner has more of a mix
    than chance gives: rounding deals rows of one kind out evenly. Counts over rows and owners stay as they are.
    """
    links = state.links[relation.table, relation.key]
    rows = np.flatnonzero(links >= 0)
    columns = [state.seen(relation.target, Attribute(a.column, a.path[1:])) for _, a in relation.right]
    kind = alike(columns, state.rows[relation.target])[links[rows]]
    by_chance = state.rng("shuffle", relation.table, relation.key).random(len(rows))
    links[rows[np.argsort(kind, kind="stable")]] = links[rows[np.lexsort((by_chance, kind))]]


def bring_siblings(
    state: WeavingState,
    relation: Relation,
    siblings: NoisyMoments,
    cousins: NoisyMoments | None = None,
    *,
    measured: float,
    compose: bool = True,
) -> tuple[Found, ...]:
    """Let rows exchange owners as far as noise lets it be seen that rows of one owner have something in common, and
    those of one unit, the ``cousins``.

    ``measured`` is the number of real rows in the moments. Every owner keeps its number of rows, every row its values.
    What the clip took from real units is what it would take from the copy's. Returns what real rows have in common,
    level by level; nothing without rows. If not to ``compose``, that is all it does.
    """
    links = state.links[relation.table, relation.key]
    rows = np.flatnonzero(links >= 0)
    if len(rows) < 2:
        return ()
    levels = [_Level.of_owners(state, relation, rows, siblings, measured=measured)]
    if cousins is not None:
        levels.append(_Level.of_units(state, relation, rows, cousins, measured=measured))
    rng = state.rng("siblings", relation.table, relation.key)
    looks: list[_Look] = []
    for _ in range(TURNS):
        earlier: Sequence[_Look | None] = looks or [None] * len(levels)
        looks = [level.look(state, relation, rows, first) for level, first in zip(levels, earlier, strict=True)]
        each = [
            (look.aim, level.above, (looks[0].off / look.off) ** 2)
            for level, look in zip(levels, looks, strict=True)
            if look.aim is not None
        ]
        if not (each and compose):
            break
        alone = len(levels) == 1
        moments = each[0][0] if alone else Levels(tuple(each))
        links[rows] = exchange_for_siblings(links[rows], (), moments, rng=rng)
    return tuple(look.real for look in looks)


class _Look(NamedTuple):
    """What rows have in common on one level: in the data, how far off numbers may be, and what the copy lacks; and what
    the copy had before anything was exchanged.
    """

    real: Found
    off: float
    aim: SiblingMoments | None
    before: Matrices


@dataclass(frozen=True)
class _Level:
    """Rows with their owners, or with their owners' own: what was measured there."""

    x: CodedVectors
    y: CodedVectors
    above: IntArray
    """The owner on this level of each direct one."""
    shown: FloatArray
    noisy: NoisyMoments
    scale: float
    """Rows of the copy for each that was asked about."""
    bound: int
    """How many rows of one owner were looked at, at most."""

    @classmethod
    def of_owners(
        cls, state: WeavingState, relation: Relation, rows: IntArray, noisy: NoisyMoments, *, measured: float
    ) -> Self:
        """Rows with their owners."""
        target, right, centres = relation.target, dict(relation.right), noisy.moments.centres
        theirs = [(right[n], shares) for n, shares in centres if n in right]
        y = [state.seen(target, Attribute(a.column, a.path[1:])) for a, _ in theirs]
        shown, scale = _shown(state, relation, rows, measured)
        return cls(
            _vectors(state, relation, rows, noisy),
            CodedVectors.of(y, [s for _, s in theirs], state.rows[target]),
            np.arange(state.rows[target]),
            shown,
            noisy,
            scale,
            state.plan.promise.bounds[relation.table, relation.key],
        )

    @classmethod
    def of_units(
        cls, state: WeavingState, relation: Relation, rows: IntArray, noisy: NoisyMoments, *, measured: float
    ) -> Self:
        """Rows with their units; those that belong to none have one of their own that counts for nothing."""
        promise = state.plan.promise
        root = promise.root(relation.table)
        above = state.units(relation.target)
        above = np.where(above >= 0, above, state.rows[root])
        by_owner, scale = _shown(state, relation, rows, measured)
        owner = state.links[relation.table, relation.key][rows]
        count = np.bincount(above[owner], minlength=state.rows[root] + 1)
        shown = np.bincount(above[owner], by_owner[owner], minlength=len(count)) / np.maximum(count, 1)
        shown[-1] = 0.0
        return cls(
            _vectors(state, relation, rows, noisy),
            CodedVectors.of([], [], len(shown)),
            above,
            shown,
            noisy,
            scale,
            promise.owned_rows(root, relation.table),
        )

    def look(self, state: WeavingState, relation: Relation, rows: IntArray, earlier: _Look | None) -> _Look:
        """Compare the copy with what was measured.

        What stands out of the noise is what the data have beyond the copy as it was before anything was exchanged. Of
        that the copy lacks what it has not got yet, however little: a threshold for what is left would keep a part of
        every effect from it.
        """
        moments, own = self.noisy.moments, len(self.x.centre)
        links = state.links[relation.table, relation.key]
        now = SiblingMoments.of(self.x, self.y, self.above[links[rows]], self.shown)
        before = Matrices(now.off, now.off_owners) if earlier is None else earlier.before
        clipped = self._clipped(state, relation, rows)
        lost = matrices(moments, clipped.lost, own)
        asked, sigma = matrices(moments, self.noisy.values * self.scale, own), self.noisy.sigma * self.scale
        off = math.hypot(sigma, clipped.chance(moments))  # units are a sample, too
        siblings = symmetric_beyond_noise(asked.siblings + lost.siblings - before.siblings, off)
        owners = beyond_noise(asked.owners + lost.owners - before.owners, sigma * moments.scale)
        aim = None
        if siblings.factors or owners.factors:
            got = now.off - before.siblings
            missing = (siblings.matrix - got) / kept_by_the_clip(got, lost.siblings)
            aim = now.aiming_at(missing, owners.matrix - (now.off_owners - before.owners), weight=moments.scale**-2)
        return _Look(symmetric_beyond_noise(asked.siblings + lost.siblings, off), off, aim, before)

    def _clipped(self, state: WeavingState, relation: Relation, rows: IntArray) -> Clipped:
        """What the clip would do to the moments of the copy, by what it does to some units."""
        moments = self.noisy.moments
        units = state.units(relation.table)[rows]
        owners = self.above[state.links[relation.table, relation.key][rows]]
        every = np.unique(units)
        some = np.flatnonzero(units <= every[min(len(every), OWNERS_LOOKED_AT) - 1])
        some = some[np.lexsort((owners[some], units[some]))]
        left, right = dict(relation.left), dict(relation.right)
        seen = {n: left[n] if n in left else right[n] for n, _ in moments.centres}
        codes = {n: state.seen(relation.table, a)[rows[some]] for n, a in seen.items()}
        found = Clipped.of(units[some], owners[some], codes, moments, bound=self.bound)
        return found.times(len(every) / max(min(len(every), OWNERS_LOOKED_AT), 1))


def _vectors(state: WeavingState, relation: Relation, rows: IntArray, noisy: NoisyMoments) -> CodedVectors:
    left = dict(relation.left)
    own = [(state.seen(relation.table, left[n])[rows], s) for n, s in noisy.moments.centres if n in left]
    return CodedVectors.of([c for c, _ in own], [s for _, s in own], len(rows))


def _shown(state: WeavingState, relation: Relation, rows: IntArray, measured: float) -> tuple[FloatArray, float]:
    """Share of each owner's rows that bounds show, and how many such rows there are for each of the ``measured``."""
    links = state.links[relation.table, relation.key][rows]
    counted = np.bincount(links, minlength=state.rows[relation.target])
    shown = np.minimum(counted, state.plan.promise.bounds[relation.table, relation.key]) / np.maximum(counted, 1)
    return shown, float((shown * counted).sum()) / measured


def make_room(state: WeavingState, own: Relation, fits: Fits) -> None:
    """Let rows that will lead to others within their unit exchange places with others
    until there is a row for each of their keys.

    ``own`` is the relation of rows to their owners. Every unit keeps its number of
    rows; who exchanges places is drawn by what is known of rows and owners.
    """
    owners = state.links[own.table, own.key]
    keys = state.plan.compile().table[own.table].unit_keys
    seeks = np.zeros((len(owners), len(keys)), dtype=bool)
    for k, key in enumerate(keys):
        seeks[state.with_target(own.table, key), k] = True
    units = state.rows[state.plan.database[own.table].key[own.key].target]
    log_odds = partial(_log_odds, state, own, fits)
    found = exchange(
        owners, (), RoomInUnits.of(owners, seeks, units, log_odds), effort=_EFFORT, rng=state.rng("room", own.table)
    )
    state.links[own.table, own.key] = found.ends


@dataclass(frozen=True)
class RoomInUnits:
    """Every unit shall have as many rows that seek no target as there are keys by which its other rows do.

    Rows that ``seek`` by a key leave units that are short of such rows, for units that still have enough then.
    """

    seeks: Mask
    """For each row and key."""
    log_odds: LogOddsTable
    """Of some rows and some owners, a row and a column for each."""
    seeking: IntArray
    """How many rows of each unit seek by each key, units by keys."""
    others: IntArray
    """How many rows of each unit seek nothing."""

    @classmethod
    def of(cls, owners: IntArray, seeks: Mask, units: int, log_odds: LogOddsTable) -> Self:
        """Count rows by their owners, -1 for none."""
        owned = np.flatnonzero(owners >= 0)
        seeking = np.zeros((units, seeks.shape[1]), dtype=np.int64)
        np.add.at(seeking, owners[owned], seeks[owned])
        none = owned[~seeks[owned].any(axis=1)]
        return cls(seeks, log_odds, seeking, np.bincount(owners[none], minlength=units))

    @property
    def _short(self) -> IntArray:
        return _shortage(self.seeking, self.others)

    @property
    def loss(self) -> float:
        """How many rows are missing."""
        return float(self._short.sum())

    def propose(self, ends: IntArray, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """One row of each unit that is short, and one of other units, drawn for each other."""
        owned, short = np.flatnonzero(ends >= 0), self._short > 0
        seeks = self.seeks[owned].any(axis=1)
        leaving = _one_of_each(owned[seeks & short[ends[owned]]], ends, rng)
        coming = _one_of_each(owned[~seeks & ~short[ends[owned]]], ends, rng)
        there = ends[coming]

        def log_odds(i: IntArray, j: IntArray) -> FloatArray:
            one, other = leaving[i], coming[j]
            both = self.log_odds(one, ends[other]) + self.log_odds(other, ends[one]).T
            keys = [self.seeks[one, k][:, None] | (self.seeking[there[j], k] > 0) for k in range(self.seeks.shape[1])]
            # Without the row that comes, its unit must still have one for each key.
            return np.where(np.sum(keys, axis=0) < self.others[there[j]], both, -np.inf)

        partner = draw_partners(len(leaving), len(coming), log_odds, rng=rng)
        return leaving, np.append(coming, -1)[partner]

    def change(self, some: Exchanges) -> FloatArray:
        """How many rows more are missing in both units."""
        change = np.zeros(len(some.one))
        for unit, goes, comes in ((some.ends, some.one, some.two), (some.others, some.two, some.one)):
            come, go = (self.seeks[rows].astype(np.int64) for rows in (comes, goes))
            others = self.others[unit] + ~come.any(axis=1) - 1 * ~go.any(axis=1)
            change += _shortage(self.seeking[unit] + come - go, others) - self._short[unit]
        return change

    def conflicts(self, some: Exchanges) -> IntArray:
        """A unit takes part once."""
        return np.stack([some.ends, some.others], axis=1)

    def most(self, some: Exchanges) -> int:
        """All of them."""
        return len(some.one)

    def after(self, some: Exchanges) -> tuple[Self, float]:
        """Changes of different units add up."""
        seeking, others = self.seeking.copy(), self.others.copy()
        for unit, rows, sign in (
            (some.others, some.one, 1), (some.ends, some.two, 1), (some.ends, some.one, -1), (some.others, some.two, -1)
        ):  # fmt: skip
            np.add.at(seeking, unit, sign * self.seeks[rows].astype(np.int64))
            np.add.at(others, unit, sign * ~self.seeks[rows].any(axis=1))
        return replace(self, seeking=seeking, others=others), float(self.change(some).sum())


def _shortage(seeking: IntArray, others: IntArray) -> IntArray:
    return np.asarray(np.maximum((seeking > 0).sum(axis=1) - others, 0))


def _one_of_each(rows: IntArray, owners: IntArray, rng: np.random.Generator) -> IntArray:
    """One of some rows for each owner, at random."""
    rows = rng.permutation(rows)
    return rows[np.unique(owners[rows], return_index=True)[1]]


def move_in(state: WeavingState, relation: Relation, fits: Fits, problem: LinkProblem, rows: IntArray) -> None:
    """Give units of which some ``rows`` lead to others within them a row that suits
    these, and its place to the one it replaces.

    Only rows move that lead to nobody within their unit and that nobody is led to yet.
    """
    name, fit, groups = relation.table, fits.get((relation.table, relation.key)), problem.units
    compiled = state.plan.compile()
    own = compiled.relation[name, state.plan.promise.owning[name]]
    owners = state.links[name, own.key]
    free = owners >= 0
    for other in compiled.table[name].unit_keys:
        free[state.with_target(name, other)] = False
        led = state.links[name, other] if (name, other) in state.links and other != relation.key else owners[:0]
        free[led[led >= 0]] = False
    if not isinstance(fit, LinkFit) or not fit.theta or groups is None or not free.any():
        return
    rng = state.rng("members", name, relation.key)
    left, right = Seekers(problem.left, groups.left), Members(problem.right, owners, np.flatnonzero(free))
    found = choose_members(fit, left, right, rng=rng)
    if state.plan.table[name].key[relation.key].acyclic:
        found = _in_time(fit, left, right, rows, found, ordered_codes(state, name), rng=rng)
    gone, places = np.setdiff1d(found.leaves, found.comes), owners[np.setdiff1d(found.comes, found.leaves)]
    owners[found.comes] = owners[found.leaves]
    owners[gone] = places[dealt(state, own, fits, gone, places, rng)]
    links = state.links[name, relation.key]
    links[rows] = _led_to(found, groups.left)
    room = _kept_bound(state, relation, links)
    alone = np.flatnonzero(links[rows] < 0)
    where = UnitGroups(groups.left[alone], owners, rows[alone])
    log_odds = partial(fit.log_odds_of_pairs, {c: v[alone] for c, v in problem.left.items()}, problem.right)
    links[rows[alone]] = assign_within_groups(where, bound=room, rng=rng, log_odds=log_odds)


def _led_to(found: Moves, units: IntArray) -> IntArray:
    """The row that came into each of some units, or -1."""
    order = np.argsort(found.unit)
    at = np.minimum(np.searchsorted(found.unit[order], units), len(order) - 1)
    there = found.unit[order][at] == units if len(order) else np.zeros(len(units), dtype=bool)
    return np.where(there, found.comes[order][at], -1) if len(order) else np.full(len(units), -1, dtype=np.int64)


def _in_time(
    fit: LinkFit,
    left: Seekers,
    right: Members,
    rows: IntArray,
    found: Moves,
    columns: list[IntArray],
    *,
    rng: np.random.Generator,
) -> Moves:
    """Let units choose anew whose rows would lead to one that does not come before
    them, where a column says what does (:mod:`dpweave.weaving.kept_rules.acyclic_keys`).
    """
    target, links = _led_to(found, left.unit), np.full(len(right.unit), -1, dtype=np.int64)
    links[rows] = target
    time = time_along_links(columns, [links], rng)
    if time is None:
        return found
    wrong = np.unique(left.unit[(target >= 0) & (time[target] >= time[rows])])
    fine, again = ~np.isin(found.unit, wrong), np.isin(left.unit, wrong)
    kept = Moves(*(x[fine] for x in found))
    seekers = Seekers({c: v[again] for c, v in left.columns.items()}, left.unit[again], time[rows[again]])
    members = right._replace(free=np.setdiff1d(right.free, kept.comes), time=time)
    return Moves(*map(np.append, kept, choose_members(fit, seekers, members, rng=rng)))


def _kept_bound(state: WeavingState, relation: Relation, links: IntArray) -> IntArray | None:
    """Let links beyond the bound of their target lead nowhere, and return how many more
    each row may have; None without a bound.
    """
    name, key = relation.table, state.plan.table[relation.table].key[relation.key]
    bound = 1 if state.plan.database[name].is_unique(key.key.columns) else key.max_degree
    if bound is None:
        return None
    most = np.broadcast_to(state.room(name, key.key, bound), state.rows[name])
    order = np.argsort(links, kind="stable")
    over = order[running_number(links[order]) >= most[links[order]]]
    links[over] = -1
    return np.asarray(most - np.bincount(links[links >= 0], minlength=state.rows[name]))


def _types(
    state: WeavingState, own: Relation, fit: LinkFit, rows: IntArray, owners: IntArray
) -> tuple[RowTypes, RowTypes]:
    """Some rows and some owners by what the fit knows of them."""
    target = state.plan.database[own.table].key[own.key].target
    left = {n: state.seen(own.table, a)[rows] for n, a in own.left if n in fit.left}
    right = {n: state.seen(target, Attribute(a.column, a.path[1:]))[owners] for n, a in own.right if n in fit.right}
    return (
        RowTypes.of(left, tuple(left), shape=fit.shape, rows=len(rows)),
        RowTypes.of(right, tuple(right), shape=fit.shape, rows=len(owners)),
    )


def _log_odds(state: WeavingState, own: Relation, fits: Fits, rows: IntArray, owners: IntArray) -> FloatArray:
    """Log-odds of some rows and some owners, as far as they were learned."""
    fit = fits.get((own.table, own.key))
    if not isinstance(fit, LinkFit):
        return np.zeros((len(rows), len(owners)))
    left, right = _types(state, own, fit, rows, owners)
    return fit.log_odds(left, right)[left.of_row][:, right.of_row]


def dealt(
    state: WeavingState, own: Relation, fits: Fits, rows: IntArray, owners: IntArray, rng: np.random.Generator
) -> IntArray:
    """Deal places at some owners to as many rows, by what is known of both; returns which place each row has."""
    fit = fits.get((own.table, own.key))
    if not isinstance(fit, LinkFit) or not len(rows):
        return rng.permutation(len(rows))
    left, right = _types(state, own, fit, rows, owners)
    one = np.ones(len(rows), dtype=np.int64)
    pairs = wire(fit.weights, left, right, left_degrees=one, right_degrees=one, rng=rng)
    return np.asarray(pairs[np.argsort(pairs[:, 0]), 1])
