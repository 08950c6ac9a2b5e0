"""The budget: no column of the ledger passes rho, and tables and relations share it by what each is worth."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpweave.budget import Task, allocate, touched
from dpweave.plan import Plan
from dpweave.worth import LEAST, Worth, shares

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
        column = [Fraction(rho) for task, rho in allocation.tasks.items() if unit in touched(plan, task)]
        assert sum(column) <= Fraction(allocation.rho)
    busiest = max(
        sum(rho for task, rho in allocation.tasks.items() if unit in touched(plan, task)) for unit in plan.protect
    )
    assert busiest >= 0.999 * allocation.rho
    assert all(rho > 0 for rho in allocation.tasks.values())


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.builds(Worth, weight=st.floats(0.1, 50), error=st.floats(0.01, 2), halfway=st.floats(1e-9, 1e4)),
        min_size=2,
        max_size=6,
    ),
    st.floats(1e-4, 10),
    st.data(),
)
def test_no_other_split_has_less_error(worths, rho, data):
    """Taking anything from one task and giving it to another does not help, but for the least part that all get."""
    least = LEAST / len(worths)
    best = [(s - least) / (1 - LEAST) for s in shares(worths, rho=rho)]
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
        Worth.of(weight=w, marginals=3, cells=12, moved=d, rows=1e7, variance=1.0) for w, d in ((1.0, 2.0), (2.0, 27.0))
    )
    least = LEAST / 2
    x, y = (s - least for s in shares([a, b], rho=1.0))
    assert y / x == pytest.approx((2 * 27 / 2) ** (2 / 3), rel=1e-3)


def test_what_is_hopeless_gets_the_least():
    good = Worth.of(weight=1.0, marginals=4, cells=20, moved=1, rows=100_000, variance=6e-4)
    lost = Worth.of(weight=1.0, marginals=4, cells=20, moved=10_000, rows=100_000, variance=6e-4)
    assert shares([good, lost], rho=0.02)[1] == pytest.approx(LEAST / 2)


def test_more_weight_means_more_budget_and_all_get_more_with_more_epsilon(plan):
    data = plan.to_dict()
    data["tables"]["marks"]["keys"]["visit"]["weight"] = 5.0
    before, after = spent(plan, 1.0), spent(Plan.from_dict(data), 1.0)
    assert after["links:marks.visit"] > 1.5 * before["links:marks.visit"]
    assert after["links:visits.person"] < before["links:visits.person"]
    more = spent(plan, 2.0)
    assert all(more[task] > before[task] for task in before)


def test_a_relation_with_nothing_to_learn_gets_nothing(plan):
    data = plan.to_dict()
    data["tables"]["shops"]["columns"]["kind"]["domain"] = ["a"]
    assert "links:visits.shop" in spent(plan, 1.0)
    assert "links:visits.shop" not in spent(Plan.from_dict(data), 1.0)
    data = plan.to_dict()
    data["tables"]["visits"]["keys"]["shop"]["method"] = "random"
    assert "links:visits.shop" not in spent(Plan.from_dict(data), 1.0)


def test_a_task_is_known_by_what_it_asks_not_by_its_weight():
    assert Task("tables", "t", weight=3.0) == Task("tables", "t")
