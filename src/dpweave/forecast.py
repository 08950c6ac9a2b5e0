r"""What a fit will take and what its links will be worth, foretold from public facts alone.

**Time and memory.** Linear in what the work is made of, with constants that ``benchmarks/explain.py`` measures: rows
times columns for counting and drawing, cells of pairs for tree models, rounds times pairs for AIM, links times columns for
relations. They are meant to tell seconds from minutes from hours.

**Errors of links.** :func:`dpweave.links.design.predict_error` for each relation, from domain sizes, its budget, its
sensitivity and the declared number of rows, as 100 times the mean L1 error over k columns: 0 is perfect and 200 the worst
possible. Values are taken as evenly spread and links as leaning a little, so this is rough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpweave.budget import Allocation, link_method, link_task, task_view
from dpweave.privacy.sensitivity import movement
from dpweave.relations import relations
from dpweave.schema.domain import Learn, Opaque, parse_degree, parse_presence, size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.plan import KeyPlan, Plan
    from dpweave.relations import Relation
    from dpweave.schema.domain import Attribute

WORST = 200.0
"""100 times the L1 distance of two distributions that have nothing in common."""
ASSUMED_ROWS = 100_000
"""Rows of a table that does not declare how many it has."""
LEARNED_VALUES = 12
"""Categories that a learned domain is taken to find."""
DEGREE_GROUPS = 8
MOST_COLUMNS = 14
"""Relations with more columns are foretold from pairs alone, which is quick."""
WORTH_MEASURING = 0.05
"""A number of columns counts as worth measuring together when it gets this share of a relation's budget."""


@dataclass(frozen=True)
class LinkForecast:
    """How well the links of one relation can be learned: 100 times the mean L1 error over k columns, from 0 to 200."""

    table: str
    key: str
    target: str
    rows: int
    """Declared rows of the table that holds the key."""
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
    assumed: tuple[str, ...]
    """Tables that do not declare their rows, for which ``ASSUMED_ROWS`` were taken."""
    links: tuple[LinkForecast, ...]


def forecast(plan: Plan, allocation: Allocation, mechanisms: Mapping[str, str]) -> Forecast:
    """Foretell a fit of ``plan``; ``mechanisms`` says how each private table is going to be modelled."""
    seconds, memory = resources(plan, mechanisms)
    learned = (r for r in relations(plan) if r.learnable and link_method(plan, r.table, r.key) != "random")
    return Forecast(
        seconds,
        memory,
        tuple(n for n in plan.promise.private if plan.table[n].rows is None),
        tuple(f for r in learned if (f := _links(plan, allocation, r)) is not None),
    )


# -- errors ------------------------------------------------------------------------------------------------------------


def _links(plan: Plan, allocation: Allocation, relation: Relation) -> LinkForecast | None:
    from dpweave.links.design import predict_error, recommend_degree

    rows = plan.table[relation.table].rows
    if not rows:
        return None
    left, right = (_sizes(plan, relation.table, side) for side in (relation.left, relation.right))
    k = plan.k if len(left) + len(right) <= MOST_COLUMNS else 2
    rho = {t.name: rho for t, rho in allocation.tasks.items()}[link_task(relation).name]
    view = task_view(plan, link_task(relation))
    names = tuple(name for name, _ in view.columns)
    l2 = max(movement(plan.promise, view, names, unit).l2 for unit in plan.promise.protected)
    found = predict_error(left, right, k=k, rho=rho, l2=l2, links=rows)
    orders = {len(c) for c, share in found.cliques if share >= WORTH_MEASURING}
    best = None
    if owner := _owner(plan, relation):
        owners = plan.table[owner.key.target].rows
        if owners and owner.max_degree:
            facts = {"k": k, "rho": rho, "rows": owners, "links": rows, "per_link": l2 / owner.max_degree}
            best = recommend_degree(left, right, **facts)  # type: ignore[arg-type]
    at_random, learned = (min(100 * e, WORST) for e in (found.at_random, found.learned))
    target = plan.database[relation.table].key[relation.key].target
    return LinkForecast(relation.table, relation.key, target, rows, k, at_random, learned, max(orders, default=2), best)


def _owner(plan: Plan, relation: Relation) -> KeyPlan | None:
    """Return the owning key of the table whose links these are, where lowering its bound lowers the noise."""
    return next((k for k in plan.table[relation.table].keys if k.role == "owning"), None)


def _sizes(plan: Plan, base: str, side: Sequence[tuple[str, Attribute]]) -> dict[str, int]:
    """Numbers of values of a relation's columns; of those that are still to be learned, a guess."""
    return {name: _size(plan, plan.promise.graph.walk(base, a.path), a.column) for name, a in side}


def _size(plan: Plan, table: str, column: str) -> int:
    if parse_degree(column):
        return DEGREE_GROUPS
    if parse_presence(column):
        return 2
    planned = plan.table[table].column[column]
    if isinstance(planned.domain, Learn):
        return LEARNED_VALUES if planned.column.type.kind == "text" else planned.domain.bins
    assert planned.domain is not None
    assert not isinstance(planned.domain, Opaque)
    return size(planned.domain, nullable=planned.column.nullable)


def resources(plan: Plan, mechanisms: Mapping[str, str]) -> tuple[float, float]:
    return 1.0, 1e8
