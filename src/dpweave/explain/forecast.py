r"""What a fit will take and what its links will be worth, predicted from public facts alone.

**Time and memory.** Linear in what the work is made of, with constants that
``benchmarks/explain.py`` measures. They are meant to tell seconds from minutes from hours.
Most of the time goes into links, and grows with what counts tell of them: so with epsilon.

**Errors of links.** :func:`dpweave.measure.design.predict_error` for each relation, from domain sizes, its budget, its
sensitivity and about how many rows are counted, as 100 times the mean L1 error over k columns: 0 is perfect and 200 the
worst possible. Values are taken as evenly spread and links as depending a little on columns, so this is rough.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, NamedTuple

from dpweave import chosen
from dpweave.budget.priorities import moved
from dpweave.budget.tasks import link_task
from dpweave.budget.ways_of_counting import task_way, view_units
from dpweave.links.wiring.wire import SLICE_CELLS, WHOLE_CELLS
from dpweave.measure.question import Way
from dpweave.plan.explanation import Forecast, LinkForecast

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.budget.allocation import Allocation
    from dpweave.measure.cross_workloads import Workload
    from dpweave.plan.compiled import CompiledKey, CompiledPlan, CompiledTable
    from dpweave.plan.relations import Relation


WORST = 200.0
"""100 times the L1 distance of two distributions that have nothing in common."""
MOST_COLUMNS = 14
"""Relations with more columns are predicted from pairs alone, which is quick."""


def forecast(plan: CompiledPlan, allocation: Allocation, mechanisms: Mapping[str, str]) -> Forecast:
    """Predict a fit of ``plan``; ``mechanisms`` says how each private table is going to be modelled."""
    found = predictions(plan, allocation)
    done = astuple(work(plan, mechanisms, found))
    return Forecast(
        sum(a * b for a, b in zip(done, astuple(SECONDS), strict=True)),
        sum(a * b for a, b in zip(done, astuple(BYTES), strict=True)),
        tuple(n for n in plan.promise.private if plan.table[n].planned.rows is None),
        tuple(p.links for p in found.values()),
    )


# -- errors ------------------------------------------------------------------------------------------------------------


class Predicted(NamedTuple):
    """A relation's forecast, and the components of its links that counts would inform of."""

    links: LinkForecast
    informed: tuple[Workload, ...]


def predictions(
    plan: CompiledPlan, allocation: Allocation, *, k: int | None = None, bounds: bool = True
) -> dict[Relation, Predicted]:
    """What is predicted of each relation that is learned over ``k`` columns, or as many as the plan says; and which
    bounds would be best, if they are asked for.
    """
    most = plan.k if k is None else k
    return {r: _predicted(plan, allocation, r, most=most, bounds=bounds) for r in plan.relations if r.is_learned}


def _predicted(plan: CompiledPlan, allocation: Allocation, relation: Relation, *, most: int, bounds: bool) -> Predicted:
    from dpweave.measure.design import predict_error, recommend_degree

    left, right = relation.varying
    table = plan.table[relation.table]
    rows = table.seen_rows
    k = most if len(left) + len(right) <= MOST_COLUMNS else 2
    rho = allocation.for_links(link_task(relation))
    coded = view_units(plan, relation.view) if task_way(plan, link_task(relation)) is Way.CODED else None
    found = predict_error(left, right, k=k, rho=rho, l2=_hidden(plan, relation), links=rows, units=coded)
    best = None
    # Where links are counted by values of public rows, a bound costs next to nothing by itself.
    owner = _owner(table) if bounds else None
    if owner is not None and (bound_now := owner.planned.max_degree) and table.planned.rows and coded is None:
        best = recommend_degree(
            left,
            right,
            k=k,
            rho=rho,
            rows=plan.table[owner.target].seen_rows,
            links=float(table.planned.rows),
            l2=lambda bound: _hidden(plan, relation, times=bound / bound_now),
        )
        if owner.is_single:
            best = 1  # a unique key has no more
        elif best is not None and owner.planned.degree_cap is not None:
            best = min(best, owner.planned.degree_cap)
    links = LinkForecast(
        table=relation.table,
        key=relation.key,
        target=relation.target,
        rows=round(rows),
        k=k,
        at_random=min(100 * found.at_random, WORST),
        learned=min(100 * found.learned, WORST),
        best_k=found.order,
        best_max_degree=best,
    )
    return Predicted(links, found.informed)


def _hidden(plan: CompiledPlan, relation: Relation, *, times: float = 1.0) -> float:
    """What noise has to hide of one unit in counts of a relation, if its bounds are ``times`` as high."""
    left, right = relation.varying
    way = task_way(plan, link_task(relation))
    some = (next(iter(left)), next(iter(right)))
    every = tuple(name for name, _ in relation.view.columns)
    return moved(plan, relation.view, some if way is Way.CENTRED else every, way=way, times=times)


def _owner(table: CompiledTable) -> CompiledKey | None:
    """Return the owning key of the table whose links these are, where lowering its bound lowers the noise."""
    return next((k for k in table.key.values() if k.planned.role == "owning"), None)


# -- time and memory ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """What a fit and one copy are made of; seconds and bytes are linear in it."""

    fits: float = 1.0
    """One: start, imports, the catalogue."""
    values: float = 0.0
    """Rows times columns: counted, drawn, written."""
    tree_cells: float = 0.0
    """Cells of all pairs of columns of tables that are modelled by a tree or woven."""
    rounds: float = 0.0
    """Columns times pairs of columns of tables that AIM models: it looks at every pair in each round."""
    sets: float = 0.0
    """Pairs of columns from both sides of a relation, all of which are weighed."""
    counted: float = 0.0
    """Links times those pairs."""
    cells: float = 0.0
    """Cells of what counts tell something of."""
    whole: float = 0.0
    """Pairs of row types times what counts tell something of, where a relation is solved at once."""
    sliced: float = 0.0
    """Pairs of row types that are looked at, likewise, where there are too many and it is solved in slices."""
    slices: float = 0.0
    """One if any relation is solved in slices, whose size does not depend on anything."""


SECONDS = Work(
    fits=1.1,
    values=1.2e-6,
    tree_cells=1.2e-5,
    rounds=2e-4,
    sets=8.5e-3,
    counted=1.4e-8,
    cells=4.4e-5,
    whole=4e-9,
    sliced=4e-9,
)
"""Processor seconds for each unit of work, as benchmarks/explain.py measures them."""
BYTES = Work(fits=2.7e8, values=50.0, tree_cells=1e3, cells=200.0, whole=0.3, slices=7e7)
"""Bytes at the peak for each unit of work."""


def work(plan: CompiledPlan, mechanisms: Mapping[str, str], found: Mapping[Relation, Predicted]) -> Work:
    """Add up what there is to do, ``found`` being what is predicted of each relation."""
    values = tree_cells = rounds = sets = counted = cells = whole = sliced = 0.0
    for name, mechanism in mechanisms.items():
        table = plan.table[name]
        sizes = [table.codes(c) for c in table.model_columns]
        values += _rows(table) * (len(table.planned.columns) + len(sizes))
        pairs = len(sizes) * (len(sizes) - 1) / 2
        if mechanism in ("mst", "woven"):
            tree_cells += (sum(sizes) ** 2 - sum(s * s for s in sizes)) / 2
        elif mechanism in ("aim", "auto"):
            rounds += len(sizes) * pairs
    for relation, (_, components) in found.items():
        left, right = relation.varying
        links, target = _rows(plan.table[relation.table]), relation.target
        others = _rows(plan.table[target]) if target in plan.promise.private else chosen.UNSEEN_TYPES
        types = min(math.prod(left.values()), links), min(math.prod(right.values()), others)
        size = {**left, **right}
        sets += len(left) * len(right)
        counted += links * len(left) * len(right)
        cells += sum(math.prod(size[c] for c in t.columns) for t in components)
        if math.prod(types) <= WHOLE_CELLS:
            whole += math.prod(types) * len(components)
        else:
            sliced += links * min(types[1], math.isqrt(SLICE_CELLS)) * len(components)
    return Work(1.0, values, tree_cells, rounds, sets, counted, cells, whole, sliced, float(sliced > 0))


def _rows(table: CompiledTable) -> float:
    """Rows of a private table: declared, or guessed."""
    declared = table.planned.rows
    return table.seen_rows if declared is None else float(declared)
