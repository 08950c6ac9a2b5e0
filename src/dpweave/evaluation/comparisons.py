"""What is compared with real rows, and how: errors over sets of columns, degrees, association. NOT PRIVATE."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from dpweave.evaluation import distances
from dpweave.evaluation.baselines import INDEPENDENT, RESAMPLED, SYNTHETIC
from dpweave.schema.domain import Attribute, Opaque

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.model.coded_database import CodedDatabase
    from dpweave.plan.plan import Plan

MOST_WORKLOADS = 600
"""Sets of columns for one table or relation; more are sampled."""
MOST_CELLS = 1 << 20
SHOWN_PAIRS = 12


@dataclass(frozen=True)
class Crossing:
    """Columns on two sides of a relation, seen from the rows of ``base``. ``scope`` is across or two-hop."""

    name: str
    scope: str
    base: str
    left: tuple[Attribute, ...]
    right: tuple[Attribute, ...]


@dataclass(frozen=True)
class WorkloadError:
    """Mean and largest 100 · L1 over sets of ``k`` columns, by rival."""

    scope: str
    where: str
    k: int
    workloads: int
    of: int
    """How many sets of columns there are in all."""
    mean: Mapping[str, float]
    worst: Mapping[str, float]


@dataclass(frozen=True)
class DegreeDistance:
    """Kolmogorov-Smirnov distances of one foreign key, by rival.

    ``target`` compares how many rows lead to each target row; ``own`` the share of rows that lead somewhere.
    """

    where: str
    target: Mapping[str, float]
    own: Mapping[str, float]
    real_mean: float
    synthetic_mean: float


@dataclass(frozen=True)
class Association:
    """Two columns that go together in the real database: Cramér's V there and in the copy, and what was retained."""

    where: str
    left: str
    right: str
    real: float
    synthetic: float
    retention: Mapping[str, float]


@dataclass(frozen=True)
class Retention:
    """How much association across a relation survives, over all pairs of columns that have any: 1 all, 0 random."""

    scope: str
    where: str
    pairs: int
    of: int
    value: Mapping[str, float]


@dataclass(frozen=True)
class Score:
    """One further figure by rival, with what it means."""

    name: str
    where: str
    value: Mapping[str, float]
    meaning: str


def usable_columns(plan: Plan, table: str) -> tuple[str, ...]:
    """Columns of a table with values to compare."""
    return tuple(c.name for c in plan.table[table].columns if c.domain is not None and not isinstance(c.domain, Opaque))


def crossings(plan: Plan) -> tuple[Crossing, ...]:
    """Every way to compare across tables.

    For each foreign key of a private table, the row that holds it against the row it leads to; for each two keys of one
    table, what they lead to against each other (the two sides of a junction); and, two hops away, a row against the
    parent of its parent.
    """

    def side(table: str, path: tuple[str, ...]) -> tuple[Attribute, ...]:
        return tuple(Attribute(c, path) for c in usable_columns(plan, plan.promise.graph.walk(table, path)))

    out = []
    for table in plan.database:
        if table.name in plan.public:
            continue
        name, keys = table.name, table.foreign_keys
        out += [
            Crossing(f"{name}.{key.name} → {key.target}", "across", name, side(name, ()), side(name, (key.name,)))
            for key in keys
        ]
        for a, b in combinations(keys, 2):
            title = f"{a.target} ({a.name}) ↔ {b.target} ({b.name}) in {name}"
            out.append(Crossing(title, "across", name, side(name, (a.name,)), side(name, (b.name,))))
        for key in keys:
            for onward in plan.database[key.target].foreign_keys:
                title = f"{name}.{key.name} → {key.target}.{onward.name} → {onward.target}"
                path = (key.name, onward.name)
                out.append(Crossing(title, "two-hop", name, side(name, ()), side(name, path)))
    return tuple(c for c in out if c.left and c.right)


Sample = dict[str, dict[Attribute, "IntArray"]]


def _gathered(databases: Mapping[str, CodedDatabase], base: str, attributes: Sequence[Attribute]) -> Sample:
    """Codes of all attributes for the rows of each database that are linked all the way, in small integers."""
    out: Sample = {}
    for name, database in databases.items():
        codes, _ = database.columns(base, attributes)
        out[name] = dict(zip(attributes, codes, strict=True))
    return out


REAL = "real"


def within_errors(
    plan: Plan,
    real: CodedDatabase,
    rivals: Mapping[str, CodedDatabase],
    table: str,
    *,
    k: int,
    rng: np.random.Generator,
) -> list[WorkloadError]:
    """Errors over sets of 1 to k columns of one table."""
    columns = [Attribute(c) for c in usable_columns(plan, table)]
    if not columns or not real.rows[table]:
        return []
    databases = {REAL: real, SYNTHETIC: rivals[SYNTHETIC], INDEPENDENT: rivals[INDEPENDENT]}
    sample = _gathered(databases, table, columns)
    sizes = {a: real.size(table, a) for a in columns}
    out = []
    for order in range(1, min(k, len(columns)) + 1):
        chosen = distances.sampled_combinations(columns, order, most=MOST_WORKLOADS, rng=rng)
        out.append(_errors("within", table, order, chosen, math.comb(len(columns), order), sample, sizes, rng))
    return out


def crossing_errors(
    crossing: Crossing,
    real: CodedDatabase,
    rivals: Mapping[str, CodedDatabase],
    *,
    k: int,
    rng: np.random.Generator,
) -> WorkloadError | None:
    """Errors over sets of k columns with at least one from either side; fewer where there are not as many."""
    attributes = (*crossing.left, *crossing.right)
    sample = _gathered({REAL: real, **rivals}, crossing.base, attributes)
    if not len(sample[REAL][attributes[0]]):
        return None
    order = min(max(k, 2), len(attributes))
    sides = len(crossing.left), len(crossing.right)
    total = math.comb(sum(sides), order) - math.comb(sides[0], order) - math.comb(sides[1], order)
    chosen = _cross_sets(crossing, order, total, rng)
    sizes = {a: real.size(crossing.base, a) for a in attributes}
    return _errors(crossing.scope, crossing.name, order, chosen, total, sample, sizes, rng)


def _cross_sets(crossing: Crossing, order: int, total: int, rng: np.random.Generator) -> list[tuple[Attribute, ...]]:
    if total <= MOST_WORKLOADS:
        return [
            (*a, *b)
            for taken in range(1, order)
            for a in combinations(crossing.left, taken)
            for b in combinations(crossing.right, order - taken)
        ]
    attributes = (*crossing.left, *crossing.right)
    split = len(crossing.left)
    chosen: set[tuple[int, ...]] = set()
    while len(chosen) < MOST_WORKLOADS:
        drawn = tuple(sorted(rng.choice(len(attributes), size=order, replace=False).tolist()))
        if drawn[0] < split <= drawn[-1]:
            chosen.add(drawn)
    return [tuple(attributes[i] for i in c) for c in sorted(chosen)]


def _errors(
    scope: str,
    where: str,
    k: int,
    chosen: Sequence[tuple[Attribute, ...]],
    of: int,
    sample: Sample,
    sizes: Mapping[Attribute, int],
    rng: np.random.Generator,
) -> WorkloadError:
    found: dict[str, list[float]] = {}
    for workload in chosen:
        names = [REAL, *(n for n in sample if n != REAL)]
        shares = distances.shares([[sample[n][a] for a in workload] for n in names], [sizes[a] for a in workload])
        truth = next(shares)
        for name, share in zip(names[1:], shares, strict=True):
            found.setdefault(name, []).append(100 * distances.l1_distance(truth, share))
        draws = len(sample[SYNTHETIC][workload[0]])  # as many real rows as the copy has may be none
        resampled = rng.multinomial(draws, truth / truth.sum()) / draws if draws else None
        least = math.nan if resampled is None else 100 * distances.l1_distance(truth, resampled)
        found.setdefault(RESAMPLED, []).append(least)
    return WorkloadError(
        scope,
        where,
        k,
        len(chosen),
        of,
        {n: float(np.mean(v)) for n, v in found.items()},
        {n: float(np.max(v)) for n, v in found.items()},
    )


def degree_distances(plan: Plan, real: CodedDatabase, rivals: Mapping[str, CodedDatabase]) -> list[DegreeDistance]:
    """Compare degrees on both sides of every foreign key of the private tables."""
    out = []
    for table, name in real.links:
        if table in plan.public:
            continue
        true, links = real.degrees(table, name), (real.links[table, name] >= 0).astype(np.int64)
        shown = {n: r for n, r in rivals.items() if n != INDEPENDENT}
        out.append(
            DegreeDistance(
                f"{table}.{name} → {plan.database[table].key[name].target}",
                {n: distances.ks_distance(true, r.degrees(table, name)) for n, r in shown.items()},
                {
                    n: distances.ks_distance(links, (r.links[table, name] >= 0).astype(np.int64))
                    for n, r in shown.items()
                },
                float(true.mean()) if len(true) else 0.0,
                float(rivals[SYNTHETIC].degrees(table, name).mean())
                if rivals[SYNTHETIC].rows[plan.database[table].key[name].target]
                else 0.0,
            )
        )
    return out


def associated(
    crossing: Crossing, real: CodedDatabase, rivals: Mapping[str, CodedDatabase], *, rng: np.random.Generator
) -> tuple[list[Association], Retention]:
    """Find pairs of columns that go together across a relation in the real database, and what is left of it."""
    shown = {n: r for n, r in rivals.items() if n != INDEPENDENT}
    sample = _gathered({REAL: real, **shown}, crossing.base, (*crossing.left, *crossing.right))
    pairs = [(a, b) for a in crossing.left for b in crossing.right]
    total = len(pairs)
    if total > MOST_WORKLOADS:
        pairs = [pairs[i] for i in sorted(rng.choice(total, size=MOST_WORKLOADS, replace=False).tolist())]
    kept: dict[str, list[FloatArray]] = {n: [] for n in sample}
    out: list[Association] = []
    for a, b in pairs:
        shape = real.size(crossing.base, a), real.size(crossing.base, b)
        if shape[0] * shape[1] > MOST_CELLS:
            continue
        joint = {n: _joint(s[a], s[b], shape) for n, s in sample.items()}
        if not distances.is_associated(joint[REAL]):
            continue
        for n, x in joint.items():
            kept[n].append(x)
        out.append(
            Association(
                crossing.name,
                _name(real, crossing.base, a),
                _name(real, crossing.base, b),
                distances.cramers_v(joint[REAL]),
                distances.cramers_v(joint[SYNTHETIC], like=joint[REAL]),
                {n: distances.retention([joint[REAL]], [joint[n]]) for n in shown},
            )
        )
    value = {n: distances.retention(kept[REAL], kept[n]) for n in shown}
    strongest = sorted(out, key=lambda x: -x.real)[:SHOWN_PAIRS]
    return strongest, Retention(crossing.scope, crossing.name, len(out), total, value)


def _joint(a: IntArray, b: IntArray, shape: tuple[int, int]) -> FloatArray:
    flat = a.astype(np.int64) * shape[1] + b
    return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)


def _name(real: CodedDatabase, base: str, attribute: Attribute) -> str:
    from dpweave.schema.key_graph import KeyGraph

    return f"{KeyGraph(real.schema).walk(base, attribute.path)}.{attribute.column}"
