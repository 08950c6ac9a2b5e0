"""Noisy answers about one set of rows as a learner takes them, from a fit that just asked or from a release: read, put
in order, added up and averaged.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from dpweave.measure.estimates import estimates
from dpweave.privacy.window import NoisyMarginal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dpweave.privacy.window import Columns, Noisy, NoisyUnitSum


def settled(answers: Iterable[NoisyMarginal]) -> tuple[NoisyMarginal, ...]:
    """Put answers in an order of their own, small sets of columns first, so that when they were given decides nothing.

    >>> one, two = (NoisyMarginal((c,), np.zeros(2, dtype=np.int64), 1.0) for c in "ab")
    >>> [m.columns for m in settled([two, one])]
    [('a',), ('b',)]
    """
    return tuple(sorted(answers, key=lambda m: (len(m.columns), m.columns, m.sigma, m.counts.tobytes())))


def counted(released: Iterable[Noisy], shape: Mapping[str, int], *, rows: float) -> tuple[NoisyMarginal, ...]:
    """Read what a release holds about a table as counts of its about ``rows`` rows.

    Sums over units without centres show how rows spread and not how many they are, so they are left out.
    """
    found = [_read(noisy, shape, rows) for noisy in released if isinstance(noisy, NoisyMarginal) or _is_whole(noisy)]
    return settled(m for m in found if m is not None)


def _is_whole(noisy: NoisyUnitSum) -> bool:
    return noisy.unit_sum.centred and () in noisy.unit_sum.codes


def _read(noisy: Noisy, shape: Mapping[str, int], rows: float) -> NoisyMarginal | None:
    if isinstance(noisy, NoisyMarginal):
        return noisy
    found = estimates(noisy, shape, lambda _: np.array(rows))
    return found[0].marginal if len(found) == 1 else None


def onto(noisy: NoisyMarginal, columns: Columns) -> NoisyMarginal:
    """Add up over all but ``columns``, which become the axes in their order.

    >>> both = NoisyMarginal(("a", "b"), np.array([[1, 2], [3, 4]]), 1.0)
    >>> onto(both, ("b",)).counts.tolist(), onto(both, ("b", "a")).counts.tolist()
    ([4, 6], [[1, 3], [2, 4]])
    """
    if columns == noisy.columns:
        return noisy
    away = tuple(i for i, c in enumerate(noisy.columns) if c not in columns)
    left = [c for c in noisy.columns if c in columns]
    cells = math.prod(noisy.counts.shape[i] for i in away)
    counts = noisy.counts.sum(axis=away).transpose([left.index(c) for c in columns])
    return NoisyMarginal(columns, counts, noisy.sigma * math.sqrt(cells))


def averaged(answers: Sequence[NoisyMarginal]) -> NoisyMarginal:
    """Put answers about the same columns together, each by the inverse of its variance; one alone is itself.

    >>> averaged([NoisyMarginal(("a",), np.array([0]), 1.0), NoisyMarginal(("a",), np.array([5]), 2.0)])
    NoisyMarginal(columns=('a',), counts=array([1]), sigma=0.894...)
    """
    if len(answers) == 1:
        return answers[0]
    weights = np.array([m.sigma**-2 for m in answers])
    counts = sum(w * m.counts for w, m in zip(weights / weights.sum(), answers, strict=True))
    return NoisyMarginal(answers[0].columns, np.rint(counts).astype(np.int64), float(weights.sum() ** -0.5))


def of_columns(answers: Iterable[NoisyMarginal], columns: Columns) -> NoisyMarginal | None:
    """Return what was answered about exactly these ``columns``, in any order; None if nothing was."""
    same = [onto(m, columns) for m in answers if len(m.columns) == len(columns) and set(m.columns) == set(columns)]
    return averaged(same) if same else None


def within(answers: Iterable[NoisyMarginal], columns: Columns, *, most: int | None = None) -> list[NoisyMarginal]:
    """Add answers up onto those of their columns that are among ``columns``, and onto sets of at most ``most``."""
    found = []
    for noisy in answers:
        kept = tuple(c for c in columns if c in noisy.columns)
        size = len(kept) if most is None else min(most, len(kept))
        found += [onto(noisy, part) for part in combinations(kept, size)]
    return found
