"""Column sets that a plan declares to matter, wherever the tables they lie in can be joined.

A column is named ``table.column``, or ``table.key.key.column`` with the foreign keys to walk where more than one way
leads there. ``table.*`` stands for every column of a table in turn: as many workloads, which share the weight. The
columns of one workload are seen together from the rows of one table, the *base*: the nearest one from which foreign
keys lead to all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from dpweave.errors import PlanError, nearest
from dpweave.plan.entries import WorkloadPlan
from dpweave.schema.domain import Attribute, Opaque

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpweave.plan.declared import DeclaredPlan
    from dpweave.schema.domain import Path


LONGEST_WAY = 6


@dataclass(frozen=True)
class Joined:
    """A declared workload, found: its columns as seen from the rows of ``base``."""

    declared: WorkloadPlan
    base: str
    attributes: tuple[Attribute, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns as views of ``base`` call them."""
        return tuple(name_of(a) for a in self.attributes)


@dataclass(frozen=True)
class _Column:
    """A column and the keys that were written out to reach it."""

    table: str
    path: Path
    column: str


def name_of(attribute: Attribute) -> str:
    """Name of an attribute in the views of relations."""
    return ".".join((*attribute.path, attribute.column))


def joined(plan: DeclaredPlan) -> tuple[Joined, ...]:
    """Find every declared workload in the schema; refuses what is not there, not modelled, or cannot be joined."""
    return tuple(_find(plan, w) for declared in plan.workloads for w in _spelled_out(plan, declared))


def _spelled_out(plan: DeclaredPlan, workload: WorkloadPlan) -> list[WorkloadPlan]:
    """Return one workload for every column that ``table.*`` stands for, each with its part of the weight."""
    starred = [c for c in workload.columns if c.endswith(".*")]
    if not starred:
        return [workload]
    if len(starred) > 1:
        raise PlanError(f"{workload} names two tables as a whole; name one, and columns of the others")
    table = starred[0].removesuffix(".*")
    if table not in plan.table:
        raise PlanError(f"{workload}: there is no table {table!r}: {nearest(table, plan.table)}")
    counted = (c for c in plan.table[table].columns if not isinstance(c.domain, Opaque | None))
    columns = [name for c in counted if (name := f"{table}.{c.name}") not in workload.columns]
    if not columns:
        raise PlanError(f"{workload}: {table!r} has no further column that is counted; give one a domain")
    weight = workload.weight / len(columns)
    return [WorkloadPlan(tuple(c if x == starred[0] else x for x in workload.columns), weight=weight) for c in columns]


def _find(plan: DeclaredPlan, workload: WorkloadPlan) -> Joined:
    columns = [_parse(plan, workload, text) for text in workload.columns]
    base, ways = _base(plan, workload, columns)
    attributes = [Attribute(c.column, (*ways[c.table], *c.path)) for c in columns]
    while all(a.path for a in attributes) and len({a.path[0] for a in attributes}) == 1:
        base = plan.promise.graph.walk(base, attributes[0].path[:1])
        attributes = [Attribute(a.column, a.path[1:]) for a in attributes]
    if base in plan.public:
        raise PlanError(f"{workload} lies in public tables, which are copied as they are; drop it")
    if len(set(attributes)) != len(attributes):
        raise PlanError(f"{workload} names the same column twice")
    return Joined(workload, base, tuple(attributes))


def _parse(plan: DeclaredPlan, workload: WorkloadPlan, text: str) -> _Column:
    """Read ``table.column`` or ``table.key.….column``; names may hold dots themselves."""
    tables = sorted((t for t in plan.table if text.startswith(f"{t}.")), key=len, reverse=True)
    for table in tables:
        for path, column in _readings(plan, table, text.removeprefix(f"{table}.")):
            end = plan.table[plan.promise.graph.walk(table, path)]
            domain = end.column[column].domain
            if domain is None or isinstance(domain, Opaque):
                kind = "a key" if domain is None else "opaque"
                raise PlanError(
                    f"{workload}: {text!r} is {kind}, so nothing is counted of it; give it a domain or drop it"
                )
            return _Column(table, path, column)
    if tables:
        known = [f"{tables[0]}.{c}" for c in (*plan.table[tables[0]].column, *plan.table[tables[0]].key)]
    else:
        known = [f"{t.name}.{c}" for t in plan.tables for c in t.column]
    raise PlanError(f"{workload}: there is no column {text!r}: {nearest(text, known)}")


def _readings(plan: DeclaredPlan, table: str, rest: str) -> Iterator[tuple[Path, str]]:
    if rest in plan.table[table].column:
        yield (), rest
    for name, key in plan.table[table].key.items():
        if rest.startswith(f"{name}."):
            for path, column in _readings(plan, key.key.target, rest.removeprefix(f"{name}.")):
                yield (name, *path), column


def _base(plan: DeclaredPlan, workload: WorkloadPlan, columns: list[_Column]) -> tuple[str, dict[str, Path]]:
    """Return the table whose rows see all columns by the fewest steps, and the way from it to each named table."""
    named = tuple(dict.fromkeys(c.table for c in columns))
    found = [(base, ways) for base in plan.table if (ways := _ways(plan, base, named))]
    if not found:
        raise PlanError(
            f"{workload}: no table leads to all of {', '.join(named)}, so their rows cannot be joined; "
            "name columns that foreign keys connect"
        )
    options = [
        (base, dict(zip(named, chosen, strict=True))) for base, ways in found for chosen in product(*ways.values())
    ]
    least = min(sum(map(len, ways.values())) for _, ways in options)
    best = [(base, ways) for base, ways in options if sum(map(len, ways.values())) == least]
    if len(best) > 1:
        shown = [
            ", ".join(repr(".".join((base, *ways[c.table], *c.path, c.column))) for c in columns) for base, ways in best
        ]
        raise PlanError(f"{workload} can be joined in {len(best)} ways; write one of them: {'; or '.join(shown[:3])}")
    return best[0]


def _ways(plan: DeclaredPlan, base: str, named: tuple[str, ...]) -> dict[str, list[Path]] | None:
    """All shortest ways by foreign keys from ``base`` to each of the named tables, or
    None where one is out of reach.
    """
    ways: dict[str, list[Path]] = {base: [()]}
    edge = [base]
    for _ in range(LONGEST_WAY):
        reached: dict[str, list[Path]] = {}
        for table in edge:
            for name, key in plan.table[table].key.items():
                if key.key.target not in ways:
                    reached.setdefault(key.key.target, []).extend((*way, name) for way in ways[table])
        ways |= reached
        edge = list(reached)
    return {t: ways[t] for t in named} if all(t in ways for t in named) else None
