r"""What a share of the budget is worth to a table or a relation, by public facts alone.

A task counts P marginals of about s cells each over n rows, and one unit moves each of them by Δ. If it gets ρ and
splits it evenly, then :math:`\sigma^2 = P \Delta^2 / (2\rho)`, and noise alone puts the shares of a marginal about
:math:`c/\sqrt\rho` off in L1, with :math:`c = \Delta s \sqrt{P/2} / n`. Before anything is counted they are off by a:
links depart from chance by a coefficient of variance :math:`\tau^2` per cell (:mod:`dpweave.measure.design`), so
:math:`a = \tau\sqrt{s}`, and never by more than 2. Shrinking by evidence joins the two:

.. math:: e(\rho) = \frac{a}{\sqrt{1 + \rho/\rho_0}}, \qquad \rho_0 = (c/a)^2.

**Sharing.** :math:`\sum_i w_i e_i(\rho_i)` under :math:`\sum_i \rho_i = R` is convex. Its minimum has equal slopes λ
wherever something is spent:

.. math:: \rho_i = \rho_{0i} \Bigl[\Bigl(\frac{w_i a_i}{2\lambda\rho_{0i}}\Bigr)^{2/3} - 1\Bigr]_+ .

Where counts are much better than ignorance (:math:`\rho_i \gg \rho_{0i}`) this is :math:`\rho_i \propto (w_i
c_i)^{2/3}` as for errors :math:`c_i/\sqrt{\rho_i}`. What the budget cannot tell from noise anyway is not bought.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.budget.tasks import movements
from dpweave.budget.ways_of_counting import table_way, view_units
from dpweave.measure.per_unit.centred_counts import clip_for
from dpweave.measure.question import Way
from dpweave.plan.compiled import once
from dpweave.privacy.sensitivity import weighed
from dpweave.privacy.window import Units
from dpweave.schema.domain import View, parse_degree, parse_presence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dpweave.arrays import FloatArray
    from dpweave.plan.compiled import CompiledPlan, CompiledTable
    from dpweave.plan.relations import Relation
    from dpweave.privacy.window import Weighed


@dataclass(frozen=True)
class Priority:
    """A task's error as a function of what it gets: ``weight * error / sqrt(1 + rho / halfway)``.

    ``beside`` is another part of it, bought at the same slope.
    """

    weight: float
    error: float
    halfway: float
    beside: Priority | None = None

    @classmethod
    def of(
        cls, *, weight: float, marginals: int, cells: float, moved: float, rows: float, variance: float = 1.0
    ) -> Priority:
        """Work out a and ρ₀ as in the module's formulas.

        Cells vary by ``variance``, relative to even ones: by as much as they are large, where nothing is known of them.
        """
        error = min(math.sqrt(variance * cells), 2.0)
        noise = moved * cells * math.sqrt(marginals / 2) / rows
        return cls(weight, error, max((noise / error) ** 2, 1e-300))

    def left(self, rho: float) -> float:
        """Weighted error that is left for ``rho``."""
        return self.weight * self.error / math.sqrt(1 + rho / self.halfway)

    @property
    def parts(self) -> tuple[Priority, ...]:
        """It and those beside it, each by itself."""
        return (self, *(() if self.beside is None else self.beside.parts))


def shares(priorities: Sequence[Priority], *, rho: float) -> list[float]:
    """Split ``rho`` so that the errors add up to the least; returns parts of one, none
    below a quarter of an even part.

    >>> few, many = (
    ...     Priority.of(weight=1, marginals=4, cells=20, moved=d, rows=10_000) for d in (1, 8)
    ... )
    >>> [round(s, 2) for s in shares([few, many], rho=1.0)]  # as 1 to 8^(2/3) = 4, but for the least part
    [0.28, 0.72]
    """
    each = [(i, part) for i, whole in enumerate(priorities) for part in whole.parts]
    whose = np.array([i for i, _ in each])
    halfway = np.array([part.halfway for _, part in each])
    steep = np.array([part.weight * part.error for _, part in each]) / (2 * halfway)

    def bought(log_slope: float) -> FloatArray:
        """What each part gets so that a little more would lower its error by so much per unit of rho."""
        with np.errstate(over="ignore"):  # more than there is, whatever it is
            return np.asarray(halfway * np.maximum((steep / math.exp(log_slope)) ** (2 / 3) - 1.0, 0.0))

    high = math.log(float(steep.max()))
    low = high - 1.0
    while bought(low).sum() < rho:
        low -= 4.0
    for _ in range(100):
        middle, ends = (low + high) / 2, (low, high)
        low, high = (middle, high) if bought(middle).sum() > rho else (low, middle)
        if middle in ends:  # no number lies between them
            break
    found = np.bincount(whose, bought(low), minlength=len(priorities)).tolist()
    total = sum(found)
    return [chosen.LEAST_PART / len(priorities) + (1 - chosen.LEAST_PART) * x / total for x in found]


def table_priority(plan: CompiledPlan, name: str, *, way: Way, weight: float) -> Priority:
    """Priority of the columns of a table, about which nothing is known before."""
    table = plan.table[name]
    columns = table.measured_columns
    own = tuple(c for c in columns if parse_presence(c) is None) or columns
    sizes = [table.codes(c) for c in columns]
    return Priority.of(
        weight=weight * len(columns),
        marginals=len(columns),
        cells=_typical(sizes),
        moved=moved(plan, View.of_table(name, columns), own[:1], way=way),
        rows=table.seen_rows,
    )


@once
def domain_priority(plan: CompiledPlan, name: str, item: str, *, weight: float) -> Priority:
    """Priority of learning where the values of one column lie, of which nothing is known before: without it, all of
    the column is lost.

    A range is looked for in some :data:`dpweave.chosen.PIECES` cells. A category is found where it stands out beyond
    doubt. Where owners are counted, a table tells no more than they do.
    """
    table, is_degree = plan.table[name], parse_degree(item) is not None
    column = View.of_table(name, () if is_degree else (item,))
    most = max(m.l2 for m in movements(plan, column, tuple(n for n, _ in column.columns)).values())
    rows, cells = table.seen_rows, chosen.GROUPS if is_degree else chosen.PIECES
    if not is_degree and table.planned.column[item].column.type.kind == "text":
        of = _weighed(plan, name)
        most, cells = chosen.BEYOND_DOUBT * max(of.l2.values()) / of.length, chosen.UNKNOWN_CATEGORIES
        rows = min(rows, table.seen_units) if of.by_unit else rows
    elif not is_degree and table_way(table) is Way.CENTRED:
        most = min(most, many(table))
    return Priority.of(weight=weight, marginals=1, cells=cells, moved=most, rows=rows)


@once
def _weighed(plan: CompiledPlan, name: str) -> Weighed:
    """What one unit moves where categories of a table are learned."""
    return weighed(plan.promise, name)


def relation_priority(
    plan: CompiledPlan,
    relation: Relation,
    *,
    way: Way,
    weight: float,
    favoured: Mapping[tuple[str, ...], float] = MappingProxyType({}),
) -> Priority:
    """Priority of the links of a relation, which depart a little from chance (:mod:`dpweave.measure.design`).

    ``favoured`` are declared workloads, by the columns of the view, with weights. Of them nothing
    is taken as known, so that little is needed to tell much; at weight 1 they count as much as all
    the rest. Nor is much known of who is linked to at all, where that are some rows and not others.
    """
    left, right = relation.varying
    sizes = {**left, **right}
    rows = plan.table[relation.table].seen_rows
    rest = Priority.of(
        weight=weight * len(sizes),
        marginals=len(left) * len(right),
        cells=_typical(left.values()) * _typical(right.values()),
        moved=moved(plan, relation.view, (next(iter(left)), next(iter(right))), way=way),
        rows=rows,
        variance=chosen.FIRST_ORDER * chosen.DECAY * (2 - chosen.STRONG),
    )
    parts = [rest]
    if relation.is_selective:
        parts.append(
            Priority.of(
                weight=weight * len(right),
                marginals=len(right),
                cells=_typical(right.values()),
                moved=moved(plan, relation.view, (next(iter(right)),), way=way),
                rows=rows,
                variance=chosen.FIRST_ORDER / chosen.STRONG,
            )
        )
    if favoured:
        declared = Priority.of(
            weight=1.0,
            marginals=len(favoured),
            cells=_typical([math.prod(sizes.get(c, 1) for c in columns) for columns in favoured]),
            moved=max(moved(plan, relation.view, columns, way=way) for columns in favoured),
            rows=rows,
        )
        much = sum(favoured.values()) * rest.weight * rest.error / declared.error
        parts.append(replace(declared, weight=much))
    return reduce(lambda beside, part: replace(part, beside=beside), parts[1:], rest)


def popularity_priority(plan: CompiledPlan, relation: Relation, *, weight: float) -> Priority:
    """Priority of counting how often each public row is led to, where that is all there is to learn."""
    view = relation.newcomer_view
    return Priority.of(
        weight=weight,
        marginals=1,
        cells=plan.table[relation.target].planned.rows or int(chosen.UNSEEN_TYPES),
        moved=moved(plan, view, tuple(c for c, _ in view.columns), way=Way.PLAIN),
        rows=plan.table[relation.table].seen_rows,
    )


def _typical(sizes: Iterable[int]) -> float:
    """Geometric mean."""
    logs = [math.log(s) for s in sizes]
    return math.exp(sum(logs) / len(logs))


@once
def moved(plan: CompiledPlan, view: View, columns: tuple[str, ...], *, way: Way, times: float = 1.0) -> float:
    """What noise has to hide of one unit in counts over ``columns``, counted in some ``way``: all that it can move, or
    its length where counts are centred, or a usual clip.

    That length is of evenly spread values (:func:`dpweave.measure.per_unit.centred_counts.clip_for`).
    ``times`` asks for units that may own so many times as much.
    """
    most = times * max(movement.l2 for movement in movements(plan, view, columns).values())
    if way is Way.CLIPPED and any(view.attribute[c].path for c in columns):
        return min(most, chosen.MEAN_LINKS * times)
    own = [c for c in columns if not view.attribute[c].path]
    units = view_units(plan, view) if own and way is Way.CENTRED else None
    if units is None or not units.hold(columns) or not units.shared.issuperset(c for c in columns if c not in own):
        return most
    cells = math.prod(plan.table[view.base].codes(view.attribute[c].column) for c in own)
    return min(most, clip_for(many(plan.table[view.base], times=times), 1 / cells))


def many(table: CompiledTable, *, times: float = 1.0) -> float:
    """About how many rows of ``table`` a large unit has, if bounds are ``times`` as high."""
    rows = max(round(times * table.owned_rows), 1)
    return Units(rows, frozenset(), mean=table.seen_rows / table.seen_units).many
