"""Whether the rules of a plan can hold over the domains that it declares."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpweave.errors import PlanError
from dpweave.plan.rules import Ordered
from dpweave.schema.domain import Bins, Categories, to_axis

if TYPE_CHECKING:
    from dpweave.plan.declared import DeclaredPlan
    from dpweave.plan.entries import ColumnPlan


def require_possible(plan: DeclaredPlan) -> None:
    """Refuse rules that declared domains contradict, or that could not be kept without leaving them."""
    for rule in plan.constraints:
        if not isinstance(rule, Ordered):
            continue
        table = plan.table[rule.table]
        below = table if rule.key is None else plan.table[table.key[rule.key].key.target]
        low, high = declared_range(below.column[rule.lower]), declared_range(table.column[rule.upper])
        if low is None or high is None:
            continue
        if low[0] > high[1]:
            raise PlanError(
                f"{rule} contradicts the declared domains: {rule.lower!r} begins above the end of {rule.upper!r}"
            )
        if low[1] > high[1] or (rule.key is None and low[0] > high[0]):
            raise PlanError(
                f"{rule} could not be kept within the declared domains; let {rule.upper!r} begin no lower and end no"
                f" earlier than {rule.lower!r}"
            )


def declared_range(column: ColumnPlan) -> tuple[float, float] | None:
    """Smallest and largest value that a plan declares for a column, on its number line; None where it does not."""
    kind = column.column.type
    match column.domain:
        case Bins(edges=edges):
            last = to_axis(kind, edges[-1])
            return to_axis(kind, edges[0]), last if kind.kind == "float" else last - 1
        case Categories(values=values, other=False) if kind.ordered:
            points = [to_axis(kind, v) for v in values]
            return min(points), max(points)
    return None
