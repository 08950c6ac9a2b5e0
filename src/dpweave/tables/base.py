"""What a table model is, what it may know, and how one is found by name.

A model is fitted through a :class:`~dpweave.privacy.window.Window` for an amount of rho and never sees rows. What
comes out, a :class:`FittedTable`, depends on noisy counts alone: it may be sampled and stored for nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from dpweave.errors import PlanError, UsageError, nearest
from dpweave.measure.answers import settled
from dpweave.measure.purse import Purse as Purse  # noqa: PLC0414 - other packages import it from here
from dpweave.plan.mechanisms import BUILT_IN, ENTRY_POINTS, added, registered
from dpweave.schema.domain import MAX_CELLS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.privacy.window import Among, Candidate, Columns, NoisyMarginal, NoisyUnitSum, Units, UnitSum, Window


Table_co = TypeVar("Table_co", covariant=True)
BoolArray = npt.NDArray[np.bool_]

MAX_MODEL_CELLS = 1 << 21
"""Cells all factors of a fitted model may have together: sixteen megabytes, of which estimation
holds a few copies. More than that is left to mbi (:mod:`dpweave.tables.graphical.mbi_estimation`).
"""


OLDEST_MBI = 2
"""First major version of mbi that knows impossible combinations."""


def require_mbi(cells: int, *, limit: int) -> None:
    """Refuse a model of ``cells`` cells where mbi is not installed, or too old."""
    found = _mbi_version()
    if found is not None and int(found.split(".")[0]) >= OLDEST_MBI:
        return
    have = "" if found is None else f"; mbi {found} is here, but version {OLDEST_MBI} is needed"
    raise PlanError(
        f"a model of up to {cells:,} cells is more than the {limit:,} that dpweave's own estimator holds{have}; "
        f"lower it to that, or install mbi with pip install 'dpweave[mbi]'"
    )


def _mbi_version() -> str | None:
    try:
        return version("mbi")
    except PackageNotFoundError:
        return None


@dataclass(frozen=True)
class StructuralZero:
    """Combinations of ``columns`` that cannot occur: true cells of ``mask`` are impossible."""

    columns: Columns
    mask: BoolArray

    def __post_init__(self) -> None:
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise PlanError(f"a structural zero needs distinct columns, got {self.columns!r}")
        if self.mask.dtype != np.bool_ or self.mask.ndim != len(self.columns):
            raise PlanError(
                f"the mask of the structural zero over {self.columns} must be boolean with one axis per column"
            )
        if self.mask.all():
            raise PlanError(f"the structural zero over {self.columns} forbids every combination")


@dataclass(frozen=True)
class Dependency:
    """``dependent = table[determinants]``, exactly: city → country."""

    determinants: Columns
    dependent: str
    table: IntArray

    def __post_init__(self) -> None:
        if not self.determinants or len({*self.determinants, self.dependent}) != len(self.determinants) + 1:
            raise PlanError(f"{self.determinants!r} cannot determine {self.dependent!r}: columns must be distinct")
        if self.table.ndim != len(self.determinants) or not np.issubdtype(self.table.dtype, np.integer):
            raise PlanError(f"the table of {self.dependent!r} needs integer codes and one axis per determinant")


@dataclass(frozen=True)
class Structure:
    """Public facts about a table, beyond the number of codes per column.

    ``workload`` weighs the sets of columns whose marginals matter (``None``: all pairs and triples alike). ``linked``
    does for those that links see of a row, its degree among them; a model that knows nothing of links leaves it.
    ``measured`` are counts that were taken before; a model may use them as its own.
    """

    zeros: tuple[StructuralZero, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    workload: Mapping[Columns, float] | None = None
    linked: Mapping[Columns, float] = field(default_factory=dict)
    measured: tuple[NoisyMarginal, ...] = ()
    max_cells: int = MAX_CELLS
    max_model_cells: int = MAX_MODEL_CELLS

    def __post_init__(self) -> None:
        if self.max_cells < 1 or self.max_model_cells < 1:
            raise PlanError(f"size limits must be positive, got {self.max_cells} and {self.max_model_cells}")
        if self.max_model_cells > MAX_MODEL_CELLS:
            require_mbi(self.max_model_cells, limit=MAX_MODEL_CELLS)
        for columns, weight in (*(self.workload or {}).items(), *self.linked.items()):
            if not columns or len(set(columns)) != len(columns):
                raise PlanError(f"a workload needs distinct columns, got {columns!r}")
            if not (math.isfinite(weight) and weight > 0):
                raise PlanError(f"the weight of workload {columns} must be positive, got {weight}")

    def require_room(self, shape: Mapping[str, int], *, cells: int) -> None:
        """Refuse columns of ``shape`` that are too large, or a model of one-way
        marginals and zeros of ``cells`` cells.
        """
        for column, size in shape.items():
            if size > self.max_cells:
                raise PlanError(
                    f"column {column!r} has {size} codes, more than the limit of {self.max_cells} cells; coarsen it"
                )
        if cells > self.max_model_cells:
            raise PlanError(
                f"one-way marginals and structural zeros alone need a model of {cells} cells, more than the limit of "
                f"{self.max_model_cells}; coarsen columns or raise model_cells"
            )

    def check(self, shape: Mapping[str, int]) -> None:
        """Refuse facts that do not fit ``shape``."""
        for column, size in shape.items():
            if size < 1:
                raise PlanError(f"column {column!r} has {size} codes; a domain needs at least one")
        for zero in self.zeros:
            if zero.mask.shape != _sizes(zero.columns, shape, "structural zero"):
                raise PlanError(f"the mask over {zero.columns} has shape {zero.mask.shape}, the domain another")
        for dependency in self.dependencies:
            sizes = _sizes(dependency.determinants, shape, "dependency")
            (limit,) = _sizes((dependency.dependent,), shape, "dependency")
            if dependency.table.shape != sizes:
                raise PlanError(
                    f"the table of {dependency.dependent!r} has shape {dependency.table.shape}, not {sizes}"
                )
            if dependency.table.min() < 0 or dependency.table.max() >= limit:
                raise PlanError(f"the table of {dependency.dependent!r} holds codes outside 0..{limit - 1}")
        for columns in self.workload or ():
            _sizes(columns, shape, "workload")


def _sizes(columns: Columns, shape: Mapping[str, int], what: str) -> tuple[int, ...]:
    for column in columns:
        if column not in shape:
            raise PlanError(f"{what} names column {column!r}; {nearest(column, shape)}")
    return tuple(shape[column] for column in columns)


@runtime_checkable
class FittedTable(Protocol):
    """A distribution over rows of codes, made from noisy counts."""

    @property
    def rows(self) -> float:
        """Estimated number of rows, not negative."""
        ...

    def marginal(self, columns: Columns) -> FloatArray:
        """Expected counts over ``columns``, one axis each; they add up to :attr:`rows`."""
        ...

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, IntArray]:
        """Codes of ``rows`` rows for every column; the same for the same state of ``rng``."""
        ...

    def state(self) -> tuple[dict[str, object], dict[str, npt.NDArray[Any]]]:
        """What :func:`restore` needs: a JSON object and arrays."""
        ...


@runtime_checkable
class TableModel(Protocol):
    """A way to spend rho on one table."""

    @property
    def name(self) -> str:
        """The registered name under which :func:`restore` finds what this model fits."""
        ...

    def fit(
        self,
        window: Window,
        *,
        rho: float,
        rows: float | None,
        structure: Structure,
        progress: Callable[[str, float], None],
    ) -> FittedTable:
        """Spend exactly ``rho`` through ``window``. ``rows`` is the noisy row count where one was measured before."""
        ...


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

    def select(
        self, candidates: Sequence[Candidate], *, rho: float, count: int = 1, among: Among | None = None
    ) -> tuple[int, ...]:
        """As the window behind it."""
        return self.window.select(candidates, rho=rho, count=count, among=among)


@dataclass(frozen=True)
class Registration:
    """What an entry point of the group ``dpweave.table_models`` must load to."""

    make: Callable[..., TableModel]
    restore: Callable[[dict[str, Any], dict[str, npt.NDArray[Any]]], FittedTable]


def _registration(name: str) -> Registration:
    if name in BUILT_IN:
        found: object = import_module(BUILT_IN[name]).REGISTRATION
    else:
        points = [point for point in added() if point.name == name]
        if not points:
            raise PlanError(f"no table mechanism is called {name!r}; {nearest(name, registered())}")
        found = points[0].load()
    if not isinstance(found, Registration):
        raise PlanError(f"the entry point {name!r} of {ENTRY_POINTS} is not a dpweave.tables.base.Registration")
    return found


def table_model(name: str, **options: Any) -> TableModel:
    """Make the table model called ``name``.

    >>> table_model("atm")
    Traceback (most recent call last):
    dpweave.errors.PlanError: no table mechanism is called 'atm'; did you mean 'aim'?
    """
    make = _registration(name).make
    try:
        return make(**options)
    except TypeError as error:
        raise UsageError(f"table mechanism {name!r} does not take these options: {error}") from error


def restore(name: str, state: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> FittedTable:
    """Rebuild what ``state()`` of a table fitted by the model called ``name`` returned."""
    return _registration(name).restore(state, arrays)
