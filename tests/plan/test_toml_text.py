"""Plans as text: nothing is lost on the way out and back, and comments stay comments."""

from __future__ import annotations

import re
import tomllib
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpweave.cli import demo
from dpweave.explain.draft_notes import HEAD, comments, draft_text
from dpweave.plan.entries import ColumnPlan, KeyPlan, Shares, TablePlan, domain_from_value
from dpweave.plan.plan import Plan
from dpweave.plan.toml_text import plan_text
from dpweave.schema.database import Column, ForeignKey, Type
from dpweave.schema.domain import Bins, Categories, Learn, Opaque, even_bins

KEY = ColumnPlan(Column("id", Type("integer"), nullable=False), None)


def one_column(kind, domain, name="c"):
    column = ColumnPlan(Column(name, Type.parse(kind)), domain)
    return Plan(tables=(TablePlan("t", (KEY, column), primary_key=("id",)),), protect=("t",))


DOMAINS = [
    ("int64", even_bins(Type("integer"), -5, 94, 10)),
    ("int64", Bins((0, 1, 10, 100))),
    ("int64", Bins((0, 10, 100), spots=((3, 4, 12.0), (7, 9, 2.5), (50, 51, 1.0)))),
    ("int8", Learn(low=0, high=100, bins=7)),
    ("float64", even_bins(Type("float"), 0.0, 1.0, 7)),
    ("float64", even_bins(Type("float"), 0.1, 99.9, 13, step=0.01)),
    ("float64", Bins((-1.5, 0.25, 1e300), step=0.5)),
    ("decimal(8,2)", even_bins(Type.parse("decimal(8,2)"), Decimal("0.00"), Decimal("99.99"), 10)),
    ("decimal(8,2)", Bins((Decimal("-1.10"), Decimal("0.05"), Decimal("7.00")))),
    ("date", even_bins(Type("date"), date(1999, 12, 31), date(2024, 2, 29), 12)),
    ("timestamp", even_bins(Type("timestamp"), datetime(2020, 1, 1), datetime(2020, 12, 31, 23, 59, 59), 4)),
    ("timestamptz", Bins((datetime(2020, 1, 1, tzinfo=UTC), datetime(2021, 1, 1, tzinfo=UTC)))),
    ("time", even_bins(Type("time"), time(0), time(23, 59, 59), 24)),
    ("text", Categories(("a", 'with "quotes"', "back\\slash", "line\nbreak", "ü", ""), other=True)),
    ("text", Categories(("yes", "no"))),
    ("text", Learn()),
    ("text", Opaque()),
    ("boolean", Categories((False, True))),
    ('enum("x","y")', Categories(("x", "y"))),
]


@pytest.mark.parametrize(("kind", "domain"), DOMAINS, ids=lambda v: v if isinstance(v, str) else type(v).__name__)
def test_domains_of_every_type_come_back(kind, domain):
    plan = one_column(kind, domain)
    assert Plan.from_toml(plan_text(plan)) == plan
    assert Plan.from_toml(plan_text(plan, comments(plan))) == plan


@settings(deadline=None)
@given(st.text(min_size=1, max_size=12).filter(lambda n: n != "id" and n.isprintable() and n[0] not in "#?=@<!"))
def test_any_printable_name_comes_back(name):
    plan = one_column("int64", Bins((0, 1, 2)), name=name)
    assert Plan.from_toml(plan_text(plan)) == plan


@settings(deadline=None)
@given(st.integers(-(10**6), 10**6), st.integers(1, 10**6), st.integers(1, 60))
def test_bins_of_equal_width_are_written_short_and_come_back(low, width, bins):
    plan = one_column("int64", even_bins(Type("integer"), low, low + width, bins))
    text = plan_text(plan)
    assert Plan.from_toml(text) == plan
    assert len(text) < 600


def test_every_field_of_tables_keys_and_budget_comes_back():
    people = TablePlan("peo ple", (KEY,), primary_key=("id",), mechanism="mst", rows=10, weight=2.5)
    reference = ForeignKey(("who",), "peo ple", ("id",), "k.1")
    owned = TablePlan(
        "visits",
        (ColumnPlan(Column("who", Type("integer")), None), ColumnPlan(Column("n", Type("integer")), Bins((0, 1, 2)))),
        unique=(("who", "n"),),
        keys=(KeyPlan(reference, "owning", 7, method="random", weight=0.5),),
    )
    plan = Plan((people, owned), ("peo ple",), neighbours="record", on_excess="truncate", k=2, shares=Shares(links=0.9))
    assert Plan.from_toml(plan.to_toml()) == plan


def test_comments_change_nothing_and_say_what_each_choice_means(tmp_path):
    demo.make_shop(tmp_path / "shop.duckdb", rows=1000)
    plan, text = draft_text(tmp_path / "shop.duckdb", protect=("customers",), public=("products",))
    assert Plan.from_toml(text) == plan == Plan.from_toml(plan.to_toml())
    assert tomllib.loads(text) == tomllib.loads(plan.to_toml())
    plain = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    for words in (
        "customers: a row with its rows of orders, wishlist, order_items",
        "Nothing leads from employees to the tables you named",
        "order_items: owned. One row of customers counts with at most 100 rows here.",
        "products: public, copied as it is.",
    ):
        assert words in plain, words
    assert 'name = { type = "text", nullable = false, domain = "opaque" }  # looks like an identifier or prose' in text


def test_every_form_of_a_domain_in_the_docs_and_in_a_draft_is_one():
    page = (Path(__file__).parents[2] / "docs" / "choosing.md").read_text(encoding="utf-8")
    forms = [*re.findall(r"^\| `([^`]+)` \|", page.split("## Domains")[1].split("## Shares")[0], re.MULTILINE)]
    forms += [form for line in HEAD for form in re.findall(r"domain = (\S+|\[.*?\]|\{.*?\})(?=:| or )", line)]
    assert len(forms) >= 14
    for form in (f for f in forms if f != "domain =" and not f.startswith("step")):
        column = Column("c", Type("text") if re.search(r'\["', form) else Type("integer", bits=64))
        found = domain_from_value("c", column, tomllib.loads(f"domain = {form}")["domain"])
        assert (found is None) == (form == '"key"'), form


def test_a_draft_that_names_nobody_proposes_people_and_publishes_nothing(tmp_path):
    demo.make_shop(tmp_path / "shop.duckdb", rows=1000)
    plan, _ = draft_text(tmp_path / "shop.duckdb")
    assert plan.public == ()
    assert plan.protect[:2] == ("customers", "employees")
    assert set(plan.protect) == {"customers", "employees", "products"}
