"""Everything that a fit has to ask of the rows, as tasks: what each counts, whom it touches, how it is counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpweave.budget.priorities import varying
from dpweave.plan.relations import (
    Relation,
    counted_keys,
    is_dictated,
    is_single,
    measured_columns,
    model_columns,
    relations,
    repeating_key,
    repetition_view,
)
from dpweave.plan.workloads import Joined, joined
from dpweave.privacy.sensitivity import movement
from dpweave.schema.domain import Attribute, Learn, View, degree, newcomer, parse_repetition, repetition

if TYPE_CHECKING:
    from dpweave.plan.plan import Plan


DEFAULT_METHOD = "map"


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


def tasks(plan: Plan) -> tuple[Task, ...]:
    """Everything that a fit of ``plan`` will ask of the rows."""
    out: list[Task] = []
    for name in plan.promise.private:
        table = plan.table[name]
        if table.external is None:  # else its domains are those of the rows that were brought
            out += [Task("domains", name, c.name) for c in table.columns if isinstance(c.domain, Learn)]
        out += [
            Task("domains", name, degree(child, key))
            for child, key in counted_keys(plan, name)
            if not is_single(plan, child, key)
        ]
        if table.public_rows is None:
            out.append(Task("sizes", name))
        if key := repeating_key(plan, name):
            out.append(Task("sizes", name, repetition(key)))
        if measured_columns(plan, name):
            out.append(Task("tables", name, weight=table.weight))
    out += [
        Task("links", r.table, r.key, weight=plan.table[r.table].key[r.key].weight)
        for r in relations(plan)
        if is_learned(plan, r)
    ]
    return tuple(out)


def is_learned(plan: Plan, relation: Relation) -> bool:
    """Whether a relation has anything to learn: its method wants to, both sides vary, and no other key dictates it."""
    return (
        link_method(plan, relation.table, relation.key) != "random"
        and not is_dictated(plan, relation.table, relation.key)
        and all(varying(plan, relation))
    )


def serving(plan: Plan) -> tuple[tuple[Joined, Task | None], ...]:
    """Return every declared workload with the task that will measure it: a table, or
    the first relation that sees it whole.
    """
    found: list[tuple[Joined, Task | None]] = []
    for workload in joined(plan):
        if all(not a.path for a in workload.attributes):
            own = Task("tables", workload.base)
            found.append((workload, own if own in tasks(plan) else None))
            continue
        able = (link_task(r) for r in relations(plan) if _sees(r, workload) and is_learned(plan, r))
        found.append((workload, next(able, None)))
    return tuple(found)


def _sees(relation: Relation, workload: Joined) -> bool:
    """Whether a relation's view holds a workload, with columns from either side."""
    left, right = ({a for _, a in side} for side in (relation.left, relation.right))
    wanted = set(workload.attributes)
    return relation.table == workload.base and wanted <= left | right and bool(wanted & left) and bool(wanted & right)


def favoured(plan: Plan, task: Task) -> dict[tuple[str, ...], float]:
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
    """Return the part of that task that counts how often each public row is led to."""
    return Task("links", relation.table, newcomer(relation.key))


def link_method(plan: Plan, table: str, key: str) -> str:
    """Return the method by which the links of a foreign key are made."""
    method = plan.table[table].key[key].method
    return DEFAULT_METHOD if method == "auto" else method


def is_category(plan: Plan, task: Task) -> bool:
    """Whether a task learns a list of categories, which costs delta too."""
    column = plan.table[task.table].column.get(task.item)
    return task.group == "domains" and column is not None and column.column.type.kind == "text"


def task_view(plan: Plan, task: Task) -> View:
    """Return the view a task counts, as far as its sensitivity goes."""
    if task.group == "links":
        return next(r.view for r in relations(plan) if (r.table, r.key) == (task.table, task.item))
    if key := parse_repetition(task.item):
        return repetition_view(plan, task.table, key)
    if task.group == "domains":
        return View(task.table, ((task.item, Attribute(task.item)),))
    return View.of_table(task.table, model_columns(plan, task.table) if task.group == "tables" else ())


def touched(plan: Plan, task: Task) -> tuple[str, ...]:
    """Protected tables whose units some count of a task may depend on: those that all its columns together reach."""
    view = task_view(plan, task)
    columns = tuple(name for name, _ in view.columns)
    return tuple(t for t in plan.promise.protected if movement(plan.promise, view, columns, t).l1 > 0)
