"""Whether the rules of a plan can hold over the domains that it declares."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from dpweave.errors import PlanError
from dpweave.plan.rules import Allowed, Determined, Equal, Exactly, NeverBack, Ordered, Symmetric
from dpweave.schema.domain import MAX_CELLS, Bins, Categories, Learn, require_fitting, size, to_axis

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dpweave.plan.declared import DeclaredPlan
    from dpweave.plan.entries import ColumnPlan
    from dpweave.schema.domain import Scalar


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


def require_listed(plan: DeclaredPlan, rule: Allowed) -> None:
    """Refuse combinations whose columns list no values, or other values, and those that another rule would undo."""
    table = plan.table[rule.table]
    cells = 1
    for name in rule.columns:
        column = table.column[name]
        if not isinstance(column.domain, Categories):
            raise PlanError(
                f"{rule}: the domain of {name!r} must list its values, such as domain = [...]; the rule names them"
                " already, so they are public"
            )
        cells *= size(column.domain, nullable=column.column.nullable)
    if cells > MAX_CELLS:
        raise PlanError(f"{rule} has {cells:,} combinations to tell apart, more than {MAX_CELLS:,}; name fewer columns")
    if isinstance(rule.allowed, str):
        if rule.allowed not in plan.public:
            raise PlanError(f"{rule}: {rule.allowed!r} is private; only a public table can say what is allowed")
    else:
        codes_of(plan, rule, rule.allowed)
    for other in plan.constraints:
        if isinstance(other, Determined) and other.table == rule.table and not is_modelled(plan, other):
            both = {other.dependent} & {*rule.columns}
            if both:
                raise PlanError(f"{rule} and {other} both decide {other.dependent!r}; drop one of them")


def require_possible_counts(plan: DeclaredPlan, rule: Exactly) -> None:
    """Refuse a rule on how often a value comes where targets may have too few rows, or the value is not listed."""
    table = plan.table[rule.table]
    key, domain = table.key[rule.per], table.column[rule.column].domain
    if not isinstance(domain, Categories) or rule.value not in domain.values or domain.other or len(domain.values) < 2:
        raise PlanError(
            f"{rule}: the domain of {rule.column!r} must list all values, {rule.value!r} and at least one more"
        )
    require_fitting(table.column[rule.column].column, Categories((rule.value,)))
    if key.role != "owning" or key.min_degree < rule.exactly:
        raise PlanError(
            f"{rule}: every target must have that many rows; let {rule.per!r} be the owning key and say"
            f" min_degree = {rule.exactly} there"
        )


def require_free_key(plan: DeclaredPlan, rule: Equal) -> None:
    """Refuse a rule whose key cannot simply follow: others hold it, or what it follows would follow it."""
    table = plan.table[rule.table]
    key = table.key[rule.key]
    taken = [k for k in table.keys if k is not key and {*k.key.columns} & {*key.key.columns}]
    unique = [u for u in (table.primary_key, *table.unique) if {*u} & {*key.key.columns}]
    if key.role != "attribute" or taken or unique:
        raise PlanError(
            f"{rule}: {rule.key!r} must lead to a public table and share no column with another key or a unique one;"
            " name the paths the other way round, or drop the rule"
        )
    here = rule.table
    followers = {(r.table, r.key): r for r in plan.constraints if isinstance(r, Equal)}
    if followers[here, rule.key] != rule:
        raise PlanError(f"{rule} and {followers[here, rule.key]} both decide {rule.key!r}; drop one of them")
    for step in rule.path:
        if (here, step) in followers:
            raise PlanError(f"{rule} and {followers[here, step]} follow each other; drop one of them")
        here = plan.table[here].key[step].key.target


def require_two_ways(plan: DeclaredPlan, rule: Symmetric) -> None:
    """Refuse a rule on pairs of keys that something else holds: rows are given other targets by the second one."""
    table = plan.table[rule.table]
    keys = [table.key[name] for name in rule.symmetric]
    for key in keys:
        if key.min_degree or key.within:
            said = "min_degree" if key.min_degree else "within"
            raise PlanError(f"{rule}: {key.key.name!r} says {said}, which could not be kept with it; drop one of them")
        for other in table.keys:
            if other not in keys and {*other.key.columns} & {*key.key.columns}:
                raise PlanError(f"{rule}: {key.key.name!r} shares columns with {other.key.name!r}; drop the rule")
    if plan.neighbours == "record" and keys[0].max_degree != keys[1].max_degree:
        raise PlanError(f"{rule}: who has links one way has as many the other way; give both keys the same max_degree")


def require_order(plan: DeclaredPlan, rule: NeverBack) -> None:
    """Refuse a rule on rows that come in no order, or on values that have none."""
    table = plan.table[rule.table]
    by = order_of(plan, rule.table)
    if by is None:
        raise PlanError(f"{rule}: rows come in no order; let the owning key of {rule.table!r} say order_by")
    if by == rule.never_back:
        raise PlanError(f"{rule}: rows are in the order of {by!r} anyway; drop the rule")
    column = table.column[rule.never_back]
    domain = column.domain
    listed = isinstance(domain, Categories) and not domain.other
    if not listed and not (column.column.type.ordered and isinstance(domain, Bins | Learn)):
        raise PlanError(f"{rule}: its values have no order; let the domain of {rule.never_back!r} list them in theirs")


def order_of(plan: DeclaredPlan, table: str) -> str | None:
    """The column by which rows of one owner come one after the other, if they do."""
    return next((k.order_by for k in plan.table[table].keys if k.order_by is not None), None)


def codes_of(
    plan: DeclaredPlan, rule: Allowed, combinations: Iterable[Sequence[Scalar | None]]
) -> list[tuple[int, ...]]:
    """Codes of the combinations that a rule allows; a value that its column does not have is refused by name."""
    columns = [plan.table[rule.table].column[name] for name in rule.columns]
    places = []
    for column in columns:
        assert isinstance(column.domain, Categories)
        places.append({value: code for code, value in enumerate(column.domain.values)})
    found = []
    for values in combinations:
        code = []
        for column, place, value in zip(columns, places, values, strict=True):
            if value is None and column.column.nullable:
                code.append(column.domain.cells)  # type: ignore[union-attr]
                continue
            if value is not None:
                require_fitting(column.column, Categories((value,)))
            if value not in place:
                raise PlanError(
                    f"{rule}: {'null' if value is None else repr(value)} is not in the domain of {column.name!r};"
                    " add it there, or drop what names it"
                )
            code.append(place[value])
        found.append(tuple(code))
    return found


def is_modelled(plan: DeclaredPlan, rule: Determined) -> bool:
    """Whether a table's model can hold a rule: rows with one code of ``columns`` have one value there.

    A model has no keys, and tells values apart only where each has a code of its own. Rows made elsewhere come as they
    are.
    """
    table = plan.table[rule.table]
    columns = [table.column[name] for name in rule.columns]
    return (
        table.external is None
        and all(_has_code_per_value(column) for column in columns)
        and isinstance(table.column[rule.dependent].domain, Categories | Bins)
    )


def _has_code_per_value(column: ColumnPlan) -> bool:
    """Whether no two values of a column share a code."""
    kind = column.column.type
    match column.domain:
        case Categories():
            return True
        case Bins(edges=edges) if kind.kind != "float":
            return all(to_axis(kind, b) - to_axis(kind, a) == 1 for a, b in pairwise(edges))
    return False
