"""A wall of paper for tests of clients: codes in memory, the true law of the noise, a record of what was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpweave.privacy.window import Among, Candidate, Columns, NoisyMarginal, NoisyUnitSum, Units, UnitSum

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from dpweave.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class Asked:
    """One call of a verb."""

    verb: str
    cliques: tuple[Columns, ...]
    rho: float


class ArrayWindow:
    """``Window`` over ``codes`` (one array per column, equally long), with discrete Gaussian and Gumbel noise.

    ``l1`` and ``l2`` are the sensitivities of every marginal. ``asked`` lists the calls, ``spent`` adds their rho up in
    the order of asking. ``rows`` is needed only where there are no columns.
    """

    def __init__(
        self,
        codes: Mapping[str, npt.ArrayLike],
        shape: Mapping[str, int],
        *,
        l1: float = 1.0,
        l2: float = 1.0,
        seed: int | None = None,
        rows: int | None = None,
        name: str = "table",
        unit: npt.ArrayLike | None = None,
        units: Units | None = None,
    ) -> None:
        if set(codes) != set(shape):
            raise ValueError(f"codes for {sorted(codes)}, shape for {sorted(shape)}")
        self.codes: dict[str, IntArray] = {column: np.asarray(codes[column], dtype=np.int64) for column in shape}
        for column, values in self.codes.items():
            if values.size and not (values.min() >= 0 and values.max() < shape[column]):
                raise ValueError(f"codes of {column} outside 0..{shape[column] - 1}")
        lengths = {values.size for values in self.codes.values()} | ({rows} if rows is not None else set())
        if len(lengths) > 1:
            raise ValueError(f"columns of lengths {sorted(lengths)}")
        self.size = lengths.pop() if lengths else 0
        self.name = name
        self.shape: Mapping[str, int] = dict(shape)
        self.asked: list[Asked] = []
        self._l1, self._l2 = l1, l2
        self.units = units
        self._unit = None if unit is None else np.unique(np.asarray(unit), return_inverse=True)[1]
        self._random = np.random.default_rng(seed)
        self._cache: dict[Columns, IntArray] = {}

    @property
    def spent(self) -> float:
        return sum(call.rho for call in self.asked)

    def l1(self, columns: Columns) -> float:
        return self._l1

    def l2(self, columns: Columns) -> float:
        return self._l2

    def exact(self, columns: Columns) -> IntArray:
        """The true counts: for comparison in tests only."""
        if columns not in self._cache:
            dims = tuple(self.shape[column] for column in columns)
            flat = np.zeros(self.size, dtype=np.int64)
            for column, dim in zip(columns, dims, strict=True):
                flat = flat * dim + self.codes[column]
            counts = np.bincount(flat, minlength=int(np.prod(dims, dtype=np.int64))) if columns else np.array(self.size)
            self._cache[columns] = counts.reshape(dims).astype(np.int64)
        return self._cache[columns]

    def measure(
        self, cliques: Sequence[Columns], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyMarginal, ...]:
        self._ask("measure", tuple(cliques), rho)
        shares = np.ones(len(cliques)) if weights is None else np.asarray(weights, dtype=float)
        if shares.shape != (len(cliques),) or not (shares > 0).all():
            raise ValueError("weights must be positive, one per clique")
        sigmas = self._l2 / np.sqrt(2 * rho * shares / shares.sum())
        return tuple(
            NoisyMarginal(c, np.asarray(self.exact(c) + self._noise(sigma, c)), float(sigma))
            for c, sigma in zip(cliques, sigmas, strict=True)
        )

    def exact_unit_sum(self, unit_sum: UnitSum) -> FloatArray:
        """The clipped sums behind a unit sum, in units of its scales: the definition, unit by unit."""
        assert self._unit is not None
        dims = tuple(self.shape[c] for c in unit_sum.columns)
        cell = np.zeros(self.size, dtype=np.int64)
        for column, dim in zip(unit_sum.columns, dims, strict=True):
            cell = cell * dim + self.codes[column]
        cells, codes, people = (
            int(np.prod(dims, dtype=np.int64)),
            len(unit_sum.codes),
            int(self._unit.max(initial=-1)) + 1,
        )
        has = np.stack(
            [
                np.logical_and.reduce([np.ones(self.size, dtype=bool), *(self.codes[c] == v for c, v in code)])
                for code in unit_sum.codes
            ]
        )
        from scipy import sparse

        j, i = np.nonzero(has)
        vectors = sparse.csr_array(
            (1 / np.array(unit_sum.scales)[j], (self._unit[i], cell[i] * codes + j)), shape=(people, cells * codes)
        )
        if unit_sum.centred:
            every = sparse.csr_array((np.ones(self.size), (self._unit, cell)), shape=(people, cells))
            vectors = vectors - sparse.kron(every, np.array(unit_sum.centres) / np.array(unit_sum.scales), format="csr")
        vectors.sum_duplicates()
        length = np.sqrt(vectors.multiply(vectors).sum(axis=1))
        factor = np.minimum(1.0, unit_sum.clip / np.maximum(length, 1e-300))
        return np.asarray(factor @ vectors).reshape((*dims, codes))

    def measure_unit_sums(
        self, unit_sums: Sequence[UnitSum], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyUnitSum, ...]:
        self._ask("measure", tuple(b.columns for b in unit_sums), rho)
        shares = np.ones(len(unit_sums)) if weights is None else np.asarray(weights, dtype=float)
        out = []
        for unit_sum, share in zip(unit_sums, shares / shares.sum(), strict=True):
            sigma = unit_sum.clip / np.sqrt(2 * rho * share)
            exact = self.exact_unit_sum(unit_sum)
            noisy = exact + self._random.normal(scale=sigma, size=exact.shape)
            out.append(NoisyUnitSum(unit_sum, noisy * np.array(unit_sum.scales), float(sigma)))
        return tuple(out)

    def select(
        self, candidates: Sequence[Candidate], *, rho: float, count: int = 1, among: Among | None = None
    ) -> tuple[int, ...]:
        self._ask("select", tuple(c.columns for c in candidates), rho)
        if not 1 <= count <= len(candidates):
            raise ValueError(f"{count} of {len(candidates)} candidates")
        weights = np.array([round(c.weight * 1024) / 1024 for c in candidates])
        penalties = np.array([round(c.penalty * 1024) / 1024 for c in candidates])
        scores = weights * np.array([self._distance(c) for c in candidates]) - penalties
        scale = self._l1 * weights.max() / np.sqrt(2 * rho / count)
        noisy = scores + self._random.gumbel(scale=scale, size=scores.size)
        drawn: list[int] = []  # Gumbel noise that is drawn once has the law of drawing again and again
        for _ in range(count):
            left = set(range(len(candidates)) if among is None else among(drawn)).difference(drawn)
            drawn.append(max(left, key=lambda i: noisy[i]))
        return tuple(drawn)

    def _noise(self, sigma: float, columns: Columns) -> IntArray:
        return discrete_gaussian(sigma, self.exact(columns).shape, self._random)

    def _distance(self, candidate: Candidate) -> float:
        truth = self.exact(candidate.columns)
        prediction: FloatArray = np.asarray(candidate.prediction, dtype=float)
        if prediction.shape != truth.shape:
            raise ValueError(f"prediction of shape {prediction.shape} for {candidate.columns}")
        if not np.isfinite(prediction).all():
            raise ValueError(f"prediction for {candidate.columns} is not finite")
        return float(np.abs(truth - np.rint(prediction)).sum())

    def _ask(self, verb: str, cliques: tuple[Columns, ...], rho: float) -> None:
        if not (np.isfinite(rho) and rho > 0):
            raise ValueError(f"rho must be positive, got {rho}")
        if not cliques:
            raise ValueError("nothing asked")
        for clique in cliques:
            if len(set(clique)) != len(clique) or not set(clique) <= set(self.shape):
                raise ValueError(f"{clique} are not distinct columns of {sorted(self.shape)}")
        self.asked.append(Asked(verb, cliques, rho))


def discrete_gaussian(sigma: float, shape: tuple[int, ...], random: np.random.Generator) -> IntArray:
    """Draws with mass proportional to exp(-x²/2σ²) on the integers, by rejection from a discrete Laplace law.

    Canonne, Kamath, Steinke 2020, algorithm 3, in floating point: good for tests, never for the wall.
    """
    size = int(np.prod(shape, dtype=np.int64))
    scale = np.floor(sigma) + 1
    kept: list[IntArray] = []
    missing = size
    while missing > 0:
        draws = 2 * missing + 16
        stop = -np.expm1(-1 / scale)
        proposal = random.geometric(stop, draws) - random.geometric(stop, draws)
        accept = np.exp(-((np.abs(proposal) - sigma**2 / scale) ** 2) / (2 * sigma**2))
        kept.append(proposal[random.random(draws) < accept][:missing])
        missing -= kept[-1].size
    return np.concatenate(kept).reshape(shape) if size else np.zeros(shape, dtype=np.int64)
