"""The Curator's claim holds against many runs on neighbouring databases, and the same
audit catches what is broken on purpose.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from dpweave.privacy import curator as curator_module
from dpweave.privacy import unit_sums
from dpweave.privacy.curator import Curator
from dpweave.privacy.noise import threshold_for
from dpweave.privacy.unit_sums import GRID, LENGTH
from dpweave.privacy.window import NoisyMarginal, UnitSum
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import Attribute, Categories, View
from tests.audit.harness import MISS, Pair, Runs, audit, collect, open_curator, opened, zcdp_claim
from tests.oracle import Rows, make_promise, unit_rows, without

RUNS = 5_000
"""On either database of a pair, so 10,000 on the pair. Half the noise is then proven 0.6 beyond the claim."""

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def remembered(monkeypatch):
    """Remember noise scales: the same numbers, computed once."""
    monkeypatch.setattr(curator_module, "gaussian_sigma", lru_cache(curator_module.gaussian_sigma))
    monkeypatch.setattr(curator_module, "selection_scale", lru_cache(curator_module.selection_scale))


RATED = {"users": (("x",), {}), "movies": (("x",), {}), "ratings": (("x",), {"user": "users", "movie": "movies"})}
BOTH = View("ratings", (("mine", Attribute("x")), ("theirs", Attribute("x", ("movie",)))))


def _rated(d: int, e: int, neighbours: str):
    bounds = {("ratings", "user"): d, ("ratings", "movie"): e}
    return make_promise(
        RATED, protect=("users", "movies"), owning={"ratings": "user"}, bounds=bounds, neighbours=neighbours
    )


def _heavy_user() -> Pair:
    """A user with more ratings than allowed leaves, and others get the places back."""
    promise = _rated(2, 2, "entity")
    ratings = [(0, m % 2, 0) for m in range(7)] + [(u, u % 2, 1) for u in range(1, 5)]
    rows: Rows = {
        "users": {u: {"x": 0} for u in range(5)},
        "movies": {m: {"x": 0} for m in range(2)},
        "ratings": {i: {"user": u, "movie": m, "x": x} for i, (u, m, x) in enumerate(ratings)},
    }
    less = without(rows, unit_rows(rows, promise, "users", 0))
    return Pair("heavy user", promise, rows, less, "users", BOTH, ("mine", "theirs"), salts=16)


def _movie() -> Pair:
    """A movie with more ratings than allowed leaves; they stay, unlinked."""
    promise = _rated(1, 2, "entity")
    rows: Rows = {
        "users": {u: {"x": 0} for u in range(5)},
        "movies": {m: {"x": m} for m in range(2)},
        "ratings": {i: {"user": i, "movie": 0 if i < 4 else 1, "x": 0} for i in range(5)},
    }
    less = without(rows, unit_rows(rows, promise, "movies", 0))
    return Pair("movie", promise, rows, less, "movies", BOTH, ("mine", "theirs"), salts=4)


def _manager() -> Pair:
    promise = make_promise({"staff": (("x",), {"boss": "staff"})}, protect=("staff",), bounds={("staff", "boss"): 2})
    boss = {0: None, 1: 0, 2: 0, 3: 0, 10: 1, 11: 1, 12: 1}
    rows: Rows = {"staff": {i: {"boss": b, "x": 1 if i in (2, 3) else 0} for i, b in boss.items()}}
    less = without(rows, unit_rows(rows, promise, "staff", 1))
    view = View("staff", (("mine", Attribute("x")), ("hers", Attribute("x", ("boss",)))))
    return Pair("manager", promise, rows, less, "staff", view, ("mine", "hers"), salts=16)


def _endpoint() -> Pair:
    """All links of a user are replaced by others."""
    promise = _rated(2, 2, "record")
    users, movies = {0: {"x": 0}}, {0: {"x": 0}, 1: {"x": 1}}

    def world(movie: int) -> Rows:
        return {
            "users": users,
            "movies": movies,
            "ratings": {i: {"user": 0, "movie": movie, "x": movie} for i in range(2)},
        }

    return Pair("endpoint", promise, world(0), world(1), "users", BOTH, ("mine", "theirs"), salts=2)


def _parent() -> Pair:
    tables = {"parents": (("x",), {}), "children": (("x",), {"parent": "parents"})}
    promise = make_promise(
        tables, protect=("parents", "children"), bounds={("children", "parent"): 2}, neighbours="record"
    )
    view = View("children", (("p", Attribute("x", ("parent",))),))

    def world(parents: list[int], of: list[int]) -> Rows:
        return {
            "parents": {i: {"x": x} for i, x in enumerate(parents)},
            "children": {i: {"parent": p, "x": 0} for i, p in enumerate(of)},
        }

    return Pair(
        "parent",
        promise,
        world([0, 0, 1], [0, 0, 1, 1]),
        world([1, 0, 1], [2, 2, 0, 0]),
        "parents",
        view,
        ("p",),
        salts=2,
    )


def _degree() -> Pair:
    """The two ratings of a user leave two movies one degree lower."""
    promise = _rated(2, 4, "entity")
    rows: Rows = {
        "users": {u: {"x": 0} for u in range(2)},
        "movies": {m: {"x": 0} for m in range(2)},
        "ratings": {i: {"user": i // 2, "movie": i % 2, "x": 0} for i in range(4)},
    }
    less = without(rows, unit_rows(rows, promise, "users", 0))
    return Pair(
        "degree",
        promise,
        rows,
        less,
        "users",
        View.of_table("movies", ("#ratings.movie",)),
        ("#ratings.movie",),
        salts=2,
    )


def _newcomer(movies: tuple[int, ...] = (0, 1, 2, 0, 1, 2), *, kept: int = 3) -> Pair:
    """A user leaves who leads to three public rows, twice to each; three of her six ratings are kept."""
    promise = make_promise(
        RATED, protect=("users",), public=("movies",), owning={"ratings": "user"}, bounds={("ratings", "user"): kept}
    )
    rated = [(0, m) for m in movies] + [(1, 0), (1, 2)]
    rows: Rows = {
        "users": {u: {"x": 0} for u in range(2)},
        "movies": {m: {"x": 0} for m in range(3)},
        "ratings": {i: {"user": u, "movie": m, "x": 0} for i, (u, m) in enumerate(rated)},
    }
    less = without(rows, unit_rows(rows, promise, "users", 0))
    view = View("ratings", (("which", Attribute("@movie")),))
    return Pair("newcomer", promise, rows, less, "users", view, ("which",), salts=16)


def _home() -> Pair:
    """A home leaves of which two lead to each other, and to whom six others lead who
    must not: these are not counted.
    """
    promise = make_promise(
        {"homes": (("x",), {}), "people": (("x",), {"home": "homes", "kin": "people"})},
        protect=("homes",),
        owning={"people": "home"},
        bounds={("people", "home"): 2, ("people", "kin"): 9},
        within=frozenset({("people", "kin")}),
    )
    kin = {0: 1, 1: 0} | {i: i % 2 for i in range(2, 8)}
    rows: Rows = {
        "homes": {h: {"x": 0} for h in range(4)},
        "people": {i: {"home": i // 2, "kin": k, "x": 0} for i, k in kin.items()},
    }
    less = without(rows, unit_rows(rows, promise, "homes", 0))
    view = View("people", (("mine", Attribute("x")), ("theirs", Attribute("x", ("kin",)))))
    return Pair("home", promise, rows, less, "homes", view, ("mine", "theirs"), salts=2)


def _clerk() -> Pair:
    """A clerk leaves who shares six orders of customers, of which two are counted; then none of them counts."""
    promise = make_promise(
        {"customers": ((), {}), "clerks": ((), {}), "orders": (("x",), {"customer": "customers", "clerk": "clerks"})},
        protect=("customers", "clerks"),
        owning={"orders": "customer"},
        bounds={("orders", "customer"): 1, ("orders", "clerk"): 2},
        shared=frozenset({("orders", "clerk")}),
    )
    rows: Rows = {
        "customers": {i: {} for i in range(7)},
        "clerks": {0: {}, 1: {}},
        "orders": {i: {"customer": i, "clerk": int(i == 6), "x": 0} for i in range(7)},
    }
    less = without(rows, unit_rows(rows, promise, "clerks", 0))
    return Pair("clerk", promise, rows, less, "clerks", View.of_table("orders", ("x",)), ("x",), salts=2)


PAIRS = {p().name: p for p in (_heavy_user, _movie, _manager, _endpoint, _parent, _degree, _newcomer, _home, _clerk)}


@pytest.mark.parametrize("name", PAIRS)
def test_the_claim_stands_for_counts_and_choices(name):
    pair = PAIRS[name]()
    curators = opened(pair)
    one, zero, rho = collect(pair, RUNS, curators=curators)
    assert rho == pytest.approx(pair.rho, rel=1e-9)
    verdict = audit(one, zero, zcdp_claim(rho))
    assert not verdict.broken, verdict
    # No formality: the pair is as far apart as the charge allows. 2 rho is 1, with a standard deviation of 0.02.
    assert np.mean(one.projection) - np.mean(zero.projection) > 0.88 * 2 * pair.rho
    telling = audit(one, zero, zcdp_claim(rho), deltas=(0.06,))
    assert telling.proven > 0.3 * telling.claimed

    one, zero, rho = collect(pair, RUNS, count=False, choose=True, curators=curators)
    assert rho == pytest.approx(pair.rho, rel=1e-9)
    verdict = audit(one, zero, zcdp_claim(rho))
    assert not verdict.broken, verdict


def test_the_claim_stands_for_both():
    """What two questions tell together costs what both cost."""
    one, zero, rho = collect(_heavy_user(), RUNS, choose=True)
    assert rho == pytest.approx(2 * _heavy_user().rho, rel=1e-9)
    verdict = audit(one, zero, zcdp_claim(rho))
    assert not verdict.broken, verdict


# -- the same audit on what is broken ----------------------------------------------------------------------------------


class HalfNoise:
    """Half the scale that was charged for."""

    def __init__(self, noise: Any) -> None:
        self._noise = noise
        self.insecure = False

    def discrete_gaussian(self, counts, *, sigma):
        return self._noise.discrete_gaussian(counts, sigma=sigma / 2)

    def noisy_max(self, scores, *, scale):
        return self._noise.noisy_max(scores, scale=scale)


def _halve(curator: Curator, rows: Rows) -> None:
    curator._noise = HalfNoise(curator._noise)  # type: ignore[assignment]


def _cut_nothing(curator: Curator, rows: Rows) -> None:
    curator._bounding._cuts = False


def _read_domain_off_the_data(curator: Curator, rows: Rows) -> None:
    found = Categories(tuple(sorted({r["x"] for r in rows["users"].values()})))
    curator.set_codec("users", "x", Codec(Column("x", Type("integer"), nullable=False), found))


def _rare_value() -> Pair:
    """One user has a value that nobody else has."""
    promise = make_promise({"users": (("x",), {})}, protect=("users",))
    rows: Rows = {"users": {u: {"x": 2 if u == 0 else u % 2} for u in range(6)}}
    less = without(rows, {("users", 0)})
    return Pair("rare value", promise, rows, less, "users", View.of_table("users", ("x",)), ("x",), salts=2)


def test_half_the_noise_is_caught():
    one, zero, rho = collect(_movie(), RUNS, _halve)
    assert audit(one, zero, zcdp_claim(rho)).broken


def test_skipped_truncation_is_caught():
    one, zero, rho = collect(_heavy_user(), RUNS, _cut_nothing)
    assert audit(one, zero, zcdp_claim(rho)).broken


def test_shared_rows_beyond_the_bound_that_are_counted_are_caught():
    one, zero, rho = collect(_clerk(), RUNS, _cut_nothing)
    assert audit(one, zero, zcdp_claim(rho)).broken


def test_links_that_leave_their_unit_and_are_counted_are_caught(monkeypatch):
    monkeypatch.setattr("dpweave.privacy.bounding.Bounding._inside", lambda self, table, key, rows, link: rows)
    one, zero, rho = collect(_home(), RUNS)
    assert audit(one, zero, zcdp_claim(rho)).broken


def test_rows_that_lead_to_the_same_public_row_again_and_are_counted_are_caught(monkeypatch):
    """The sensitivity of a newcomer column rests on their being left out: nine in one
    cell, where the root of nine is claimed.
    """
    monkeypatch.setattr("dpweave.privacy.counts._repeats", lambda linked, *_: linked.rid < 0)
    one, zero, rho = collect(_newcomer((0,) * 9, kept=9), RUNS)
    assert audit(one, zero, zcdp_claim(rho)).broken


def test_the_true_link_count_as_noise_scale_is_caught(monkeypatch):
    """The paper's frequencies: counts and scale divided by the exact number of links."""
    pair = _movie()

    def divided(columns, counts, sigma):
        (links,) = current[0]._counts.marginals(linked.view, [()])
        return NoisyMarginal(columns, counts, sigma / max(int(links), 1))

    current: list[Curator] = []
    measure = Curator.measure

    def measured(self, *args, **kwargs):
        current[:] = [self]
        return measure(self, *args, **kwargs)

    monkeypatch.setattr(curator_module, "NoisyMarginal", divided)
    monkeypatch.setattr(Curator, "measure", measured)
    linked = Pair(**{**vars(pair), "view": View(pair.view.base, pair.view.columns, (("movie",),))})
    one, zero, rho = collect(linked, RUNS)
    assert audit(one, zero, zcdp_claim(rho)).broken


def test_a_domain_read_off_the_data_is_caught():
    one, zero, rho = collect(_rare_value(), RUNS, _read_domain_off_the_data)
    assert audit(one, zero, zcdp_claim(rho)).broken
    one, zero, rho = collect(_rare_value(), RUNS)
    assert not audit(one, zero, zcdp_claim(rho)).broken


def test_a_selection_that_claims_monotonicity_is_caught(monkeypatch):
    """Scores that only rise would need half the scale; ours rise and fall."""
    honest = curator_module.selection_scale
    monkeypatch.setattr(curator_module, "selection_scale", lambda sensitivity, rho: honest(sensitivity, rho) / 2)
    one, zero, rho = collect(_endpoint(), RUNS, count=False, choose=True)
    assert audit(one, zero, zcdp_claim(rho)).broken


# -- unit sums
# --------------------------------------------------------------------------------------------------------------


def _unit_sum(runs: int) -> tuple[Runs, Runs, float]:
    """Runs of a unit sum with and without a user of forty ratings, where clips of
    length 5 are charged for; cost of a run.
    """
    promise = make_promise(
        RATED, protect=("users",), public=("movies",), owning={"ratings": "user"}, bounds={("ratings", "user"): 50}
    )
    rated = [(0, m % 3) for m in range(40)] + [(1, 0), (1, 2)]
    rows: Rows = {
        "users": {u: {"x": 0} for u in range(2)},
        "movies": {m: {"x": m} for m in range(3)},
        "ratings": {i: {"user": u, "movie": m, "x": i % 2} for i, (u, m) in enumerate(rated)},
    }
    less = without(rows, unit_rows(rows, promise, "users", 0))
    unit_sum = UnitSum(("mine",), ((), (("theirs", 1),), (("theirs", 2),)), (2.0, 1.0, 0.5), 5.0)
    pair = Pair("bag", promise, rows, less, "users", BOTH, ("mine", "theirs"))
    both = [open_curator(pair, some, salt="s") for some in (rows, less)]
    scales = np.array(unit_sum.scales)
    exact = [c._counts.unit_sum(BOTH, unit_sum) / LENGTH * unit_sum.clip for c in both]
    line, middle = exact[0] - exact[1], (exact[0] + exact[1]) / 2
    out = (Runs(), Runs())
    for curator, into in zip(both, out, strict=True):
        for _ in range(runs):
            (noisy,) = curator.measure_unit_sums(BOTH, [unit_sum], what="audit", rho=0.25)
            curator.release.summed_by_unit.clear()
            into.kind.append((noisy.sigma, noisy.counts.shape))
            into.projection.append(float(((noisy.counts / scales - middle) * line).sum()) / noisy.sigma**2)
    return (*out, both[0].spent.rho["users"] / runs)


def test_the_claim_stands_for_unit_sums():
    one, zero, rho = _unit_sum(RUNS)
    assert rho == pytest.approx(0.25, rel=1e-9)
    verdict = audit(one, zero, zcdp_claim(rho))
    assert not verdict.broken, verdict
    # The user is as long as the clip allows, so that the two databases are as far apart as the charge.
    assert np.mean(one.projection) - np.mean(zero.projection) > 0.88 * 2 * rho
    telling = audit(one, zero, zcdp_claim(rho), deltas=(0.06,))
    assert telling.proven > 0.3 * telling.claimed


def test_a_unit_that_is_not_clipped_is_caught(monkeypatch):
    def whole(units, cells, columns, unit_sum, *, size):
        far = unit_sums.clipped_sum(units, cells, columns, replace(unit_sum, clip=1e3), size=size)
        return np.rint(far * 1e3 / unit_sum.clip).astype(np.int64)

    monkeypatch.setattr("dpweave.privacy.counts.clipped_sum", whole)
    one, zero, rho = _unit_sum(RUNS // 5)
    assert audit(one, zero, zcdp_claim(rho)).broken


# -- learned categories ------------------------------------------------------------------------------------------------


def _discovered(forgotten: float, monkeypatch, *, categories: int, runs: int, delta: float) -> int:
    """How often some category comes out of those that one unit alone has, if the
    threshold has ``forgotten`` so much of what the unit weighs.
    """
    tables = {"users": (("x",), {}), "orders": (("x",), {"user": "users"})}
    promise = make_promise(tables, protect=("users",), owning={"orders": "user"}, bounds={("orders", "user"): 3})
    rows: Rows = {
        "users": {u: {"x": 0} for u in range(4)},
        "orders": {i: {"user": i % 4, "x": 1 + i // 4 % categories if i % 4 == 0 else 0} for i in range(12)},
    }
    honest = lru_cache(threshold_for)
    less = round(forgotten * GRID)
    monkeypatch.setattr(curator_module, "threshold_for", lambda *a, **k: honest(*a, **k) - less)
    pair = Pair("words", promise, rows, rows, "users", View.of_table("orders", ("x",)), ("x",))
    curator = open_curator(pair, rows, salt="s")
    words = curator._counts.categories("orders", "x", length=GRID)
    alone = {str(1 + i) for i in range(categories)}
    assert words == {"0": 3 * GRID} | dict.fromkeys(alone, math.floor(GRID / math.sqrt(categories)))
    monkeypatch.setattr(curator._counts, "categories", lambda table, column, length: words)  # read once
    monkeypatch.setattr(curator, "_ledger", _Endless())  # no limit on delta is as large as so many runs
    found = (curator.discover("orders", "x", what="words", rho=0.5, delta=delta) for _ in range(runs))
    return sum(not alone.isdisjoint(words) for words in found)


class _Endless:
    def charge(self, cost, *, what) -> None:
        """Take everything."""


@pytest.mark.parametrize("categories", [1, 2, 3])
def test_rare_categories_stay_hidden_with_probability_delta(categories, monkeypatch):
    """Whether a unit has its rows in one category or in several: each of these is close to the worst there is."""
    delta, runs = 0.02, 6_000
    found = _discovered(0.0, monkeypatch, categories=categories, runs=runs, delta=delta)
    assert beta.ppf(MISS, found, runs - found + 1) <= delta
    assert found > delta * runs / 3
    # A threshold that forgets what the unit itself weighs lets them through.
    broken = _discovered(1.0, monkeypatch, categories=categories, runs=runs // 2, delta=delta)
    assert beta.ppf(MISS, broken, runs // 2 - broken + 1) > delta


def test_the_audit_itself_accepts_what_is_true_and_rejects_what_is_not():
    """Power of the method on plain Gaussians: the claimed scale passes, two thirds of it do not."""
    rng = np.random.default_rng(0)

    def runs(mean: float, sigma: float) -> Runs:
        return Runs(["same"] * 3 * RUNS, list(rng.normal(mean, sigma, 3 * RUNS)))

    rho = 0.5
    assert not audit(runs(1.0, 1.0), runs(0.0, 1.0), zcdp_claim(rho)).broken
    assert audit(runs(1.0, 2 / 3), runs(0.0, 2 / 3), zcdp_claim(rho)).broken
