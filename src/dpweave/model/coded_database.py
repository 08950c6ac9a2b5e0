"""Arrow tables as codes and links: the small, engine-free twin of what the wall counts.

Values are coded by :mod:`dpweave.schema.arrow_codes`, and every foreign key becomes the
position of the row it leads to, or -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.engines.stream import Batched, batches_of
from dpweave.errors import UsageError
from dpweave.schema.arrow_codes import encode_column
from dpweave.schema.arrow_types import arrow_schema
from dpweave.schema.codec import Codec
from dpweave.schema.domain import Bins, Categories, Learn, Opaque, parse_degree, parse_presence
from dpweave.schema.gathered import with_gathered
from dpweave.schema.key_graph import KeyGraph
from dpweave.schema.key_lookup import column_of, follow

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.plan.plan import Plan
    from dpweave.schema.database import Column, Database, Table
    from dpweave.schema.domain import Attribute, Domain, Path


@dataclass(frozen=True)
class CodedDatabase:
    """Codes by (table, column), positions by (table, foreign key), numbers of rows by table.

    Codes and positions are held in the smallest integers that fit: widen them before you calculate with them.
    """

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
        at = np.arange(self.rows[base], dtype=_places(self.rows[base]))
        for name in path:
            links = self.links[base, name]
            padded = links if len(links) else np.full(1, -1, dtype=np.int32)
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
            codes = self.codes[KeyGraph(self.schema).walk(base, a.path), a.column]
            if not a.path and len(kept) == len(codes):
                out.append(codes)  # no need for another copy of all rows
                continue
            at = paths[a.path][kept]
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
    if not isinstance(tables, Mapping):
        raise UsageError(f"a synthetic database or tables by name are needed here, not {type(tables).__name__}")
    for name in plan.database.names:
        if name not in tables:
            raise UsageError(f"the database has no table {name!r}, which the plan names; give one made from this plan")
    tables = with_gathered(tables, plan.database)
    codecs: dict[tuple[str, str], Codec] = {}
    for table in plan.tables:
        for column in table.columns:
            if isinstance(column.domain, Learn):
                raise UsageError(
                    f"the domain of {table.name}.{column.name} is not known yet; use the plan of a fitted model"
                )
            if column.domain is not None:
                codecs[table.name, column.name] = Codec(column.column, column.domain)
    codes: dict[tuple[str, str], IntArray] = {}
    keys: dict[str, pa.Table] = {}
    for described in plan.database:
        own = {column: codec for (name, column), codec in codecs.items() if name == described.name}
        led_to = {
            c for t in plan.database for k in t.foreign_keys if k.target == described.name for c in k.target_columns
        }
        keys[described.name], found = _read(described, tables, own, keep=described.key_columns | led_to)
        codes |= {(described.name, column): c for column, c in found.items()}
    links = {
        (table.name, key.name): follow(keys, plan.database, table.name, key).astype(_places(keys[key.target].num_rows))
        for table in plan.database
        for key in table.foreign_keys
    }
    sizes = {at: codec.size for at, codec in codecs.items()}
    coded = CodedDatabase(plan.database, {n: keys[n].num_rows for n in keys}, codes, sizes, links)
    return with_derived(plan, coded)


def _read(
    table: Table, tables: Mapping[str, pa.Table], codecs: Mapping[str, Codec], *, keep: frozenset[str]
) -> tuple[pa.Table, dict[str, IntArray]]:
    """Code a table batch by batch; of the values themselves keep some columns alone."""
    import pyarrow as pa

    kept = arrow_schema(table)
    kept = pa.schema([kept.field(c.name) for c in table.columns if c.name in keep])
    codes: dict[str, list[IntArray]] = {name: [np.zeros(0, dtype=_small(codec))] for name, codec in codecs.items()}
    parts: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches_of(tables, table.name):
        rows += batch.num_rows
        there = {table.name: pa.Table.from_batches([batch])}
        for name, codec in codecs.items():
            found = encode_column(codec, column_of(there, table.name, codec.column))
            codes[name].append(found.astype(_small(codec)))
        values = [column_of(there, table.name, table.column[c]) for c in kept.names]
        parts.append(pa.RecordBatch.from_arrays(values, schema=kept))
    if not rows and not isinstance(tables, Batched):
        for column in table.columns:
            column_of(tables, table.name, column)
    keys = pa.Table.from_batches(parts, schema=kept) if kept.names else pa.table({"": pa.nulls(rows)})
    return keys, {name: np.concatenate(part) for name, part in codes.items()}


def _small(codec: Codec) -> np.dtype[Any]:
    return np.min_scalar_type(max(codec.size - 1, 0))


def _places(rows: int) -> np.dtype[Any]:
    """Signed integers that can number so many rows."""
    return np.dtype(np.int32 if rows < 2**31 else np.int64)


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
        return (coded.links[table, key] >= 0).astype(np.uint8)
    child, key = parse_degree(column) or ("", "")
    return bucketed(coded.degrees(child, key), codec).astype(_small(codec))


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
