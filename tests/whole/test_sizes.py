"""Numbers of rows: all counts of a table together stay near the best of them, and
degrees that are drawn add up to them.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

import dpweave as dw
from dpweave.budget.tasks import Task
from dpweave.fitting.measured_sizes import known_sizes
from dpweave.plan.plan import Plan
from dpweave.privacy.release import Measured, Release
from dpweave.privacy.window import NoisyMarginal
from dpweave.schema.domain import View

USERS = 1000
BOUNDS = {"plays": 800, "visits": 100, "badges": 20, "lines": 5}
OWNERS = {"plays": "users", "visits": "users", "badges": "users", "lines": "visits"}
SEEDS = range(6)
pytestmark = pytest.mark.slow


@cache
def arcade():
    """Users whose rows are mostly those of few: most have one play, the others up to
    800; visits with a long tail, lines of visits, few badges.
    """
    rng = np.random.default_rng(0)
    tables = {"users": pd.DataFrame({"id": np.arange(USERS), "kind": rng.integers(0, 3, USERS)})}
    degrees = {
        "plays": np.where(rng.random(USERS) < 0.85, 1, np.exp(rng.uniform(4.5, 6.68, USERS))).astype(int),
        "visits": np.minimum(rng.zipf(1.5, USERS), BOUNDS["visits"]),
        "badges": rng.integers(1, 4, USERS),
    }
    for name, each in degrees.items():
        tables[name] = _owned(np.arange(USERS), each, rng)
    tables["lines"] = _owned(tables["visits"].id.to_numpy(), rng.integers(1, 4, len(tables["visits"])), rng)
    return tables


def _owned(owners, degrees, rng):
    owner = np.repeat(owners, degrees)
    return pd.DataFrame({"id": np.arange(len(owner)), "owner": owner, "colour": rng.integers(0, 4, len(owner))})


def arcade_plan():
    number = {"type": "int64", "nullable": False}
    own = {"id": {**number, "domain": "key"}, "colour": {**number, "domain": [0, 1, 2, 3]}}
    tables = {
        name: {
            "primary_key": ["id"],
            "columns": {**own, "owner": {**number, "domain": "key"}},
            "keys": {
                "owner": {
                    "columns": ["owner"],
                    "references": OWNERS[name],
                    "target": ["id"],
                    "role": "owning",
                    "max_degree": bound,
                }
            },
        }
        for name, bound in BOUNDS.items()
    }
    users = {"id": {**number, "domain": "key"}, "kind": {**number, "domain": [0, 1, 2]}}
    tables["users"] = {"primary_key": ["id"], "columns": users}
    return Plan.from_dict({"version": 1, "protect": ["users"], "tables": tables})


@cache
def fitted(epsilon, seed):
    return dw.fit(arcade(), arcade_plan(), epsilon=epsilon, delta=1e-6, insecure_seed=seed)


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_no_table_loses_its_rows_to_what_noise_hides_of_degrees(epsilon):
    """Degrees that stood out of noise were taken for all there are: tables came out
    with a tenth of their rows, by chance.
    """
    real = arcade()
    for seed in SEEDS:
        model = fitted(epsilon, seed)
        for table in BOUNDS:
            (direct,) = model.release.find(Task("sizes", table).name)
            used, rows, band = model.sizes[table], len(real[table]), 4 * direct.sigma
            assert abs(used - max(float(direct.counts), 0.0)) <= band
            assert abs(used - rows) <= band
            if band < rows / 2:
                assert used > rows / 2


def test_there_are_no_fewer_rows_than_a_plan_says_that_owners_have():
    """Noise in lines may be as large as their number; each visit has two."""
    release = Release()
    for name, (rows, sigma) in {
        "users": (1000, 10.0),
        "plays": (5000, 100.0),
        "visits": (4000, 100.0),
        "badges": (2000, 50.0),
        "lines": (900, 5000.0),
    }.items():
        counted = NoisyMarginal((), np.array(rows), sigma)
        release.measured.append(Measured(Task("sizes", name).name, View.of_table(name, ()), (), counted))
    given = arcade_plan().to_dict()
    given["tables"]["lines"]["keys"]["owner"]["min_degree"] = 2
    plain, least = (known_sizes(plan.compile(), release, {}) for plan in (arcade_plan(), Plan.from_dict(given)))
    assert (plain["lines"].rows, least["lines"].rows) == (900, 8000)
    assert {n: r for n, r in plain.items() if n != "lines"} == {n: r for n, r in least.items() if n != "lines"}


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_degrees_add_up_to_sizes(epsilon):
    """Of each owner's rows bounds leave as many as the sizes say, in every copy, up to
    the error of degrees where sizes are known by them.
    """
    for seed in SEEDS:
        model = fitted(epsilon, seed)
        db = model.sample(seed=seed)
        for table, bound in BOUNDS.items():
            _, degrees = np.unique(db[table]["owner"].to_numpy(), return_counts=True)
            # Where nothing but their sum is known of degrees, that sum is met, however many owners a copy has.
            alone = model.blueprint.only_total(table, "owner")
            times = 1.0 if alone is not None else db[OWNERS[table]].num_rows / model.sizes[OWNERS[table]]
            size = model.sizes[table] if alone is None else model.blueprint.counted_total(table, "owner")
            expected = min(size * times, bound * db[OWNERS[table]].num_rows)
            room = model.blueprint.loose[table] * times + 0.05 * expected + 5
            assert abs(np.minimum(degrees, bound).sum() - expected) <= room
