"""Check, charge, then read: an exhausted ledger fails before a row is touched, and a
charge stands even if reading fails.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from dpweave.budget.spending import read
from dpweave.errors import BudgetError, PlanError, UsageError
from dpweave.privacy.accounting import Budget
from dpweave.privacy.curator import Curator
from dpweave.privacy.ledger import Ledger
from dpweave.privacy.release import Release
from dpweave.privacy.window import Candidate, UnitSum
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import Attribute, Categories, View
from tests.engine_counts import open_frames
from tests.oracle import make_promise

TABLES = {"users": (("x",), {}), "orders": (("x",), {"user": "users"})}
PROMISE = make_promise(TABLES, protect=("users",), owning={"orders": "user"}, bounds={("orders", "user"): 2})
ROWS: dict[str, Any] = {"users": {0: {"x": 0}, 1: {"x": 1}}, "orders": {i: {"user": i % 2, "x": 0} for i in range(5)}}
ORDERS = View.of_table("orders", ("x",))
CODEC = Codec(Column("x", Type("integer"), nullable=False), Categories((0, 1)))


class Touched(Exception):
    """A row was read."""


class Tripwire:
    """A source that may be asked what it is, and raises as soon as a query runs."""

    def __init__(self, source: Any, log: list[str] | None = None) -> None:
        self._source = source
        self._log = log

    def __getattr__(self, name: str) -> Any:
        if name in ("fetch", "stream", "read", "materialise", "compile"):
            if self._log is None:
                raise Touched(name)
            self._log.append("read")
        return getattr(self._source, name)


class Watched:
    """A ledger that notes when it was charged."""

    def __init__(self, ledger: Ledger, log: list[str]) -> None:
        self._ledger = ledger
        self._log = log

    def charge(self, cost, *, what) -> None:
        self._ledger.charge(cost, what=what)
        self._log.append("charge")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


def _ledger(rho: float, delta: float = 0.0) -> Ledger:
    return Ledger.open(None, database="shop", limit=Budget(rho, delta), tables=("users",))


def _curator(source: Any, ledger: Any) -> Curator:
    curator = Curator(source, PROMISE, ledger=ledger)
    for table in TABLES:
        curator.set_codec(table, "x", CODEC)
    return curator


def _candidate() -> Candidate:
    return Candidate(("x",), np.zeros(2))


UNIT_SUMS = [UnitSum((), ((("x", 0),),), (1.0,), 1.0), UnitSum(("x",), ((),), (1.0,), 2.0)]
VERBS = {
    "measure": lambda c, rho: c.measure(ORDERS, [("x",), ()], what="m", rho=rho),
    "measure_unit_sums": lambda c, rho: c.measure_unit_sums(ORDERS, UNIT_SUMS, what="b", rho=rho),
    "select": lambda c, rho: c.select(ORDERS, [_candidate(), _candidate()], what="s", rho=rho, count=2),
    "discover": lambda c, rho: c.discover("orders", "x", what="d", rho=rho, delta=1e-6),
}


@pytest.mark.parametrize("verb", VERBS)
def test_an_exhausted_ledger_fails_before_rows_are_read(verb):
    curator = _curator(Tripwire(open_frames(ROWS, PROMISE)), _ledger(0.1, 1e-6))
    with pytest.raises(BudgetError, match="users"):
        VERBS[verb](curator, 0.2)
    assert curator.spent.rho == {}
    assert curator.release == Release()


@pytest.mark.parametrize("verb", VERBS)
def test_a_charge_stands_when_reading_fails(verb):
    ledger = _ledger(1.0, 1e-6)
    with pytest.raises(Touched):
        VERBS[verb](_curator(Tripwire(open_frames(ROWS, PROMISE)), ledger), 0.25)
    assert ledger.spent.rho["users"] == pytest.approx(0.25, rel=1e-12)


@pytest.mark.parametrize("verb", VERBS)
def test_the_charge_comes_first(verb):
    log: list[str] = []
    curator = _curator(Tripwire(open_frames(ROWS, PROMISE), log), Watched(_ledger(1.0, 1e-6), log))
    VERBS[verb](curator, 0.25)
    assert curator.release != Release()
    assert log[0] == "charge"
    assert log.count("charge") == 1
    assert "read" in log


def test_a_refused_delta_fails_before_rows_are_read():
    curator = _curator(Tripwire(open_frames(ROWS, PROMISE)), _ledger(1.0, 1e-7))
    with pytest.raises(BudgetError):
        curator.discover("orders", "x", what="d", rho=0.1, delta=1e-6)


@pytest.mark.parametrize("rho", [0.0, -1.0, float("nan"), float("inf"), "much"])
def test_bad_amounts_touch_neither_ledger_nor_rows(rho):
    ledger = _ledger(1.0, 1e-6)
    for verb in VERBS.values():
        with pytest.raises(UsageError):
            verb(_curator(Tripwire(open_frames(ROWS, PROMISE)), ledger), rho)
    assert ledger.spent.rho == {}


def test_bad_requests_touch_neither_ledger_nor_rows():
    ledger = _ledger(1.0)
    curator = _curator(Tripwire(open_frames(ROWS, PROMISE)), ledger)
    bad = [
        lambda: curator.measure(ORDERS, [("y",)], what="m", rho=0.1),
        lambda: curator.measure(ORDERS, [("x", "x")], what="m", rho=0.1),
        lambda: curator.measure(ORDERS, [("x",)], what="m", rho=0.1, weights=[0.0]),
        lambda: curator.select(ORDERS, [], what="s", rho=0.1),
        lambda: curator.select(ORDERS, [_candidate()], what="s", rho=0.1, count=2),
        lambda: curator.select(ORDERS, [Candidate(("x",), np.zeros(3))], what="s", rho=0.1),
        lambda: curator.select(ORDERS, [Candidate(("x",), np.array([0.0, np.nan]))], what="s", rho=0.1),
        lambda: curator.window(View.of_table("orders", ("id",)), name="w"),
    ]
    for request in bad:
        with pytest.raises(UsageError):
            request()
    for column in ("user",):
        with pytest.raises(PlanError, match="'user' of 'orders' belongs to the foreign key 'user'"):
            curator.set_codec("orders", column, CODEC)
        with pytest.raises(PlanError):
            curator.discover("orders", column, what="d", rho=0.1, delta=1e-6)
    assert ledger.spent.rho == {}


SHOPS = {
    "customers": (("x",), {}),
    "shops": (("x",), {}),
    "orders": (("x",), {"cust": "customers", "shop": "shops"}),
}


@pytest.mark.parametrize(
    ("base", "column", "path"),
    [
        ("shops", "#orders.cust", ()),  # counts orders of customers, by which no order leads to a shop
        ("orders", "#orders.cust", ("shop",)),
        ("customers", "#orders.shop", ()),
        ("shops", "#orders.nobody", ()),
        ("shops", "#nothing.cust", ()),
        ("shops", "?cust", ()),
        ("orders", "?shop", ("shop",)),
        ("customers", "=shop", ()),
        ("shops", "@cust", ()),
        ("shops", "y", ()),
    ],
)
@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("neighbours", ["entity", "record"])
def test_a_derived_column_of_another_table_touches_neither_ledger_nor_rows(base, column, path, public, neighbours):
    """Nothing is known of how far units move it, so no charge could be right."""
    promise = make_promise(
        SHOPS,
        protect=("customers",) if public else ("customers", "shops"),
        public=("shops",) if public else (),
        owning={"orders": "cust"},
        bounds={("orders", "cust"): 2, ("orders", "shop"): 3},
        neighbours=neighbours,
    )
    ledger = Ledger.open(None, database="shop", limit=Budget(1.0), tables=promise.protected)
    source = Tripwire(open_frames({table: {} for table in SHOPS}, promise))
    curator = Curator(source, promise, ledger=ledger)
    seen = promise.graph.walk(base, path)
    curator._counts.set_codec(seen, column, CODEC)
    view = View(base, (("c", Attribute(column, path)),))
    zeros = np.zeros(curator._counts.codec(view, "c").size)
    for request in (
        lambda: curator.measure(view, [("c",)], what="m", rho=0.1),
        lambda: curator.select(view, [Candidate(("c",), zeros)], what="s", rho=0.1),
    ):
        with pytest.raises(UsageError, match=re.escape(f"{seen!r} has no column {column!r}")):
            request()
    with pytest.raises(UsageError):  # some, as those over public rows, are refused for more than one reason
        curator.measure_unit_sums(view, [UnitSum((), ((("c", 0),),), (1.0,), 1.0)], what="b", rho=0.1)
    assert ledger.spent.rho == {}


def test_nothing_is_spent_on_public_rows():
    tables = {"users": (("x",), {}), "movies": (("x",), {})}
    promise = make_promise(tables, protect=("users",), public=("movies",))
    ledger = _ledger(1.0)
    curator = Curator(open_frames({"users": {}, "movies": {0: {"x": 0}}}, promise), promise, ledger=ledger)
    curator.set_codec("movies", "x", CODEC)
    with pytest.raises(UsageError, match="public"):
        curator.measure(View.of_table("movies", ("x",)), [("x",)], what="m", rho=0.1)
    with pytest.raises(UsageError, match="public"):
        curator.discover("movies", "x", what="m", rho=0.1, delta=1e-6)
    assert ledger.spent.rho == {}


KILLED = """
import os, signal, sys
from tests.privacy import test_budget_order as t

class Deadly(t.Tripwire):
    def __getattr__(self, name):
        if name in ("fetch", "materialise"):
            os.kill(os.getpid(), signal.SIGKILL)
        return getattr(self._source, name)

ledger = t.Ledger.open(sys.argv[1], database="shop", limit=t.Budget(1.0, 0.0), tables=("users",))
t._curator(Deadly(t.open_frames(t.ROWS, t.PROMISE)), ledger).measure(t.ORDERS, [("x",)], what="m", rho=0.25)
"""


def test_kill_between_charge_and_read_leaves_the_charge(tmp_path):
    path = tmp_path / "ledger.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    summary = read(path).databases["shop"]
    assert summary.total.rho["users"] == pytest.approx(0.25)
    assert json.loads(path.read_text().splitlines()[-1])["kind"] == "charge"
