"""Keys that hold, tried by brute force: random schemas with composite, shared, partial
and numbered keys, and tables without rows.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, ForeignKey, Type
from dpweave.schema.domain import Categories
from dpweave.schema.placeholders import placeholders, room
from dpweave.weaving.blueprint import Blueprint
from dpweave.weaving.weaver import Weaver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray

NUMBERS = [Type("integer")] * 3 + [
    Type("integer", bits=8),
    Type("text", length=1),
    Type("enum", values=("a", "b", "c")),
]


class Drawn:
    """A table model that draws every code evenly, and degrees from 0 to 4."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, IntArray]:
        return {c: rng.integers(0, min(n, 5), rows) for c, n in self._sizes.items()}

    def marginal(self, columns: tuple[str, ...]) -> FloatArray:
        return np.ones([self._sizes[c] for c in columns])


def random_plan(rng: random.Random) -> Plan:
    """Up to five tables: keys of one or two columns, made of own numbers, of foreign
    keys, of parts of these, or shared by several.
    """
    tables: list[TablePlan] = []
    public: list[str] = []
    for i in range(rng.randint(2, 5)):
        name = f"t{i}"
        is_public = i > 0 and rng.random() < 0.25
        columns: dict[str, Column] = {}
        keys: list[KeyPlan] = []
        for target in _targets(rng, tables, public, is_public=is_public, first=not i):
            role = "attribute" if target.name in public else "linking"
            if not is_public and role == "linking" and not any(k.role == "owning" for k in keys):
                role = "owning"
            named = []
            for c in target.primary_key:
                own = c if rng.random() < 0.6 else f"{c}_{target.name}_{len(keys)}"
                if own in columns and columns[own].type != target.column[c].column.type:
                    own = f"{own}_{len(keys)}"
                columns.setdefault(own, Column(own, target.column[c].column.type, rng.random() < 0.3))
                named.append(own)
            key = ForeignKey(tuple(named), target.name, target.primary_key, name=f"k{len(keys)}")
            if len(set(named)) == len(named) and all(k.key.columns != key.columns for k in keys):
                keys.append(KeyPlan(key, role, rng.choice([2, 5]) if role != "attribute" else None))  # type: ignore[arg-type]
        columns = {c: columns[c] for k in keys for c in k.key.columns}
        own_columns = [Column(f"nr{i}", rng.choice(NUMBERS) if i else Type("integer"), nullable=False)]
        if rng.random() < 0.4:
            own_columns.append(Column(f"kind{i}", Type("text"), nullable=False))
        primary, unique = _keys(rng, keys, own_columns[0].name)
        planned = [
            ColumnPlan(c if c.name not in primary else Column(c.name, c.type, nullable=False), None)
            for c in columns.values()
        ]
        planned += [ColumnPlan(c, Categories(("x", "y")) if c.name.startswith("kind") else None) for c in own_columns]
        tables.append(TablePlan(name, tuple(planned), primary, unique, tuple(keys)))
        if is_public:
            public.append(name)
    roots = [t.name for t in tables if t.name not in public and not any(k.role == "owning" for k in t.keys)]
    return Plan(tuple(tables), protect=tuple(roots), public=tuple(public))


def _targets(
    rng: random.Random, tables: list[TablePlan], public: list[str], *, is_public: bool, first: bool
) -> list[TablePlan]:
    if first or is_public:
        return []
    private = [t for t in tables if t.name not in public]
    return [rng.choice(private), *rng.sample(tables, rng.randint(0, min(2, len(tables))))]


def _keys(rng: random.Random, keys: list[KeyPlan], number: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    foreign = list(dict.fromkeys(c for k in keys for c in k.key.columns))
    choices: list[tuple[str, ...]] = [(number,)]
    if foreign:
        choices += [(*rng.sample(foreign, rng.randint(1, len(foreign))), number), (*foreign, number)]
        choices += [tuple(foreign), tuple(rng.sample(foreign, rng.randint(1, len(foreign))))]
    primary = rng.choice(choices)
    return primary, tuple({rng.choice(choices) for _ in range(rng.choice([0, 1, 2]))} - {primary})


def public_table(table: TablePlan, rows: int) -> pa.Table:
    made = {
        c.name: (
            pa.array(["x"] * rows)
            if c.name.startswith("kind")
            else pa.array(
                [
                    str(i) if c.column.type.kind == "text" else "abc"[i % 3] if c.column.type.kind == "enum" else i
                    for i in range(rows)
                ]
            )
        )
        for c in table.columns
    }
    return pa.table(made)


def weave(plan: Plan, *, rows: int, seed: int) -> dict[str, pd.DataFrame]:
    models = {}
    for name in plan.promise.private:
        sizes = {c.name: Codec(c.column, c.domain).size for c in plan.table[name].modelled if c.domain is not None}  # type: ignore[arg-type]
        sizes |= {c: codec.size for c, codec in plan.compile().table[name].derived_codecs.items()}
        models[name] = Drawn({c: sizes[c] for c in plan.compile().table[name].model_columns})
    public = {n: public_table(plan.table[n], min(rows, 3)) for n in plan.public}
    blueprint = Blueprint(plan, dict.fromkeys(plan.promise.private, float(rows)), models, public)  # type: ignore[arg-type]
    weaver = Weaver(blueprint, scale=1.0, seed=seed)
    for _ in weaver.wire():
        pass  # links are made at random
    made = weaver.tables()
    return {name: pd.DataFrame(table.to_pydict(), dtype=object) for name, table in made.items()}


def broken_keys(plan: Plan, tables: Mapping[str, pd.DataFrame]) -> list[str]:
    """Everything that a database would refuse."""
    found = []
    for table in plan.database:
        rows = tables[table.name]
        for unique in (table.primary_key, *table.unique):
            given = rows.dropna(subset=list(unique))
            if given.duplicated(list(unique)).any():
                found.append(f"{table.name}{unique} repeats")
        if table.name not in plan.public:
            found += [
                f"{table.name}.{c.name} null" for c in table.columns if not c.nullable and rows[c.name].isna().any()
            ]
        for k in table.foreign_keys:
            given = rows[list(k.columns)].dropna()
            targets = set(tables[k.target][list(k.target_columns)].itertuples(index=False, name=None))
            if not set(given.itertuples(index=False, name=None)) <= targets:
                found.append(f"{table.name}.{k.name} leads nowhere")
    return found


@pytest.mark.parametrize("chunk", range(4))
def test_keys_hold_on_random_schemas(chunk: int) -> None:
    rows = 0
    for seed in range(60 * chunk, 60 * (chunk + 1)):
        plan = random_plan(random.Random(seed))
        made = weave(plan, rows=random.Random(seed).choice([0, 1, 2, 30, 30, 30]), seed=seed)
        assert broken_keys(plan, made) == [], (seed, plan.to_toml())
        rows += sum(len(t) for t in made.values())
    assert rows > 1000  # not by leaving everything out


@pytest.mark.parametrize(
    "spelling",
    [
        "int8", "uint8", "int64", "uint64", "float32", "float64", "decimal(3,1)", "decimal(38,2)", "text", "text(1)", "text(2)",  # noqa: E501
        "date", "time", "timestamp", "timestamptz", "boolean", 'enum("a","b")', "uuid", "bytes", "json", "unknown",
    ],
)  # fmt: skip
def test_made_up_values_are_distinct_as_far_as_their_type_has_room(spelling: str) -> None:
    column = Column("code", Type.parse(spelling), nullable=False)
    most = room(column)
    rows = 3000 if most is None else min(most, 3000)
    numbers, null = np.arange(rows), np.zeros(rows, dtype=bool)
    made = placeholders(column, numbers, null=null, rng=np.random.default_rng(0), unique=True).to_pylist()
    assert len(set(made)) == rows
    many = np.arange(20_000)  # more than there is room for is no error
    placeholders(column, many, null=many < 0, rng=np.random.default_rng(0))
