"""What a client of the wall may hold: a window on one view, and the noisy counts that came through it.

Table models and link learners import this module and never the Curator, its counts or its sources
(the import contract holds them to it). A bug in a client costs accuracy, not privacy.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.schema.domain import View


Columns = tuple[str, ...]
"""A clique: names of columns of one window, in the order of a count array's axes. ``()`` is the number of rows."""

Among: TypeAlias = "Callable[[Sequence[int]], Iterable[int]]"
"""From the candidates drawn so far, by their positions, to those of which the next one is drawn."""


@dataclass(frozen=True)
class NoisyMarginal:
    """Counts over ``columns`` with integer noise of scale ``sigma`` in every cell; safe to publish."""

    columns: Columns
    counts: IntArray
    sigma: float

    def __post_init__(self) -> None:
        if self.counts.ndim != len(self.columns):
            raise ValueError(f"{self.counts.ndim} axes for {len(self.columns)} columns")


Code = tuple[tuple[str, int], ...]
"""Columns of a view and the value that each must have, as a code; ``()`` is every row."""


@dataclass(frozen=True)
class UnitSum:
    r"""What to count about rows, or about the public rows they lead to, with noise for whole units and not for rows.

    A row falls into one cell of ``columns`` and has every one of the ``codes`` whose columns have these
    values. Let :math:`n_u` be how many rows of unit u there are per cell and code, less the ``centres``
    :math:`\mu` of the codes times all its rows in the cell. With one scale :math:`s` per code,

    .. math:: y = s \sum_u \frac{n_u}{s} \min\Bigl(1, \frac{C}{\lVert n_u / s \rVert_2}\Bigr)
       + s \, \mathcal{N}(0, \sigma^2),

    so that one unit moves :math:`y/s` by at most the ``clip`` C, however many rows it has. A unit whose rows have codes
    about as often as the centres say has a short vector; without centres (all 0) it is as long as its rows are many.
    """

    columns: Columns
    codes: tuple[Code, ...]
    scales: tuple[float, ...]
    clip: float
    centres: tuple[float, ...] = ()

    @property
    def all_columns(self) -> Columns:
        """All columns that it looks at, those of its codes last."""
        return tuple(dict.fromkeys((*self.columns, *(c for code in self.codes for c, _ in code))))

    @property
    def centred(self) -> bool:
        """Whether counts are those beyond some share of all rows, and not rows themselves."""
        return bool(self.centres)


@dataclass(frozen=True)
class NoisyUnitSum:
    """Noisy counts of a :class:`UnitSum`, its codes along the last axis, with noise of
    scale ``sigma`` times the code's scale.
    """

    unit_sum: UnitSum
    counts: FloatArray
    sigma: float

    @property
    def noise(self) -> FloatArray:
        """Scale of the noise in the counts of each code."""
        return self.sigma * np.array(self.unit_sum.scales)


Noisy = NoisyMarginal | NoisyUnitSum


@dataclass(frozen=True)
class UnitMoments:
    r"""What rows of one owner have in common, and with their owner: second moments, with noise for whole units.

    ``centres`` are columns of a view, each with a share :math:`\pi` for every code. Row r is the vector
    :math:`z_r`: 1 at its code of each column, 0 elsewhere, less these shares. The rows of one owner are those
    that lead to one row of the table ``owner`` by owning keys, and with them rows of other views, ``beside``, whose
    :math:`z_r` are 0 in the columns that they do not have: :math:`n_p` of owner p in all. For ``together``, pairs
    of columns, and ``siblings``, pairs too, the numbers of all their codes are

    .. math:: T_u = \sum_{r} z_r z_r^\top, \qquad
       S_u = \sum_p \frac{1}{n_p - 1} \sum_{r \ne s} z_r z_s^\top,

    over the rows and owners of unit u, those of T divided by the ``scale``. If all of them together are longer than
    the ``clip``, they are scaled down to it, and then added up over units. A column paired with itself gives the upper
    half of its matrix.
    """

    owner: str
    centres: tuple[tuple[str, tuple[float, ...]], ...]
    together: tuple[tuple[str, str], ...]
    siblings: tuple[tuple[str, str], ...]
    clip: float
    scale: float = 1.0
    beside: tuple[View, ...] = ()

    @property
    def all_columns(self) -> Columns:
        """All columns that it looks at."""
        return tuple(name for name, _ in self.centres)

    def views(self, asked: View) -> tuple[View, ...]:
        """All views that it looks at; ``asked`` is where it is asked."""
        return (asked, *self.beside)

    @property
    def at(self) -> tuple[IntArray, IntArray, int]:
        """Where in :math:`z_r` the two codes of each number lie, those of ``together``
        first, and how many those are.
        """
        first = np.cumsum([0, *(len(shares) for _, shares in self.centres)])
        place = {n: np.arange(a, b) for (n, _), a, b in zip(self.centres, first[:-1], first[1:], strict=True)}
        one: list[IntArray] = [first[:0]]
        two: list[IntArray] = [first[:0]]
        for a, b in (*self.together, *self.siblings):
            i, j = (x.ravel() for x in np.meshgrid(place[a], place[b], indexing="ij"))
            one.append(i[i <= j] if a == b else i)
            two.append(j[i <= j] if a == b else j)
        return np.concatenate(one), np.concatenate(two), sum(map(len, one[: len(self.together) + 1]))


@dataclass(frozen=True)
class NoisyMoments:
    """Numbers of :class:`UnitMoments` in the order of its pairs, with noise of scale ``sigma`` in each, and of so
    much times the scale in those of ``together``.
    """

    moments: UnitMoments
    values: FloatArray
    sigma: float


LARGE = 3.0
"""A unit is large that has this many times the mean number of rows: of units whose rows
go on by chance, one in twenty has more.
"""


@dataclass(frozen=True)
class Units:
    """What is public about the rows of one protected unit in a view: how many they are
    at most, and which columns they share.

    Unit sums may hold only ``columns`` (None: all of the view), those that no other unit moves.
    ``mean`` is about how many rows a unit has, where that was counted, and ``longer`` how many
    times as long as expected what its rows have beyond all others was found to be, by column.
    """

    rows: int
    shared: frozenset[str]
    columns: frozenset[str] | None = None
    mean: float | None = None
    longer: Mapping[str, float] = field(default_factory=dict, hash=False)

    def hold(self, columns: Iterable[str]) -> bool:
        """Whether unit sums may hold all of ``columns``."""
        return self.columns is None or self.columns.issuperset(columns)

    @property
    def many(self) -> float:
        """Rows of a large unit, for which a vector should have room."""
        return float(self.rows if self.mean is None else max(min(self.rows, LARGE * self.mean), 1.0))


@dataclass(frozen=True)
class Weighed:
    r"""How far one unit moves the weights of categories, by protected table, and what it may bring alone; public.

    Rows weigh 1 each where ``length`` is 1. Otherwise units are counted: one whose rows have k categories gives each
    of them :math:`L/\sqrt k`, rounded down, of its ``length`` L. ``alone`` are pairs, of which one covers whatever
    only one unit has: up to so many categories, each of up to such a weight.
    """

    length: int
    l2: Mapping[str, float]
    alone: tuple[tuple[int, int], ...]

    @property
    def by_unit(self) -> bool:
        """Whether units are counted, and not rows."""
        return self.length > 1


LARGEST_PENALTY = 2.0**39
"""A choice refuses a larger one: its scores would not be exact."""


@dataclass(frozen=True)
class Candidate:
    r"""One option of a private choice: how badly ``prediction`` misses the true counts over ``columns``.

    Its score is :math:`w\,\lVert \text{counts} - \text{prediction} \rVert_1 - p` with weight ``w`` and penalty ``p``.
    One unit moves it by at most ``w`` times the L1 sensitivity of the marginal (PRIVACY §4). The prediction is rounded
    to integers and weight and penalty to multiples of 1/1024, so that the score is computed without rounding error.
    """

    columns: Columns
    prediction: FloatArray
    weight: float = 1.0
    penalty: float = 0.0


class Window(Protocol):
    """The two verbs, on one view: a base table with the columns of the rows its foreign keys lead to."""

    @property
    def name(self) -> str:
        """What the ledger calls this view."""
        ...

    @property
    def shape(self) -> Mapping[str, int]:
        """Number of codes of each column, in a fixed order; public."""
        ...

    def l1(self, columns: Columns) -> float:
        """L1 sensitivity of the marginal over ``columns``, the largest over protected tables; public."""
        ...

    def l2(self, columns: Columns) -> float:
        """L2 sensitivity of the marginal over ``columns``, the largest over protected tables; public."""
        ...

    @property
    def units(self) -> Units | None:
        """What is known of one unit's rows, where unit sums may be measured; None elsewhere."""
        ...

    def measure_unit_sums(
        self, unit_sums: Sequence[UnitSum], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyUnitSum, ...]:
        r"""Noisy counts of each unit sum, for a zCDP cost of ``rho`` in all;
        :math:`\sigma_i = C_i / \sqrt{2 \rho_i}`.
        """
        ...

    def measure(
        self, cliques: Sequence[Columns], *, rho: float, weights: Sequence[float] | None = None
    ) -> tuple[NoisyMarginal, ...]:
        r"""Noisy counts for each clique, for a zCDP cost of ``rho`` in all, charged before rows are read.

        Clique i gets the share :math:`\rho_i = \rho w_i / \sum_j w_j` and noise of scale
        :math:`\sigma_i = \Delta_{2,i} / \sqrt{2 \rho_i}`.
        """
        ...

    def select(
        self, candidates: Sequence[Candidate], *, rho: float, count: int = 1, among: Among | None = None
    ) -> tuple[int, ...]:
        """Positions of ``count`` distinct candidates with large scores, for a zCDP cost of ``rho`` in all.

        Each is drawn from those that ``among`` says, given the ones drawn before it; without it, from all.
        """
        ...
