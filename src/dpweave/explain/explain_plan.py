"""What a plan will do, said before it does it: promise, rows a unit owns, budget, expected noise, warnings.

Everything here follows from the plan, epsilon and delta. No row is read and nothing is spent.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.budget.allocation import Allocation, allocate
from dpweave.budget.priorities import moved
from dpweave.budget.tasks import (
    Task,
    favoured,
    link_task,
    serving,
    task_view,
)
from dpweave.budget.ways_of_counting import task_way, view_units
from dpweave.explain.draft_notes import said_of_bare_rows
from dpweave.explain.explanation_text import explanation_text, short
from dpweave.explain.forecast import forecast
from dpweave.explain.prices import gaussian_sigma, learnings, spendings, worst_l2
from dpweave.explain.verdict import enough_epsilon, predicted, predicted_table
from dpweave.measure.design import inner_sets
from dpweave.measure.margins import even_margin
from dpweave.measure.per_unit.public_row_sums import PublicRowSums
from dpweave.measure.question import Way
from dpweave.plan.explanation import (
    Explanation,
    Holding,
    Judged,
    KeyOutlook,
    Learned,
    ServedWorkload,
    Spending,
    TableOutlook,
    Verdict,
)
from dpweave.privacy.certificate import Guarantee, said_together, statement
from dpweave.privacy.sensitivity import belonging
from dpweave.schema.database import Type
from dpweave.schema.domain import MAX_CELLS, Bins, Categories, Learn, Opaque, parse_degree, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dpweave.plan.compiled import CompiledPlan, CompiledTable
    from dpweave.plan.entries import TablePlan
    from dpweave.plan.plan import Plan
    from dpweave.plan.relations import Relation as LinkedRelation


def explain(plan: Plan, *, epsilon: float, delta: float, enough: bool = True) -> Explanation:
    """Work out what ``plan`` promises and what a fit at (epsilon, delta) can be expected to give.

    ``enough``: advice also names an epsilon that would be enough, for which tables are predicted some five times more,
    and all is said in words too.
    """
    allocation = allocate(plan, epsilon=epsilon, delta=delta)
    promise, compiled = plan.promise, plan.compile()
    budget = spendings(plan, allocation)
    learned = learnings(compiled, allocation)
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
    judged = _judged(plan, budget, learned)
    multiple = enough_epsilon(judged, partial(_judged_at, plan, delta), epsilon) if enough else None
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
        verdict=predicted(plan, allocation, judged, enough=multiple),
    )
    return replace(found, text=explanation_text(found)) if enough else found


# -- working it out ----------------------------------------------------------------------------------------------------


def expected_verdict(plan: Plan, *, epsilon: float, delta: float) -> Verdict:
    """Return the verdict of :func:`explain` alone, which takes a part of its time."""
    allocation = allocate(plan, epsilon=epsilon, delta=delta)
    budget, learned = spendings(plan, allocation), learnings(plan.compile(), allocation)
    return predicted(plan, allocation, _judged(plan, budget, learned))


def _judged(plan: Plan, budget: Sequence[Spending], learned: Sequence[Learned]) -> list[Judged]:
    """What private tables should be worth."""
    compiled = plan.compile()
    return [predicted_table(compiled.table[name], budget, learned) for name in plan.promise.private]


def _judged_at(plan: Plan, delta: float, epsilon: float) -> list[Judged]:
    """What private tables should be worth at (epsilon, delta)."""
    allocation = allocate(plan, epsilon=epsilon, delta=delta)
    return _judged(plan, spendings(plan, allocation), learnings(plan.compile(), allocation))


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
    units = view_units(plan, relation.view)
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
    chosen, why = choose(shape, allocation.tasks[task], table.rows, worst_l2(plan, task, ordinary=False))
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
    many: dict[tuple[str, bool], list[str]] = {}
    for h in holdings:
        worst = max(noise.get((group, h.table), 0.0) for group in ("sizes", "tables"))
        if h.table != h.unit and h.rows > 1 and worst > chosen.USEFUL * seen[h.table]:
            cheap = plan.compile().table[h.table].has_cheap_bound
            many.setdefault((h.unit, cheap), []).append(f"{h.rows:,} rows of {h.table}")
    for (unit, cheap), rows_of in many.items():
        where = ""
        if cheap:
            where = (
                " on a server, in links between private rows and in how many rows there are. Elsewhere such a"
                " bound costs little, and one that hides next to nothing is best"
            )
        yield (
            f"one row of {unit} can own {', '.join(rows_of)}, and noise there grows in proportion{where};"
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
