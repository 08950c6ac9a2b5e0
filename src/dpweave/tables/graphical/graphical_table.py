"""A fitted graphical model as a :class:`~dpweave.tables.base.FittedTable`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpweave.errors import PlanError, UsageError, nearest
from dpweave.tables.graphical.estimation import Factors, Zero
from dpweave.tables.graphical.row_generation import generate
from dpweave.tables.reduction import Merge, Origin, Reduction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.privacy.window import Columns
    from dpweave.tables.graphical.inference import Calibrated
    from dpweave.tables.graphical.junction_tree import Variables


@dataclass(frozen=True)
class GraphicalTable:
    """Log-potentials over the variables of a reduction, zeros, and a number of rows."""

    reduction: Reduction
    potentials: Mapping[Variables, FloatArray]
    zeros: tuple[Zero, ...]
    rows: float

    @cached_property
    def model(self) -> Calibrated:
        """The distribution over model codes."""
        factors = Factors(self.reduction.sizes, list(self.potentials), self.zeros)
        return factors.calibrate(list(self.potentials.values()))

    def marginal(self, columns: Columns) -> FloatArray:
        """Expected counts over ``columns``."""
        for column in columns:
            if column not in self.reduction.shape:
                raise UsageError(f"no column {column!r}; {nearest(column, self.reduction.shape)}")
        base = self.reduction.base(columns)
        counts = self.rows * self.model.marginal(self.reduction.variables(base))
        return self.reduction.derive(columns, base, self.reduction.expand(base, counts))

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, IntArray]:
        """Codes of ``rows`` rows, expected counts rounded along the tree."""
        if rows < 0:
            raise UsageError(f"cannot sample {rows} rows")
        codes = {
            column: merge.unmerge(codes, rng)
            for column, merge, codes in zip(
                self.reduction.columns, self.reduction.merges, generate(self.model, rows, rng), strict=True
            )
        }
        return self.reduction.fill(codes, rows)

    def state(self) -> tuple[dict[str, object], dict[str, npt.NDArray[Any]]]:
        """JSON facts and flat arrays."""
        reduction = self.reduction
        state: dict[str, object] = {
            "rows": self.rows,
            "shape": [[column, size] for column, size in reduction.shape.items()],
            "columns": list(reduction.columns),
            "determined": {c: list(o.columns) for c, o in reduction.origins.items() if c not in reduction.columns},
            "cliques": [list(clique) for clique in self.potentials],
            "zeros": [list(zero.variables) for zero in self.zeros],
        }
        arrays: dict[str, npt.NDArray[Any]] = {}
        for column, merge in zip(reduction.columns, reduction.merges, strict=True):
            arrays[f"code/{column}"] = merge.code
            arrays[f"share/{column}"] = merge.share
        for column, origin in reduction.origins.items():
            if column not in reduction.columns:
                arrays[f"table/{column}"] = origin.table.ravel()
        for i, potential in enumerate(self.potentials.values()):
            arrays[f"potential/{i}"] = np.ascontiguousarray(potential).ravel()
        for i, zero in enumerate(self.zeros):
            arrays[f"zero/{i}"] = zero.mask.ravel()
        return state, arrays


def restore(state: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> GraphicalTable:
    """The inverse of :meth:`GraphicalTable.state`."""
    shape = {str(column): int(size) for column, size in state["shape"]}
    columns = tuple(state["columns"])
    merges = tuple(
        Merge(np.asarray(arrays[f"code/{c}"], dtype=np.int64), np.asarray(arrays[f"share/{c}"], dtype=np.float64))
        for c in columns
    )
    origins: dict[str, Origin] = {}
    for column, size in shape.items():
        base = tuple(state["determined"].get(column, (column,)))
        table = np.arange(size) if column in columns else np.asarray(arrays[f"table/{column}"])
        origins[column] = Origin(base, table.astype(np.int64).reshape(tuple(shape[c] for c in base)))
    reduction = Reduction(shape, columns, origins, merges)
    sizes = reduction.sizes
    potentials: dict[Variables, FloatArray] = {}
    for i, clique in enumerate(state["cliques"]):
        flat = np.asarray(arrays[f"potential/{i}"], dtype=np.float64)
        potentials[tuple(clique)] = flat.reshape(tuple(sizes[v] for v in clique))
    zeros = tuple(
        Zero(tuple(z), np.asarray(arrays[f"zero/{i}"], dtype=np.bool_).reshape(tuple(sizes[v] for v in z)))
        for i, z in enumerate(state["zeros"])
    )
    return GraphicalTable(reduction, potentials, zeros, float(state["rows"]))


def require_possible(sizes: tuple[int, ...], zeros: tuple[Zero, ...]) -> None:
    """Refuse zeros that together leave no possible row."""
    if not zeros:
        return
    model = Factors(sizes, (), zeros).calibrate(())
    if any(not np.isclose(marginal.sum(), 1.0) for marginal in model.marginals):
        raise PlanError("the structural zeros and dependencies together leave no possible row")
