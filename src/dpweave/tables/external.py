"""Tables made elsewhere: rows of codes from any mechanism, and what dpweave weaves onto them.

What the rows cost is declared in the plan and charged by ``fit``; nothing of it is spent here. Columns that such rows
lack because the engine derives them (how many rows each owns, which of its keys are null) are learned under the table's
own share: each is woven onto the rows by noisy pairs with the columns before it, as :mod:`dpweave.tables.woven` does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpweave import chosen
from dpweave.errors import PlanError, UsageError, nearest
from dpweave.links.degrees import Degrees
from dpweave.measure.answers import of_columns
from dpweave.measure.purse import Purse
from dpweave.privacy.window import NoisyMarginal
from dpweave.tables.base import Registration, Structure, ask_and_learn
from dpweave.tables.woven import LEARNER, spread, value_problem, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.privacy.window import Columns, Window


@dataclass(frozen=True)
class Added:
    """A column woven onto the rows: its noisy one-way marginal, and the pairs that were measured."""

    single: NoisyMarginal
    pairs: tuple[NoisyMarginal, ...]

    @property
    def column(self) -> str:
        """The column's name."""
        return self.single.columns[0]


@dataclass(frozen=True)
class ExternalTable:
    """Synthetic rows as a distribution: every row has the same weight."""

    codes: Mapping[str, IntArray]
    shape: Mapping[str, int]
    rows: float
    added: tuple[Added, ...] = ()

    @property
    def given_rows(self) -> int:
        """Number of external rows as they were given."""
        return _length(self.codes)

    def marginal(self, columns: Columns) -> FloatArray:
        """Expected counts over ``columns``: of the rows themselves, with what was woven onto them once."""
        for column in columns:
            if column not in self.shape:
                raise UsageError(f"no column {column!r}; {nearest(column, self.shape)}")
        dims = tuple(self.shape[column] for column in columns)
        flat = np.zeros(self.given_rows, dtype=np.int64)
        for column, dim in zip(columns, dims, strict=True):
            flat = flat * dim + self._picture[column]
        counts = np.bincount(flat, minlength=math.prod(dims)).reshape(dims)
        return np.multiply(counts, self.rows / max(self.given_rows, 1), dtype=np.float64)

    @cached_property
    def _picture(self) -> dict[str, IntArray]:
        return self.sample(self.given_rows, np.random.default_rng(0))

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, IntArray]:
        """Every row equally often as far as ``rows`` goes round, the rest drawn without replacement; shuffled."""
        size = self.given_rows
        if rows < 0 or (rows > 0 and size == 0):
            raise UsageError(f"cannot sample {rows} rows from {size}")
        whole, rest = divmod(rows, size) if size else (0, 0)
        chosen = np.concatenate([np.tile(np.arange(size), whole), rng.permutation(size)[:rest]]).astype(np.int64)
        chosen = rng.permutation(chosen)
        made = {column: values[chosen] for column, values in self.codes.items()}
        for added in self.added:
            made[added.column] = np.zeros(rows, dtype=np.int64)
            if rows:
                made[added.column] = self._woven(added, made, rows, rng)
        return {column: made.get(column, np.zeros(rows, dtype=np.int64)) for column in self.shape}

    def _woven(self, added: Added, made: Mapping[str, IntArray], rows: int, rng: np.random.Generator) -> IntArray:
        before = {c: v for c, v in made.items() if c != added.column}
        problem = value_problem(before, added.column, self.shape, rows=rows, seen=self.rows)
        degrees = Degrees(right=spread(added.single, rows, rng))
        return values_of(LEARNER.wire(problem, added.pairs, rng=rng, degrees=degrees), rows)

    def state(self) -> tuple[dict[str, object], dict[str, npt.NDArray[Any]]]:
        """JSON facts, one array per column that was given, one per marginal that was measured."""
        every = [(i, m) for i, a in enumerate(self.added) for m in (a.single, *a.pairs)]
        state: dict[str, object] = {
            "rows": self.rows,
            "shape": [[column, size] for column, size in self.shape.items()],
            "brought": list(self.codes),
            "added": [{"of": i, "columns": list(m.columns), "sigma": m.sigma} for i, m in every],
        }
        arrays: dict[str, npt.NDArray[Any]] = {f"codes/{column}": values for column, values in self.codes.items()}
        return state, arrays | {f"added/{i}": m.counts.ravel() for i, (_, m) in enumerate(every)}


@dataclass(frozen=True)
class External:
    """Takes ``codes`` as they are, and weaves onto them the columns of the window that they lack."""

    codes: Mapping[str, npt.ArrayLike]
    name: str = field(default="external", init=False)

    def fit(
        self,
        window: Window,
        *,
        rho: float,
        rows: float | None,
        structure: Structure,
        progress: Callable[[str, float], None],
    ) -> ExternalTable:
        """Ask, and learn from the answers."""
        return ask_and_learn(self, window, rho=rho, rows=rows, structure=structure, progress=progress)

    def ask(
        self,
        window: Window,
        *,
        rho: float,
        rows: float | None,
        structure: Structure,
        progress: Callable[[str, float], None],
    ) -> External:
        """Check the codes against domain and structure, then spend ``rho`` on what they
        lack: nothing, if that is nothing.
        """
        codes, lacking = self._parts(window.shape, structure)
        if not lacking and rho != 0:
            raise PlanError(f"a table made elsewhere that lacks no column spends nothing, got a share of {rho}")
        seen = max(float(_length(codes)) if rows is None else rows, 0.0)
        if lacking:
            _weave(window, codes, lacking, rho, seen=seen, progress=progress)
        progress("taken over", 1.0)
        return self

    def learn(
        self,
        answers: Sequence[NoisyMarginal],
        shape: Mapping[str, int],
        *,
        rows: float | None,
        structure: Structure,
    ) -> ExternalTable:
        """Weave each column that the rows lack by what was counted of it with the columns before it."""
        codes, lacking = self._parts(shape, structure)
        added: list[Added] = []
        for i, column in enumerate(lacking):
            before = {*codes, *lacking[:i]}
            known_counts = [m for m in answers if column in m.columns and {*m.columns} <= {*before, column}]
            single = of_columns(known_counts, (column,))
            if single is None:
                raise PlanError(f"nothing was counted of {column!r}, which the rows of the external table lack")
            added.append(Added(single, tuple(m for m in known_counts if len(m.columns) > 1)))
        return ExternalTable(
            codes, dict(shape), max(float(_length(codes)) if rows is None else rows, 0.0), tuple(added)
        )

    def _parts(self, shape: Mapping[str, int], structure: Structure) -> tuple[dict[str, IntArray], list[str]]:
        """Checked codes, and the columns that they lack."""
        structure.check(shape)
        codes = _checked(self.codes, shape)
        require_kept(codes, structure)
        return codes, [column for column in shape if column not in codes]


def _weave(
    window: Window,
    codes: Mapping[str, IntArray],
    lacking: list[str],
    rho: float,
    *,
    seen: float,
    progress: Callable[[str, float], None],
) -> None:
    """Learn the lacking columns one after the other, each from its own counts and pairs with the columns before it."""
    purse = Purse(rho)
    size = _length(codes)
    learnable = size > 0 and any(window.shape[c] > 1 for c in codes)
    first = purse.take(chosen.SINGLES_ON_TOP * rho) if learnable else purse.rest()
    singles = window.measure([(column,) for column in lacking], rho=first)
    rng = np.random.default_rng(0)
    made = {column: values for column, values in codes.items() if window.shape[column] > 1}
    each = purse.left / len(lacking)
    for i, single in enumerate(singles):
        (column,) = single.columns
        progress(f"weaving {column}", i / len(lacking))
        if learnable:
            share = purse.rest() if i == len(lacking) - 1 else purse.take(each)
            problem = value_problem(made, column, window.shape, rows=size, seen=seen)
            degrees = Degrees(right=spread(single, size, rng))
            learned = LEARNER.learn(window, problem, rho=share, rng=rng, progress=lambda *_: None, degrees=degrees)
            made[column] = values_of(learned.pairs, size)


def _length(codes: Mapping[str, IntArray]) -> int:
    return next((values.size for values in codes.values()), 0)


def _checked(codes: Mapping[str, npt.ArrayLike], shape: Mapping[str, int]) -> dict[str, IntArray]:
    arrays = {column: np.asarray(values) for column, values in codes.items()}
    for column in arrays:
        if column not in shape:
            raise PlanError(f"the external table has an unknown column {column!r}; {nearest(column, shape)}")
    for column in shape:
        if column not in arrays and not column.startswith(("#", "?")):
            raise PlanError(f"the external table has no column {column!r}")
    if len({values.shape for values in arrays.values()}) > 1:
        raise PlanError("the columns of the external table differ in length")
    for column, values in arrays.items():
        integral = values.ndim == 1 and (np.issubdtype(values.dtype, np.integer) or values.size == 0)
        if not integral or (values.size and (values.min() < 0 or values.max() >= shape[column])):
            raise PlanError(f"column {column!r} of the external table needs integer codes in 0..{shape[column] - 1}")
    return {column: arrays[column].astype(np.int64) for column in shape if column in arrays}


def require_kept(codes: Mapping[str, IntArray], structure: Structure) -> None:
    """Refuse rows that break what is known of a table."""
    for zero in structure.zeros:
        if zero.mask[tuple(codes[c] for c in zero.columns)].any():
            raise PlanError(f"the external table has rows that the structural zero over {zero.columns} forbids")
    for dependency in structure.dependencies:
        if (dependency.table[tuple(codes[c] for c in dependency.determinants)] != codes[dependency.dependent]).any():
            raise PlanError(f"the external table breaks the dependency of {dependency.dependent!r}")


def restore(state: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> ExternalTable:
    """The inverse of :meth:`ExternalTable.state`."""
    shape = {str(column): int(size) for column, size in state["shape"]}
    codes = {column: np.asarray(arrays[f"codes/{column}"], dtype=np.int64) for column in state["brought"]}
    found: dict[int, list[NoisyMarginal]] = {}
    for i, part in enumerate(state["added"]):
        counts = arrays[f"added/{i}"].reshape([shape[c] for c in part["columns"]])
        found.setdefault(part["of"], []).append(NoisyMarginal(tuple(part["columns"]), counts, part["sigma"]))
    added = tuple(Added(single, tuple(pairs)) for single, *pairs in found.values())
    return ExternalTable(codes, shape, float(state["rows"]), added)


REGISTRATION = Registration(make=External, restore=restore)
