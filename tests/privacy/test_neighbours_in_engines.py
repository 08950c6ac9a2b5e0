"""Neighbours laid into real engines and counted there: no marginal moves further than the calculus says.

Unlike the oracle's, these tables may lack a primary key, so that rows have exact twins, and may have composite ones. In
PostgreSQL, rows of a table may lie in a table that inherits from it.
"""

from __future__ import annotations

import itertools
import math
import random
import sqlite3
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpweave.engines.opening import open_source
from dpweave.privacy.sensitivity import movement, weighed
from dpweave.schema.database import Column, Database, ForeignKey, Table
from tests.backends import postgres  # noqa: F401 - a fixture
from tests.engine_counts import engine_counts
from tests.mariadb_server import mariadb  # noqa: F401 - a fixture
from tests.oracle import World, entity_neighbours, keys_of, random_view, random_world, record_neighbour, units

if TYPE_CHECKING:
    from pathlib import Path

    from dpweave.engines.source_base import Source
    from dpweave.privacy.promise import Promise
    from tests.oracle import Rows

SPLIT = 3
"""A composite key holds an id as its quotient by this, and the remainder."""


@dataclass(frozen=True)
class Disguise:
    """How a world of the oracle looks in an engine: which tables lose their primary
    key, and which get a composite one.
    """

    promise: Promise
    bare: frozenset[str]
    composite: frozenset[str]

    @classmethod
    def of(cls, world: World, rng: random.Random) -> Disguise:
        led = {k.target for t in world.promise.database for k in t.foreign_keys}
        free = [n for n in world.rows if n not in {*world.promise.protected, *led}]
        bare = frozenset(n for n in free if rng.random() < 0.8)
        composite = frozenset(n for n in world.rows if n not in bare and rng.random() < 0.4)
        tables = tuple(_disguised(t, bare, composite) for t in world.promise.database)
        return cls(replace(world.promise, database=Database(tables)), bare, composite)

    def columns(self, rows: Rows, table: str) -> dict[str, list[Any]]:
        """The rows of one table, column by column, shuffled so that no engine can go by where they lie."""
        listed = sorted(rows[table].items())
        random.Random(len(listed)).shuffle(listed)
        out: dict[str, list[Any]] = (
            {} if table in self.bare else _spelled("id", [i for i, _ in listed], table in self.composite)
        )
        targets = keys_of(self.promise, table)
        for name in next(iter(rows[table].values()), {}):
            values = [row[name] for _, row in listed]
            out |= _spelled(name, values, targets.get(name) in self.composite)
        return {c.name: out.get(c.name, []) for c in self.promise.database[table].columns}


def _spelled(name: str, values: list[Any], composite: bool) -> dict[str, list[Any]]:
    if not composite:
        return {name: values}
    halves = [(None, None) if v is None else divmod(v, SPLIT) for v in values]
    return {f"{name}_a": [a for a, _ in halves], f"{name}_b": [b for _, b in halves]}


def _disguised(table: Table, bare: frozenset[str], composite: frozenset[str]) -> Table:
    def names(name: str, split: bool) -> tuple[str, ...]:
        return (f"{name}_a", f"{name}_b") if split else (name,)

    targets = {k.columns[0]: k.target for k in table.foreign_keys}
    columns: list[Column] = []
    for column in table.columns:
        if column.name == "id" and table.name in bare:
            continue
        split = table.name in composite if column.name == "id" else targets.get(column.name) in composite
        columns += [replace(column, name=n) for n in names(column.name, split)]
    keys = tuple(
        ForeignKey(names(k.columns[0], k.target in composite), k.target, names("id", k.target in composite), k.name)
        for k in table.foreign_keys
    )
    primary = () if table.name in bare else names("id", table.name in composite)
    return Table(table.name, tuple(columns), primary, (), keys)


def _arrow(disguise: Disguise, rows: Rows) -> dict[str, pa.Table]:
    return {
        t.name: pa.table({n: pa.array(v, pa.int64()) for n, v in disguise.columns(rows, t.name).items()})
        for t in disguise.promise.database
    }


def _frames(disguise: Disguise, rows: Rows, folder: Path) -> Any:
    return _arrow(disguise, rows)


def _parquet(disguise: Disguise, rows: Rows, folder: Path) -> Any:
    folder.mkdir()
    for name, table in _arrow(disguise, rows).items():
        pq.write_table(table, folder / f"{name}.parquet")
    return folder


def _duckdb(disguise: Disguise, rows: Rows, folder: Path) -> Any:
    path = folder.with_suffix(".duckdb")
    with duckdb.connect(str(path)) as connection:
        for name, table in _arrow(disguise, rows).items():
            connection.register("given", table)
            connection.execute(f'CREATE TABLE "{name}" AS FROM given')
            connection.unregister("given")
    return path


def _sqlite(disguise: Disguise, rows: Rows, folder: Path) -> Any:
    path = folder.with_suffix(".sqlite")
    connection = sqlite3.connect(path)
    for table in disguise.promise.database:
        found = disguise.columns(rows, table.name)
        connection.execute(f'CREATE TABLE "{table.name}" ({", ".join(f"{n} INTEGER" for n in found)})')
        marks = ", ".join("?" for _ in found)
        connection.executemany(f'INSERT INTO "{table.name}" VALUES ({marks})', zip(*found.values(), strict=True))
    connection.commit()
    connection.close()
    return path


EMBEDDED = {"frames": _frames, "parquet": _parquet, "duckdb": _duckdb, "sqlite": _sqlite}


def _into_postgres(url: str, schema: str, disguise: Disguise, rows: Rows) -> None:
    """Lay rows into a schema of their own; every third row lies in a table that inherits."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        for table in disguise.promise.database:
            found = disguise.columns(rows, table.name)
            typed = [f"{n} bigint" for n in found]
            typed += [f"PRIMARY KEY ({', '.join(table.primary_key)})"] if table.primary_key else []
            connection.execute(f"CREATE TABLE {schema}.{table.name} ({', '.join(typed)})")
            connection.execute(f"CREATE TABLE {schema}.{table.name}_old () INHERITS ({schema}.{table.name})")
            lines = list(zip(*found.values(), strict=True))
            for place, some in ((f"{table.name}_old", lines[::3]), (table.name, lines[1::3] + lines[2::3])):
                insert = f"INSERT INTO {schema}.{place} VALUES ({', '.join('%s' for _ in found)})"
                connection.cursor().executemany(insert, some)


def _compared(
    world: World, disguise: Disguise, opened: Any, rng: random.Random, *, views: int, most: int
) -> tuple[int, int]:
    """Count random marginals over a world and its neighbours; return how many pairs
    were compared and attained the bound.
    """
    promise = disguise.promise
    if promise.neighbours == "entity":
        others = list(entity_neighbours(world.rows, world.promise))
    else:
        others = [
            (root, record_neighbour(world.rows, world.promise, table, ident, rng, values=world.values, size=world.size))
            for root, table, ident in units(world.rows, world.promise)
        ]
    others = rng.sample(others, min(len(others), most))
    looks = [random_view(rng, world) for _ in range(views)]
    seen = replace(world, promise=promise)
    of = {t: weighed(promise, t) for t in promise.private}
    found, words = [], []
    for rows in (world.rows, *(other for _, other in others)):
        with opened(rows) as source:
            counts, _ = engine_counts(source, seen, salt="the same for all")
            found.append([counts.marginals(view, [columns])[0] for view, columns in looks])
            words.append({t: counts.categories(t, world.values[t][0], length=of[t].length) for t in of})
    attained = 0
    for (unit, _), there, after in zip(others, found[1:], words[1:], strict=True):
        for table, a in words[0].items():
            square = sum((a.get(v, 0) - after[table].get(v, 0)) ** 2 for v in {*a, *after[table]})
            assert square <= of[table].l2.get(unit, 0.0) ** 2 * (1 + 1e-12), (table, unit, disguise)
        for (view, columns), a, b in zip(looks, found[0], there, strict=True):
            limit = movement(promise, view, columns, unit)
            moved = np.abs(a - b)
            assert moved.sum() <= limit.l1, (view, columns, unit, disguise)
            assert math.sqrt((moved**2).sum()) <= limit.l2, (view, columns, unit, disguise)
            attained += bool(moved.sum() == limit.l1 > 0)
    return len(others) * len(looks), attained


def _worlds(start: int, neighbours: str, *, many: int) -> Any:
    """Worlds in which tables have twins or composite keys, and rows belong to two units."""
    found = 0
    for seed in itertools.count(start):
        rng = random.Random(seed)
        world = random_world(rng, neighbours, most=9, share=0.5)
        disguise = Disguise.of(world, rng)
        if disguise.bare and disguise.composite and world.promise.shared:
            found += 1
            yield rng, world, disguise
        if found == many:
            return


@pytest.mark.parametrize("neighbours", ["entity", "record"])
@pytest.mark.parametrize("engine", EMBEDDED)
def test_neighbours_in_embedded_engines(engine, neighbours, tmp_path):
    pairs = attained = 0
    numbers = itertools.count()
    start = 1000 * list(EMBEDDED).index(engine)
    for rng, world, disguise in _worlds(start, neighbours, many=4 if neighbours == "entity" else 2):

        def opened(rows: Rows, *, disguise=disguise) -> Source:
            source = open_source(EMBEDDED[engine](disguise, rows, tmp_path / str(next(numbers))))
            source.declare(disguise.promise.database)
            return source

        n, tight = _compared(world, disguise, opened, rng, views=500, most=3)
        pairs, attained = pairs + n, attained + tight
    assert pairs >= 3_000
    assert attained > 0


@pytest.mark.parametrize(("neighbours", "many"), [("entity", 2), ("record", 1)])
def test_neighbours_in_postgresql_with_tables_that_inherit(postgres, neighbours, many):  # noqa: F811
    url, numbers, pairs = postgres.fresh(), itertools.count(), 0
    for rng, world, disguise in _worlds(9000, neighbours, many=many):

        def opened(rows: Rows, *, disguise=disguise) -> Source:
            schema = f"s{next(numbers)}"
            _into_postgres(url, schema, disguise, rows)
            source = open_source(f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{schema}")
            source.declare(disguise.promise.database)
            return source

        n, _ = _compared(world, disguise, opened, rng, views=25, most=2)
        pairs += n
    assert pairs == 50 * many


def _into_mariadb(server: Any, disguise: Disguise, rows: Rows) -> str:
    url = server.fresh()
    for table in disguise.promise.database:
        found = disguise.columns(rows, table.name)
        typed = [f"{n} bigint" for n in found]
        typed += [f"PRIMARY KEY ({', '.join(table.primary_key)})"] if table.primary_key else []
        lines = ["NULL" if v is None else str(v) for line in zip(*found.values(), strict=True) for v in line]
        width = len(found)
        values = ", ".join(f"({', '.join(lines[i : i + width])})" for i in range(0, len(lines), width))
        insert = [f"INSERT INTO {table.name} VALUES {values}"] if lines else []
        server.run(f"CREATE TABLE {table.name} ({', '.join(typed)})", *insert, url=url)
    return url


def test_neighbours_in_mariadb(mariadb):  # noqa: F811
    pairs = 0
    for rng, world, disguise in _worlds(9100, "entity", many=1):

        def opened(rows: Rows, *, disguise=disguise) -> Source:
            source = open_source(_into_mariadb(mariadb, disguise, rows))
            source.declare(disguise.promise.database)
            return source

        n, _ = _compared(world, disguise, opened, rng, views=25, most=2)
        pairs += n
    assert pairs == 50
