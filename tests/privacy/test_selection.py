"""Scores without rounding error, their sensitivity, guards that fire before rows are read, and peeling."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpweave.errors import UsageError
from dpweave.privacy.noise import InsecureNoise, SecureNoise
from dpweave.privacy.selection import LARGEST_CELLS, LARGEST_COUNT, check_candidates, score, select, sensitivity
from dpweave.privacy.window import LARGEST_PENALTY, Candidate

weights = st.floats(0, 1000)
penalties = st.floats(-1e9, 1e9)
predictions = hnp.arrays(np.float64, 6, elements=st.floats(-1e7, 1e7))
counts = hnp.arrays(np.int64, 6, elements=st.integers(0, 10**9))


def grid(value: float) -> Fraction:
    """Nearest multiple of 1/1024; halves upward."""
    return Fraction(math.floor(Fraction(value) * 1024 + Fraction(1, 2)), 1024)


def largest_gap(weight: float) -> int | float:
    """Where a gap is cut, so that a score stays below 2⁴²: the largest whole one with weight · gap · 1024 <= 2⁵²."""
    return math.floor(2**52 / (grid(weight) * 1024)) if grid(weight) else math.inf


@given(counts, predictions, weights, penalties)
@example(np.full(6, 10**9), np.full(6, -1e7), 1000.0, 0.0)  # cut
@example(np.full(6, 10**9), np.full(6, -1e7), 0.0, 1.0)
def test_score_is_exact(x: np.ndarray, prediction: np.ndarray, weight: float, penalty: float) -> None:
    candidate = Candidate(("a",), prediction, weight=weight, penalty=penalty)
    gap = sum(abs(int(c) - round(p)) for c, p in zip(x, prediction.tolist(), strict=True))
    assert Fraction(score(x, candidate)) == grid(weight) * min(gap, largest_gap(weight)) - grid(penalty)


@given(counts, predictions, weights, penalties, hnp.arrays(np.int64, 6, elements=st.integers(-4, 4)))
def test_score_moves_no_more_than_its_sensitivity(
    x: np.ndarray, prediction: np.ndarray, weight: float, penalty: float, change: np.ndarray
) -> None:
    candidate = Candidate(("a",), prediction, weight=weight, penalty=penalty)
    moved = abs(Fraction(score(x + change, candidate)) - Fraction(score(x, candidate)))
    assert moved <= Fraction(sensitivity([candidate], [float(abs(change).sum())]))


wild = st.sampled_from([-(2**62), -LARGEST_COUNT, -1, 0, 1, LARGEST_COUNT - 1, LARGEST_COUNT, LARGEST_COUNT + 1, 2**62])


@given(
    hnp.arrays(np.int64, 4, elements=wild),
    hnp.arrays(np.float64, 4, elements=st.floats(allow_nan=False, allow_infinity=False)),
    st.floats(0, 1e6),
    st.floats(-1e12, 1e12),
    st.integers(0, 3),
)
def test_score_never_fails_and_keeps_its_sensitivity_for_wild_input(
    x: np.ndarray, prediction: np.ndarray, weight: float, penalty: float, cell: int
) -> None:
    candidate = Candidate(("a",), prediction, weight=weight, penalty=penalty)
    check_candidates([candidate], [(4,)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = score(x, candidate)
        x[cell] += 1
        after = score(x, candidate)
    assert math.isfinite(before)
    assert Fraction(before * 1024).denominator == 1
    assert abs(Fraction(after) - Fraction(before)) <= Fraction(sensitivity([candidate], [1.0]))


def test_sensitivity_is_attained() -> None:
    candidate = Candidate(("a",), np.zeros(3), weight=2.5)
    x = np.array([1, 2, 3])
    assert score(x + np.array([0, 4, 0]), candidate) - score(x, candidate) == sensitivity([candidate], [4.0]) == 10.0


def test_sensitivity_is_the_largest_of_rounded_weights() -> None:
    light, heavy = (Candidate((), np.array(0.0), weight=w) for w in (1.0, 3.0004))
    assert sensitivity([light, heavy], [8.0, 2.0]) == 8.0
    assert sensitivity([light, heavy], [2.0, 8.0]) == 24.0  # 3.0004 rounds to 3
    assert sensitivity([Candidate((), np.array(0.0), weight=0.0)], [8.0]) == 0.0
    root = sensitivity([heavy], [math.sqrt(2)])
    assert Fraction(root) >= 3 * Fraction(math.sqrt(2))
    for bad in (-1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="L1 sensitivity is"):
            sensitivity([light], [bad])
    with pytest.raises(ValueError, match="zip"):
        sensitivity([light, heavy], [1.0])


def test_score_of_the_number_of_rows() -> None:
    assert score(np.array(7), Candidate((), np.array(4.6), penalty=0.5)) == 1.5


def test_check_candidates_accepts_what_can_be_scored() -> None:
    check_candidates(
        [Candidate(("a", "b"), np.zeros((2, 3))), Candidate((), np.array(1e300), penalty=-3.0)], [(2, 3), ()]
    )


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (Candidate(("a", "b"), np.zeros(4)), r"over \(a, b\) predicts shape \(4,\), but counts have \(2, 2\)"),
        (Candidate(("a",), np.array([[0.0, math.nan], [0.0, 0.0]])), "not finite"),
        (Candidate(("a",), np.array([[0.0, math.inf], [0.0, 0.0]])), "not finite"),
        (Candidate(("a",), np.zeros((2, 2)), weight=-1.0), "weight of the candidate over .* is -1.0"),
        (Candidate(("a",), np.zeros((2, 2)), weight=math.nan), "weight of"),
        (Candidate(("a",), np.zeros((2, 2)), weight=2e6), "weight of"),
        (Candidate(("a",), np.zeros((2, 2)), penalty=math.inf), "penalty of"),
        (Candidate(("a",), np.zeros((2, 2)), penalty=math.nan), "penalty of"),
        (Candidate(("a",), np.zeros((2, 2)), penalty=-1e13), "penalty of"),
    ],
)
def test_check_candidates_refuses(candidate: Candidate, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_candidates([candidate], [(2, 2)])


def test_check_candidates_refuses_none_and_too_many_cells() -> None:
    with pytest.raises(UsageError, match="0 candidates"):
        check_candidates([], [])
    wide = np.broadcast_to(0.0, (LARGEST_CELLS + 1,))
    with pytest.raises(UsageError, match="cells, more than"):
        check_candidates([Candidate(("a",), wide)], [wide.shape])
    with pytest.raises(ValueError, match="zip"):
        check_candidates([Candidate(("a",), np.zeros(2))], [])


@pytest.mark.parametrize("noise", [SecureNoise(), InsecureNoise(1)])
def test_select_gives_distinct_positions(noise) -> None:
    scores = [0.0, 5.0, 1.0, 3.0, 2.0]
    assert sorted(select(scores, count=5, scale=100.0, noise=noise)) == [0, 1, 2, 3, 4]
    assert select([s * 1e6 for s in scores], count=3, scale=1.0, noise=noise) == (1, 3, 4)


def test_select_draws_each_among_those_that_earlier_draws_leave() -> None:
    """Draw i has the law of an exponential mechanism over what is left then; here the neighbours of a drawn one go."""
    scores, scale, seen = [2.0, 1.0, 0.0, 1.5, 0.5], 1.0, []

    def apart(drawn):
        seen.append(tuple(drawn))
        return [i for i in range(5) if all(abs(i - j) > 1 for j in drawn)]

    noise, runs = InsecureNoise(0), 20_000
    drawn = [select(scores, count=2, scale=scale, noise=noise, among=apart) for _ in range(runs)]
    assert {len(s) for s in seen} == {0, 1}
    assert {s for s in seen if s} == {(d[0],) for d in drawn}
    mass = np.exp(np.array(scores) / scale)
    for first in range(5):
        left = [i for i in range(5) if abs(i - first) > 1]
        for second in range(5):
            law = mass[first] / mass.sum() * (mass[second] / mass[left].sum() if second in left else 0.0)
            assert abs(drawn.count((first, second)) - runs * law) <= 5 * math.sqrt(runs * law)


@pytest.mark.parametrize("count", [0, -1, 4])
def test_select_refuses_impossible_counts(count: int) -> None:
    with pytest.raises(UsageError, match=f"{count} of 3 candidates"):
        select([1.0, 2.0, 3.0], count=count, scale=1.0, noise=InsecureNoise(0))


def test_a_penalty_is_as_large_as_clients_are_told_and_no_larger():
    least, most = (Candidate(("a",), np.zeros(1), penalty=p) for p in (LARGEST_PENALTY, 2 * LARGEST_PENALTY))
    check_candidates([least], [(1,)])
    with pytest.raises(UsageError, match="penalty"):
        check_candidates([most], [(1,)])
