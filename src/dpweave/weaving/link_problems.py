"""What is to be linked in a relation: codes of both sides, how many links, and what is known of degrees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.degrees import Degrees, match_total
from dpweave.links.link_method import LinkProblem
from dpweave.schema.domain import Attribute
from dpweave.tables.external import ExternalTable
from dpweave.weaving.key_targets import unit_groups

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.plan.relations import Relation
    from dpweave.privacy.window import NoisyMoments
    from dpweave.weaving.blueprint import Blueprint
    from dpweave.weaving.drawn_rows import DrawnRows
    from dpweave.weaving.rows_in_order import OrderAnswers
    from dpweave.weaving.state import WeavingState


@dataclass
class Unlinked:
    """A relation whose turn has come. Whoever knows its links puts them here; else they are made at random.

    ``pairs`` are (left, right) row positions of the ``problem``, and ``fit`` is what they were drawn from, if anything.
    ``siblings`` are measured moments of what rows of one owner have in common, ``cousins`` of those of one unit, and
    ``order`` is what was answered about the order in which they come. ``above`` is the unit of each right row, below 0
    where there is none.
    """

    relation: Relation
    problem: LinkProblem
    degrees: Degrees
    rng: np.random.Generator
    pairs: IntArray | None = None
    fit: object = None
    siblings: NoisyMoments | None = None
    cousins: NoisyMoments | None = None
    above: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    order: OrderAnswers | None = None


class LinkProblems:
    """States the problem of each relation from the rows and links that are there."""

    def __init__(self, blueprint: Blueprint, state: WeavingState, rows: DrawnRows) -> None:
        self._blueprint = blueprint
        self._plan = blueprint.plan
        self._state = state
        self._rows = rows

    def problem(self, relation: Relation) -> tuple[LinkProblem | None, IntArray]:
        """State what is to be linked: the left rows that have a target, all right rows, and how many links."""
        table = self._plan.database[relation.table]
        key = table.key[relation.key]
        start = relation.table if relation.joint is None else table.key[relation.joint].target
        skip = 0 if relation.joint is None else 1
        rows = np.arange(self._state.rows[start])
        if relation.joint is None:
            rows = self._state.with_target(relation.table, relation.key)
        bound, called_for = self._bound(relation), self._rows.degrees(relation.table, relation.joint or relation.key)
        if bound is not None and table.is_nullable(key):
            room = int(np.broadcast_to(bound, self._state.rows[key.target]).sum())
            if len(rows) > room:
                rows = np.sort(self._state.rng("room", relation.table, relation.key).permutation(rows)[:room])
        links = len(rows) if relation.joint is None else self._state.rows[relation.table]
        if called_for is not None and links > called_for.sum():
            links = int(called_for.sum())
            rows = self._foremost(relation, rows, links) if relation.joint is None else rows
        if relation.kind == "one-to-one":
            links = min(links, self._state.rows[key.target])
        same = start == key.target and len(rows) == self._state.rows[start]
        partners = self._state.rows[key.target] - same  # no row is led to itself
        if not relation.learnable or not links or not partners or relation.is_dictated:
            return None, rows
        if relation.joint is not None:
            links = min(links, self._state.rows[start] * partners)
        left, ways = self._side(start, {n: Attribute(a.column, a.path[skip:]) for n, a in relation.left}, rows)
        every = np.arange(self._state.rows[key.target])
        further = {n: Attribute(a.column, a.path[1:]) for n, a in relation.right}
        right, more = self._side(key.target, further, every, way=key.name)
        linked = relation.view.linked
        codecs = {n: self._state.codec(relation.table, a, linked) for n, a in (*relation.left, *relation.right)}
        seen_links = self._blueprint.sizes[relation.table] * self._blueprint.share(relation.table, relation.key)
        problem = LinkProblem(
            left,
            right,
            shape={n: codec.size for n, codec in codecs.items()},
            links=links,
            links_measured=max(seen_links, 1.0),
            kind=relation.kind,
            same_table=same,
            left_may_repeat=self._may_repeat(relation),
            ordered={n: codec.ordered for n, codec in codecs.items()},
            units=unit_groups(self._state, relation.table, key, rows) if relation.joint is None else None,
            presence={**ways, **more},
            parts=self._state.parts_of(relation.table, key),
        )
        return problem, rows

    def degrees(self, relation: Relation, problem: LinkProblem, rows: IntArray, rng: np.random.Generator) -> Degrees:
        """Degrees that were synthesised with their rows, made to fit the number of
        links; where there are none, their bound.
        """
        key = relation.joint or relation.key
        degrees = self._rows.degrees(relation.table, key)
        if relation.kind == "one-to-one":
            return Degrees()
        right = self._bound(relation)
        popular = self._blueprint.popularity.get((relation.table, relation.key))
        popular = None if popular is None or not len(popular) else popular
        if degrees is None:
            counted = self._counted(relation.table, rows) if relation.joint is None else None
            return Degrees(left_seen=counted, right_weights=popular, right_bound=right)
        share = self._rows.shown(relation.table, key)
        most = int(degrees.max(initial=0))  # links are never more than degrees call for
        if relation.joint is not None:
            degrees = match_total(degrees, problem.links, cap=min(problem.right_rows, most), rng=rng)
            return Degrees(left=degrees, left_seen=share, right_weights=popular, right_bound=right)
        return Degrees(right=match_total(degrees, problem.links, cap=most, rng=rng), right_seen=share)

    def _counted(self, name: str, rows: IntArray) -> FloatArray:
        """How much of each of some rows the view shows: of a row whose owner has more
        than the bound, in any step up to the unit, a part.
        """
        share, at = np.ones(len(rows)), rows
        for table, key in self._plan.promise.chain(name):
            links = self._state.links.get((table, key), rows[:0])
            if not len(links):
                break
            at = np.where(at >= 0, links[at], -1)
            shown = self._rows.shown(table, key)
            if shown is not None and len(shown):
                share *= np.where(at >= 0, shown[at], 1.0)
        return share

    def _bound(self, relation: Relation) -> int | IntArray | None:
        """How many rows may lead to one in this part, where counts show no more: by
        promise, or because the others were cut off.

        Under ``entity`` a row that must have a target has one beyond the bound too, so
        that degrees are not known to end there.
        """
        table, promise = self._plan.database[relation.table], self._plan.promise
        key = table.key[relation.key]
        if not promise.is_private(key) or promise.is_owning(relation.table, relation.key):
            return None
        bound = promise.bounds[relation.table, relation.key]
        if promise.neighbours == "entity" and not table.is_nullable(key):
            return None
        return self._state.room(relation.table, key, bound)

    def _foremost(self, relation: Relation, rows: IntArray, number: int) -> IntArray:
        """Return so many of some rows at random, those first that other rows lead to."""
        led = np.zeros(self._state.rows[relation.table], dtype=bool)
        for (table, key), links in self._state.links.items():
            if self._plan.database[table].key[key].target == relation.table:
                led[links[links >= 0]] = True
        rows = self._state.rng("called for", relation.table, relation.key).permutation(rows)
        return np.sort(rows[np.argsort(~led[rows], kind="stable")][:number])

    def _side(
        self, base: str, attributes: Mapping[str, Attribute], rows: IntArray, *, way: str = ""
    ) -> tuple[dict[str, IntArray], dict[str, tuple[str, float]]]:
        """Codes of one side's rows, and which columns only a share of them have: beyond
        a private row that may not be there.

        Such rows are no part of counts over these columns. So there they get the codes
        of others, the same for all columns of one way.
        """
        codes = {n: self._state.seen(base, a)[rows] for n, a in attributes.items()}
        presence: dict[str, tuple[str, float]] = {}
        for needed in {self._plan.promise.required(base, a.path) for a in attributes.values()} - {()}:
            there = self._state.position(base, needed)[rows] >= 0
            if there.all() or not there.any():
                continue
            rng = self._state.rng("reach", base, way, *needed)
            donor = np.where(there, np.arange(len(rows)), rng.choice(np.flatnonzero(there), len(rows)))
            for n, a in attributes.items():
                if self._plan.promise.required(base, a.path) == needed:
                    codes[n], presence[n] = codes[n][donor], (".".join((way, *needed)), float(there.mean()))
        return codes, presence

    def _may_repeat(self, relation: Relation) -> bool:
        """Whether rows may be chosen anew for their owners: not those made elsewhere,
        nor those that are linked already.
        """
        name = relation.table
        owned = relation.joint is None and self._plan.promise.is_owning(name, relation.key)
        elsewhere = isinstance(self._blueprint.tables.get(name), ExternalTable)
        return owned and relation.kind == "one-to-many" and not elsewhere and not self._state.is_linked(name)
