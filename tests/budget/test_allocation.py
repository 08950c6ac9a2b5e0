"""The budget: no column of the ledger passes rho, and tables and relations share it by what each is worth."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpweave import chosen
from dpweave.budget.allocation import allocate
from dpweave.budget.priorities import Priority, many, shares
from dpweave.budget.tasks import Task, favoured, serving, touched
from dpweave.errors import PlanError
from dpweave.measure.per_unit.centred_counts import clip_for
from dpweave.plan.entries import LEAST_WEIGHT, MOST_WEIGHT, Shares
from dpweave.plan.plan import Plan

TOML = """
protect = ["people", "shops"]
[tables.people]
primary_key = ["id"]
rows = 5000
[tables.people.columns]
id = { type = "int64", nullable = false, domain = "key" }
sex = { type = "text", nullable = false, domain = ["f", "m"] }
[tables.shops]
primary_key = ["id"]
rows = 300
[tables.shops.columns]
id = { type = "int64", nullable = false, domain = "key" }
kind = { type = "text", nullable = false, domain = ["a", "b", "c"] }
[tables.visits]
primary_key = ["id"]
[tables.visits.columns]
id = { type = "int64", nullable = false, domain = "key" }
person = { type = "int64", nullable = false, domain = "key" }
shop = { type = "int64", domain = "key" }
day = { type = "int32", nullable = false, domain = { low = 0, high = 6, bins = 7 } }
[tables.visits.keys.person]
columns = ["person"]
references = "people"
target = ["id"]
role = "owning"
max_degree = 4
[tables.visits.keys.shop]
columns = ["shop"]
references = "shops"
target = ["id"]
role = "linking"
max_degree = 20
[tables.marks]
primary_key = ["id"]
[tables.marks.columns]
id = { type = "int64", nullable = false, domain = "key" }
visit = { type = "int64", nullable = false, domain = "key" }
mark = { type = "int32", nullable = false, domain = { low = 0, high = 9, bins = 10 } }
[tables.marks.keys.visit]
columns = ["visit"]
references = "visits"
target = ["id"]
role = "owning"
max_degree = 5
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan.from_toml(TOML)


def spent(plan: Plan, epsilon: float) -> dict[str, float]:
    return {task.name: rho for task, rho in allocate(plan, epsilon=epsilon, delta=1e-6).tasks.items()}


@settings(deadline=None, max_examples=25)
@given(
    epsilon=st.floats(0.01, 20.0),
    weights=st.lists(st.floats(1e-3, 1e3), min_size=4, max_size=4),
    bounds=st.lists(st.integers(1, 5000), min_size=3, max_size=3),
    rows=st.integers(0, 10**7),
)
def test_no_column_of_the_ledger_passes_rho(epsilon, weights, bounds, rows):
    data = Plan.from_toml(TOML).to_dict()
    tables = data["tables"]
    tables["people"] |= {"weight": weights[0], "rows": rows}
    tables["marks"]["weight"] = weights[1]
    tables["visits"]["keys"]["person"] |= {"weight": weights[2], "max_degree": bounds[0]}
    tables["visits"]["keys"]["shop"] |= {"weight": weights[3], "max_degree": bounds[1]}
    tables["marks"]["keys"]["visit"]["max_degree"] = bounds[2]
    plan = Plan.from_dict(data)
    allocation = allocate(plan, epsilon=epsilon, delta=1e-6)
    for unit in plan.protect:
        column = [Fraction(rho) for task, rho in allocation.tasks.items() if unit in touched(plan.compile(), task)]
        assert sum(column) <= Fraction(allocation.rho)
    busiest = max(
        sum(rho for task, rho in allocation.tasks.items() if unit in touched(plan.compile(), task))
        for unit in plan.protect
    )
    assert busiest >= 0.999 * allocation.rho
    assert all(rho > 0 for rho in allocation.tasks.values())


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.builds(Priority, weight=st.floats(0.1, 50), error=st.floats(0.01, 2), halfway=st.floats(1e-9, 1e4)),
        min_size=2,
        max_size=6,
    ),
    st.floats(1e-4, 10),
    st.data(),
)
def test_no_other_split_has_less_error(worths, rho, data):
    """Taking anything from one task and giving it to another does not help, but for the least part that all get."""
    least = chosen.LEAST_PART / len(worths)
    best = [(s - least) / (1 - chosen.LEAST_PART) for s in shares(worths, rho=rho)]
    assert sum(best) == pytest.approx(1.0)
    giver, taker = (data.draw(st.integers(0, len(worths) - 1)) for _ in range(2))
    moved = data.draw(st.floats(0.0, 1.0)) * max(best[giver], 0.0)
    other = list(best)
    other[giver] -= moved
    other[taker] += moved

    def error(split: list[float]) -> float:
        return sum(w.left(rho * max(s, 0.0)) for w, s in zip(worths, split, strict=True))

    assert error(best) <= error(other) * (1 + 1e-6)


def test_where_counts_are_good_the_rule_is_the_two_thirds_power():
    a, b = (
        Priority.of(weight=w, marginals=3, cells=12, moved=d, rows=1e7, variance=1.0)
        for w, d in ((1.0, 2.0), (2.0, 27.0))
    )
    least = chosen.LEAST_PART / 2
    x, y = (s - least for s in shares([a, b], rho=1.0))
    assert y / x == pytest.approx((2 * 27 / 2) ** (2 / 3), rel=1e-3)


def test_what_is_hopeless_gets_the_least():
    good = Priority.of(weight=1.0, marginals=4, cells=20, moved=1, rows=100_000, variance=6e-4)
    lost = Priority.of(weight=1.0, marginals=4, cells=20, moved=10_000, rows=100_000, variance=6e-4)
    assert shares([good, lost], rho=0.02)[1] == pytest.approx(chosen.LEAST_PART / 2)


def test_more_weight_means_more_budget_and_all_get_more_with_more_epsilon(plan):
    data = plan.to_dict()
    data["budget"]["domains"] = 0.1
    plan = Plan.from_dict(data)
    data["tables"]["marks"]["keys"]["visit"]["weight"] = 5.0
    before, after = spent(plan, 0.2), spent(Plan.from_dict(data), 0.2)
    assert after["links:marks.visit"] > 1.5 * before["links:marks.visit"]
    assert after["links:visits.person"] < before["links:visits.person"]
    more = spent(plan, 0.4)
    assert all(more[task] > before[task] for task in before)


def test_a_relation_with_nothing_to_learn_gets_nothing(plan):
    data = plan.to_dict()
    data["tables"]["shops"]["columns"]["kind"]["domain"] = ["a"]
    assert "links:visits.shop" in spent(plan, 1.0)
    assert "links:visits.shop" not in spent(Plan.from_dict(data), 1.0)
    data = plan.to_dict()
    data["tables"]["visits"]["keys"]["shop"]["method"] = "random"
    assert "links:visits.shop" not in spent(Plan.from_dict(data), 1.0)


@pytest.mark.parametrize("weight", [LEAST_WEIGHT, MOST_WEIGHT])
def test_the_most_uneven_weights_leave_something_for_every_task(plan, weight):
    data = plan.to_dict()
    data["tables"]["marks"]["weight"] = data["tables"]["visits"]["keys"]["shop"]["weight"] = weight
    data["budget"]["sizes"] = weight
    given = allocate(Plan.from_dict(data), epsilon=0.01, delta=1e-9)
    assert min(given.tasks.values()) > 0


def test_a_task_is_known_by_what_it_asks_not_by_its_weight():
    assert Task("tables", "t", weight=3.0) == Task("tables", "t")


# -- declared workloads ------------------------------------------------------------------------------------------------


def with_workloads(*workloads: dict[str, object]) -> Plan:
    return Plan.from_dict(Plan.from_toml(TOML).to_dict() | {"workloads": list(workloads)})


@pytest.mark.parametrize(
    ("columns", "base", "names", "server"),
    [
        (["visits.day", "people.sex"], "visits", ("day", "person.sex"), "links:visits.person"),
        (["people.sex", "shops.kind"], "visits", ("person.sex", "shop.kind"), "links:visits.shop"),
        (["marks.mark", "people.sex"], "marks", ("mark", "visit.person.sex"), "links:marks.visit"),
        (["marks.mark", "shops.kind"], "marks", ("mark", "visit.shop.kind"), "links:marks.visit"),
        (["marks.visit.day", "marks.visit.person.sex"], "visits", ("day", "person.sex"), "links:visits.person"),
    ],
)
def test_a_workload_is_found_across_any_joined_path(columns, base, names, server):
    plan = with_workloads({"columns": columns})
    ((found, task),) = serving(plan.compile())
    assert (found.base, found.names, task.name) == (base, names, server)
    assert favoured(plan.compile(), task) == {names: 1.0}
    assert Plan.from_toml(plan.to_toml()) == plan


def test_a_star_stands_for_every_column_of_a_table_in_turn():
    data = Plan.from_toml(TOML).to_dict()
    data["tables"]["shops"]["columns"]["large"] = {"type": "boolean", "nullable": False, "domain": [False, True]}
    data["tables"]["shops"]["columns"]["name"] = {"type": "text", "domain": "opaque"}
    plan = Plan.from_dict(data | {"workloads": [{"columns": ["visits.day", "shops.*"], "weight": 3.0}]})
    assert [(w.names, t.name) for w, t in serving(plan.compile())] == [
        (("day", "shop.kind"), "links:visits.shop"),
        (("day", "shop.large"), "links:visits.shop"),
    ]
    compiled = plan.compile()
    assert favoured(compiled, serving(compiled)[0][1]) == {
        ("day", "shop.kind"): 1.5,
        ("day", "shop.large"): 1.5,
    }
    assert Plan.from_toml(plan.to_toml()) == plan


def test_columns_of_one_table_are_served_by_its_model():
    data = Plan.from_toml(TOML).to_dict()
    data["tables"]["marks"]["columns"]["late"] = {"type": "boolean", "nullable": False, "domain": [False, True]}
    plan = Plan.from_dict(data | {"workloads": [{"columns": ["marks.mark", "marks.late"], "weight": 2.0}]})
    ((found, task),) = serving(plan.compile())
    assert (task.name, found.names) == ("tables:marks", ("mark", "late"))
    assert spent(plan, 1.0)["tables:marks"] > spent(Plan.from_dict(data), 1.0)["tables:marks"]


def test_explain_warns_of_a_workload_in_a_table_of_independent_columns():
    data = Plan.from_toml(TOML).to_dict()
    data["tables"]["marks"]["columns"]["late"] = {"type": "boolean", "nullable": False, "domain": [False, True]}
    data["workloads"] = [{"columns": ["marks.mark", "marks.late"]}]
    for mechanism in ("independent", "mst"):
        data["tables"]["marks"]["mechanism"] = mechanism
        warned = Plan.from_dict(data).explain(epsilon=1.0, delta=1e-6).warnings
        told = any(
            "marks.mark × marks.late lies in marks, whose columns are modelled independently" in w for w in warned
        )
        assert told == (mechanism == "independent")


def learning(rows: int, domains: float | None) -> dict[str, float]:
    """What each group gets of a plan that learns all domains of a table of so many rows, at epsilon 1."""
    data = Plan.from_toml(TOML).to_dict()
    data["tables"]["people"] |= {"rows": rows}
    for table in ("people", "visits", "marks"):
        for column in data["tables"][table]["columns"].values():
            column["domain"] = "key" if column["domain"] == "key" else "learn"
    if domains is not None:
        data["budget"]["domains"] = domains
    allocation = allocate(Plan.from_dict(data), epsilon=1.0, delta=1e-6)
    groups: dict[str, float] = {}
    for task, rho in allocation.tasks.items():
        if "people" in touched(Plan.from_dict(data).compile(), task):
            groups[task.group] = groups.get(task.group, 0.0) + rho / allocation.rho
    return groups


def test_domains_get_what_they_need_of_columns_and_links_unless_the_plan_says_how():
    few, many_people, declared = learning(1_000, None), learning(1_000_000, None), learning(1_000, 0.1)
    assert few["domains"] > 0.25  # of a few people no links show, so these give most
    assert few["links"] < 0.3
    for found in (many_people, declared):
        assert found["domains"] == pytest.approx(0.1, rel=0.1)
        assert found["links"] == pytest.approx(0.45, rel=0.1)


def test_a_workload_brings_budget_to_the_relation_that_serves_it(plan):
    apart = Shares(domains=0.1)
    before = spent(replace(plan, shares=apart), 0.2)
    wanted = with_workloads({"columns": ["marks.mark", "visits.day"], "weight": 4.0})
    after = spent(replace(wanted, shares=apart), 0.2)
    assert after["links:marks.visit"] > 1.5 * before["links:marks.visit"]
    assert after["links:visits.person"] < before["links:visits.person"]


def test_explain_says_who_serves_a_workload_and_at_what_noise(plan):
    said = with_workloads({"columns": ["marks.mark", "people.sex"]}).explain(epsilon=1.0, delta=1e-6)
    (found,) = said.workloads
    assert (found.columns, found.task, found.cells) == (("marks.mark", "people.sex"), "links:marks.visit", 20)
    (rho,) = (s.rho for s in said.budget if s.task == found.task)
    # Half of rho; of a person with 20 marks, what they have beyond those of all (ten values each).
    assert found.sigma == pytest.approx(clip_for(many(plan.compile().table["marks"]), 1 / 10) / math.sqrt(rho))
    assert found.sigma < 20 / 3 / math.sqrt(rho)
    assert "marks.mark × people.sex" in str(said)
    assert all(len(line) <= 80 for line in str(said).splitlines())
    assert "Declared workloads" not in str(plan.explain(epsilon=1.0, delta=1e-6))


def test_explain_foretells_the_noise_of_unit_sums():
    """Columns of public rows are counted together, so that more of them cost hardly more."""
    data = with_workloads({"columns": ["visits.day", "shops.kind"]}).to_dict() | {"public": ["shops"]}
    data["protect"] = ["people"]
    data["tables"]["visits"]["keys"]["shop"] = {
        "columns": ["shop"],
        "references": "shops",
        "target": ["id"],
        "role": "attribute",
    }
    one = Plan.from_dict(data)
    for i in range(6):
        data["tables"]["shops"]["columns"][f"c{i}"] = {"type": "boolean", "nullable": False, "domain": [False, True]}
    data["workloads"] = [{"columns": ["visits.day", "shops.*"]}]
    alone, several = (p.explain(epsilon=1.0, delta=1e-6) for p in (one, Plan.from_dict(data)))
    rhos = [next(s.rho for s in said.budget if s.task == "links:visits.shop") for said in (alone, several)]
    noise = [said.workloads[0].sigma * math.sqrt(rho) for said, rho in zip((alone, several), rhos, strict=True)]
    assert len(several.workloads) == 7
    assert noise[1] < 2.5 * noise[0]  # seven tables, each with a seventh, would have √7 times the noise
    visits = one.promise.owned_rows("people", "visits")
    assert noise[0] < visits  # half of rho for one table would mean as much as all visits of a person


def test_explain_foretells_links_of_protected_rows_to_public_ones():
    """A protected row is its own unit and has no rows to clip."""
    data = Plan.from_toml(TOML).to_dict()
    data["tables"]["towns"] = {
        "primary_key": ["id"],
        "columns": {
            "id": {"type": "int64", "nullable": False, "domain": "key"},
            "coast": {"type": "boolean", "nullable": False, "domain": [False, True]},
        },
    }
    data["tables"]["people"]["columns"]["town"] = {"type": "int64", "nullable": False, "domain": "key"}
    data["tables"]["people"]["keys"] = {
        "town": {"columns": ["town"], "references": "towns", "target": ["id"], "role": "attribute"}
    }
    data |= {"public": ["towns"], "workloads": [{"columns": ["people.sex", "towns.coast"]}]}
    said = Plan.from_dict(data).explain(epsilon=1.0, delta=1e-6)
    (rho,) = (s.rho for s in said.budget if s.task == "links:people.town")
    assert said.workloads[0].sigma == pytest.approx(1 / math.sqrt(rho))  # half of rho, and one row moves


def test_explain_warns_of_a_workload_too_large_to_be_measured_whole():
    data = with_workloads({"columns": ["marks.mark", "visits.day"]}).to_dict()
    small = Plan.from_dict(data).explain(epsilon=1.0, delta=1e-6)
    assert not any("parts of it" in w for w in small.warnings)
    for table, column in (("marks", "mark"), ("visits", "day")):
        data["tables"][table]["columns"][column]["domain"] = {"low": 0, "high": 1999, "bins": 1001}
    large = Plan.from_dict(data).explain(epsilon=1.0, delta=1e-6)
    assert any("1,002,001 cells, more than 1,000,000" in w for w in large.warnings)


@pytest.mark.parametrize(
    ("workload", "says"),
    [
        ({"columns": ["visits.dya", "people.sex"]}, "no column 'visits.dya': did you mean 'visits.day'"),
        ({"columns": ["visit.day", "people.sex"]}, "did you mean 'visits.day'"),
        ({"columns": ["visits.person", "visits.day"]}, "'visits.person' is a key"),
        ({"columns": ["visits.day"]}, "must name 2 to 6"),
        ({"columns": ["visits.day", "people.sex"], "weight": 0}, "must be a positive number"),
        ({"columns": ["visits.day", "people.sex"], "wieght": 2}, "did you mean 'weight'"),
        ({"columns": ["visits.day", "marks.visit.day"]}, "the same column twice"),
        ({"columns": ["visits.day", "shop.*"]}, "no table 'shop': did you mean 'shops'"),
        ({"columns": ["people.*", "shops.*"]}, "names two tables as a whole"),
        ({"columns": ["people.sex", "people.*"]}, "'people' has no further column"),
    ],
)
def test_bad_workloads_are_refused_with_a_hint(workload, says):
    with pytest.raises(PlanError, match=re.escape(says)):
        with_workloads(workload)


def test_tables_that_do_not_join_are_refused():
    data = Plan.from_toml(TOML).to_dict()
    del data["tables"]["visits"]["keys"]["shop"]
    data["tables"]["visits"]["columns"]["shop"]["domain"] = "opaque"
    with pytest.raises(PlanError, match="no table leads to all of people, shops"):
        Plan.from_dict(data | {"workloads": [{"columns": ["people.sex", "shops.kind"]}]})


def test_a_workload_that_can_be_joined_in_two_ways_asks_which():
    data = Plan.from_toml(TOML).to_dict()
    visits = data["tables"]["visits"]
    visits["columns"]["friend"] = {"type": "int64", "domain": "key"}
    visits["keys"]["friend"] = visits["keys"]["person"] | {"columns": ["friend"], "role": "linking"}
    with pytest.raises(PlanError, match=re.escape("'visits.day', 'visits.friend.sex'")):
        Plan.from_dict(data | {"workloads": [{"columns": ["visits.day", "people.sex"]}]})
    chosen = Plan.from_dict(data | {"workloads": [{"columns": ["visits.day", "visits.friend.sex"]}]})
    assert serving(chosen.compile())[0][1].name == "links:visits.friend"


def test_a_workload_that_nobody_would_measure_is_refused_before_anything_is_spent():
    data = with_workloads({"columns": ["visits.day", "people.sex"]}).to_dict()
    data["tables"]["visits"]["keys"]["person"]["method"] = "random"
    with pytest.raises(PlanError, match="no learned relation holds all of it"):
        allocate(Plan.from_dict(data), epsilon=1.0, delta=1e-6)


def test_what_a_scarce_table_leaves_of_others_is_spent_on_theirs(plan):
    found = allocate(plan, epsilon=1.0, delta=1e-6)
    for table in plan.promise.protected:
        spent_on = sum(
            (Fraction(rho) for task, rho in found.tasks.items() if table in touched(plan.compile(), task)), Fraction()
        )
        assert float(spent_on) == pytest.approx(found.rho, rel=1e-9)
        assert spent_on <= Fraction(found.rho)
