r"""What a fit will take and what its links will be worth, foretold from public facts alone.

**Time and memory.** Linear in what the work is made of, with constants that ``benchmarks/explain.py`` measures. They are
meant to tell seconds from minutes from hours.

**Errors of links.** :func:`dpweave.links.design.predict_error` for each relation, from domain sizes, its budget, its
sensitivity and about how many rows are counted, as 100 times the mean L1 error over k columns: 0 is perfect and 200 the
worst possible. Values are taken as evenly spread and links as leaning a little, so this is rough.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from dpweave.budget import Allocation, is_bagged, is_learned, is_owned, link_task
from dpweave.links.wiring import WHOLE_CELLS
from dpweave.privacy.sensitivity import movement, units_of
from dpweave.relations import model_columns, relations
from dpweave.worth import codes, moved, seen_rows, varying

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.plan import KeyPlan, Plan
    from dpweave.relations import Relation

WORST = 200.0
"""100 times the L1 distance of two distributions that have nothing in common."""
MOST_COLUMNS = 14
"""Relations with more columns are foretold from pairs alone, which is quick."""


@dataclass(frozen=True)
class LinkForecast:
    """How well the links of one relation can be learned: 100 times the mean L1 error over k columns, from 0 to 200."""

    table: str
    key: str
    target: str
    rows: int
    """About how many links are counted."""
    k: int
    at_random: float
    learned: float
    best_k: int
    """The most columns worth measuring together."""
    best_max_degree: int | None
    """Bound of the owning key that should give the smallest error; None where that cannot be told."""


@dataclass(frozen=True)
class Forecast:
    """Resources of a fit and one copy, and errors of links."""

    seconds: float
    """Of one processor core."""
    memory: float
    """Bytes at the peak."""
    guessed: tuple[str, ...]
    """Private tables that do not declare their rows, so that their number was guessed."""
    links: tuple[LinkForecast, ...]


def forecast(plan: Plan, allocation: Allocation, mechanisms: Mapping[str, str]) -> Forecast:
    """Foretell a fit of ``plan``; ``mechanisms`` says how each private table is going to be modelled."""
    seconds, memory = resources(plan, mechanisms)
    return Forecast(
        seconds,
        memory,
        tuple(n for n in plan.promise.private if plan.table[n].rows is None),
        tuple(_links(plan, allocation, r) for r in relations(plan) if is_learned(plan, r)),
    )


# -- errors ------------------------------------------------------------------------------------------------------------


def _links(plan: Plan, allocation: Allocation, relation: Relation) -> LinkForecast:
    from dpweave.links.design import predict_error, recommend_degree

    left, right = varying(plan, relation)
    rows = seen_rows(plan, relation.table)
    k = plan.k if len(left) + len(right) <= MOST_COLUMNS else 2
    rho = allocation.tasks[link_task(relation)]
    names = tuple(name for name, _ in relation.view.columns)
    l2 = max(movement(plan.promise, relation.view, names, unit).l2 for unit in plan.promise.protected)
    if is_owned(plan, relation):
        l2 = moved(plan, relation.view, (next(iter(left)), next(iter(right))))
    bagged = units_of(plan.promise, relation.view) if is_bagged(plan, relation) else None
    bagged = None if bagged is None or bagged.columns is not None else bagged
    found = predict_error(left, right, k=k, rho=rho, l2=l2, links=rows, units=bagged)
    best = None
    owner = _owner(plan, relation)
    if owner is not None and owner.max_degree and plan.table[relation.table].rows:
        units, each = seen_rows(plan, owner.key.target), l2 / owner.max_degree
        best = recommend_degree(
            left, right, k=k, rho=rho, rows=units, links=float(plan.table[relation.table].rows or 0), per_link=each
        )
    return LinkForecast(
        table=relation.table,
        key=relation.key,
        target=plan.database[relation.table].key[relation.key].target,
        rows=round(rows),
        k=k,
        at_random=min(100 * found.at_random, WORST),
        learned=min(100 * found.learned, WORST),
        best_k=found.order,
        best_max_degree=best,
    )


def _owner(plan: Plan, relation: Relation) -> KeyPlan | None:
    """Return the owning key of the table whose links these are, where lowering its bound lowers the noise."""
    return next((k for k in plan.table[relation.table].keys if k.role == "owning"), None)


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
    relations: float = 0.0
    whole: float = 0.0
    """Pairs of row types times pairs of columns, where a relation is solved at once."""
    sliced: float = 0.0
    """Links times pairs of columns, where there are too many row types and it is solved in slices."""
    slices: float = 0.0
    """One if any relation is solved in slices, whose size does not depend on anything."""


SECONDS = Work(
    fits=1.4, values=8e-7, tree_cells=2e-5, rounds=2e-3, relations=0.4, whole=1.5e-7, sliced=9e-6, slices=0.0
)
"""Processor seconds for each unit of work, as benchmarks/explain.py measures them."""
BYTES = Work(fits=2.8e8, values=60.0, tree_cells=0.0, rounds=0.0, relations=0.0, whole=5.0, sliced=0.0, slices=1.5e8)
"""Bytes at the peak for each unit of work."""


def resources(plan: Plan, mechanisms: Mapping[str, str]) -> tuple[float, float]:
    """Return processor seconds and bytes at the peak of a fit and one copy."""
    done = astuple(work(plan, mechanisms))
    return (
        sum(a * b for a, b in zip(done, astuple(SECONDS), strict=True)),
        sum(a * b for a, b in zip(done, astuple(BYTES), strict=True)),
    )


def work(plan: Plan, mechanisms: Mapping[str, str]) -> Work:
    """Add up what there is to do."""
    values = tree_cells = rounds = found = whole = sliced = 0.0
    for table, mechanism in mechanisms.items():
        sizes = [codes(plan, table, c) for c in model_columns(plan, table)]
        values += _rows(plan, table) * (len(plan.table[table].columns) + len(sizes))
        pairs = len(sizes) * (len(sizes) - 1) / 2
        if mechanism in ("mst", "woven"):
            tree_cells += (sum(sizes) ** 2 - sum(s * s for s in sizes)) / 2
        elif mechanism in ("aim", "auto"):
            rounds += len(sizes) * pairs
    for relation in relations(plan):
        if not is_learned(plan, relation):
            continue
        left, right = varying(plan, relation)
        sets, links = len(left) * len(right), _rows(plan, relation.table)
        types = min(math.prod(left.values()), links) * min(math.prod(right.values()), links)
        found += 1
        if types <= WHOLE_CELLS:
            whole += types * sets
        else:
            sliced += links * sets
    return Work(1.0, values, tree_cells, rounds, found, whole, sliced, float(sliced > 0))


def _rows(plan: Plan, table: str) -> float:
    """Rows of a private table: declared, or guessed."""
    declared = plan.table[table].rows
    return seen_rows(plan, table) if declared is None else float(declared)
