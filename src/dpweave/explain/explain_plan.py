"""What a plan will do, said before it does it: promise, rows a unit owns, budget, expected noise, warnings.

Everything here follows from the plan, epsilon and delta. No row is read and nothing is spent.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.budget.allocation import Allocation, allocate, declared_costs
from dpweave.budget.priorities import many, moved
from dpweave.budget.tasks import (
    ORDER,
    SIBLINGS,
    Task,
    favoured,
    is_category,
    link_task,
    serving,
    task_view,
    touched,
)
from dpweave.budget.ways_of_counting import for_common_and_order, table_way, task_way
from dpweave.explain.draft_notes import said_of_bare_rows
from dpweave.explain.explanation_text import explanation_text, short
from dpweave.explain.forecast import forecast
from dpweave.explain.verdict import predicted, predicted_table
from dpweave.measure.design import inner_sets
from dpweave.measure.margins import even_margin
from dpweave.measure.per_unit.public_row_sums import PublicRowSums
from dpweave.measure.question import Way
from dpweave.plan.compiled import once
from dpweave.plan.explanation import (
    Explanation,
    Holding,
    Judged,
    KeyOutlook,
    Learned,
    ServedWorkload,
    Spending,
    TableOutlook,
)
from dpweave.privacy.accounting import gaussian_sigma as exact_sigma
from dpweave.privacy.accounting import split
from dpweave.privacy.certificate import Guarantee, said_together, statement
from dpweave.privacy.sensitivity import belonging, movement, units_of, weighed
from dpweave.schema.database import Type
from dpweave.schema.domain import MAX_CELLS, Bins, Categories, Learn, Opaque, parse_degree, parse_presence, size
from dpweave.tables.domains.learned_ranges import rows_needed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dpweave.plan.compiled import CompiledPlan, CompiledTable
    from dpweave.plan.entries import TablePlan
    from dpweave.plan.plan import Plan
    from dpweave.plan.relations import Relation as LinkedRelation
    from dpweave.privacy.window import Weighed


gaussian_sigma = lru_cache(maxsize=4096)(exact_sigma)
"""Many columns of a table get the same budget, and exact fractions take their time."""


@lru_cache(maxsize=4096)
def _after_a_look(rho: float) -> float:
    """What one look leaves of ``rho``."""
    return split(rho, [chosen.LOOK, 1 - chosen.LOOK])[1]


def explain(plan: Plan, *, epsilon: float, delta: float) -> Explanation:
    """Work out what ``plan`` promises and what a fit at (epsilon, delta) can be expected to give."""
    allocation = allocate(plan, epsilon=epsilon, delta=delta)
    promise, compiled = plan.promise, plan.compile()
    budget = _spendings(plan, allocation)
    learned = _learnings(compiled, allocation)
    tables = tuple(_outlook(compiled, name, allocation) for name in promise.private)
    holdings = tuple(
        Holding(unit, table, rows)
        for unit in promise.protected
        for table in promise.private
        if (rows := belonging(promise, unit, table))
    )
    keys = tuple(
        KeyOutlook(name, k.key.name, k.key.target, k.role, k.max_degree, _method(compiled, name, k.key.name))
        for name in promise.private
        for k in plan.table[name].keys
    )
    workloads = tuple(_served(compiled, allocation))
    found = Explanation(
        epsilon=epsilon,
        delta=delta,
        rho=allocation.rho,
        neighbours=plan.neighbours,
        statement=statement(promise),
        protect=plan.protect,
        public=plan.public,
        holdings=holdings,
        budget=budget,
        tables=tables,
        relations=keys,
        learned=learned,
        k=plan.k,
        largest_marginal=_largest_marginal(compiled),
        forecast=forecast(compiled, allocation, {t.table: t.mechanism for t in tables}),
        workloads=workloads,
        warnings=(
            *_find_warnings(plan, budget, holdings, learned, workloads, epsilon=epsilon, delta=delta),
            *_unserved(compiled, tables),
        ),
        verdict=predicted(plan, allocation, epsilon=epsilon, tables=partial(_judged, plan, delta)),
    )
    return replace(found, text=explanation_text(found))


# -- working it out ----------------------------------------------------------------------------------------------------


def _judged(plan: Plan, delta: float, epsilon: float) -> list[Judged]:
    """What private tables should be worth at (epsilon, delta)."""
    allocation = allocate(plan, epsilon=epsilon, delta=delta)
    compiled = plan.compile()
    budget, learned = _spendings(plan, allocation), _learnings(compiled, allocation)
    return [predicted_table(compiled.table[name], budget, learned) for name in plan.promise.private]


def _spendings(plan: Plan, allocation: Allocation) -> tuple[Spending, ...]:
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
    """A task with its share, and what of a relation's is for what rows of one owner have in common, and for their
    order.
    """
    own = allocation.siblings.get(task)
    found = [(task, allocation.for_links(task))]
    if own is None:
        return found
    common, order = for_common_and_order(plan, plan.relation[task.table, task.item], own)
    parts = [(SIBLINGS, common), *([(ORDER, order)] if order else [])]
    return [*found, *((replace(task, item=f"{task.item}{name}"), part) for name, part in parts)]


def _sigma(plan: CompiledPlan, task: Task, rho: float) -> float | None:
    """Noise of a task's counts; links choose what they measure, so nothing is known of theirs beforehand."""
    if task.group == "domains" and parse_degree(task.item):
        return gaussian_sigma(_worst_l2(plan, task), rho)
    l2 = _worst_l2(plan, task)
    match task.group:
        case "links":
            return None
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


def _served(plan: CompiledPlan, allocation: Allocation) -> Iterable[ServedWorkload]:
    for workload, task in serving(plan):
        if task is None:
            continue
        weight = workload.declared.weight
        part = weight / (1 + sum(favoured(plan, task).values()))
        view = task_view(plan, task)
        l2 = moved(plan, view, workload.names, way=task_way(plan, task))
        cells = math.prod(plan.seen_codes(workload.base, a, view.linked) for a in workload.attributes)
        sigma = gaussian_sigma(l2, part * allocation.for_links(task))
        relation = plan.relation.get((task.table, task.item)) if task.group == "links" else None
        if relation is not None and task_way(plan, link_task(relation)) is Way.CODED:
            sigma = _coded_noise(plan, relation, workload.names, rho=allocation.for_links(task))
        yield ServedWorkload(workload.declared.columns, weight, task.name, cells, sigma)


def _coded_noise(plan: CompiledPlan, relation: LinkedRelation, names: Sequence[str], *, rho: float) -> float:
    """Noise of a count over ``names`` in the question that serves all workloads with
    these left columns, if values are evenly spread.
    """
    units = units_of(plan.promise, relation.view)
    assert units is not None, "only rows of units are counted so"
    weights = favoured(plan, link_task(relation))
    left, right = ({c: even_margin(n) for c, n in side.items()} for side in relation.varying)
    own = tuple(c for c in names if c in left)
    wanted = tuple(c for c in right if c in names)
    alike = {columns: w for columns, w in weights.items() if {c for c in columns if c in left} == set(own)}
    sets = list(inner_sets(tuple(c for c in right if c in columns) for columns in alike))
    question = PublicRowSums.even(left, right, units=units, sets=sets).question(own, sets, declared=True)
    noise = question.noise(rho * (1 - chosen.FIRST_COUNT) * sum(alike.values()) / (1 + sum(weights.values())))
    asked = [x for code, x in zip(question.codes, noise, strict=True) if tuple(c for c, _ in code) == wanted]
    return float(np.mean(asked) if asked else noise.max())


def _unserved(plan: CompiledPlan, tables: Sequence[TableOutlook]) -> Iterable[str]:
    """Warn of workloads within a table whose mechanism looks at no two columns together."""
    alone = {Task("tables", t.table) for t in tables if t.mechanism == "independent"}
    for workload, task in serving(plan):
        if task in alone:
            yield (
                f"{workload.declared} lies in {workload.base}, whose columns are modelled independently, so how they go"
                " together is not measured; choose aim, or spend more on it"
            )


def _quantile_share(table: TablePlan, column: str, rho: float) -> float:
    """What quantiles get of a task that learns bins: what one look leaves where the range has to be found first."""
    domain = table.column[column].domain
    declared = isinstance(domain, Learn) and domain.low is not None and domain.high is not None
    return rho if declared else _after_a_look(rho)


@once
def _weighed(plan: CompiledPlan, table: str) -> Weighed:
    """What one unit moves where categories of a table are learned."""
    return weighed(plan.promise, table)


@once
def _worst_l2(plan: CompiledPlan, task: Task, *, ordinary: bool = True) -> float:
    """What noise has to hide at most in the counts over one column of a task's view, or in its number of rows.

    Whether a linking key is null moves further than what a row says itself; ``ordinary`` leaves such columns out.
    """
    view = task_view(plan, task)
    names = [name for name, _ in view.columns]
    kept = [name for name in names if not parse_presence(name)] if ordinary else names
    single: list[tuple[str, ...]] = [(name,) for name in kept or names] or [()]
    if task.group == "tables":
        return max(moved(plan, view, columns, way=table_way(plan.table[task.table])) for columns in single)
    return max(movement(plan.promise, view, columns, unit).l2 for unit in plan.promise.protected for columns in single)


@lru_cache(maxsize=1024)
def _threshold(delta: float, sigma: float, alone: tuple[tuple[int, int], ...]) -> int:
    """Weight that a category needs; columns of a table mostly need the same, and it takes long to work out."""
    from dpweave.privacy.noise import threshold_for

    return max(threshold_for(delta, sigma, l0=n, linf=weight) for n, weight in alone)


def _learnings(plan: CompiledPlan, allocation: Allocation) -> tuple[Learned, ...]:
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


def _outlook(plan: CompiledPlan, name: str, allocation: Allocation) -> TableOutlook:
    compiled = plan.table[name]
    table = compiled.planned
    mechanism, why = _mechanism(plan, table, allocation)
    chain = plan.promise.chain(name)
    role = (
        "protected" if not chain else f"owned by {plan.promise.root(name)} through {', '.join(key for _, key in chain)}"
    )
    shape = _shape(compiled)
    return TableOutlook(
        table=name,
        role=role,
        mechanism=mechanism,
        why=why,
        modelled=tuple(c.name for c in table.modelled if not isinstance(c.domain, Opaque)),
        degrees=tuple(c for d in compiled.degree_codecs if (c := _child(d))),
        made_up=tuple(c.name for c in table.columns if _is_made_up(table, c.name)),
        nulls=tuple(c.name for c in table.modelled if isinstance(c.domain, Opaque)),
        cells=None if shape is None else sum(shape.values()),
        public_rows=table.public_rows,
    )


def _child(degree: str) -> str:
    counted = parse_degree(degree)
    return "" if counted is None else counted[0]


def _is_made_up(table: TablePlan, name: str) -> bool:
    wired = {c for k in table.keys for c in k.key.columns}
    domain = table.column[name].domain
    return name not in wired and (domain is None or isinstance(domain, Opaque))


def _mechanism(plan: CompiledPlan, table: TablePlan, allocation: Allocation) -> tuple[str, str]:
    from dpweave.tables.auto import choose

    shape = _shape(plan.table[table.name])
    task = Task("tables", table.name)
    if table.external is not None:
        return "external", f"made elsewhere for {table.external} as declared, which nobody checks here"
    if task not in allocation.tasks:
        return "none", "it has no column to model, only keys"
    if table.mechanism != "auto":
        return table.mechanism, "the plan says so"
    if shape is None:
        return "auto", "chosen once the domains are learned"
    chosen, why = choose(shape, allocation.tasks[task], table.rows, _worst_l2(plan, task, ordinary=False))
    return chosen, why.removeprefix(f"{chosen}, ").rstrip(".")


def _method(plan: CompiledPlan, table: str, key: str) -> str:
    """Return how a key's links are made; both keys of a pure junction are one relation."""
    for relation in plan.relations:
        if relation.table == table and key in (relation.key, relation.joint):
            return relation.method if relation.is_learned else "random"
    return "random"


def _shape(table: CompiledTable) -> dict[str, int] | None:
    """Numbers of codes of the columns a table's model sees, or None where one is still to be learned."""
    found = {}
    for column in table.planned.modelled:
        if column.domain is None or isinstance(column.domain, Learn):
            return None
        found[column.name] = size(column.domain, nullable=column.column.nullable)
    return found | {column: codec.size for column, codec in table.derived_codecs.items()}


def _largest_marginal(plan: CompiledPlan) -> int | None:
    largest = 1
    for name in plan.promise.private:
        shape = _shape(plan.table[name])
        if shape is None:
            return None
        largest = max(largest, math.prod(sorted(shape.values())[-plan.k :]))
    return largest


def _find_warnings(
    plan: Plan,
    budget: Sequence[Spending],
    holdings: Sequence[Holding],
    learned: Sequence[Learned],
    workloads: Sequence[ServedWorkload],
    *,
    epsilon: float,
    delta: float,
) -> Iterable[str]:
    for w in workloads:
        if w.cells > MAX_CELLS:
            yield (
                f"the workload {' × '.join(w.columns)} has about {w.cells:,} cells, more than {MAX_CELLS:,}, so only"
                " parts of it are measured; use coarser domains"
            )
    for table in plan.tables:
        for key in table.keys:
            rows, targets, bound = table.rows, plan.table[key.key.target].rows, key.max_degree
            if (
                plan.promise.is_shared(table.name, key.key.name)
                and rows
                and targets
                and bound
                and bound * targets < rows
            ):
                yield (
                    f"at most {bound * targets:,} of the {rows:,} declared rows of {table.name} are counted:"
                    f" {key.key.name} is shared, and {targets:,} rows of {key.key.target} share {bound:,} each; raise"
                    " max_degree, or make the key linking"
                )
    for table in plan.tables:
        if table.external is not None and table.external.rho is None and table.external.epsilon:
            yield (
                f"{table.name} was made elsewhere and declares {table.external} (charged as rho"
                f" {table.external.cost:.3g}); if its mechanism was accounted in rho, declare that instead, which is"
                " usually far less"
            )
    yield from said_together([Guarantee(table, 0.0, epsilon, delta) for table in plan.protect])
    if epsilon > chosen.WEAK_EPSILON:
        weak = f"{chosen.WEAK_EPSILON:g}"
        yield f"epsilon {epsilon:g} promises little: 1 to 3 is usual, above {weak} hardly anything is hidden"
    for name in plan.protect:
        rows = plan.table[name].rows
        if rows and delta * rows > 1:
            most = 1 / (10 * rows)
            yield f"delta {delta:g} is above one in the {rows:,} declared rows of {name}; take at most {most:.1g}"
    noise = {(s.group, s.table): s.sigma for s in budget if s.sigma is not None and not s.item}
    seen = {table.name: plan.compile().table[table.name].seen_rows for table in plan.tables}
    for h in holdings:
        worst = max(noise.get((group, h.table), 0.0) for group in ("sizes", "tables"))
        if h.table != h.unit and h.rows > 1 and worst > chosen.USEFUL * seen[h.table]:
            where = ""
            if plan.compile().table[h.table].has_cheap_bound:
                where = (
                    " on a server, in links between private rows and in how many rows there are. Elsewhere such a"
                    " bound costs little, and one that hides next to nothing is best"
                )
            yield (
                f"one row of {h.unit} can own {h.rows:,} rows of {h.table}, and noise there grows in proportion{where};"
                f" lower max_degree if fewer will do{' and one of these matters' if where else ''}"
            )
    for table in plan.tables:
        own = plan.promise.owning.get(table.name)
        if own is not None and table.table.is_nullable(table.key[own].key):
            yield (
                f"{table.name}.{own} may be null, so which rows have an owner is measured, and at a small budget many"
                f" rows of a copy may lack one. {said_of_bare_rows(table.name, table.key[own])}".removesuffix(".")
            )
    for s in budget:
        rows = plan.table[s.table].rows
        if rows is None or s.sigma is None or s.group not in ("sizes", "tables") or s.item:
            continue
        if s.sigma > chosen.USEFUL * rows:
            what = "its size" if s.group == "sizes" else "its columns"
            yield f"{s.table} is declared to have {rows:,} rows; counts of {what} carry noise of ± {short(s.sigma)}"
    for table in plan.tables:
        for column in table.columns:
            if (
                isinstance(column.domain, Categories | Bins)
                and column.domain.cells * noise.get(("tables", table.name), 0.0) > seen[table.name]
            ):
                yield (
                    f"{table.name}.{column.name} has {column.domain.cells:,} cells, most of them below their noise; use"
                    " fewer"
                )
            if (
                table.name not in plan.public
                and column.column.type == Type("decimal")
                and isinstance(column.domain, Learn | Bins)
            ):
                yield (
                    f"{table.name}.{column.name} is a decimal without places and comes out in whole numbers; write"
                    " decimal(12,2), with as many places as it has, or float64"
                )
    declarable = [item for item in learned if item.kind != "degrees"]
    if len(declarable) > 1:
        part = max(
            sum(s.share for s in budget if s.group == "domains" and unit in s.touches and not parse_degree(s.item))
            for unit in plan.protect
        )
        yield (
            f"{len(declarable)} domains are learned and take {part:.0%} of the budget; declare those you know to"
            " save it"
        )
