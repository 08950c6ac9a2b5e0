"""Plans of wrong types: every one is refused by name, or means what it says; nothing else is raised."""

from __future__ import annotations

import pytest

from dpweave.errors import DpweaveError, PlanError
from dpweave.plan.plan import Plan
from tests.plan_values import PLAN, WRONG, places, spoilt


def test_the_plan_that_is_spoilt_is_sound() -> None:
    assert Plan.from_toml(Plan.from_dict(PLAN).to_toml()) == Plan.from_dict(PLAN)


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_wrong_value_in_any_place_is_refused_by_us_or_survives(number: int) -> None:
    refused = 0
    for path in places(PLAN):
        try:
            plan = Plan.from_dict(spoilt(path, WRONG[number]))
        except DpweaveError:
            refused += 1
        else:
            assert Plan.from_toml(plan.to_toml()) == plan
    assert refused > 50


USER = ("tables", "users")


@pytest.mark.parametrize(
    ("path", "wrong", "message"),
    [
        ((*USER, "columns", "age", "nullable"), "false", "tables.users.columns.age.nullable must be true or false, not 'false'"),  # noqa: E501
        ((*USER, "columns", "age", "type"), ["a"], r"tables.users.columns.age.type must be a text in quotes, not \['a'\]"),  # noqa: E501
        ((*USER, "columns", "age", "domain", "bins"), -1, "tables.users.columns.age: domain.bins must be from 1 to 2097152, not -1"),  # noqa: E501
        ((*USER, "columns", "job", "domain", "other"), "no", "domain.other must be true or false, not 'no'"),
        (("tables", "films", "keys", "after", "columns"), ["nope"], "the foreign key 'after' of 'films'.* column 'nope'"),  # noqa: E501
        (("tables", "films", "keys", "after", "references"), 1.5, "tables.films.keys.after.references must be a text in quotes, not 1.5"),  # noqa: E501
        ((*USER, "rows"), 10**400, "tables.users.rows is a whole number of 1329 bits"),
        ((*USER, "rows"), 1.5, "rows of table 'users' must be a whole number of at least 0, not 1.5"),
        (("tables", "views", "keys", "user", "degree_edges"), [0, "x"], "an edge of .*degree_edges must be a whole number, not 'x'"),  # noqa: E501
        (("constraints", 1, "columns"), "sex", "columns of a constraint must be a list, not 'sex'"),
        (("workloads",), 3, "workloads must be a list, not 3"),
    ],
)  # fmt: skip
def test_messages_name_key_and_value(path: tuple[object, ...], wrong: object, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Plan.from_dict(spoilt(path, wrong))


@pytest.mark.parametrize(
    "text", ["x = " + "[" * 2000 + "]" * 2000, "x = " + "{a = " * 2000 + "1" + "}" * 2000, "k = " + "9" * 5000]
)
def test_text_that_no_reader_survives_is_refused(text: str) -> None:
    with pytest.raises(PlanError):
        Plan.from_toml(text)


def test_what_lies_too_deep_is_refused() -> None:
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    with pytest.raises(PlanError, match="lies too deep"):
        Plan.from_dict(spoilt(("tables", "users", "columns", "sex", "domain"), deep))
