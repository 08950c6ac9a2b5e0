"""A mechanism from another package: installed as pip would leave it, named in a plan, fitted, saved, sampled."""

from __future__ import annotations

import importlib
import sys
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

import dpweave as dw
from dpweave.budget.allocation import allocate
from dpweave.errors import PlanError
from dpweave.plan.mechanisms import registered
from dpweave.plan.plan import Plan

if TYPE_CHECKING:
    from pathlib import Path

MODULE = '''
from dataclasses import dataclass

import numpy as np

from dpweave.tables.base import Purse, Registration


@dataclass(frozen=True)
class Fair:
    """Every code equally likely; only the number of rows is measured."""

    shape: dict
    rows: float

    def marginal(self, columns):
        sizes = [self.shape[c] for c in columns]
        return np.full(sizes, self.rows / np.prod(sizes))

    def sample(self, rows, rng):
        return {c: rng.integers(0, n, rows) for c, n in self.shape.items()}

    def state(self):
        return {"shape": self.shape, "rows": self.rows}, {}


class FairModel:
    name = "fair"

    def fit(self, window, *, rho, rows, structure, progress):
        purse = Purse(rho)
        (total,) = window.measure([()], rho=purse.rest())
        return Fair(dict(window.shape), max(float(total.counts), 0.0))


REGISTRATION = Registration(make=FairModel, restore=lambda state, arrays: Fair(**state))
'''
PLAN = """
protect = ["people"]
[tables.people]
primary_key = ["id"]
mechanism = "fair"
[tables.people.columns]
id = { type = "int64", nullable = false, domain = "key" }
sex = { type = "text", nullable = false, domain = ["f", "m"] }
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a tiny distribution on the path, with its metadata beside it."""
    (tmp_path / "fair_tables.py").write_text(MODULE)
    info = tmp_path / "fair_tables-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fair-tables\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dpweave.table_models]\nfair = fair_tables:REGISTRATION\nunfair = fair_tables:FairModel\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, "fair_tables", raising=False)


def test_without_the_package_the_name_is_refused() -> None:
    with pytest.raises(PlanError, match="mechanism 'fair' that does not exist"):
        Plan.from_toml(PLAN)


@pytest.mark.usefixtures("installed")
def test_a_package_registers_a_mechanism(tmp_path: Path) -> None:
    assert {"fair", "unfair"} <= set(registered())
    plan = Plan.from_toml(PLAN)
    people = pa.table({"id": np.arange(400), "sex": ["f"] * 400})
    model = dw.fit({"people": people}, plan, epsilon=1.0, delta=1e-6, insecure_seed=1)
    assert dict(model.mechanisms) == {"people": "fair"}
    share = next(rho for task, rho in allocate(plan, epsilon=1.0, delta=1e-6).tasks.items() if task.group == "tables")
    spent = [Fraction(e["rho"]["people"]) for e in model.certificate.events if e["what"] == "tables:people"]
    assert sum(spent) == Fraction(share)
    model.save(tmp_path / "m.dpw")
    drawn = dw.load(tmp_path / "m.dpw").sample(seed=1)["people"]["sex"].to_pylist()
    assert drawn == model.sample(seed=1)["people"]["sex"].to_pylist()
    assert 100 < drawn.count("m") < 300  # out of some 400; the real rows have none


@pytest.mark.usefixtures("installed")
def test_an_entry_point_that_is_no_registration_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    plan = Plan.from_toml(PLAN.replace('"fair"', '"unfair"'))
    people = pa.table({"id": np.arange(400), "sex": ["f"] * 400})
    with pytest.raises(PlanError, match=r"'unfair' of dpweave\.table_models is not a"):
        dw.fit({"people": people}, plan, epsilon=1.0, delta=1e-6, ledger=tmp_path / "ledger.jsonl")
    assert not (tmp_path / "ledger.jsonl").exists()
