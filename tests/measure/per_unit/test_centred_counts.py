"""Counts around what all rows show: right whatever the centre, cheaper than plain ones, and never charged twice."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from dpweave import chosen
from dpweave.links.degrees import Degrees
from dpweave.links.fit_inputs import FitInputs
from dpweave.links.link_method import LinkProblem
from dpweave.links.map_learner import MAP
from dpweave.measure.estimates import estimates
from dpweave.measure.per_unit.centred_counts import Centre, Centred, clip_for
from dpweave.measure.question import Question, Way
from dpweave.privacy.window import NoisyMarginal, NoisyUnitSum, Units
from dpweave.tables.base import Structure, table_model
from dpweave.tables.centred_rows import CentredWindow, Look, Looks, centred, composition
from tests.windows import ArrayWindow

SHAPE = {"a": 4, "b": 3, "sex": 2}
EACH, PEOPLE = 20, 500


def world(seed=0, *, taste=0.0, people=PEOPLE, each=EACH, columns=None):
    """``each`` rows of every person: column a leans with the person by ``taste``, sex is the person's own."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(people), each)
    law = np.array([0.55, 0.25, 0.15, 0.05])
    favourite = rng.choice(4, size=people, p=law)
    a = np.where(rng.random(len(unit)) < taste, favourite[unit], rng.choice(4, size=len(unit), p=law))
    codes = {"a": a, "b": (a + rng.choice(3, size=len(unit), p=[0.8, 0.1, 0.1])) % 3, "sex": (unit % 2)}
    units = Units(each, frozenset({"sex"}), columns)
    return ArrayWindow(codes, SHAPE, l1=each, l2=each, seed=seed, unit=unit, units=units)


def about(window, centres, rows=None):
    return Centred(window, window.units, centres, float(window.size if rows is None else rows))


def noiseless(window, question):
    return NoisyUnitSum(question.unit_sum, window.exact_unit_sum(question) * np.array(question.scales), 1e-12)


def read(noisy, rows):
    """What an answer about whole rows says."""
    (found,) = estimates(noisy, SHAPE, lambda _: np.asarray(rows, dtype=np.float64))
    return found


@pytest.mark.parametrize("share", [[0.55, 0.25, 0.15, 0.05], [0.25] * 4, [0.0, 0.0, 0.5, 0.5]])
def test_counts_are_right_however_far_the_centre_is_off(share):
    """Where nobody is scaled down, counts of a noiseless unit sum are the counts."""
    window = world()
    doubt = 2.0  # leaves room for all rows of everybody
    question = about(window, lambda c: None).question(
        Centre((), ("a",), 1.0, lambda: np.array(share), doubt), clip_for(EACH, 1.0, doubt), rho=0.01
    )
    found = read(noiseless(window, question), window.size)
    assert found.columns == ("a",)
    assert np.array_equal(found.counts, window.exact(("a",)))


def test_counts_beside_owners_columns_are_right():
    window = world()
    share = window.exact(("a",)) / window.size
    centre = Centre(("sex",), ("a",), float((share**2).sum()), lambda: share)
    question = about(window, lambda c: None).question(centre, clip_for(EACH, 1.0), rho=0.01)
    found = read(noiseless(window, question), window.exact(("sex",)))
    assert found.columns == ("sex", "a")
    assert np.abs(found.counts - window.exact(("sex", "a"))).max() <= 1


def test_columns_that_all_rows_of_a_unit_share_are_found_out():
    """Everybody has rows of one kind only. Scaled down, rare kinds would be lost to the
    commonest; the first count shows it.
    """
    off, longer = {True: [], False: []}, []
    for seed in range(8):
        window = world(seed, taste=1.0, people=1000)
        share = window.exact(("a",)) / window.size
        found, left = centred(window, rho=0.01, rows=float(window.size))
        longer.append(found.units.longer["a"])
        for known in (True, False):
            counts = found.counts if known else replace(found.counts, units=window.units)
            (noisy,) = CentredWindow(window, counts).measure([("a",)], rho=left)
            off[known].append(noisy.counts / window.size - share)
    assert np.abs(np.mean(off[True], axis=0)).max() < 0.5 * np.abs(np.mean(off[False], axis=0)).max()
    assert np.abs(np.mean(off[False], axis=0)).max() > 0.03
    assert np.median(longer) > 1.5


def test_a_large_unit_takes_a_fraction_of_its_rows():
    spread = chosen.TASTE * math.sqrt(0.25) * 1000
    assert spread < clip_for(1000, 0.25) < 1.25 * spread
    assert clip_for(1000, 0.0) < 2 * math.sqrt(1000)
    assert Units(4000, frozenset(), mean=100.0).many == 300.0
    assert Units(200, frozenset(), mean=100.0).many == 200.0
    assert Units(200, frozenset()).many == 200.0


def test_budgets_are_spent_to_the_last_digit_and_in_the_order_of_the_cliques():
    window = world(columns=frozenset({"a", "sex"}))
    looks = Looks({c: Look(np.full(SHAPE[c], 1 / SHAPE[c]), 0.0) for c in ("a", "b")})
    found = about(window, looks).measure([("b",), ("a",), ("a", "b")], rho=0.3, weights=[1, 2, 3])
    assert [type(x) for x in found] == [NoisyMarginal, NoisyUnitSum, NoisyMarginal]  # b may not be in a unit sum
    assert found[0].columns == ("b",)
    assert sum(call.rho for call in window.asked) == pytest.approx(0.3, rel=1e-12)
    assert sum(call.rho for call in window.asked) <= 0.3


def test_ample_budgets_scale_nobody_down():
    window = world(taste=1.0)
    share = window.exact(("a",)) / window.size
    looks = Looks({"a": Look(share, 0.0)})
    (noisy,) = about(window, looks).measure([("a",)], rho=1e4)
    found = read(noisy, window.size)
    assert np.abs(found.counts - window.exact(("a",))).max() <= 2


def test_a_first_look_tells_how_rows_spread_whatever_it_scales_down():
    window = world(seed=3)
    (look,) = composition(window, ["a"], rho=0.1)
    share = look.counts / look.counts.sum()
    assert np.abs(share - window.exact(("a",)) / window.size).max() < 0.05
    assert look.sigma < EACH / math.sqrt(2 * 0.1)


def test_single_rows_and_windows_without_unit_sums_are_left_alone():
    for window in (world(each=1), ArrayWindow({"a": np.zeros(9, dtype=np.int64)}, {"a": 2})):
        assert centred(window, rho=0.1, rows=9.0) == (window, 0.1)
        assert not window.asked


@pytest.mark.parametrize("mechanism", ["independent", "mst", "aim", "woven"])
def test_every_table_model_takes_it_and_is_the_better_for_it(mechanism):
    """Errors of single columns over a few draws, against the same models with plain counts."""
    errors = {True: [], False: []}
    for seed in range(4):
        for around in (True, False):
            window = world(seed)
            rho, asked = 0.02, window
            if around:
                asked, left = centred(window, rho=rho, rows=float(window.size))
                assert isinstance(asked, CentredWindow)
                assert left == pytest.approx(rho * (1 - chosen.COUNTING - chosen.FIRST_COUNT))
            fitted = table_model(mechanism).fit(
                asked,
                rho=left if around else rho,
                rows=float(window.size),
                structure=Structure(),
                progress=lambda *_: None,
            )
            assert window.spent == pytest.approx(rho, rel=1e-9)
            for c in SHAPE:
                errors[around].append(np.abs(fitted.marginal((c,)) - window.exact((c,))).sum() / window.size)
    assert np.mean(errors[True]) < 0.75 * np.mean(errors[False])


def owned_problem(window):
    """Rows to be linked to their owners, all of whose degrees are known."""
    rows = {c: window.codes[c] for c in ("a", "b")}
    owners = {"sex": np.arange(PEOPLE) % 2}
    problem = LinkProblem(rows, owners, shape=SHAPE, links=window.size, links_measured=window.size, kind="one-to-many")
    return problem, Degrees(right=np.full(PEOPLE, EACH))


def test_links_to_owners_are_counted_around_the_rows_that_are_known():
    window = world()
    problem, degrees = owned_problem(window)
    rng = np.random.default_rng(0)
    found = MAP(2, way=Way.CENTRED).learn(window, problem, rho=0.02, rng=rng, progress=lambda *_: None, degrees=degrees)
    assert window.spent == pytest.approx(0.02)
    assert found.measured
    assert all(Question.of(m).centred and Question.of(m).columns == ("sex",) for m in found.measured)
    scene = FitInputs.of(problem, degrees)
    assert scene.centre(("a",)) is None  # how rows spread by themselves is known already
    # What was measured makes the same links again, from the release alone.
    again = MAP(2).wire(problem, found.measured, rng=np.random.default_rng(5), degrees=degrees)
    assert len(again) == window.size


def test_a_lean_towards_owners_is_found_where_plain_counts_drown():
    """Rows of kind 0 belong to one sex by 56 in a hundred: noise of all rows of a
    person hides it, of what they are beyond all not.
    """
    kept = {True: [], False: []}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        unit = np.repeat(np.arange(PEOPLE), EACH)
        sex = unit % 2
        a = (rng.random(len(unit)) < np.where(sex == 1, 0.56, 0.44)).astype(np.int64)
        for unit_sums in (True, False):
            units = Units(EACH, frozenset({"sex"})) if unit_sums else None
            window = ArrayWindow(
                {"a": a, "sex": sex}, {"a": 2, "sex": 2}, l1=EACH, l2=EACH, seed=seed, unit=unit, units=units
            )
            problem = LinkProblem(
                {"a": a},
                {"sex": np.arange(PEOPLE) % 2},
                shape={"a": 2, "sex": 2},
                links=len(a),
                links_measured=len(a),
                kind="one-to-many",
            )
            found = MAP(2, way=Way.CENTRED).learn(
                window,
                problem,
                rho=0.004,
                rng=rng,
                progress=lambda *_: None,
                degrees=Degrees(right=np.full(PEOPLE, EACH)),
            )
            pairs = found.pairs
            own = a[pairs[:, 0]] == pairs[:, 1] % 2
            kept[unit_sums].append((own.mean() - 0.5) / 0.06)
    assert abs(np.mean(kept[True]) - 1) < 0.3
    assert np.std(kept[True]) < 0.6 * np.std(kept[False]) or np.mean(kept[False]) < 0.5
