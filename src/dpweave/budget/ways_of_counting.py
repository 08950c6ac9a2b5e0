"""How rows and links are counted, decided here and nowhere else, from public facts of the plan.

Budgets, forecasts, fits and reports all ask these functions. A fit counts plainly instead where a source keeps its rows
on a server, which a plan does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpweave.budget.tasks import link_method, link_task
from dpweave.measure.question import Way
from dpweave.plan.relations import has_popular_targets, is_centred, relations
from dpweave.privacy.sensitivity import units_of

if TYPE_CHECKING:
    from dpweave.budget.tasks import Task
    from dpweave.plan.plan import Plan
    from dpweave.plan.relations import Relation


def table_way(plan: Plan, table: str) -> Way:
    """How the rows of a private table are counted: around what all of them show if every row has an owner.

    Columns that are woven onto rows made elsewhere are counted plainly.
    """
    alone = plan.neighbours == "entity" and is_centred(plan, table)
    return Way.CENTRED if alone and plan.table[table].external is None else Way.PLAIN


def relation_way(plan: Plan, relation: Relation) -> Way:
    """How the links of a relation are counted."""
    units = units_of(plan.promise, relation.view)
    if units is None or link_method(plan, relation.table, relation.key) != "map":
        return Way.PLAIN
    single, step = relation.joint is None, (relation.table, relation.key)
    if single and plan.promise.is_owning(*step) and is_centred(plan, relation.table):
        return Way.CENTRED
    if units.columns is not None:  # other units move some of the columns
        return Way.PLAIN
    if single and plan.promise.is_within(*step):
        return Way.CLIPPED
    return Way.CODED if has_popular_targets(plan, relation) else Way.PLAIN


def task_way(plan: Plan, task: Task) -> Way:
    """How a task counts: the way of its relation, or else of its table."""
    if task.group != "links":
        return table_way(plan, task.table)
    return relation_way(plan, next(r for r in relations(plan) if link_task(r) == task))
