"""Sums of clipped vectors: one unit never moves them further than the clip, whatever its rows are (Theorem 6)."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from dpweave.errors import UsageError
from dpweave.privacy import unit_sums
from dpweave.privacy.accounting import Budget
from dpweave.privacy.curator import Curator
from dpweave.privacy.ledger import Ledger
from dpweave.privacy.noise import InsecureNoise
from dpweave.privacy.sensitivity import stays
from dpweave.privacy.unit_sums import CLIP, LENGTH, clip_and_sum, clip_and_sum_in_engine, clipped_sum, on_grid
from dpweave.privacy.window import Units, UnitSum
from dpweave.schema.domain import Attribute, View
from tests.engine_counts import codec_of, engine_counts, engine_order, open_frames, open_sqlite
from tests.oracle import NOWHERE, World, bound, entity_neighbours, make_promise, random_view, random_world, rows_by_unit

Had = dict[int, tuple[Counter[tuple[tuple[int, ...], int]], Counter[tuple[int, ...]]]]
Summed = dict[tuple[tuple[int, ...], int], int]


def _had(rows: dict[int, list[tuple[int, ...]]], columns: tuple[str, ...], unit_sum: UnitSum) -> Had:
    """Rows per cell and code, and rows per cell, unit by unit: the definition."""
    at = {c: i for i, c in enumerate(columns)}
    out: Had = {}
    for unit, codes in rows.items():
        out[unit] = Counter(), Counter()
        for row in codes:
            cell = tuple(row[at[c]] for c in unit_sum.columns)
            out[unit][1][cell] += 1
            for j, code in enumerate(unit_sum.codes):
                out[unit][0][cell, j] += all(row[at[c]] == v for c, v in code)
    return out


def _summed(units: Had, unit_sum: UnitSum) -> Summed:
    """The clipped sum, slowly, in whole numbers of any size."""
    own = [min(max(round(CLIP / (unit_sum.clip * s)), 1), 2**24) for s in unit_sum.scales]
    around = [round(a * c) for a, c in zip(own, unit_sum.centres or [0.0] * len(own), strict=True)]
    out: Counter[tuple[tuple[int, ...], int]] = Counter()
    for has, rows in units.values():
        w = {(cell, j): own[j] * has[cell, j] - around[j] * m for cell, m in rows.items() for j in range(len(own))}
        k = min(2**13, math.isqrt(LENGTH**2 // max(sum(v * v for v in w.values()), 1)))
        out.update({at: k * v for at, v in w.items()})
    return {at: n for at, n in out.items() if n}


def _random_unit_sum(rng: random.Random, columns: tuple[str, ...], size: int) -> UnitSum:
    own = tuple(c for c in columns if rng.random() < 0.5)
    found: dict[tuple[tuple[str, int], ...], None] = {(): None}
    for _ in range(rng.randint(1, 4)):
        some = rng.sample(columns, min(len(columns), rng.choice([1, 1, 2])))
        found[tuple((c, rng.randrange(size)) for c in some)] = None
    codes = list(found)
    centres = tuple(rng.choice([0.0, 0.1, 0.4, 1.0]) for _ in codes) if rng.random() < 0.5 else ()
    scales = tuple(rng.choice([0.3, 1.0, 2.5]) for _ in codes)
    return UnitSum(own, tuple(codes), scales, rng.choice([0.2, 1.0, 1.7, 4.0]), centres)


def _case(seed: int) -> tuple[World, View, tuple[str, ...], UnitSum] | None:
    """A random world with a unit sum over columns whose rows stay, or None."""
    rng = random.Random(seed)
    world = random_world(rng, "entity", most=8)
    view, columns = random_view(rng, world)
    if not world.promise.chain(view.base) or not stays(world.promise, view, columns):
        return None
    return world, view, columns, _random_unit_sum(rng, columns, world.size)


def _distance(a: dict, b: dict) -> int:
    return sum((a.get(at, 0) - b.get(at, 0)) ** 2 for at in {*a, *b})


@pytest.mark.parametrize("chunk", range(6))
def test_no_unit_moves_a_unit_sum_further_than_its_clip(chunk):
    """On random worlds where rows are said to stay, other units' rows do, and the sum moves by at most L."""
    seen = attained = 0
    for seed in range(1000 * chunk, 1000 * chunk + 400):
        case = _case(seed)
        if case is None:
            continue
        world, view, columns, unit_sum = case
        promise = world.promise
        here = rows_by_unit(bound(world.rows, promise, world.order), promise, view, columns)
        before = _summed(_had(here, columns, unit_sum), unit_sum)
        for _, other in entity_neighbours(world.rows, promise):
            there = rows_by_unit(bound(other, promise, world.order), promise, view, columns)
            changed = [u for u in {*here, *there} if sorted(here.get(u, [])) != sorted(there.get(u, []))]
            assert len(changed) <= 1, (seed, view, columns)
            assert not any(u in there for u in changed)
            moved = _distance(before, _summed(_had(there, columns, unit_sum), unit_sum))
            assert moved <= LENGTH**2, (seed, view, columns)
            seen += moved > 0
            attained += moved > 0.99 * LENGTH**2
    assert seen > 60
    assert attained > 30  # units do reach the clip


def test_rows_do_not_stay_where_other_units_move_them():
    tables = {
        "users": (("x",), {}),
        "movies": (("x",), {}),
        "ratings": (("x",), {"user": "users", "movie": "movies"}),
    }
    both = View("ratings", (("mine", Attribute("x")), ("theirs", Attribute("x", ("movie",)))))
    theirs = View("ratings", (("theirs", Attribute("x", ("movie",))),))

    def promise(public: bool, neighbours: str = "entity"):
        return make_promise(
            tables,
            protect=("users",) if public else ("users", "movies"),
            public=("movies",) if public else (),
            owning={"ratings": "user"},
            bounds={("ratings", "user"): 3} if public else {("ratings", "user"): 3, ("ratings", "movie"): 2},
            neighbours=neighbours,
        )

    assert stays(promise(True), both, ("mine", "theirs"))
    assert not stays(promise(True, "record"), both, ("mine", "theirs"))
    assert not stays(promise(False), both, ("mine", "theirs"))
    # A place that one user vacates is taken by another's row, even if the marginal over the movie alone hides it.
    assert not stays(promise(False), theirs, ("theirs",))
    newcomers = View("ratings", (("which", Attribute("@movie")),))
    assert not stays(promise(True), newcomers, ("which",))


@pytest.mark.parametrize("opens", ["frames", "sqlite", "server", "server without sums"])
def test_engines_agree_with_the_oracle(opens, tmp_path):
    seen = 0
    for seed in range(300, 360 if "server" in opens else 480):
        case = _case(seed)
        if case is None:
            continue
        world, view, columns, unit_sum = case
        promise = world.promise
        path = tmp_path / f"{seed}.sqlite"
        opened = open_sqlite(world.rows, promise, path) if opens == "sqlite" else open_frames(world.rows, promise)
        with opened as source:
            source.embedded = "server" not in opens
            source.sums_units = opens != "server without sums"  # codes are fetched instead
            counts, bounding = engine_counts(source, world, salt=str(seed))
            truth = bound(world.rows, promise, engine_order(bounding, world.rows))
            units = _had(rows_by_unit(truth, promise, view, columns), columns, unit_sum)
            expected, found = _summed(units, unit_sum), counts.unit_sum(view, unit_sum)
            assert found.shape == (*(counts.codec(view, c).size for c in unit_sum.columns), len(unit_sum.codes))
            codecs = [counts.codec(view, c) for c in unit_sum.columns]
            for at in np.ndindex(found.shape):
                lacking = [c.column.nullable and v == c.null_code for v, c in zip(at, codecs, strict=False)]
                cell = tuple(NOWHERE if lacks else v for v, lacks in zip(at, lacking, strict=False))
                assert int(found[at]) == expected.get((cell, at[-1]), 0), (seed, at)
            seen += bool(expected)
    assert seen > 3


def test_units_are_clipped_alike_in_one_block_and_in_many(monkeypatch):
    rng = np.random.default_rng(0)
    units = np.sort(rng.integers(0, 40, 3000))
    columns = {"a": rng.integers(0, 3, 3000), "b": rng.integers(0, 2, 3000)}
    codes = ((), (("a", 1),), (("a", 2), ("b", 1)))
    unit_sum = UnitSum(("b",), codes, (1.0, 0.5, 0.25), 60.0)
    once = clipped_sum(units, columns["b"], columns, unit_sum, size=2)
    centred = replace(unit_sum, centres=(0.0, 0.3, 0.2))
    beyond = clipped_sum(units, columns["b"], columns, centred, size=2)
    monkeypatch.setattr(unit_sums, "BLOCK", 7)
    assert (clipped_sum(units, columns["b"], columns, unit_sum, size=2) == once).all()
    assert (clipped_sum(units, columns["b"], columns, centred, size=2) == beyond).all()
    wide = replace(unit_sum, clip=1e4)
    whole = clipped_sum(units, columns["b"], columns, wide, size=2) / on_grid(wide)[0] / 2**13
    assert whole[1, 2] == ((columns["a"] == 2) & (columns["b"] == 1)).sum()
    assert clipped_sum(units[:0], units[:0], {c: v[:0] for c, v in columns.items()}, unit_sum, size=2).sum() == 0


@pytest.mark.parametrize("off", [-(2.0**-35), 0.0, 2.0**-35])
def test_no_rounding_of_floats_is_trusted(monkeypatch, off):
    """The factor is what whole numbers say, even if floats are off by more than any engine's."""
    root = np.sqrt
    monkeypatch.setattr(unit_sums.np, "sqrt", lambda x: root(x) * (1 + off))
    rng = np.random.default_rng(0)
    for n in (*rng.integers(1, 2**14, 100).tolist(), *(2**i for i in range(16)), 3 * 2**10):
        rows = np.zeros(n, dtype=np.int64)
        (x,) = clipped_sum(rows, rows, {}, UnitSum((), ((),), (1.0,), 1.0), size=1)[0]
        assert x == n * CLIP * min(LENGTH // CLIP, LENGTH // (n * CLIP))


def test_a_hair_is_seen_in_memory_and_in_engines():
    """Units whose length is L/k, and a hair more: by one in a square of up to 62 bits."""
    import ibis

    own, around = by = np.array([2**24, 1]), np.array([0, 0])
    longest = [2**i for i in range(8)]  # rows of 2**24, so that L/k is what they weigh
    unit, place = np.arange(16), np.append(np.arange(16), np.arange(8, 16))
    code, count = np.repeat([0, 1], [16, 8]), np.array([*longest, *longest, *([1] * 8)])
    every = count[:16]
    zero = np.zeros(16, dtype=np.int64)
    memory = [
        clip_and_sum(zero[:1], zero[:1], every[[u]], (zero[: h.sum()], code[h], count[h]), by, size=1)[0].tolist()
        for u in range(16)
        for h in [place == u]
    ]
    assert memory[:8] == [[LENGTH, 0]] * 8
    assert memory[8:] == [[(LENGTH // (n * 2**24) - 1) * n * 2**24, LENGTH // (n * 2**24) - 1] for n in longest]
    with open_frames(_rated().rows, _rated().promise) as source:
        cell = {"unit": unit, "cell": unit}
        places = ibis.memtable(pa.table({**cell, "every": every}))
        held = {c: v[place] for c, v in cell.items()} | {"code": code, "count": count}
        entries = ibis.memtable(pa.table({**held, "own": own[code], "around": around[code]}))
        assert clip_and_sum_in_engine(source, places, entries, by, size=16).tolist() == memory


@pytest.mark.parametrize("around", [0, 2**10, 2**24])
def test_units_of_any_size_are_no_longer_than_the_clip(around):
    """Numbers that leave 64 bits, in a product or in a sum, make a unit too long to count, and touch no other."""
    zero, by = np.zeros(2, dtype=np.int64), (np.array([2**24, 5]), np.array([around, 3]))
    for count in (*(2**i for i in range(39)), 3, 7, 100, 2**31 + 1):
        every, had = np.array([5, count]), (np.array([1]), np.array([0]), np.array([count]))
        both = clip_and_sum(np.array([0, 1]), zero, every, had, by, size=1)
        alone = clip_and_sum(zero[:1], zero[:1], every[:1], (zero[:0],) * 3, by, size=1)
        mine, w = [int(x) for x in (both - alone)[0]], [(2**24 - around) * count, -3 * count]
        square = sum(x * x for x in w)
        k = min(2**13, math.isqrt(LENGTH**2 // square))
        beyond = (around * count) ** 2 > LENGTH**2 // 2
        assert mine == ([0, 0] if beyond else [k * x for x in w])


def test_a_unit_at_its_clip_keeps_its_length():
    """However few cells its rows fall into, and wherever on the grid the clip lies."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        codes = ((), (("a", 1),), (("b", 1),))[: rng.integers(1, 4)]
        scales = tuple(rng.uniform(0.1, 3.0, len(codes)))
        asked = UnitSum((), codes, scales, float(rng.uniform(0.1, 30.0)))
        unit_sum = unit_sums.checked(asked, {"a": 2, "b": 2})
        rows = int(rng.integers(1, 200))
        values = {"a": rng.integers(0, 2, rows), "b": rng.integers(0, 2, rows)}
        nobody = np.zeros(rows, dtype=np.int64)
        x = clipped_sum(nobody, nobody, values, unit_sum, size=1)[0]
        counts = [rows, *((values[c] == 1).sum() for c in "ab")][: len(codes)]
        length = math.sqrt(sum((n / s) ** 2 for n, s in zip(counts, unit_sum.scales, strict=True))) / unit_sum.clip
        assert math.sqrt((x.astype(float) ** 2).sum()) == pytest.approx(
            LENGTH * min(length, 1.0), rel=max(length, 1) / 2**13
        )


def test_a_cell_that_no_codec_should_give_stays_with_its_unit():
    """In two cells, code 3 of the first unit would be cell 1 of the next, whose vector it would turn round."""
    unit_sum = UnitSum(("c",), ((),), (1.0,), 1.0)
    for mine in ([7], [1] + 50 * [3]):
        units, cells = np.array([0] * len(mine) + [1]), np.array([*mine, 0])
        both = clipped_sum(units, cells, {}, unit_sum, size=2)
        alone = clipped_sum(units[-1:], cells[-1:], {}, unit_sum, size=2)
        assert sum(int(x) ** 2 for x in (both - alone).ravel()) <= LENGTH**2


def test_scales_and_centres_on_the_grid_stay_there():
    """What the release says was summed is what was summed."""
    rng = np.random.default_rng(0)
    for clip in (1e-9, 0.3, 1.0, 17.0, 2.0**20, 1e12):
        scales = tuple((10 ** rng.uniform(-3, 3, 50)).tolist())
        asked = UnitSum((), tuple((("a", j),) for j in range(50)), scales, clip, tuple(rng.random(50).tolist()))
        once = unit_sums.checked(asked, {"a": 50})
        assert unit_sums.checked(once, {"a": 50}) == once
        for x, y in zip(on_grid(once), on_grid(asked), strict=True):
            assert (x == y).all()
        inside = [i for i, s in enumerate(scales) if 2**-6 < s * clip < 2**8]
        assert np.array(once.scales)[inside] == pytest.approx(np.array(scales)[inside], rel=1e-3)
        assert np.array(once.centres)[inside] == pytest.approx(np.array(asked.centres)[inside], abs=1e-3)


# -- through the Curator -----------------------------------------------------------------------------------------------


def _rated(bound_: int = 4, neighbours: str = "entity"):
    tables = {
        "users": (("x",), {}),
        "movies": (("x",), {}),
        "ratings": (("x",), {"user": "users", "movie": "movies"}),
        "shops": (("x",), {}),
    }
    promise = make_promise(
        tables,
        protect=("users", "shops"),
        public=("movies",),
        owning={"ratings": "user"},
        bounds={("ratings", "user"): bound_},
        neighbours=neighbours,
    )
    rows = {
        "users": {u: {"x": u % 2} for u in range(30)},
        "movies": {m: {"x": m % 3} for m in range(6)},
        "ratings": {i: {"user": i % 30, "movie": i * 7 % 6, "x": i % 3} for i in range(200)},
        "shops": {0: {"x": 0}},
    }
    return World(promise, rows, {}, dict.fromkeys(rows, ("x",)), 3)


VIEW = View(
    "ratings",
    (("x", Attribute("x")), ("who", Attribute("x", ("user",))), ("what", Attribute("x", ("movie",)))),
    (("movie",),),
)
SUM = UnitSum(("x",), ((), (("what", 1),), (("what", 2),)), (2.0, 1.0, 0.5), 3.0)


def _curator(world: World) -> Curator:
    ledger = Ledger.open(None, database="d", limit=Budget(1.0, 0.5), tables=world.promise.protected)
    curator = Curator(open_frames(world.rows, world.promise), world.promise, ledger=ledger, noise=InsecureNoise(0))
    for table in world.rows:
        curator.set_codec(table, "x", codec_of(world, "x"))
    return curator


@pytest.mark.filterwarnings("error")
def test_numbers_of_any_kind_and_size_tell_nothing_of_rows():
    """What floats do with the largest and smallest scales is no sign of how many rows there are."""
    curator = _curator(_rated(50))
    odd = UnitSum(("x",), ((), (("what", np.int8(1)),)), (1e-100, Fraction(1, 3)), 1e100)  # type: ignore[arg-type]
    for unit_sum in (odd, replace(odd, scales=(1e100, 10**99)), replace(odd, clip=np.float32(1e-30))):
        (noisy,) = curator.measure_unit_sums(VIEW, [unit_sum], what="links", rho=0.1)
        assert np.isfinite(noisy.counts).all()
        assert all(type(s) is float for s in noisy.unit_sum.scales)


def test_floats_say_nothing_of_rows_even_where_somebody_listens():
    unit_sum = unit_sums.checked(UnitSum((), ((("a", 1),),), (3.0,), 1.0, (5e-324,)), {"a": 2})
    nobody = np.zeros(3, dtype=np.int64)
    with np.errstate(all="raise"):
        for value in (0, 1):
            clipped_sum(nobody, nobody, {"a": np.full(3, value)}, unit_sum, size=1)


def test_the_owner_of_the_rows_pays_and_nobody_else():
    curator = _curator(_rated())
    window = curator.window(VIEW, name="links", unit_sums=True)
    assert window.units == Units(4, frozenset({"who"}))
    assert curator.window(VIEW, name="links").units is None
    first, second = window.measure_unit_sums([SUM, replace(SUM, columns=())], rho=0.4, weights=[1, 3])
    assert dict(curator.spent.rho) == {"users": 0.4}
    assert not curator.spent.delta
    assert first.sigma == pytest.approx(SUM.clip / math.sqrt(2 * 0.1))
    assert second.sigma == pytest.approx(SUM.clip / math.sqrt(2 * 0.3))
    assert first.counts.shape == (3, 3)
    assert second.counts.shape == (3,)
    assert curator.release.find_unit_sums("links") == (first, second)
    assert first.noise == pytest.approx(first.sigma * np.array(SUM.scales), rel=1e-4)


def test_nothing_is_charged_for_what_is_refused():
    curator = _curator(_rated())
    bad = [
        *(replace(SUM, clip=clip) for clip in (0.0, -1.0, math.inf, math.nan, 1e-200, 1e200)),
        replace(SUM, scales=(1.0,)),
        *(replace(SUM, scales=(1.0, s, 1.0)) for s in (0.0, -1.0, math.nan, 1e-320, 10**300)),
        replace(SUM, codes=(), scales=()),
        replace(SUM, codes=((), (("what", 3),), (("what", 0),))),
        replace(SUM, codes=((), (("what", -1),), (("what", 0),))),
        replace(SUM, codes=tuple((("what", i),) for i in range(5000)), scales=(1.0,) * 5000),
        replace(SUM, codes=((), (("what", 1),), (("what", 1),))),
        replace(SUM, columns=("nobody",)),
        *(
            replace(SUM, centres=centres)
            for centres in ((0.1,), (0.1, -0.1, 0.1), (0.1, 1.1, 0.1), (0.1, math.nan, 0.1))
        ),
        replace(SUM, codes=((), (("nobody", 1),), (("what", 0),))),
        replace(SUM, codes=((), (("what", 1), ("what", 2)), (("what", 0),))),
    ]
    for unit_sum in bad:
        with pytest.raises(UsageError):
            curator.measure_unit_sums(VIEW, [unit_sum], what="links", rho=0.1)
    with pytest.raises((TypeError, ValueError)):
        curator.measure_unit_sums(
            VIEW, [replace(SUM, codes=((), (("what", np.arange(3)),), (("what", 0),)))], what="links", rho=0.1
        )  # type: ignore[arg-type]
    for few in ({"rho": 1e-24}, {"rho": 0.1, "weights": [1, 1e-24]}):
        with pytest.raises(UsageError):
            curator.measure_unit_sums(VIEW, [SUM] * len(few.get("weights", [1])), what="links", **few)
    with pytest.raises(UsageError):
        curator.measure(VIEW, [("x",)], what="links", rho=1e-35)
    with pytest.raises(UsageError, match="belong to units"):
        curator.measure_unit_sums(View.of_table("users", ("x",)), [SUM], what="users", rho=0.1)
    with pytest.raises(UsageError, match="belong to units"):
        _curator(_rated(8, "record")).measure_unit_sums(VIEW, [SUM], what="links", rho=0.1)
    assert not curator.spent.rho
    assert curator.measure_unit_sums(VIEW, [], what="links", rho=0.1) == ()


def test_all_columns_of_a_unit_sum_are_asked_of_what_is_counted():
    """Unit sums hold an order's own columns, not those of a protected shop that it
    links to; and no client's class can say that it looks at nothing.
    """

    class Sly(UnitSum):
        @property
        def reach(self) -> tuple[str, ...]:
            return ()

    promise = make_promise(
        {"users": (("x",), {}), "shops": (("x",), {}), "orders": (("x",), {"user": "users", "shop": "shops"})},
        protect=("users", "shops"),
        owning={"orders": "user"},
        bounds={("orders", "user"): 3, ("orders", "shop"): 100},
    )
    rows = {
        "users": {i: {"x": 0} for i in range(30)},
        "shops": {0: {"x": 1}},
        "orders": {i: {"user": i, "shop": 0, "x": 0} for i in range(30)},
    }
    view = View("orders", (("own", Attribute("x")), ("theirs", Attribute("x", ("shop",)))))
    curator = _curator(World(promise, rows, {}, dict.fromkeys(rows, ("x",)), 3))
    assert curator.units(view) == Units(3, frozenset(), frozenset({"own"}))
    for kind in (UnitSum, Sly):
        with pytest.raises(UsageError, match="no other unit moves"):
            curator.measure_unit_sums(view, [kind((), ((("theirs", 1),),), (1.0,), 1.0)], what="orders", rho=0.1)
    assert not curator.spent.rho
    curator.measure_unit_sums(view, [UnitSum((), ((("own", 1),),), (1.0,), 1.0)], what="orders", rho=0.1)
    assert dict(curator.spent.rho) == {"users": 0.1}


@pytest.mark.parametrize("value", [0, 1])
def test_codes_over_many_columns_cost_no_memory_that_rows_decide(value):
    """Seventy columns of one value each beside a binary one: counted, and in a table no larger than there are codes."""
    names = ["a", *(f"c{i}" for i in range(70))]
    unit_sum = UnitSum((), (tuple((n, 0) for n in names), (("a", 1), ("c1", 0))), (1.0, 1.0), 1e3)
    rows = {n: np.zeros(5, dtype=np.uint8) for n in names} | {"a": np.full(5, value, dtype=np.uint8)}
    found = clipped_sum(np.arange(5), np.zeros(5, dtype=np.int64), rows, unit_sum, size=1)
    assert (found / on_grid(unit_sum)[0] / 2**13).tolist() == [[5.0 * (value == 0), 5.0 * (value == 1)]]


def test_what_a_client_says_is_read_once():
    """Lengths and names are those of a copy: no class can tell the checks one thing and the counting another."""

    class Short(tuple):
        __slots__ = ()

        def __len__(self) -> int:
            return 2

    curator = _curator(_rated())
    sly = UnitSum(("x",), ((), (("what", 1),)), Short((1.0,)), 3.0)
    with pytest.raises(UsageError, match="1 scales"):
        curator.measure_unit_sums(VIEW, [sly], what="links", rho=0.1)
    assert not curator.spent.rho
