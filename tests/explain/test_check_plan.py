"""A plan held against a catalogue: everything that is planted is found, and nothing where all is well."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
import pytest

from dpweave.explain.check_plan import Finding, check_plan
from dpweave.plan.plan import Plan
from dpweave.schema.domain import Categories

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("""
            CREATE TYPE mood AS ENUM ('good', 'bad');
            CREATE TABLE client (id INTEGER PRIMARY KEY, mood mood NOT NULL, born DATE);
            CREATE TABLE badge (id INTEGER PRIMARY KEY REFERENCES client, colour TEXT);
            CREATE TABLE purchase (id INTEGER PRIMARY KEY, client INTEGER REFERENCES client, shown INTEGER
              REFERENCES badge, total DOUBLE CHECK (total > 0));
            CREATE VIEW totals AS SELECT sum(total) FROM purchase;
        """)
    return str(path)


def said(found: tuple[Finding, ...], severity: str) -> str:
    return "\n".join(f"{f.where}: {f.text}" for f in found if f.severity == severity)


def test_a_bound_that_cannot_hold_the_rows_is_risky_also_as_drafted(source: str) -> None:
    plan = changed(changed(Plan.draft(source, protect=["client"]), "client", rows=100), "purchase", rows=9_000)
    assert "at most 1,000 of about 9,000 rows can be counted" in said(check_plan(plan, source), "risky")


def changed(plan: Plan, table: str, **changes: object) -> Plan:
    return replace(plan, tables=tuple(replace(t, **changes) if t.name == table else t for t in plan.tables))


def test_a_draft_is_not_wrong_and_its_guesses_are_named(source: str) -> None:
    found = check_plan(Plan.draft(source, protect=["client"]), source)
    assert not said(found, "wrong")
    notes = said(found, "note")
    assert "client: rows is not declared" in notes
    assert "client: learned domains cost budget; declare those you know: born" in notes
    assert "max_degree = 10 is the first guess" in notes
    assert "CHECK constraints and views" in notes
    assert "purchase.client" in said(found, "risky")  # it may be null, and owns


def test_what_does_not_fit_is_found(source: str) -> None:
    plan = Plan.draft(source, protect=["client"])
    badge = plan.table["badge"]
    plan = changed(plan, "badge", keys=tuple(replace(k, max_degree=5) for k in badge.keys))
    plan = plan.replace_domain("client", "mood", Categories(("good",)))
    purchase = plan.table["purchase"]
    plan = changed(plan, "purchase", keys=tuple(k for k in purchase.keys if "shown" not in k.key.columns), rows=5_000)
    plan = changed(plan, "client", rows=10)
    plan = changed(
        plan, "purchase", keys=tuple(replace(k, max_degree=20) for k in plan.table["purchase"].keys), rows=5_000
    )
    risky = said(check_plan(plan, source), "risky")
    assert "badge" in risky
    assert "the key is unique" in risky
    assert "the type allows bad" in risky
    assert "the key (shown) to badge stands in the catalogue and not in the plan" in risky
    assert "at most 200 of about 5,000 rows can be counted" in risky


def test_another_schema_is_wrong_and_comes_first(source: str, tmp_path: Path) -> None:
    other = tmp_path / "other.duckdb"
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE TABLE client (id INTEGER PRIMARY KEY)")
    found = check_plan(Plan.draft(source, protect=["client"]), str(other))
    assert found[0].severity == "wrong"
    assert "another schema" in found[0].text
