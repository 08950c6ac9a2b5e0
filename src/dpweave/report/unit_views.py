"""Units as wholes in the report: what rows of one owner have in common, in what order they come, and how far apart.

Each figure is what was measured, with its noise, next to what the same question says of the copy, its clip included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dpweave.budget.tasks import siblings_task
from dpweave.measure.estimates import combined, estimates
from dpweave.measure.per_unit.order_moments import matrix
from dpweave.measure.per_unit.sibling_moments import OWNERS_LOOKED_AT
from dpweave.model.coded_database import labels
from dpweave.privacy.unit_sums import unit_vectors
from dpweave.report.noisy_estimates import Distribution
from dpweave.schema.arrow_codes import points
from dpweave.schema.key_lookup import column_of
from dpweave.weaving.known_links import order_answers
from dpweave.weaving.rows_in_order import OrderOf

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.model.coded_database import CodedDatabase
    from dpweave.model.model import Model
    from dpweave.plan.relations import Relation
    from dpweave.privacy.window import UnitMoments
    from dpweave.schema.codec import Codec

LONG = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


class Agreement(NamedTuple):
    """How much rows of one owner have in common in a column, by a clipped question: less than the excess of pairs that
    agree, in the copy as in what was measured.
    """

    column: str
    copy: float
    measured: float
    band: float


@dataclass(frozen=True)
class Transition:
    """How much more often a value comes after another than by chance, as a share of rows."""

    column: str
    before: tuple[str, ...]
    after: tuple[str, ...]
    measured: FloatArray
    copy: FloatArray
    noise: float
    """One standard deviation of a measured share."""


@dataclass(frozen=True)
class UnitsView:
    """What rows of one owner have in common, and in what order they come, as far as it was asked."""

    agreements: tuple[Agreement, ...] = ()
    order_by: str | None = None
    gaps: Distribution | None = None
    transitions: tuple[Transition, ...] = ()


def units_view(
    model: Model, coded: CodedDatabase, db: Mapping[str, pa.Table], relation: Relation, codecs: Mapping[str, Codec]
) -> UnitsView | None:
    """Compare the copy with what was asked about units by a relation; None where nothing was.

    ``codecs`` are those of the relation's columns.
    """
    siblings = model.release.find_moments(siblings_task(relation).name)
    order = OrderOf.of(model.plan, relation)
    answers = order_answers(model.release, relation)
    if siblings is None and answers.moments is None:
        return None
    rows = _rows(model, coded, relation)
    agreements: tuple[Agreement, ...] = ()
    if siblings is not None:
        of_copy = rows.answer(siblings.moments, rows.codes) / max(rows.real * rows.scale, 1.0)
        asked = siblings.values / max(rows.real, 1.0)
        own = [c for c, d in siblings.moments.siblings if c == d]
        agreements = tuple(
            Agreement(
                dict(relation.left)[c].column,
                float(np.trace(matrix(siblings.moments, of_copy, (c,), (c,)))),
                float(np.trace(matrix(siblings.moments, asked, (c,), (c,)))),
                2 * siblings.sigma * math.sqrt(codecs[c].size) / max(rows.real, 1.0),
            )
            for c in own
        )
    if order is None or answers.moments is None:
        return UnitsView(agreements)
    return _with_order(model, db, rows, order, codecs, agreements)


def _with_order(
    model: Model,
    db: Mapping[str, pa.Table],
    rows: _Rows,
    order: OrderOf,
    codecs: Mapping[str, Codec],
    agreements: tuple[Agreement, ...],
) -> UnitsView:
    """Add gaps and transitions: the copy's rows in their order, asked as the real ones were."""
    relation = order.relation
    answers = order_answers(model.release, relation)
    assert answers.moments is not None
    moments, sigma = answers.moments.moments, answers.moments.sigma
    column = column_of(db, relation.table, model.plan.table[relation.table].column[order.by].column)
    time = points(column)[rows.which]
    gaps = order.gaps(answers.gaps)
    own = {n: rows.codes[n] for n in order.own}
    other = {n: c for n, c in rows.codes.items() if n not in own}
    placed, which = order.placed(own, other, rows.owner, time, gaps)
    there = rows.some(which)
    of_copy = there.answer(moments, placed.codes) / max(rows.real * rows.scale, 1.0)
    asked = answers.moments.values / max(rows.real, 1.0)
    transitions = []
    for before, name in order.before.items():
        if (name, before) in moments.together:
            words = labels(codecs[name].column, codecs[name].domain)
            one, two = (matrix(moments, v, (name,), (before,)).T[: len(words)] for v in (asked, of_copy))
            title = dict(relation.left)[name].column
            transitions.append(Transition(title, words, words, one, two, sigma / max(rows.real, 1.0)))
    transitions.sort(key=lambda t: -float(np.square(t.measured).sum()) / t.measured.size)
    shown = None
    if gaps is not None:
        has = np.append(False, placed.owner[1:] == placed.owner[:-1]) & ~np.isnan(time[which])
        step = np.diff(np.nan_to_num(time[which]), prepend=0.0)[has]
        shape = {order.gap: len(gaps.edges)}
        read = [e for noisy in answers.gaps for e in estimates(noisy, shape, lambda _: np.array(0.0))]
        bucket = np.clip(np.searchsorted(gaps.edges, step, side="right") - 1, 0, len(gaps.edges) - 2)
        bucket = np.append(bucket, np.full(len(has) - len(step), len(gaps.edges) - 1))
        kind = model.plan.table[relation.table].column[order.by].column.type.kind
        shown = Distribution(
            f"since the row before, by {order.by}",
            "gap",
            (*_spans(gaps.edges, kind), "(first)"),
            True,
            np.bincount(bucket, minlength=len(gaps.edges)).astype(np.int64),
            combined([e.summed((order.gap,)) for e in read if order.gap in e.columns]),
            None,
        )
    return UnitsView(agreements, order.by, shown, tuple(transitions))


def _spans(edges: tuple[int, ...], kind: str) -> list[str]:
    """Say buckets of gaps in words.

    >>> _spans((0, 1, 4, 9), "date"), _spans((0, 60, 7200, 90000), "timestamp")
    (['0 d', 'to 3 d', 'to 8 d'], ['to 59 s', 'to 119 min', 'to 24 h'])
    """

    def word(last: int) -> str:
        if kind != "timestamp":
            return f"{last} d" if kind == "date" else f"{last}"
        size, name = next(((s, n) for s, n in LONG if last >= 2 * s), LONG[-1])
        return f"{last // size} {name}"

    return [word(b - 1) if b - a == 1 else f"to {word(b - 1)}" for a, b in pairwise(edges)]


@dataclass(frozen=True)
class _Rows:
    """Rows of a copy with their owners and units, and codes of the columns that a relation sees."""

    codes: dict[str, IntArray]
    owner: IntArray
    unit: IntArray
    which: IntArray
    """Which rows of the table these are."""
    bound: int
    real: float
    """Number of real rows that were asked about, as far as it is known."""

    @property
    def scale(self) -> float:
        """Rows of the copy for each real one."""
        return len(self.owner) / self.real

    def some(self, rows: IntArray) -> _Rows:
        """These rows, in another order."""
        codes = {n: c[rows] for n, c in self.codes.items()}
        return _Rows(codes, self.owner[rows], self.unit[rows], self.which[rows], self.bound, self.real)

    def answer(self, moments: UnitMoments, codes: Mapping[str, IntArray]) -> FloatArray:
        """What the question says of these rows without noise, by what it says of some units."""
        every = np.unique(self.unit)
        looked_at = min(len(every), OWNERS_LOOKED_AT)
        total = np.zeros(len(moments.at[0]))
        if not looked_at:
            return total
        some = np.flatnonzero(self.unit <= every[looked_at - 1])
        some = some[np.lexsort((some, self.owner[some], self.unit[some]))]
        owner = self.owner[some]
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        nth = np.arange(len(owner)) - np.repeat(first, np.diff(np.append(first, len(owner))))
        some = some[nth < self.bound]
        asked = {n: codes[n][some] for n, _ in moments.centres}
        for vectors in unit_vectors(self.unit[some], self.owner[some], asked, moments, most_rows=self.bound):
            length = np.sqrt(np.square(vectors).sum(axis=1))
            total += np.minimum(1.0, moments.clip / np.maximum(length, 1e-300)) @ vectors
        total[: moments.at[2]] *= moments.scale
        return total * len(every) / looked_at


def _rows(model: Model, coded: CodedDatabase, relation: Relation) -> _Rows:
    plan, table, key = model.plan, relation.table, relation.key
    links, units = coded.links[table, key], coded.position(table, tuple(k for _, k in plan.promise.chain(table)))
    which = np.flatnonzero((links >= 0) & (units >= 0))
    owner, codes = links[which].astype(np.int64), {}
    for name, a in relation.left:
        if not a.path:
            codes[name] = coded.codes[table, a.column][which].astype(np.int64)
    for name, a in relation.right:
        if len(a.path) == 1:
            codes[name] = coded.codes[relation.target, a.column][owner].astype(np.int64)
    real = max(model.sizes[table] * model.blueprint.share(table, key), 1.0)
    return _Rows(codes, owner, units[which].astype(np.int64), which, plan.promise.bounds[table, key], real)
