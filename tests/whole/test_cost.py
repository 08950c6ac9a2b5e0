"""Fitting costs as much as there is to fit: linear in the number of tables of a chain, and in rows."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

import dpweave as dw
from dpweave.plan.entries import ColumnPlan, KeyPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.schema.database import Column, ForeignKey, Type
from dpweave.schema.domain import Categories

pytestmark = pytest.mark.slow


def chain(tables: int, rows: int) -> tuple[Plan, dict[str, pa.Table]]:
    """Each table leads to the one before; the first is protected."""
    rng = np.random.default_rng(0)
    whole = Type("integer")
    planned, frames = [], {}
    for i in range(tables):
        columns = [ColumnPlan(Column("id", whole, nullable=False), None)]
        columns += [ColumnPlan(Column(c, whole, nullable=False), Categories((0, 1, 2))) for c in "ab"]
        frame = {"id": np.arange(rows), **{c: rng.integers(0, 3, rows) for c in "ab"}}
        keys = ()
        if i:
            columns.append(ColumnPlan(Column("up", whole, nullable=False), None))
            frame["up"] = np.arange(rows)
            keys = (KeyPlan(ForeignKey(("up",), f"t{i - 1}", ("id",), "up"), "owning", 1, degree_cap=2),)
        planned.append(TablePlan(f"t{i}", tuple(columns), ("id",), keys=keys, mechanism="independent"))
        frames[f"t{i}"] = pa.table(frame)
    return Plan(tuple(planned), protect=("t0",), k=2), frames


def cost(tables: int, rows: int) -> float:
    """CPU seconds of a fit."""
    plan, frames = chain(tables, rows)
    start = time.process_time()
    dw.fit(frames, plan, epsilon=10.0, delta=1e-6, insecure_seed=0)
    return time.process_time() - start


def test_a_chain_of_thirty_tables_costs_ten_times_one_of_three():
    cost(3, 50)  # imports and compilation
    few, some, many = (cost(n, 200) for n in (3, 10, 30))
    # A table more costs 0.4 to 0.5 s here, whatever the length; a quadratic part would make it three times as much.
    assert (many - some) / 20 < 2.5 * max(some - few, some / 2) / 7, (few, some, many)


def test_rows_cost_no_more_than_in_proportion():
    cost(3, 50)
    few, many = cost(3, 20_000), cost(3, 320_000)
    assert many < 2 * 16 * few, (few, many)
