"""Rows in an order, in lives that are anything but usual: no error, and nothing is lost."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import dpweave as dw
from dpweave.measure.per_unit import order_moments

if TYPE_CHECKING:
    from collections.abc import Callable

BEGIN = dt.date(2020, 1, 1)
KEY = {"type": "integer", "nullable": False, "domain": "key"}
PEOPLE = 300
RNG = np.random.default_rng


def plan(*, bound: int = 8, tables: tuple[str, ...] = ("visits",), bins: int = 12) -> dw.Plan:
    """People with rows in some tables, all of them ordered by a day that may be null."""
    when = {"type": "date", "nullable": True, "domain": {"low": BEGIN, "high": dt.date(2022, 12, 31), "bins": bins}}
    link = {"columns": ["who"], "references": "people", "target": ["id"], "role": "owning", "order_by": "came"}
    child = {
        "primary_key": ["id"],
        "columns": {
            "id": KEY,
            "who": KEY,
            "came": when,
            "state": {"type": "text", "nullable": False, "domain": ["a", "b", "c"]},
        },
        "keys": {"who": {**link, "max_degree": bound, "degree_cap": bound}},
    }
    people = {
        "primary_key": ["id"],
        "columns": {"id": KEY, "kind": {"type": "integer", "nullable": False, "domain": [0, 1]}},
    }
    return dw.Plan.from_dict({"protect": ["people"], "tables": {"people": people, **dict.fromkeys(tables, child)}})


def visits(who: Any, days: Any, seed: int = 0) -> pa.Table:
    """One row for each of ``who``; a day below 0 is null."""
    came = [None if d < 0 else BEGIN + dt.timedelta(days=int(d)) for d in days]
    state = RNG(seed).choice(["a", "b", "c"], len(came))
    types = pa.schema([("id", pa.int64()), ("who", pa.int64()), ("came", pa.date32()), ("state", pa.string())])
    return pa.table([np.arange(len(came)), who, came, state], schema=types)


def people(count: int = PEOPLE) -> pa.Table:
    return pa.table({"id": np.arange(count), "kind": np.arange(count) % 2})


def several(seed: int = 0) -> Any:
    return np.repeat(np.arange(PEOPLE), RNG(seed).integers(0, 6, PEOPLE))


def few_rows(seed: int, low: int, high: int) -> dict[str, pa.Table]:
    who = several(seed)
    return {"people": people(), "visits": visits(who, RNG(seed).integers(low, high, len(who)))}


CASES: dict[str, tuple[dw.Plan, Callable[[], dict[str, pa.Table]]]] = {
    "units of one row": (
        plan(bound=1),
        lambda: {"people": people(), "visits": visits(np.arange(PEOPLE), np.arange(PEOPLE))},
    ),
    "all at one instant": (plan(), lambda: few_rows(0, 500, 501)),
    "some times null": (plan(), lambda: few_rows(0, -400, 600)),
    "all times null": (plan(), lambda: few_rows(0, -1, 0)),
    "one bin": (plan(bins=1), lambda: few_rows(0, 0, 1000)),
    "no rows": (plan(), lambda: {"people": people(), "visits": visits([], [])}),
    "no units": (plan(), lambda: {"people": people(0), "visits": visits([], [])}),
    "units of very many rows": (
        plan(bound=10_000),
        lambda: {
            "people": people(40),
            "visits": visits(np.append(np.zeros(10_000), range(1, 40)), RNG(0).integers(0, 900, 10_039)),
        },
    ),
    "two tables with times": (
        plan(tables=("visits", "stays")),
        lambda: {**few_rows(0, 0, 1000), "stays": few_rows(1, 200, 800)["visits"]},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_lost(name: str) -> None:
    """At an epsilon that hides next to nothing, a copy has the rows, values and moments that it should."""
    ordered, real = CASES[name][0], CASES[name][1]()
    copy = dw.fit(real, ordered, epsilon=200.0, delta=1e-6, insecure_seed=0).sample(seed=0)
    for table, rows in real.items():
        # Noise that hides one owner of thousands of rows hides a part of all rows.
        near = 0.25 if "very many" in name else 0.05
        assert copy[table].num_rows == pytest.approx(rows.num_rows, rel=near, abs=5), table
        if table != "people" and rows.num_rows:
            was, now = rows.to_pandas(), copy[table].to_pandas()
            assert now.came.isna().mean() == pytest.approx(was.came.isna().mean(), abs=near)
            largest = [int(x.groupby("who").size().max()) for x in (was, now)]
            assert largest[1] <= 1.3 * largest[0] + 1
            days = [np.sort(x.came.dropna().map(lambda d: (d - BEGIN).days).to_numpy()) for x in (was, now)]
            if len(days[0]) and near < 0.1:
                middle = [float(np.median(d)) for d in days]
                assert middle[1] == pytest.approx(middle[0], abs=100)


def test_the_time_may_be_left_out_where_there_is_no_room_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_moments, "MOST_WIDTH", 30)
    who = several()
    weekly = 300 + 7 * (np.arange(len(who)) - np.searchsorted(who, who)) + who
    model = dw.fit(
        {"people": people(), "visits": visits(who, weekly)}, plan(bins=40), epsilon=20.0, delta=1e-6, insecure_seed=0
    )
    asked = next(m.noisy.moments for m in model.release.moments if m.what.endswith(":order"))
    assert "came" not in dict(asked.centres)
    assert model.sample(seed=0)["visits"].num_rows > 0
