"""Engines count exactly what the oracle counts: truncation, nulls, dangling keys, degrees, both ways of counting."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from dpweave.privacy.sensitivity import movement
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import Attribute, Bins, View
from tests.engine_counts import as_cells, both_ways, engine_counts, engine_order, open_frames, open_sqlite, seen_cells
from tests.oracle import (
    World,
    bound,
    count,
    distances,
    holds_bounds,
    make_promise,
    newcomer_view,
    random_view,
    random_world,
    unit_rows,
    without,
)


def _compare(source, world, rng, salt: str, *, views: int, in_engine: bool = True) -> int:
    counts, bounding = engine_counts(source, world, salt=salt)
    truth = bound(world.rows, world.promise, engine_order(bounding, world.rows))
    cut = sum(len(world.rows[t]) - len(truth.rows[t]) for t in world.rows)
    for _ in range(views):
        view, columns = random_view(rng, world)
        expected = Counter({c: n for c, n in count(truth, world.promise, view, columns).items() if n})
        for found in both_ways(counts, view, columns) if in_engine else counts.marginals(view, [columns]):
            assert seen_cells(counts, view, columns, found) + Counter() == expected, (view, columns)
    return cut


@pytest.mark.parametrize("share", [0.0, 0.6])
@pytest.mark.parametrize("chunk", range(4))
def test_duckdb_agrees_with_the_oracle(chunk, share):
    cut = 0
    for seed in range(10 * chunk, 10 * chunk + 10):
        rng = random.Random(seed)
        world = random_world(rng, "entity", most=9, share=share)
        with open_frames(world.rows, world.promise) as source:
            cut += _compare(source, world, rng, f"salt{seed}", views=3)
    assert cut > 3  # truncation was at work


@pytest.mark.parametrize("share", [0.0, 0.6])
def test_sqlite_agrees_with_the_oracle(tmp_path, share):
    cut = 0
    for seed in range(100, 115):
        rng = random.Random(seed)
        world = random_world(rng, "entity", most=9, share=share)
        with open_sqlite(world.rows, world.promise, tmp_path / f"{seed}.sqlite") as source:
            # Its rows are always counted in memory, and its parser gives up on the deepest queries of the other way.
            cut += _compare(source, world, rng, f"salt{seed}", views=3, in_engine=share == 0)
    assert cut > 3


def _crowded(rng: random.Random) -> World:
    """Owned rows, some without owner or target, that crowd onto three public rows."""
    tables = {
        "users": (("x",), {}),
        "movies": (("x",), {}),
        "ratings": (("x",), {"user": "users", "movie": "movies"}),
    }
    promise = make_promise(
        tables, protect=("users",), public=("movies",), owning={"ratings": "user"}, bounds={("ratings", "user"): 4}
    )
    rows = {
        "users": {i: {"x": i % 2} for i in range(3)},
        "movies": {10 + i: {"x": i % 2} for i in range(3)},
        "ratings": {
            i: {"user": rng.choice([0, 1, 2, None, 77]), "movie": rng.choice([10, 11, 12, None, 99]), "x": i % 2}
            for i in range(20)
        },
    }
    return World(promise, rows, {}, dict.fromkeys(rows, ("x",)), 2)


@pytest.mark.parametrize("opens", ["frames", "sqlite"])
@pytest.mark.parametrize("make", [_crowded, lambda rng: random_world(rng, "entity", most=9)], ids=["crowded", "random"])
def test_newcomers_agree_with_the_oracle(make, opens, tmp_path):
    """By the public row that is led to: each once for each owner, whatever engine and way of counting."""
    seen = left_out = 0
    for seed in range(400, 410 if make is _crowded else 460):
        rng = random.Random(seed)
        world = make(rng)
        looked = [v for _ in range(3) if (v := newcomer_view(rng, world)) is not None]
        path = tmp_path / f"{seed}.sqlite"
        if not looked:
            continue
        with (
            open_frames(world.rows, world.promise)
            if opens == "frames"
            else open_sqlite(world.rows, world.promise, path) as source
        ):
            counts, bounding = engine_counts(source, world, salt=str(seed))
            truth = bound(world.rows, world.promise, engine_order(bounding, world.rows))
            for view, columns in looked:
                keys = counts.codec(view, "a0").domain.values
                places = {key: i for i, key in enumerate(keys)}
                assert sorted(keys) == sorted(world.rows[world.promise.database[view.base].key[_led(view)].target])
                true = count(truth, world.promise, view, columns)
                expected = Counter({(places[c[0]], *c[1:]): n for c, n in true.items() if n})
                for found in both_ways(counts, view, columns):
                    assert seen_cells(counts, view, columns, found) + Counter() == expected, (seed, view, columns)
                linked = View(view.base, view.columns, ((_led(view),),))
                left_out += sum(count(truth, world.promise, linked, columns[1:]).values()) - sum(true.values())
                seen += sum(true.values())
    assert seen > 40
    assert left_out > 10 or make is not _crowded


def _led(view: View) -> str:
    return view.attribute["a0"].column[1:]


def test_record_without_and_with_truncation(tmp_path):
    wild = 0
    for seed in range(200, 215):
        rng = random.Random(seed)
        truncates = seed % 2 == 0
        world = random_world(rng, "record", on_excess="truncate" if truncates else "refuse", tame=not truncates)
        wild += not holds_bounds(world.rows, world.promise)
        opened = (
            open_frames(world.rows, world.promise)
            if seed % 3
            else open_sqlite(world.rows, world.promise, tmp_path / f"{seed}.sqlite")
        )
        with opened as source:
            _compare(source, world, rng, f"salt{seed}", views=3)
    assert wild >= 4


def test_cliques_counted_in_blocks_are_those_counted_alone(monkeypatch):
    """Large tables are counted by blocks of columns and of rows; here every table is large."""
    together = 0
    for seed in range(300, 312):
        rng = random.Random(seed)
        world = random_world(rng, "entity", most=9)
        view, columns = random_view(rng, world)
        cliques = [c for k in range(len(columns) + 1) for c in itertools.permutations(columns, k)]
        with open_frames(world.rows, world.promise) as source:
            counts, _ = engine_counts(source, world, salt="s")
            alone = counts.marginals(view, cliques)
            monkeypatch.setattr("dpweave.privacy.counts.MANY_ROWS", 0)
            monkeypatch.setattr("dpweave.privacy.counts.BLOCK_ROWS", 2)
            in_blocks = counts.marginals(view, cliques)
            monkeypatch.undo()
        together += len(cliques) > 2
        for clique, a, b in zip(cliques, alone, in_blocks, strict=True):
            assert np.array_equal(a, b), (view, clique)
    assert together > 3


def test_a_learned_domain_forgets_the_codes_of_its_column_alone():
    world = random_world(random.Random(5), "entity", most=9)
    table = next(t for t in world.values if world.values[t])
    column = world.values[table][0]
    view = View.of_table(table, (column,))
    with open_frames(world.rows, world.promise) as source:
        counts, _ = engine_counts(source, world, salt="s")
        (fine,) = counts.marginals(view, [(column,)])
        counts.set_codec(table, column, Codec(Column(column, Type("integer"), nullable=False), Bins((0, 100))))
        (coarse,) = counts.marginals(view, [(column,)])
    assert coarse.shape == (1,)
    assert coarse.sum() == fine.sum()


def test_order_depends_on_the_salt_and_on_nothing_else():
    world = random_world(random.Random(3), "entity", most=30)
    with open_frames(world.rows, world.promise) as source:
        first, again, other = (
            engine_order(engine_counts(source, world, salt=s)[1], world.rows) for s in ("a", "a", "b")
        )
    assert first == again != other
    table = world.promise.protected[0]
    gone = min(world.rows[table])
    fewer = {t: {i: r for i, r in rows.items() if (t, i) != (table, gone)} for t, rows in world.rows.items()}
    with open_frames(fewer, world.promise) as source:
        left = engine_order(engine_counts(source, world, salt="a")[1], fewer)
    by_first, by_left = sorted(left, key=lambda r: (r[0], first[r])), sorted(left, key=lambda r: (r[0], left[r]))
    assert by_first == by_left


@pytest.mark.parametrize("opens", ["frames", "sqlite"])
def test_repetition_follows_the_order_of_bounding_and_not_the_place_in_the_file(opens, tmp_path):
    """Each of users 1 and 2 rates one movie twice, of which user 0 may hold a place: a
    row that comes back repeats, and no other.
    """
    tables = {"users": ((), {}), "movies": ((), {}), "ratings": (("x",), {"user": "users", "movie": "movies"})}
    promise = make_promise(
        tables,
        protect=("users", "movies"),
        owning={"ratings": "user"},
        bounds={("ratings", "user"): 2, ("ratings", "movie"): 2},
    )
    who = [(1, 0, 0), (1, 0, 1), (0, 0, 2), (2, 1, 0), (2, 1, 1), (0, 1, 2)]
    rows = {
        "users": {i: {} for i in range(3)},
        "movies": {i: {} for i in range(2)},
        "ratings": {i: {"user": u, "movie": m, "x": x} for i, (u, m, x) in enumerate(who)},
    }
    less = without(rows, unit_rows(rows, promise, "users", 0))
    view = View("ratings", (("x", Attribute("x")), ("again", Attribute("=movie"))), (("movie",),))
    limit = movement(promise, view, ("x", "again"), "users")
    values = {"users": (), "movies": (), "ratings": ("x",)}

    def counted(database, salt):
        world = World(promise, database, {}, values, 3)
        path = tmp_path / f"{salt}-{len(database['users'])}.sqlite"
        with open_frames(database, promise) if opens == "frames" else open_sqlite(database, promise, path) as source:
            return as_cells(engine_counts(source, world, salt=salt)[0].marginals(view, [("x", "again")])[0])

    moves = [distances(counted(rows, salt), counted(less, salt))[0] for salt in map(str, range(8))]
    assert 0 < max(moves) <= limit.l1 == 4
