"""How many rows each table has, and how many each owner: drawn when a table's turn comes, degrees once for each key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.degrees import at_least, match_total, seen
from dpweave.links.degrees_by_values import deal
from dpweave.schema.domain import degree, presence
from dpweave.tables.external import ExternalTable
from dpweave.weaving.blueprint import MOST_UNSEEN
from dpweave.weaving.kept_rules.order_in_rows import exchanged_for_order
from dpweave.weaving.parts import OwnedRows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.weaving.blueprint import Blueprint
    from dpweave.weaving.state import WeavingState


class DrawnRows:
    """Draws rows into a state, as a blueprint has them."""

    def __init__(self, blueprint: Blueprint, state: WeavingState, *, scale: float) -> None:
        self._blueprint = blueprint
        self._plan = blueprint.plan
        self._state = state
        self._scale = scale

    def draw(self, name: str) -> None:
        """Draw the rows of a table if that was not done yet, those of its owners first.

        Best as late as can be: when owners that find no target have left already.
        """
        if name in self._state.rows:
            return
        self._draw_rows(name)
        if not self._state.rows[name] and self._must_exist(name):
            self._set_rows(name, 1)
            self._give_an_owner(name)

    def degrees(self, name: str, key: str) -> IntArray | None:
        """How many rows of ``name`` each target row should have by ``key`` in this part, where that is known."""
        owned = self._owned(name, key)
        if owned is None or not self._state.is_divided(name, self._plan.database[name].key[key]):
            return None if owned is None else owned.degrees
        return self._state.part.shares(owned.degrees, owned.starts)

    def shown(self, name: str, key: str) -> FloatArray | None:
        """Share of the rows of each owner that bounds leave in the view; None where degrees are not known."""
        owned = self._owned(name, key)
        return None if owned is None else seen(owned.degrees, self._plan.promise.bounds[name, key])

    def _draw_rows(self, name: str) -> None:
        """Draw a table's rows: as many as its owners have degrees for, where degrees are known."""
        size, part = self._blueprint.whole(name) * self._scale, self._state.part_of(name)
        owning = self._plan.promise.owning.get(name)
        degrees = None
        if owning is not None:
            self.draw(self._plan.database[name].key[owning].target)
            degrees = self.degrees(name, owning)
        if degrees is None or owning is None:
            self._set_rows(name, part.share(size))
            return
        owned = min(int(degrees.sum()), MOST_UNSEEN * max(part.share(size), 1))
        share = self._blueprint.share(name, owning)
        others = part.share(size * (1 - share))
        if self._plan.table[name].public_rows is not None:  # rounded so that all rows together are as many as declared
            others = part.share(size) - (part.share(size * share) if len(degrees) else 0)
        self._set_rows(name, owned + others)
        self._own(name, owning, owned)

    def _own(self, name: str, owning: str, owned: int) -> None:
        """Let so many rows have an owner: more than was drawn where bounds hid rows, which all have one."""
        there = self._state.codes[name].get(presence(owning))
        if there is None or isinstance(self._blueprint.tables[name], ExternalTable) or self._state.is_linked(name):
            return
        rng = self._state.rng("owned", name)
        some, none = (rng.permutation(np.flatnonzero(there == code)) for code in (1, 0))
        if len(some) and len(none):
            self._state.take(name, np.sort(np.append(np.resize(some, owned), np.resize(none, len(there) - owned))))

    def _set_rows(self, name: str, rows: int) -> None:
        fitted = self._blueprint.tables.get(name)
        codes = {} if fitted is None else dict(fitted.sample(rows, self._state.rng("rows", name)))
        if not isinstance(fitted, ExternalTable):
            codes = exchanged_for_order(self._plan, name, codes, self._state.rng("order", name))
        for key in self._plan.database[name].foreign_keys:
            if presence(key.name) in codes and (lost := self._blueprint.lost_links(name, key.name)):
                there, rng = codes[presence(key.name)], self._state.rng("lost", name, key.name)
                codes[presence(key.name)] = np.where((there == 0) & (rng.random(rows) < lost), 1, there)
        self._state.lay(name, rows, codes)

    def _must_exist(self, name: str) -> bool:
        """Whether there are rows that must lead to this table, or to one that must lead to it: noise alone should not
        wipe them out.
        """
        there: dict[str, bool] = {}
        order = self._plan.compile().order
        for table in order:
            there[table] = self._state.rows[table] > 0 if table in self._state.rows else self._is_expected(table, there)
        for table in reversed(order):  # rows first that must lead somewhere, then where they must lead
            for source, key in self._plan.promise.graph.incoming(table):
                there[table] |= source.name != table and not source.is_nullable(key) and there[source.name]
        return there[name]

    def _is_expected(self, name: str, there: Mapping[str, bool]) -> bool:
        """Whether a table is to have rows, by its size and by which owners are there."""
        size, own = self._blueprint.whole(name) * self._scale, self._plan.promise.owning.get(name)
        if own is not None:
            key = self._plan.compile().table[name].key[own]
            if key.is_counted and not there[key.target]:
                size *= 1 - self._blueprint.share(name, own)
        return self._state.part_of(name).share(size) > 0

    def _give_an_owner(self, name: str) -> None:
        """Let one owner have one row of a table that must exist, though no degree calls for it."""
        own, part = self._plan.promise.owning.get(name), self._state.part
        owned = None if own is None else self._owned(name, own)
        if own is not None and owned is not None and len(owned.degrees):
            owned.degrees[0], owned.starts[0] = 1, part.count - 1 - part.index

    def _owned(self, name: str, key: str) -> OwnedRows | None:
        """How many rows of ``name`` each target row should have by ``key``: drawn once, and kept with its rows."""
        state, target = self._state, self._plan.database[name].key[key].target
        codes = state.codes.get(target, {}).get(degree(name, key))
        if (name, key) not in state.owned and codes is not None:
            common = target in state.shared_rows.common
            starts = state.part.starts(len(codes), state.rng("share", name, key, common=True))
            degrees = self._drawn_degrees(name, key, codes, common=common)
            least = self._plan.table[name].key[key].min_degree
            state.owned[name, key] = OwnedRows(at_least(degrees, least, rng=np.random.default_rng(0)), starts)
        return state.owned.get((name, key))

    def _drawn_degrees(self, name: str, key: str, codes: IntArray, *, common: bool) -> IntArray:
        """Draw degrees by their codes, so that they add up to what is known of the number of rows."""
        state, target = self._state, self._plan.database[name].key[key].target
        rng = state.rng("degree", name, key, common=common)
        others = {c: values for c, values in state.codes[target].items() if c != degree(name, key)}
        degrees = deal(self._blueprint.degrees_by_code(name, key, codes, rng), codes, others, rng)
        most, rng = self._blueprint.only_total(name, key), state.rng("total", name, key, common=common)
        if self._plan.table[name].public_rows is not None:
            whole = self._blueprint.whole(name) * self._blueprint.share(name, key) * self._scale
            return self._blueprint.exactly(name, key, degrees, state.part_of(target).share(whole), rng)
        if most is None:
            return self._blueprint.agreeing(name, key, degrees, rng)
        if not len(degrees):
            return degrees
        whole = self._blueprint.counted_total(name, key) * self._scale
        total = min(state.part_of(target).share(whole), len(degrees) * most)
        return match_total(degrees, total, cap=most, rng=rng)
