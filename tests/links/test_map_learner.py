from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpweave.errors import UsageError
from dpweave.links.degrees import Degrees, bucketed, seen
from dpweave.links.evidence import evidence, verdict
from dpweave.links.link_method import LinkModel, LinkProblem, link_model, random_links
from dpweave.links.map_learner import MAP, fit_links
from dpweave.links.row_types import RowTypes
from dpweave.measure.cross_workloads import Workload, answers_from_links, cross_workloads
from dpweave.privacy.window import NoisyMarginal
from dpweave.schema.degree_buckets import buckets
from tests.windows import ArrayWindow


def quiet(what, share):
    assert 0 <= share <= 1


def relation(rng, *, rows=10_000, others=2_000, links=20_000, effect=0.0, kind="many-to-many", bound=10):
    """Two tables of a few columns; right ``c`` agrees with left ``a`` for a share ``effect`` of the links."""
    left = {"a": rng.integers(0, 4, rows), "b": rng.choice(6, rows, p=[0.4, 0.3, 0.1, 0.1, 0.05, 0.05])}
    right = {"c": rng.integers(0, 4, others), "d": rng.choice(2, others, p=[0.9, 0.1]), "e": rng.integers(0, 3, others)}
    shape = {"a": 4, "b": 6, "c": 4, "d": 2, "e": 3}
    if kind == "one-to-many":
        i, links = np.arange(rows), rows
    else:
        i = rng.permutation(np.repeat(np.arange(rows), bound))[:links]
    j = rng.integers(0, others, links)
    led = np.flatnonzero(rng.random(links) < effect)
    groups = [np.flatnonzero(right["c"] == value) for value in range(4)]
    for value, group in enumerate(groups):
        at = led[left["a"][i[led]] == value]
        j[at] = rng.choice(group, len(at))
    pairs = np.unique(np.stack([i, j], axis=1), axis=0) if kind == "many-to-many" else np.stack([i, j], axis=1)
    return left, right, shape, pairs


def window(left, right, shape, pairs, *, l2, seed):
    codes = {c: v[pairs[:, 0]] for c, v in left.items()} | {c: v[pairs[:, 1]] for c, v in right.items()}
    return ArrayWindow(codes, shape, l1=l2, l2=l2, seed=seed)


def problem(left, right, shape, pairs, **options):
    return LinkProblem(left, right, shape=shape, links=len(pairs), links_measured=len(pairs), **options)


def error(pairs, truth, left, right, shape, k=3):
    """Mean L1 distance over all k-way cross-table workloads."""
    distances = []
    for w in cross_workloads(list(left), list(right), k=k):
        one, two = (answers_from_links(w, left, right, x, shape=shape) / len(x) for x in (pairs, truth))
        distances.append(np.abs(one - two).sum())
    return float(np.mean(distances))


def rho_of(epsilon, delta=1e-6):
    """The simple conversion, good enough to set the scene."""
    root = math.sqrt(math.log(1 / delta))
    return (math.sqrt(math.log(1 / delta) + epsilon) - root) ** 2


def learn(left, right, shape, pairs, *, rho, seed, l2=10.0, degrees=None, **options):
    asked = window(left, right, shape, pairs, l2=l2, seed=seed)
    result = MAP(3).learn(
        asked,
        problem(left, right, shape, pairs, **options),
        rho=rho,
        rng=np.random.default_rng(seed),
        progress=quiet,
        degrees=degrees or Degrees(),
    )
    assert asked.spent == pytest.approx(rho, rel=1e-9)
    return result


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_never_worse_than_random_wiring_where_links_are_random(epsilon):
    learned, at_random = [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        left, right, shape, pairs = relation(rng, rows=3000, others=1000, links=8000)
        found = learn(left, right, shape, pairs, rho=rho_of(epsilon), seed=seed).pairs
        learned.append(error(found, pairs, left, right, shape))
        at_random.append(error(random_links(problem(left, right, shape, pairs), rng), pairs, left, right, shape))
    assert np.mean(learned) <= 1.03 * np.mean(at_random)


@pytest.mark.parametrize("kind", ["many-to-many", "one-to-many"])
def test_a_planted_effect_survives(kind):
    kept = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        left, right, shape, pairs = relation(rng, effect=0.6, links=20_000, bound=3, kind=kind)
        bound = 3 if kind == "many-to-many" else 1
        found = learn(left, right, shape, pairs, rho=rho_of(1.0), seed=seed, l2=float(bound), kind=kind).pairs
        strength = [(left["a"][x[:, 0]] == right["c"][x[:, 1]]).mean() - 0.25 for x in (found, pairs)]
        kept.append(strength[0] / strength[1])
    assert 0.9 <= np.mean(kept) <= 1.05


def test_learning_beats_random_where_there_is_something_to_learn():
    rng = np.random.default_rng(5)
    left, right, shape, pairs = relation(rng, effect=0.3)
    found = learn(left, right, shape, pairs, rho=rho_of(2.0), seed=5).pairs
    at_random = random_links(problem(left, right, shape, pairs), rng)
    assert error(found, pairs, left, right, shape) < 0.5 * error(at_random, pairs, left, right, shape)


@pytest.mark.parametrize("kind", ["many-to-many", "one-to-many", "one-to-one"])
@pytest.mark.parametrize("same_table", [False, True])
def test_kinds_are_kept_exactly(kind, same_table):
    rng = np.random.default_rng(6)
    n = 300
    left = {"a": rng.integers(0, 3, n)}
    right = {"b": rng.integers(0, 3, n)}
    links = {"many-to-many": 900, "one-to-many": n, "one-to-one": 250}[kind]
    some = LinkProblem(
        left, right, shape={"a": 3, "b": 3}, links=links, links_measured=links, kind=kind, same_table=same_table
    )
    pairs = random_links(some, rng)
    asked = window(left, right, {"a": 3, "b": 3}, pairs, l2=2.0, seed=1)
    found = MAP(2).learn(asked, some, rho=0.5, rng=rng, progress=quiet).pairs
    assert len(np.unique(found[:, 0] * n + found[:, 1])) == len(found) == links
    if kind != "many-to-many":
        assert np.bincount(found[:, 0]).max() == 1
    if kind == "one-to-one":
        assert np.bincount(found[:, 1]).max() == 1
    if same_table:
        assert (found[:, 0] != found[:, 1]).all()


def test_bounds_hold_where_degrees_are_not_given():
    rng = np.random.default_rng(7)
    left, right, shape, pairs = relation(rng, rows=1000, others=900, links=4000, effect=0.9)
    found = learn(left, right, shape, pairs, rho=1.0, seed=7, degrees=Degrees(left_bound=6, right_bound=7)).pairs
    assert np.bincount(found[:, 0]).max() <= 6
    assert np.bincount(found[:, 1]).max() <= 7


def test_given_degrees_are_kept_and_bounding_brings_no_bias():
    # Heavy users like c = 0, light ones do not care; the view shows at most 5 links of each.
    rng = np.random.default_rng(8)
    rows, others = 3000, 1500
    degrees = np.where(rng.random(rows) < 0.2, 60, 3)
    edges = buckets(100, growth=2.0)
    left = {"size": bucketed(degrees, edges), "b": rng.integers(0, 3, rows)}
    right = {"c": rng.integers(0, 4, others)}
    shape = {"size": len(edges) - 1, "b": 3, "c": 4}
    i = np.repeat(np.arange(rows), degrees)
    zeros = np.flatnonzero(right["c"] == 0)
    j = np.where(
        (degrees[i] == 60) & (rng.random(len(i)) < 0.5), rng.choice(zeros, len(i)), rng.integers(0, others, len(i))
    )
    truth = np.unique(np.stack([i, j], axis=1), axis=0)
    true_degrees = np.bincount(truth[:, 0], minlength=rows)
    shuffled = truth[np.lexsort((rng.random(len(truth)), truth[:, 0]))]
    first = np.cumsum(true_degrees) - true_degrees
    kept = shuffled[np.arange(len(truth)) - first[shuffled[:, 0]] < 5]
    asked = window(left, right, shape, kept, l2=5.0, seed=8)
    whole = LinkProblem(left, right, shape=shape, links=len(truth), links_measured=len(kept))
    result = MAP(2).learn(
        asked,
        whole,
        rho=0.5,
        rng=rng,
        progress=quiet,
        degrees=Degrees(left=true_degrees, left_seen=seen(true_degrees, 5)),
    )
    assert (np.bincount(result.pairs[:, 0], minlength=rows) == true_degrees).all()
    share, real, bounded = ((right["c"][x[:, 1]] == 0).mean() for x in (result.pairs, truth, kept))
    assert abs(bounded - real) > 0.04  # the bounded view alone is biased
    assert share == pytest.approx(real, abs=0.015)


def test_a_wrong_margin_goes_into_slack_and_not_into_the_lean():
    rng = np.random.default_rng(5)
    left, right, shape, pairs = relation(rng, effect=0.2)
    degrees = np.bincount(pairs[:, 0], minlength=10_000)
    wrong = np.where(left["a"] == 1, 2 * degrees, degrees)
    measured = window(left, right, shape, pairs, l2=10.0, seed=5).measure([("a", "c"), ("a", "b", "c")], rho=20.0)
    fits = [
        fit_links(problem(left, right, shape, pairs), measured, degrees=Degrees(left=d), rng=rng)
        for d in (degrees, wrong)
    ]
    (single,) = [t for t in fits[0].slack if t.left == ("a",)]
    moved = [fit.slack[single] - fit.slack[single][[0, 2, 3]].mean() for fit in fits]
    assert np.abs(moved[0]).max() < 0.05
    assert moved[1][1] == pytest.approx(-math.log(2), abs=0.05)
    tables = []
    for fit in fits:
        (cross,) = [t for t in fit.theta if t.columns == ("a", "c")]
        tables.append(fit.theta[cross] - fit.theta[cross].mean(axis=1, keepdims=True))
    agree = np.eye(4, dtype=bool)
    for led in tables:
        assert led[agree].mean() - led[~agree].mean() == pytest.approx(math.log(1 + 0.2 / 0.8 * 4), abs=0.12)
    assert not any(t.right == () for t in fits[1].theta)


def test_wiring_again_costs_nothing_and_works_at_any_size():
    rng = np.random.default_rng(9)
    left, right, shape, pairs = relation(rng, effect=0.6)
    result = learn(left, right, shape, pairs, rho=1.0, seed=9)
    more = {c: np.tile(v, 3) for c, v in left.items()}
    larger = LinkProblem(more, right, shape=shape, links=3 * len(pairs), links_measured=len(pairs))
    again = MAP(3).wire(larger, result.measured, rng=rng)
    assert len(again) == 3 * len(pairs)
    agree = [(one["a"][x[:, 0]] == right["c"][x[:, 1]]).mean() for one, x in ((more, again), (left, pairs))]
    assert agree[0] == pytest.approx(agree[1], abs=0.03)
    same = MAP(3).wire(larger, result.measured, rng=np.random.default_rng(1))
    assert (same == MAP(3).wire(larger, result.measured, rng=np.random.default_rng(1))).all()


def test_without_measurements_links_are_independent():
    rng = np.random.default_rng(10)
    left, right, shape, pairs = relation(rng, rows=500, others=300, links=1000)
    some = problem(left, right, shape, pairs)
    assert fit_links(some, (), rng=rng).theta == {}
    assert len(MAP(3).wire(some, (), rng=rng)) == len(pairs)


@pytest.mark.parametrize("side", ["left", "right", "flat"])
def test_nothing_to_learn_costs_nothing(side):
    rng = np.random.default_rng(14)
    left = {"a": rng.integers(0, 2, 0 if side == "left" else 20)}
    right = {"b": np.zeros(0 if side == "right" else 20, dtype=np.int64)}
    shape = {"a": 2, "b": 1}
    links = 5 if side == "flat" else 0
    asked = ArrayWindow({"a": [0], "b": [0]}, shape)
    some = LinkProblem(left, right, shape=shape, links=links, links_measured=5)
    assert len(MAP(2).learn(asked, some, rho=1.0, rng=rng, progress=quiet).pairs) == links
    assert asked.spent == 0


@pytest.mark.slow
def _months(rng: np.random.Generator, rows: int = 8000) -> tuple[LinkProblem, list[NoisyMarginal]]:
    """Payments lead to rentals of their own month, of which some are rare; counts have little noise."""
    share = np.array([0.45, 0.33, 0.14, 0.06, 0.02])
    left, right = (rng.choice(5, rows, p=share) for _ in range(2))
    problem = LinkProblem({"paid": left}, {"lent": right}, {"paid": 5, "lent": 5}, rows, rows, kind="one-to-many")
    counts = rows * np.diag(share) + rng.normal(0.0, 10.0, (5, 5))
    return problem, [NoisyMarginal(("paid", "lent"), np.rint(counts).astype(np.int64), 10.0)]


def test_cells_that_are_empty_come_out_empty():
    """A prior that is normal in the logarithm of what is below chance would leave a part of it in every cell."""
    problem, measured = _months(np.random.default_rng(0))
    fit = fit_links(problem, measured, rng=np.random.default_rng(0))
    ((table, _),) = fit.joint.values()
    assert table.trace() / table.sum() > 0.98


def test_what_is_expected_of_links_stays_where_counts_say_nothing():
    problem, measured = _months(np.random.default_rng(0))
    pair = Workload(("paid",), ("lent",))
    expected = {pair: np.log(0.1 + 3.0 * np.eye(5))}
    silent = [NoisyMarginal(m.columns, np.zeros((5, 5), dtype=np.int64), 1e6) for m in measured]
    problem = replace(problem, expected=expected)
    for counts in ((), silent):
        fit = fit_links(problem, counts, rng=np.random.default_rng(0))
        assert fit.theta[pair] == pytest.approx(expected[pair], abs=0.05)
    turned = replace(problem, expected={pair: np.log(0.1 + 3.0 * np.eye(5)[::-1])})
    table, _ = fit_links(turned, measured, rng=np.random.default_rng(0)).joint[pair]
    assert table.trace() / table.sum() > 0.95  # counts know better


def test_many_row_types_are_sampled(monkeypatch):
    from dpweave.links import draw_links, fit_inputs
    from dpweave.links.wiring import wire

    for module in (draw_links, wire):
        monkeypatch.setattr(module, "WHOLE_CELLS", 1 << 16)
    monkeypatch.setattr(fit_inputs, "FIT_CELLS", 1 << 16)
    monkeypatch.setattr(draw_links, "_EVEN_CELLS", 1 << 16)
    rng = np.random.default_rng(11)
    left, right, shape, pairs = relation(rng, effect=0.6, links=20_000)
    left |= {f"x{i}": rng.integers(0, 5, 10_000) for i in range(2)}
    right |= {f"y{i}": rng.integers(0, 5, 2000) for i in range(2)}
    shape = {**shape, **{f"{side}{i}": 5 for side in "xy" for i in range(2)}}
    result = learn(left, right, shape, pairs, rho=1.0, seed=11, l2=3.0)
    strength = [(left["a"][x[:, 0]] == right["c"][x[:, 1]]).mean() - 0.25 for x in (result.pairs, pairs)]
    assert strength[0] / strength[1] > 0.8
    assert len(result.pairs) == len(pairs)


def test_a_sample_of_row_types_is_not_taken_for_the_rows(monkeypatch):
    """Links are random. Types that stand for all have some values too often and others
    never, and links must not follow them.
    """
    from dpweave.links import fit_inputs

    monkeypatch.setattr(fit_inputs, "FIT_CELLS", 1 << 12)
    rng = np.random.default_rng(0)
    shape = {"a": 30, "b": 30, "x": 90, "y": 40}
    left = {c: rng.integers(0, shape[c], 8000) for c in ("a", "b")}
    right = {c: rng.integers(0, shape[c], 4000) for c in ("x", "y")}
    problem = LinkProblem(left, right, shape=shape, links=8000, links_measured=8000, kind="one-to-many")
    pairs = random_links(problem, rng)
    codes = {c: v[pairs[:, 0]] for c, v in left.items()} | {c: v[pairs[:, 1]] for c, v in right.items()}
    window = ArrayWindow(codes, shape, seed=1)
    measured = window.measure([("x",), ("y",), ("a", "x")], rho=0.001)
    found = MAP(2).wire(problem, measured, rng=rng)
    for column in ("x", "y"):
        here = np.bincount(right[column], minlength=shape[column]) / 4000
        there = np.bincount(right[column][found[:, 1]], minlength=shape[column]) / 8000
        assert np.abs(here - there).sum() < 0.1


def test_weights_of_a_fit_are_those_of_theta():
    rng = np.random.default_rng(12)
    left, right, shape, pairs = relation(rng, effect=0.5)
    some = problem(left, right, shape, pairs)
    fit = fit_links(some, learn(left, right, shape, pairs, rho=5.0, seed=12).measured, rng=rng)
    lefts = RowTypes.of(left, fit.left, shape=shape)
    rights = RowTypes.of(right, fit.right, shape=shape)
    slow = np.zeros((lefts.count, rights.count))
    for w, theta in fit.theta.items():
        for i in range(lefts.count):
            for j in range(rights.count):
                at = dict(zip(fit.left, lefts.codes[i], strict=True)) | dict(
                    zip(fit.right, rights.codes[j], strict=True)
                )
                slow[i, j] += theta[tuple(at[c] for c in w.columns)]
    found = np.log(fit.weights(lefts, rights))
    np.testing.assert_allclose(found - found.max(), slow - slow.max(), atol=1e-9)
    assert fit.converged


class TestEvidence:
    def scores(self, effect, seeds):
        out = []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            left, right, shape, pairs = relation(rng, rows=3000, others=2000, links=9000, effect=effect)
            asked = window(left, right, shape, pairs, l2=20.0, seed=seed)
            measured = asked.measure([("a", "c"), ("b", "d")], rho=0.05)
            found = evidence(problem(left, right, shape, pairs), measured, rng=rng)
            out.append({e.columns: e for e in found})
        return out

    def test_noise_alone_gives_standard_normal_scores(self):
        statistics = [e["a", "c"].found.statistic / e["a", "c"].found.freedom for e in self.scores(0.0, range(60))]
        # Accept the right scale; two thirds or three halves of it lie outside.
        assert 0.85 < np.mean(statistics) < 1.25

    def test_signal_is_noticed_in_the_right_place(self):
        found = self.scores(0.5, range(3))
        assert all(e["a", "c"].score > 4 for e in found)
        assert all("clearly support" in e["a", "c"].verdict for e in found)
        assert np.mean([e["b", "d"].score for e in found]) < 2
        assert "a × c" in verdict(sorted(found[0].values(), key=lambda e: -e.score))

    def test_plain_words_where_nothing_stands_out(self):
        quiet_ = self.scores(0.0, [3])[0]
        assert "stands out of the noise" in verdict(list(quiet_.values()))
        assert evidence(problem(*relation(np.random.default_rng(0))), (), rng=np.random.default_rng(0)) == ()


def test_it_is_a_link_model_by_name():
    assert isinstance(link_model("map", k=2), MAP)
    assert isinstance(MAP(), LinkModel)
    with pytest.raises(UsageError, match="k = 1"):
        MAP(1)
    rng = np.random.default_rng(13)
    left, right, shape, pairs = relation(rng, rows=50, others=40, links=60)
    with pytest.raises(UsageError, match="49 degrees for 50 left rows"):
        MAP(2).wire(problem(left, right, shape, pairs), (), rng=rng, degrees=Degrees(left=np.ones(49, dtype=np.int64)))
