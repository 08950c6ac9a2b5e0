"""A question knows its noise, asks itself, and is found again in its answer."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpweave.measure.estimates import SharedNoise, estimates
from dpweave.measure.question import Question, ask
from dpweave.privacy.window import NoisyMarginal, NoisyUnitSum, Units
from tests.windows import ArrayWindow

SHAPE = {"a": 3, "b": 4}
CODES = ((), *((("b", v),) for v in range(4)))


def window() -> ArrayWindow:
    rng = np.random.default_rng(0)
    unit = np.repeat(np.arange(200), 5)
    codes = {"a": rng.integers(0, 3, 1000), "b": rng.integers(0, 4, 1000)}
    return ArrayWindow(codes, SHAPE, l1=5, l2=5, seed=1, unit=unit, units=Units(5, frozenset()))


QUESTIONS = (
    Question(("a",), most=5.0),
    Question(("a", "b"), clip=2.0),
    Question(("a",), CODES, (4.0, 1.0, 1.0, 1.0, 1.0), 3.0, (0.0, 0.25, 0.25, 0.25, 0.25)),
    Question(("b",), most=5.0),
)


def test_noise_is_what_the_window_adds_and_nothing_more_is_spent() -> None:
    asked = window()
    weights = [1.0, 2.0, 3.0, 4.0]
    answers = ask(asked, QUESTIONS, rho=0.5, weights=weights)
    assert [type(x) for x in answers] == [NoisyMarginal, NoisyUnitSum, NoisyUnitSum, NoisyMarginal]
    assert 0.5 * (1 - 1e-9) < sum(call.rho for call in asked.asked) <= 0.5
    for question, answer, weight in zip(QUESTIONS, answers, weights, strict=True):
        assert question.noise(0.5 * weight / 10) == pytest.approx(answer.sigma * np.array(question.scales))


def test_the_answer_holds_the_question() -> None:
    for question, answer in zip(QUESTIONS, ask(window(), QUESTIONS, rho=0.5), strict=True):
        found = Question.of(answer)
        assert (found.columns, found.codes, found.centres) == (question.columns, question.codes, question.centres)
        assert (found.clip, found.plain) == (question.clip, question.plain)
        assert found.looks_at == question.looks_at


def test_a_clip_is_settled_by_what_is_spent() -> None:
    spent = []

    def make(rho: float) -> Question:
        spent.append(rho)
        return Question(("a",), clip=1.0 + rho)

    (_, answer) = ask(window(), [Question(("b",)), make], rho=0.4, weights=[3.0, 1.0])
    assert spent == pytest.approx([0.1])
    assert Question.of(answer).clip == 1.0 + spent[0]


def test_every_way_of_counting_is_read_as_the_counts() -> None:
    """Without noise, and with room for everybody, all that is asked about the same columns gives the same counts."""
    asked = window()
    exact = asked.exact(("a", "b"))
    partial = tuple(code for code in CODES if code != (("b", 1),))
    for codes, columns, centres in (
        (((),), ("a", "b"), ()),
        (CODES, ("a",), (0.0, 0.1, 0.2, 0.3, 0.4)),
        (partial, ("a",), ()),
        (partial, ("a",), (0.0, 0.5, 0.2, 0.3)),
    ):
        question = Question(columns, codes, (1.0,) * len(codes), 1e6, centres)
        noisy = NoisyUnitSum(question.unit_sum, asked.exact_unit_sum(question), 1e-9)
        rows = {("a",): exact.sum(axis=1).astype(float), ("a", "b"): exact.astype(float), (): np.array(exact.sum())}
        found = next(e for e in estimates(noisy, SHAPE, lambda c, rows=rows: rows[c]) if e.columns == ("a", "b"))
        assert found.counts == pytest.approx(exact, abs=1e-5)
        assert found.even == (len(codes) != len(partial))
        assert Question.of(noisy).shows_rows


def test_a_known_column_shows_what_scaling_left() -> None:
    """Units of five rows that may have one: a fifth is left, which noise in the sum of all cells hides."""
    rng = np.random.default_rng(0)
    exact = np.outer([900.0, 50.0, 50.0], [0.7, 0.1, 0.1, 0.1])
    question = Question(("a", "b"), clip=1.0)
    rows = {("a",): exact.sum(axis=1), (): np.array(exact.sum())}
    off: dict[tuple[str, ...], list[float]] = {(): [], ("a",): []}
    for _ in range(400):
        counts = (0.2 * exact + 20.0 * rng.normal(size=exact.shape))[..., np.newaxis]
        noisy = NoisyUnitSum(question.unit_sum, counts, 20.0)
        for known, found in off.items():
            (seen,) = estimates(noisy, SHAPE, lambda c: rows[c], known=known)
            found.append(seen.sigma / 20.0 * 0.2 - 1)
    alone, column = (float(np.sqrt(np.mean(np.square(x)))) for x in off.values())
    assert column < 0.75 * alone
    assert abs(np.mean(off["a",])) < 0.1


def test_a_sum_without_the_code_of_every_row_shows_how_rows_spread_alone() -> None:
    assert not Question((), CODES[1:], (1.0,) * 4, 2.0).shows_rows


@pytest.mark.parametrize("absent", [(1, 0), (None, 2), (None, None)])
def test_shared_noise_by_simulation(absent: tuple[int | None, ...]) -> None:
    """Draw what was counted, subtract as a reader does, and compare with what is said of it."""
    rng = np.random.default_rng(2)
    shape = (3, 4)
    noise = SharedNoise(rng.uniform(0.5, 4.0, shape), absent)
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.3, 0.2, 0.1])
    tables, centred = [], []
    for _ in range(20_000):
        y = rng.normal(size=shape) * np.sqrt(noise.variance)
        for axis, at in enumerate(absent):
            if at is not None:
                y = np.moveaxis(y, axis, 0)
                y[at] -= y.sum(axis=0) - y[at]
                y = np.moveaxis(y, 0, axis)
        tables.append(y.ravel())
        centred.append((np.eye(3) - p[:, None]) @ y @ (np.eye(4) - q[:, None]).T)
    assert np.cov(np.array(tables).T) == pytest.approx(noise.covariance, abs=0.05 * noise.largest)
    assert noise.largest == pytest.approx(noise.covariance.diagonal().max())
    variance, independent = noise.contrasts((p, q))
    assert np.var(centred, axis=0) == pytest.approx(variance, rel=0.06)
    assert 1 / 12 < independent <= math.prod((2, 3)) / 12 * (1 + 1e-9)
