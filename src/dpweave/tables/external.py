"""Tables made elsewhere: rows of codes from any mechanism, with the (epsilon, delta) its maker declares."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpweave.errors import PlanError, UsageError, nearest
from dpweave.tables.base import Registration, Structure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dpweave.privacy.window import Columns, FloatArray, IntArray, Window


@dataclass(frozen=True)
class ExternalTable:
    """Synthetic rows as a distribution: every row has the same weight."""

    codes: Mapping[str, IntArray]
    shape: Mapping[str, int]
    rows: float

    def marginal(self, columns: Columns) -> FloatArray:
        """Expected counts over ``columns``."""
        for column in columns:
            if column not in self.shape:
                raise UsageError(f"no column {column!r}; {nearest(column, self.shape)}")
        dims = tuple(self.shape[column] for column in columns)
        size = _length(self.codes)
        flat = np.zeros(size, dtype=np.int64)
        for column, dim in zip(columns, dims, strict=True):
            flat = flat * dim + self.codes[column]
        counts = np.bincount(flat, minlength=math.prod(dims)).reshape(dims)
        return np.multiply(counts, self.rows / max(size, 1), dtype=np.float64)

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, IntArray]:
        """Every row equally often as far as ``rows`` goes round, the rest drawn without replacement; shuffled."""
        size = _length(self.codes)
        if rows < 0 or (rows > 0 and size == 0):
            raise UsageError(f"cannot sample {rows} rows from {size}")
        whole, rest = divmod(rows, size) if size else (0, 0)
        chosen = np.concatenate([np.tile(np.arange(size), whole), rng.permutation(size)[:rest]]).astype(np.int64)
        chosen = rng.permutation(chosen)
        return {column: self.codes[column][chosen] for column in self.shape}

    def state(self) -> tuple[dict[str, object], dict[str, npt.NDArray[Any]]]:
        """JSON facts and one array per column."""
        shape = [[column, size] for column, size in self.shape.items()]
        return {"rows": self.rows, "shape": shape}, {f"codes/{c}": self.codes[c] for c in self.shape}


@dataclass(frozen=True)
class External:
    """Takes ``codes`` as they are. It asks the window nothing: what they cost is what ``epsilon`` and ``delta`` declare."""

    codes: Mapping[str, npt.ArrayLike]
    epsilon: float
    delta: float = 0.0
    name: str = field(default="external", init=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0 and 0 <= self.delta < 1):
            raise UsageError(
                f"an external table needs finite epsilon >= 0 and 0 <= delta < 1, got {self.epsilon}, {self.delta}"
            )

    def fit(
        self,
        window: Window,
        *,
        rho: float,
        rows: float | None,
        structure: Structure,
        progress: Callable[[str, float], None],
    ) -> ExternalTable:
        """Check the codes against the domain and the structure. ``rho`` must be zero: none of it would be spent."""
        if rho != 0:
            raise PlanError(f"an external table spends no rho of its own, got a share of {rho}; give it none")
        structure.check(window.shape)
        codes = _checked(self.codes, window.shape)
        _require_structure(codes, structure)
        progress("taken over", 1.0)
        size = _length(codes)
        return ExternalTable(codes, dict(window.shape), max(float(size) if rows is None else rows, 0.0))


def _length(codes: Mapping[str, IntArray]) -> int:
    return next((values.size for values in codes.values()), 0)


def _checked(codes: Mapping[str, npt.ArrayLike], shape: Mapping[str, int]) -> dict[str, IntArray]:
    arrays = {column: np.asarray(values) for column, values in codes.items()}
    for column in {*arrays, *shape}:
        if column not in arrays:
            raise PlanError(f"the external table has no column {column!r}")
        if column not in shape:
            raise PlanError(f"the external table has an unknown column {column!r}; {nearest(column, shape)}")
    if len({values.shape for values in arrays.values()}) > 1:
        raise PlanError("the columns of the external table differ in length")
    for column, values in arrays.items():
        integral = values.ndim == 1 and (np.issubdtype(values.dtype, np.integer) or values.size == 0)
        if not integral or (values.size and (values.min() < 0 or values.max() >= shape[column])):
            raise PlanError(f"column {column!r} of the external table needs integer codes in 0..{shape[column] - 1}")
    return {column: arrays[column].astype(np.int64) for column in shape}


def _require_structure(codes: Mapping[str, IntArray], structure: Structure) -> None:
    for zero in structure.zeros:
        if zero.mask[tuple(codes[c] for c in zero.columns)].any():
            raise PlanError(f"the external table has rows that the structural zero over {zero.columns} forbids")
    for dependency in structure.dependencies:
        if (dependency.table[tuple(codes[c] for c in dependency.determinants)] != codes[dependency.dependent]).any():
            raise PlanError(f"the external table breaks the dependency of {dependency.dependent!r}")


def restore(state: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> ExternalTable:
    """The inverse of :meth:`ExternalTable.state`."""
    shape = {str(column): int(size) for column, size in state["shape"]}
    codes = {column: np.asarray(arrays[f"codes/{column}"], dtype=np.int64) for column in shape}
    return ExternalTable(codes, shape, float(state["rows"]))


REGISTRATION = Registration(make=External, restore=restore)
