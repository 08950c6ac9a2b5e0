"""Which rows come together in one unit: those that have in common what rows of one owner have, and those that lead to
each other there (a household has the father of its child).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Self

import numpy as np

from dpweave.arrays import running_number
from dpweave.links.link_fit import LinkFit
from dpweave.links.row_types import RowTypes
from dpweave.links.wiring.exchange import Effort, exchange
from dpweave.links.wiring.exchange_for_siblings import CodedVectors, SiblingMoments, exchange_for_siblings
from dpweave.links.wiring.unit_members import Members, Moves, Seekers, choose_members, draw_partners
from dpweave.links.wiring.wire import wire
from dpweave.links.wiring.within_groups import UnitGroups, assign_within_groups
from dpweave.measure.per_unit.sibling_moments import (
    OWNERS_LOOKED_AT,
    Clipped,
    Found,
    beyond_noise,
    matrices,
    symmetric_beyond_noise,
)
from dpweave.schema.domain import Attribute
from dpweave.weaving.kept_rules.acyclic_keys import ordered_codes, time_along_links
from dpweave.weaving.key_targets import alike

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.link_method import LinkProblem
    from dpweave.links.wiring.exchange import Exchanges
    from dpweave.links.wiring.unit_members import LogOddsTable
    from dpweave.plan.relations import Relation
    from dpweave.privacy.window import NoisyMoments, UnitMoments
    from dpweave.weaving.state import Mask, WeavingState

    Fits = Mapping[tuple[str, str], object]

_TURNS = 3
"""How often rows are exchanged for siblings: after a turn, the clip would take something else from the copy."""
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


def bring_siblings(state: WeavingState, relation: Relation, noisy: NoisyMoments, *, measured: float) -> Found | None:
    """Let rows exchange owners as far as noise lets it be seen that rows of one owner have something in common.

    ``measured`` is the number of real rows in the moments. Every owner keeps its number of rows, every row its values.
    What the clip took from real units is what it would take from the copy's. Returns what real rows of one owner have
    in common; None without rows.
    """
    links = state.links[relation.table, relation.key]
    rows = np.flatnonzero(links >= 0)
    if len(rows) < 2:
        return None
    target = relation.target
    left, right = dict(relation.left), dict(relation.right)
    own = [(state.seen(relation.table, left[n])[rows], shares) for n, shares in noisy.moments.centres if n in left]
    theirs = [
        (state.seen(target, Attribute(right[n].column, right[n].path[1:])), shares)
        for n, shares in noisy.moments.centres
        if n in right
    ]
    x = CodedVectors.of([c for c, _ in own], [s for _, s in own], len(rows))
    y = CodedVectors.of([c for c, _ in theirs], [s for _, s in theirs], state.rows[target])
    counted = np.bincount(links[rows], minlength=state.rows[target])
    shown = np.minimum(counted, state.plan.promise.bounds[relation.table, relation.key]) / np.maximum(counted, 1)
    scale = float((shown * counted).sum()) / measured
    asked = matrices(noisy.moments, noisy.values * scale, len(x.centre))
    sigma = noisy.sigma * scale
    rng = state.rng("siblings", relation.table, relation.key)
    for _ in range(_TURNS):
        now = SiblingMoments.of(x, y, links[rows], shown)
        clipped = _clipped(state, relation, rows, noisy.moments)
        lost = matrices(noisy.moments, clipped.lost, len(x.centre))
        off = math.hypot(sigma, clipped.chance(noisy.moments))  # units are a sample, too
        siblings = symmetric_beyond_noise(asked.siblings - now.off + lost.siblings, off)
        owners = beyond_noise(asked.owners - now.off_owners + lost.owners, sigma * noisy.moments.scale)
        if not siblings.factors and not owners.factors:
            break
        moments = now.aiming_at(siblings.matrix, owners.matrix, weight=noisy.moments.scale**-2)
        links[rows] = exchange_for_siblings(links[rows], (), moments, rng=rng)
    return symmetric_beyond_noise(asked.siblings + lost.siblings, off)


def _clipped(state: WeavingState, relation: Relation, rows: IntArray, moments: UnitMoments) -> Clipped:
    """What the clip would do to the moments of the copy, by what it does to some units."""
    units, links = state.units(relation.table)[rows], state.links[relation.table, relation.key][rows]
    every = np.unique(units)
    some = np.flatnonzero(units <= every[min(len(every), OWNERS_LOOKED_AT) - 1])
    some = some[np.lexsort((links[some], units[some]))]
    left, right = dict(relation.left), dict(relation.right)
    codes = {n: state.seen(relation.table, left[n] if n in left else right[n])[rows[some]] for n, _ in moments.centres}
    bound = state.plan.promise.bounds[relation.table, relation.key]
    found = Clipped.of(units[some], links[some], codes, moments, bound=bound)
    return found.times(len(every) / max(min(len(every), OWNERS_LOOKED_AT), 1))


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
    owners[gone] = places[_dealt(state, own, fits, gone, places, rng)]
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


def _dealt(
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
