"""What is offered helps as it says, and the best comes first."""

from __future__ import annotations

import pytest

from dpweave.explain.helpful_edits import changed_plan, helpful_edits
from dpweave.plan.plan import Plan

PLAN = """
protect = ["people"]
[tables.people]
primary_key = ["id"]
rows = 400
[tables.people.columns]
id = { type = "int64", nullable = false, domain = "key" }
age = { type = "int64", nullable = false, domain = { low = 0, high = 99, bins = 100 } }
town = { type = "text", nullable = false, domain = "learn" }
[tables.visits]
primary_key = ["id"]
rows = 900
[tables.visits.columns]
id = { type = "int64", nullable = false, domain = "key" }
person = { type = "int64", domain = "key" }
nights = { type = "int64", nullable = false, domain = { edges = [0, 1, 5, 100] } }
[tables.visits.keys.person]
columns = ["person"]
references = "people"
target = ["id"]
role = "owning"
max_degree = 50
"""


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan.from_toml(PLAN)


@pytest.fixture(scope="module")
def offered(plan):
    return helpful_edits(plan, plan.explain(epsilon=0.5, delta=1e-6), until=lambda: False, most=20)


def test_every_offer_does_what_it_says(plan, offered):
    assert len(offered) >= 4
    before = plan.explain(epsilon=0.5, delta=1e-6).verdict
    for offer in offered:
        verdict = changed_plan(plan, offer.changes).explain(epsilon=offer.epsilon or 0.5, delta=1e-6).verdict
        assert offer.after == pytest.approx(sum(j.error for j in verdict.judged) / len(verdict.judged))
        assert offer.before == pytest.approx(sum(j.error for j in before.judged) / len(before.judged))
        assert offer.after < offer.before
        assert offer.useful == sum(j.word == "useful" for j in verdict.judged)
    assert [o.after for o in offered] == sorted(o.after for o in offered)


def test_it_knows_the_usual_ways(offered):
    text = " ".join(o.text for o in offered)
    assert "Say that every row of visits has its row of people." in text
    assert "Use 50 bins for people.age, not 100." in text
    assert "Make up town of people afresh" in text
    assert "Spend twice as much: epsilon 1." in text
    assert "nights" not in text  # somebody chose these edges


def test_patience_ends(plan):
    assert helpful_edits(plan, plan.explain(epsilon=0.5, delta=1e-6), until=lambda: True) == ()


def test_no_bound_is_offered_that_leaves_out_rows_which_are_known_to_be_there(offered):
    bounds = [value for o in offered for path, value in o.changes if path[-1] == "max_degree"]
    assert bounds == [5]  # 900 visits of 400 people: twice the mean, not the 1 that noise alone would ask for
