"""The plans in examples/plans: they load, and are drafts with a handful of edited lines."""

from __future__ import annotations

import difflib
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

import dpweave as dw
from dpweave.budget.allocation import allocate
from dpweave.plan.plan import Plan

ROOT = Path(__file__).parents[1]
PLANS = sorted((ROOT / "examples" / "plans").glob("*.toml"))
DATA = Path(os.environ.get("DPWEAVE_DATA", ROOT.parent / "shared" / "data"))
HANDFUL = 10


def source_of(name: str) -> object:
    if name == "movielens":
        import pyarrow.parquet as pq

        folder = DATA / "movielens"
        found = [folder / f"{t}.parquet" for t in ("users", "movies", "ratings")]
        return {p.stem: pq.read_schema(p).empty_table() for p in found} if folder.is_dir() else None
    path = DATA / f"{name}.sqlite"
    return path if path.exists() else None


def test_every_database_has_a_plan():
    assert [p.stem for p in PLANS] == ["census", "chinook", "movielens", "oulad", "pedigree", "sakila", "tpch"]


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.stem)
def test_a_plan_loads_and_explains_itself(path):
    plan = Plan.load(path)
    said = plan.explain(epsilon=4.0, delta=1e-6)
    assert said.budget
    for unit in plan.protect:
        assert sum(Fraction(s.rho) for s in said.budget if unit in s.touches) <= said.rho


@pytest.mark.parametrize("name", ["census", "movielens", "oulad", "sakila"])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_a_tenth_for_domains_is_enough_for_most_plans(name, epsilon):
    plan = next(Plan.load(p) for p in PLANS if p.stem == name)
    declared, needed = (replace(plan, shares=replace(plan.shares, domains=share)) for share in (0.1, None))
    assert allocate(needed, epsilon=epsilon, delta=1e-6) == allocate(declared, epsilon=epsilon, delta=1e-6)


@pytest.mark.data
@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.stem)
def test_a_plan_is_a_draft_with_a_handful_of_edited_lines(path):
    source = source_of(path.stem)
    if source is None:
        pytest.skip(f"no data for {path.stem} in {DATA}; set DPWEAVE_DATA")
    plan = Plan.load(path)
    draft = dw.Plan.draft(source, protect=plan.protect, public=plan.public, neighbours=plan.neighbours)
    plan.require(draft.database)
    lines = difflib.unified_diff(draft.to_toml().splitlines(), plan.to_toml().splitlines(), n=0, lineterm="")
    edited = [line for line in lines if line.startswith("+") and not line.startswith("+++")]
    assert len(edited) <= HANDFUL, edited
