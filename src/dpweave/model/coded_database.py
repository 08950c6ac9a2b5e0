"""Arrow tables as codes and links: the small, engine-free twin of what the wall counts.

Values are coded by :mod:`dpweave.schema.encoding`, and every foreign key becomes the
position of the row it leads to, or -1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.errors import UsageError
from dpweave.schema.codec import Codec
from dpweave.schema.domain import Bins, Categories, Learn, Opaque, parse_degree, parse_presence
from dpweave.schema.encoding import encode_column
from dpweave.schema.key_graph import KeyGraph
from dpweave.schema.key_lookup import column_of, follow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.plan.plan import Plan
    from dpweave.schema.database import Column, Database
    from dpweave.schema.domain import Attribute, Domain, Path


@dataclass(frozen=True)
class CodedDatabase:
    """Codes by (table, column), positions by (table, foreign key), numbers of rows by table."""

    schema: Database
    rows: Mapping[str, int]
    codes: Mapping[tuple[str, str], IntArray]
    sizes: Mapping[tuple[str, str], int]
    """Number of codes of each coded column."""
    links: Mapping[tuple[str, str], IntArray]
    """Row of the target for every row of a table, or -1."""

    def degrees(self, table: str, key: str) -> IntArray:
        """How many rows of ``table`` lead to each row of the key's target."""
        links = self.links[table, key]
        target = self.schema[table].key[key].target
        return np.bincount(links[links >= 0], minlength=self.rows[target]).astype(np.int64)

    def position(self, base: str, path: Path) -> IntArray:
        """Row at the end of ``path`` for every row of ``base``, or -1."""
        at = np.arange(self.rows[base], dtype=np.int64)
        for name in path:
            links = self.links[base, name]
            padded = links if len(links) else np.full(1, -1, dtype=np.int64)
            at = np.where(at >= 0, padded[np.maximum(at, 0)], -1)
            base = self.schema[base].key[name].target
        return at

    def columns(
        self, base: str, attributes: Sequence[Attribute], *, nowhere: Mapping[Attribute, int] = MappingProxyType({})
    ) -> tuple[list[IntArray], IntArray]:
        """Codes of ``attributes`` for the rows of ``base`` whose paths all lead somewhere, and those rows.

        Paths of some may lead ``nowhere``, which has the code that is given there.
        """
        paths = {a.path: self.position(base, a.path) for a in attributes}
        there = np.ones(self.rows[base], dtype=bool)
        for a in attributes:
            there &= (paths[a.path] >= 0) | (a in nowhere)
        kept = np.flatnonzero(there)
        out = []
        for a in attributes:
            at, codes = paths[a.path][kept], self.codes[KeyGraph(self.schema).walk(base, a.path), a.column]
            out.append(np.where(at >= 0, np.append(codes, 0)[at], nowhere[a]) if a in nowhere else codes[at])
        return out, kept

    def size(self, base: str, attribute: Attribute) -> int:
        """Number of codes of an attribute seen from ``base``."""
        return self.sizes[KeyGraph(self.schema).walk(base, attribute.path), attribute.column]

    def rewired(self, links: Mapping[tuple[str, str], IntArray]) -> CodedDatabase:
        """Return the same rows with other links."""
        return replace(self, links={**self.links, **links})


def encode(plan: Plan, tables: Mapping[str, pa.Table]) -> CodedDatabase:
    """Code every table of a plan whose domains are all declared or learned already."""
    for name in plan.database.names:
        if name not in tables:
            raise UsageError(f"the database has no table {name!r}, which the plan names; give one made from this plan")
    codes: dict[tuple[str, str], IntArray] = {}
    sizes: dict[tuple[str, str], int] = {}
    for table in plan.tables:
        for column in table.columns:
            domain = column.domain
            if isinstance(domain, Learn):
                raise UsageError(
                    f"the domain of {table.name}.{column.name} is not known yet; use the plan of a fitted model"
                )
            if domain is None:
                continue
            codec = Codec(column.column, domain)
            codes[table.name, column.name] = encode_column(codec, column_of(tables, table.name, column.column))
            sizes[table.name, column.name] = codec.size
    links = {
        (table.name, key.name): follow(tables, plan.database, table.name, key)
        for table in plan.database
        for key in table.foreign_keys
    }
    coded = CodedDatabase(plan.database, {n: tables[n].num_rows for n in plan.database.names}, codes, sizes, links)
    return with_derived(plan, coded)


def with_derived(plan: Plan, coded: CodedDatabase) -> CodedDatabase:
    """Add the columns that a plan derives from links, by the links as they are:
    degrees, and which keys lead somewhere.
    """
    codes, sizes = dict(coded.codes), dict(coded.sizes)
    for name in plan.promise.private:
        for column, codec in plan.compile().table[name].derived_codecs.items():
            codes[name, column] = _derived(coded, name, column, codec)
            sizes[name, column] = codec.size
    return replace(coded, codes=codes, sizes=sizes)


def _derived(coded: CodedDatabase, table: str, column: str, codec: Codec) -> IntArray:
    key = parse_presence(column)
    if key is not None:
        return (coded.links[table, key] >= 0).astype(np.int64)
    child, key = parse_degree(column) or ("", "")
    return bucketed(coded.degrees(child, key), codec)


def bucketed(values: IntArray, codec: Codec) -> IntArray:
    """Codes of whole numbers under a codec of bins."""
    assert isinstance(codec.domain, Bins)
    return np.searchsorted(np.array(codec.domain.edges[1:-1], dtype=np.int64), values, side="right").astype(np.int64)


def labels(column: Column, domain: Domain) -> tuple[str, ...]:
    """Say each code in words, in order.

    >>> from dpweave.schema.database import Column, Type
    >>> labels(Column("n", Type("integer"), nullable=True), Bins((0, 1, 5, 9)))
    ('0', '1 to 4', '5 to 8', '(null)')
    """
    match domain:
        case Opaque():
            words = ["(a value)"]
        case Categories(values=values, other=other):
            words = [show(v) for v in values] + (["(other)"] if other else [])
        case Bins(edges=edges):
            words = [_interval(column, a, b) for a, b in pairwise(edges)]
    return (*words, "(null)") if column.nullable else tuple(words)


def _interval(column: Column, low: Any, high: Any) -> str:
    if column.type.kind == "integer":
        return show(low) if high - low == 1 else f"{show(low)} to {show(high - 1)}"
    return f"{show(low)} to <{show(high)}" if column.type.kind in ("float", "decimal") else f"from {show(low)}"


def show(value: object) -> str:
    """Write a value of a domain, short."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return text.removesuffix(" 00:00:00").removesuffix(" 00:00:00+00:00") or "(empty)"
