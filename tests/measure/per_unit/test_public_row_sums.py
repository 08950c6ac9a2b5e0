"""Unit sums: nothing is lost by leaving out what follows by subtraction, and much noise is saved."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpweave.links.degrees import Degrees
from dpweave.links.evidence import evidence
from dpweave.links.fit_inputs import FitInputs, _averaged
from dpweave.links.link_method import LinkProblem
from dpweave.links.map_learner import MAP, fit_links
from dpweave.measure.design import predict_error
from dpweave.measure.estimates import estimates
from dpweave.measure.margins import Margin
from dpweave.measure.per_unit.public_row_sums import MOST_CODES, PublicRowSums
from dpweave.measure.question import Question, Way
from dpweave.privacy.window import Noisy, NoisyMarginal, NoisyUnitSum, Units
from tests.windows import ArrayWindow

USERS, FILMS, EACH = 2000, 200, 20
GENRES = ("war", "love", "space", "crime", "horror", "music")
SHAPE = {"age": 4, "job": 5, "kind": 3} | dict.fromkeys(GENRES, 2)


def quiet(_what: str, _share: float) -> None:
    """Say nothing."""


@pytest.fixture(scope="module")
def world() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
    """Users, films, and ratings; old users lean to war and away from space, by half."""
    rng = np.random.default_rng(0)
    left = {"age": rng.integers(0, 4, USERS), "job": rng.integers(0, 5, USERS)}
    right = {
        g: (rng.random(FILMS) < p).astype(np.int64) for g, p in zip(GENRES, np.linspace(0.05, 0.4, 6), strict=True)
    }
    right["kind"] = rng.choice(3, FILMS, p=[0.2, 0.5, 0.3])
    pairs = []
    for user in range(USERS):
        effect = 1 + 0.5 * (left["age"][user] == 3) * (right["war"] - right["space"])
        pairs.append(np.stack([np.full(EACH, user), rng.choice(FILMS, EACH, p=effect / effect.sum())], axis=1))
    return left, right, np.concatenate(pairs)


def _window(world, *, units: Units | None, seed: int = 0) -> ArrayWindow:
    left, right, pairs = world
    codes = {c: v[pairs[:, 0]] for c, v in left.items()} | {c: v[pairs[:, 1]] for c, v in right.items()}
    return ArrayWindow(codes, SHAPE, l1=EACH, l2=EACH, seed=seed, unit=pairs[:, 0], units=units)


def _problem(world) -> LinkProblem:
    left, right, pairs = world
    return LinkProblem(left, right, shape=SHAPE, links=len(pairs), links_measured=float(len(pairs)))


def _degrees() -> Degrees:
    return Degrees(left=np.full(USERS, EACH))


SHARED = Units(EACH, frozenset({"age", "job"}))


def _unit_sums(world, units: Units = SHARED) -> PublicRowSums:
    """Without centres, as where it is not known how links spread over the left side."""
    scene = FitInputs.of(_problem(world), Degrees())
    return scene.public_row_sums(scene.design(3), units)


def _centred(world, units: Units = SHARED) -> PublicRowSums:
    """Around the true shares of all links."""
    scene = FitInputs.of(_problem(world), _degrees())
    unit_sums = scene.public_row_sums(scene.design(3), units)
    every = unit_sums.question((), list(unit_sums.share))
    return unit_sums.around(_exact(world, every), links=len(world[2]))


def _rows(world, columns: tuple[str, ...]) -> np.ndarray:
    return _window(world, units=SHARED).exact(columns).astype(float)


def _known(rows: np.ndarray):
    """Rows per cell of the columns of a question, or of all of them."""
    return lambda columns: rows if columns else rows.sum()


def _exact(world, unit_sum) -> NoisyUnitSum:
    """What a unit sum counts without noise and without clipping."""
    window = _window(world, units=SHARED)
    wide = replace(unit_sum, clip=1e9)
    return NoisyUnitSum(wide.unit_sum, window.exact_unit_sum(wide) * np.array(unit_sum.scales), 1e-9)


@pytest.mark.parametrize("make", [_unit_sums, _centred])
def test_what_is_left_out_follows_by_subtraction(world, make):
    unit_sums = make(world)
    unit_sum = unit_sums.question(
        ("age",), [(), *((c,) for c in (*GENRES, "kind")), ("war", "kind"), ("love", "music")]
    )
    window, rows = _window(world, units=SHARED), _rows(world, ("age",))
    noisy = _exact(world, unit_sum)
    found = {e.columns: e for e in estimates(noisy, SHAPE, _known(rows))}
    wanted = {*((c,) for c in (*GENRES, "kind")), ("war", "kind"), ("love", "music")}
    # What a centred question did not count is not shown as if it were counted without noise.
    assert set(found) == {("age", *c) for c in wanted | (set() if unit_sum.centred else {()})}
    for columns, estimate in found.items():
        assert estimate.counts == pytest.approx(window.exact(columns), abs=1e-6)
    # No code asks for the commonest value of a column, and each other value has one.
    assert sum(len(code) == 1 for code in unit_sum.codes) == len(GENRES) + 2
    assert all(m.sigma > 0 for m in found.values())
    empty = estimates(noisy, SHAPE, _known(np.zeros(4)))
    assert all(np.isfinite(m.counts).all() for m in empty)


def test_shares_go_by_counts_as_far_as_these_are_precise(world):
    """Public rows suggest how often a code is linked to; a count of all links corrects that, unless it is noise."""
    scene = FitInputs.of(_problem(world), _degrees())
    unit_sums = scene.public_row_sums(scene.design(3), SHARED)
    every = unit_sums.question((), list(unit_sums.share))
    true = {g: world[1][g][world[2][:, 1]].mean() for g in GENRES}
    war = (("war", 1),)
    assert unit_sums.share[("war",)][war] != pytest.approx(true["war"], rel=0.01)
    near = unit_sums.around(_exact(world, every), links=len(world[2]))
    for g in GENRES:
        assert near.share[(g,)][((g, 1),)] == pytest.approx(true[g], rel=1e-3)
    drowned = NoisyUnitSum(every.unit_sum, np.full(len(every.codes), -3e6), 1e9)
    assert unit_sums.around(drowned, links=len(world[2])).share[("war",)][war] == pytest.approx(
        unit_sums.share[("war",)][war], rel=0.05
    )
    # Of a value that noise hides, units may still have many rows.
    hidden = NoisyUnitSum(every.unit_sum, np.full(len(every.codes), -3e6), 1e5)
    spared, sure = (
        unit_sums.around(noisy, links=len(world[2])).question((), [("war",)])
        for noisy in (hidden, _exact(world, every))
    )
    assert spared.scales[1] > 0.5 * sure.scales[1]
    # Nor is a code lost because noise made its share, or that of all codes, nothing.
    for noise in (1e-9, 1e5):
        lost = NoisyUnitSum(every.unit_sum, np.full(len(every.codes), -1e9), noise)
        left = unit_sums.around(lost, links=len(world[2])).question(("age",), list(unit_sums.share))
        assert len(left.codes) == len(every.codes)
        assert min(left.scales) > 0


def test_centred_unit_sums_have_less_noise_and_seldom_clip(world):
    """Around the shares of all links, noise per code is far less than without, and hardly anything is cut off."""
    sets = [(), *((c,) for c in (*GENRES, "kind")), ("war", "love")]
    for columns in [("age",), ("age", "job")]:
        plain, centred = (make(world).question(columns, sets) for make in (_unit_sums, _centred))
        for code, scale in zip(centred.codes[1:], centred.scales[1:], strict=True):
            assert centred.clip * scale < 0.8 * plain.clip * plain.scales[plain.codes.index(code)]
        window = _window(world, units=SHARED)
        old = window.exact_unit_sum(centred)[3].reshape(-1, len(centred.codes)).sum(axis=0)
        whole = window.exact_unit_sum(replace(centred, clip=1e9))[3].reshape(-1, len(centred.codes)).sum(axis=0)
        war = centred.codes.index((("war", 1),))
        assert whole[war] > 0
        assert old[war] > 0.9 * whole[war], "the planted lean is not clipped away"


def test_seldom_is_a_unit_longer_than_its_clip(world):
    """The clip is what a unit like all the others would have, with room: few are scaled down, and not by much."""
    unit_sums = _unit_sums(world)
    for columns in [(), ("age",), ("age", "job")]:
        unit_sum = unit_sums.question(columns, [(), *((c,) for c in (*GENRES, "kind")), ("war", "love")])
        window = _window(world, units=SHARED)
        clipped, whole = (
            window.exact_unit_sum(b).sum(axis=tuple(range(len(columns))))
            for b in (unit_sum, replace(unit_sum, clip=1e9))
        )
        assert (clipped > 0.95 * whole).all()
        # And it is no wider than needed: half of it would cut a quarter off.
        half = window.exact_unit_sum(replace(unit_sum, clip=unit_sum.clip / 2)).sum(axis=tuple(range(len(columns))))
        assert half.sum() < 0.75 * whole.sum()


def test_rows_that_differ_within_a_unit_need_less_clip(world):
    """Where a unit's rows spread over the cells of its columns, its vector is shorter."""
    shared, spread = (_unit_sums(world, Units(EACH, some)) for some in (frozenset({"job"}), frozenset()))
    sets = [(), ("war",), ("kind",)]
    assert spread.question(("job",), sets).clip < 0.9 * shared.question(("job",), sets).clip


def test_too_many_codes_are_left_out_by_sets_of_columns():
    rng = np.random.default_rng(0)
    codes = {"a": rng.integers(0, 60, 5000), "b": rng.integers(0, 60, 5000), "c": rng.integers(0, 3, 5000)}
    margins = {c: Margin.of(v, np.ones(5000), int(v.max()) + 1) for c, v in codes.items()}
    sets = [("a",), ("b",), ("c",), ("a", "b"), ("a", "c")]
    unit_sums = PublicRowSums.of(codes, np.ones(5000), {}, margins, units=Units(5, frozenset()), sets=sets)
    assert set(unit_sums.share) == {(), ("a",), ("b",), ("c",), ("a", "c")}
    assert sum(map(len, unit_sums.share.values())) <= MOST_CODES + 1


def test_a_unit_sum_without_codes_counts_rows_alone(world):
    """Where a column has more values than a unit sum can hold; explain predicts such relations too."""
    for make in (_unit_sums, _centred):
        unit_sum = make(world).question(("age",), [("nothing",)])
        assert unit_sum.codes == ((),)
        assert make(world).settled(replace(unit_sum, centres=(0.0,)), rho=1.0, links=1e4).codes == ((),)
    predicted = predict_error(
        {"x": 3}, {"g": MOST_CODES + 500}, k=2, rho=0.1, l2=10.0, links=1e4, units=Units(10, frozenset({"x"}))
    )
    assert predicted.learned <= predicted.at_random


@pytest.mark.parametrize("asked", [False, True], ids=["alone", "asked for"])
def test_columns_with_too_many_values_for_a_unit_sum_are_counted_as_before(asked):
    """Where there is nothing else to count, or where they were asked for; otherwise they are left out."""
    rng = np.random.default_rng(0)
    left, right = {"a": rng.integers(0, 2, 500)}, {"b": rng.integers(0, MOST_CODES + 5, 9000)}
    shape = {"a": 2, "b": MOST_CODES + 5}
    if asked:
        right["c"], shape["c"] = rng.integers(0, 3, 9000), 3
    pairs = np.stack([np.repeat(np.arange(500), 4), rng.integers(0, 9000, 2000)], axis=1)
    codes = {c: v[pairs[:, 0]] for c, v in left.items()} | {c: v[pairs[:, 1]] for c, v in right.items()}
    problem = LinkProblem(left, right, shape=shape, links=2000, links_measured=2000.0)

    def measured(favoured: dict[tuple[str, ...], float]) -> tuple[Noisy, ...]:
        window = ArrayWindow(codes, shape, l1=4, l2=4, seed=0, unit=pairs[:, 0], units=Units(4, frozenset({"a"})))
        return MAP(2, favoured, Way.CODED).learn(window, problem, rho=1.0, rng=rng, progress=quiet).measured

    found = measured({("a", "b"): 1.0} if asked else {})
    assert all(isinstance(m, NoisyMarginal) for m in found)
    assert any(m.columns == ("a", "b") for m in found if isinstance(m, NoisyMarginal))
    if asked:
        assert all(isinstance(m, NoisyUnitSum) for m in measured({}))


@pytest.mark.parametrize("make", [_unit_sums, _centred])
@pytest.mark.parametrize("twice", [False, True])
def test_noise_of_completed_tables_is_what_is_said_of_it(world, make, twice):
    """Draw the noise many times: every centred cell varies as much as its blur says, of
    the mean of two unit sums too.
    """
    unit_sums = make(world)
    sets = [(), ("war",), ("kind",), ("war", "kind")]
    made = [
        unit_sums.question(("age",), sets, declared=declared) for declared in ((False, True) if twice else (False,))
    ]
    rng = np.random.default_rng(1)
    scene = FitInputs.of(_problem(world), _degrees())
    margins = {c: unit_sums.right[c] for c in ("war", "kind")}
    drawn: dict[tuple[str, ...], list[np.ndarray]] = {}
    for _ in range(3000):
        several = []
        for unit_sum, sigma in zip(made, (1.0, 0.7), strict=False):
            noise = rng.normal(size=(4, len(unit_sum.codes))) * np.array(unit_sum.scales) * sigma
            several.append(NoisyUnitSum(unit_sum.unit_sum, noise, sigma))
        found = _averaged(scene, several)
        for workload, counted in found.items():
            table = counted.y
            for axis, c in enumerate(workload.right, start=1):
                p = margins[c].p.reshape([-1 if i == axis else 1 for i in range(table.ndim)])
                table = table - p * table.sum(axis=axis, keepdims=True)
            drawn.setdefault(workload.right, []).append(table)
    assert set(drawn) == {("war",), ("kind",), ("war", "kind")} | (set() if made[0].centred else {()})
    for workload, counted in found.items():
        spread = np.var(drawn[workload.right], axis=0).mean(axis=0)
        said = counted.blur if counted.blur is not None else 1 / counted.weight
        assert spread == pytest.approx(said, rel=0.1)


@pytest.mark.parametrize("known", [True, False])
def test_unit_sums_tell_more_than_cliques_for_the_same_budget(world, known):
    """The planted lean comes back closer, over several seeds."""
    degrees = _degrees() if known else Degrees()
    left, right, pairs = world
    off: dict[bool, list[float]] = {True: [], False: []}

    def gap(links: np.ndarray) -> float:
        old = left["age"][links[:, 0]] == 3
        return float(right["war"][links[old, 1]].mean() - right["war"][links[~old, 1]].mean())

    for unit_sums in (True, False):
        for seed in range(6):
            window = _window(world, units=SHARED if unit_sums else None, seed=seed)
            found = MAP(3, way=Way.CODED).learn(
                window, _problem(world), rho=0.2, rng=np.random.default_rng(seed), progress=quiet, degrees=degrees
            )
            assert window.spent == pytest.approx(0.2)
            off[unit_sums].append(abs(gap(found.pairs) / gap(pairs) - 1))
    assert np.mean(off[True]) < 0.5 * np.mean(off[False])
    assert np.mean(off[True]) < 0.3


@pytest.mark.parametrize("rho", [0.05, 100.0])
def test_strong_leans_are_not_clipped_away(rho):
    """Four links in five lead to a film of the user's own kind, so that every unit is
    longer than its clip: counts are made good for that.
    """
    rng = np.random.default_rng(0)
    left, right = {"of": rng.integers(0, 8, 2000)}, {"kind": rng.integers(0, 8, 300), "long": rng.integers(0, 2, 300)}
    shape = {"of": 8, "kind": 8, "long": 2}
    pairs = np.concatenate(
        [
            np.stack([np.full(20, u), rng.choice(300, 20, p=0.8 * own / own.sum() + 0.2 / 300)], axis=1)
            for u, own in enumerate(right["kind"] == left["of"][:, None])
        ]
    )
    codes = {c: v[pairs[:, 0]] for c, v in left.items()} | {c: v[pairs[:, 1]] for c, v in right.items()}
    window = ArrayWindow(codes, shape, l1=20, l2=20, seed=1, unit=pairs[:, 0], units=Units(20, frozenset(left)))
    problem = LinkProblem(left, right, shape=shape, links=len(pairs), links_measured=float(len(pairs)))
    degrees = Degrees(left=np.full(2000, 20))
    found = MAP(2, way=Way.CODED).learn(
        window, problem, rho=rho, rng=np.random.default_rng(0), progress=quiet, degrees=degrees
    )

    def effect(links: np.ndarray) -> float:
        return float((left["of"][links[:, 0]] == right["kind"][links[:, 1]]).mean()) - 1 / 8

    kept, cut = (
        window.exact_unit_sum(b) for n in found.measured[1:2] for b in (n.unit_sum, replace(n.unit_sum, clip=1e9))
    )
    if rho < 1:
        assert np.abs(kept).sum() < 0.8 * np.abs(cut).sum(), "units are scaled down"
    assert effect(found.pairs) == pytest.approx(effect(pairs), rel=0.15)


def test_without_noise_a_fit_gives_back_what_was_counted(world):
    window = _window(world, units=SHARED)
    found = MAP(3, way=Way.CODED).learn(
        window, _problem(world), rho=1e9, rng=np.random.default_rng(0), progress=quiet, degrees=_degrees()
    )
    left, right, pairs = world
    for age in range(4):
        for genre in GENRES:
            true, made = (right[genre][p[left["age"][p[:, 0]] == age, 1]].mean() for p in (pairs, found.pairs))
            assert made == pytest.approx(true, abs=0.01)


def test_evidence_is_read_off_unit_sums(world):
    problem = _problem(world)
    window = _window(world, units=SHARED)
    measured = (
        MAP(3, way=Way.CODED)
        .learn(window, problem, rho=0.05, rng=np.random.default_rng(0), progress=quiet, degrees=_degrees())
        .measured
    )
    found = evidence(problem, measured, degrees=_degrees(), rng=np.random.default_rng(0))
    assert {found[0].columns, found[1].columns} == {("age", "war"), ("age", "space")}
    # Nothing else was planted: scores of the others are those of chance.
    others = [e.score for e in found if "age" not in e.columns]
    assert abs(np.mean(others)) < 0.7
    assert max(others) < 4.5


def test_what_tells_nothing_is_left_out_of_a_fit(world):
    """Components whose counts are drowned in noise stay where independent wiring puts them."""
    window = _window(world, units=SHARED)
    unit_sums = _unit_sums(world)
    noisy = window.measure_unit_sums([unit_sums.question(("age",), [(), ("war",)]).unit_sum], rho=1e-9)
    fit = fit_links(_problem(world), noisy, degrees=_degrees(), rng=np.random.default_rng(0))
    assert not fit.theta
    assert fit.converged


def test_links_that_lean_nowhere_are_wired_as_well_as_at_random():
    """Columns of many values, common and rare, and few users: noise must not be taken for signal."""
    learned, chance = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        left = {"age": rng.integers(0, 6, 150), "job": rng.integers(0, 8, 150)}
        zipf = 1 / np.arange(1, 26)
        right = {
            "genre": rng.choice(25, 400, p=zipf / zipf.sum()),
            "size": rng.choice(6, 400, p=[0.6, 0.2, 0.1, 0.05, 0.03, 0.02]),
        }
        shape = {"age": 6, "job": 8, "genre": 25, "size": 6}
        pairs = np.stack([np.repeat(np.arange(150), 8), rng.integers(0, 400, 1200)], axis=1)
        codes = {c: v[pairs[:, 0]] for c, v in left.items()} | {c: v[pairs[:, 1]] for c, v in right.items()}
        window = ArrayWindow(codes, shape, l1=8, l2=8, seed=seed, unit=pairs[:, 0], units=Units(8, frozenset(left)))
        problem = LinkProblem(left, right, shape=shape, links=1200, links_measured=1200.0)
        degrees = Degrees(left=np.full(150, 8))
        found = MAP(3, way=Way.CODED).learn(window, problem, rho=0.05, rng=rng, progress=quiet, degrees=degrees)
        for links, errors in (
            (found.pairs, learned),
            (MAP(3, way=Way.CODED).wire(problem, (), rng=rng, degrees=degrees), chance),
        ):
            off = []
            for one, other in ((a, b) for a in left for b in right):
                joint = [
                    np.bincount(
                        left[one][p[:, 0]] * shape[other] + right[other][p[:, 1]], minlength=shape[one] * shape[other]
                    )
                    for p in (links, pairs)
                ]
                off.append(np.abs(joint[0] - joint[1]).sum() / 1200)
            errors.append(np.mean(off))
    assert np.mean(learned) < 1.03 * np.mean(chance)


def test_what_was_asked_for_has_a_unit_sum_of_its_own_with_less_noise_than_in_the_large_one(world):
    problem, degrees = _problem(world), _degrees()
    scene = FitInputs.of(problem, degrees)
    asked = {("job", genre): 1.0 for genre in GENRES}
    design = scene.design(3, asked)
    counting, unit_sums = design.counting(scene.public_row_sums(design, SHARED))
    first, usual = (b for b in unit_sums if b.columns == ("job",))
    assert {tuple(c for c, _ in code) for code in first.codes} == {(), *((g,) for g in GENRES)}
    assert set(first.codes) < set(usual.codes)
    reserved = dict(zip(map(id, unit_sums), counting.reserved, strict=True))
    assert reserved[id(first)] == pytest.approx(design.reserved.sum())
    assert sum(reserved.values()) == pytest.approx(reserved[id(first)])
    for code, scale in zip(first.codes[1:], first.scales[1:], strict=True):
        assert first.clip * scale < 0.9 * usual.clip * usual.scales[usual.codes.index(code)]


def test_rare_values_have_less_noise_and_values_that_hardly_occur_shape_nothing():
    p = np.array([0.9, 0.0899, 0.01, 1e-4])
    margins = {"kind": Margin(p / p.sum())}
    codes = {"kind": np.repeat(np.arange(4), [9000, 899, 100, 1])}
    unit_sums = PublicRowSums.of(codes, np.ones(10_000), {}, margins, units=Units(200, frozenset()), sets=[("kind",)])
    plain, unit_sum = (unit_sums.question((), [(), ("kind",)], declared=declared) for declared in (False, True))
    assert unit_sum.clip * unit_sum.scales[2] < 0.9 * plain.clip * plain.scales[2], (
        "a rare value in a declared workload"
    )
    assert unit_sum.clip * unit_sum.scales[0] > plain.clip * plain.scales[0], "what it costs the commonest"
    noise = {code[0][1]: s for code, s in zip(unit_sum.codes, unit_sum.scales, strict=True) if code}
    # By shares of what is rare a value with a ninth of the links has more noise, but not nine times as much less.
    assert noise[3] < noise[2] < noise[1] < 9 * noise[2]
    alone = PublicRowSums.of(codes, np.ones(10_000), {}, margins, units=Units(200, frozenset()), sets=[]).question(
        (), [()]
    )
    assert unit_sum.clip * unit_sum.scales[unit_sum.codes.index(())] < 3 * alone.clip * alone.scales[0]


def test_all_links_are_counted_with_noise_and_scaling_in_balance():
    """Of three films in five a user likes the kind. Who likes a rare one is longest and
    scaled down most, so that rare kinds come out rarer: by less than noise.
    """
    rng = np.random.default_rng(0)
    likes = rng.choice(5, USERS, p=[0.04, 0.08, 0.12, 0.26, 0.5])
    kinds = np.where(rng.random((USERS, EACH)) < 0.6, likes[:, None], rng.integers(0, 5, (USERS, EACH))).ravel()
    unit, links = np.repeat(np.arange(USERS), EACH), USERS * EACH
    window = ArrayWindow(
        {"kind": kinds}, {"kind": 5}, l1=EACH, l2=EACH, seed=1, unit=unit, units=Units(EACH, frozenset())
    )
    true = np.bincount(kinds, minlength=5)
    margin = Margin(true / links)
    unit_sums = PublicRowSums.of(
        {"kind": np.arange(5)},
        margin.p,
        {},
        {"kind": margin},
        units=window.units,
        sets=[("kind",)],
        taste=1.0,
    )
    narrow = unit_sums.question((), [("kind",)])

    def off(question: Question) -> float:
        noisy = NoisyUnitSum(question.unit_sum, window.exact_unit_sum(question), 1e-9)
        (shown,) = estimates(noisy, {"kind": 5}, lambda _: np.array(float(links)))
        asked = [code[0][1] for code in question.codes if code]
        return float(np.abs(shown.counts - true)[asked].max())

    found = [unit_sums.balanced(narrow, rho=rho, links=links) for rho in (1e-9, 0.001, 0.1)]
    clips = [unit_sum.clip for unit_sum in found]
    assert clips == sorted(clips)
    assert clips[0] == narrow.clip, "what noise drowns is not worth more of it"
    assert off(found[2]) < 0.3 * off(narrow)


def test_clips_are_short_where_noise_is_large_and_right_all_the_same():
    """Users have exponential numbers of ratings. Those who have most are scaled down,
    and what that takes is made good.
    """
    rng = np.random.default_rng(1)
    users, mean = 600, 80
    many = np.minimum(rng.exponential(mean, users).astype(np.int64) + 1, 1000)
    left = {"age": rng.integers(0, 4, users), "job": rng.integers(0, 5, users)}
    right = {
        g: (rng.random(FILMS) < p).astype(np.int64) for g, p in zip(GENRES, np.linspace(0.05, 0.4, 6), strict=True)
    }
    right["kind"] = rng.choice(3, FILMS, p=[0.2, 0.5, 0.3])
    effect = 1 + 0.5 * np.outer(left["age"] == 3, right["war"] - right["space"])
    effect *= np.exp(
        0.7 * rng.normal(size=(users, len(GENRES))) @ np.stack([right[g] for g in GENRES])
    )  # tastes of their own
    films = [rng.choice(FILMS, n, p=w / w.sum()) for n, w in zip(many, effect, strict=True)]
    world = (left, right, np.stack([np.repeat(np.arange(users), many), np.concatenate(films)], axis=1))
    links, window = float(many.sum()), _window(world, units=SHARED)
    scene = FitInputs.of(_problem(world), Degrees(left=many))

    def made(mean: float | None) -> PublicRowSums:
        unit_sums = scene.public_row_sums(scene.design(3), Units(1000, frozenset(left), mean=mean))
        return unit_sums.around(_exact(world, unit_sums.question((), list(unit_sums.share))), links=links)

    sets = [(), *((g,) for g in GENRES), ("kind",)]
    unit_sums = made(float(mean))
    unit_sum = unit_sums.question(("age",), sets)
    short, wide = (unit_sums.settled(unit_sum, rho=rho, links=links) for rho in (1e-3, 10.0))
    assert short.clip < 0.7 * unit_sum.clip < unit_sum.clip < wide.clip
    assert _left(window, short) < 0.95 < _left(window, wide)
    shown = estimates(_noiseless(window, short), SHAPE, lambda _: _rows(world, ("age",)))
    counts = {e.columns: e.counts for e in shown}
    for g in GENRES:
        assert counts["age", g] == pytest.approx(window.exact(("age", g)), rel=0.06)
    # Of units with few rows, those with rare codes are longest, and units whose number
    # of rows is not known may all be large.
    for unsure in (made(1.5), made(None)):
        unit_sum = unsure.question(("age",), sets)
        assert unsure.settled(unit_sum, rho=1e-3, links=links).clip >= unit_sum.clip


def _noiseless(window: ArrayWindow, unit_sum: Question) -> NoisyUnitSum:
    return NoisyUnitSum(unit_sum.unit_sum, window.exact_unit_sum(unit_sum) * np.array(unit_sum.scales), 1e-9)


def _left(window: ArrayWindow, unit_sum: Question) -> float:
    """Part of all rows' weight that scaling leaves."""
    return float(_noiseless(window, unit_sum).counts[..., unit_sum.codes.index(())].sum()) / window.size


def test_shares_that_noise_made_nothing_leave_a_clip(world):
    """Nobody links to what is gone, and noise hides that: a clip of nothing would be refused after the first charge."""
    unit_sums = _centred(world, Units(100, frozenset({"age", "job"}), mean=20.0))
    lost = replace(
        unit_sums, share={s: dict.fromkeys(codes, 0.0 if s else 1.0) for s, codes in unit_sums.share.items()}
    )
    unit_sum = lost.question(("age",), [(), ("war",)])
    assert unit_sum.clip > 0
    assert 0 < lost.settled(unit_sum, rho=0.01, links=1e4).clip <= unit_sum.clip
