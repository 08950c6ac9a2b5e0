"""Rows of one owner have in the copy what they have in common in the data, and nothing where they have nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpweave as dw

USERS = 3000


def shop(tastes: float, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Users with two to eight orders each, of four kinds and three channels. A user has a favourite kind, which no
    column of theirs tells, for this share of the orders.
    """
    rng = np.random.default_rng(seed)
    each = rng.integers(2, 9, USERS)
    user = np.repeat(np.arange(USERS), each)
    favourite = rng.integers(0, 4, USERS)[user]
    kind = np.where(rng.random(len(user)) < tastes, favourite, rng.integers(0, 4, len(user)))
    channel = np.where(rng.random(len(user)) < 0.5, kind % 3, rng.integers(0, 3, len(user)))
    orders = pd.DataFrame({"id": np.arange(len(user)), "user_id": user, "kind": kind, "channel": channel})
    return {"users": pd.DataFrame({"id": np.arange(USERS), "sex": rng.integers(0, 2, USERS)}), "orders": orders}


def plan() -> dw.Plan:
    key = {"type": "int64", "nullable": False, "domain": "key"}

    def column(values: int) -> dict:
        return {"type": "int64", "nullable": False, "domain": list(range(values))}

    link = {
        "columns": ["user_id"], "references": "users", "target": ["id"], "role": "owning", "max_degree": 8,
        "degree_cap": 8,
    }  # fmt: skip
    orders = {"id": key, "user_id": key, "kind": column(4), "channel": column(3)}
    return dw.Plan.from_dict(
        {
            "protect": ["users"],
            "tables": {
                "users": {"primary_key": ["id"], "columns": {"id": key, "sex": column(2)}},
                "orders": {"primary_key": ["id"], "columns": orders, "keys": {"user_id": link}},
            },
        }
    )


def agreement(orders: pd.DataFrame, column: str) -> float:
    """How much more often two orders of one user agree than two of any users."""
    counts = pd.crosstab(orders.user_id, orders[column]).to_numpy()
    rows = counts.sum(axis=1)
    within = ((counts * (counts - 1)).sum(axis=1) / np.maximum(rows - 1, 1)).sum() / rows.sum()
    return float(within - ((counts.sum(axis=0) / rows.sum()) ** 2).sum())


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_orders_of_a_user_agree_as_they_do(epsilon):
    real = shop(0.5)
    model = dw.fit(real, plan(), epsilon=epsilon, delta=1e-6, insecure_seed=1)
    (evidence,) = (e for e in model.certificate.evidence if "siblings" in e)
    assert evidence["siblings"]["factors"] >= 1
    copy = model.sample(seed=1).to_pandas()["orders"]
    for column in ("kind", "channel"):
        kept = agreement(copy, column) / agreement(real["orders"], column)
        assert 0.6 < kept < 1.25, (column, kept)


def test_orders_that_have_nothing_in_common_stay_apart():
    real = shop(0.0)
    for seed in range(3):
        model = dw.fit(real, plan(), epsilon=1.0, delta=1e-6, insecure_seed=seed)
        (evidence,) = (e for e in model.certificate.evidence if "siblings" in e)
        assert evidence["siblings"]["factors"] == 0
        assert abs(agreement(model.sample(seed=seed).to_pandas()["orders"], "kind")) < 0.02


def test_a_saved_model_knows_siblings(tmp_path):
    model = dw.fit(shop(0.5), plan(), epsilon=4.0, delta=1e-6, insecure_seed=2)
    model.save(tmp_path / "m.dpw")
    again = dw.load(tmp_path / "m.dpw")
    assert again.release.moments[0].noisy.moments == model.release.moments[0].noisy.moments
    assert again.sample(seed=3)["orders"].equals(model.sample(seed=3)["orders"])
    assert dw.verify(again).true


def lives(tastes: float, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Customers with orders of a few items, of kinds that the customer likes for this share of the items."""
    rng = np.random.default_rng(seed)
    customer = np.repeat(np.arange(USERS), rng.integers(1, 5, USERS))
    order = np.repeat(rng.permutation(len(customer)), rng.integers(1, 5, len(customer)))
    favourite = rng.integers(0, 4, USERS)[customer[order]]
    kind = np.where(rng.random(len(order)) < tastes, favourite, rng.integers(0, 4, len(order)))
    size = np.where(rng.random(len(order)) < 0.5, kind % 3, rng.integers(0, 3, len(order)))
    return {
        "customers": pd.DataFrame({"id": np.arange(USERS), "sex": rng.integers(0, 2, USERS)}),
        "orders": pd.DataFrame(
            {"id": np.arange(len(customer)), "customer": customer, "channel": rng.integers(0, 2, len(customer))}
        ),
        "items": pd.DataFrame({"id": np.arange(len(order)), "order": order, "kind": kind, "size": size}),
    }


def plan_of_lives() -> dw.Plan:
    key = {"type": "int64", "nullable": False, "domain": "key"}

    def table(columns: dict, owner: str | None = None, by: str = "") -> dict:
        values = {n: {"type": "int64", "nullable": False, "domain": list(range(k))} for n, k in columns.items()}
        link = {"columns": [by], "references": owner, "target": ["id"], "role": "owning", "max_degree": 4}
        return {
            "primary_key": ["id"],
            "columns": {"id": key, **({by: key} if owner else {}), **values},
            **({"keys": {by: {**link, "degree_cap": 4}}} if owner else {}),
        }

    tables = {
        "customers": table({"sex": 2}),
        "orders": table({"channel": 2}, "customers", "customer"),
        "items": table({"kind": 4, "size": 3}, "orders", "order"),
    }
    return dw.Plan.from_dict({"protect": ["customers"], "tables": tables})


def agreements(db: dict[str, pd.DataFrame], column: str) -> tuple[float, float]:
    """How much more often two items agree than any two do: those of one order, and those of one customer's others."""
    items = db["items"].merge(db["orders"], left_on="order", right_on="id")
    counts = pd.crosstab([items.customer, items.order], items[column])
    orders, customers = counts.to_numpy(), counts.groupby(level=0).sum().to_numpy()
    by_chance = float(((customers.sum(axis=0) / customers.sum()) ** 2).sum())
    rows = orders.sum(axis=1)
    within = (orders * (orders - 1)).sum() / (rows * (rows - 1)).sum()
    apart = (customers**2).sum() - (orders**2).sum()
    return float(within) - by_chance, float(apart / ((customers.sum(axis=1) ** 2).sum() - (rows**2).sum())) - by_chance


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.4), (4.0, 0.4)])
def test_a_taste_is_shared_by_items_of_one_order_and_of_the_others(epsilon, least):
    real = lives(0.5)
    model = dw.fit(real, plan_of_lives(), epsilon=epsilon, delta=1e-6, insecure_seed=1)
    evidence = next(e for e in model.certificate.evidence if e["relation"] == "items.order")
    assert evidence["siblings"]["factors"] >= 1
    assert evidence["cousins"]["factors"] >= 1
    copy = model.sample(seed=1).to_pandas()
    for now, was in zip(agreements(copy, "kind"), agreements(real, "kind"), strict=True):
        assert was > 0.15
        assert least < now / was < 1.25
    assert agreements(copy, "kind")[0] > 0.7 * agreements(real, "kind")[0]
    assert dw.verify(model).true


def test_items_that_have_nothing_in_common_stay_apart_on_both_levels():
    real = lives(0.0)
    for seed in range(2):
        model = dw.fit(real, plan_of_lives(), epsilon=1.0, delta=1e-6, insecure_seed=seed)
        evidence = next(e for e in model.certificate.evidence if e["relation"] == "items.order")
        assert evidence["siblings"]["factors"] == evidence["cousins"]["factors"] == 0
        assert max(map(abs, agreements(model.sample(seed=seed).to_pandas(), "kind"))) < 0.02
