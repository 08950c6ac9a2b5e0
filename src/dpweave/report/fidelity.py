r"""What the release says against what the synthetic database holds. No row is seen, so the result is safe to share.

Several noisy counts of the same cells are combined by weights :math:`1/\sigma_i^2`; a marginal that is summed over c
further cells carries noise of scale :math:`\sigma\sqrt{c}`. Noises of different measurements are independent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.budget import link_method
from dpweave.links.degrees import buckets
from dpweave.relations import degree_codecs, derived_codecs, relations
from dpweave.report.coding import CodedDatabase, bucketed, encode, labels
from dpweave.report.integrity import Check, check
from dpweave.schema.codec import Codec
from dpweave.schema.domain import Bins, Learn, Opaque, degree, parse_degree, parse_presence
from dpweave.schema.model import Column, Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from dpweave.model import Model
    from dpweave.plan import ColumnPlan
    from dpweave.privacy.release import Measured
    from dpweave.privacy.window import FloatArray, IntArray
    from dpweave.relations import Relation
    from dpweave.schema.domain import Attribute

STANDS_OUT = 3.0
"""Standard deviations by which a dependence must pass what noise alone gives."""
MOST_PAIRS = 300
"""Pairs of columns that are compared for one relation."""


@dataclass(frozen=True)
class Estimate:
    """Noisy counts with the same error in every cell."""

    counts: FloatArray
    sigma: float


def combined(parts: Sequence[Estimate]) -> Estimate | None:
    r"""Return the estimate of least variance, :math:`\sum_i x_i \sigma_i^{-2} / \sum_i \sigma_i^{-2}`.

    >>> both = combined([Estimate(np.array([0.0]), 1.0), Estimate(np.array([5.0]), 2.0)])
    >>> both.counts.tolist(), round(both.sigma, 4)
    ([1.0], 0.8944)
    """
    if not parts:
        return None
    weights = np.array([1 / p.sigma**2 for p in parts])
    counts = sum(w * p.counts for w, p in zip(weights, parts, strict=True)) / weights.sum()
    return Estimate(np.asarray(counts, dtype=np.float64), float(1 / np.sqrt(weights.sum())))


def summed(measured: Measured, columns: Sequence[str]) -> Estimate:
    """Add a marginal up over all but ``columns``, which become the axes in their order."""
    have = measured.marginal.columns
    rest = tuple(i for i, name in enumerate(have) if name not in columns)
    left = [name for name in have if name in columns]
    cells = math.prod(measured.marginal.counts.shape[i] for i in rest)
    counts = measured.marginal.counts.astype(np.float64).sum(axis=rest)
    turned = counts.transpose([left.index(c) for c in columns])
    return Estimate(turned, measured.marginal.sigma * math.sqrt(cells))


@dataclass(frozen=True)
class Distribution:
    """One column, or the degrees of a relation: how often each code occurs in the copy, and in the noisy counts."""

    name: str
    kind: str
    labels: tuple[str, ...]
    ordered: bool
    synthetic: IntArray
    measured: Estimate | None
    total: float | None
    """Noisy number of rows, where it was measured on its own."""
    total_sigma: float = math.inf
    open_ended: bool = False
    """Whether codes at the upper end may all be empty, as those of large degrees are."""

    @cached_property
    def synthetic_shares(self) -> FloatArray:
        """Share of the copy's rows in each code."""
        return np.asarray(self.synthetic / max(int(self.synthetic.sum()), 1), dtype=np.float64)

    @cached_property
    def _whole(self) -> tuple[float, float, float]:
        """Number of rows from the size that was measured and from the cells' own sum: value, variance, weight of the sum."""
        assert self.measured is not None
        cells = len(self.measured.counts)
        own = 1 / (cells * self.measured.sigma**2)
        size = (
            0.0 if self.total is None or not math.isfinite(self.total_sigma) else 1 / max(self.total_sigma, 1e-9) ** 2
        )
        value = (own * float(self.measured.counts.sum()) + size * (self.total or 0.0)) / (own + size)
        return value, 1 / (own + size), own / (own + size)

    @cached_property
    def measured_shares(self) -> FloatArray | None:
        """Noisy share of rows in each code; noise may make it negative."""
        if self.measured is None or self._whole[0] <= 0:
            return None
        return np.asarray(self.measured.counts / self._whole[0], dtype=np.float64)

    @cached_property
    def band(self) -> FloatArray:
        r"""Two standard deviations of each measured share :math:`x_i / T`, to first order.

        :math:`\operatorname{var} = (\sigma^2 - 2 p_i w \sigma^2 + p_i^2 \operatorname{var} T) / T^2`, where w is the weight
        that the sum of the cells has in the total T.
        """
        shares = self.measured_shares
        if self.measured is None or shares is None:
            return np.zeros(len(self.labels))
        whole, variance, weight = self._whole
        p = np.clip(shares, 0.0, 1.0)
        squares = self.measured.sigma**2 * (1 - 2 * p * weight) + p**2 * variance
        return np.asarray(2 * np.sqrt(np.maximum(squares, 0.0)) / whole, dtype=np.float64)

    @property
    def agreeing(self) -> int:
        r"""Codes on which copy and measurement agree as well as chance lets them.

        A gap may be twice :math:`\sqrt{\sigma^2/N^2 + p(1-p)/n}`: the noise of measuring over N rows, and that of drawing
        the n rows of the copy.
        """
        shares = self.measured_shares
        if shares is None:
            return 0
        drawn = self.synthetic_shares * (1 - self.synthetic_shares) / max(int(self.synthetic.sum()), 1)
        allowed = np.sqrt(self.band**2 + 4 * drawn)
        return int((np.abs(shares - self.synthetic_shares) <= allowed).sum())

    @property
    def last(self) -> int:
        """Number of codes up to the last that holds rows, where the domain is open-ended; else all."""
        if not self.open_ended:
            return len(self.labels)
        holds = self.synthetic > 0
        if self.measured is not None:
            holds = holds | (self.measured.counts > 3 * self.measured.sigma)
        return min(int(np.flatnonzero(holds).max(initial=0)) + 2, len(self.labels))


@dataclass(frozen=True)
class TableView:
    """A table: its part in the promise, its size on both sides, its columns."""

    name: str
    role: str
    rows: int
    measured_rows: float | None
    rows_sigma: float | None
    mechanism: str | None
    columns: tuple[Distribution, ...]
    unmodelled: tuple[tuple[str, str], ...]
    """Columns without a distribution, each with the reason."""


@dataclass(frozen=True)
class Pair:
    """Two columns on different sides of a relation, counted over its links."""

    left: str
    right: str
    left_labels: tuple[str, ...]
    right_labels: tuple[str, ...]
    measured: Estimate
    synthetic: FloatArray

    @cached_property
    def measured_excess(self) -> FloatArray:
        """Share of links beyond independence, from the noisy counts."""
        return excess(self.measured.counts)

    @cached_property
    def synthetic_excess(self) -> FloatArray:
        """Share of links beyond independence, in the copy."""
        return excess(self.synthetic)

    @property
    def noise(self) -> float:
        """One standard deviation of a measured share of links."""
        return self.measured.sigma / max(float(self.measured.counts.sum()), 1.0)

    @cached_property
    def evidence(self) -> float:
        """Standard deviations by which the measured dependence passes what noise alone would give."""
        return evidence(self.measured)

    @property
    def stands_out(self) -> bool:
        """Whether the noisy counts show a dependence at all."""
        return self.evidence > STANDS_OUT

    @property
    def kept(self) -> float:
        r"""Slope of the copy's excess on the measured one, :math:`\langle s, x \rangle / \langle x, x \rangle`.

        Noise makes :math:`\langle x, x \rangle` larger by its own expected square, which is taken off.
        """
        x, s = self.measured_excess, self.synthetic_excess
        own = float((x * x).sum()) - noise_moments(self.measured)[0] * self.noise**2
        return float((x * s).sum()) / own if own > 0 else float("nan")


def excess(counts: FloatArray) -> FloatArray:
    r"""Return :math:`P_{ij} - P_{i\cdot} P_{\cdot j}`: by how much each combination is commoner than independence says."""
    total = float(counts.sum())
    if total <= 0:
        return np.zeros_like(counts, dtype=np.float64)
    shares = counts / total
    return np.asarray(shares - np.outer(shares.sum(axis=1), shares.sum(axis=0)), dtype=np.float64)


def noise_moments(measured: Estimate) -> tuple[float, float]:
    r"""Mean and standard deviation of :math:`\sum_{ij} D_{ij}^2 / \sigma^2` under independence, D being the excess count.

    To first order D is the noise E seen through :math:`D = A_p E A_q^T` with :math:`A_p = I - p \mathbf{1}^T`, so the
    sum is a quadratic form in standard normals: mean :math:`\|A_p\|_F^2 \|A_q\|_F^2`, variance
    :math:`2 \|A_p A_p^T\|_F^2 \|A_q A_q^T\|_F^2`.
    """
    total = max(float(measured.counts.sum()), 1.0)
    mean, variance = 1.0, 2.0
    for axis in (1, 0):
        margin = np.clip(measured.counts.sum(axis=axis) / total, 0.0, 1.0)
        a = np.eye(len(margin)) - margin[:, None]
        gram = a @ a.T
        mean *= float(np.trace(gram))
        variance *= float((gram * gram).sum())
    return mean, math.sqrt(variance)


def evidence(measured: Estimate) -> float:
    """How many standard deviations the measured dependence lies above what noise alone gives."""
    if min(measured.counts.shape) < 2 or measured.counts.sum() <= 0:
        return 0.0
    mean, spread = noise_moments(measured)
    whole = float(measured.counts.sum())
    return float((((excess(measured.counts) * whole) ** 2).sum() / measured.sigma**2 - mean) / max(spread, 1e-12))


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
    woven = {(r.table, r.key): r for r in relations(plan)} | {(r.table, r.joint): r for r in relations(plan) if r.joint}
    shown = tuple(
        _relation(model, coded, table.name, key.key.name, woven.get((table.name, key.key.name)))
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
    unmodelled = tuple((c.name, _why(c, plan.table[name].table)) for c in plan.table[name].columns if not _is_shown(c))
    return TableView(
        name,
        role,
        coded.rows[name],
        None if role == "public" else model.sizes.get(name),
        None if size is None else size.marginal.sigma,
        model.mechanisms.get(name),
        columns,
        unmodelled,
    )


def _is_shown(column: ColumnPlan) -> bool:
    return column.domain is not None and not (isinstance(column.domain, Opaque) and not column.column.nullable)


def _why(column: ColumnPlan, table: Any) -> str:
    if column.domain is not None:
        return "not modelled: filled with made-up values"
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
    parts = []
    for m in model.release.measured:
        at = m.marginal.columns.index(name) if name in m.marginal.columns else None
        if at is None or m.view.base != table or m.view.paths(m.marginal.columns) or m.view.attribute[name].path:
            continue
        if m.view.attribute[name].column == name and _is_same(m.domains[at], codec):
            parts.append(summed(m, (name,)))
    return combined(parts)


def _is_same(domain: Any, codec: Codec) -> bool:
    """Whether a measurement used the final domain; a loaded release describes domains by what they print as."""
    if not isinstance(domain, dict):
        return bool(domain == codec.domain)
    final = vars(codec.domain)
    kind = type(codec.domain).__name__.lower()
    return bool(domain.get("kind") == kind) and all(
        domain.get(k) == ([str(v) for v in value] if isinstance(value, tuple) else value) for k, value in final.items()
    )


def _relation(model: Model, coded: CodedDatabase, table: str, key: str, relation: Relation | None) -> RelationView:
    plan = model.plan
    planned = plan.table[table].key[key]
    links = coded.links[table, key]
    measured = [] if relation is None else _link_measurements(model, relation)
    pairs = [] if relation is None else sorted(_pairs(model, coded, relation, measured), key=lambda p: -p.evidence)
    elsewhere = relation is not None and relation.joint == key
    return RelationView(
        table,
        key,
        planned.key.target,
        planned.role,
        "many-to-many" if relation is not None and relation.joint else plan.promise.graph.kind(table, planned.key),
        link_method(plan, table, key),
        planned.max_degree,
        float((links >= 0).mean()) if len(links) else 0.0,
        model.linked.get((table, key)),
        _degrees(model, coded, table, key),
        "random" if not measured else "learned" if any(p.stands_out for p in pairs) else "weak",
        relation.key if relation is not None and elsewhere else None,
        () if relation is None or elsewhere else tuple(_seen(model, coded, relation, measured)),
        () if elsewhere else tuple(pairs),
    )


def _degrees(model: Model, coded: CodedDatabase, table: str, key: str) -> Distribution:
    """Rows per target row: in the buckets in which they were measured, else in buckets that suit the copy."""
    plan = model.plan
    target = plan.database[table].key[key].target
    name = degree(table, key)
    per = coded.degrees(table, key)
    derived = {} if target in plan.public else degree_codecs(plan, target)
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


def _link_measurements(model: Model, relation: Relation) -> list[Measured]:
    what = f"links:{relation.table}.{relation.key}"
    return [m for m in model.release.measured if m.what == what and m.view.base == relation.table]


def _seen(
    model: Model, coded: CodedDatabase, relation: Relation, measured: Sequence[Measured]
) -> Iterable[Distribution]:
    """Every single column that was measured over the links on its own."""
    attributes = dict((*relation.left, *relation.right))
    single: dict[str, list[Estimate]] = {}
    for m in measured:
        if len(m.marginal.columns) == 1 and m.marginal.columns[0] in attributes:
            single.setdefault(m.marginal.columns[0], []).append(summed(m, m.marginal.columns))
    for name, parts in single.items():
        attribute, estimate = attributes[name], combined(parts)
        codec = _codec(model, relation.table, attribute)
        size = codec.size
        if estimate is None or estimate.counts.shape != (size,):
            continue
        linked = [coded.position(relation.table, path) >= 0 for path in relation.view.linked]
        (codes,), rows = coded.columns(relation.table, [attribute])
        kept = codes[np.logical_and.reduce(linked)[rows]]
        yield Distribution(
            _title(model, relation.table, attribute),
            f"by {relation.table}",
            labels(codec.column, codec.domain),
            isinstance(codec.domain, Bins),
            np.bincount(kept, minlength=size).astype(np.int64),
            estimate,
            None,
            open_ended=parse_degree(attribute.column) is not None,
        )


def _pairs(model: Model, coded: CodedDatabase, relation: Relation, measured: Sequence[Measured]) -> Iterable[Pair]:
    """Every pair of columns across the relation that some measured clique holds."""
    sides = dict(relation.left), dict(relation.right)
    found: dict[tuple[str, str], list[Estimate]] = {}
    for m in measured:
        for left in (c for c in m.marginal.columns if c in sides[0]):
            for right in (c for c in m.marginal.columns if c in sides[1]):
                if (left, right) in found or len(found) < MOST_PAIRS:
                    found.setdefault((left, right), []).append(summed(m, (left, right)))
    for (left, right), parts in found.items():
        estimate = combined(parts)
        attributes = sides[0][left], sides[1][right]
        shape = tuple(coded.size(relation.table, a) for a in attributes)
        if estimate is None or estimate.counts.shape != shape:
            continue
        (a, b), _ = coded.columns(relation.table, attributes)
        joint = np.bincount(a * shape[1] + b, minlength=shape[0] * shape[1]).reshape(shape)
        words = [labels(c.column, c.domain) for c in (_codec(model, relation.table, x) for x in attributes)]
        titles = [_title(model, relation.table, x) for x in attributes]
        yield Pair(titles[0], titles[1], words[0], words[1], estimate, joint.astype(np.float64))


def _title(model: Model, base: str, attribute: Attribute) -> str:
    table = model.plan.promise.graph.walk(base, attribute.path)
    counted, key = parse_degree(attribute.column), parse_presence(attribute.column)
    if counted is not None:
        return f"number of {counted[0]} per {table}"
    return f"{table} has {key}" if key is not None else f"{table}.{attribute.column}"


def _codec(model: Model, base: str, attribute: Attribute) -> Codec:
    plan = model.plan
    table = plan.promise.graph.walk(base, attribute.path)
    if attribute.column not in plan.table[table].column:
        return derived_codecs(plan, table)[attribute.column]
    column = plan.table[table].column[attribute.column]
    assert column.domain is not None
    assert not isinstance(column.domain, Learn)
    return Codec(column.column, column.domain)
