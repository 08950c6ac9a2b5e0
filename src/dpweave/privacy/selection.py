r"""Private choice among candidates: exact scores, their sensitivity, and peeling.

Formal guarantees (``sensitivity`` D, ``scale`` s, ``count`` choices, for one protected table):
  - One unit moves every score by at most :math:`D = \max_i w_i \Delta_{1,i}` (PRIVACY §4), up or down.
  - Cost: ``count * selection_rho(D, s)``, i.e. :math:`\text{count} \cdot D^2/(2s^2)`; the caller charges it first.
  - ``check_candidates`` sees public values only and is called before rows are read; ``score`` then never fails.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from dpweave.errors import UsageError
from dpweave.privacy.accounting import require_number, round_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dpweave.arrays import IntArray
    from dpweave.privacy.noise import NoiseSource
    from dpweave.privacy.window import Among, Candidate

GRID = 1024
"""Weights and penalties are multiples of 1/GRID."""

LARGEST_COUNT = 2**38
"""Counts and predictions are clipped here, so that a gap is below 2**39 and 2**24 gaps add up below 2**63."""

LARGEST_CELLS = 2**24
LARGEST_FACTOR = 2.0**20
LARGEST_NUMERATOR = 2**52


def check_candidates(candidates: Sequence[Candidate], shapes: Sequence[tuple[int, ...]]) -> None:
    """Refuse candidates that could not be scored against counts of ``shapes``, one shape for each; reads no row."""
    if not candidates:
        raise UsageError("a choice has 0 candidates, but needs at least 1; give some")
    for candidate, shape in zip(candidates, shapes, strict=True):
        name = f"the candidate over ({', '.join(candidate.columns)})"
        if candidate.prediction.shape != tuple(shape):
            raise UsageError(
                f"{name} predicts shape {candidate.prediction.shape}, but counts have {tuple(shape)}; match it"
            )
        if candidate.prediction.size > LARGEST_CELLS:
            raise UsageError(f"{name} has {candidate.prediction.size} cells, more than {LARGEST_CELLS}; drop a column")
        if not np.isfinite(candidate.prediction).all():
            raise UsageError(f"{name} predicts counts that are not finite; give finite ones")
        require_number(f"weight of {name}", candidate.weight, low=0, high=LARGEST_FACTOR, closed=True)
        require_number(f"size of the penalty of {name}", abs(candidate.penalty), low=0, high=2.0**40, closed=True)


def score(counts: IntArray, candidate: Candidate) -> float:
    r"""Return :math:`w\,\lVert \text{counts} - \text{prediction} \rVert_1 - p` without rounding error.

    Proof of exactness. Weight and penalty are rounded to a/1024 and b/1024 with integers a, b. Counts and rounded
    predictions are clipped to ±2³⁸, so the L1 gap G of at most 2²⁴ cells is an int64. Let :math:`c = \lfloor 2^{52}/a
    \rfloor`. The numerator :math:`a \min(G, c) - b` is an integer of size at most :math:`2^{52} + 2^{50}`, hence a
    float64, and so is its quotient by 1024. Clipping and the minimum do not expand distances, so one unit moves the
    score by at most (a/1024)·Δ₁. No step fails or warns for any counts. ∎

    >>> from dpweave.privacy.window import Candidate
    >>> score(np.array([3, 5]), Candidate(("colour",), np.array([1.2, 9.0]), weight=0.5, penalty=1.0))
    2.0
    """
    predicted = np.rint(np.clip(candidate.prediction, -LARGEST_COUNT, LARGEST_COUNT)).astype(np.int64)
    gap = int(np.abs(np.clip(counts, -LARGEST_COUNT, LARGEST_COUNT) - predicted).sum())
    weight = _on_grid(candidate.weight)
    return (weight * min(gap, LARGEST_NUMERATOR // max(weight, 1)) - _on_grid(candidate.penalty)) / GRID


def sensitivity(candidates: Sequence[Candidate], l1: Sequence[float]) -> float:
    """Largest change of any score by one unit, where ``l1[i]`` bounds the change of the i-th counts; rounded up."""
    bounds = [require_number("L1 sensitivity", bound, low=0, closed=True) for bound in l1]
    weights = [Fraction(_on_grid(candidate.weight), GRID) for candidate in candidates]
    return round_up(max(w * Fraction(bound) for w, bound in zip(weights, bounds, strict=True)))


def select(
    scores: Sequence[float], *, count: int, scale: float, noise: NoiseSource, among: Among | None = None
) -> tuple[int, ...]:
    r"""Draw ``count`` distinct positions, one after the other, each with :math:`P(i) \propto e^{\text{score}_i/s}`.

    What was drawn is taken out before the next draw (peeling), and so is what ``among`` leaves out given that. So each
    draw is an exponential mechanism over a set that earlier draws made public, its scores move by no more than those of
    all candidates, and the costs add up (paper, ``alg::exponential``). An error of ``among`` depends on draws alone.
    """
    if not 1 <= count <= len(scores):
        raise UsageError(f"{count} of {len(scores)} candidates were asked for; ask for 1 to {len(scores)}")
    drawn: list[int] = []
    for _ in range(count):
        taken = set(drawn)
        left = [i for i in (range(len(scores)) if among is None else among(tuple(drawn))) if i not in taken]
        drawn.append(left[noise.noisy_max([scores[i] for i in left], scale=scale)])
    return tuple(drawn)


def _on_grid(value: float) -> int:
    return math.floor(value * GRID + 0.5)
