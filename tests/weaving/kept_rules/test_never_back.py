"""A status never goes back: in any rows, and in a copy of ones that do."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpweave as dw
from dpweave.errors import PlanError
from dpweave.model.coded_database import encode
from dpweave.plan.rules import NeverBack
from dpweave.report.integrity import check
from dpweave.weaving.kept_rules.never_back import going_back, lined_up

RULE = {"table": "visits", "never_back": "status"}
KEY = {"type": "integer", "nullable": False, "domain": "key"}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 3)), max_size=40))
def test_what_moves_grows_with_what_stays_and_stays_with_its_owner(rows: list[tuple[int, int, int]]) -> None:
    owner, still, moving = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    source = lined_up(owner, still, moving)
    assert sorted(source.tolist()) == list(range(len(rows)))
    assert (owner[source] == owner).all()
    found = sorted(zip(owner.tolist(), still.tolist(), moving[source].tolist(), strict=True))
    for (p, _, x), (q, _, y) in pairwise(found):
        assert p != q or x <= y


def plan(*, rules: list[dict[str, Any]], held: bool = False, order: bool = True, **status: Any) -> dw.Plan:
    """Visits of patients; where a rule holds times, values move instead."""
    when = {"type": "integer", "nullable": True, "domain": {"low": 0, "high": 99, "bins": 10}}
    link = {"columns": ["who"], "references": "patients", "target": ["id"], "role": "owning", "max_degree": 6}
    domain = {"type": "text", "nullable": True, "domain": ["new", "open", "closed"]} | status
    return dw.Plan.from_dict(
        {
            "protect": ["patients"],
            "constraints": [*rules, *([{"table": "visits", "lower": "came", "upper": "left"}] if held else [])],
            "tables": {
                "patients": {"primary_key": ["id"], "columns": {"id": KEY}},
                "visits": {
                    "primary_key": ["id"],
                    "columns": {
                        "id": KEY,
                        "who": KEY,
                        "came": when,
                        "left": when,
                        "status": domain,
                        "ward": {"type": "text", "nullable": False, "domain": ["a", "b"]},
                    },
                    "keys": {"who": {**link, "degree_cap": 8, **({"order_by": "came"} if order else {})}},
                },
            },
        }
    )


def clinic() -> dict[str, pa.Table]:
    rng = np.random.default_rng(0)
    status = rng.integers(0, 4, 600)
    ward = np.where(rng.random(600) < 0.9, status % 2, 1 - status % 2)
    return {
        "patients": pa.table({"id": list(range(200))}),
        "visits": pa.table(
            {
                "id": list(range(600)),
                "who": rng.integers(0, 200, 600).tolist(),
                "came": [None if i % 9 == 0 else int(t) for i, t in enumerate(rng.integers(0, 50, 600))],
                "left": rng.integers(50, 100, 600).tolist(),
                "status": [[None, "new", "open", "closed"][s] for s in status],
                "ward": [["a", "b"][w] for w in ward],
            }
        ),
    }


@pytest.mark.parametrize("held", [False, True])
def test_no_status_of_a_copy_goes_back(held: bool) -> None:
    ruled = plan(rules=[RULE], held=held)
    rule = ruled.constraints[0]
    assert isinstance(rule, NeverBack)
    assert going_back(ruled, rule, clinic(), encode(ruled, clinic()).links) > 50
    copies = {}
    for name, rules in (("ruled", [RULE]), ("free", [])):
        model = dw.fit(clinic(), plan(rules=rules, held=held), epsilon=20.0, delta=1e-6, insecure_seed=0)
        copies[name] = dict(model.sample(seed=0))
    ruled_rows, free = copies["ruled"]["visits"].to_pandas(), copies["free"]["visits"].to_pandas()
    order = ["new", "open", "closed"]
    for _, rows_of_one in ruled_rows.dropna(subset=["came", "status"]).groupby("who"):
        for a in rows_of_one.itertuples():
            for b in rows_of_one.itertuples():
                assert a.came >= b.came or order.index(a.status) <= order.index(b.status)
    found = encode(ruled, copies["ruled"])
    checks = [c for c in check(ruled, copies["ruled"], found, public={}) if c.rule == "declared rules"]
    assert len(checks) == 1 + held
    assert all(c.passed for c in checks)
    broken = [c for c in check(ruled, copies["free"], encode(ruled, copies["free"]), public={}) if "back" in c.where]
    assert not broken[0].passed
    # Nothing but the order changed: the same values, the same moments, and rows that say the same together.
    for column in ("came", "status", "ward"):
        assert sorted(map(str, ruled_rows[column])) == sorted(map(str, free[column]))
    if not held:
        one, two = (v.groupby(["status", "ward"], dropna=False).size().to_dict() for v in (ruled_rows, free))
        assert one == two


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: plan(rules=[RULE], order=False), "come in no order"),
        (lambda: plan(rules=[{"table": "visits", "never_back": "came"}]), "drop the rule"),
        (lambda: plan(rules=[RULE], domain="learn"), "have no order"),
        (lambda: plan(rules=[{"table": "visits", "never_back": "who"}]), "rules are for data"),
        (lambda: plan(rules=[{"table": "visits", "never_back": "state"}]), "no column 'state'"),
        (lambda: plan(rules=[RULE, {"table": "visits", "columns": ["ward"], "dependent": "status"}]), "both decide"),
        (lambda: plan(rules=[{"table": "visits", "never_back": "left"}], held=True), "both decide 'left'"),
    ],
)
def test_what_cannot_hold_is_refused(made: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        made()


def test_the_rule_is_written_as_it_was_read() -> None:
    ruled = plan(rules=[RULE])
    assert dw.Plan.from_dict(ruled.to_dict()) == ruled
