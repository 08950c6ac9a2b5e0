"""Domains: guards, axes, bins, and what a column's type allows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpweave.errors import PlanError
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import (
    Attribute,
    Bins,
    Categories,
    Learn,
    Opaque,
    View,
    bins_at,
    default_domain,
    even_bins,
    from_axis,
    require_fitting,
    size,
    to_axis,
)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Categories(()),
        lambda: Categories(("a", "a")),
        lambda: Bins((1,)),
        lambda: Bins((1, 1)),
        lambda: Bins((2, 1)),
        lambda: Bins((0.0, float("inf"))),
        lambda: Bins((0.0, float("nan"))),
        lambda: Bins((0.0, 1.0), step=0.0),
        lambda: Learn(bins=0),
        lambda: Learn(bins=1001),
        lambda: even_bins(Type("integer"), 5, 4, 3),
        lambda: even_bins(Type("text"), 5, 6, 3),
    ],
)
def test_guards(make):
    with pytest.raises(PlanError):
        make()


KINDS = {
    Type("integer"): st.integers(-(2**60), 2**60),
    Type("decimal", precision=18, scale=2): st.decimals(Decimal(-(10**9)), Decimal(10**9), places=2),
    Type("date"): st.dates(),
    Type("timestamp"): st.datetimes().map(lambda d: d.replace(microsecond=0)),
    Type("timestamp", zone=True): st.datetimes(timezones=st.just(UTC)).map(lambda d: d.replace(microsecond=0)),
    Type("time"): st.times().map(lambda t: t.replace(microsecond=0)),
    Type("float"): st.floats(allow_nan=False, allow_infinity=False),
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_axis_and_back(kind):
    @given(KINDS[kind])
    def check(value):
        assert from_axis(kind, to_axis(kind, value)) == value

    check()


def test_a_moment_of_another_zone_is_the_same_moment():
    kind = Type("timestamp", zone=True)
    there = datetime(2020, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    assert from_axis(kind, to_axis(kind, there)) == there


@given(st.integers(-1000, 1000), st.integers(0, 200), st.integers(1, 50))
def test_even_bins_cover_exactly_the_range(low, width, bins):
    made = even_bins(Type("integer"), low, low + width, bins)
    assert made.edges[0] == low
    assert made.edges[-1] == low + width + 1
    assert made.cells == min(bins, width + 1)
    widths = {b - a for a, b in zip(made.edges, made.edges[1:], strict=False)}
    assert max(widths) - min(widths) <= 1


def test_coinciding_edges_are_merged():
    assert bins_at(Type("integer"), [1.2, 1.4, 2.0]).edges == (1, 2)
    assert bins_at(Type("integer"), [7, 7]).cells == 1


@pytest.mark.parametrize(
    ("kind", "domain"),
    [
        ("integer", Categories(("a",))),
        ("integer", Categories((True,))),
        ("boolean", Categories((0, 1))),
        ("text", Categories((1,))),
        ("date", Categories((datetime(2020, 1, 1),))),
        ("float", Categories((float("inf"),))),
        ("bytes", Categories(("a",))),
        ("text", Bins((0, 1))),
        ("integer", Bins((0, 1.5))),
        ("integer", Bins(("a", "b"))),
        ("date", Bins((1, 2))),
        ("boolean", Learn()),
        ("bytes", Learn()),
        ("text", Learn(low="a")),
        ("integer", Learn(low="a")),
    ],
)
def test_domains_that_a_type_cannot_have(kind, domain):
    with pytest.raises(PlanError):
        require_fitting(Column("x", Type(kind)), domain)


def test_narrow_types_refuse_categories_beyond_their_range():
    require_fitting(Column("x", Type("integer", bits=8)), Categories((-128, 127)))
    require_fitting(Column("x", Type("integer", bits=8, signed=False)), Categories((0, 255)))
    for wrong in (Categories((128,)), Categories((-129,))):
        with pytest.raises(PlanError, match="is no value of type int8"):
            require_fitting(Column("x", Type("integer", bits=8)), wrong)


@pytest.mark.parametrize(
    "kind",
    [
        "boolean",
        "integer",
        "float",
        "decimal",
        "date",
        "timestamp",
        "time",
        "text",
        "uuid",
        "bytes",
        "json",
        "array",
        "unknown",
    ],
)
def test_every_type_has_a_default_that_fits(kind):
    column = Column("x", Type(kind))
    require_fitting(column, default_domain(column))


def test_views():
    view = View("items", (("q", Attribute("q")), ("u", Attribute("age", ("order", "user")))), linked=(("product",),))
    assert view.paths(()) == (("product",),)
    assert view.paths(("u",)) == (("order",), ("order", "user"), ("product",))
    assert size(Opaque(), nullable=True) == 2
