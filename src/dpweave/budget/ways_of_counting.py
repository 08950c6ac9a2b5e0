"""How rows and links are counted, decided here and nowhere else, from public facts of the plan.

Budgets, forecasts, fits and reports all ask these functions. A fit counts plainly instead where a source keeps its rows
on a server, which a plan does not know.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dpweave.budget.tasks import COUSINS, ORDER, SIBLINGS
from dpweave.measure.question import Way
from dpweave.plan.compiled import once, once_promised
from dpweave.privacy.accounting import split
from dpweave.privacy.sensitivity import units_of
from dpweave.schema.domain import parse_newcomer

if TYPE_CHECKING:
    from dpweave.budget.tasks import Task
    from dpweave.plan.compiled import CompiledPlan, CompiledTable
    from dpweave.plan.relations import Relation
    from dpweave.privacy.window import Units
    from dpweave.schema.domain import View


def table_way(table: CompiledTable) -> Way:
    """How the rows of a private table are counted: around what all of them show if every row has an owner.

    Columns that are woven onto rows made elsewhere are counted plainly.
    """
    return Way.CENTRED if table.has_cheap_bound and table.planned.external is None else Way.PLAIN


@once_promised
def view_units(plan: CompiledPlan, view: View) -> Units | None:
    """What is public about one unit's rows in a view (:func:`dpweave.privacy.sensitivity.units_of`).

    Columns of one row that say nothing of other rows stay alike, so that one of them is looked at for all.
    """
    own = {a.path: plan.promise.database[plan.promise.graph.walk(view.base, a.path)].column for _, a in view.columns}
    kind = {name: (a.path, "" if a.column in own[a.path] else a.column) for name, a in view.columns}
    first = {k: name for name, k in reversed(kind.items())}
    units = units_of(plan.promise, replace(view, columns=tuple((n, view.attribute[n]) for n in first.values())))
    if units is None:
        return None
    columns = None if units.columns is None else frozenset(n for n, k in kind.items() if first[k] in units.columns)
    return replace(units, shared=frozenset(n for n, k in kind.items() if first[k] in units.shared), columns=columns)


@once
def relation_way(plan: CompiledPlan, relation: Relation) -> Way:
    """How the links of a relation are counted."""
    units = view_units(plan, relation.view)
    if units is None or relation.method != "map":
        return Way.PLAIN
    if relation.is_owned:
        return Way.CENTRED
    if units.columns is not None:  # other units move some of the columns
        return Way.PLAIN
    if relation.joint is None and plan.promise.is_within(relation.table, relation.key):
        return Way.CLIPPED
    return Way.CODED if relation.has_popular_targets else Way.PLAIN


@once
def asks_for_siblings(plan: CompiledPlan, relation: Relation) -> bool:
    """Whether it is asked what rows of one owner have in common: where one may have several, which no other unit
    moves.
    """
    several = relation.is_owned and relation.kind == "one-to-many" and relation.is_learned
    return several and relation_way(plan, relation) is Way.CENTRED


def asks_for_order(plan: CompiledPlan, relation: Relation) -> bool:
    """Whether it is asked in what order these rows come."""
    key = plan.table[relation.table].key[relation.key].planned
    return key.order_by is not None and asks_for_siblings(plan, relation)


def asks_for_cousins(plan: CompiledPlan, relation: Relation) -> bool:
    """Whether it is asked what rows of one unit have in common beyond those of one owner: where owners have owners."""
    return asks_for_siblings(plan, relation) and len(plan.promise.chain(relation.table)) > 1


def for_units(plan: CompiledPlan, relation: Relation, rho: float) -> dict[str, float]:
    """What of a budget for rows of one owner is for which question, by how its name ends: even parts."""
    ends = [SIBLINGS]
    ends += [COUSINS] if asks_for_cousins(plan, relation) else []
    ends += [ORDER] if asks_for_order(plan, relation) else []
    if len(ends) == 1 or not rho:
        return dict.fromkeys(ends, 0.0) | {SIBLINGS: rho}
    return dict(zip(ends, split(rho, [1.0] * len(ends)), strict=True))


@once
def task_way(plan: CompiledPlan, task: Task) -> Way:
    """How a task counts: the way of its relation, or else of its table."""
    if task.group != "links":
        return table_way(plan.table[task.table])
    if parse_newcomer(task.item):
        return Way.PLAIN
    return relation_way(plan, plan.relation[task.table, task.item])
