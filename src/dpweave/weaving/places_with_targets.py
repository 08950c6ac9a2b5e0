"""Rows that lead, within their unit, to rows of another table are dealt to places that have such a target already.

Payments of a customer were given to customers one by one, by columns of customers alone. So a customer had rentals of
May and payments of July, and no payment could be for one of its rentals. Here every place of a row at its owner is
given a target of its unit first, and rows are dealt to places by what was learned of both together: of rows and owners,
and of rows and targets. Every owner keeps its number of rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.degrees import Degrees
from dpweave.links.draw_links import draw_links
from dpweave.links.link_fit import LinkFit
from dpweave.links.link_method import LinkProblem
from dpweave.links.wiring.within_groups import UnitGroups, assign_within_groups
from dpweave.measure.cross_workloads import Workload
from dpweave.schema.domain import Attribute
from dpweave.weaving.unit_composition import dealt

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.plan.relations import Relation
    from dpweave.weaving.state import WeavingState

    Fits = Mapping[tuple[str, str], object]
    Clique = tuple[FloatArray, float]


def may_change_places(state: WeavingState, relation: Relation) -> bool:
    """Whether rows may change owners for the targets of a relation, the first that stays within their units.

    Nothing may hang on the owner that rows have: another key within the unit, a key that shares its columns, an order.
    """
    name, promise = relation.table, state.plan.promise
    planned, own = state.plan.table[name], promise.owning.get(name)
    if (
        own is None
        or relation.joint is not None
        or relation.target == name
        or not promise.is_within(name, relation.key)
    ):
        return False
    others = [k.key.name for k in planned.keys if k.within and k.key.name != relation.key]
    settled = any((name, other) in state.links for other in others)
    return (
        not settled and planned.key[own].order_by is None and not state.plan.compile().relation[name, own].is_dictated
    )


def change_places(state: WeavingState, relation: Relation, fits: Fits, problem: LinkProblem, rows: IntArray) -> None:
    """Let ``rows`` that lead somewhere have places whose targets suit them, and others those that are left."""
    name, within = relation.table, fits.get((relation.table, relation.key))
    own = state.plan.compile().relation[name, state.plan.promise.owning[name]]
    links = state.links[name, own.key]
    places = np.flatnonzero(links >= 0)
    seekers = rows[links[rows] >= 0]
    if not isinstance(within, LinkFit) or problem.units is None or not len(seekers):
        return
    fit = _joined(relation, own, within, fits.get((name, own.key)))
    if not any(w.left and any(c in problem.right for c in w.right) for w in fit.theta):
        return
    rng = state.rng("places", name, relation.key)
    chosen, target = _with_targets(state, relation, problem, within, places, len(seekers), rng)
    seekers = rng.permutation(seekers)[: len(chosen)]
    owner = links[chosen]
    right = {n: codes[target] for n, codes in problem.right.items()} | _of_owners(state, own, relation, owner)
    left = {n: state.seen(name, a)[seekers] for n, a in _by_name(own, relation).items() if n not in right}
    shape = {**within.shape, **fit.shape}
    one = np.ones(len(chosen), dtype=np.int64)
    paired = LinkProblem(left, right, shape=shape, links=len(chosen), links_measured=1.0, kind="one-to-one")
    pairs = draw_links(fit, paired, degrees=Degrees(left=one, right=one), rng=rng)
    which = np.empty(len(seekers), dtype=np.int64)
    which[pairs[:, 0]] = pairs[:, 1]
    rest, free = np.setdiff1d(places, seekers), np.setdiff1d(places, chosen)
    before = links.copy()
    links[seekers] = before[chosen[which]]
    if len(rest):
        links[rest] = before[free[dealt(state, own, fits, rest, before[free], rng)]]
    out = state.links[name, relation.key]
    out[:] = -1
    out[seekers] = target[which]


def _by_name(*relations: Relation) -> dict[str, Attribute]:
    """Columns of the rows that some relations see, of those that rows keep wherever they are."""
    return {n: a for relation in relations for n, a in relation.left}


def _with_targets(
    state: WeavingState,
    relation: Relation,
    problem: LinkProblem,
    within: LinkFit,
    places: IntArray,
    most: int,
    rng: np.random.Generator,
) -> tuple[IntArray, IntArray]:
    """Give ``most`` places, or as many as there are targets for, a row of their unit, by what both say."""
    assert problem.units is not None
    key = state.plan.table[relation.table].key[relation.key]
    bound = 1 if state.plan.database[relation.table].is_unique(key.key.columns) else key.max_degree
    room = None if bound is None else state.room(relation.table, key.key, bound)
    own = state.plan.promise.owning[relation.table]
    known = {n: state.seen(relation.table, a)[places] for n, a in relation.left if a.path[:1] == (own,)}
    theta = {w: table for w, table in within.theta.items() if set(w.left) <= set(known)}
    of_places = LinkFit(within.shape, theta, 0, converged=True)

    def log_odds(i: IntArray, j: IntArray) -> FloatArray:
        return of_places.log_odds_of_pairs(known, problem.right, i, j)

    groups = UnitGroups(state.units(relation.table)[places], problem.units.right)
    target = assign_within_groups(groups, bound=room, rng=rng, log_odds=log_odds)
    found = rng.permutation(np.flatnonzero(target >= 0))[:most]
    return places[found], target[found]


def _of_owners(state: WeavingState, own: Relation, relation: Relation, owner: IntArray) -> dict[str, IntArray]:
    """Columns that places have from their owners."""
    seen = {n: a for n, a in (*own.right, *relation.left) if a.path[:1] == (own.key,)}
    return {n: state.seen(own.target, Attribute(a.column, a.path[1:]))[owner] for n, a in seen.items()}


def _joined(relation: Relation, own: Relation, within: LinkFit, owners: object) -> LinkFit:
    """What is known of rows and places: of rows and their owners, and of both and targets, as far as it tells rows
    apart.
    """
    places = {
        n for n, a in (*own.right, *relation.left, *relation.right) if a.path[:1] in ((own.key,), (relation.key,))
    }
    theta: dict[Workload, FloatArray] = {}
    joint: dict[Workload, Clique] = {}
    shape: dict[str, int] = {}
    for fit in (owners, within):
        if not isinstance(fit, LinkFit):
            continue
        shape |= fit.shape
        for w, table in fit.theta.items():
            sides, turned = _turned(w, table, fit.shape, places)
            if sides.left and sides.right:
                theta[sides] = theta[sides] + turned if sides in theta else turned
        for w, (table, precision) in fit.joint.items():
            sides, turned = _turned(w, table, fit.shape, places)
            if sides.left and sides.right:
                joint[sides] = turned, precision
    return LinkFit(shape, theta, 0, converged=True, joint=joint)


def _turned(
    workload: Workload, table: FloatArray, shape: Mapping[str, int], places: set[str]
) -> tuple[Workload, FloatArray]:
    """A table with rows' columns first and those of places behind."""
    left = tuple(c for c in workload.columns if c not in places)
    right = tuple(c for c in workload.columns if c in places)
    table = table.reshape([shape[c] for c in workload.columns])
    return Workload(left, right), np.transpose(table, [workload.columns.index(c) for c in (*left, *right)])
