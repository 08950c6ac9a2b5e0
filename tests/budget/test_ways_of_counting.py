"""How rows are counted is decided once: what a fit releases is what the plan says beforehand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import dpweave as dw
from dpweave.budget.tasks import Task, link_task
from dpweave.budget.ways_of_counting import relation_way, table_way, task_way, view_units
from dpweave.measure.question import Question, Way
from dpweave.plan.plan import Plan
from dpweave.privacy.sensitivity import units_of
from tests.whole import test_owned_rows, test_popularity, test_two_hops, test_within


def ways(plan: Plan) -> dict[str, Way]:
    return {f"{r.table}.{r.key}": relation_way(plan.compile(), r) for r in plan.compile().relations}


def test_each_kind_of_relation_has_its_way() -> None:
    assert ways(test_within.families()) == {"person.home": Way.CENTRED, "person.father": Way.CLIPPED}
    assert ways(test_popularity._plan()) == {"items.user": Way.CENTRED, "items.product": Way.CODED}
    assert ways(test_popularity._plan(pure=True)) == {"items.product": Way.CODED}
    hops = Plan.from_toml(test_two_hops.TOML)
    assert ways(hops)["visits.shop"] is Way.CODED
    assert [table_way(hops.compile().table[t]) for t in ("people", "visits", "marks")] == [
        Way.PLAIN,
        Way.CENTRED,
        Way.CENTRED,
    ]


def test_other_methods_and_other_neighbours_count_plainly() -> None:
    for method in ("pgd", "random"):
        assert ways(test_within.families(method=method))["person.father"] is Way.PLAIN
    record = replace(test_popularity._plan(), neighbours="record")
    assert set(ways(record).values()) == {Way.PLAIN}
    assert table_way(record.compile().table["items"]) is Way.PLAIN


@pytest.mark.parametrize(
    ("source", "plan"),
    [
        (test_popularity._source, test_popularity._plan()),
        (test_within.people, test_within.families()),
        (test_within.people, test_within.families(method="pgd")),
        (test_owned_rows.town, test_owned_rows.plan(20)),
    ],
    ids=["public rows", "within units", "within units, pgd", "owned rows"],
)
def test_a_fit_counts_as_the_plan_says(source, plan) -> None:
    release = dw.fit(source(), plan, epsilon=1.0, delta=1e-6, insecure_seed=0).release
    for relation in plan.compile().relations:
        task = link_task(relation)
        summed = [Question.of(b) for b in release.find_unit_sums(task.name)]
        match task_way(plan.compile(), task):
            case Way.PLAIN:
                assert release.find(task.name)
                assert not summed
            case Way.CENTRED:
                left = {name for name, _ in relation.left}
                assert summed
                assert all(q.centred and set(q.looks_at) - set(q.columns) <= left for q in summed)
            case Way.CLIPPED:
                assert all(q.codes == ((),) and not q.centred for q in summed)
                assert summed
                assert not release.find(task.name)
            case Way.CODED:
                right = {name for name, _ in relation.right}
                assert all(set(q.looks_at) - set(q.columns) <= right for q in summed)
                assert summed
    for table in plan.promise.private:
        centred = task_way(plan.compile(), Task("tables", table)) is Way.CENTRED
        assert bool(release.find_unit_sums(f"tables:{table}")) == centred


def test_units_of_a_view_are_those_that_the_trusted_core_finds_column_by_column() -> None:
    plans = [
        test_within.families(),
        test_popularity._plan(),
        test_popularity._plan(pure=True),
        Plan.from_toml(test_two_hops.TOML),
        *(Plan.load(path) for path in sorted((Path(__file__).parents[2] / "examples" / "plans").glob("*.toml"))),
    ]
    seen = [(plan, r.view) for plan in plans for r in plan.compile().relations]
    found = [view_units(plan.compile(), view) for plan, view in seen]
    assert found == [units_of(plan.promise, view) for plan, view in seen]
    assert any(units is None for units in found)
    assert any(units is not None and units.columns is not None for units in found)
    assert any(units is not None and units.shared for units in found)
