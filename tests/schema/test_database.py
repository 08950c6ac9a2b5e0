"""Schemas are validated at birth, and every guard names what is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpweave.errors import SchemaError
from dpweave.schema.database import KINDS, Column, Database, ForeignKey, Table, Type

INT = Type("integer")


def _table(name="t", columns=("a", "b"), **more) -> Table:
    return Table(name, tuple(Column(c, INT) for c in columns), **more)


@given(
    st.one_of(
        st.sampled_from([Type(k) for k in KINDS if k not in ("enum", "decimal")]),
        st.builds(lambda b, s: Type("integer", bits=b, signed=s), st.sampled_from([8, 16, 32, 64]), st.booleans()),
        st.builds(lambda b: Type("float", bits=b), st.sampled_from([32, 64])),
        st.builds(lambda p, s: Type("decimal", precision=p, scale=s), st.integers(1, 38), st.integers(0, 10)),
        st.builds(lambda n: Type("text", length=n), st.integers(1, 4000)),
        st.builds(lambda v: Type("enum", values=tuple(v)), st.lists(st.text(), min_size=1, unique=True)),
        st.just(Type("timestamp", zone=True)),
    )
)
def test_types_are_spelled_without_loss(kind):
    assert Type.parse(str(kind)) == kind


@pytest.mark.parametrize("spelling", ["strng", "decimal(a)", "enum(a)", "", "int(", "text(x)"])
def test_types_that_do_not_exist(spelling):
    with pytest.raises(SchemaError):
        Type.parse(spelling)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: _table(columns=()), "no columns"),
        (lambda: _table(columns=("a", "a")), "two columns named 'a'"),
        (lambda: _table(primary_key=("c",)), "primary key of 't' names a column 'c'"),
        (lambda: _table(unique=(("c",),)), "unique constraint of 't' names a column 'c'"),
        (lambda: _table(foreign_keys=(ForeignKey(("z",), "t", ("a",)),)), "names a column 'z'"),
        (
            lambda: _table(foreign_keys=(ForeignKey(("a",), "u", ("a",)), ForeignKey(("a",), "v", ("a",)))),
            "two foreign keys named 'a'",
        ),
        (lambda: ForeignKey(("a", "b"), "t", ("a",)), "2 columns for 1 target"),
        (lambda: ForeignKey((), "t", ()), "0 columns"),
        (lambda: Database((_table(), _table())), "two tables are named 't'"),
        (
            lambda: Database((_table(foreign_keys=(ForeignKey(("a",), "u", ("a",)),)),)),
            "leads to a table 'u' that is not there",
        ),
        (
            lambda: Database((_table(primary_key=("a",), foreign_keys=(ForeignKey(("a",), "t", ("z",)),)),)),
            "a column 'z' that 't' does not have",
        ),
        (
            lambda: Database((_table(foreign_keys=(ForeignKey(("a",), "t", ("b",)),)),)),
            "no primary key or unique constraint",
        ),
        (lambda: Database((_table(),))["u"], "there is no table 'u'"),
    ],
)
def test_guards(make, says):
    with pytest.raises(SchemaError, match=says):
        make()


def test_uniqueness_and_nullability():
    table = Table(
        "t",
        (Column("a", INT, nullable=False), Column("b", INT), Column("c", INT)),
        primary_key=("a",),
        unique=(("b",),),
        foreign_keys=(ForeignKey(("b",), "t", ("a",)), ForeignKey(("a", "c"), "t", ("a", "b"), name="both")),
    )
    assert table.is_unique(("a", "c"))
    assert table.is_unique(("b",))
    assert not table.is_unique(("c",))
    assert table.is_nullable(table.key["b"])
    assert table.is_nullable(table.key["both"])
    assert table.key_columns == {"a", "b", "c"}
