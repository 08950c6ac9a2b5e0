"""What each question of a fit gets of the budget, the noise that buys, and what learned domains need to be found.

Follows from the plan, epsilon and delta alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from dpweave import chosen
from dpweave.budget.allocation import Allocation, declared_costs
from dpweave.budget.priorities import many, moved
from dpweave.budget.tasks import Task, is_category, task_view, touched
from dpweave.budget.ways_of_counting import for_units, table_way
from dpweave.measure.question import Way
from dpweave.plan.compiled import once, once_promised
from dpweave.plan.explanation import Learned, Spending
from dpweave.privacy.accounting import gaussian_sigma as exact_sigma
from dpweave.privacy.accounting import split
from dpweave.privacy.sensitivity import weighed
from dpweave.schema.domain import Learn, parse_degree, parse_presence
from dpweave.tables.domains.learned_ranges import rows_needed

if TYPE_CHECKING:
    from dpweave.plan.compiled import CompiledPlan
    from dpweave.plan.entries import TablePlan
    from dpweave.plan.plan import Plan
    from dpweave.privacy.window import Weighed
    from dpweave.schema.domain import View


gaussian_sigma = lru_cache(maxsize=4096)(exact_sigma)
"""Many columns of a table get the same budget, and exact fractions take their time."""


@lru_cache(maxsize=4096)
def _after_a_look(rho: float) -> float:
    """What one look leaves of ``rho``."""
    return split(rho, [chosen.LOOK, 1 - chosen.LOOK])[1]


def spendings(plan: Plan, allocation: Allocation) -> tuple[Spending, ...]:
    """Return what each task gets, and the noise of its counts."""
    compiled = plan.compile()
    elsewhere = tuple(
        Spending(f"external:{name}", "external", name, "", rho, rho / allocation.rho, tuple(cost.rho), None)
        for name, cost in declared_costs(plan).items()
        for rho in [max(cost.rho.values())]
    )
    return elsewhere + tuple(
        Spending(
            task.name,
            task.group,
            task.table,
            task.item,
            rho,
            rho / allocation.rho,
            touched(compiled, of),
            _sigma(compiled, of, rho),
        )
        for of in allocation.tasks
        for task, rho in _split(compiled, allocation, of)
    )


def _split(plan: CompiledPlan, allocation: Allocation, task: Task) -> list[tuple[Task, float]]:
    """A task with its share, and what of a relation's is for rows of one owner or unit as a whole."""
    own = allocation.siblings.get(task)
    found = [(task, allocation.for_links(task))]
    if own is None:
        return found
    parts = for_units(plan, plan.relation[task.table, task.item], own)
    return [*found, *((replace(task, item=f"{task.item}{end}"), part) for end, part in parts.items())]


def _sigma(plan: CompiledPlan, task: Task, rho: float) -> float | None:
    """Noise of a task's counts; links choose what they measure, so nothing is known of theirs beforehand."""
    if task.group == "links":
        return None
    l2 = worst_l2(plan, task)
    if task.group == "domains" and parse_degree(task.item):
        return gaussian_sigma(l2, rho)
    match task.group:
        case "tables":
            rho = rho / len(plan.table[task.table].measured_columns)
        case "domains" if is_category(plan, task):
            of = _weighed(plan, task.table)
            l2 = max(of.l2.values()) / of.length
        case "domains":
            rho = _quantile_share(plan.table[task.table].planned, task.item, rho)
            table = plan.table[task.table]
            l2 = min(l2, many(table)) if table_way(table) is Way.CENTRED else l2
    return gaussian_sigma(l2, rho)


def _quantile_share(table: TablePlan, column: str, rho: float) -> float:
    """What quantiles get of a task that learns bins: what one look leaves where the range has to be found first."""
    domain = table.column[column].domain
    declared = isinstance(domain, Learn) and domain.low is not None and domain.high is not None
    return rho if declared else _after_a_look(rho)


@once_promised
def _weighed(plan: CompiledPlan, table: str) -> Weighed:
    """What one unit moves where categories of a table are learned."""
    return weighed(plan.promise, table)


def worst_l2(plan: CompiledPlan, task: Task, *, ordinary: bool = True) -> float:
    """What noise has to hide at most in the counts over one column of a task's view, or in its number of rows.

    Whether a linking key is null moves further than what a row says itself; ``ordinary`` leaves such columns out.
    """
    way = table_way(plan.table[task.table]) if task.group == "tables" else Way.PLAIN
    return _view_l2(plan, task_view(plan, task), way, ordinary=ordinary)


@once
def _view_l2(plan: CompiledPlan, view: View, way: Way, *, ordinary: bool) -> float:
    """Work out :func:`worst_l2`. What a row says itself moves alike in all columns with as many codes."""
    names, table = [name for name, _ in view.columns], plan.table[view.base]
    kept = [name for name in names if not parse_presence(name)] if ordinary else names
    alike = {table.codes(name) if name in table.planned.column else name: name for name in kept or names}
    single: list[tuple[str, ...]] = [(name,) for name in alike.values()] or [()]
    return max(moved(plan, view, columns, way=way) for columns in single)


@lru_cache(maxsize=1024)
def _threshold(delta: float, sigma: float, alone: tuple[tuple[int, int], ...]) -> int:
    """Weight that a category needs; columns of a table mostly need the same, and it takes long to work out."""
    from dpweave.privacy.noise import threshold_delta, threshold_for

    found = 0
    for n, weight in reversed(alone):  # the last ones mostly need the most, and in any order the most is found
        if found <= weight or threshold_delta(sigma, found, l0=n, linf=weight) > delta:
            found = max(found, threshold_for(delta, sigma, l0=n, linf=weight))
    return found


def learnings(plan: CompiledPlan, allocation: Allocation) -> tuple[Learned, ...]:
    """Return what each learned domain costs, and how many rows or owners it takes."""
    found = []
    for task, rho in allocation.tasks.items():
        if task.group != "domains":
            continue
        name = f"{task.table}.{task.item}"
        sigma = _sigma(plan, task, rho)
        assert sigma is not None
        if is_category(plan, task):
            of, delta = _weighed(plan, task.table), allocation.category_delta
            needed = math.ceil(_threshold(delta, sigma * of.length, of.alone) / of.length)
            found.append(Learned(name, "categories", rho, delta, sigma, needed, of.by_unit))
        elif counted := parse_degree(task.item):
            found.append(Learned(f"{counted[0]} per row of {task.table}", "degrees", rho, 0.0, sigma, None))
        else:
            column = plan.table[task.table].planned.column[task.item]
            assert isinstance(column.domain, Learn)
            whole = sigma * math.sqrt(_quantile_share(plan.table[task.table].planned, task.item, rho) / rho)
            needed = math.ceil(rows_needed(column.column.type, column.domain, whole))
            found.append(Learned(name, "bins", rho, 0.0, sigma, needed))
    return tuple(found)
