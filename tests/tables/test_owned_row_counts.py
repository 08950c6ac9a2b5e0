"""How many rows owners have: all counts together, degrees in groups, and that noise
alone never makes rows or loses them.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpweave import chosen
from dpweave.links.degrees import bucketed, degrees_of, reweighed
from dpweave.plan.relations import ANY_DEGREE
from dpweave.privacy.window import NoisyMarginal
from dpweave.tables.owned_row_counts import (
    Rows,
    combined,
    degree_groups,
    degree_histogram,
    finer,
    joined,
    kept_share,
    with_declared,
)

CELLS = len(ANY_DEGREE) - 1


def noisy(counts: np.ndarray, sigma: float, rng: np.random.Generator) -> NoisyMarginal:
    return NoisyMarginal(("x",), np.rint(counts + rng.normal(0, sigma, counts.shape)).astype(np.int64), sigma)


def test_noise_alone_never_makes_large_degrees() -> None:
    """412 owners with up to 14 rows each, under noise of 30 in each of some forty buckets: 2,000 fits."""
    rng = np.random.default_rng(4)
    true = np.bincount(bucketed(rng.integers(1, 15, 412), ANY_DEGREE), minlength=CELLS)
    tops = [degree_groups(noisy(true, 30.0, rng), ANY_DEGREE, bound=10, noise=30.0, values=7)[-1] for _ in range(2000)]
    assert max(tops) <= 200


def test_few_large_degrees_are_seen_beside_the_noise_of_all_buckets() -> None:
    """A fifth of all orders have three items or four. Noise of buckets up to a million must not hide them."""
    rng = np.random.default_rng(4)
    true = np.zeros(CELLS, dtype=np.int64)
    true[1:5] = 22_500, 18_000, 7_000, 2_200
    for _ in range(20):
        marginal = noisy(true, 500.0, rng)
        groups = degree_groups(marginal, ANY_DEGREE, bound=10, noise=500.0, values=7)
        fine, counts = degree_histogram(marginal, ANY_DEGREE, groups, bound=10)
        assert groups[-1] in (4, 5)
        drawn = degrees_of(np.full(50_000, len(groups) - 2), np.array(groups), np.array(fine), counts, rng)
        assert drawn.max() == groups[-1] - 1


def test_nothing_but_noise_falls_back_to_the_bound() -> None:
    rng = np.random.default_rng(5)
    assert degree_groups(noisy(np.zeros(CELLS), 50.0, rng), ANY_DEGREE, bound=10, noise=30.0, values=7) == (0, 11)


@pytest.mark.parametrize("sigma", [1.0, 10.0])
def test_degrees_come_back_with_their_mean_and_shape(sigma: float) -> None:
    rng = np.random.default_rng(6)
    degrees = np.minimum(np.rint(rng.lognormal(4.0, 1.0, 6000)), 2000).astype(np.int64)
    marginal = noisy(np.bincount(bucketed(degrees, ANY_DEGREE), minlength=CELLS), sigma, rng)
    groups = degree_groups(marginal, ANY_DEGREE, bound=20, noise=1.0, values=4)
    assert 4 <= len(groups) <= 8
    fine, counts = degree_histogram(marginal, ANY_DEGREE, groups, bound=20)
    assert len(fine) == len(counts) + 1
    codes = bucketed(degrees, groups)
    made = degrees_of(codes, np.array(groups), np.array(fine), counts, rng)
    assert made.mean() == pytest.approx(degrees.mean(), rel=0.1)
    ends = np.unique(np.concatenate([degrees, made]))
    distance = np.abs(
        np.searchsorted(np.sort(degrees), ends, "right") / 6000 - np.searchsorted(np.sort(made), ends, "right") / 6000
    )
    assert distance.max() < 0.05


def test_a_sharp_end_of_degrees_is_kept():
    rng = np.random.default_rng(4)
    degrees = rng.integers(1, 8, 50_000)
    edges = tuple(sorted({*ANY_DEGREE, 8}))
    marginal = noisy(np.bincount(bucketed(degrees, edges), minlength=len(edges) - 1), 3.0, rng)
    groups = degree_groups(marginal, edges, bound=7, noise=3.0, values=7)
    fine, counts = degree_histogram(marginal, edges, groups, bound=7)
    made = degrees_of(bucketed(degrees, groups), np.array(groups), np.array(fine), counts, rng)
    assert (made > 7).mean() < 0.001
    assert made.mean() == pytest.approx(degrees.mean(), rel=0.02)


def looks_at(
    degrees: np.ndarray, sigma: float, rng: np.random.Generator, edges: tuple[int, ...] = ANY_DEGREE
) -> list[NoisyMarginal]:
    """Both looks at degrees, with noise ``sigma`` if one look had all of the budget."""
    exact = np.bincount(bucketed(degrees, edges), minlength=len(edges) - 1)
    first = noisy(exact, sigma / chosen.FIRST_COUNT**0.5, rng)
    edges = finer(first, edges)
    exact = np.bincount(bucketed(degrees, edges), minlength=len(edges) - 1)
    return [first, noisy(exact, sigma / (1 - chosen.FIRST_COUNT) ** 0.5, rng)]


def test_every_degree_comes_as_often_as_it_does_where_noise_allows_it() -> None:
    """Many owners have five rows, seven, nine or twelve, and few six, eight or ten: buckets would even them out."""
    rng = np.random.default_rng(7)
    shares = np.array([21, 8, 6, 5, 8, 9, 3, 8, 2, 8, 3, 7, 11, 0.4, 1.1])
    degrees = rng.choice(15, 30_000, p=shares / shares.sum())
    buckets = tuple(sorted({*ANY_DEGREE, 15}))
    marginal, edges = joined(looks_at(degrees, 40.0, rng, buckets), buckets)
    groups = degree_groups(marginal, edges, bound=14, noise=40.0, values=7)
    fine, counts = degree_histogram(marginal, edges, groups, bound=14)
    made = degrees_of(bucketed(degrees, groups), np.array(groups), np.array(fine), counts, rng)
    sizes = [np.bincount(d, minlength=64) for d in (degrees, made)]
    assert np.abs(sizes[0] - sizes[1]).sum() / 2 < 0.02 * len(degrees)
    assert made.max() == 14


def test_few_owners_keep_the_noise_of_one_look() -> None:
    """Hardly a bucket of 300 owners under noise of 20 is cut, and both looks together are as good as one."""
    degrees = np.random.default_rng(0).integers(1, 60, 300)
    errors, cut = [], 0
    for seed in range(300):
        marginal, edges = joined(looks_at(degrees, 20.0, np.random.default_rng(seed)), ANY_DEGREE)
        cut += edges != ANY_DEGREE
        errors += (marginal.counts - np.bincount(bucketed(degrees, edges), minlength=len(edges) - 1)).tolist()
        assert 20.0 <= marginal.sigma <= 20.0 * (1 - chosen.FIRST_COUNT) ** -0.5
    assert cut <= 3
    assert rms(errors) == pytest.approx(20.0, rel=0.03)


def test_both_looks_together_are_the_least_squares_of_both() -> None:
    degrees = np.random.default_rng(0).geometric(1 / 12, 4000)
    first, second = looks_at(degrees, 5.0, np.random.default_rng(1))
    marginal, edges = joined([first, second], ANY_DEGREE)
    sums = np.zeros((CELLS, len(edges) - 1))
    sums[np.searchsorted(ANY_DEGREE, edges[:-1], side="right") - 1, np.arange(len(edges) - 1)] = 1.0
    system = np.vstack([sums / first.sigma, np.eye(len(edges) - 1) / second.sigma])
    seen = np.concatenate([first.counts / first.sigma, second.counts / second.sigma])
    assert np.abs(marginal.counts - np.linalg.lstsq(system, seen, rcond=None)[0]).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("total", [1, 900, 2000, 3500, 10_000])
def test_degrees_that_are_reweighed_come_nearer_to_a_total_and_are_never_new(total: int) -> None:
    rng = np.random.default_rng(0)
    degrees = rng.choice([0, 1, 5, 7], 500)
    made = reweighed(degrees, total, rng)
    assert set(made.tolist()) <= set(degrees.tolist())
    if 0 < total < 3500:
        assert made.sum() == pytest.approx(total, abs=7)
        assert all(made[degrees < d].max(initial=0) <= made[degrees == d].min() for d in (1, 5, 7))
    else:
        assert made.tolist() == degrees.tolist()


def combinations(
    degrees: np.ndarray, *, bound: int, sigma: float, sizes: float, times: int
) -> list[tuple[Rows, Rows, float]]:
    """Direct count, all counts together, and the truth, for noise ``sigma`` in a bucket
    and ``sizes`` in a count of units.
    """
    rng = np.random.default_rng(0)
    edges = tuple(sorted({*ANY_DEGREE, bound + 1}))
    exact = np.bincount(bucketed(degrees, edges), minlength=len(edges) - 1)
    true = float(np.minimum(degrees, bound).sum())
    out = []
    for _ in range(times):
        direct = Rows(true + bound * rng.normal(0, sizes), bound * sizes)
        owners = Rows(len(degrees) + rng.normal(0, sizes), sizes)
        out.append((direct, combined(direct, owners, noisy(exact, sigma, rng), edges, bound=bound), true))
    return out


def rms(errors: list[float]) -> float:
    return float(np.sqrt(np.mean(np.square(errors))))


@pytest.mark.parametrize("bound", [5, 100, 1000])
def test_degrees_tell_how_many_rows_owners_have(bound: int) -> None:
    """Whatever the bound, noise is that of owners, where all degrees stand out of it."""
    found = combinations(
        np.random.default_rng(0).geometric(1 / 8, 3000), bound=bound, sigma=20.0, sizes=12.0, times=300
    )
    errors = [(rows.rows - true) / true for _, rows, true in found]
    assert np.median(np.abs(errors)) < 0.05
    assert np.quantile(np.abs(errors), 0.9) < 0.15
    assert rms(errors) <= rms([(direct.rows - true) / true for direct, _, true in found])
    assert np.mean([abs(rows.rows - true) < 3 * rows.sigma for _, rows, true in found]) > 0.9


@pytest.mark.parametrize("law", ["zipf", "lognormal", "two kinds"])
@pytest.mark.parametrize("sigma", [10.0, 30.0, 100.0])
def test_rows_in_a_tail_that_noise_hides_are_not_lost(law: str, sigma: float) -> None:
    """Most rows are owned by few, in buckets none of which stands out: taken for empty,
    they would take the table with them.
    """
    rng = np.random.default_rng(1)
    degrees = {
        "zipf": rng.zipf(1.4, 1500),
        "lognormal": np.rint(rng.lognormal(3.0, 1.5, 1500)).astype(np.int64),
        "two kinds": np.where(rng.random(1500) < 0.8, 1, rng.integers(10, 400, 1500)),
    }[law]
    found = combinations(np.minimum(degrees, 400), bound=400, sigma=sigma, sizes=sigma / 2, times=300)
    for direct, rows, _ in found:
        assert abs(rows.rows - direct.rows) <= chosen.SIGNIFICANT * direct.sigma * (1 + 1e-9)
    # An empty tail is believed until counts contradict it, which costs no more than
    # that within the band of the direct count.
    assert rms([rows.rows - true for _, rows, true in found]) < 2 * rms([d.rows - true for d, _, true in found])


def test_nothing_but_noise_in_degrees_leaves_the_direct_count() -> None:
    rng, direct = np.random.default_rng(0), Rows(500.0, 80.0)
    for _ in range(100):
        assert combined(direct, Rows(10.0, 20.0), noisy(np.zeros(CELLS), 20.0, rng), ANY_DEGREE, bound=50) == direct


def test_groups_reach_up_to_the_bound_where_rows_call_for_it() -> None:
    """Of 1,500 owners 1,200 have one row and the others up to 400, ten in each of thirty buckets under noise of 60."""
    edges = tuple(sorted({*ANY_DEGREE, 401}))
    counts = np.where(np.array(edges[:-1]) <= 400, 10, 0)
    counts[1] = 1200
    marginal = NoisyMarginal(("x",), counts, 60.0)
    without, known = (
        degree_groups(marginal, edges, bound=400, noise=60.0, values=3, rows=rows) for rows in (1300.0, 30_000.0)
    )
    assert without[-1] == 2
    assert known[-1] == 401
    fine, counts = degree_histogram(marginal, edges, known, bound=400)
    assert fine == edges[: len(fine)]
    assert len(counts) == len(fine) - 1


def test_kept_share_is_of_degrees_beyond_doubt_above_the_bound():
    counts = np.zeros(len(ANY_DEGREE) - 1, dtype=np.int64)
    counts[[1, 4]] = 1000  # owners of one row, and of four
    marginal = NoisyMarginal(("x",), counts, 3.0)
    assert kept_share(marginal, ANY_DEGREE, bound=2) == pytest.approx(3 / 5)
    assert kept_share(marginal, ANY_DEGREE, bound=4) == 1.0
    assert kept_share(NoisyMarginal(("x",), counts, 1000.0), ANY_DEGREE, bound=2) == 1.0


@pytest.mark.parametrize("declared", [2_000.0, 5_000.0, 20_000.0])
def test_a_table_that_is_declared_does_not_vanish_in_noise(declared: float) -> None:
    """Two keys down, bounds of ten and ten: 5,000 rows, of which noise of 6,000 often leaves none."""
    rng = np.random.default_rng(0)
    counted = 5_000 + rng.normal(0.0, 6_000.0, 2_000)
    found = [with_declared(Rows(float(c), 6_000.0), declared) for c in counted]
    collapsed, before = (np.mean([r < 5_000 / 4 for r in rows]) for rows in ([f.rows for f in found], counted))
    assert before > 0.2
    assert collapsed < before / 4
    assert declared == 2_000 or all(abs(f.rows - 5_000) < 4 * f.sigma for f in found)
