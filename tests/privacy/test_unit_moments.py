"""Second moments within units: exact, and one unit never moves them further than the clip (Theorem 6)."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest

from dpweave.errors import UsageError
from dpweave.privacy import unit_sums
from dpweave.privacy.sensitivity import siblings_at_most, stays
from dpweave.privacy.unit_sums import grid, moment_sum
from dpweave.privacy.window import UnitMoments
from dpweave.schema.domain import Attribute, View
from tests.engine_counts import engine_counts, engine_order, open_frames
from tests.oracle import World, bound, entity_neighbours, make_promise, random_view, random_world, rows_by_unit
from tests.privacy.test_unit_sums import VIEW, _curator, _rated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dpweave.privacy.counts import Counts
    from tests.oracle import Rows

Row = dict[str, int]
BITS = 10


def vectors(units: list[int], owners: list[int], rows: list[Row], moments: UnitMoments) -> dict[int, list[Fraction]]:
    """Each unit's numbers, by the definition, over all pairs of rows: centres and divisions rounded as promised."""
    z = [
        [
            Fraction((row[c] == v) * 2**BITS - round(s * 2**BITS))
            for c, shares in moments.centres
            for v, s in enumerate(shares)
        ]
        for row in rows
    ]
    one, two, together = moments.at
    by_owner: dict[tuple[int, int], list[list[Fraction]]] = defaultdict(list)
    for unit, owner, vector in zip(units, owners, z, strict=True):
        by_owner[unit, owner].append(vector)
    out: dict[int, list[Fraction]] = {}
    for (unit, _), mine in by_owner.items():
        sums = out.setdefault(unit, [Fraction(0)] * len(one))
        for at, (j, k) in enumerate(zip(one, two, strict=True)):
            if at < together:
                sums[at] += sum((r[j] * r[k] for r in mine), Fraction(0))
            elif len(mine) > 1:
                pairs = sum(
                    (r[j] * s[k] for i, r in enumerate(mine) for m, s in enumerate(mine) if i != m), Fraction(0)
                )
                sums[at] += math.floor(pairs / (len(mine) - 1))
    scales = [Fraction(moments.scale) if at < together else 1 for at in range(len(one))]
    return {unit: [x / s / 4**BITS for x, s in zip(numbers, scales, strict=True)] for unit, numbers in out.items()}


def summed(found: dict[int, list[Fraction]], clip: float) -> list[int]:
    """The clipped sum, slowly."""
    step, most = grid(clip)
    total: Counter[int] = Counter()
    for numbers in found.values():
        length = math.sqrt(sum(float(x) ** 2 for x in numbers))
        factor = min(step, most / length) if length else 0.0
        x = [math.trunc(float(v) * factor) for v in numbers]
        assert sum(v * v for v in x) <= most**2
        total.update(dict(enumerate(x)))
    return [total[i] for i in range(len(next(iter(found.values()), [])))]


def random_moments(rng: random.Random, columns: tuple[str, ...], size: int, owner: str) -> UnitMoments:
    centres = tuple((c, tuple(rng.choice([0.0, 0.3, 1 / 3, 1.0]) for _ in range(size))) for c in columns)
    pairs = [(a, b) for a in columns for b in columns]
    siblings = tuple(rng.sample(pairs, min(2, len(pairs))))
    return UnitMoments(
        owner, centres, tuple(rng.sample(pairs, rng.randint(0, 1))), siblings, rng.choice([0.2, 1.0, 4.0])
    )


def case(seed: int) -> tuple[World, View, UnitMoments] | None:
    """A random world with moments over columns whose rows stay, or None."""
    rng = random.Random(seed)
    world = random_world(rng, "entity", most=8)
    view, columns = random_view(rng, world)
    if not columns or not world.promise.chain(view.base) or not stays(world.promise, view, columns):
        return None
    return world, view, random_moments(rng, columns, world.size + 1, world.promise.root(view.base))


def lives(seed: int) -> tuple[World, View, UnitMoments]:
    """Users with orders, items of these, and tags, some without owner; moments of rows of any owner, with rows of
    another of its tables beside.
    """
    rng = random.Random(seed)
    keys = {"users": {}, "orders": {"own": "users"}, "items": {"own": "orders"}, "tags": {"own": "users"}}
    owning = {t: "own" for t, k in keys.items() if k}
    promise = make_promise(
        {t: (("x",), k) for t, k in keys.items()},
        protect=("users",),
        owning=owning,
        bounds={(t, "own"): rng.randint(1, 4) for t in owning},
    )
    sizes = {"users": 4, "orders": 9, "items": 20, "tags": 9}
    rows: Rows = {t: {i: {"x": rng.randrange(2)} for i in range(n)} for t, n in sizes.items()}
    for t in owning:
        targets = [*range(sizes[keys[t]["own"]]), None, 99]
        for row in rows[t].values():
            row["own"] = rng.choice(targets)
    world = World(promise, rows, {}, dict.fromkeys(rows, ("x",)), 2)
    base = rng.choice(["items", "items", "orders", "tags"])
    owner = rng.choice([keys[t]["own"] for t, _ in promise.chain(base)])
    others = [t for t in owning if t not in (base, owner) and promise.root(t, owner) == owner]
    other = rng.choice([None, *others])
    names = ("x",) if other is None else ("x", "y")
    moments = UnitMoments(
        owner,
        tuple((c, rng.choice([(0.5, 0.5), (0.0, 0.0), (0.3, 0.7)])) for c in names),
        (("x", "x"),) if rng.random() < 0.3 else (),
        (("x", names[-1]), *([("x", "x")] if rng.random() < 0.5 else [])),
        rng.choice([0.2, 1.0, 4.0]),
        beside=() if other is None else (View(other, (("y", Attribute("x")),)),),
    )
    return world, View(base, (("x", Attribute("x")),)), moments


def sized(counts: Counts, view: View, moments: UnitMoments) -> UnitMoments:
    """The same with as many shares for each column as it has codes there, and none for columns in no pair."""
    sizes = {n: counts.codec(v, n).size for v in moments.views(view) for n in v.attribute if n in moments.all_columns}
    paired = {c for pair in (*moments.together, *moments.siblings) for c in pair}
    return of_sizes(replace(moments, centres=tuple(c for c in moments.centres if c[0] in paired)), sizes)


def moved(found: tuple[World, View, UnitMoments] | None) -> Iterator[tuple[World, View, UnitMoments, int]]:
    """How far neighbours of a world move its moments, squared."""
    if found is None:
        return
    world, view, moments = found
    with open_frames(world.rows, world.promise) as source:
        counts, _ = engine_counts(source, world, salt="s")
        moments = sized(counts, view, moments)
        sizes = {n: counts.codec(v, n).size for v in moments.views(view) for n in v.attribute}
        unit_sums.require_moments(moments, sizes)
        most = siblings_at_most(world.promise, view, moments)
        assert most
        before = counts.unit_moments(view, moments, most_rows=most)
    for _, other in list(entity_neighbours(world.rows, world.promise))[:6]:
        with open_frames(other, world.promise) as source:
            there, _ = engine_counts(source, replace(world, rows=other), salt="s")
            after = there.unit_moments(view, moments, most_rows=most)
        yield world, view, moments, int(((before - after) ** 2).sum())


@pytest.mark.parametrize("chunk", range(4))
def test_no_unit_moves_moments_further_than_their_clip(chunk, monkeypatch):
    """In the engine, on random worlds against their neighbours, however many rows are looked at together."""
    monkeypatch.setattr(unit_sums, "BLOCK", (1 << 22, 40, 1, 300)[chunk])
    seen = attained = 0
    for seed in range(1000 * chunk, 1000 * chunk + 60):
        for _, view, moments, far in moved(case(seed)):
            assert far <= grid(moments.clip)[1] ** 2, (seed, view, moments)
            seen += far > 0
            attained += far > 0.99 * grid(moments.clip)[1] ** 2
    assert seen > 4
    assert attained > 0  # units do reach the clip


def test_no_unit_moves_what_several_of_its_tables_have_in_common_any_further():
    """The same over several levels of owners, and over rows of two tables."""
    high = beside = attained = 0
    for seed in range(12):
        for world, view, moments, far in moved(lives(seed)):
            assert far <= grid(moments.clip)[1] ** 2, (seed, view, moments)
            attained += far > 0.99 * grid(moments.clip)[1] ** 2
            high += far > 0 and len(world.promise.chain(view.base, moments.owner)) > 1
            beside += far > 0 and bool(moments.beside)
    assert min(high, beside, attained) > 3


def test_a_clip_for_each_owner_instead_of_each_unit_is_caught(monkeypatch):
    """A planted bug: a unit whose rows have several owners would move moments by several clips."""

    def by_owner(units, owners, *columns, **how):
        return moment_sum(owners, owners, *columns, **how)

    monkeypatch.setattr("dpweave.privacy.counts.moment_sum", by_owner)
    assert any(far > grid(m.clip)[1] ** 2 for seed in range(12) for _, _, m, far in moved(lives(seed)))


def of_sizes(moments: UnitMoments, sizes: dict[str, int]) -> UnitMoments:
    return replace(moments, centres=tuple((c, (*s, *(0.1,) * 9)[: sizes[c]]) for c, s in moments.centres))


def test_sums_are_those_of_the_definition():
    """Random rows, owners and units; a block may end within a unit."""
    for seed in range(60):
        rng = random.Random(seed)
        owners = sorted(rng.randrange(8) for _ in range(rng.randint(1, 30)))
        unit_of = sorted(rng.randrange(4) for _ in range(8))
        units = [unit_of[o] for o in owners]
        rows = [{"a": rng.randrange(3), "b": rng.randrange(3)} for _ in owners]
        moments = random_moments(rng, ("a", "b"), 3, "o")
        codes = {c: np.array([r[c] for r in rows]) for c in "ab"}
        found = moment_sum(np.array(units), np.array(owners), *codes.values(), moments=moments, most_rows=30)
        expected = summed(vectors(units, owners, rows, moments), moments.clip)
        assert np.abs(found - expected).max() <= len(set(units))  # where floats are rounded down, by one per unit


def test_rows_of_other_tables_pair_with_those_of_their_owner_alone():
    """By the definition over all pairs of rows: a row is nothing in columns that its table does not have."""
    rng = np.random.default_rng(3)
    owners = np.sort(rng.integers(0, 9, 40))
    of_a = rng.random(40) < 0.6
    codes = {"a": np.where(of_a, rng.integers(0, 3, 40), -1), "b": np.where(of_a, -1, rng.integers(0, 2, 40))}
    moments = UnitMoments("o", (("a", (0.5, 0.25, 0.25)), ("b", (0.5, 0.5))), (), (("a", "b"),), 50.0)
    found = moment_sum(owners // 3, owners, *codes.values(), moments=moments, most_rows=40) / grid(50.0)[0]
    expected = np.zeros((3, 2))
    for o in range(9):
        mine = np.flatnonzero(owners == o)
        for i in mine[of_a[mine]]:
            for j in mine[~of_a[mine]]:
                x, y = np.eye(3)[codes["a"][i]] - (0.5, 0.25, 0.25), np.eye(2)[codes["b"][j]] - 0.5
                expected += np.outer(x, y) / (len(mine) - 1)
    assert np.abs(expected).max() > 0.3
    assert found.reshape(3, 2) == pytest.approx(expected, abs=1e-4)


def test_units_count_alike_in_one_block_and_in_many(monkeypatch):
    """To the last bit: what a unit adds never depends on which rows are looked at beside it."""
    rng = np.random.default_rng(0)
    owners = np.sort(rng.integers(0, 60, 400))
    units = owners // 7
    codes = {"a": rng.integers(0, 4, 400), "b": rng.integers(0, 3, 400)}
    moments = UnitMoments(
        "o", (("a", (0.1, 0.2, 0.3, 0.4)), ("b", (0.3, 0.3, 0.4))), (("a", "b"),), (("a", "a"), ("a", "b")), 2.5
    )
    once = moment_sum(units, owners, *codes.values(), moments=moments, most_rows=400)
    for block in (1, 50, 1000):
        monkeypatch.setattr(unit_sums, "BLOCK", block)
        assert (moment_sum(units, owners, *codes.values(), moments=moments, most_rows=400) == once).all()
    alone = [
        moment_sum(
            units[units == u],
            owners[units == u],
            *(v[units == u] for v in codes.values()),
            moments=moments,
            most_rows=400,
        )
        for u in range(9)
    ]
    assert (sum(alone) == once).all()
    assert all((x**2).sum() <= grid(2.5)[1] ** 2 for x in alone)
    assert any((x**2).sum() > 0.99 * grid(2.5)[1] ** 2 for x in alone)


def test_a_vector_that_floats_would_make_too_long_counts_for_nothing(monkeypatch):
    monkeypatch.setattr(unit_sums.np, "trunc", lambda x: 1.01 * x)
    nobody = np.zeros(6, dtype=np.int64)
    moments = UnitMoments("o", (("a", (0.5, 0.5)),), (), (("a", "a"),), 1e-3)
    assert not moment_sum(nobody, nobody, np.arange(6) % 2, moments=moments, most_rows=6).any()


def test_large_owners_stay_exact():
    """With a million rows centres are coarser, so that whole numbers stay below what floats hold exactly."""
    rows = 200_000
    codes, nobody = {"a": np.arange(rows) % 2}, np.zeros(rows, dtype=np.int64)
    moments = UnitMoments("o", (("a", (0.5, 0.5)),), (), (("a", "a"),), 1e3)
    found = moment_sum(nobody, nobody, *codes.values(), moments=moments, most_rows=10**6) / grid(1e3)[0]
    # Half of each: all pairs of rows but a row with itself disagree by chance, so -(n/4)/(n-1) beside none at all.
    assert found == pytest.approx([-0.25, 0.25, -0.25], abs=1e-3)


# -- through the Curator -----------------------------------------------------------------------------------------------

OWN = UnitMoments("users", (("x", (0.3, 0.3, 0.4)), ("who", (0.5, 0.5, 0.0))), (("who", "x"),), (("x", "x"),), 1.5)


def test_the_owner_of_the_rows_pays_and_the_release_has_the_answer():
    curator = _curator(_rated())
    window = curator.window(VIEW, name="links", unit_sums=True)
    noisy = window.measure_moments(OWN, rho=0.2)
    assert dict(curator.spent.rho) == {"users": 0.2}
    step, most = grid(OWN.clip)
    assert noisy.sigma == pytest.approx(most / step / math.sqrt(0.4))
    assert noisy.values.shape == (9 + 6,)
    assert curator.release.find_moments("links") is noisy
    assert curator.release.find_moments("others") is None


def test_nothing_is_charged_for_what_is_refused():
    curator = _curator(_rated())

    class Sly(UnitMoments):
        @property
        def all_columns(self) -> tuple[str, ...]:
            return ()

    bad = [
        *(replace(OWN, clip=clip) for clip in (0.0, -1.0, math.inf, math.nan, 1e200)),
        *(replace(OWN, scale=scale) for scale in (0.0, -1.0, math.inf, math.nan)),
        replace(OWN, together=(), siblings=()),
        replace(OWN, owner="movies"),
        replace(OWN, owner="ratings"),
        replace(OWN, owner=""),
        replace(OWN, siblings=(("x", "what"),)),
        replace(OWN, centres=(("x", (0.5, 0.5)), OWN.centres[1])),
        replace(OWN, centres=(("x", (0.5, 0.5, 1.5)), OWN.centres[1])),
        replace(OWN, centres=(("x", (0.5, 0.5, math.nan)), OWN.centres[1])),
        replace(OWN, centres=(*OWN.centres, ("nobody", (1.0,)))),
        replace(OWN, centres=(*OWN.centres, OWN.centres[0])),
        replace(OWN, beside=(View.of_table("users", ("x",)),)),
        replace(OWN, beside=(View.of_table("movies", ("x",)),)),
    ]
    for moments in bad:
        with pytest.raises(UsageError):
            curator.measure_moments(VIEW, moments, what="links", rho=0.1)
    with pytest.raises(UsageError):
        curator.measure_moments(VIEW, OWN, what="links", rho=1e-30)
    with pytest.raises(UsageError, match="no other unit moves"):
        curator.measure_moments(
            View.of_table("users", ("x",)), replace(OWN, centres=OWN.centres[:1], together=()), what="u", rho=0.1
        )
    with pytest.raises(UsageError, match="no other unit moves"):
        _curator(_rated(8, "record")).measure_moments(VIEW, OWN, what="links", rho=0.1)
    assert not curator.spent.rho
    sly = Sly(OWN.owner, OWN.centres, OWN.together, OWN.siblings, OWN.clip)
    assert type(curator.measure_moments(VIEW, sly, what="links", rho=0.1).moments) is UnitMoments


@pytest.mark.parametrize("embedded", [True, False])
def test_engines_agree_with_the_definition(embedded):
    world = _rated(5)
    view = View("ratings", (("x", Attribute("x")), ("who", Attribute("x", ("user",)))))
    with open_frames(world.rows, world.promise) as source:
        source.embedded = embedded
        counts, bounding = engine_counts(source, world, salt="s")
        truth = bound(world.rows, world.promise, engine_order(bounding, world.rows))
        moments = of_sizes(OWN, {c: counts.codec(view, c).size for c in OWN.all_columns})
        found = counts.unit_moments(view, moments, most_rows=5)
    by_unit = rows_by_unit(truth, world.promise, view, ("x", "who"))
    flat = [(unit, {"x": x, "who": who}) for unit, mine in sorted(by_unit.items()) for x, who in mine]
    assert len(flat) == 150  # five of some seven ratings of each
    units = [unit for unit, _ in flat]
    expected = summed(vectors(units, units, [row for _, row in flat], moments), moments.clip)
    assert np.abs(found - expected).max() <= 30


def test_no_question_is_wider_than_its_matrix_may_be():
    """What is worked out for an owner is as large as public facts say, whatever its rows are."""
    wide = UnitMoments("o", (("a", (0.5, 0.5)), ("b", (0.0,) * 3000)), (("a", "b"),), (), 1.0)
    with pytest.raises(UsageError, match="codes in all"):
        unit_sums.require_moments(wide, {"a": 2, "b": 3000})
    unpaired = UnitMoments("o", (("a", (0.5, 0.5)), ("b", (0.5, 0.5))), (), (("a", "a"),), 1.0)
    with pytest.raises(UsageError, match="no pair"):
        unit_sums.require_moments(unpaired, {"a": 2, "b": 2})


def test_one_number_is_charged_and_hidden_by():
    """A number that says one thing to the noise and another to the ledger is read once."""

    class Sly(float):
        def __float__(self) -> float:
            return 1e-3

    curator = _curator(_rated())
    noisy = curator.measure_moments(VIEW, OWN, what="links", rho=Sly(0.5))
    step, most = grid(OWN.clip)
    assert dict(curator.spent.rho) == {"users": 1e-3}
    assert noisy.sigma == pytest.approx(most / step / math.sqrt(2e-3))
