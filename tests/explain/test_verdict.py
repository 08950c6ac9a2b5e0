"""What is said of a copy before a fit and after it, held against what is true of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpweave as dw
from dpweave.explain.verdict import _missed
from dpweave.plan.entries import ColumnPlan
from dpweave.plan.plan import Plan
from dpweave.report.html_report import verdict
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import Bins, Categories

ROWS = {"people": 3_000, "visits": 9_000}


@pytest.fixture(scope="module")
def clinic() -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], ROWS["people"])
    who = rng.integers(0, ROWS["people"], ROWS["visits"])
    kind = np.where(rng.random(ROWS["visits"]) < np.where(sex[who] == "f", 0.8, 0.3), "check", "acute")
    return {
        "people": pd.DataFrame(
            {"id": np.arange(ROWS["people"]), "sex": sex, "born": rng.integers(1930, 2010, len(sex))}
        ),
        "visits": pd.DataFrame({"id": np.arange(ROWS["visits"]), "people_id": who, "kind": kind}),
    }


@pytest.fixture(scope="module")
def plan(clinic: dict[str, pd.DataFrame]) -> Plan:
    plan = Plan.draft(clinic, protect=["people"])
    return replace(plan, tables=tuple(replace(t, rows=ROWS[t.name]) for t in plan.tables))


@pytest.mark.parametrize(("epsilon", "word"), [(20.0, "useful"), (0.003, "noise only")])
def test_what_is_predicted_and_found_is_true(
    clinic: dict[str, pd.DataFrame], plan: Plan, epsilon: float, word: str
) -> None:
    before = plan.explain(epsilon=epsilon, delta=1e-6).verdict
    model = dw.fit(clinic, plan, epsilon=epsilon, delta=1e-6, insecure_seed=1)
    after = verdict(model)
    names = {"people", "visits", "visits.people_id → people"}
    for said in (before, after):
        assert {j.name: j.word for j in said.judged if j.name in names} == dict.fromkeys(names, word)
    copy = model.sample()["visits"].to_pandas()
    off = abs((copy["kind"] == "check").mean() - (clinic["visits"]["kind"] == "check").mean())
    assert (off < 0.1) == (word == "useful")


def test_domains_that_noise_hides_are_named_and_what_to_change(clinic: dict[str, pd.DataFrame], plan: Plan) -> None:
    model = dw.fit(clinic, plan, epsilon=0.02, delta=1e-6, insecure_seed=1)
    found = verdict(model)
    by_name = {j.name: j for j in found.judged}
    assert "born" in by_name["people"].unlearned
    assert any("people.born" in text for text in found.advice)
    assert len(found.advice) <= 3
    assert all(len(line) <= 80 for line in str(found).splitlines())
    assert found.to_dict()["supported"] == found.supported < 1


def test_a_table_is_judged_by_its_own_columns(clinic: dict[str, pd.DataFrame], plan: Plan) -> None:
    """How many visits people have is well known; of their one column nothing is, and that is what a reader asks."""
    source = {**clinic, "people": clinic["people"].drop(columns="sex")}
    some = (c for c in plan.table["people"].columns if c.name != "sex")
    kept = tuple(replace(c, column=replace(c.column, nullable=False)) for c in some)
    plan = replace(plan, tables=tuple(replace(t, columns=kept) if t.name == "people" else t for t in plan.tables))
    model = dw.fit(source, plan, epsilon=0.02, delta=1e-6, insecure_seed=1)
    for said in (plan.explain(epsilon=0.02, delta=1e-6).verdict, verdict(model)):
        (people_said,) = (j for j in said.judged if j.name == "people")
        assert people_said.unlearned == ("born",)
        assert people_said.error == 1.0


def test_nulls_are_as_likely_as_values_before_a_fit(plan: Plan) -> None:
    """Of a column that may be null half may be lost where its range is not learned, and all of another one."""
    errors = []
    for nullable in (False, True):
        born = plan.table["people"].column["born"]
        columns = (plan.table["people"].columns[0], replace(born, column=replace(born.column, nullable=nullable)))
        tables = tuple(replace(t, columns=columns) if t.name == "people" else t for t in plan.tables)
        said = replace(plan, tables=tables).explain(epsilon=0.05, delta=1e-6).verdict
        errors += [j.error for j in said.judged if j.name == "people"]
    assert errors[0] == 1.0
    assert 0.5 < errors[1] < 0.9


def test_a_bound_that_hides_rows_is_named(clinic: dict[str, pd.DataFrame]) -> None:
    who = np.repeat(np.arange(300), 30)
    visits = clinic["visits"].assign(people_id=who)
    source = {"people": clinic["people"].head(300), "visits": visits}
    plan = Plan.draft(source, protect=["people"], max_degree=3)
    found = verdict(dw.fit(source, plan, epsilon=30.0, delta=1e-6, insecure_seed=0))
    assert any("visits.people_id" in text and "hides about" in text for text in found.advice)


def test_links_at_random_are_not_called_useful(clinic: dict[str, pd.DataFrame], plan: Plan) -> None:
    visits = plan.table["visits"]
    at_random = replace(visits, keys=tuple(replace(k, method="random") for k in visits.keys))
    plan = replace(plan, tables=tuple(at_random if t.name == "visits" else t for t in plan.tables))
    model = dw.fit(clinic, plan, epsilon=20.0, delta=1e-6, insecure_seed=1)
    for said in (plan.explain(epsilon=20.0, delta=1e-6).verdict, verdict(model)):
        words = {j.name: j.word for j in said.judged}
        assert words["visits"] == "useful"
        assert words["visits.people_id → people"] == "noise only"


def test_a_fit_that_nothing_can_be_predicted_of_has_a_verdict(clinic: dict[str, pd.DataFrame], plan: Plan) -> None:
    """What was spent is too little to allocate anew: the fit is paid for and must not end in an error."""
    model = dw.fit(clinic, plan, epsilon=1.0, delta=1e-6, insecure_seed=1)
    unspent = replace(model, certificate=replace(model.certificate, epsilon=0.0))
    words = {j.name: j.word for j in verdict(unspent).judged}
    assert words["visits.people_id → people"] == "noise only"
    assert words["people"] == {j.name: j.word for j in verdict(model).judged}["people"]


@pytest.mark.parametrize(("bound", "named"), [(90, True), (3, False)])
def test_a_shared_key_that_drowns_a_table_is_named(plan: Plan, bound: int, named: bool) -> None:
    whole = plan.to_dict()
    staff = {"primary_key": ["id"], "rows": 60, "columns": {"id": {"type": "int64", "domain": "key"}}}
    key = {"columns": ["staff_id"], "references": "staff", "target": ["id"], "role": "shared", "max_degree": bound}
    visits = whole["tables"]["visits"]
    visits["columns"]["staff_id"] = {"type": "int64", "domain": "key"}
    visits["keys"]["staff_id"] = key
    shared = Plan.from_dict(
        {**whole, "protect": ["people", "staff"], "tables": {**whole["tables"], "staff": staff, "visits": visits}}
    )
    advice = " ".join(shared.explain(epsilon=0.5, delta=1e-6).verdict.advice)
    assert ("Lower max_degree = 90 of visits.staff_id, or let it link" in advice) == named


@pytest.mark.parametrize(
    ("domain", "shares", "missed"),
    [
        (Categories(("a",), other=True), [0.25, 0.75], 0.75),
        (Bins((0, 5, 9)), [0.9, 0.05, 0.05], 0.0),  # declared
        (Bins((0, 5, 9), learned="not"), [0.25, 0.25, 0.5], 0.5),
        (Bins((0, 5, 9), learned="coarse"), [0.25, 0.25, 0.5], 0.25),
        (Bins((0, 1, 9), learned="coarse"), [0.5, 0.5, 0.0], 0.25),  # of the first cell all is known
        (Bins((0, 5, 9), learned="well"), [0.5, 0.5, 0.0], 0.0),
        (Bins((0, 5, 9), learned="well"), [0.9, 0.1, 0.0], 0.81),
        (Bins((0, 1, 9), learned="well"), [0.9, 0.1, 0.0], 0.0),
    ],
)
def test_what_a_learned_domain_does_not_tell(domain: Bins | Categories, shares: list[float], missed: float) -> None:
    kind = "integer" if isinstance(domain, Bins) else "text"
    column = ColumnPlan(Column("c", Type(kind)), domain)
    assert _missed(column, np.array(shares), is_discovered=True) == pytest.approx(missed)


PAID = """
protect = ["client", "clerk"]
[tables.client]
primary_key = ["id"]
rows = 2000
[tables.client.columns]
id = { type = "int64", nullable = false, domain = "key" }
[tables.clerk]
primary_key = ["id"]
rows = 40
[tables.clerk.columns]
id = { type = "int64", nullable = false, domain = "key" }
[tables.paid]
primary_key = ["id"]
rows = 9000
[tables.paid.columns]
id = { type = "int64", nullable = false, domain = "key" }
client = { type = "int64", domain = "key" }
clerk = { type = "int64", domain = "key" }
day = { type = "date", nullable = false, domain = "learn" }
[tables.paid.keys.client]
columns = ["client"]
references = "client"
target = ["id"]
role = "owning"
max_degree = 10
[tables.paid.keys.clerk]
columns = ["clerk"]
references = "clerk"
target = ["id"]
role = "linking"
max_degree = 10
"""


def test_advice_names_keys_without_room_and_owning_keys_that_may_be_null() -> None:
    plan = Plan.from_toml(PAID)
    advice = " ".join(plan.explain(epsilon=0.2, delta=1e-6).verdict.advice)
    assert "Raise max_degree = 10 of paid.clerk: 40 rows of clerk with 10 each have room for 400 of 9,000" in advice
    assert "Raise max_degree = 10 of paid.client" not in advice  # 2,000 clients have room for all
    assert "Say nullable = false of client in paid, if each of its rows has its row of client" in advice
