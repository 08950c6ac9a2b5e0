"""What the row before says depends on one unit: brute force over neighbours, engines, and a bug that is caught."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import ibis
import numpy as np
import pytest

from dpweave.errors import UsageError
from dpweave.privacy.bounding import Bounding
from dpweave.privacy.counts import Counts
from dpweave.privacy.sensitivity import movement, stays
from dpweave.privacy.unit_sums import grid
from dpweave.privacy.window import UnitMoments
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import Attribute, Bins, Categories, View, earlier, parse_earlier
from tests.engine_counts import both_ways, engine_counts, engine_order, open_frames, open_sqlite, seen_cells
from tests.oracle import (
    CAP,
    World,
    bound,
    count,
    distances,
    entity_neighbours,
    make_promise,
    ordered_view,
    random_world,
    rows_by_unit,
)


def _ordered_world(seed: int, *, most: int = 8, share: float = 0.0) -> tuple[World, View, tuple[str, ...]] | None:
    """A random world in which some values that rows are ordered by are null, or None."""
    rng = random.Random(seed)
    world = random_world(rng, "entity", most=most, share=share)
    seen = ordered_view(rng, world)
    if seen is None:
        return None
    view, columns = seen
    table = world.promise.graph.walk(view.base, view.columns[0][1].path)
    for row in world.rows[table].values():
        for value in world.values[table]:
            if rng.random() < 0.2:
                row[value] = None
    return world, view, columns


def _telling_worlds(seeds: range, *, most: int) -> list[tuple[int, World, View, tuple[str, ...]]]:
    """Those in which at least two rows are told something."""
    out = []
    for seed in seeds:
        found = _ordered_world(seed, most=most)
        if found is not None:
            world, view, columns = found
            cells = count(bound(world.rows, world.promise, world.order), world.promise, view, columns)
            if sum(n for cell, n in cells.items() if any(v >= 0 for v in cell)) > 1:
                out.append((seed, *found))
    return out


@pytest.mark.parametrize("share", [0.0, 0.6])
@pytest.mark.parametrize("chunk", range(4))
def test_no_other_unit_hears_of_a_unit_that_goes(chunk, share):
    """Thousands of pairs: rows of other units say the same, and a marginal moves no more than the calculus says."""
    pairs = moved = 0
    for seed in range(1000 * chunk, 1000 * chunk + 300):
        found = _ordered_world(seed, share=share)
        if found is None:
            continue
        world, view, columns = found
        promise = world.promise
        here = bound(world.rows, promise, world.order)
        before, staying = count(here, promise, view, columns), stays(promise, view, columns)
        mine = rows_by_unit(here, promise, view, columns) if staying and promise.chain(view.base) else {}
        for unit, other in entity_neighbours(world.rows, promise):
            there = bound(other, promise, world.order)
            limit = movement(promise, view, columns, unit)
            l1, square = distances(before, count(there, promise, view, columns))
            assert l1 <= limit.l1, (seed, view, columns)
            assert square <= limit.l2**2 + 1e-9, (seed, view, columns)
            pairs, moved = pairs + 1, moved + (l1 > 0)
            if mine:
                theirs = rows_by_unit(there, promise, view, columns)
                changed = [u for u in {*mine, *theirs} if sorted(mine.get(u, [])) != sorted(theirs.get(u, []))]
                assert len(changed) <= 1, (seed, view, columns)
                assert not any(u in theirs for u in changed)
    assert pairs > 600
    assert moved > 100


def _declare(counts: Counts, world: World, view: View) -> None:
    for _, attribute in view.columns:
        said = parse_earlier(attribute.column)
        if said is not None:
            table = world.promise.graph.walk(view.base, attribute.path)
            domain = Bins(tuple(range(CAP + 2))) if said[0] == said[1] else Categories(tuple(range(world.size)))
            counts.set_codec(table, attribute.column, Codec(Column(attribute.column, Type("integer")), domain))


@pytest.mark.parametrize("opens", ["frames", "sqlite"])
def test_engines_agree_with_the_oracle(opens, tmp_path):
    told = 0
    for seed, world, view, columns in _telling_worlds(range(5000, 5100), most=8):
        path = tmp_path / f"{seed}.sqlite"
        with (
            open_frames(world.rows, world.promise)
            if opens == "frames"
            else open_sqlite(world.rows, world.promise, path)
        ) as source:
            counts, bounding = engine_counts(source, world, salt=str(seed))
            _declare(counts, world, view)
            truth = bound(world.rows, world.promise, engine_order(bounding, world.rows))
            expected = count(truth, world.promise, view, columns)
            ways = both_ways(counts, view, columns) if opens == "frames" else counts.marginals(view, [columns])
            for way in ways:
                assert seen_cells(counts, view, columns, way) == expected, (seed, view, columns)
            told += sum(n for cell, n in expected.items() if any(v >= 0 for v in cell))
    assert told > 20


def _worst(seeds: range) -> float:
    """How far one unit moves the moments of rows with those before them, at most, over what it may."""
    worst = 0.0
    for seed, world, view, columns in _telling_worlds(seeds, most=9):
        if view.columns[0][1].path:
            continue
        own = world.promise.chain(view.base)[0][1]
        view = View(view.base, (*view.columns, ("there", Attribute("#" + view.base + "." + own, (own,)))))
        if not stays(world.promise, view, (*columns, "there")):
            continue

        def moments(rows: Any, world: World = world, view: View = view, own: str = own, seed: int = seed) -> Any:
            with open_frames(rows, world.promise) as source:
                counts, _ = engine_counts(source, replace(world, rows=rows), salt=str(seed))
                _declare(counts, world, view)
                sizes = {c: counts.codec(view, c).size for c in view.attribute}
                centres = tuple((c, (1 / n,) * n) for c, n in sizes.items())
                names = list(sizes)
                pairs = tuple((a, b) for i, a in enumerate(names) for b in names[i:])
                asked = UnitMoments(world.promise.database[view.base].key[own].target, centres, pairs, (), 0.5)
                most = world.promise.bounds[view.base, own]
                return counts.unit_moments(view, asked, most_rows=most), grid(asked.clip)[1]

        before, most = moments(world.rows)
        for _, other in list(entity_neighbours(world.rows, world.promise))[:3]:
            worst = max(worst, float(((before - moments(other)[0]) ** 2).sum()) / most**2)
    return worst


def test_no_unit_moves_moments_of_rows_and_those_before_them_further_than_the_clip():
    assert 0.99 < _worst(range(7000, 7060)) <= 1


def test_a_row_before_of_another_owner_is_caught(monkeypatch):
    """The same test finds it if the order runs through the rows of all owners."""

    def through_all(bounding: Bounding, table: str, column: str, order: str) -> Any:
        whole, linked = bounding.rows(table), bounding.linked(table)
        time, value = (whole[bounding.column_name(table, c)] for c in (order, column))
        rows = linked.inner_join(
            says := whole.select(there=whole.rid, time=time, value=value).view(), linked.rid == says.there
        )
        by = [rows.time, *bounding.order(table, rows)]
        told = rows.value.lag().over(ibis.window(order_by=by))
        return rows.select("rid", said=rows.value - told if column == order else told)

    monkeypatch.setattr(Bounding, "row_before", through_all)
    assert _worst(range(7000, 7060)) > 1.01


def _promise(neighbours: str = "entity", **more: Any) -> Any:
    tables = {"users": (("x",), {}), "visits": (("x", "y"), {"user": "users", "by": "users"})}
    return make_promise(
        tables,
        protect=("users",),
        owning={"visits": "user"},
        bounds={("visits", "user"): 3, ("visits", "by"): 3},
        neighbours=neighbours,
        **more,
    )


def test_nobody_is_told_what_no_row_of_the_unit_may_say():
    def asked(column: str, order: str, base: str = "visits") -> View:
        return View(base, (("said", Attribute(earlier(column, order))),))

    assert stays(_promise(), asked("x", "y"), ("said",))
    assert stays(_promise(), asked("id", "id"), ("said",))
    shared = _promise(shared=frozenset({("visits", "by")}))
    for promise, view in (
        (_promise("record"), asked("x", "y")),
        (shared, asked("x", "y")),  # who is blank depends on others
        (_promise(), asked("by", "y")),  # values of keys are never counted
        (_promise(), asked("x", "nothing")),
        (_promise(), asked("nothing", "y")),
        (_promise(), asked("x", "x", base="users")),
    ):
        with pytest.raises(UsageError):
            movement(promise, view, ("said",), "users")


def test_rows_of_any_times_are_told_something():
    """Nulls, the ends of time, numbers too large to subtract: no error, and gaps that are never below zero."""
    import datetime as dt

    import pyarrow as pa

    from dpweave.engines.opening import open_source
    from dpweave.privacy.promise import Promise
    from dpweave.schema.database import Database, ForeignKey, Table

    kinds = {"day": Type("date"), "at": Type("timestamp"), "nr": Type("integer")}
    table = Table(
        "visits",
        (
            Column("id", Type("integer"), nullable=False),
            Column("user", Type("integer")),
            *map(Column, kinds, kinds.values()),
        ),
        primary_key=("id",),
        foreign_keys=(ForeignKey(("user",), "users", ("id",)),),
    )
    users = Table("users", (Column("id", Type("integer"), nullable=False),), primary_key=("id",))
    promise = Promise(
        Database((users, table)),
        ("users",),
        frozenset(),
        {"visits": "user"},
        {("visits", "user"): 9},
        "entity",
        "refuse",
    )
    rows = {
        "id": range(6),
        "user": [1, 1, 1, 1, 1, None],
        "day": [
            dt.date(9999, 12, 31),
            None,
            dt.date(1, 1, 1),
            dt.date(2020, 1, 1),
            dt.date(2020, 1, 1),
            dt.date(2020, 1, 3),
        ],
        "at": [dt.datetime(2262, 1, 1), None, dt.datetime(1678, 1, 1), *[dt.datetime(2020, 1, 1, 0, 0, 1)] * 3],
        "nr": [2**63 - 1, None, -(2**63), 5, 5, 7],
    }
    frames = {"users": pa.table({"id": [1]}), "visits": pa.table({k: list(v) for k, v in rows.items()})}
    with open_source(frames) as source:
        source.declare(promise.database)
        counts = Counts(bounding := Bounding(source, promise, salt="s"))
        for order in kinds:
            said = source.fetch(bounding.row_before("visits", order, order)).sort_by("rid")["said"].to_pylist()
            assert said[1] is said[2] is said[5] is None
            assert 0 in said[3:5]
            assert all(gap > 2**16 for gap in (said[0], max(said[3:5])))
            name = earlier(order, order)
            counts.set_codec("visits", name, Codec(Column(name, Type("integer")), Bins((0, 1, 2))))
            (found,) = counts.marginals(View.of_table("visits", (name,)), [(name,)])
            assert np.array_equal(found, [1, 2, 3])
