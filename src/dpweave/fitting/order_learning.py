"""In what order rows of one owner come: asked once it is known what they have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.budget.tasks import order_task
from dpweave.fitting.unit_windows import unit_window
from dpweave.measure.per_unit.order_moments import question
from dpweave.privacy.accounting import split
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import Attribute, Bins, View
from dpweave.tables.centred_rows import composition
from dpweave.weaving.known_links import order_answers

if TYPE_CHECKING:
    from dpweave.privacy.curator import Curator, CuratorWindow
    from dpweave.weaving.blueprint import Blueprint
    from dpweave.weaving.link_problems import Unlinked
    from dpweave.weaving.rows_in_order import OrderOf


@dataclass(frozen=True)
class OrderAsker:
    """Asks about the order of rows of one owner, in the way that suits a plan."""

    curator: Curator
    blueprint: Blueprint

    def ask(self, unlinked: Unlinked, order: OrderOf, *, rho: float) -> None:
        """Ask for gaps first, where a column says how far rows are apart, then for moments around what these show."""
        relation, problem, gaps = unlinked.relation, unlinked.problem, None
        assert unlinked.pairs is not None
        if order.edges:
            share, rho = split(rho, [chosen.LOOK, 1 - chosen.LOOK])
            self._declare_gaps(order, order.edges)
            window = self._window(order, (order.gap,))
            composition(window, [order.gap], rho=share)
            gaps = order.gaps(order_answers(self.curator.release, relation).gaps)
            assert gaps is not None
            self._declare_gaps(order, gaps.groups)
        for name, column in order.before.items():
            self.curator.set_codec(relation.table, name, order.codec(column).optional)
        window = self._window(order, (*order.before, *([order.gap] if gaps else [])))
        assert window.units is not None
        rows, owner = unlinked.pairs.T
        codes = {n: problem.left[n][rows].astype(np.int64) for n, a in relation.left if not a.path}
        other = {n: problem.right[n][owner] for n, a in relation.right if len(a.path) == 1 and window.units.hold((n,))}
        time = order.times(codes[order.by], np.random.default_rng(0)) if order.edges else None
        if order.edges:
            other[order.by] = codes[order.by]
        placed, _ = order.placed({n: codes[n] for n in order.own}, other, owner, time, gaps)
        asked = question(
            replace(placed, shape={**problem.shape, **placed.shape}),
            relation.target,
            gaps={} if gaps is None else {order.gap: gaps.group_shares},
            rho=rho,
            rows=problem.links_measured,
            bound=window.bound(relation.key),
            above=unlinked.above,
        )
        if asked is not None:
            window.measure_moments(asked, rho=rho)

    def _declare_gaps(self, order: OrderOf, edges: tuple[int, ...]) -> None:
        codec = Codec(Column(order.gap, Type("integer")), Bins(edges))
        self.curator.set_codec(order.relation.table, order.gap, codec)

    def _window(self, order: OrderOf, more: tuple[str, ...]) -> CuratorWindow:
        relation = order.relation
        columns = (*relation.left, *relation.right, *((n, Attribute(n)) for n in more))
        view = View(relation.table, columns, ((relation.key,),))
        return unit_window(self.curator, view, order_task(relation).name, self.blueprint.sizes, unit_sums=True)
