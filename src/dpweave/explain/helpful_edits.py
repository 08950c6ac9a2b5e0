"""What would help most: small changes of a plan, each tried, with what it does to the verdict.

A change is offered with what it says in public, and never made by itself. Reads no row and spends nothing.
"""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpweave import chosen
from dpweave.errors import DpweaveError
from dpweave.explain.explain_plan import expected_verdict
from dpweave.plan.plan import Plan
from dpweave.schema.domain import Bins, Learn, even_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dpweave.plan.entries import ColumnPlan
    from dpweave.plan.explanation import Explanation, Judged, Verdict

MOST_OFFERED = 5
MOST_COLUMNS = 4
"""Columns of one table that are tried one by one."""

Change = tuple[tuple[str, ...], Any]
"""A place in a plan, as :meth:`Plan.to_dict` has it, and what to put there."""


@dataclass(frozen=True)
class Helpful:
    """One change, and the mean error of tables and relations before and after it."""

    text: str
    changes: tuple[Change, ...]
    epsilon: float | None
    """Another epsilon, where that is the change."""
    before: float
    after: float
    useful: int
    """How many tables and relations are useful then."""


def helpful_edits(
    plan: Plan, found: Explanation, *, until: Callable[[], bool], most: int = MOST_OFFERED
) -> tuple[Helpful, ...]:
    """Return what helps most first. ``found`` explains the plan; once ``until`` says so, no new change is tried."""
    before = _error(found.verdict)
    tried = []
    for text, changes, epsilon in _candidates(plan, found):
        if until():
            break
        try:
            changed = changed_plan(plan, changes) if changes else plan
            verdict = expected_verdict(changed, epsilon=epsilon or found.epsilon, delta=found.delta)
        except DpweaveError:
            continue  # what a plan cannot say helps nobody
        useful = sum(j.word == "useful" for j in verdict.judged)
        tried.append(Helpful(text, changes, epsilon, before, _error(verdict), useful))
    better = [h for h in tried if h.after < before * (1 - chosen.UNNOTICED)]
    return tuple(sorted(better, key=lambda h: h.after)[:most])


def changed_plan(plan: Plan, changes: Iterable[Change]) -> Plan:
    """Return a plan with something else at some places."""
    content = deepcopy(plan.to_dict())
    for path, value in changes:
        here = content
        for name in path[:-1]:
            here = here[name]
        here[path[-1]] = value
    changed = Plan.from_dict(content)
    changed.compile().take_over(plan.compile())
    return changed


def _error(verdict: Verdict) -> float:
    return sum(j.error for j in verdict.judged) / max(len(verdict.judged), 1)


def _candidates(plan: Plan, found: Explanation) -> Iterable[tuple[str, tuple[Change, ...], float | None]]:
    """Changes to try, those that cost the least of what a copy says first."""
    poor = [j for j in found.verdict.judged if j.kind == "table" and j.word != "useful"]
    for j in poor:
        yield from _of_size(plan, j)
    yield from _of_keys(plan)
    for j in poor:
        yield from _of_columns(plan, j)
    for link in found.forecast.links:
        owning = plan.promise.owning.get(link.table)
        if link.best_max_degree is not None and owning is not None:
            yield from _of_bound(plan, link.table, owning, max(link.best_max_degree, _usual(plan, link.table, owning)))
    if all(j.word == "useful" for j in found.verdict.judged):
        return
    yield f"Spend twice as much: epsilon {2 * found.epsilon:g}. The promise is weaker then.", (), 2 * found.epsilon


def _of_size(plan: Plan, judged: Judged) -> Iterable[tuple[str, tuple[Change, ...], None]]:
    table = plan.table[judged.name]
    if table.rows is not None and not table.rows_public and table.external is None:
        text = f"Say that the number of rows of {table.name}, {table.rows:,}, is exact and no secret."
        yield text, ((("tables", table.name, "rows_public"), True),), None


def _of_keys(plan: Plan) -> Iterable[tuple[str, tuple[Change, ...], None]]:
    for table in plan.tables:
        for key in table.keys:
            if key.role != "owning":
                continue
            if table.table.is_nullable(key.key):
                changes: list[Change] = [
                    (("tables", table.name, "columns", c, "nullable"), False) for c in key.key.columns
                ]
                yield f"Say that every row of {table.name} has its row of {key.key.target}.", tuple(changes), None
            if table.table.is_unique(key.key.columns):
                yield from _of_bound(plan, table.name, key.key.name, 1)


def _usual(plan: Plan, table: str, key: str) -> int:
    """Twice the rows that an owner has on average, as declared: a lower bound would leave out rows that are known to be
    there, which no noise is worth.
    """
    rows, owners = plan.table[table].rows, plan.table[plan.table[table].key[key].key.target].rows
    return math.ceil(2 * rows / owners) if rows and owners else 1


def _of_bound(plan: Plan, table: str, key: str, bound: int) -> Iterable[tuple[str, tuple[Change, ...], None]]:
    planned = plan.table[table].key[key]
    if planned.max_degree is not None and bound < planned.max_degree:
        text = (
            f"Count at most {bound:,} {'row' if bound == 1 else 'rows'} of {table} per row of {planned.key.target}, not"
            f" {planned.max_degree:,};"
            " what is beyond is left out."
        )
        yield text, ((("tables", table, "keys", key, "max_degree"), bound),), None


def _of_columns(plan: Plan, judged: Judged) -> Iterable[tuple[str, tuple[Change, ...], None]]:
    """Fewer bins, and columns that are made up instead of learned."""
    table = plan.table[judged.name]
    binned = [c for c in table.columns if isinstance(c.domain, Bins | Learn) and c.column.type.ordered]
    for column in sorted(binned, key=_bins, reverse=True)[:MOST_COLUMNS]:
        many, where = _bins(column), ("tables", table.name, "columns", column.name, "domain")
        fewer = _rebinned(column, max(many // 2, 2)) if many > 2 else None
        if fewer is not None:
            text = f"Use {fewer['bins']} bins for {table.name}.{column.name}, not {many}."
            yield text, ((where, fewer),), None
    if judged.unlearned:
        names = [c for c in judged.unlearned if c in table.column]
        changes: list[Change] = [(("tables", table.name, "columns", c, "domain"), "opaque") for c in names]
        text = (
            f"Make up {', '.join(names)} of {table.name} afresh: noise hides them anyway, and others get their budget."
        )
        yield text, tuple(changes), None


def _bins(column: ColumnPlan) -> int:
    domain = column.domain
    return domain.bins if isinstance(domain, Learn) else domain.cells if isinstance(domain, Bins) else 0


def _rebinned(column: ColumnPlan, bins: int) -> Any:
    """Return the same domain with so many bins; None for bins of different widths, which somebody chose."""
    domain = column.domain
    if isinstance(domain, Learn):
        given = {"low": domain.low, "high": domain.high}
        return {"learn": True, **{k: v for k, v in given.items() if v is not None}, "bins": bins}
    even = even_range(column.column.type, domain) if isinstance(domain, Bins) else None
    return None if even is None else even | {"bins": bins}
