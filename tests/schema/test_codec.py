"""Codecs are total: every stored value has the code a plain reading of the domain gives it, in DuckDB and in SQLite."""

from __future__ import annotations

import math
import sqlite3
import tempfile
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpweave.engines.opening import open_source
from dpweave.schema import codec as codec_module
from dpweave.schema.arrow_types import arrow_type
from dpweave.schema.codec import OTHER, Codec
from dpweave.schema.database import Column, Database, Table, Type
from dpweave.schema.domain import Bins, Categories, Opaque, even_bins, to_axis

FEW = settings(max_examples=25, deadline=None)


def _oracle(codec: Codec, value) -> int:
    """The code of one value, read off the docstrings."""
    null = codec.domain.cells if codec.column.nullable else 0
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return null
    match codec.domain:
        case Opaque():
            return 0
        case Categories(values=values, other=other):
            if value in values:
                return values.index(value)
            return len(values) if other else null
        case Bins(edges=edges):
            return sum(value >= e for e in edges[1:-1])
    raise TypeError


def _encode(source, codec: Codec) -> list[int]:
    """Codes of all rows of t, in the order of their id."""
    rows = source.table("t")
    rows = rows.mutate(rid=rows.id)
    joined, code = codec.coded(rows, rows.x, has_nan=source.connection.name != "sqlite")
    found = source.fetch(joined.select(joined.rid, code=code).order_by("rid"))
    assert found["rid"].to_pylist() == list(range(found.num_rows))
    return found["code"].to_pylist()


def _table(kind: Type) -> Database:
    return Database((Table("t", (Column("id", Type("integer"), False), Column("x", kind)), ("id",)),))


def _in_duckdb(codec: Codec, values: list) -> list[int]:
    frame = pa.table({"id": list(range(len(values))), "x": pa.array(values, arrow_type(codec.column.type))})
    with open_source({"t": frame}) as source:
        source.declare(_table(codec.column.type))
        return _encode(source, codec)


def _in_sqlite(codec: Codec, values: list, declared: str) -> list[int]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.sqlite"
        with sqlite3.connect(path) as connection:
            connection.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, x {declared})")
            connection.executemany("INSERT INTO t VALUES (?, ?)", enumerate(values))
        connection.close()
        with open_source(path) as source:
            source.declare(_table(codec.column.type))
            return _encode(source, codec)


def _agree(codec: Codec, values: list, *, sqlite: str | None = None, stored=None) -> None:
    expected = [_oracle(codec, v) for v in values]
    assert all(0 <= e < codec.size for e in expected)
    assert _in_duckdb(codec, values) == expected
    if sqlite is not None:
        assert _in_sqlite(codec, [stored(v) if stored and v is not None else v for v in values], sqlite) == expected


texts = st.one_of(
    st.none(),
    st.sampled_from(["a", "b", "A", "", " a", "ä", "日本", "a'b", '"', "\\", "|", "NULL", "%"]),
    st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
)


@FEW
@given(st.lists(texts, min_size=1, max_size=30), st.booleans(), st.booleans(), st.booleans())
def test_text_categories(values, nullable, other, many):
    listed = ("a", "b", "", "ä", "日本", "a'b", "%") + (
        tuple(f"w{i}" for i in range(codec_module.CASE_LIMIT)) if many else ()
    )
    codec = Codec(Column("x", Type("text"), nullable), Categories(listed, other=other))
    _agree(codec, values, sqlite="TEXT")


@FEW
@given(
    st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-5, 25)), min_size=1, max_size=30),
    st.booleans(),
)
def test_integers(values, nullable):
    column = Column("x", Type("integer"), nullable)
    _agree(Codec(column, even_bins(column.type, 0, 20, 7)), values, sqlite="INTEGER")
    _agree(Codec(column, Categories((1, 2, 3))), values, sqlite="INTEGER")
    _agree(Codec(column, Opaque()), values, sqlite="INTEGER")


floats = st.one_of(
    st.none(), st.floats(), st.floats(-2, 12), st.sampled_from([math.inf, -math.inf, math.nan, 0.0, -0.0, 10.0, 1e308])
)


@FEW
@given(st.lists(floats, min_size=1, max_size=30), st.booleans())
def test_floats(values, nullable):
    column = Column("x", Type("float"), nullable)
    _agree(Codec(column, even_bins(column.type, 0.0, 10.0, 6)), values, sqlite="REAL")
    long = Categories(tuple(float(i) for i in range(codec_module.CASE_LIMIT + 3)))
    _agree(Codec(column, long), [v if v != 0 else 0.0 for v in values], sqlite="REAL")


days = st.one_of(st.none(), st.dates(), st.dates(date(2020, 1, 1), date(2021, 1, 1)))


@FEW
@given(st.lists(days, min_size=1, max_size=30))
def test_dates(values):
    column = Column("x", Type("date"))
    _agree(
        Codec(column, even_bins(column.type, date(2020, 1, 1), date(2020, 12, 31), 12)),
        values,
        sqlite="DATE",
        stored=date.isoformat,
    )


@FEW
@given(
    st.lists(st.one_of(st.none(), st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1))), min_size=1, max_size=30)
)
def test_timestamps(values):
    values = [v and v.replace(microsecond=0) for v in values]
    column = Column("x", Type("timestamp"))
    codec = Codec(column, even_bins(column.type, datetime(2000, 1, 1), datetime(2020, 1, 1), 9))
    _agree(codec, values, sqlite="TIMESTAMP", stored=lambda v: v.isoformat(" "))


@FEW
@given(st.lists(st.one_of(st.none(), st.times()), min_size=1, max_size=20))
def test_times(values):
    values = [v and v.replace(microsecond=0) for v in values]
    column = Column("x", Type("time"))
    _agree(Codec(column, even_bins(column.type, time(6), time(18), 12)), values, sqlite="TIME", stored=time.isoformat)


@FEW
@given(
    st.lists(
        st.one_of(st.none(), st.decimals(Decimal("-999.99"), Decimal("999.99"), places=2)), min_size=1, max_size=30
    )
)
def test_decimals(values):
    column = Column("x", Type("decimal", precision=10, scale=2))
    _agree(
        Codec(column, even_bins(column.type, Decimal(0), Decimal(100), 8)), values, sqlite="DECIMAL(10,2)", stored=float
    )


def test_booleans():
    column = Column("x", Type("boolean"))
    _agree(Codec(column, Categories((False, True))), [True, False, None], sqlite="BOOLEAN")


@pytest.mark.parametrize(
    ("declared", "kind", "domain"),
    [
        ("INTEGER", Type("integer"), Bins((0, 5, 10))),
        ("REAL", Type("float"), Bins((0.0, 5.0, 10.0))),
        ("DATE", Type("date"), Bins((date(2020, 1, 1), date(2020, 6, 1), date(2021, 1, 1)))),
        ("TIMESTAMP", Type("timestamp"), Bins((datetime(2020, 1, 1), datetime(2020, 6, 1), datetime(2021, 1, 1)))),
        ("DECIMAL(10,2)", Type("decimal", precision=10, scale=2), Bins((Decimal(0), Decimal(5), Decimal(10)))),
        ("BOOLEAN", Type("boolean"), Categories((False, True))),
        ("TEXT", Type("text"), Categories(("a", "b"), other=True)),
    ],
)
def test_sqlite_values_of_any_other_type_have_a_code(declared, kind, domain):
    values = ["word", "", "12 monkeys", b"\x00\xff", b"", 3, 3.5, 2**62, -1e300, "2020-02-30", "2020-07-01", "🦆", None]
    codes = _in_sqlite(Codec(Column("x", kind), domain), values, declared)
    assert len(codes) == len(values)
    assert all(0 <= c < domain.cells + 1 for c in codes)
    if declared in ("INTEGER", "REAL", "DATE"):
        assert codes[0] == codes[2] == codes[3] == codes[-1] == domain.cells  # null


def test_sqlite_collations_do_not_multiply_rows():
    listed = (*tuple(f"w{i}" for i in range(codec_module.CASE_LIMIT)), "a", "A")
    codec = Codec(Column("x", Type("text")), Categories(listed, other=True))
    codes = _in_sqlite(codec, ["a", "A", "b"], "TEXT COLLATE NOCASE")
    assert len(codes) == 3
    assert codes[2] == len(listed)


def test_bins_over_everything_a_type_can_hold():
    """Learning starts from bins over the whole type; engines must accept every edge of them."""
    from dpweave.schema.domain import Learn, bins_at
    from dpweave.tables.domains.learned_ranges import far_points, known_points

    kinds = [Type("integer", bits=b, signed=s) for b in (8, 16, 32, 64) for s in (True, False)]
    kinds += [
        Type("float"),
        Type("float", bits=32),
        Type("date"),
        Type("timestamp"),
        Type("time"),
        Type("timestamp", zone=True),
    ]
    kinds += [
        Type("decimal", precision=5, scale=2),
        Type("decimal", precision=18, scale=0),
        Type("decimal", precision=38, scale=10),
    ]
    for kind in kinds:
        for points in (known_points(kind, Learn()), far_points(kind, Learn())):
            codec = Codec(Column("x", kind), bins_at(kind, points))
            assert _in_duckdb(codec, [None]) == [codec.domain.cells], str(kind)


# -- decoding ----------------------------------------------------------------------------------------------------------

DOMAINS = [
    (Type("integer"), even_bins(Type("integer"), -3, 20, 5)),
    (Type("integer", bits=8), even_bins(Type("integer"), -100, 100, 5)),
    (Type("float"), even_bins(Type("float"), -1.0, 1.0, 4)),
    (Type("float", bits=32), even_bins(Type("float"), -1.0, 1.0, 4)),
    (
        Type("decimal", precision=8, scale=2),
        even_bins(Type("decimal", precision=8, scale=2), Decimal(0), Decimal(9), 4),
    ),
    (Type("decimal", precision=30, scale=3), Bins((Decimal("-9000000000000.5"), Decimal("-0.001"), Decimal(7)))),
    (Type("decimal"), Bins((Decimal(-3), Decimal(0), Decimal(3)))),
    (Type("integer"), Bins((0, 10, 20, 30), spots=((0, 1, 5.0), (8, 10, 1e-9), (20, 30, 2.0)))),
    (Type("float"), Bins((0.0, 1.0, 2.0), spots=((1.5, 1.75, 3.0),))),
    (Type("date"), Bins((date(2020, 1, 1), date(2021, 1, 1)), spots=((date(2020, 2, 29), date(2020, 3, 1), 1.0),))),
    (Type("date"), even_bins(Type("date"), date(2020, 1, 1), date(2020, 12, 31), 5)),
    (Type("timestamp"), even_bins(Type("timestamp"), datetime(2020, 1, 1), datetime(2020, 12, 31), 5)),
    (
        Type("timestamp", zone=True),
        even_bins(
            Type("timestamp", zone=True), datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 12, 31, tzinfo=UTC), 5
        ),
    ),
    (Type("time"), even_bins(Type("time"), time(1), time(20), 5)),
    (Type("text"), Categories(("a", "b"), other=True)),
    (Type("text", length=1), Categories(("a", "b"), other=False)),
    (Type("boolean"), Categories((False, True))),
]


@pytest.mark.parametrize(("kind", "domain"), DOMAINS, ids=lambda d: str(d)[:20])
@pytest.mark.parametrize("nullable", [False, True])
def test_decoded_values_have_the_code_they_were_drawn_for(kind, domain, nullable):
    codec = Codec(Column("x", kind, nullable), domain)
    codes = np.arange(codec.size).repeat(50)
    values = codec.decode(codes, np.random.default_rng(0))
    assert values.type == arrow_type(kind)
    assert [_oracle(codec, v) for v in values.to_pylist()] == codes.tolist()
    assert _in_duckdb(codec, values.to_pylist()) == codes.tolist()


def test_values_are_drawn_where_spots_say():
    codec = Codec(Column("x", Type("integer"), True), Bins((0, 10, 20), spots=((2, 3, 30.0), (7, 9, 10.0))))
    values = np.array(codec.decode(np.repeat([0, 1, 2], 4000), np.random.default_rng(0)).to_pylist(), dtype=float)
    low, high = values[:4000], values[4000:8000]
    assert set(low) == {2, 7, 8}
    assert np.mean(low == 2) == pytest.approx(0.75, abs=0.05)
    assert set(high) == set(range(10, 20))  # a bin without spots is filled evenly
    assert np.isnan(values[8000:]).all()


def test_other_is_spread_where_there_is_no_room_for_its_name():
    codec = Codec(Column("x", Type("text", length=2), False), Categories(("a", "b"), other=True))
    assert set(codec.decode(np.full(50, 2), np.random.default_rng(0)).to_pylist()) == {"a", "b"}
    codec = Codec(Column("x", Type("text"), False), Categories((), other=True))
    assert set(codec.decode(np.zeros(3, dtype=int), np.random.default_rng(0)).to_pylist()) == {OTHER}


def test_axis_is_monotone():
    assert to_axis(Type("time"), time(1, 0, 1)) == 3601
    assert to_axis(Type("date"), date(1970, 1, 2)) == 1


@pytest.mark.parametrize(
    ("domain", "ordered"),
    [
        (Bins((0, 10, 20, 50)), 3),
        (Categories((1, 2, 3, 4, 5)), 5),
        (Categories((1, 2, 3), other=True), 3),
        (Categories((3, 1, 2)), 0),
        (Categories(("a", "b")), 0),
        (Categories((False, True)), 0),
        (Opaque(), 0),
    ],
)
def test_codes_are_in_order_where_values_are(domain, ordered):
    assert Codec(Column("c", Type.parse("int64"), nullable=True), domain).ordered == ordered
