"""Friendships come both ways: whatever links there were, rows stay with their owner."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpweave as dw
from dpweave.errors import PlanError
from dpweave.links.wiring.both_ways import mirrored, unmirrored
from dpweave.model.coded_database import encode
from dpweave.plan.plan import Plan
from dpweave.plan.rules import Symmetric
from dpweave.report.integrity import check

PEOPLE = 300
FRIENDS = Symmetric("friends", ("a", "b"))


@given(st.lists(st.tuples(st.integers(-1, 6), st.integers(-1, 6)), max_size=40), st.integers(0, 3))
def test_every_pair_gets_its_mirror_once(pairs: list[tuple[int, int]], seed: int) -> None:
    a, b = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    made = mirrored(a, b, np.arange(7) % 2, np.random.default_rng(seed))
    led = made >= 0
    found = list(zip(a[led].tolist(), made[led].tolist(), strict=True))
    assert len(set(found)) == len(found)
    assert {(y, x) for x, y in found} == set(found)
    assert all(x != y for x, y in found)
    assert not led[(a < 0) | (b < 0)].any()
    both = {(x, y) for x, y in pairs if (y, x) in pairs and x != y and min(x, y) >= 0}
    assert both <= set(found)  # what was as it should be stays
    assert not unmirrored(a[led], made[led]).any()


def test_hardly_a_row_is_lost() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2000, (2, 10_000))
    assert (mirrored(a, b, np.arange(2000) % 3, rng) < 0).sum() <= 20


def friends_plan(**changes: object) -> Plan:
    """People, some of whom are friends: each friendship is two rows."""
    whole = {"type": "integer", "nullable": False, "domain": "key"}

    def key(name: str, **more: object) -> dict[str, object]:
        return {"columns": [name], "references": "people", "target": ["id"], "max_degree": 8, **more}

    friends = {
        "primary_key": ["id"],
        "unique": [["a", "b"]],
        "columns": {
            "id": whole,
            "a": whole,
            "b": whole,
            "close": {"type": "boolean", "nullable": False, "domain": [True, False]},
        },
        "keys": {"a": key("a", role="owning"), "b": key("b", role="linking")},
    }
    people = {
        "primary_key": ["id"],
        "columns": {"id": whole, "town": {"type": "text", "nullable": False, "domain": ["x", "y", "z"]}},
    }
    return Plan.from_dict(
        {
            "protect": ["people"],
            "tables": {"people": people, "friends": {**friends, **changes}},
            "constraints": [{"table": "friends", "symmetric": ["a", "b"]}],
        }
    )


def test_copies_have_every_friendship_both_ways() -> None:
    rng = np.random.default_rng(1)
    town = rng.choice(["x", "y", "z"], PEOPLE)
    pairs = rng.integers(0, PEOPLE, (900, 2))
    near = (pairs[:, 0] != pairs[:, 1]) & (town[pairs[:, 0]] == town[pairs[:, 1]])
    pairs = np.unique(np.sort(pairs[near], axis=1), axis=0)
    ways = np.concatenate([pairs, pairs[:, ::-1]])
    source = {
        "people": pd.DataFrame({"id": np.arange(PEOPLE), "town": town}),
        "friends": pd.DataFrame(
            {"id": np.arange(len(ways)), "a": ways[:, 0], "b": ways[:, 1], "close": rng.random(len(ways)) < 0.3}
        ),
    }
    plan = friends_plan()
    assert Plan.from_toml(plan.to_toml()) == plan
    made = dw.fit(source, plan, epsilon=16.0, delta=1e-6, insecure_seed=0).sample(seed=0)
    checks = check(plan, dict(made), encode(plan, dict(made)), public={})
    assert all(c.passed for c in checks if not c.advisory)
    assert any(c.where == str(FRIENDS) for c in checks)
    rows = made.to_pandas()["friends"]
    assert 0.8 * len(ways) < len(rows) < 1.25 * len(ways)
    towns = made.to_pandas()["people"].set_index("id").town
    assert (
        towns.loc[rows.a].to_numpy() == towns.loc[rows.b].to_numpy()
    ).mean() > 0.7  # learned are 0.78, by chance it is a third
    assert made.repairs[str(FRIENDS)] > 0
    one_way = {**source, "friends": source["friends"].iloc[: len(pairs)]}
    broken = check(plan, _tables(plan, one_way), encode(plan, _tables(plan, one_way)), public={})
    assert any(c.where == str(FRIENDS) and not c.passed for c in broken)


def _tables(plan: Plan, frames: dict[str, pd.DataFrame]) -> dict[str, object]:
    import pyarrow as pa

    return {t.name: pa.Table.from_pandas(frames[t.name], preserve_index=False) for t in plan.database}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"unique": []}, "a pair must not repeat"),
        (
            {
                "keys": {
                    "a": {
                        "columns": ["a"],
                        "references": "people",
                        "target": ["id"],
                        "role": "owning",
                        "max_degree": 8,
                        "min_degree": 1,
                    },
                    "b": {
                        "columns": ["b"],
                        "references": "people",
                        "target": ["id"],
                        "role": "linking",
                        "max_degree": 8,
                    },
                }
            },
            "min_degree",
        ),
    ],
)
def test_symmetry_that_cannot_be_kept_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        friends_plan(**changes)


@pytest.mark.parametrize(
    ("pair", "says"), [(("a", "c"), "no foreign key 'c'"), (("a",), "two keys"), (("a", "a"), "two keys")]
)
def test_symmetry_of_what_is_not_there_is_refused(pair: tuple[str, ...], says: str) -> None:
    with pytest.raises(PlanError, match=says):
        Symmetric("friends", pair).check(friends_plan().database)
