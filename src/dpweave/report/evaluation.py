"""How close a synthetic database comes to the real one. NOT PRIVATE: every figure here is made from real rows.

Errors are 100 times the L1 distance between the distributions of linked rows over k columns, as in the paper's figures,
against the real database as it is, before any bound is enforced. Each stands next to what the same rows give when they
are wired without knowledge, and to what sampling alone would cost.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.errors import UsageError, nearest
from dpweave.report import measures
from dpweave.report.coding import CodedDatabase, encode
from dpweave.report.rivals import (
    INDEPENDENT,
    RANDOM,
    RESAMPLED,
    SHUFFLED,
    SYNTHETIC,
    independent_columns,
    random_wiring,
    shuffled_keys,
)
from dpweave.schema.domain import Attribute, Bins, Categories, Learn, Opaque, bins_at, to_axis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from dpweave.plan import Plan
    from dpweave.privacy.window import FloatArray, IntArray
    from dpweave.schema.domain import Domain
    from dpweave.schema.model import Column, Type
    from dpweave.sources.base import Source

STAMP = "NOT PRIVATE: made from real rows, for eyes that may see them. Do not share."
MOST_WORKLOADS = 600
"""Sets of columns for one table or relation; more are sampled."""
MOST_CELLS = 1 << 20
SHOWN_PAIRS = 12
MOST_CATEGORIES = 100


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


@dataclass(frozen=True)
class Evaluation:
    """Every comparison of a synthetic database with the real one. NOT PRIVATE."""

    k: int
    rows: Mapping[str, tuple[int, int]]
    """Real and synthetic number of rows of each private table."""
    errors: tuple[WorkloadError, ...]
    degrees: tuple[DegreeDistance, ...]
    retentions: tuple[Retention, ...]
    associations: tuple[Association, ...]
    scores: tuple[Score, ...] = ()
    notes: tuple[str, ...] = field(default=())
    stamp: str = STAMP

    def overall(self, scope: str) -> Mapping[str, tuple[float, float]]:
        """Mean and largest error over all workloads of ``scope`` (within, across or two-hop), by rival."""
        found = [
            e for e in self.errors if e.scope == scope and e.k == max(x.k for x in self.errors if x.scope == scope)
        ]
        count = sum(e.workloads for e in found)
        return {
            rival: (
                sum(e.mean[rival] * e.workloads for e in found) / count,
                max(e.worst[rival] for e in found),
            )
            for rival in (found[0].mean if found else ())
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; what is not a number is null."""
        return _plain(asdict(self))  # type: ignore[no-any-return]

    def to_json(self) -> str:
        """Return the evaluation as JSON."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)

    def to_html(self, path: str | Path) -> None:
        """Write the evaluation as one HTML file, stamped on every page."""
        from dpweave.outputs import write_text
        from dpweave.report.showing import evaluation_page

        write_text(Path(path), evaluation_page(self))

    def __str__(self) -> str:
        from dpweave.report.showing import evaluation_text

        return evaluation_text(self)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {k: _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case float() | np.floating():
            return float(value) if math.isfinite(value) else None
    return value


def evaluate(
    source: object,
    db: Mapping[str, pa.Table],
    plan: Plan,
    k: int = 3,
    *,
    target: str | None = None,
    learners: bool = True,
    seed: int = 0,
) -> Evaluation:
    """Compare a synthetic database with the real rows of ``source``. NOT PRIVATE: the result must not be shared.

    ``k`` is the largest number of columns counted together. ``target`` names a column, as ``table.column``, that a model
    trained on synthetic rows shall predict on real ones. ``learners`` trains that model, and one that tells real rows from
    synthetic ones, and asks SDMetrics; without it only counts are compared, which is quick. ``seed`` draws the rivals and the samples. Domains that ``plan``
    leaves to be learned are read off the real rows, which is fine here and nowhere else.
    """
    from dpweave.sources import open_source

    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= 6:
        raise UsageError(f"k must be a whole number from 1 to 6, not {k!r}")
    with open_source(source) as opened:
        plan.require(opened.catalogue)
        opened.declare(plan.database)
        real_tables = {name: read(opened, name) for name in plan.database.names}
    plan = resolved(plan, real_tables)
    goal = _target(plan, target)
    rng = np.random.default_rng(seed)
    real, copy = encode(plan, real_tables), encode(plan, db)
    rivals = {
        SYNTHETIC: copy,
        SHUFFLED: shuffled_keys(plan, copy, rng),
        RANDOM: random_wiring(plan, copy, rng),
        INDEPENDENT: independent_columns(plan, copy, rng),
    }
    notes: list[str] = []
    private = [n for n in plan.database.names if n not in plan.public]
    errors = [e for n in private for e in within_errors(plan, real, rivals, n, k=k, rng=rng)]
    retentions, associations = [], []
    for crossing in crossings(plan):
        found = crossing_errors(crossing, real, rivals, k=k, rng=rng)
        if found is None:
            notes.append(f"{crossing.name}: the real database has no linked rows here")
            continue
        errors.append(found)
        pairs, kept = associated(crossing, real, rivals, rng=rng)
        retentions.append(kept)
        associations += pairs
    from dpweave.report.learners import closest_records, scores

    extra = closest_records(plan, real, rivals, rng)
    if learners:
        found_scores, more = scores(plan, real, rivals, real_tables=real_tables, db=db, target=goal, rng=rng)
        extra, notes = [*extra, *found_scores], [*notes, *more]
    return Evaluation(
        k=k,
        rows={n: (real.rows[n], copy.rows[n]) for n in private},
        errors=tuple(errors),
        degrees=tuple(degree_distances(plan, real, rivals)),
        retentions=tuple(retentions),
        associations=tuple(sorted(associations, key=lambda a: -a.real)[: SHOWN_PAIRS * 3]),
        scores=tuple(extra),
        notes=tuple(notes),
    )


def read(source: Source, name: str) -> pa.Table:
    """Read a whole table of an open source."""
    import pyarrow as pa

    from dpweave.schema.arrow import arrow_schema

    return pa.Table.from_batches(source.read(name), schema=arrow_schema(source.database[name]))


def _target(plan: Plan, target: str | None) -> tuple[str, str] | None:
    if target is None:
        return None
    table, _, column = target.rpartition(".")
    if table not in plan.table:
        raise UsageError(f"target {target!r} names no table of the plan: {nearest(table, plan.table)}")
    usable = usable_columns(plan, table)
    if column not in usable:
        raise UsageError(f"target {target!r} names no modelled column of {table!r}: {nearest(column, usable)}")
    return table, column


# -- domains -----------------------------------------------------------------------------------------------------------


def resolved(plan: Plan, tables: Mapping[str, pa.Table]) -> Plan:
    """Fill in domains that are to be learned from the real rows themselves. NOT PRIVATE."""
    for table in plan.tables:
        for column in table.columns:
            if isinstance(column.domain, Learn):
                domain = _domain_of(column.column, tables[table.name][column.name], bins=column.domain.bins)
                plan = plan.replace_domain(table.name, column.name, domain)
    return plan


def _domain_of(column: Column, values: pa.ChunkedArray, *, bins: int) -> Domain:
    import pyarrow.compute as pc

    if column.type.ordered:
        return _bins_of(column.type, values, bins=bins)
    counts = pc.value_counts(values.drop_null()).to_pylist()
    ranked = sorted(counts, key=lambda c: (-c["counts"], str(c["values"])))[:MOST_CATEGORIES]
    return Categories(tuple(c["values"] for c in ranked), other=True)


def _bins_of(kind: Type, values: pa.ChunkedArray, *, bins: int) -> Bins:
    """Cut the real values into at most ``bins`` parts of about the same number of rows; few distinct values stay apart."""
    import pyarrow.compute as pc

    there = values.drop_null()
    if kind.kind == "float":
        there = there.filter(pc.is_finite(there))
    if not len(there):
        return bins_at(kind, [0, 1])
    distinct = there.unique()
    ordered = (distinct if len(distinct) <= bins else there).sort()
    picks = (
        [ordered[len(ordered) * i // bins].as_py() for i in range(bins)]
        if len(distinct) > bins
        else ordered.to_pylist()
    )
    points = sorted({to_axis(kind, v) for v in picks})
    last = to_axis(kind, ordered[-1].as_py())
    return bins_at(kind, [*points, max(last, points[-1]) + 1])


# -- what is compared --------------------------------------------------------------------------------------------------


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
        small = [np.min_scalar_type(max(database.size(base, a) - 1, 0)) for a in attributes]
        out[name] = {a: c.astype(t) for a, c, t in zip(attributes, codes, small, strict=True)}
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
        chosen = measures.sampled_combinations(columns, order, most=MOST_WORKLOADS, rng=rng)
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
        names = list(sample)
        cells, width = measures.cell_numbers(
            [[sample[n][a] for a in workload] for n in names], [sizes[a] for a in workload]
        )
        shares = {n: measures.frequencies(c, width) for n, c in zip(names, cells, strict=True)}
        truth = shares.pop(REAL)
        draws = len(sample[SYNTHETIC][workload[0]])
        if draws:
            shares[RESAMPLED] = rng.multinomial(draws, truth / truth.sum()) / draws
        for name, share in shares.items():
            found.setdefault(name, []).append(100 * measures.l1_distance(truth, share))
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
                {n: measures.ks_distance(true, r.degrees(table, name)) for n, r in shown.items()},
                {
                    n: measures.ks_distance(links, (r.links[table, name] >= 0).astype(np.int64))
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
        if not measures.is_associated(joint[REAL]):
            continue
        for n, x in joint.items():
            kept[n].append(x)
        out.append(
            Association(
                crossing.name,
                _name(real, crossing.base, a),
                _name(real, crossing.base, b),
                measures.cramers_v(joint[REAL]),
                measures.cramers_v(joint[SYNTHETIC]),
                {n: measures.retention([joint[REAL]], [joint[n]]) for n in shown},
            )
        )
    value = {n: measures.retention(kept[REAL], kept[n]) for n in shown}
    strongest = sorted(out, key=lambda x: -x.real)[:SHOWN_PAIRS]
    return strongest, Retention(crossing.scope, crossing.name, len(out), total, value)


def _joint(a: IntArray, b: IntArray, shape: tuple[int, int]) -> FloatArray:
    flat = a.astype(np.int64) * shape[1] + b
    return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)


def _name(real: CodedDatabase, base: str, attribute: Attribute) -> str:
    from dpweave.schema.graph import KeyGraph

    return f"{KeyGraph(real.schema).walk(base, attribute.path)}.{attribute.column}"
