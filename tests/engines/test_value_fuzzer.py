"""Whatever a row holds, reading it ends the same way: no error after a charge depends on a value.

For every type of every engine, rows of extreme and random values are read as a fit
reads them: as plain columns of tables with and without a primary key, and as keys.
Where something fails, the values are halved until those that fail are left.
"""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import math
import random
import sqlite3
import struct
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpweave.engines.duckdb.source import memory
from dpweave.engines.opening import open_source
from dpweave.errors import SourceError
from dpweave.plan.plan import draft_plan
from dpweave.privacy.accounting import Budget
from dpweave.privacy.curator import Curator
from dpweave.privacy.ledger import Ledger
from dpweave.privacy.noise import InsecureNoise
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Database, ForeignKey, Table, Type
from dpweave.schema.domain import Attribute, Bins, Categories, Learn, Opaque, View, bins_at, is_plain
from dpweave.tables.domains.learned_ranges import known_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

ROWS = 256
"""Values of each type of each engine."""
REFUSALS = ("share the same", "have no", "lead to several rows")
"""What keys are refused for before anything is charged."""


# -- values ------------------------------------------------------------------------------------------------------------


def listed(*lines: str) -> list[str]:
    return [word for line in lines for word in line.split("|")]


WORDS = [
    *listed(
        "| |a|A|ß|ﬁ|İ|é|e\u0301|naïve 😀|汉字|\u202e|\ufeff|\u200b|\uffff|\U0010ffff|'|\"|''|\\|\\'|\\x00|%s|%|_|?|:x",
        "{x}|$1|$$|--|;|/*|`|a\nb|a\r\nb|\t|\x01|\x1a|\x7f|\x80|\0|a\0b|null|NULL|true|nan|inf|-inf|infinity|1e400",
        '1e-400|-0|0|1|01|1.0| 1 |1_000|0x10|१|{}|[]|{"a":1}|(1,2)|()|\\N|epoch|now',
    ),
    "é" * 70_000,
]
NUMBERS = [
    *listed(
        "0|-0|1|-1|0.5|-0.0|nan|NaN|inf|-inf|Infinity|1e400|-1e400|1e-400|1e308|-1e308|5e-324|1.7976931348623157e308",
        "1e38|1e39|-1e38|0.1|1e-9|true|false|x|| 7 ",
    ),
    *(str(s * (2**b + d)) for b in (7, 8, 15, 16, 31, 32, 53, 63, 64, 127, 128) for d in (-1, 0, 1) for s in (1, -1)),
    *("9" * 38, "9" * 400, "1" + "0" * 1000, "0." + "0" * 350 + "1", "0." + "7" * 900),
]
MOMENTS = listed(
    "infinity|-infinity|epoch|0001-01-01|9999-12-31|10000-01-01|0044-03-15 BC|4713-01-01 BC|4714-11-24"
    " BC|5874897-12-31",
    "294276-12-31 23:59:59.999999|294247-01-10 04:00:54.775806|290309-12-22 (BC) 00:00:00|290309-12-21 (BC)",
    "5881580-07-10|5877642-06-25 (BC)|1677-09-21 00:12:44|2262-04-11 23:47:16|2116-06-01|1582-10-10|2000-02-29"
    " 12:30:15",
    "24:00:00|23:59:59.999999|00:00:00|00:00:00+15:59:59|24:00:00-15:59:59|12:00:60|10:00+02|23:59:60|today|x||1e300",
    "-4713-11-24|2020-01-01T00:00:00.123456789Z|2020-01-01 00:00:00+14|2451545.5|-1|253402300800|178000000 years|P1Y",
    "-178000000 years|2147483647 months|1 month -30 days|106751991 days|1 microsecond",
)
THINGS = listed(
    '{}|[]|{"a": [1, null, "\\u0000"]}|"x"|1|[1, 2]|{1,NULL}|{\'a\': 1}|{\'a\': NULL}|[NULL]|0101|ab|1.2.3.4/32|(1,2)',
    "[1,5)|empty|$1.00|-$92,233,720,368,547,758.08|<a/>|\\xff00|08:00:2b:01:02:03|so so|it's|a=>1|0/0",
)


def texts(rng: random.Random) -> Iterator[str]:
    """Texts of all kinds, first the worst ones and then at random, without end."""
    yield from WORDS
    while True:
        alphabet = rng.choice(
            ("ab'\"\\%_?\0", "0123456789.-+e", "äßçœ汉字😀\u0301\u202e", "".join(map(chr, range(256))))
        )
        yield "".join(rng.choices(alphabet, k=rng.choice((1, 3, 10, 50))))


def numbers(rng: random.Random) -> Iterator[str]:
    yield from NUMBERS
    while True:
        match rng.randrange(3):
            case 0:
                yield str(rng.getrandbits(rng.randrange(1, 140)) * rng.choice((1, -1)))
            case 1:
                yield repr(struct.unpack("d", rng.randbytes(8))[0])
            case _:
                yield f"{rng.randint(-(10**20), 10**20)}e{rng.randint(-60, 60)}"


def moments(rng: random.Random) -> Iterator[str]:
    yield from MOMENTS
    while True:
        year = rng.choice((rng.randint(1, 9999), rng.randint(1600, 2300), rng.randint(10_000, 300_000)))
        day = f"{year:04d}-{rng.randint(1, 12):02d}-{rng.randint(1, 31):02d}"
        clock = f"{rng.randint(0, 24):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}.{rng.randint(0, 10**6 - 1):06d}"  # noqa: E501
        zone = rng.choice(("", "", "Z", "+13:59", "-15:59", " BC"))
        yield rng.choice(
            (
                day,
                clock,
                f"{day} {clock}",
                f"{day} {clock}{zone}",
                f"{clock}{zone}",
                f"{rng.randint(-(10**6), 10**6)} days",
            )
        )


def things(rng: random.Random) -> Iterator[str]:
    """Spellings of UUIDs, documents, bits, lists and other things."""
    yield from THINGS
    while True:
        bits = f"{rng.getrandbits(rng.randrange(1, 99)):b}"
        yield rng.choice((*THINGS, bits, *(str(uuid.UUID(int=rng.getrandbits(128))) for _ in THINGS)))


def taken(make: Callable[[random.Random], Iterator[Any]], seed: str, rows: int = ROWS) -> list[Any]:
    """The first values of a kind; the same for the same seed."""
    stream = make(random.Random(seed))
    return [next(stream) for _ in range(rows)]


def mixed(rng: random.Random) -> Iterator[Any]:
    """Values of any storage class of SQLite; ``(bytes,)`` stands for a text of these bytes."""
    streams = [texts(rng), numbers(rng), moments(rng), things(rng)]
    yield from (b"", b"\0", b"\xff", b"1", (b"\xff",), (b"a\xc3",), (b"\xed\xa0\x80",), (b"1\0",), (b"\xff1",), None)
    yield from (
        0,
        1,
        -1,
        2,
        300,
        2**53 + 1,
        2**63 - 1,
        -(2**63),
        0.0,
        -0.0,
        0.5,
        1e308,
        math.inf,
        -math.inf,
        5e-324,
        2451545.5,
    )
    yield from (uuid.UUID(int=7).bytes, 253402300800, -62167219201, 1e300, "ab", b"ab", "AB")
    while True:
        word = next(rng.choice(streams))
        match rng.randrange(6):
            case 0:
                yield rng.getrandbits(64) - 2**63
            case 1:
                yield struct.unpack("d", rng.randbytes(8))[0]
            case 2:
                yield rng.randbytes(rng.randrange(20))
            case 3:
                yield (rng.randbytes(rng.randrange(12)),)
            case _:
                yield word


# -- one world of tables for all engines -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """A column to fuzz: its type in the engine, its type in the plan, and its values as
    the engine's loader takes them.
    """

    name: str
    stored: Any
    declared: Type
    values: Sequence[Any]


def schema(fields: Sequence[Field]) -> Database:
    """``owner`` has rows with each field beside a primary key, and with all of them and none; each is also a key."""
    number = Type("integer")
    owner = ForeignKey(("owner",), "owner", ("id",))
    bare = (Column("owner", number), *(Column(f.name, f.declared) for f in fields))
    tables = [
        Table("owner", (Column("id", number, nullable=False),), ("id",)),
        Table("bare", bare, foreign_keys=(owner,)),
    ]
    for f in fields:
        key, link = ForeignKey(("k",), f"k {f.name}", ("k",)), ForeignKey(("other",), f"k {f.name}", ("k",))
        plain = (Column("id", number, nullable=False), Column("owner", number), Column("v", f.declared))
        tables += [
            Table(f"v {f.name}", plain, ("id",), foreign_keys=(owner,)),
            Table(f"k {f.name}", (Column("k", f.declared, nullable=False), Column("x", number)), ("k",)),
            Table(
                f"i {f.name}",
                (Column("id", number, nullable=False), Column("k", f.declared), Column("other", f.declared)),
                ("id",),
                foreign_keys=(key, link),
            ),
        ]
    return Database(tuple(tables))


def contents(fields: Sequence[Field], rows: Sequence[int]) -> dict[str, dict[str, tuple[Any, list[Any]]]]:
    """Columns of every table: their types in the engine, None for whole numbers, and their values at ``rows``."""
    count = list(range(len(rows)))
    owner = {"owner": (None, [i // 3 for i in count])}
    plain = {f.name: (f.stored, [f.values[i] for i in rows]) for f in fields}
    made = {"owner": {"id": (None, count)}, "bare": owner | plain}
    for f in fields:
        values = [f.values[i] for i in rows]
        made[f"v {f.name}"] = {"id": (None, count)} | owner | {"v": (f.stored, values)}
        made[f"k {f.name}"] = {"k": (f.stored, values), "x": (None, count)}
        turned = values[1:] + values[:1]
        made[f"i {f.name}"] = {"id": (None, count), "k": (f.stored, values), "other": (f.stored, turned)}
    return made


def domains(kind: Type) -> Iterator[Any]:
    """Every sort of domain that a column of a type can have, with edges as they are when domains are learned."""
    if kind.ordered:
        yield bins_at(kind, known_points(kind, Learn()))
    match kind.kind:
        case "text" | "uuid" | "enum":
            words = tuple(sorted({w for w in WORDS if is_plain(w)}))
            yield Categories(words[:40], other=True)
            yield Categories(words)
        case "boolean":
            yield Categories((False, True))
        case "integer":
            yield Categories(tuple(range(100)), other=True)
        case "float":
            yield Categories((0.0, 0.5, -1.0), other=True)
        case "decimal":
            yield Categories((decimal.Decimal(0), decimal.Decimal(1)), other=True)
        case "date":
            yield Categories((dt.date(1, 1, 1), dt.date(2000, 2, 29)), other=True)
        case "timestamp":
            zone = dt.UTC if kind.zone else None
            yield Bins(tuple(dt.datetime(year, 1, 1, tzinfo=zone) for year in (1, 1000, 2116, 5000, 9999)))
            yield Categories((dt.datetime(2000, 2, 29, 12, 30, 15, tzinfo=zone),), other=True)
        case "time":
            yield Categories((dt.time(0, 0), dt.time(23, 59, 59)), other=True)
        case _:
            yield Opaque()


def read(given: Any, fields: Sequence[Field]) -> None:
    """Read rows as a fit does. Whatever is refused before the first charge is a refusal
    of ours; nothing fails after it.
    """
    database = schema(fields)
    protect = ("owner", *(f"k {f.name}" for f in fields))
    plan = draft_plan(database, protect=protect, public=(), neighbours="entity", max_degree=2)
    with open_source(given) as source:
        source.declare(plan.database)
        source.require_whole(plan.database.names)
        ledger = Ledger.open(None, database=source.name, limit=Budget(1e12, 0.5), tables=plan.protect)
        curator = Curator(source, plan.promise, ledger=ledger, noise=InsecureNoise(0))
        check(curator)
        curator.measure(View.of_table("bare", ()), [()], what="rows in the order of all columns", rho=1.0)
        for f in fields:
            read_column(curator, f)
            read_keys(curator, f)


def check(curator: Curator) -> None:
    try:
        curator.check()
    except SourceError as error:
        if not any(words in str(error) for words in REFUSALS):
            raise


def read_column(curator: Curator, f: Field) -> None:
    table = f"v {f.name}"
    for domain in domains(f.declared):
        curator.set_codec(table, "v", Codec(Column("v", f.declared), domain))
        (counts,) = curator.measure(View.of_table(table, ("v",)), [("v",)], what="column", rho=1.0)
        assert counts.counts.size == domain.cells + 1
    if f.declared.kind == "text":
        curator.discover(table, "v", what="categories", rho=1.0, delta=1e-6)


def read_keys(curator: Curator, f: Field) -> None:
    parent, child = f"k {f.name}", f"i {f.name}"
    curator.set_codec(parent, "x", Codec(Column("x", Type("integer")), Opaque()))
    view = View(child, (("own", Attribute("x", ("k",))), ("other", Attribute("x", ("other",)))))
    curator.measure(view, [("own", "other")], what="children", rho=1.0)


def survey(load: Callable[[Sequence[Field], Sequence[int]], Any], fields: Sequence[Field]) -> None:
    """Read all rows. If that fails, halve the fields and then the rows until what fails is found."""

    def fails(some: Sequence[Field], rows: Sequence[int]) -> str | None:
        try:
            read(load(some, rows), some)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    def halved(things: list[Any], still: Callable[[list[Any]], str | None]) -> list[Any]:
        while len(things) > 1:
            half = next((h for h in (things[::2], things[1::2]) if still(h)), None)
            if half is None:
                break
            things = half
        return things

    rows = list(range(ROWS))
    said = fails(fields, rows)
    if said is None:
        return
    fewer = halved(list(fields), lambda some: fails(some, rows))
    few = halved(rows, lambda some: fails(fewer, some))
    found = [
        (f.stored, f.declared, [repr(getattr(f.values[i], "value", f.values[i]))[:80] for i in few[:8]]) for f in fewer
    ]
    pytest.fail(f"{said}; alone: {fails(fewer, few)}; by {found}")


# -- engines -----------------------------------------------------------------------------------------------------------


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def sql_table(name: str, columns: dict[str, tuple[Any, list[Any]]], spell: Callable[[str, Any], str]) -> list[str]:
    typed = ", ".join(f'"{c}" {kind or "BIGINT"}' for c, (kind, _) in columns.items())
    cells = [[str(v) if kind is None else spell(kind, v) for v in values] for kind, values in columns.values()]
    rows = ", ".join(f"({', '.join(row)})" for row in zip(*cells, strict=True))
    return [f'CREATE TABLE "{name}" ({typed})', *([f'INSERT INTO "{name}" VALUES {rows}'] if rows else [])]


def kinds(**spelled: str) -> dict[str, Callable[[random.Random], Iterator[str]]]:
    """Types of an engine, by the sort of values that they are tried with."""
    makers = {"numbers": numbers, "moments": moments, "texts": texts, "things": things}
    return {kind: makers[sort] for sort, names in spelled.items() for kind in listed(names)}


DUCKDB = kinds(
    numbers=(
        "TINYINT|SMALLINT|INTEGER|BIGINT|UTINYINT|USMALLINT|UINTEGER|UBIGINT|HUGEINT|UHUGEINT|BIGNUM|FLOAT|DOUBLE|"
        "DECIMAL(4,1)|DECIMAL(18,3)|DECIMAL(38,0)|DECIMAL(38,20)|BOOLEAN"
    ),
    moments="DATE|TIME|TIME_NS|TIMETZ|TIMESTAMP|TIMESTAMP_S|TIMESTAMP_MS|TIMESTAMP_NS|TIMESTAMPTZ|INTERVAL",
    texts="VARCHAR|BLOB",
    things=(
        "UUID|JSON|BIT|INTEGER[]|VARCHAR[2]|STRUCT(a INTEGER)|MAP(VARCHAR, INTEGER)|UNION(a INTEGER, b VARCHAR)|"
        "ENUM('so so', 'it''s')"
    ),
)
POSTGRES = kinds(
    numbers="int2|int4|int8|oid|float4|float8|numeric|numeric(10,2)|numeric(60,30)|numeric(2,-3)|numeric(200,100)|bool|money",
    moments="date|time|timetz|timestamp|timestamptz|timestamp(0)|interval",
    texts='text|varchar(9)|char(5)|"char"|name|bytea',
    things="uuid|json|jsonb|bit(3)|varbit|int4[]|text[]|point|inet|cidr|macaddr|int4range|tsvector|pg_lsn|mood",
)
MARIADB = kinds(
    numbers=(
        "tinyint|mediumint unsigned|bigint unsigned|float|double|decimal(10,2)|decimal(65,30)|boolean|bit(7)|bit(64)|"
        "year"
    ),
    moments="date|time(6)|datetime(6)|timestamp NULL",
    texts=(
        "varchar(9)|char(5)|longtext|varchar(9) CHARACTER SET latin1|text CHARACTER SET utf16|"
        "tinytext CHARACTER SET sjis|"
        "varchar(9) CHARACTER SET binary|binary(5)|longblob"
    ),
    things="uuid|json|inet6|enum('so so','it''s','')|set('a','b','c')|geometry",
)
SQLITE = listed(
    "|INTEGER|INT|TINYINT|UINT8|TEXT|NVARCHAR(9)|REAL|FLOAT4|BLOB|NUMERIC|DECIMAL(10,2)|BOOLEAN|DATE|TIME|DATETIME",
    "TIMESTAMPTZ|UUID|JSON|TEXT COLLATE NOCASE",
)
CASTS = listed("int8|uint64|int64|float32|float64|decimal(10,2)|boolean|date|time|timestamp|timestamptz|text")
"""Types that a plan may give a column that is stored as text."""
SIZES = {
    "duckdb": len(DUCKDB) + len(CASTS),
    "postgresql": len(POSTGRES),
    "mariadb": len(MARIADB),
    "sqlite": len(SQLITE) + len(CASTS),
    "csv": len(CASTS) + 3,
}


def test_the_fuzzer_tries_twenty_thousand_values() -> None:
    frames = len(arrow_fields())
    assert ROWS * (sum(SIZES.values()) + 2 * frames) >= 20_000


def of_catalogue(kinds: Sequence[str], database: Database, values: dict[str, list[Any]]) -> list[Field]:
    """Fields in the types that the engine's catalogue has for them."""
    found = [c.type for c in database["kinds"].columns]
    return [Field(f"f{i}", kind, found[i], values[kind]) for i, kind in enumerate(kinds)]


def test_duckdb(tmp_path) -> None:
    def spell(kind: str, value: str) -> str:
        text = quoted(value).replace("\0", "' || chr(0) || '")
        return text if kind == "VARCHAR" else f"encode({text})" if kind == "BLOB" else f"TRY_CAST({text} AS {kind})"

    numbered = iter(range(10**6))

    def load(fields: Sequence[Field], rows: Sequence[int]) -> Path:
        path = tmp_path / f"{next(numbered)}.duckdb"
        with duckdb.connect(str(path)) as connection:
            for name, columns in contents(fields, rows).items():
                for statement in sql_table(name, columns, spell):
                    connection.execute(statement)
        return path

    values = {kind: taken(make, f"duckdb {kind}") for kind, make in DUCKDB.items()}
    connection = memory()
    listed = ", ".join(f"f{i} {kind}" for i, kind in enumerate(DUCKDB))
    connection.con.execute(f"CREATE TABLE kinds ({listed})")
    with open_source(connection) as source:
        fields = of_catalogue(list(DUCKDB), source.catalogue, values)
    survey(load, fields)
    survey(load, [Field(f"c{i}", "VARCHAR", Type.parse(cast), spelled(cast)) for i, cast in enumerate(CASTS)])


def spelled(cast: str) -> list[str]:
    """Texts for a column that a plan reads in another type."""
    make = moments if cast.startswith(("date", "time")) else texts if cast == "text" else numbers
    return taken(make, f"text {cast}")


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_sqlite(tmp_path, encoding: str) -> None:
    numbered = iter(range(10**6))

    def load(fields: Sequence[Field], rows: Sequence[int]) -> Path:
        path = tmp_path / f"{next(numbered)}.sqlite"
        with sqlite3.connect(path) as connection:
            connection.execute(f"PRAGMA encoding = '{encoding}'")
            for name, columns in contents(fields, rows).items():
                typed = ", ".join(f'"{c}" {"INTEGER" if kind is None else kind}' for c, (kind, _) in columns.items())
                connection.execute(f'CREATE TABLE "{name}" ({typed})')
                for row in zip(*(values for _, values in columns.values()), strict=True):
                    marks = ", ".join("CAST(? AS TEXT)" if isinstance(v, tuple) else "?" for v in row)
                    given = [v[0] if isinstance(v, tuple) else v for v in row]
                    connection.execute(f'INSERT INTO "{name}" VALUES ({marks})', given)
        connection.close()
        return path

    values = {kind: taken(mixed, f"sqlite {kind}") for kind in SQLITE}
    with sqlite3.connect(tmp_path / "kinds.sqlite") as connection:
        connection.execute(f"CREATE TABLE kinds ({', '.join(f'f{i} {kind}' for i, kind in enumerate(SQLITE))})")
    connection.close()
    with open_source(tmp_path / "kinds.sqlite") as source:
        fields = of_catalogue(SQLITE, source.catalogue, values)
    survey(load, fields if encoding == "UTF-8" else [f for f in fields if f.stored in ("", "TEXT", "UUID")])
    survey(load, [Field(f"c{i}", "TEXT", Type.parse(cast), taken(mixed, f"as {cast}")) for i, cast in enumerate(CASTS)])


def test_postgresql(postgres) -> None:
    mood = "CREATE TYPE mood AS ENUM ('so so', 'it''s')"

    def load(fields: Sequence[Field], rows: Sequence[int]) -> str:
        url = postgres.fresh()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(mood)
            for name, columns in contents(fields, rows).items():
                typed = ", ".join(f'"{c}" {kind or "int8"}' for c, (kind, _) in columns.items())
                connection.execute(f'CREATE TABLE "{name}" ({typed})')
                connection.execute(
                    f"CREATE TEMPORARY TABLE given ({', '.join(f'v{i} text' for i in range(len(columns)))})"
                )
                with connection.cursor().copy("COPY given FROM STDIN") as copy:
                    for row in zip(*(values for _, values in columns.values()), strict=True):
                        copy.write_row([str(v).replace("\0", "") for v in row])
                valid = ", ".join(
                    f"CASE WHEN pg_input_is_valid(v{i}, {quoted(kind or 'int8')}) THEN CAST(v{i} AS"
                    f" {kind or 'int8'}) END"
                    for i, (kind, _) in enumerate(columns.values())
                )
                connection.execute(f'INSERT INTO "{name}" SELECT {valid} FROM given')
                connection.execute("DROP TABLE given")
        return url

    values = {kind: taken(make, f"postgresql {kind}") for kind, make in POSTGRES.items()}
    url = postgres.fresh()
    postgres.run(mood, f"CREATE TABLE kinds ({', '.join(f'f{i} {kind}' for i, kind in enumerate(POSTGRES))})", url=url)
    with open_source(url) as source:
        fields = of_catalogue(list(POSTGRES), source.catalogue, values)
    survey(load, fields)
    others = {
        "numeric": "float64",
        "numeric(200,100)": "float64",
        "date": "timestamp",
        "timestamp": "timestamptz",
        "timestamptz": "date",
    }
    others |= {
        "int8": "float64",
        "float4": "float64",
        "bytea": "text",
        "interval": "text",
        "time": "text",
        "bool": "text",
    }
    survey(load, [replace(f, declared=Type.parse(others[f.stored])) for f in fields if f.stored in others])


def test_mariadb(mariadb) -> None:
    """Values are given as a server takes them that is not strict: what does not fit comes out as something else, so
    that there are zero dates, dates that are none, and hours beyond 24.
    """

    def spell(kind: str, value: str) -> str:
        text = "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0") + "'"
        return f"ST_GEOMFROMTEXT({text})" if kind in ("point", "geometry") else text

    def load(fields: Sequence[Field], rows: Sequence[int]) -> str:
        url = mariadb.fresh()
        script = [
            "SET SESSION check_constraint_checks = 0",
            *(s for name, columns in contents(fields, rows).items() for s in sql_table(name, columns, spell)),
        ]
        # Many values come out alike, and keys that repeat are refused: else each would lead to hundreds of rows.
        script += [f'DELETE a FROM "k {f.name}" a JOIN "k {f.name}" b ON a.k = b.k AND a.x > b.x' for f in fields]
        mariadb.run(*script, url=url, modes="ALLOW_INVALID_DATES,ANSI_QUOTES")
        return url

    values = {kind: taken(make, f"mariadb {kind}") for kind, make in MARIADB.items()}
    url = mariadb.fresh()
    mariadb.run(f"CREATE TABLE kinds ({', '.join(f'f{i} {kind}' for i, kind in enumerate(MARIADB))})", url=url)
    with open_source(url) as source:
        fields = of_catalogue(list(MARIADB), source.catalogue, values)
    survey(load, fields)
    others = {"bigint unsigned": "float64", "decimal(65,30)": "float64", "boolean": "int16", "date": "timestamp"}
    others |= {"datetime(6)": "date", "longblob": "text", "time(6)": "text", "float": "text"}
    survey(load, [replace(f, declared=Type.parse(others[f.stored])) for f in fields if f.stored in others])


def arrow_fields(*, files: bool = False) -> list[Field]:
    """Columns of every Arrow type, mostly of random bits: whatever a frame or a Parquet file can hold.

    Only moments that DuckDB would have to convert and cannot are left out: they are refused before anything is charged.
    """
    rng = np.random.default_rng(19)

    def bits(kind: pa.DataType) -> pa.Array:
        data = rng.integers(0, 256, ROWS * kind.bit_width // 8, dtype=np.uint8)
        ends = np.array([0, -1, 1, 2**62, -(2**62), 2**63 - 1, -(2**63)], dtype=np.int64)
        if kind.bit_width == 64:
            data[: ends.nbytes] = ends.view(np.uint8)
        if kind == pa.timestamp("us"):
            data = np.maximum(data.view(np.int64), -(2**63) + 1).view(np.uint8)
        converted = pa.types.is_duration(kind) or (pa.types.is_timestamp(kind) and (files or kind.tz))
        if converted and kind.unit in ("s", "ms"):
            data = (data.view(np.int64) >> {"s": 20, "ms": 10}[kind.unit]).view(np.uint8)
        return pa.Array.from_buffers(kind, ROWS, [None, pa.py_buffer(data.tobytes())])

    from dpweave.schema.arrow_types import type_of_arrow

    integers = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
    units = ("s", "ms", "us", "ns")
    kinds = [
        *integers,
        *(pa.float16(), pa.float32(), pa.float64(), pa.date32()),
        *(pa.timestamp(u) for u in units),
        *(pa.timestamp(u, "Europe/Vienna") for u in units),
        *(pa.duration(u) for u in units),
    ]
    arrays = [bits(kind) for kind in kinds]
    seconds = rng.integers(0, 86_400, ROWS)
    arrays += [
        pa.array(seconds, pa.int64()).cast(pa.int32()).cast(pa.time32("s")),
        pa.array(seconds * 1_000_000 + 999_999, pa.time64("us")),
        pa.array(seconds * 1_000_000_000 + 999_999_999, pa.time64("ns")),
        pa.array(rng.integers(-(10**8), 10**8, ROWS) * 86_400_000, pa.date64()),
        pa.array([decimal.Decimal(int(x)) * 10**29 for x in rng.integers(-(10**9), 10**9, ROWS)], pa.decimal128(38, 0)),
        pa.array(
            [decimal.Decimal(int(x)).scaleb(-20) for x in rng.integers(-(2**62), 2**62, ROWS)], pa.decimal128(38, 20)
        ),
        pa.array(rng.integers(0, 2, ROWS).astype(bool)),
        pa.array(taken(texts, "arrow")),
        pa.array(taken(texts, "large"), pa.large_string()),
        pa.array(taken(texts, "dictionary")).dictionary_encode(),
        pa.array([rng.bytes(int(n)) for n in rng.integers(0, 9, ROWS)]),
        pa.array([rng.bytes(5) for _ in range(ROWS)], pa.binary(5)),
        pa.array([[1, None], [], None, [2**31 - 1]] * (ROWS // 4), pa.list_(pa.int32())),
        pa.array([{"a": 1, "b": "\0"}, None] * (ROWS // 2)),
    ]
    return [Field(f"f{i}", a.type, type_of_arrow(a.type), a) for i, a in enumerate(arrays)]


def as_tables(fields: Sequence[Field], rows: Sequence[int]) -> dict[str, pa.Table]:
    arrays = {f.name: f.values for f in fields}
    made = {}
    for name, columns in contents([replace(f, values=range(ROWS)) for f in fields], rows).items():
        taken = {c: (kind, pa.array(values, pa.int64())) for c, (kind, values) in columns.items()}
        own = arrays.get(name[2:])
        made[name] = pa.table(
            {
                c: at if kind is None else (own if own is not None else arrays[c]).take(at)
                for c, (kind, at) in taken.items()
            }
        )
    return made


def test_frames() -> None:
    survey(as_tables, arrow_fields())


def test_parquet(tmp_path) -> None:
    numbered = iter(range(10**6))

    def load(fields: Sequence[Field], rows: Sequence[int]) -> Path:
        folder = tmp_path / str(next(numbered))
        folder.mkdir()
        for name, table in as_tables(fields, rows).items():
            pq.write_table(table, folder / f"{name}.parquet")
        return folder

    fields = [f for f in arrow_fields(files=True) if not pa.types.is_duration(f.stored)]  # which Parquet does not have
    with open_source(load(fields, range(1))) as source:
        found = source.catalogue["bare"].column
    survey(load, [replace(f, declared=found[f.name].type) for f in fields])


def test_csv(tmp_path) -> None:
    numbered = iter(range(10**6))

    def load(fields: Sequence[Field], rows: Sequence[int]) -> Path:
        folder = tmp_path / str(next(numbered))
        folder.mkdir()
        for name, columns in contents(fields, rows).items():
            with (folder / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, quoting=csv.QUOTE_ALL)
                writer.writerow(columns)
                writer.writerows(zip(*(values for _, values in columns.values()), strict=True))
        return folder

    casts = [*CASTS, "uuid", "json", "bytes"]
    survey(load, [Field(f"c{i}", "text", Type.parse(cast), spelled(cast)) for i, cast in enumerate(casts)])
