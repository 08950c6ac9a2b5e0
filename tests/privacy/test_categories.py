"""Learned categories: units, not rows, are counted where that is proved, and what one unit brings alone stays hidden
(docs/proofs, Theorem 9).
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from dpweave.engines.opening import open_source
from dpweave.privacy.accounting import Budget
from dpweave.privacy.bounding import Bounding
from dpweave.privacy.counts import Counts
from dpweave.privacy.curator import Curator
from dpweave.privacy.ledger import Ledger
from dpweave.privacy.noise import InsecureNoise, threshold_for
from dpweave.privacy.sensitivity import weighed
from dpweave.privacy.unit_sums import GRID, share
from tests.engine_counts import engine_order, open_frames, open_sqlite
from tests.oracle import (
    Bounded,
    Rows,
    World,
    bound,
    entity_neighbours,
    keys_of,
    make_promise,
    random_world,
    record_neighbour,
    units,
)
from tests.privacy.test_noise import exact_tail

if TYPE_CHECKING:
    from dpweave.privacy.promise import Promise

VALUES = 7
"""Categories that rows of a random world have: more than a unit may bring, or fewer."""


def _unit(bounded: Bounded, promise: Promise, table: str, ident: int) -> tuple[str, int]:
    """The row at the top: owners are followed until there is none."""
    while table not in promise.protected:
        owner, at = keys_of(promise, table)[promise.owning[table]], bounded.rows[table][ident][promise.owning[table]]
        if at not in bounded.rows[owner]:
            break
        table, ident = owner, at
    return table, ident


def _weights(bounded: Bounded, promise: Promise, table: str, column: str, length: int) -> Counter[str]:
    """Weights by their definition: the largest whole number whose square, k times, fits into that of the length."""
    own: dict[tuple[str, int], list[str]] = {}
    for ident, row in bounded.rows[table].items():
        if (table, ident) not in bounded.blank:
            unit = _unit(bounded, promise, table, ident) if length > 1 else (table, ident)
            own.setdefault(unit, []).append(str(row[column]))
    out: Counter[str] = Counter()
    for values in own.values():
        k = len(set(values))
        fits = next(w for w in range(math.ceil(length / math.sqrt(k)) + 1, -1, -1) if k * w * w <= length**2)
        out.update(dict.fromkeys(set(values), fits))
    return out


def _world(rng: random.Random, neighbours: str, *, most: int = 9) -> World:
    """A random world, with shared keys in every third, whose rows have many categories."""
    world = random_world(rng, neighbours, most=most, share=rng.choice([0.0, 0.0, 0.6]))
    many = rng.choice([1, 2, VALUES])
    for table, columns in world.values.items():
        for row in world.rows[table].values():
            row.update({c: rng.randrange(many) for c in columns})
    return world


def neighbours_moved(seeds: range, neighbours: str) -> Counter[str]:
    """Compare weights of every private table on random neighbours with what is claimed of them."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        rng = random.Random(seed)
        world = _world(rng, neighbours)
        promise = world.promise
        here = bound(world.rows, promise, world.order)
        if neighbours == "entity":
            others = entity_neighbours(world.rows, promise)
        else:
            others = (
                (root, record_neighbour(world.rows, promise, t, i, rng, values=world.values, size=VALUES))
                for root, t, i in units(world.rows, promise)
            )
        for root, other in others:
            order = {(t, i): world.order.get((t, i), rng.random()) for t in other for i in other[t]}
            there = bound(other, promise, order)
            for table in promise.private:
                of, column = weighed(promise, table), world.values[table][0]
                a, b = (_weights(x, promise, table, column, of.length) for x in (here, there))
                square, claim = sum((a[v] - b[v]) ** 2 for v in {*a, *b}), of.l2.get(root, 0.0)
                assert square <= claim**2 * (1 + 1e-12), (seed, table, root)
                for more, less in ((a, b), (b, a)):
                    alone = [more[v] for v in more if v not in less]
                    covered = any(len(alone) <= n and max(alone) <= w for n, w in of.alone) if alone else True
                    assert covered, (seed, table, root)
                    seen["alone"] += len(alone) > 1
                way = "units" if of.length > 1 else "rows"
                seen[way] += 1
                seen[f"{way} moved"] += square > 0
                seen[f"{way} attained"] += square > 0.999 * claim**2 > 0
    return seen


@pytest.mark.parametrize(("neighbours", "chunk"), [("entity", 0), ("entity", 1), ("record", 2)])
def test_no_unit_moves_weights_further_than_is_claimed(neighbours, chunk):
    seen = neighbours_moved(range(1000 * chunk, 1000 * chunk + 60), neighbours)
    assert seen["rows"] > 300
    assert seen["rows attained"] > 20 or neighbours == "record"
    assert seen["alone"] > 10
    assert (seen["units attained"] > 20) == (neighbours == "entity")


def test_units_are_counted_only_where_rows_of_others_stay():
    """Not under ``record``, not where rows are shared, and not where a unit has one row anyway."""
    tables: Any = {
        "users": (("x",), {}),
        "shops": (("x",), {}),
        "orders": (("x",), {"user": "users", "shop": "shops"}),
        "items": (("x",), {"order": "orders"}),
        "kinds": (("x",), {}),
    }
    bounds = {("orders", "user"): 4, ("orders", "shop"): 2, ("items", "order"): 3}

    def lengths(neighbours: str = "entity", shared: bool = False, **other: int) -> dict[str, int]:
        promise = make_promise(
            tables,
            protect=("users", "shops"),
            public=("kinds",),
            owning={"orders": "user", "items": "order"},
            bounds=bounds | {("orders", k): n for k, n in other.items()},
            neighbours=neighbours,
            shared=frozenset({("orders", "shop")} if shared else ()),
        )
        assert not any(weighed(promise, "kinds").l2.values())
        return {t: weighed(promise, t).length for t in ("users", "orders", "items")}

    assert lengths() == {"users": 1, "orders": GRID, "items": GRID}  # a linking key moves no value of its row
    assert lengths(user=1) == {"users": 1, "orders": 1, "items": GRID}
    assert lengths("record") == lengths(shared=True) == {"users": 1, "orders": 1, "items": 1}


@pytest.mark.parametrize("k", [*range(1, 70), 1000, 99_999, 2**39, 2**40, 2**40 + 1, 10**15])
def test_shares_are_as_large_as_the_length_allows(k):
    assert k * share(k, length=GRID) ** 2 <= GRID**2 < k * (share(k, length=GRID) + 1) ** 2


# -- the threshold -----------------------------------------------------------------------------------------------------


def _owned(*bounds: int) -> Promise:
    """A chain of owned tables, ``t1`` of ``t0`` and so on."""
    names = [f"t{i}" for i in range(len(bounds) + 1)]
    tables = {n: (("x",), {"own": names[i - 1]} if i else {}) for i, n in enumerate(names)}
    return make_promise(
        tables,
        protect=("t0",),
        owning=dict.fromkeys(names[1:], "own"),
        bounds={(n, "own"): b for n, b in zip(names[1:], bounds, strict=True)},
    )


def _tail(k: int, sigma: float) -> float:
    """P(N >= k) for a large scale: the sum is an integral and half its first term, but for less than 1/σ² of it."""
    return math.erfc(k / sigma / math.sqrt(2)) / 2 + math.exp(-((k / sigma) ** 2) / 2) / (
        2 * sigma * math.sqrt(2 * math.pi)
    )


def test_tails_of_large_scales_are_those_of_the_sum():
    for k in (-100, 0, 1, 200, 700):
        assert _tail(k, 200.0) == pytest.approx(float(exact_tail(k, 200.0)), rel=1e-4)


@pytest.mark.parametrize("bounds", [(2,), (3,), (10,), (7, 9), (1000,)])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 25.0])
def test_whatever_a_unit_brings_alone_passes_with_probability_delta_at_most(bounds, sigma):
    """Against exact tails, for every number of categories that one unit may have."""
    rows, delta = math.prod(bounds), 1e-7
    of = weighed(_owned(*bounds), f"t{len(bounds)}")
    assert of.length == GRID
    scale = sigma * GRID
    threshold = max(threshold_for(delta, scale, l0=n, linf=w) for n, w in of.alone)

    def worst(at: int) -> float:
        ks = range(1, rows + 1) if rows <= 63 else [*range(1, 20), *(2**i + j for i in range(5, 10) for j in (-1, 0))]
        return max(k * _tail(at - share(k, length=GRID), scale) for k in [*ks, rows] if k <= rows)

    assert worst(threshold) <= delta
    assert worst(math.floor(threshold - 0.25 * scale - 0.3 * GRID)) > delta  # and it is no higher than it must be


def test_every_number_of_categories_is_covered():
    for rows in (2, 3, 4, 5, 31, 32, 33, 1000):
        alone = weighed(_owned(rows), "t1").alone
        for k in range(1, rows + 1):
            assert any(k <= n and share(k, length=GRID) <= w for n, w in alone)
    many = weighed(_owned(10**6, 10**6, 10**6), "t3").alone  # more than a length has parts: each has a weight still
    assert many[-1] == (10**18, 1)


# -- in engines --------------------------------------------------------------------------------------------------------


def _worlds_with_units(many: int) -> list[tuple[int, World]]:
    """Worlds with a table two owners away from its protected one, whose categories are counted by units."""
    drawn = ((seed, _world(random.Random(seed), "entity", most=12)) for seed in itertools.count())
    deep = (
        (seed, world)
        for seed, world in drawn
        if any(len(world.promise.chain(t)) > 1 and weighed(world.promise, t).length > 1 for t in world.promise.private)
    )
    return list(itertools.islice(deep, many))


@pytest.mark.parametrize("opens", ["frames", "sqlite", "as on a server", "without temporary tables"])
def test_engines_agree_with_the_oracle(opens, tmp_path):
    """Rows without owner are units of their own, with what they own; so are those whose owner is not there."""
    alone = 0
    for seed, world in _worlds_with_units(6):
        promise = world.promise
        path = tmp_path / f"{seed}.sqlite"
        opened = open_sqlite(world.rows, promise, path) if opens == "sqlite" else open_frames(world.rows, promise)
        with opened as source:
            source.embedded = opens in {"frames", "sqlite"}
            source.can_materialise = opens != "without temporary tables"
            bounding = Bounding(source, promise, salt=str(seed))
            counts, truth = Counts(bounding), bound(world.rows, promise, engine_order(bounding, world.rows))
            for table in promise.private:
                length = weighed(promise, table).length
                found = counts.categories(table, world.values[table][0], length=length)
                assert found == _weights(truth, promise, table, world.values[table][0], length), (seed, table)
                tops = {_unit(truth, promise, table, i)[0] for i in truth.rows[table]}
                alone += length > 1 and len(tops) > 1
    assert alone > 2


def test_texts_that_come_out_alike_count_once(tmp_path):
    """SQLite holds bytes that are no text, and all of them are read as the same mark: a
    unit that has many of them must not be longer for it.
    """
    import sqlite3

    path = tmp_path / "odd.sqlite"
    promise = _owned(100)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t0 (id INTEGER PRIMARY KEY, x TEXT)")
        connection.execute("CREATE TABLE t1 (id INTEGER PRIMARY KEY, x TEXT, own INTEGER)")
        connection.execute("INSERT INTO t0 (id) VALUES (1), (2)")
        odd = [(i, bytes([0xC0 + i]), 1) for i in range(50)] + [(50, b"\xc0", 2), (51, b"a", 2)]
        connection.executemany("INSERT INTO t1 VALUES (?, CAST(? AS TEXT), ?)", odd)
    connection.close()
    with open_source(path) as source:
        counts = Counts(Bounding(source, promise, salt="s"))
        found = counts.categories("t1", "x", length=GRID)
        by_row = counts.categories("t1", "x", length=1)
    assert found == {"\ufffd": share(50, length=GRID) + share(2, length=GRID), "a": share(2, length=GRID)}
    assert by_row == {"\ufffd": 2, "a": 1}


# -- through the Curator -----------------------------------------------------------------------------------------------


def _curator(rows: Rows, promise: Promise, *, seed: int = 0) -> Curator:
    ledger = Ledger.open(None, database="d", limit=Budget(1e12, 0.5), tables=promise.protected)
    return Curator(open_frames(rows, promise), promise, ledger=ledger, noise=InsecureNoise(seed), salt="s")


def test_owners_are_counted_and_pay():
    """Each of 30 owners has ten rows. One has two categories, one of them alone; all others have one."""
    promise = make_promise(
        {"users": (("x",), {}), "shops": (("x",), {}), "orders": (("x",), {"user": "users"})},
        protect=("users", "shops"),
        owning={"orders": "user"},
        bounds={("orders", "user"): 10},
    )
    rows: Rows = {
        "users": {u: {"x": 0} for u in range(30)},
        "shops": {},
        "orders": {i: {"user": i % 30, "x": 5 if i < 1 else 4} for i in range(300)},
    }
    curator = _curator(rows, promise)
    found = curator.discover("orders", "x", what="words", rho=50.0, delta=1e-6)
    assert found["4"] == pytest.approx(29 + 1 / math.sqrt(2), abs=0.6)
    assert list(found) == ["4"]
    assert (curator.spent.rho, curator.spent.delta) == ({"users": 50.0}, {"users": 1e-6})
    (released,) = curator.release.discovered
    assert released.by_unit
    assert released.counts == found
    assert released.sigma == pytest.approx(0.1)
    assert 1.4 < released.threshold < 1.6  # 0.1 times 5.2, and what one owner has
    (entry,) = (e for e in curator._ledger.entries if e.kind == "charge")
    assert entry.what["counted"] == "units"
    assert (entry.what["sigma"], entry.what["threshold"]) == (released.sigma, released.threshold)
    curator.discover("users", "x", what="users", rho=50.0, delta=1e-6)
    assert not curator.release.discovered[-1].by_unit


@pytest.mark.parametrize("rows", [2, 4, 30])
def test_what_is_charged_covers_what_is_released(rows):
    """By the scale and the threshold of the release itself: ρ for a unit's length, δ for whatever it brings alone."""
    curator = _curator({"t0": {}, "t1": {}}, _owned(rows))
    curator.discover("t1", "x", what="words", rho=0.5, delta=1e-6)
    (found,) = curator.release.discovered
    assert curator.spent.rho["t0"] == pytest.approx(1 / (2 * found.sigma**2), rel=1e-9) == 0.5
    for k in range(1, rows + 1):
        at = round(found.threshold * GRID) - share(k, length=GRID)
        assert k * _tail(at, found.sigma * GRID) <= curator.spent.delta["t0"] == 1e-6


def test_a_threshold_in_owners_does_not_grow_with_their_rows():
    """What a status needs to be learned, for one owner in ten rows or a thousand."""
    found = {}
    for rows in (10, 1000):
        curator = _curator({"t0": {}, "t1": {}}, _owned(rows))
        curator.discover("t1", "x", what="words", rho=0.001, delta=1e-7)
        found[rows] = curator.release.discovered[0].threshold
        assert found[rows] < threshold_for(1e-7, rows / math.sqrt(0.002), l0=rows, linf=rows) / (0.9 * rows)
    assert found[10] < found[1000] < 1.2 * found[10]


def test_noise_is_that_of_one_unit_and_not_of_its_rows():
    """Nothing else varies: each of 400 owners has 20 rows of one of two categories, where 50 would be counted."""
    rows: Rows = {
        "t0": {u: {"x": 0} for u in range(400)},
        "t1": {i: {"own": i % 400, "x": i % 2} for i in range(8000)},
    }
    curator = _curator(rows, _owned(50), seed=3)
    seen = [curator.discover("t1", "x", what="w", rho=0.5, delta=1e-4)["0"] for _ in range(40)]
    assert np.mean(seen) == pytest.approx(200, abs=0.8)
    assert np.std(seen) == pytest.approx(1.0, rel=0.4)


def test_the_documented_thresholds_are_those_that_hold() -> None:
    """The table of docs/decisions/own-threshold.md: rows, and owners, that a category needs."""
    page = (Path(__file__).parents[2] / "docs" / "decisions" / "own-threshold.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", page, re.MULTILINE)
    assert len(lines) == 5
    for most, rows, owners in ([int(n.replace(",", "")) for n in line] for line in lines):
        assert rows == threshold_for(1e-7, 32.0 * most, l0=most, linf=most)
        alone = [(min((2 << i) - 1, most), max(share(1 << i, length=GRID), 1)) for i in range(most.bit_length())]
        needed = max(threshold_for(1e-7, 32.0 * GRID, l0=k, linf=weight) for k, weight in alone)
        assert owners == (rows if most == 1 else round(needed / GRID))  # one row of each owner is counted as a row
