"""Bounds that hide nothing: owned rows are counted around what all rows show, so a high bound costs next to nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dpweave as dw
from dpweave.budget.allocation import allocate
from dpweave.plan.plan import Plan

USERS, KINDS = 1500, 6


def town(seed=0):
    """Users with eight orders in the mean and some with many; women buy kind 0 more often."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, USERS)
    orders = rng.geometric(1 / 8, USERS)
    user = np.repeat(np.arange(USERS), orders)
    law = np.array([[0.3, 0.3, 0.2, 0.1, 0.07, 0.03], [0.5, 0.2, 0.1, 0.1, 0.07, 0.03]])
    kind = np.array([rng.choice(KINDS, p=law[s]) for s in sex[user]])
    return {
        "users": pd.DataFrame({"id": np.arange(USERS), "sex": sex}),
        "orders": pd.DataFrame({"id": np.arange(len(user)), "user": user, "kind": kind, "spent": kind * 10 + 3}),
    }


def plan(bound):
    number = {"type": "int64", "nullable": False}
    return Plan.from_dict(
        {
            "version": 1,
            "protect": ["users"],
            "tables": {
                "users": {
                    "primary_key": ["id"],
                    "columns": {"id": {**number, "domain": "key"}, "sex": {**number, "domain": [0, 1]}},
                },
                "orders": {
                    "primary_key": ["id"],
                    "columns": {
                        "id": {**number, "domain": "key"},
                        "user": {**number, "domain": "key"},
                        "kind": {**number, "domain": list(range(KINDS))},
                        "spent": {**number, "domain": "learn"},
                    },
                    "keys": {
                        "user": {
                            "columns": ["user"],
                            "references": "users",
                            "target": ["id"],
                            "role": "owning",
                            "max_degree": bound,
                        }
                    },
                },
            },
        }
    )


def test_a_bound_that_hides_nothing_costs_next_to_nothing():
    """With plain counts, noise of a thousand orders would be several times all orders there are."""
    source = town()
    model = dw.fit(source, plan(1000), epsilon=1.0, delta=1e-6, insecure_seed=1)
    assert model.release.find_unit_sums("tables:orders")
    assert model.release.find_unit_sums("links:orders.user")
    assert not model.release.find("tables:orders")
    limit = allocate(plan(1000), epsilon=1.0, delta=1e-6)
    assert model.certificate.rho <= limit.rho
    assert model.certificate.rho == pytest.approx(limit.rho, rel=1e-6)
    made, real = model.sample(seed=1).to_pandas()["orders"], source["orders"]
    assert len(made) == pytest.approx(len(real), rel=0.15)
    for column, most in (("kind", 0.2), ("spent", 0.5)):  # of the amounts, which are learned, rare ones drown
        shares = [t[column].value_counts(normalize=True) for t in (made, real)]
        assert shares[0].sub(shares[1], fill_value=0).abs().sum() < most


def test_links_to_owners_lean_as_they_do():
    model = dw.fit(town(), plan(1000), epsilon=4.0, delta=1e-6, insecure_seed=2)
    db = model.sample(seed=0).to_pandas()
    made = db["orders"].merge(db["users"], left_on="user", right_on="id")
    of = [(made[made.sex == s].kind == 0).mean() for s in (0, 1)]
    assert of[1] - of[0] == pytest.approx(0.2, abs=0.07)


def test_a_saved_model_makes_the_same_copy(tmp_path):
    model = dw.fit(town(), plan(50), epsilon=1.0, delta=1e-6, insecure_seed=3)
    model.save(tmp_path / "model.dpw")
    again = dw.load(tmp_path / "model.dpw")
    one, two = (m.sample(seed=4).to_pandas()["orders"] for m in (model, again))
    pd.testing.assert_frame_equal(one, two)


def test_explain_foretells_the_noise_of_a_large_unit_and_not_of_the_bound():
    low, high = (
        next(s.sigma for s in plan(b).explain(epsilon=1.0, delta=1e-6).budget if s.task == "tables:orders")
        for b in (100, 1000)
    )
    assert low < high < 1000 / 100 * low
