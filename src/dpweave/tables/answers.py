"""Noisy answers about one table as a learner takes them, wherever they come from: a fit that just asked, or a release.

A mechanism has two halves. It asks, which costs budget and depends on how much there is. And it learns, which is a
function of the answers alone. So what a fit learns, a later version can learn again from the same release, and
answers of two fits can be taken together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import numpy as np

from dpweave.measure.estimates import estimates
from dpweave.privacy.window import NoisyMarginal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dpweave.privacy.window import (
        Candidate,
        Columns,
        Noisy,
        NoisyUnitSum,
        Units,
        UnitSum,
        Window,
    )
    from dpweave.tables.base import Structure

Table_co = TypeVar("Table_co", covariant=True)


@runtime_checkable
class Learner(Protocol[Table_co]):
    """A table model whose two halves stand apart."""

    @property
    def name(self) -> str:
        """The registered name."""
        ...

    def ask(
        self,
        window: Window,
        *,
        rho: float,
        rows: float | None,
        structure: Structure,
        progress: Callable[[str, float], None],
    ) -> Learner[Table_co]:
        """Spend exactly ``rho`` through ``window``. Returns what learns from the answers: itself, or what it chose."""
        ...

    def learn(
        self,
        answers: Sequence[NoisyMarginal],
        shape: Mapping[str, int],
        *,
        rows: float | None,
        structure: Structure,
    ) -> Table_co:
        """Learn a table from ``answers``, in :func:`settled` order: post-processing, and the same for the same."""
        ...


def ask_and_learn(
    model: Learner[Table_co],
    window: Window,
    *,
    rho: float,
    rows: float | None,
    structure: Structure,
    progress: Callable[[str, float], None],
) -> Table_co:
    """Fit a table model: ask, then learn from what was answered, and from what the structure says was measured."""
    recorder = Recorder(window)
    learner = model.ask(recorder, rho=rho, rows=rows, structure=structure, progress=progress)
    fitted = learner.learn(
        settled([*structure.measured, *recorder.answers]), window.shape, rows=rows, structure=structure
    )
    progress("fitted", 1.0)
    return fitted


@dataclass(frozen=True)
class Recorder:
    """A window that keeps the marginals that were measured through it."""

    window: Window
    answers: list[NoisyMarginal] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What the ledger calls the view."""
        return self.window.name

    @property
    def shape(self) -> Mapping[str, int]:
        """Number of codes of each column."""
        return self.window.shape

    @property
    def units(self) -> Units | None:
        """What is known of one unit's rows."""
        return self.window.units

    def l1(self, columns: Columns) -> float:
        """L1 sensitivity."""
        return self.window.l1(columns)

    def l2(self, columns: Columns) -> float:
        """L2 sensitivity."""
        return self.window.l2(columns)

    def measure(
        self, cliques: Sequence[Columns], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyMarginal, ...]:
        """Noisy counts for each clique."""
        found = self.window.measure(cliques, rho=rho, weights=weights)
        self.answers.extend(found)
        return found

    def measure_unit_sums(
        self, unit_sums: Sequence[UnitSum], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyUnitSum, ...]:
        """As the window behind it."""
        return self.window.measure_unit_sums(unit_sums, rho=rho, weights=weights)

    def select(self, candidates: Sequence[Candidate], *, rho: float, count: int = 1) -> tuple[int, ...]:
        """As the window behind it."""
        return self.window.select(candidates, rho=rho, count=count)


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

    >>> averaged([NoisyMarginal((), np.array(0), 1.0), NoisyMarginal((), np.array(5), 2.0)])
    NoisyMarginal(columns=(), counts=array(1), sigma=0.8944271909999159)
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
