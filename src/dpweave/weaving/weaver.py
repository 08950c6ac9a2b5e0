"""From fitted tables and links to whole rows: sizes, keys that hold, values, placeholders."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.links.wiring.assign import assign_at_random
from dpweave.weaving.drawn_rows import DrawnRows
from dpweave.weaving.kept_rules.acyclic_keys import break_circles
from dpweave.weaving.kept_rules.declared_rules import keep_counts, keep_equal, keep_least_degrees, keep_symmetric
from dpweave.weaving.kept_rules.never_back import keep_from_going_back
from dpweave.weaving.kept_rules.rule_repair import obey
from dpweave.weaving.key_targets import (
    keep_numbered,
    lead_away_from_itself,
    lead_within_units,
    may_be_null,
    random_targets,
    repeat_pairs,
    separate,
)
from dpweave.weaving.keys_and_values import Values
from dpweave.weaving.link_problems import LinkProblems, Unlinked
from dpweave.weaving.parts import EarlierRows
from dpweave.weaving.places_with_targets import change_places, may_change_places
from dpweave.weaving.rows_in_order import bring_order
from dpweave.weaving.state import WeavingState
from dpweave.weaving.unit_composition import bring_siblings, make_room, move_in, shuffle_among_alike

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.measure.per_unit.sibling_moments import Found
    from dpweave.plan.relations import Relation
    from dpweave.schema.database import ForeignKey
    from dpweave.weaving.blueprint import Blueprint
    from dpweave.weaving.parts import Part, SharedRows


class Weaver:
    """One synthetic database in the making, or a part of one. The same blueprint, scale
    and seed always weave the same one.

    ``for unlinked in weaver.wire(): …`` gives every relation its links, then ``weaver.tables()`` has the rows.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        *,
        scale: float,
        seed: int,
        fits: Mapping[tuple[str, str], object] | None = None,
        part: Part | None = None,
        shared_rows: SharedRows | None = None,
        compose: bool = True,
    ) -> None:
        """``compose`` says that rows of one owner shall have in common what was measured. A fit learns nothing from
        that, and exchanging rows until they do takes longer than all else.
        """
        self._blueprint = blueprint
        self._compose = compose
        self._plan = blueprint.plan
        self._state = WeavingState(blueprint.plan, blueprint.public, seed=seed, part=part, shared_rows=shared_rows)
        self._rows = DrawnRows(blueprint, self._state, scale=scale)
        self._problems = LinkProblems(blueprint, self._state, self._rows)
        self.fits = dict(fits or {})
        """What is known of the links of each relation, by (table, key)."""
        self.siblings: dict[str, tuple[Found, ...]] = {}
        """What rows of one owner have in common, and those of one unit, by relation, where that was asked."""
        self.orders: dict[str, Found] = {}
        """How rows go together with those before them, by relation, where that was asked."""
        self.repairs: dict[str, int] = {}
        """How many rows each constraint changed, and how many fall short of repeating a pair."""

    def tables(self) -> dict[str, pa.Table]:
        """Make every table once all is wired: private ones from what was released,
        public ones as they are. Later parts leave these out.
        """
        import pyarrow as pa

        state, values = self._state, Values(self._state)
        made = dict(state.ready)
        for name in self._plan.promise.private:
            if name not in state.ready:
                table = self._plan.database[name]
                made[name] = pa.table({c.name: values.column(name, c.name) for c in table.columns})
        done = state.ready if state.part.index else {}
        rules = [rule for rule in self._plan.constraints if rule.table not in done]
        self.repairs |= obey(rules, made, state.links, self._plan.database, settled=state.shared_rows.earlier.settled)
        self.repairs |= keep_from_going_back(self._plan, rules, made, state.links)
        tables = {name: made[name] for name in self._plan.database.names if name not in done}
        self._pass_on(tables)
        written = self._plan.database.stored
        return {t.name: tables[t.name].select([c.name for c in t.columns]) for t in written if t.name in tables}

    def counted(self) -> EarlierRows:
        """What later parts must know of this one, once all is wired."""
        state, values = self._state, Values(self._state)
        found = EarlierRows({name: state.rows[name] for name in self._plan.promise.private if name not in state.ready})
        for name in found.rows:
            for column, keys in values.numbered_within(name).items() if name not in state.shared_rows.common else ():
                places = state.places(name, keys) if keys else None
                if places is not None:
                    found.numbers[name, column] = np.unique(places, return_counts=True)
        return found

    def _pass_on(self, tables: Mapping[str, pa.Table]) -> None:
        """Leave to later parts what they must know of this one."""
        state, shared_rows = self._state, self._state.shared_rows
        for (table, key), owned in state.owned.items():
            if self._plan.database[table].key[key].target in shared_rows.common:
                shared_rows.owned[table, key] = owned
        for name in tables:
            if name in shared_rows.common:
                shared_rows.tables[name] = tables[name]
            if name in shared_rows.common or name in self._plan.public:
                shared_rows.codes[name] = state.codes[name]
                shared_rows.links |= {at: links for at, links in state.links.items() if at[0] == name}
        shared_rows.earlier.add(self.counted())

    def wire(self) -> Iterator[Unlinked]:
        """Draw rows and give every foreign key its targets, by position. Yields each
        relation that has something to link; its links are taken when the next one is asked for.
        """
        compiled = self._plan.compile()
        order = [name for name in compiled.order if name not in self._state.ready]
        for name in order:
            for drawn in (name, *(key.target for key in self._plan.database[name].foreign_keys)):
                self._rows.draw(drawn)
            for relation in compiled.relations:
                if relation.table == name:
                    yield from self._wire(relation)
            self._repeat(name)
            break_circles(self._state, name)
            for planned in self._plan.table[name].keys:
                # Counted again: links that ran in a circle may have found no other.
                if planned.within and planned.acyclic:
                    self._move_into_unit(name, planned.key.name)
            self._leave_out(name)
            separate(self._state, name, (self._plan.database[name].primary_key, *self._plan.database[name].unique))
            keep_numbered(self._state, name)
        rows = -1
        while rows != (rows := sum(self._state.rows[name] for name in order)):  # where tables lead to each other
            for name in order:
                for key in self._plan.database[name].foreign_keys:
                    self._lead_elsewhere(name, key)
                self._leave_out(name)
        self.repairs |= keep_symmetric(self._state) | keep_least_degrees(self._state)
        self.repairs |= keep_counts(self._state) | keep_equal(self._state)

    def _lead_elsewhere(self, name: str, key: ForeignKey) -> None:
        """Give rows any other target where they must have one and theirs was left out
        later, as far as nothing else hangs on it.
        """
        state, table, planned = self._state, self._plan.database[name], self._plan.table[name].key[key.name]
        alone = np.flatnonzero((state.links[name, key.name] < 0) & ~may_be_null(state, name, key))
        uniques = [u for u in (table.primary_key, *table.unique) if set(u) & set(key.columns)]
        if not len(alone) or planned.role == "owning" or planned.within or key.target == name:
            return
        if self._plan.compile().table[name].key[key.name].is_dictated or any(
            set(u) != set(key.columns) for u in uniques
        ):
            return
        links = state.links[name, key.name]
        bound = 1 if uniques else planned.max_degree
        degrees = np.bincount(links[links >= 0], minlength=state.rows[key.target])
        room = None if bound is None else np.broadcast_to(state.room(name, key, bound), len(degrees)) - degrees
        one_group = np.zeros_like(alone), np.zeros_like(degrees)
        links[alone] = assign_at_random(*one_group, room, rng=state.rng("elsewhere", name, key.name))

    def _leave_out(self, name: str) -> None:
        """Leave out rows that must lead somewhere and do not."""
        for key in self._plan.database[name].foreign_keys:
            self._state.keep(name, (self._state.links[name, key.name] >= 0) | may_be_null(self._state, name, key))

    def _wire(self, relation: Relation) -> Iterator[Unlinked]:
        """Give rows their targets; rows that cannot have what they must have are left out."""
        table = self._plan.database[relation.table]
        rng = self._state.rng("link", relation.table, relation.key)
        names = [relation.key] if relation.joint is None else [relation.joint, relation.key]
        problem, rows = self._problems.problem(relation)
        learned = siblings = cousins = order = None
        if problem is not None:
            degrees = self._problems.degrees(relation, problem, rows, rng)
            unlinked = Unlinked(relation, problem, degrees, rng)
            if relation.is_owned:
                unlinked.above = self._state.units(relation.target)
            yield unlinked
            siblings, cousins, order = unlinked.siblings, unlinked.cousins, unlinked.order
            if unlinked.fit is not None:
                self.fits[relation.table, relation.key] = unlinked.fit
            if unlinked.pairs is not None:
                learned = np.stack([rows[unlinked.pairs[:, 0]], unlinked.pairs[:, 1]], axis=1)
        if learned is not None and relation.joint is not None:
            self._state.resize(relation.table, len(learned))
            for name, side in zip(names, learned.T, strict=True):
                self._state.links[relation.table, name] = side
        elif learned is not None:
            self._link(relation, learned)
        else:
            for name in names:
                self._state.links[relation.table, name] = random_targets(
                    self._state,
                    relation.table,
                    name,
                    degrees=self._rows.degrees(relation.table, name),
                    weights=self._blueprint.popularity.get((relation.table, name)),
                    rng=rng,
                )
        if problem is not None and relation.is_owned and relation.kind == "one-to-many":
            shuffle_among_alike(self._state, relation)
        if problem is not None and siblings is not None:
            measured, compose = problem.links_measured, self._compose
            common = bring_siblings(self._state, relation, siblings, cousins, measured=measured, compose=compose)
            if common:
                self.siblings[f"{relation.table}.{relation.key}"] = common
        if problem is not None and order is not None:
            found = bring_order(self._state, relation, order, measured=problem.links_measured)
            if found is not None:
                self.orders[f"{relation.table}.{relation.key}"] = found
        self._bring_together(relation)
        for name in names:
            if self._plan.table[relation.table].key[name].within:
                self._move_into_unit(relation.table, name)
            elif table.key[name].target == relation.table:
                lead_away_from_itself(self._state, relation.table, table.key[name])
            if not table.is_nullable(table.key[name]):
                self._state.keep(relation.table, self._state.links[relation.table, name] >= 0)

    def _bring_together(self, relation: Relation) -> None:
        """Let rows that lead to each other within a unit be of the same one."""
        keys = self._plan.compile().table[relation.table].unit_keys
        if self._plan.promise.owning.get(relation.table) == relation.key and keys:
            make_room(self._state, relation, self.fits)
        elif relation.key in keys:
            problem, rows = self._problems.problem(relation)
            if problem is not None:
                move_in(self._state, relation, self.fits, problem, rows)
        elif may_change_places(self._state, relation):
            problem, rows = self._problems.problem(relation)
            if problem is not None:
                change_places(self._state, relation, self.fits, problem, rows)

    def _move_into_unit(self, name: str, key: str) -> None:
        """Let no row lead out of its unit, and count those that found no partner there."""
        lead_within_units(self._state, name, key)
        alone = int((self._state.links[name, key][self._state.with_target(name, key)] < 0).sum())
        if alone:
            self.repairs[f"{name}.{key} within its unit"] = alone

    def _link(self, relation: Relation, learned: IntArray) -> None:
        """Give rows their targets; a row that comes more than once is copied, and one that should have come leaves."""
        name, bare = relation.table, np.ones(self._state.rows[relation.table], dtype=bool)
        bare[learned[:, 0]] = False
        if len(learned) > self._state.rows[name] - bare.sum():
            bare[self._state.with_target(name, relation.key)] = False
            learned = learned[np.argsort(learned[:, 0], kind="stable")]
            self._state.take(name, np.append(learned[:, 0], np.flatnonzero(bare)))
            learned[:, 0] = np.arange(len(learned))
        links = np.full(self._state.rows[name], -1, dtype=np.int64)
        links[learned[:, 0]] = learned[:, 1]
        self._state.links[name, relation.key] = links

    def _repeat(self, name: str) -> None:
        """Let as many rows of a junction repeat a pair as were measured; what degrees leave no room for is reported."""
        if name not in self._blueprint.repetitions:
            return
        share, error = self._blueprint.repetitions[name]
        found = repeat_pairs(self._state, name, share=share, error=error)
        if found is not None and abs(found.wanted - found.reached) > chosen.UNNOTICED:
            key = self._plan.compile().table[name].repeating_key
            said = f"{name}: rows short of repeating a pair of {self._plan.promise.owning[name]} and {key} as measured"
            self.repairs[said] = round(abs(found.wanted - found.reached) * self._state.rows[name])
