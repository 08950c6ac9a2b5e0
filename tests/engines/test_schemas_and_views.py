"""On a server one schema can be chosen, and views can be taken for tables, from a draft to an evaluation."""

from __future__ import annotations

import re
from typing import Any

import pytest

import dpweave as dw
from dpweave.engines.opening import open_source
from dpweave.errors import PlanError, SourceError
from dpweave.explain.check_plan import check_plan
from dpweave.explain.draft_notes import draft_text

TABLES = (
    "CREATE TABLE person (id int PRIMARY KEY, age int)",
    "CREATE TABLE visit (id int PRIMARY KEY, person int NOT NULL REFERENCES person (id), cost int)",
    "CREATE VIEW grown_up AS SELECT id, age FROM person WHERE age >= 18",
    "CREATE VIEW late AS SELECT id, person AS grown_up_id, cost FROM visit WHERE cost > 5",
)
ROWS = (
    f"INSERT INTO person VALUES {', '.join(f'({i}, {i % 60})' for i in range(300))}",
    f"INSERT INTO visit VALUES {', '.join(f'({i}, {i % 300}, {i % 9})' for i in range(600))}",
)


def on_postgres(server: Any) -> tuple[str, str]:
    url = server.fresh()
    server.run(
        "CREATE TABLE person (other text)",
        "CREATE TABLE elsewhere (id int PRIMARY KEY)",
        'CREATE SCHEMA "the clinic"',
        'SET search_path TO "the clinic"',
        *TABLES,
        "ALTER TABLE visit ADD COLUMN away int REFERENCES public.elsewhere",
        *(s.replace("visit VALUES", "visit (id, person, cost) VALUES") for s in ROWS),
        "ALTER VIEW late RENAME TO late_rows",
        "CREATE MATERIALIZED VIEW late AS SELECT * FROM late_rows",
        url=url,
    )
    return url, "the clinic"


def on_mariadb(server: Any) -> tuple[str, str]:
    url, clinic = server.fresh(), server.fresh()
    server.run("CREATE TABLE person (other text)", url=url)
    server.run(*TABLES, *ROWS, url=clinic)
    return url, re.split(r"[/?]", clinic)[3]


@pytest.mark.parametrize("engine", ["postgres", "mariadb"])
def test_a_schema_and_its_views(engine: str, request) -> None:
    url, schema = {"postgres": on_postgres, "mariadb": on_mariadb}[engine](request.getfixturevalue(engine))
    with open_source(url, schema=schema) as source:
        assert source.catalogue.names == ("person", "visit")
        assert [k.target for k in source.catalogue["visit"].foreign_keys] == ["person"]
        assert "view grown_up" in source.not_copied
        assert schema in source.name
    whole = dw.Plan.draft(url, schema=schema, protect=["person"])
    assert whole.database.names == ("person", "visit")
    assert dw.fit(url, whole, schema=schema, epsilon=50.0, insecure_seed=0).sizes["person"] == pytest.approx(
        300, abs=30
    )

    views = ["grown_up", "late"]
    plan = dw.Plan.draft(url, schema=schema, views=views, protect=["grown_up", "person"])
    assert plan.views == ("grown_up", "late")
    late = plan.table["late"].table
    assert late.primary_key == ("id",)  # proposed by their names: no catalogue says keys of views
    assert [(k.columns, k.target) for k in late.foreign_keys] == [(("grown_up_id",), "grown_up")]
    again, text = draft_text(url, schema=schema, views=tuple(views), protect=("grown_up", "person"))
    assert again == plan == dw.Plan.from_toml(text)
    assert "a view that adds up or ranks the rows of several units breaks it" in " ".join(text.split("\n# "))
    assert not [f for f in check_plan(plan, url, schema=schema) if f.severity == "wrong"]

    alone = {**plan.to_dict(), "protect": ["grown_up"]}
    alone["tables"] = {name: alone["tables"][name] for name in views}
    plan = dw.Plan.from_dict(alone)
    model = dw.fit(url, plan, schema=schema, epsilon=50.0, delta=1e-6, insecure_seed=0)
    assert model.sizes["grown_up"] == pytest.approx(210, abs=30)
    copy = model.sample(seed=1)
    found = dw.evaluate(url, copy, plan, schema=schema, learners=False)
    assert found.to_dict()

    with pytest.raises(SourceError, match=r"'grown_up' of .* is a view and not a table"):
        dw.fit(url, dw.Plan.from_dict({**alone, "views": []}), schema=schema, epsilon=1.0)
    with pytest.raises(SourceError, match="has no table 'nothing'"):
        dw.Plan.draft(url, schema=schema, views=["nothing"], protect=["person"])
    with pytest.raises(SourceError, match=r"no schema 'nowhere'|no such database"):
        dw.Plan.draft(url, schema="nowhere", protect=["person"])


def test_what_schemas_and_views_need() -> None:
    with pytest.raises(SourceError, match="on a server that is named by its URL"):
        dw.Plan.draft({}, schema="s", protect=["t"])
    with pytest.raises(SourceError, match="on a server that is named by its URL"):
        dw.Plan.draft("shop.duckdb", views=["v"], protect=["t"])
    plan = {"protect": ["t"], "views": ["u"], "tables": {"t": {"columns": {"id": {"type": "int64", "domain": "key"}}}}}
    with pytest.raises(PlanError, match="views lists 'u', which is no table of the plan"):
        dw.Plan.from_dict(plan)
