"""Everything that a fit has to ask of the rows, as tasks: what each counts, whom it touches, how it is counted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dpweave.plan.compiled import once, once_promised
from dpweave.privacy.sensitivity import movement
from dpweave.schema.domain import (
    Attribute,
    Learn,
    View,
    newcomer,
    parse_degree,
    parse_newcomer,
    parse_repetition,
    repetition,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.plan.compiled import CompiledPlan
    from dpweave.plan.relations import Relation
    from dpweave.plan.workloads import Joined
    from dpweave.privacy.sensitivity import Movement


SIBLINGS = ":siblings"
"""Ends the names of questions about rows of one owner."""
COUSINS = ":cousins"
"""Ends the names of questions about rows of one unit, whose own owners may differ."""
ORDER = ":order"
"""Ends the names of questions about the order of rows of one owner."""


@dataclass(frozen=True)
class Task:
    """One thing to spend on. ``group`` is the share it belongs to."""

    group: str
    table: str
    item: str = ""
    weight: float = field(default=1.0, compare=False)
    """What the plan says of its importance."""

    @property
    def name(self) -> str:
        """Under which the ledger knows it."""
        return f"{self.group}:{self.table}" + (f".{self.item}" if self.item else "")


@once
def tasks(plan: CompiledPlan) -> tuple[Task, ...]:
    """Everything that a fit of ``plan`` will ask of the rows."""
    out: list[Task] = []
    for name in plan.promise.private:
        table = plan.table[name]
        planned = table.planned
        if planned.external is None:  # else its domains are those of the external rows
            out += [
                Task("domains", name, c.name, weight=planned.weight)
                for c in planned.columns
                if isinstance(c.domain, Learn)
            ]
        out += [
            Task("domains", name, key.degree, weight=planned.weight) for key in table.counted_keys if not key.is_single
        ]
        if planned.public_rows is None:
            out.append(Task("sizes", name))
        if table.repeating_key:
            out.append(Task("sizes", name, repetition(table.repeating_key)))
        if table.measured_columns:
            out.append(Task("tables", name, weight=planned.weight))
    out += [Task("links", r.table, r.key, weight=r.weight) for r in plan.relations if r.is_learned]
    out += [replace(popularity_task(r), weight=r.weight) for r in plan.relations if r.is_popularity_alone]
    return tuple(out)


@once
def serving(plan: CompiledPlan) -> tuple[tuple[Joined, Task | None], ...]:
    """Return every declared workload with the task that will measure it: a table, or
    the first relation that sees it whole.
    """
    found: list[tuple[Joined, Task | None]] = []
    for workload in plan.workloads:
        if all(not a.path for a in workload.attributes):
            own = Task("tables", workload.base)
            found.append((workload, own if own in tasks(plan) else None))
            continue
        able = (link_task(r) for r in plan.relations if _sees(r, workload) and r.is_learned)
        found.append((workload, next(able, None)))
    return tuple(found)


def _sees(relation: Relation, workload: Joined) -> bool:
    """Whether a relation's view holds a workload, with columns from either side."""
    left, right = ({a for _, a in side} for side in (relation.left, relation.right))
    wanted = set(workload.attributes)
    return relation.table == workload.base and wanted <= left | right and bool(wanted & left) and bool(wanted & right)


def favoured(plan: CompiledPlan, task: Task) -> dict[tuple[str, ...], float]:
    """Return the columns of the declared workloads that a task serves, as its view calls them, with their weights."""
    found: dict[tuple[str, ...], float] = {}
    for workload, by in serving(plan) if plan.workloads else ():
        if by == task:
            found[workload.names] = found.get(workload.names, 0.0) + workload.declared.weight
    return found


def link_task(relation: Relation) -> Task:
    """Return the task that learns a relation, but for its weight."""
    return Task("links", relation.table, relation.key)


def popularity_task(relation: Relation) -> Task:
    """Return the part of that task that counts how often each public row is led to; a
    task by itself where nothing else can be learned.
    """
    return Task("links", relation.table, newcomer(relation.key))


def siblings_task(relation: Relation) -> Task:
    """Return the part of that task that asks what rows of one owner have in common."""
    return Task("links", relation.table, f"{relation.key}{SIBLINGS}")


def cousins_task(relation: Relation) -> Task:
    """Return the part of that task that asks what rows of one unit have in common, over several owners."""
    return Task("links", relation.table, f"{relation.key}{COUSINS}")


def order_task(relation: Relation) -> Task:
    """Return the part of that task that asks in what order rows of one owner come."""
    return Task("links", relation.table, f"{relation.key}{ORDER}")


def is_category(plan: CompiledPlan, task: Task) -> bool:
    """Whether a task learns a list of categories, which costs delta too."""
    column = plan.table[task.table].planned.column.get(task.item)
    return task.group == "domains" and column is not None and column.column.type.kind == "text"


def task_view(plan: CompiledPlan, task: Task) -> View:
    """Return the view a task counts, as far as its sensitivity goes."""
    table = plan.table[task.table]
    if task.group == "links":
        key = parse_newcomer(task.item)
        return plan.relation[task.table, key].newcomer_view if key else plan.relation[task.table, task.item].view
    if parse_repetition(task.item) and table.repetition_view is not None:
        return table.repetition_view
    if task.group == "domains":  # what a row says itself moves as the row does, whatever column says it
        return View.of_table(task.table, (task.item,) if parse_degree(task.item) else ())
    return View.of_table(task.table, table.model_columns if task.group == "tables" else ())


def movements(plan: CompiledPlan, view: View, columns: tuple[str, ...]) -> Mapping[str, Movement]:
    """What one unit of each protected table can move in counts over ``columns``.

    Columns of one row that say nothing of other rows move alike, so that the first of its table stands for all.
    """
    alike: dict[Attribute, None] = {}
    for name in columns:
        attribute = view.attribute[name]
        own = plan.promise.database[plan.promise.graph.walk(view.base, attribute.path)]
        column = own.columns[0].name if attribute.column in own.column else attribute.column
        alike[Attribute(column, attribute.path)] = None
    return _movements(plan, View(view.base, tuple((str(i), a) for i, a in enumerate(alike)), view.linked))


@once_promised
def _movements(plan: CompiledPlan, view: View) -> Mapping[str, Movement]:
    columns = tuple(view.attribute)
    return {unit: movement(plan.promise, view, columns, unit) for unit in plan.promise.protected}


def touched(plan: CompiledPlan, task: Task) -> tuple[str, ...]:
    """Protected tables whose units some count of a task may depend on: those that all its columns together reach."""
    return _touched(plan, task_view(plan, task))


@once_promised
def _touched(plan: CompiledPlan, view: View) -> tuple[str, ...]:
    columns = tuple(name for name, _ in view.columns)
    return tuple(t for t, moved in movements(plan, view, columns).items() if moved.l1 > 0)
