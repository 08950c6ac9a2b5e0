"""What the release says against what the synthetic database holds. No row is seen, so the result is safe to share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.budget.tasks import Task, link_task
from dpweave.measure.dependence import threshold
from dpweave.measure.estimates import Estimate, combined, estimates
from dpweave.measure.question import Question
from dpweave.model.coded_database import CodedDatabase, bucketed, encode, labels
from dpweave.report.integrity import Check, check
from dpweave.report.noisy_estimates import Distribution, Pair
from dpweave.report.unit_views import units_view
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Type
from dpweave.schema.degree_buckets import buckets
from dpweave.schema.domain import Bins, Learn, Opaque, degree, parse_degree, parse_presence
from dpweave.tables.auto import ChosenTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.model.model import Model
    from dpweave.plan.entries import ColumnPlan
    from dpweave.plan.relations import Relation
    from dpweave.privacy.window import Columns, Noisy
    from dpweave.report.unit_views import UnitsView
    from dpweave.schema.domain import Attribute

MOST_PAIRS = 300
"""Pairs of columns that are compared for one relation."""


@dataclass(frozen=True)
class TableView:
    """A table: its part in the promise, its size on both sides, its columns."""

    name: str
    role: str
    rows: int
    measured_rows: float | None
    """Noisy number of rows within the bounds, and its noise."""
    rows_sigma: float | None
    used_rows: float | None
    """The number that the copy goes by, from all counts together."""
    public_rows: int | None
    """The number that was declared public, and so not measured."""
    mechanism: str | None
    columns: tuple[Distribution, ...]
    unmodelled: tuple[tuple[str, str], ...]
    """Columns without a distribution, each with the reason."""


@dataclass(frozen=True)
class RelationView:
    """A foreign key: how many rows lead to each row of its target, and which columns go together across it."""

    table: str
    key: str
    target: str
    role: str
    kind: str
    method: str
    max_degree: int | None
    linked: float
    """Share of rows in the copy that lead somewhere."""
    linked_measured: float | None
    degrees: Distribution
    verdict: str
    """What the links rest on, in one word: learned, weak or random."""
    shown_at: str | None = None
    """The other key of a pure junction, where the pairs of both are shown."""
    seen: tuple[Distribution, ...] = ()
    """Columns of either side as the links see them: a customer counts once for every order."""
    pairs: tuple[Pair, ...] = ()
    """Pairs of columns across the key that were measured, strongest evidence first."""
    units: UnitsView | None = None
    """What rows of one owner have in common, and their order, where it was asked."""

    @property
    def name(self) -> str:
        """How the report calls it."""
        return f"{self.table}.{self.key} → {self.target}"


@dataclass(frozen=True)
class Fidelity:
    """Everything the report shows about the copy."""

    tables: tuple[TableView, ...]
    relations: tuple[RelationView, ...]
    checks: tuple[Check, ...]


def fidelity(model: Model, db: Mapping[str, pa.Table]) -> Fidelity:
    """Compare a synthetic database with the release it was made from."""
    plan = model.plan
    coded = encode(plan, db)
    tables = tuple(_table(model, coded, name) for name in plan.database.names)
    compiled = plan.compile()
    woven = {**compiled.relation, **{(r.table, r.joint): r for r in compiled.relations if r.joint}}
    shown = tuple(
        _relation(model, coded, db, table.name, key.key.name, woven.get((table.name, key.key.name)))
        for table in plan.tables
        if table.name not in plan.public
        for key in table.keys
    )
    return Fidelity(tables, shown, check(plan, db, coded, public=model.public))


def _table(model: Model, coded: CodedDatabase, name: str) -> TableView:
    plan = model.plan
    role = "public" if name in plan.public else "protected" if name in plan.protect else "owned"
    size = next((m for m in model.release.measured if m.what == f"sizes:{name}"), None)
    columns = tuple(_column(model, coded, name, c) for c in plan.table[name].columns if _is_shown(c))
    unmodelled = tuple(
        (c.name, _why(c, plan.table[name].table, role)) for c in plan.table[name].columns if not _is_shown(c)
    )
    return TableView(
        name,
        role,
        coded.rows[name],
        None if size is None else float(size.marginal.counts),
        None if size is None else size.marginal.sigma,
        None if role == "public" else model.sizes.get(name),
        plan.table[name].public_rows,
        _mechanism(model, name),
        columns,
        unmodelled,
    )


def _mechanism(model: Model, name: str) -> str | None:
    fitted = model.tables.get(name)
    return fitted.mechanism if isinstance(fitted, ChosenTable) else model.mechanisms.get(name)


def _is_shown(column: ColumnPlan) -> bool:
    return column.domain is not None and not (isinstance(column.domain, Opaque) and not column.column.nullable)


def _why(column: ColumnPlan, table: Any, role: str) -> str:
    if column.domain is not None:
        return "copied as it is" if role == "public" else "not modelled: filled with made-up values"
    foreign = [k.target for k in table.foreign_keys if column.name in k.columns]
    return f"key, leads to {', '.join(foreign)}" if foreign else "key"


def _column(model: Model, coded: CodedDatabase, table: str, column: ColumnPlan) -> Distribution:
    domain = column.domain
    assert domain is not None
    assert not isinstance(domain, Learn)
    codec = Codec(column.column, domain)
    synthetic = np.bincount(coded.codes[table, column.name], minlength=codec.size).astype(np.int64)
    return Distribution(
        column.name,
        str(column.column.type) if column.column.type.kind != "enum" else "enum",
        labels(column.column, domain),
        isinstance(domain, Bins),
        synthetic,
        None if table in model.plan.public else _one_way(model, table, column.name, codec),
        model.sizes.get(table),
        _size_sigma(model, table),
    )


def _size_sigma(model: Model, table: str) -> float:
    found = next((m for m in model.release.measured if m.what == f"sizes:{table}"), None)
    return math.inf if found is None else found.marginal.sigma


def _one_way(model: Model, table: str, name: str, codec: Codec) -> Estimate | None:
    """Every noisy count over this column of the table itself, in the codes of its final domain, combined."""
    parts: list[Estimate] = []
    for m in model.release.measured:
        at = m.marginal.columns.index(name) if name in m.marginal.columns else None
        if at is None or m.view.base != table or m.view.paths(m.marginal.columns) or m.view.attribute[name].path:
            continue
        if m.view.attribute[name].column == name and _is_same(m.domains[at], codec):
            parts += estimates(m.marginal, {}, lambda _: np.array(0.0))
    for b in model.release.summed_by_unit:
        question = Question.of(b.noisy)
        if b.what == Task("tables", table).name and question.shows_rows and name in question.looks_at:
            shape = {c: _codec(model, table, a).size for c, a in b.view.columns}
            parts += estimates(b.noisy, shape, lambda _: np.array(model.sizes[table]))
    return combined([part.summed((name,)) for part in parts])


def column_noise(model: Model) -> dict[tuple[str, str], float]:
    """Standard deviation of the noise in counts over each measured column of the private tables."""
    plan, found = model.plan, {}
    for table in plan.promise.private:
        own = {c.name: Codec(c.column, c.domain) for c in plan.table[table].columns if _is_shown(c)}  # type: ignore[arg-type]
        for name, codec in {**own, **plan.compile().table[table].derived_codecs}.items():
            estimate = _one_way(model, table, name, codec)
            if estimate is not None:
                found[table, name] = estimate.sigma
    return found


def _is_same(domain: Any, codec: Codec) -> bool:
    """Whether a measurement used the final domain; a loaded release describes domains by what they print as."""
    if not isinstance(domain, dict):
        return bool(domain == codec.domain)
    final = vars(codec.domain)
    kind = type(codec.domain).__name__.lower()
    return bool(domain.get("kind") == kind) and all(
        domain.get(k) == ([str(v) for v in value] if isinstance(value, tuple) else value) for k, value in final.items()
    )


def _relation(
    model: Model, coded: CodedDatabase, db: Mapping[str, pa.Table], table: str, key: str, relation: Relation | None
) -> RelationView:
    plan = model.plan
    planned = plan.table[table].key[key]
    links = coded.links[table, key]
    measured = [] if relation is None else _link_measurements(model, coded, relation)
    judged = {} if relation is None else _judged(model, relation)
    pairs = [] if relation is None else list(_pairs(model, coded, relation, measured, judged))
    elsewhere = relation is not None and relation.joint == key
    return RelationView(
        table,
        key,
        planned.key.target,
        planned.role,
        "many-to-many" if relation is not None and relation.joint else plan.promise.graph.kind(table, planned.key),
        plan.compile().table[table].key[key].method,
        planned.max_degree,
        float((links >= 0).mean()) if len(links) else 0.0,
        model.linked.get((table, key)),
        _degrees(model, coded, table, key),
        "random" if not measured else "learned" if any(out for _, out in judged.values()) else "weak",
        relation.key if relation is not None and elsewhere else None,
        () if relation is None or elsewhere else tuple(_seen(model, coded, relation, measured)),
        () if elsewhere else tuple(sorted(pairs, key=lambda p: -p.evidence)),
        None if relation is None or elsewhere else _units_of(model, coded, db, relation),
    )


def _units_of(model: Model, coded: CodedDatabase, db: Mapping[str, pa.Table], relation: Relation) -> UnitsView | None:
    codecs = {n: _seen_codec(model, relation, a) for n, a in (*relation.left, *relation.right)}
    return units_view(model, coded, db, relation, codecs)


def _degrees(model: Model, coded: CodedDatabase, table: str, key: str) -> Distribution:
    """Rows per target row: in the buckets in which they were measured, else in buckets that suit the copy."""
    plan = model.plan
    target = plan.database[table].key[key].target
    name = degree(table, key)
    per = coded.degrees(table, key)
    derived = plan.compile().table[target].degree_codecs
    if name in derived:
        codec = derived[name]
        estimate = _one_way(model, target, name, codec)
    else:
        bins = Bins(buckets(max(int(per.max(initial=0)), 1)))
        codec, estimate = Codec(Column(name, Type("integer"), nullable=False), bins), None
    counts = np.bincount(bucketed(per, codec), minlength=codec.size).astype(np.int64)
    return Distribution(
        f"{table} per {target}",
        "degree",
        labels(codec.column, codec.domain),
        True,
        counts,
        estimate,
        model.sizes.get(target),
        _size_sigma(model, target),
        open_ended=True,
    )


def _link_measurements(model: Model, coded: CodedDatabase, relation: Relation) -> list[Estimate]:
    """Noisy counts over the links of a relation. What was counted around centres stands upon how the copy's links
    spread over the columns of its cells.
    """
    what, release = link_task(relation).name, model.release
    answers: tuple[Noisy, ...] = (
        *(m.marginal for m in release.measured if m.what == what and m.view.base == relation.table),
        *(b.noisy for b in release.summed_by_unit if b.what == what),
    )
    attributes = dict((*relation.left, *relation.right))
    shape = {n: _seen_codec(model, relation, a).size for n, a in attributes.items()}

    def rows(columns: Columns) -> FloatArray:
        links = max(model.sizes[relation.table] * model.blueprint.share(relation.table, relation.key), 1.0)
        return links * _shares(model, coded, relation, [attributes[c] for c in columns])

    found = (e for noisy in answers for e in estimates(noisy, shape, rows))
    # People are shown one column of public rows at a time.
    return [e for e in found if e.columns and (e.shared is None or len(e.shared.absent) == 1)]


def _columns(
    model: Model, coded: CodedDatabase, relation: Relation, attributes: Sequence[Attribute]
) -> tuple[list[IntArray], IntArray]:
    """Codes of the copy's rows as they were counted: a public row that is not there is null."""
    promise, linked = model.plan.promise, relation.view.linked
    lacking = [a for a in attributes if promise.may_lack(relation.table, a.path, linked)]
    nowhere = {a: _seen_codec(model, relation, a).null_code for a in lacking}
    codes, rows = coded.columns(relation.table, attributes, nowhere=nowhere)
    led = np.logical_and.reduce([coded.position(relation.table, p)[rows] >= 0 for p in linked])
    return [c[led] for c in codes], rows[led]


def _shares(model: Model, coded: CodedDatabase, relation: Relation, attributes: Sequence[Attribute]) -> FloatArray:
    """How the links of the copy spread over some columns of the rows that hold them."""
    shape = tuple(_seen_codec(model, relation, a).size for a in attributes)
    codes, rows = _columns(model, coded, relation, attributes)
    at = np.ravel_multi_index(codes, shape) if shape else np.zeros(len(rows), dtype=np.int64)
    counts = np.bincount(at, minlength=math.prod(shape))
    return np.asarray(counts / max(counts.sum(), 1)).reshape(shape)


def _seen(
    model: Model, coded: CodedDatabase, relation: Relation, measured: Sequence[Estimate]
) -> Iterable[Distribution]:
    """Every single column that was measured over the links on its own."""
    attributes = dict((*relation.left, *relation.right))
    single: dict[str, list[Estimate]] = {}
    for m in measured:
        if len(m.columns) == 1 and m.columns[0] in attributes:
            single.setdefault(m.columns[0], []).append(m)
    for name, parts in single.items():
        attribute, estimate = attributes[name], combined(parts)
        codec = _seen_codec(model, relation, attribute)
        size = codec.size
        if estimate is None or estimate.counts.shape != (size,):
            continue
        (codes,), _ = _columns(model, coded, relation, [attribute])
        yield Distribution(
            _title(model, relation, attribute),
            f"by {relation.table}",
            labels(codec.column, codec.domain),
            isinstance(codec.domain, Bins),
            np.bincount(codes, minlength=size).astype(np.int64),
            estimate,
            None,
            open_ended=parse_degree(attribute.column) is not None,
        )


def _judged(model: Model, relation: Relation) -> dict[frozenset[str], tuple[float, bool]]:
    """What the certificate says of each set of columns across a relation: its score, and whether it stands out.

    Certificates of earlier versions have scores alone.
    """
    name = f"{relation.table}.{relation.key}"
    found = next((e["components"] for e in model.certificate.evidence if e["relation"] == name), ())
    least = threshold(len(found))
    return {frozenset(c["columns"]): (c["score"], c.get("stands_out", c["score"] >= least)) for c in found}


def _pairs(
    model: Model,
    coded: CodedDatabase,
    relation: Relation,
    measured: Sequence[Estimate],
    judged: Mapping[frozenset[str], tuple[float, bool]],
) -> Iterable[Pair]:
    """Every pair of columns across the relation that some measured clique holds."""
    sides = dict(relation.left), dict(relation.right)
    found: dict[tuple[str, str], list[Estimate]] = {}
    for m in measured:
        for left in (c for c in m.columns if c in sides[0]):
            for right in (c for c in m.columns if c in sides[1]):
                if (left, right) in found or len(found) < MOST_PAIRS:
                    found.setdefault((left, right), []).append(m.summed((left, right)))
    for (left, right), parts in found.items():
        estimate = combined(parts)
        attributes = sides[0][left], sides[1][right]
        codecs = [_seen_codec(model, relation, a) for a in attributes]
        shape = tuple(codec.size for codec in codecs)
        if estimate is None or estimate.counts.shape != shape:
            continue
        (a, b), _ = _columns(model, coded, relation, attributes)
        joint = np.bincount(a.astype(np.int64) * shape[1] + b, minlength=shape[0] * shape[1]).reshape(shape)
        words = [labels(codec.column, codec.domain) for codec in codecs]
        titles = [_title(model, relation, x) for x in attributes]
        score, stands_out = judged.get(frozenset((left, right)), (0.0, False))
        copy = joint.astype(np.float64)
        yield Pair(titles[0], titles[1], words[0], words[1], estimate, copy, score, stands_out)


def _title(model: Model, relation: Relation, attribute: Attribute) -> str:
    """Name a column that the relation sees; where it sees several of that name, say by which keys it is reached."""
    table = _reached(model, relation, attribute)
    name = _plain_title(table, attribute)
    alike = [
        a
        for _, a in (*relation.left, *relation.right)
        if (a.column, _reached(model, relation, a)) == (attribute.column, table)
    ]
    return f"{name} (by {', then '.join(attribute.path)})" if len(alike) > 1 and attribute.path else name


def _reached(model: Model, relation: Relation, attribute: Attribute) -> str:
    return model.plan.promise.graph.walk(relation.table, attribute.path)


def _plain_title(table: str, attribute: Attribute) -> str:
    counted, key = parse_degree(attribute.column), parse_presence(attribute.column)
    if counted is not None:
        return f"number of {counted[0]} per {table}"
    return f"{table} has {key}" if key is not None else f"{table}.{attribute.column}"


def _seen_codec(model: Model, relation: Relation, attribute: Attribute) -> Codec:
    """The codec of a column as links see it."""
    codec = _codec(model, relation.table, attribute)
    lacking = model.plan.promise.may_lack(relation.table, attribute.path, relation.view.linked)
    return codec.optional if lacking else codec


def _codec(model: Model, base: str, attribute: Attribute) -> Codec:
    plan = model.plan
    table = plan.promise.graph.walk(base, attribute.path)
    if attribute.column not in plan.table[table].column:
        return plan.compile().table[table].derived_codecs[attribute.column]
    column = plan.table[table].column[attribute.column]
    assert column.domain is not None
    assert not isinstance(column.domain, Learn)
    return Codec(column.column, column.domain)
