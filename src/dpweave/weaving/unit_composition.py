"""Which rows come together in one unit: those that lead to each other there (a
household has the father of its child).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dpweave.arrays import running_number
from dpweave.links.link_fit import LinkFit
from dpweave.links.row_types import RowTypes
from dpweave.links.wiring.unit_members import Claims, Seekers, Sitters, claim, matched
from dpweave.links.wiring.wire import wire
from dpweave.links.wiring.within_groups import UnitGroups, assign_within_groups
from dpweave.plan.relations import relations, seated_keys
from dpweave.schema.domain import Attribute
from dpweave.weaving.acyclic_keys import ordered_codes, told_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.link_method import LinkProblem
    from dpweave.plan.relations import Relation
    from dpweave.weaving.state import WeavingState

    Fits = Mapping[tuple[str, str], object]

_ROUNDS = 6
"""Rows that may leave one unit for want of room, at most."""


def make_room(state: WeavingState, own: Relation, fits: Fits) -> None:
    """Let rows that will lead to others within their unit exchange places with others
    until there is a row for each of their keys.

    ``own`` is the relation of rows to their owners. Every unit keeps its number of
    rows; who exchanges places is drawn by what is known of rows and owners.
    """
    name, owners = own.table, state.links[own.table, own.key]
    wants = np.zeros(state.rows[name], dtype=np.int64)
    for bit, key in enumerate(seated_keys(state.plan, name)):
        wants[state.with_target(name, key)] |= 1 << bit
    rng, owned = state.rng("room", name), np.flatnonzero(owners >= 0)
    seeking, others = owned[wants[owned] > 0], owned[wants[owned] == 0]
    units = state.rows[state.plan.database[name].key[own.key].target]
    for _ in range(_ROUNDS if len(seeking) else 0):
        free = np.bincount(owners[others], minlength=units)
        needed = np.zeros(units, dtype=np.int64)
        np.bitwise_or.at(needed, owners[seeking], wants[seeking])
        short = free < _count(needed)
        leaving = _one_of_each(seeking[short[owners[seeking]]], owners, rng)
        coming = _one_of_each(others[~short[owners[others]]], owners, rng)
        there = owners[coming]
        # Without the row that comes, its unit must still have one for each key.
        leans = partial(_exchanged, state, own, fits, leaving, coming, wants, needed[there], free[there] - 1)
        taken = matched(len(leaving), len(coming), leans, rng=rng)
        one, other = leaving[taken >= 0], coming[taken[taken >= 0]]
        owners[one], owners[other] = owners[other], owners[one]
        if not len(one):
            return


def _count(bits: IntArray) -> IntArray:
    """How many bits of each number are set."""
    out = np.zeros_like(bits)
    while bits.any():
        out, bits = out + (bits & 1), bits >> 1
    return out


def _one_of_each(rows: IntArray, owners: IntArray, rng: np.random.Generator) -> IntArray:
    """One of some rows for each owner, at random."""
    rows = rng.permutation(rows)
    return rows[np.unique(owners[rows], return_index=True)[1]]


def _exchanged(
    state: WeavingState,
    own: Relation,
    fits: Fits,
    leaving: IntArray,
    coming: IntArray,
    wants: IntArray,
    needed: IntArray,
    room: IntArray,
    i: IntArray,
    j: IntArray,
) -> FloatArray:
    """How rows ``i`` of those leaving and ``j`` of those coming lean to each other's owners."""
    owners, one, other = state.links[own.table, own.key], leaving[i], coming[j]
    there, back = _leans(state, own, fits, one, owners[other]), _leans(state, own, fits, other, owners[one])
    fits_in = _count(wants[one][:, None] | needed[j]) <= room[j]
    return np.where(fits_in, there + back.T, -np.inf)


def move_in(state: WeavingState, relation: Relation, fits: Fits, problem: LinkProblem, rows: IntArray) -> None:
    """Give units of which some ``rows`` lead to others within them a row that suits
    these, and its place to the one it replaces.

    Only rows move that lead to nobody within their unit and that nobody is led to yet.
    """
    name, fit, home = relation.table, fits.get((relation.table, relation.key)), problem.home
    own = next(r for r in relations(state.plan) if (r.table, r.key) == (name, state.plan.promise.owning[name]))
    owners = state.links[name, own.key]
    free = owners >= 0
    for other in seated_keys(state.plan, name):
        free[state.with_target(name, other)] = False
        led = state.links[name, other] if (name, other) in state.links and other != relation.key else owners[:0]
        free[led[led >= 0]] = False
    if not isinstance(fit, LinkFit) or not fit.theta or home is None or not free.any():
        return
    rng = state.rng("seats", name, relation.key)
    left, right = Seekers(problem.left, home.left), Sitters(problem.right, owners, np.flatnonzero(free))
    found = claim(fit, left, right, rng=rng)
    if state.plan.table[name].key[relation.key].acyclic:
        found = _in_time(fit, left, right, rows, found, ordered_codes(state, name), rng=rng)
    gone, places = np.setdiff1d(found.seat, found.taken), owners[np.setdiff1d(found.taken, found.seat)]
    owners[found.taken] = owners[found.seat]
    owners[gone] = places[_dealt(state, own, fits, gone, places, rng)]
    links = state.links[name, relation.key]
    links[rows] = _led_to(found, home.left)
    room = _kept_bound(state, relation, links)
    alone = np.flatnonzero(links[rows] < 0)
    where = UnitGroups(home.left[alone], owners, rows[alone])
    leans = partial(fit.leans, {c: v[alone] for c, v in problem.left.items()}, problem.right)
    links[rows[alone]] = assign_within_groups(where, bound=room, rng=rng, leans=leans)


def _led_to(found: Claims, units: IntArray) -> IntArray:
    """The row that took the seat which each of some units claimed, or -1."""
    order = np.argsort(found.unit)
    at = np.minimum(np.searchsorted(found.unit[order], units), len(order) - 1)
    there = found.unit[order][at] == units if len(order) else np.zeros(len(units), dtype=bool)
    return np.where(there, found.taken[order][at], -1) if len(order) else np.full(len(units), -1, dtype=np.int64)


def _in_time(
    fit: LinkFit,
    left: Seekers,
    right: Sitters,
    rows: IntArray,
    found: Claims,
    columns: list[IntArray],
    *,
    rng: np.random.Generator,
) -> Claims:
    """Let units choose anew whose rows would lead to one that does not come before
    them, where a column tells what does (:mod:`dpweave.weaving.acyclic_keys`).
    """
    target, links = _led_to(found, left.unit), np.full(len(right.unit), -1, dtype=np.int64)
    links[rows] = target
    time = told_time(columns, [links], rng)
    if time is None:
        return found
    wrong = np.unique(left.unit[(target >= 0) & (time[target] >= time[rows])])
    fine, again = ~np.isin(found.unit, wrong), np.isin(left.unit, wrong)
    kept = Claims(*(x[fine] for x in found))
    seekers = Seekers({c: v[again] for c, v in left.columns.items()}, left.unit[again], time[rows[again]])
    sitters = right._replace(free=np.setdiff1d(right.free, kept.taken), time=time)
    return Claims(*map(np.append, kept, claim(fit, seekers, sitters, rng=rng)))


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


def _leans(state: WeavingState, own: Relation, fits: Fits, rows: IntArray, owners: IntArray) -> FloatArray:
    """How some rows lean to some owners, as far as that was learned."""
    fit = fits.get((own.table, own.key))
    if not isinstance(fit, LinkFit):
        return np.zeros((len(rows), len(owners)))
    left, right = _types(state, own, fit, rows, owners)
    return fit.lean(left, right)[left.of_row][:, right.of_row]


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
