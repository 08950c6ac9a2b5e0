"""Numbers of rows: of tables, and of each owner (degrees), put together from all counts of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from dpweave import chosen
from dpweave.budget.tasks import Task
from dpweave.measure.answers import averaged
from dpweave.plan.relations import degree_codec, repetition_codec
from dpweave.privacy.accounting import split
from dpweave.schema.domain import View, parse_repetition
from dpweave.tables.owned_row_counts import (
    DegreeCounts,
    Rows,
    combined,
    degree_groups,
    finer,
    joined,
    kept_share,
    modest,
    with_declared,
    within_owners,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.budget.allocation import Allocation
    from dpweave.plan.compiled import CompiledKey, CompiledPlan
    from dpweave.plan.plan import Plan
    from dpweave.privacy.curator import Curator
    from dpweave.privacy.release import Release
    from dpweave.privacy.window import NoisyMarginal
    from dpweave.progress import Progress


def measure_sizes(curator: Curator, plan: CompiledPlan, allocation: Allocation, report: Progress) -> None:
    """Measure numbers of rows, and of rows that repeat a pair."""
    with report.step("measure sizes"):
        for task, rho in allocation.tasks.items():
            view = plan.table[task.table].repetition_view
            if view is not None and (key := parse_repetition(task.item)):
                curator.set_codec(task.table, task.item, repetition_codec(key))
                curator.measure(view, [(task.item,)], what=task.name, rho=rho)
            elif task.group == "sizes":
                curator.measure(View.of_table(task.table, ()), [()], what=task.name, rho=rho)


def count_degrees(curator: Curator, plan: CompiledPlan, allocation: Allocation, report: Progress) -> None:
    """Count how many rows owners have, beyond any bound: in growing buckets first, then in finer cells where owners are
    many. Where a release that is extended has both, the finer cells are counted again.
    """
    for name in plan.promise.private:
        for key in plan.table[name].counted_keys:
            task = Task("domains", name, key.degree)
            if task in allocation.tasks:
                with report.step(f"learn how many {key.table} a row of {name} has"):
                    rho = allocation.tasks[task]
                    looks = curator.release.find(task.name)
                    if not looks:
                        first, rho = split(rho, [chosen.FIRST_COUNT, 1 - chosen.FIRST_COUNT])
                        looks = (_look(curator, task, key, key.fine_degrees, first),)
                    _look(curator, task, key, finer(looks[0], key.fine_degrees), rho)


def known_degrees(plan: CompiledPlan, release: Release) -> dict[Task, DegreeCounts]:
    """Put together what a release says of how many rows owners have."""
    found = {}
    for name in plan.promise.private:
        for key in plan.table[name].counted_keys:
            task = Task("domains", name, key.degree)
            if looks := release.find(task.name):
                found[task] = joined(looks, key.fine_degrees)
    return found


def _look(curator: Curator, task: Task, key: CompiledKey, edges: tuple[int, ...], rho: float) -> NoisyMarginal:
    """Count owners by degree in cells with these edges."""
    curator.set_codec(task.table, task.item, degree_codec(key.table, key.name, edges))
    window = curator.window(View.of_table(task.table, (task.item,)), name=task.name)
    (counted,) = window.measure([(task.item,)], rho=rho)
    return counted


def known_sizes(plan: CompiledPlan, release: Release, degrees: Mapping[Task, DegreeCounts]) -> dict[str, Rows]:
    """How many rows of each private table bounds leave, by all counts of it: one unit
    moves degrees of owners by little, whatever the bound.
    """
    out: dict[str, Rows] = {}
    for name in plan.order:
        table = plan.table[name]
        if table.planned.public_rows is None:
            direct = averaged(release.find(Task("sizes", name).name))
            out[name] = Rows(float(direct.counts), direct.sigma)
            if table.planned.rows is not None:
                out[name] = with_declared(out[name], table.seen_rows)
    out = _with_public_sizes(plan, out, degrees)
    # Rows without owner are nobody's degree, and blank rows are counted by degrees alone.
    owned = [name for name in out if plan.table[name].is_centred]
    keys = {name: plan.table[name].key[plan.promise.owning[name]] for name in owned}
    for name, key in keys.items():
        task = Task("domains", key.target, key.degree)
        if task in degrees and out[name].sigma > 0:
            bound = plan.promise.bounds[name, key.name]
            out[name] = combined(out[name], out[key.target], *degrees[task], bound=bound)
    for name, key in reversed(keys.items()):
        bound = plan.promise.bounds[name, key.name]
        out[name], out[key.target] = within_owners(out[name], out[key.target], bound=bound)
    for name in (n for n in out if n in plan.promise.owning):
        own = plan.promise.owning[name]
        owners, bound = out[plan.table[name].key[own].target], plan.promise.bounds[name, own]
        out[name] = modest(out[name], owners, bound=bound)
        least = min(plan.table[name].key[own].planned.min_degree, bound) * owners.used
        if out[name].sigma > 0 and out[name].rows < least:
            out[name] = replace(out[name], rows=least)
    return out


def _with_public_sizes(
    plan: CompiledPlan, measured: Mapping[str, Rows], degrees: Mapping[Task, DegreeCounts]
) -> dict[str, Rows]:
    """Add public numbers of rows, less those that bounds leave out, by what degrees tell: nothing else is counted."""
    out: dict[str, Rows] = {}
    kept: dict[str, float] = {}
    for name in plan.order:
        declared, own, most = plan.table[name].planned.public_rows, plan.promise.owning.get(name), math.inf
        kept[name] = 1.0
        if own is not None:
            key, bound = plan.table[name].key[own], plan.promise.bounds[name, own]
            task = Task("domains", key.target, key.degree)
            if task in degrees:
                kept[name] = kept_share(*degrees[task], bound=bound)
            kept[name] *= kept[key.target]
            owners = out[key.target]
            if plan.table[name].is_centred and owners.rows > chosen.SIGNIFICANT * owners.sigma:
                most = bound * owners.rows
        out[name] = measured[name] if declared is None else Rows(min(declared * kept[name], most), 0.0)
    return out


def group_degrees(
    curator: Curator,
    plan: Plan,
    allocation: Allocation,
    name: str,
    degrees: Mapping[Task, DegreeCounts],
    known: Mapping[str, Rows],
) -> Plan:
    """Group degrees so that the owner's table model can tell them apart."""
    counted = plan.compile().table[name].counted_keys
    spent_on_table = allocation.tasks[Task("tables", name)] if counted else 0.0
    for key in counted:
        task = Task("domains", name, key.degree)
        if task in degrees:
            table = plan.compile().table[name]
            others = [table.codes(c) for c in table.model_columns if c != task.item]
            # A table model spends about as much on each column's pair with the degree.
            l2 = max(curator.l2(View.of_table(name, (task.item,)), (task.item,)).values())
            noise = l2 * math.sqrt(max(len(others), 1) / (2 * spent_on_table))
            groups = degree_groups(
                *degrees[task],
                bound=plan.promise.bounds[key.table, key.name],
                noise=noise,
                values=max(others, default=1),
                rows=known[key.table].used,
            )
            plan = plan.replace_degree_edges(key.table, key.name, groups)
    return plan
