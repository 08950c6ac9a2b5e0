r"""What noisy answers say: counts over named columns, and the noise in them.

Every answer is read in the same way, by the fields of the question that the release keeps with it.

1. Units that are longer than the clip were scaled down. The code of every row shows which part of the rows is left, and
   counts are divided by that (:func:`restored`).
2. Centres times the rows of each cell are added where counts were made around them.
3. Values that no code asks for follow by subtraction from what all rows of the cell have. There noise differs from
   value to value and is shared by them (:class:`SharedNoise`). Where every value was counted, it is even.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dpweave import chosen
from dpweave.measure.question import Question
from dpweave.privacy.window import NoisyMarginal

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from dpweave.arrays import FloatArray
    from dpweave.privacy.window import Code, Columns, Noisy, NoisyUnitSum


MOST_CORRELATED = 1_000
"""Cells of a table at most whose correlations are looked at."""


@dataclass(frozen=True)
class SharedNoise:
    r"""Noise of cells that follow from others by subtraction, over the last axes of an estimate.

    ``variance`` is that of what was counted. The code that leaves column c out stands in the place of the value of c
    that no code asks for, ``absent``; None where every value was asked for. With :math:`T_c` the matrix that takes the
    other values off what that place holds, cells have the covariance :math:`T \operatorname{diag}(v)\, T^T`,
    :math:`T = \bigotimes_c T_c`.
    """

    variance: FloatArray
    absent: tuple[int | None, ...]

    @cached_property
    def covariance(self) -> FloatArray:
        """That of all cells, flattened."""
        whole = _kron([_taken_off(n, at) for n, at in zip(self.variance.shape, self.absent, strict=True)])
        return np.asarray(whole * self.variance.ravel() @ whole.T)

    @cached_property
    def largest(self) -> float:
        """Variance of the noisiest cell."""
        return float(self._mixed([_taken_off(n, at) for n, at in self._axes]).max())

    def contrasts(self, margins: Sequence[FloatArray]) -> tuple[FloatArray, float]:
        r"""Variance of each cell, centred by :math:`I - p 1^T` along every axis, and the share of cells that say
        something of their own.

        Along c, a value v is then :math:`y_v - p_v y_\cdot`, and the absent value minus the sum of the others. Cells
        share noise; with correlations R of n cells they are worth :math:`n^2 / \lVert R \rVert_F^2` independent ones.
        """
        matrices = [_centred_off(p, at) for p, (_, at) in zip(margins, self._axes, strict=True)]
        variance = self._mixed(matrices)
        if variance.size > MOST_CORRELATED:
            return variance, 1.0
        mixed = _kron(matrices) * np.sqrt(self.variance.ravel())
        mixed /= np.sqrt(np.maximum((mixed**2).sum(axis=1, keepdims=True), 1e-300))
        return variance, variance.size / float(((mixed @ mixed.T) ** 2).sum())

    @property
    def _axes(self) -> list[tuple[int, int | None]]:
        return list(zip(self.variance.shape, self.absent, strict=True))

    def _mixed(self, matrices: Sequence[FloatArray]) -> FloatArray:
        """Variance of each cell after one matrix along each axis."""
        variance = self.variance
        for axis, matrix in enumerate(matrices):
            variance = np.moveaxis(np.tensordot(matrix**2, variance, axes=(1, axis)), 0, axis)
        return variance


def _taken_off(size: int, absent: int | None) -> FloatArray:
    matrix = np.eye(size)
    if absent is not None:
        matrix[absent] = -1.0
        matrix[absent, absent] = 1.0
    return matrix


def _centred_off(p: FloatArray, absent: int | None) -> FloatArray:
    if absent is None:
        return np.asarray(np.eye(len(p)) - p[:, None])
    matrix = np.eye(len(p))
    matrix[:, absent] = -p
    matrix[absent] = -1.0
    matrix[absent, absent] = 1 - p[absent]
    return matrix


def _kron(matrices: Sequence[FloatArray]) -> FloatArray:
    whole: FloatArray = np.ones((1, 1))
    for matrix in matrices:
        whole = np.asarray(np.kron(whole, matrix))
    return whole


@dataclass(frozen=True)
class Estimate:
    """Noisy counts over ``columns``, with the error of the noisiest cell.

    Noise is even and independent from cell to cell, unless it is ``shared`` over the last axes. ``cover`` says the
    same of counts that were added up or combined: the covariance of cells along the last axis.
    """

    columns: Columns
    counts: FloatArray
    sigma: float
    shared: SharedNoise | None = None
    cover: FloatArray | None = None
    counted: FloatArray | None = None
    """Precision of each cell by itself where noise is shared; 0 where a cell follows from others."""

    @property
    def even(self) -> bool:
        """Whether noise is the same in all cells and independent."""
        return self.shared is None and self.cover is None

    @property
    def precision(self) -> FloatArray:
        """Precision of each cell as it was counted."""
        return np.full(self.counts.shape, self.sigma**-2) if self.counted is None else self.counted

    @property
    def covariance(self) -> FloatArray:
        """That of the cells along the last axis."""
        if self.cover is not None:
            return self.cover
        return np.eye(self.counts.shape[-1]) * self.sigma**2 if self.shared is None else self.shared.covariance

    @property
    def whole_variance(self) -> float:
        """Variance of the noise in the sum of all cells; next to none where their number of rows was known."""
        rows = self.counts.size // self.counts.shape[-1]
        return float(max(rows * self.covariance.sum(), 1e-9))

    @property
    def marginal(self) -> NoisyMarginal:
        """The same as whole numbers with even noise."""
        return NoisyMarginal(self.columns, np.rint(self.counts).astype(np.int64), self.sigma)

    def summed(self, columns: Columns) -> Estimate:
        """Add up over all but ``columns``, which become the axes in their order. Noise that is shared must be so along
        the last column alone.
        """
        rest = tuple(i for i, name in enumerate(self.columns) if name not in columns)
        left = [name for name in self.columns if name in columns]
        cells = math.prod(self.counts.shape[i] for i in rest)
        counts = self.counts.sum(axis=rest).transpose([left.index(c) for c in columns])
        return Estimate(
            columns, counts, self.sigma * math.sqrt(cells), cover=None if self.even else cells * self.covariance
        )


def combined(parts: Sequence[Estimate]) -> Estimate | None:
    r"""Return the estimate of least variance, :math:`\sum_i x_i \sigma_i^{-2} / \sum_i \sigma_i^{-2}`.

    >>> both = combined([Estimate(("a",), np.array([0.0]), 1.0), Estimate(("a",), np.array([5.0]), 2.0)])
    >>> both.counts.tolist(), round(both.sigma, 4)
    ([1.0], 0.8944)
    """
    if not parts:
        return None
    weights = np.array([1 / p.sigma**2 for p in parts])
    weights /= weights.sum()
    counts = np.asarray(sum(w * p.counts for w, p in zip(weights, parts, strict=True)), dtype=np.float64)
    if all(p.even for p in parts):
        sigma = math.sqrt(sum(w**2 * p.sigma**2 for w, p in zip(weights, parts, strict=True)))
        return Estimate(parts[0].columns, counts, sigma)
    cover = np.asarray(sum(w**2 * p.covariance for w, p in zip(weights, parts, strict=True)))
    return Estimate(parts[0].columns, counts, math.sqrt(float(cover.diagonal().max())), cover=cover)


# -- reading an answer -------------------------------------------------------------------------------------------------


def estimates(
    noisy: Noisy,
    shape: Mapping[str, int],
    rows: Callable[[Columns], FloatArray],
    *,
    known: Container[str] = (),
) -> tuple[Estimate, ...]:
    """Counts over the columns of an answer's cells and each set of columns that its codes look at.

    ``rows`` says about how many rows there are per cell of some columns: what is not counted around centres, and what
    shows how far units were scaled down; so does any column by itself that is ``known``.
    """
    question = Question.of(noisy)
    codes, cells = question.codes, question.columns
    found = restored(noisy, rows, known=known)
    places = _by_columns(codes)
    absent = _absent(codes, shape)
    out = []
    for columns, y in whole_tables(codes, found.counts, shape).items():
        noise = found.noise[places[columns]]
        if not noise.any():
            continue  # rows that were known and not counted
        name = (*cells, *columns)
        if all(absent[c] is None for c in columns) and (noise == noise[-1]).all():
            out.append(Estimate(name, np.rint(y), float(noise[-1])))
            continue
        shared = _shared(columns, codes, found.noise, places, {c: shape[c] for c in columns}, absent)
        counted = np.zeros(y.shape)
        for i in places[columns]:
            counted[_cell(codes[i])] = found.kept**2 / found.noise[i] ** 2
        out.append(Estimate(name, y, math.sqrt(shared.largest), shared, counted=counted))
    return tuple(out)


class Restored(NamedTuple):
    """Counts of each code once what scaling took is put back, and the scale of their noise: 0 where rows were known.

    ``kept`` is the part of rows that is left in each cell relative to that of all: noise is that of all cells, and less
    or more by it.
    """

    counts: FloatArray
    noise: FloatArray
    kept: FloatArray


def restored(noisy: Noisy, rows: Callable[[Columns], FloatArray], *, known: Container[str] = ()) -> Restored:
    r"""Make good what scaling took from the counts of a sum over units, and add what it was counted around.

    Units that are longer than the clip are scaled down, which pulls counts towards the centres: a group of units with
    a strong bent of its own loses part of it. But they lose rows alike. So the code of every row shows which part f of
    them is left in each cell, and counts are divided by that. With noise, it is shrunk towards the part that is left of
    all rows. Without centres rows per cell are what is to be found out, and only all rows together are known, or those
    per value of a ``known`` column, which shows the part with less noise (:func:`_left_of_column`). Without the code
    of every row nothing is put back, and nothing need be where counts are plain.
    """
    if isinstance(noisy, NoisyMarginal):
        return Restored(noisy.counts[..., np.newaxis].astype(np.float64), np.array([noisy.sigma]), np.array(1.0))
    unit_sum = noisy.unit_sum
    height = noisy.counts.shape[:-1]
    if () not in unit_sum.codes:
        return Restored(noisy.counts, noisy.noise, np.ones(height))
    at = unit_sum.codes.index(())
    if not unit_sum.centred:
        size = max(math.prod(height), 1)
        alone = known if len(unit_sum.codes) == 1 else ()
        found = [_left_of_column(noisy, i, rows((c,))) for i, c in enumerate(unit_sum.columns) if c in alone]
        even = left_of(noisy, np.full(height, float(rows(())) / size))
        left = min(found, key=lambda f: f[1])[0] if found else even
        return Restored(noisy.counts / left, noisy.noise / left, np.ones(height))
    every = np.maximum(rows(unit_sum.columns), 0.0)
    some = np.maximum(every, chosen.NEXT_TO_NOTHING)
    blur = (float(noisy.noise[at]) / some) ** 2
    left = left_of(noisy, every)
    own = noisy.counts[..., at] / some
    seen = chosen.DOUBT**2 / (2 * chosen.DOUBT**2 + blur)
    each = np.clip(left + (own - left) * seen, chosen.DOUBT, 1.0)
    counts = noisy.counts / each[..., np.newaxis] + np.multiply.outer(every, np.array(unit_sum.centres))
    counts[..., at] = every
    scales = np.array([0.0 if i == at else s / left for i, s in enumerate(unit_sum.scales)])
    return Restored(counts, noisy.sigma * scales, each / left)


def left_of(noisy: Noisy, rows: FloatArray) -> float:
    """The part that scaling left of all ``rows``, as far as noise lets it be seen; 1 where it does not."""
    if isinstance(noisy, NoisyMarginal):
        return 1.0
    at, total = noisy.unit_sum.codes.index(()), max(float(rows.sum()), chosen.NEXT_TO_NOTHING)
    doubt = (float(noisy.noise[at]) / total) ** 2 * rows.size
    left = (float(noisy.counts[..., at].sum()) / total * chosen.LENGTHS**2 + doubt) / (chosen.LENGTHS**2 + doubt)
    return min(max(left, chosen.DOUBT), 1.0)


def _left_of_column(noisy: NoisyUnitSum, axis: int, rows: FloatArray) -> tuple[float, float]:
    r"""The same by the ``rows`` r per value of one column, and the variance of noise in it.

    The sums y of the counts over all other columns are f r but for noise of variance :math:`v`, so that
    :math:`y^T r / r^T r` has the variance :math:`v / r^T r`: that of f by all rows together, or less where most rows
    have few of the values. Noise is the least that is taken to be left.
    """
    at = noisy.unit_sum.codes.index(())
    counts = noisy.counts[..., at]
    sums = counts.sum(axis=tuple(i for i in range(counts.ndim) if i != axis))
    whole = max(float(rows @ rows), chosen.NEXT_TO_NOTHING)
    blur = float(noisy.noise[at]) ** 2 * counts.size / max(len(sums), 1) / whole
    left = (float(sums @ rows) / whole * chosen.LENGTHS**2 + blur) / (chosen.LENGTHS**2 + blur)
    return min(max(left, math.sqrt(blur)), 1.0), blur


def whole_tables(codes: Sequence[Code], counts: FloatArray, shape: Mapping[str, int]) -> dict[Columns, FloatArray]:
    """Counts, whose last axis is that of ``codes``, over each set of columns that these look at: those of values that
    no code asks for by subtraction.
    """
    height = counts.shape[:-1]
    places, absent = _by_columns(codes), _absent(codes, shape)
    whole: dict[Columns, FloatArray] = {}
    for columns in sorted(places, key=len):
        y = np.zeros(height + tuple(shape[c] for c in columns))
        for i in places[columns]:
            y[_cell(codes[i])] = counts[..., i]
        for axis, c in enumerate(columns, start=len(height)):
            if absent[c] is not None:
                at = (slice(None),) * axis + (absent[c],)
                y[at] = 0.0
                y[at] = whole[tuple(x for x in columns if x != c)] - y.sum(axis=axis)
        whole[columns] = y
    return whole


def _shared(
    columns: Columns,
    codes: Sequence[Code],
    noise: FloatArray,
    places: Mapping[Columns, Sequence[int]],
    shape: Mapping[str, int],
    absent: Mapping[str, int | None],
) -> SharedNoise:
    variance = np.zeros(tuple(shape.values()))
    for r in range(len(columns) + 1):
        for some in combinations(columns, r):
            stands = all(absent[c] is not None for c in columns if c not in some)
            for i in places.get(some, ()) if stands else ():
                variance[tuple(dict(codes[i]).get(c, absent[c]) for c in columns)] = noise[i] ** 2
    return SharedNoise(variance, tuple(absent[c] for c in columns))


def _absent(codes: Sequence[Code], shape: Mapping[str, int]) -> dict[str, int | None]:
    """The value of each column that no code asks for; None where there is none."""
    coded = {pair for code in codes for pair in code}
    columns = {c for c, _ in coded}
    return {c: next((v for v in range(shape[c]) if (c, v) not in coded), None) for c in columns}


def _by_columns(codes: Sequence[Code]) -> dict[Columns, list[int]]:
    """Places of codes, by the columns they look at."""
    out: dict[Columns, list[int]] = {}
    for i, code in enumerate(codes):
        out.setdefault(tuple(c for c, _ in code), []).append(i)
    return out


def _cell(code: Code) -> Any:
    """Where a code's counts lie in a table over the cells' columns and its own."""
    return (..., *(v for _, v in code))
