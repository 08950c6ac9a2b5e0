"""From fitted tables and links to whole rows: sizes, keys that hold, values, placeholders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from dpweave.links.degrees import Degrees, match_total, seen
from dpweave.links.degrees_by_values import deal
from dpweave.links.link_method import LinkProblem
from dpweave.plan.relations import (
    Relation,
    counted_keys,
    is_dictated,
    relations,
    repeating_key,
    seated_keys,
    weaving_order,
)
from dpweave.schema.domain import Attribute, degree, presence
from dpweave.tables.external import ExternalTable
from dpweave.weaving.acyclic_keys import break_circles
from dpweave.weaving.blueprint import MOST_UNSEEN
from dpweave.weaving.key_targets import (
    lead_within_units,
    draw_targets,
    unit_groups,
    may_be_null,
    random_targets,
    repeat_pairs,
    keep_numbered,
    separate,
    lead_away_from_itself,
)
from dpweave.weaving.parts import OwnedRows
from dpweave.weaving.rule_repair import obey
from dpweave.weaving.state import WeavingState
from dpweave.weaving.unit_composition import make_room, move_in
from dpweave.weaving.values import Values

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.schema.database import ForeignKey
    from dpweave.weaving.blueprint import Blueprint
    from dpweave.weaving.parts import Part, SharedRows


class Linker(Protocol):
    """Makes the links of one relation: learns them while fitting, repeats them while sampling."""

    def __call__(
        self, relation: Relation, problem: LinkProblem, degrees: Degrees, rng: np.random.Generator
    ) -> IntArray | None:
        """Return (left, right) row positions, or None for links at random."""
        ...


class Weaver:
    """One synthetic database in the making, or a part of one. The same blueprint, scale
    and seed always weave the same one.
    """

    def __init__(
        self,
        blueprint: Blueprint,
        *,
        linker: Linker,
        scale: float,
        seed: int,
        fits: Mapping[tuple[str, str], object] | None = None,
        part: Part | None = None,
        shared_rows: SharedRows | None = None,
    ) -> None:
        self._fabric = blueprint
        self._plan = blueprint.plan
        self._linker = linker
        self._fits = {} if fits is None else fits
        self._scale = scale
        self._cloth = WeavingState(blueprint.plan, blueprint.public, seed=seed, part=part, shared_rows=shared_rows)
        self.repairs: dict[str, int] = {}
        """How many rows each constraint changed, and how many fall short of repeating a pair."""

    def weave(self) -> dict[str, pa.Table]:
        """Make every table: private ones from what was released, public ones as they
        are. Later parts leave these out.
        """
        import pyarrow as pa

        self.wire()
        state, values = self._cloth, Values(self._cloth)
        made = dict(state.ready)
        for name in self._plan.promise.private:
            if name not in state.ready:
                table = self._plan.database[name]
                made[name] = pa.table({c.name: values.column(name, c.name) for c in table.columns})
        done = state.ready if state.part.index else {}
        rules = [rule for rule in self._plan.constraints if rule.table not in done]
        self.repairs |= obey(rules, made, state.links, self._plan.database, settled=state.shared_rows.settled)
        tables = {name: made[name] for name in self._plan.database.names if name not in done}
        self._pass_on(tables, values)
        return tables

    def _pass_on(self, tables: Mapping[str, pa.Table], values: Values) -> None:
        """Leave to later parts what they must know of this one."""
        state, shared_rows = self._cloth, self._cloth.shared_rows
        for (table, key), owned in state.owned.items():
            if self._plan.database[table].key[key].target in shared_rows.common:
                shared_rows.owned[table, key] = owned
        for name, table in tables.items():
            shared_rows.rows[name] = shared_rows.rows.get(name, 0) + table.num_rows
            if name in shared_rows.common:
                shared_rows.tables[name] = table
            if name in shared_rows.common or name in self._plan.public:
                shared_rows.codes[name] = state.codes[name]
                shared_rows.links |= {at: links for at, links in state.links.items() if at[0] == name}
            else:
                for column, keys in values.numbered_within(name).items():
                    places = state.places(name, keys) if keys else None
                    if places is not None:
                        shared_rows.count((name, column), places)

    def wire(self) -> None:
        """Draw rows and give every foreign key its targets, by position."""
        order = [name for name in weaving_order(self._plan) if name not in self._cloth.ready]
        woven = relations(self._plan)
        for name in order:
            self._draw(name)
            for relation in woven:
                if relation.table == name:
                    self._wire(relation)
            self._repeat(name)
            break_circles(self._cloth, name)
            for planned in self._plan.table[name].keys:
                # Counted again: links that ran in a circle may have found no other.
                if planned.within and planned.acyclic:
                    self._bring_home(name, planned.key.name)
            self._leave_out(name)
            separate(self._cloth, name, (self._plan.database[name].primary_key, *self._plan.database[name].unique))
            keep_numbered(self._cloth, name)
        rows = -1
        while rows != (rows := sum(self._cloth.rows[name] for name in order)):  # where tables lead to each other
            for name in order:
                for key in self._plan.database[name].foreign_keys:
                    self._lead_elsewhere(name, key)
                self._leave_out(name)

    def _lead_elsewhere(self, name: str, key: ForeignKey) -> None:
        """Give rows any other target where they must have one and theirs was left out
        later, as far as nothing else hangs on it.
        """
        state, table, planned = self._cloth, self._plan.database[name], self._plan.table[name].key[key.name]
        alone = np.flatnonzero((state.links[name, key.name] < 0) & ~may_be_null(state, name, key))
        uniques = [u for u in (table.primary_key, *table.unique) if set(u) & set(key.columns)]
        if not len(alone) or planned.role == "owning" or planned.within or key.target == name:
            return
        if is_dictated(self._plan, name, key.name) or any(set(u) != set(key.columns) for u in uniques):
            return
        links, candidates = state.links[name, key.name], np.arange(state.rows[key.target])
        bound = 1 if uniques else planned.max_degree
        room = None
        if bound is not None:
            room = np.maximum(
                state.room(name, key, bound) - np.bincount(links[links >= 0], minlength=len(candidates)), 0
            )
        rng = state.rng("elsewhere", name, key.name)
        links[alone] = draw_targets(len(alone), candidates, capacity=room, rng=rng)

    def _leave_out(self, name: str) -> None:
        """Leave out rows that must lead somewhere and do not."""
        for key in self._plan.database[name].foreign_keys:
            self._cloth.keep(name, (self._cloth.links[name, key.name] >= 0) | may_be_null(self._cloth, name, key))

    def _draw(self, name: str) -> None:
        """Draw the rows of a table, and of those it leads to: as late as can be, when
        owners that find no target have left already.
        """
        if name in self._cloth.rows:
            return
        self._draw_rows(name)
        if not self._cloth.rows[name] and self._must_exist(name):
            self._set_rows(name, 1)
        for key in self._plan.database[name].foreign_keys:
            self._draw(key.target)

    def _draw_rows(self, name: str) -> None:
        """Draw a table's rows: as many as its owners have degrees for, where degrees are known."""
        size, part = self._fabric.whole(name) * self._scale, self._cloth.part_of(name)
        owning = self._plan.promise.owning.get(name)
        degrees = None
        if owning is not None:
            self._draw(self._plan.database[name].key[owning].target)
            degrees = self._degrees(name, owning)
        if degrees is None or owning is None:
            self._set_rows(name, part.share(size))
            return
        owned = min(int(degrees.sum()), MOST_UNSEEN * max(part.share(size), 1))
        share = self._fabric.share(name, owning)
        others = part.share(size * (1 - share))
        if self._plan.table[name].public_rows is not None:  # rounded so that all rows together are as many as declared
            others = part.share(size) - (part.share(size * share) if len(degrees) else 0)
        self._set_rows(name, owned + others)
        self._own(name, owning, owned)

    def _own(self, name: str, owning: str, owned: int) -> None:
        """Let so many rows have an owner: more than was drawn where bounds hid rows, which all have one."""
        there = self._cloth.codes[name].get(presence(owning))
        if there is None or isinstance(self._fabric.tables[name], ExternalTable) or self._cloth.is_linked(name):
            return
        rng = self._cloth.rng("owned", name)
        some, none = (rng.permutation(np.flatnonzero(there == code)) for code in (1, 0))
        if len(some) and len(none):
            self._cloth.take(name, np.sort(np.append(np.resize(some, owned), np.resize(none, len(there) - owned))))

    def _set_rows(self, name: str, rows: int) -> None:
        fitted = self._fabric.tables.get(name)
        codes = {} if fitted is None else dict(fitted.sample(rows, self._cloth.rng("rows", name)))
        for key in self._plan.database[name].foreign_keys:
            if presence(key.name) in codes and (lost := self._fabric.lost_links(name, key.name)):
                there, rng = codes[presence(key.name)], self._cloth.rng("lost", name, key.name)
                codes[presence(key.name)] = np.where((there == 0) & (rng.random(rows) < lost), 1, there)
        self._cloth.lay(name, rows, codes)

    def _must_exist(self, name: str) -> bool:
        """Whether there are rows that must lead to this table: noise alone should not wipe them out."""
        return any(
            not t.is_nullable(k) and self._will_exist(t.name)
            for t, k in self._plan.promise.graph.incoming(name)
            if t.name != name
        )

    def _will_exist(self, name: str) -> bool:
        """Whether a table has rows, or is to have some."""
        if name in self._cloth.rows:
            return self._cloth.rows[name] > 0
        size, own = self._fabric.whole(name) * self._scale, self._plan.promise.owning.get(name)
        if own is not None:
            target = self._plan.database[name].key[own].target
            if (name, own) in counted_keys(self._plan, target) and not self._will_exist(target):
                size *= 1 - self._fabric.share(name, own)
        return self._cloth.part_of(name).share(size) > 0

    def _degrees(self, name: str, key: str) -> IntArray | None:
        """How many rows of ``name`` each target row should have by ``key`` in this part, where that is known."""
        owned = self._owned(name, key)
        if owned is None or not self._cloth.is_divided(name, self._plan.database[name].key[key]):
            return None if owned is None else owned.degrees
        return self._cloth.part.shares(owned.degrees, owned.starts)

    def _owned(self, name: str, key: str) -> OwnedRows | None:
        """How many rows of ``name`` each target row should have by ``key``: drawn once, and kept with its rows."""
        state, target = self._cloth, self._plan.database[name].key[key].target
        codes = state.codes.get(target, {}).get(degree(name, key))
        if (name, key) not in state.owned and codes is not None:
            common = target in state.shared_rows.common
            starts = state.part.starts(len(codes), state.rng("share", name, key, common=True))
            state.owned[name, key] = OwnedRows(self._drawn_degrees(name, key, codes, common=common), starts)
        return state.owned.get((name, key))

    def _drawn_degrees(self, name: str, key: str, codes: IntArray, *, common: bool) -> IntArray:
        """Draw degrees by their codes, so that they add up to what is known of the number of rows."""
        state, target = self._cloth, self._plan.database[name].key[key].target
        rng = state.rng("degree", name, key, common=common)
        others = {c: values for c, values in state.codes[target].items() if c != degree(name, key)}
        degrees = deal(self._fabric.degrees_by_code(name, key, codes, rng), codes, others, rng)
        most, rng = self._fabric.only_total(name, key), state.rng("total", name, key, common=common)
        if self._plan.table[name].public_rows is not None:
            whole = self._fabric.whole(name) * self._fabric.share(name, key) * self._scale
            return self._fabric.exactly(name, key, degrees, state.part_of(target).share(whole), rng)
        if most is None:
            return self._fabric.agreeing(name, key, degrees, rng)
        if not len(degrees):
            return degrees
        total = min(state.part_of(target).share(self._fabric.sizes[name] * self._scale), len(degrees) * most)
        return match_total(degrees, total, cap=most, rng=rng)

    # -- wiring ----------------------------------------------------------------------------------------------------

    def _wire(self, relation: Relation) -> None:
        """Give rows their targets; rows that cannot have what they must have are left out."""
        table = self._plan.database[relation.table]
        rng = self._cloth.rng("link", relation.table, relation.key)
        names = [relation.key] if relation.joint is None else [relation.joint, relation.key]
        learned = self._learned(relation, rng)
        if learned is not None and relation.joint is not None:
            self._cloth.resize(relation.table, len(learned))
            for name, side in zip(names, learned.T, strict=True):
                self._cloth.links[relation.table, name] = side
        elif learned is not None:
            self._link(relation, learned)
        else:
            for name in names:
                self._cloth.links[relation.table, name] = random_targets(
                    self._cloth, relation.table, name, degrees=self._degrees(relation.table, name), rng=rng
                )
        self._seat(relation)
        for name in names:
            if self._plan.table[relation.table].key[name].within:
                self._bring_home(relation.table, name)
            elif table.key[name].target == relation.table:
                lead_away_from_itself(self._cloth, relation.table, table.key[name])
            if not table.is_nullable(table.key[name]):
                self._cloth.keep(relation.table, self._cloth.links[relation.table, name] >= 0)

    def _seat(self, relation: Relation) -> None:
        """Let rows that lead to each other within a unit be of the same one."""
        seated = seated_keys(self._plan, relation.table)
        if self._plan.promise.owning.get(relation.table) == relation.key and seated:
            make_room(self._cloth, relation, self._fits)
        elif relation.key in seated:
            problem, rows = self._problem(relation)
            if problem is not None:
                move_in(self._cloth, relation, self._fits, problem, rows)

    def _bring_home(self, name: str, key: str) -> None:
        """Let no row lead out of its unit, and count those that found no partner there."""
        lead_within_units(self._cloth, name, key)
        alone = int((self._cloth.links[name, key][self._cloth.with_target(name, key)] < 0).sum())
        if alone:
            self.repairs[f"{name}.{key} within its unit"] = alone

    def _link(self, relation: Relation, learned: IntArray) -> None:
        """Give rows their targets; a row that comes more than once is copied, and one that should have come leaves."""
        name, bare = relation.table, np.ones(self._cloth.rows[relation.table], dtype=bool)
        bare[learned[:, 0]] = False
        if len(learned) > self._cloth.rows[name] - bare.sum():
            bare[self._cloth.with_target(name, relation.key)] = False
            learned = learned[np.argsort(learned[:, 0], kind="stable")]
            self._cloth.take(name, np.append(learned[:, 0], np.flatnonzero(bare)))
            learned[:, 0] = np.arange(len(learned))
        links = np.full(self._cloth.rows[name], -1, dtype=np.int64)
        links[learned[:, 0]] = learned[:, 1]
        self._cloth.links[name, relation.key] = links

    def _repeat(self, name: str) -> None:
        """Let as many rows of a junction repeat a pair as were measured; what degrees leave no room for is reported."""
        if name not in self._fabric.repetitions:
            return
        share, error = self._fabric.repetitions[name]
        found = repeat_pairs(self._cloth, name, share=share, error=error)
        if found is not None and abs(found.wanted - found.reached) > 0.01:
            key = repeating_key(self._plan, name)
            said = f"{name}: rows short of repeating a pair of {self._plan.promise.owning[name]} and {key} as measured"
            self.repairs[said] = round(abs(found.wanted - found.reached) * self._cloth.rows[name])

    def _learned(self, relation: Relation, rng: np.random.Generator) -> IntArray | None:
        """Ask the linker; positions are those of whole tables."""
        problem, rows = self._problem(relation)
        if problem is None:
            return None
        pairs = self._linker(relation, problem, self._known_degrees(relation, problem, rows, rng), rng)
        if pairs is None:
            return None
        return np.stack([rows[pairs[:, 0]], pairs[:, 1]], axis=1)

    def _known_degrees(
        self, relation: Relation, problem: LinkProblem, rows: IntArray, rng: np.random.Generator
    ) -> Degrees:
        """Degrees that were synthesised with their rows, made to fit the number of
        links; where there are none, their bound.
        """
        key = relation.joint or relation.key
        degrees = self._degrees(relation.table, key)
        if relation.kind == "one-to-one":
            return Degrees()
        right = self._bound(relation)
        popular = self._fabric.popularity.get((relation.table, relation.key))
        popular = None if popular is None or not len(popular) else popular
        if degrees is None:
            counted = self._counted(relation.table, rows) if relation.joint is None else None
            return Degrees(left_seen=counted, right_weights=popular, right_bound=right)
        share = self._shown(relation.table, key)
        most = int(degrees.max(initial=0))  # links are never more than degrees call for
        if relation.joint is not None:
            degrees = match_total(degrees, problem.links, cap=min(problem.right_rows, most), rng=rng)
            return Degrees(left=degrees, left_seen=share, right_weights=popular, right_bound=right)
        return Degrees(right=match_total(degrees, problem.links, cap=most, rng=rng), right_seen=share)

    def _shown(self, name: str, key: str) -> FloatArray | None:
        """Share of the rows of each owner that bounds leave in the view; None where degrees are not known."""
        owned = self._owned(name, key)
        return None if owned is None else seen(owned.degrees, self._plan.promise.bounds[name, key])

    def _counted(self, name: str, rows: IntArray) -> FloatArray:
        """How much of each of some rows the view shows: of a row whose owner has more
        than the bound, in any step up to the unit, a part.
        """
        share, at = np.ones(len(rows)), rows
        for table, key in self._plan.promise.chain(name):
            links = self._cloth.links.get((table, key), rows[:0])
            if not len(links):
                break
            at = np.where(at >= 0, links[at], -1)
            shown = self._shown(table, key)
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
        return self._cloth.room(relation.table, key, bound)

    def _problem(self, relation: Relation) -> tuple[LinkProblem | None, IntArray]:
        """State what is to be linked: the left rows that have a target, all right rows, and how many links."""
        table = self._plan.database[relation.table]
        key = table.key[relation.key]
        start = relation.table if relation.joint is None else table.key[relation.joint].target
        skip = 0 if relation.joint is None else 1
        rows = np.arange(self._cloth.rows[start])
        if relation.joint is None:
            rows = self._cloth.with_target(relation.table, relation.key)
        bound, called_for = self._bound(relation), self._degrees(relation.table, relation.joint or relation.key)
        if bound is not None and table.is_nullable(key):
            room = int(np.broadcast_to(bound, self._cloth.rows[key.target]).sum())
            if len(rows) > room:
                rows = np.sort(self._cloth.rng("room", relation.table, relation.key).permutation(rows)[:room])
        links = len(rows) if relation.joint is None else self._cloth.rows[relation.table]
        if called_for is not None and links > called_for.sum():
            links = int(called_for.sum())
            rows = self._foremost(relation, rows, links) if relation.joint is None else rows
        if relation.kind == "one-to-one":
            links = min(links, self._cloth.rows[key.target])
        same = start == key.target and len(rows) == self._cloth.rows[start]
        partners = self._cloth.rows[key.target] - same  # no row is led to itself
        if not relation.learnable or not links or not partners or is_dictated(self._plan, relation.table, relation.key):
            return None, rows
        if relation.joint is not None:
            links = min(links, self._cloth.rows[start] * partners)
        left, ways = self._side(start, {n: Attribute(a.column, a.path[skip:]) for n, a in relation.left}, rows)
        every = np.arange(self._cloth.rows[key.target])
        further = {n: Attribute(a.column, a.path[1:]) for n, a in relation.right}
        right, more = self._side(key.target, further, every, way=key.name)
        linked = relation.view.linked
        codecs = {n: self._cloth.codec(relation.table, a, linked) for n, a in (*relation.left, *relation.right)}
        seen_links = self._fabric.sizes[relation.table] * self._fabric.share(relation.table, relation.key)
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
            home=unit_groups(self._cloth, relation.table, key, rows) if relation.joint is None else None,
            reach={**ways, **more},
        )
        return problem, rows

    def _foremost(self, relation: Relation, rows: IntArray, number: int) -> IntArray:
        """Return so many of some rows at random, those first that other rows lead to."""
        led = np.zeros(self._cloth.rows[relation.table], dtype=bool)
        for (table, key), links in self._cloth.links.items():
            if self._plan.database[table].key[key].target == relation.table:
                led[links[links >= 0]] = True
        rows = self._cloth.rng("called for", relation.table, relation.key).permutation(rows)
        return np.sort(rows[np.argsort(~led[rows], kind="stable")][:number])

    def _side(
        self, base: str, attributes: Mapping[str, Attribute], rows: IntArray, *, way: str = ""
    ) -> tuple[dict[str, IntArray], dict[str, tuple[str, float]]]:
        """Codes of one side's rows, and which columns only a share of them have: beyond
        a private row that may not be there.

        Such rows are no part of counts over these columns. So there they get the codes
        of others, the same for all columns of one way.
        """
        codes = {n: self._cloth.seen(base, a)[rows] for n, a in attributes.items()}
        reach: dict[str, tuple[str, float]] = {}
        for needed in {self._plan.promise.required(base, a.path) for a in attributes.values()} - {()}:
            there = self._cloth.position(base, needed)[rows] >= 0
            if there.all() or not there.any():
                continue
            rng = self._cloth.rng("reach", base, way, *needed)
            donor = np.where(there, np.arange(len(rows)), rng.choice(np.flatnonzero(there), len(rows)))
            for n, a in attributes.items():
                if self._plan.promise.required(base, a.path) == needed:
                    codes[n], reach[n] = codes[n][donor], (".".join((way, *needed)), float(there.mean()))
        return codes, reach

    def _may_repeat(self, relation: Relation) -> bool:
        """Whether rows may be chosen anew for their owners: not those made elsewhere,
        nor those that are linked already.
        """
        name = relation.table
        owned = relation.joint is None and self._plan.promise.is_owning(name, relation.key)
        elsewhere = isinstance(self._fabric.tables.get(name), ExternalTable)
        return owned and relation.kind == "one-to-many" and not elsewhere and not self._cloth.is_linked(name)
