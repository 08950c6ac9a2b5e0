"""What of a table is worth modelling: determined columns are left out, rare categories
are merged, both undone later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from dpweave.errors import PlanError
from dpweave.tables.base import BoolArray, StructuralZero, Structure
from dpweave.tables.graphical.row_generation import apportion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.privacy.window import Columns


@dataclass(frozen=True)
class Origin:
    """A column as a function of modelled columns: ``code = table[codes of columns]``."""

    columns: Columns
    table: IntArray


@dataclass(frozen=True)
class Merge:
    """Full codes of one column to model codes, and each full code's share of the model code it went into."""

    code: IntArray
    share: FloatArray

    def __post_init__(self) -> None:
        if self.code.shape != self.share.shape or self.code.ndim != 1:
            raise ValueError("a merge needs one code and one share per category")

    @cached_property
    def size(self) -> int:
        """Number of model codes."""
        return int(self.code.max()) + 1

    @classmethod
    def none(cls, size: int) -> Merge:
        """Every category for itself."""
        return cls(np.arange(size, dtype=np.int64), np.ones(size))

    @classmethod
    def rare(cls, counts: FloatArray, *, threshold: float) -> Merge:
        """Categories whose noisy count is below ``threshold`` become one, shared by what was counted.

        >>> Merge.rare(np.array([50.0, 3.0, 1.0, 70.0]), threshold=10.0)
        Merge(code=array([0, 2, 2, 1]), share=array([1.  , 0.75, 0.25, 1.  ]))
        """
        low = counts < threshold
        if low.sum() < 2:
            return cls.none(counts.size)
        code = np.where(low, int((~low).sum()), np.cumsum(~low) - 1)
        weight = np.where(low, np.maximum(counts, 0.0), 1.0)
        rare = weight[low].sum()
        share = np.where(low, weight / rare if rare > 0 else 1.0 / low.sum(), 1.0)
        return cls(code.astype(np.int64), share)

    def unmerge(self, codes: IntArray, rng: np.random.Generator) -> IntArray:
        """Full codes for model ``codes``: merged rows are divided by their categories' shares."""
        fan = np.bincount(self.code, minlength=self.size)
        first = np.concatenate([[0], np.cumsum(fan)[:-1]])
        full: IntArray = np.argsort(self.code, kind="stable").astype(np.int64)[first][codes]
        for merged in np.flatnonzero(fan > 1):
            rows = np.flatnonzero(codes == merged)
            members = np.flatnonzero(self.code == merged)
            counts = apportion(np.array([rows.size]), self.share[np.newaxis, members], rng)[0]
            full[rng.permutation(rows)] = np.repeat(members, counts)
        return full


@dataclass(frozen=True)
class Reduction:
    """The way from a table's columns to a model's variables and back. ``columns`` are those modelled, in order."""

    shape: Mapping[str, int]
    columns: Columns
    origins: Mapping[str, Origin]
    merges: tuple[Merge, ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of model codes per modelled column."""
        return tuple(merge.size for merge in self.merges)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {column: i for i, column in enumerate(self.columns)}

    def merged(self, merges: tuple[Merge, ...]) -> Reduction:
        """The same with other merges."""
        return replace(self, merges=merges)

    def cells(self, columns: Columns) -> int:
        """Cells of the full marginal over ``columns``."""
        return math.prod(self.shape[column] for column in columns)

    def variables(self, columns: Columns) -> tuple[int, ...]:
        """Positions of modelled ``columns``."""
        return tuple(self._position[column] for column in columns)

    def base(self, columns: Columns) -> Columns:
        """Modelled columns on which ``columns`` depend, in the model's order."""
        needed = {base for column in columns for base in self.origins[column].columns}
        return tuple(column for column in self.columns if column in needed)

    def collapse(self, columns: Columns, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Counts over modelled ``columns`` added up to model codes, and how many cells went into each."""
        fan = np.ones(())
        for axis, variable in enumerate(self.variables(columns)):
            merge = self.merges[variable]
            per_code = np.bincount(merge.code, minlength=merge.size)
            fan = np.multiply.outer(fan, per_code.astype(np.float64))
            if merge.size < merge.code.size:
                summed = np.zeros((*counts.shape[:axis], merge.size, *counts.shape[axis + 1 :]))
                np.add.at(np.moveaxis(summed, axis, 0), merge.code, np.moveaxis(counts, axis, 0))
                counts = summed
        return counts, fan

    def expand(self, columns: Columns, counts: FloatArray) -> FloatArray:
        """Model counts over modelled ``columns`` spread over full codes by their shares."""
        for axis, variable in enumerate(self.variables(columns)):
            merge = self.merges[variable]
            if merge.size < merge.code.size:
                tail = (1,) * (counts.ndim - axis - 1)
                counts = np.take(counts, merge.code, axis=axis) * merge.share.reshape(-1, *tail)
        return counts

    def derive(self, columns: Columns, base: Columns, counts: FloatArray) -> FloatArray:
        """Counts over any ``columns`` from full counts over the modelled columns they depend on."""
        if columns == base:
            return counts
        dims = tuple(self.shape[column] for column in columns)
        flat = np.zeros(counts.shape, dtype=np.int64)
        for column, dim in zip(columns, dims, strict=True):
            flat = flat * dim + _table_over(base, counts.shape, self.origins[column])
        sums: FloatArray = np.bincount(flat.ravel(), counts.ravel(), minlength=math.prod(dims)).astype(np.float64)
        return sums.reshape(dims)

    def fill(self, codes: Mapping[str, IntArray], rows: int) -> dict[str, IntArray]:
        """All columns, in the table's order, from codes of the modelled ones."""
        return fill(self.origins, codes, rows)


def _table_over(base: Columns, sizes: tuple[int, ...], origin: Origin) -> IntArray:
    """An origin's table with one axis for each column of ``base``; its own come in the order of ``base``."""
    shape = tuple(size if column in origin.columns else 1 for column, size in zip(base, sizes, strict=True))
    return np.broadcast_to(origin.table.reshape(shape), sizes)


def reduce(shape: Mapping[str, int], structure: Structure) -> tuple[Reduction, tuple[StructuralZero, ...]]:
    """Leave out constant and determined columns; facts that are left over come back as zeros over modelled columns.

    Where a column is determined twice, or by itself along a circle, the second dependency becomes a structural zero:
    both hold exactly in whatever the model generates.
    """
    structure.check(shape)
    everything = tuple(shape)
    origins = {
        column: Origin((column,), np.arange(size, dtype=np.int64))
        if size > 1
        else Origin((), np.zeros((), dtype=np.int64))
        for column, size in shape.items()
    }
    zeros = list(structure.zeros)
    for dependency in structure.dependencies:
        columns = dependency.determinants
        base = tuple(c for c in everything if any(c in origins[d].columns for d in columns))
        if origins[dependency.dependent].columns == (dependency.dependent,) and dependency.dependent not in base:
            sizes = _within(base, shape, structure.max_cells)
            table = dependency.table[tuple(_table_over(base, sizes, origins[d]) for d in columns)]
            origins[dependency.dependent] = Origin(base, np.ascontiguousarray(table, dtype=np.int64))
            _substitute(origins, dependency.dependent, shape, structure.max_cells)
        else:
            codes = np.arange(shape[dependency.dependent])
            zeros.append(StructuralZero((*columns, dependency.dependent), dependency.table[..., np.newaxis] != codes))
    modelled = tuple(c for c in everything if origins[c].columns == (c,))
    merges = tuple(Merge.none(shape[c]) for c in modelled)
    reduction = Reduction(dict(shape), modelled, origins, merges)
    return reduction, tuple(z for zero in zeros if (z := _on_base(zero, reduction, structure.max_cells)) is not None)


def _within(columns: Columns, shape: Mapping[str, int], limit: int) -> tuple[int, ...]:
    sizes = tuple(shape[column] for column in columns)
    if math.prod(sizes) > limit:
        raise PlanError(
            f"a table over {', '.join(columns)} has {math.prod(sizes)} cells, more than the limit of {limit}; "
            "coarsen these columns or raise max_cells"
        )
    return sizes


def _substitute(origins: dict[str, Origin], gone: str, shape: Mapping[str, int], limit: int) -> None:
    """Rewrite what depended on ``gone``, which is itself determined now."""
    for column, origin in list(origins.items()):
        if gone in origin.columns:
            base = tuple(c for c in shape if any(c in origins[d].columns for d in origin.columns))
            sizes = _within(base, shape, limit)
            table = origin.table[tuple(_table_over(base, sizes, origins[d]) for d in origin.columns)]
            origins[column] = Origin(base, np.ascontiguousarray(table))


def _on_base(zero: StructuralZero, reduction: Reduction, limit: int) -> StructuralZero | None:
    base = reduction.base(zero.columns)
    sizes = _within(base, reduction.shape, limit)
    mask: BoolArray = np.asarray(zero.mask[tuple(_table_over(base, sizes, reduction.origins[c]) for c in zero.columns)])
    if mask.all():
        raise PlanError(f"the structural zero over {zero.columns} leaves no possible row")
    return StructuralZero(base, np.ascontiguousarray(mask)) if base and mask.any() else None


@dataclass(frozen=True)
class Composition:
    """A table without zeros or dependencies that stands for one with them: for models that know of neither.

    Columns that zeros bind together are one column, whose codes are the combinations that can occur.
    ``parts`` names its columns, ``cells`` says which cells of their product these are. ``origins`` lead back.
    """

    shape: Mapping[str, int]
    parts: Mapping[str, Columns]
    cells: Mapping[str, IntArray]
    origins: Mapping[str, Origin]

    def inner(self, columns: Iterable[str]) -> Columns:
        """The composed columns on which ``columns`` depend."""
        needed = {i for column in columns for i in self.origins[column].columns}
        return tuple(i for i in self.shape if i in needed)

    def outer(self, columns: Columns) -> Columns:
        """What to count for the counts over composed ``columns``."""
        return tuple(part for column in columns for part in self.parts[column])

    def composed(self, columns: Columns, counts: IntArray) -> IntArray:
        """Counts over composed ``columns``, from those over their parts."""
        for axis, column in enumerate(columns):
            dims, many = counts.shape, len(self.parts[column])
            counts = np.take(counts.reshape(*dims[:axis], -1, *dims[axis + many :]), self.cells[column], axis=axis)
        return counts


def compose(shape: Mapping[str, int], structure: Structure) -> Composition:
    """Put columns together that zeros bind, and leave out those that follow from others."""
    reduction, zeros = reduce(shape, structure)
    group = {column: column for column in reduction.columns}
    for zero in zeros:
        joined = {group[c] for c in zero.columns}
        group = {c: group[zero.columns[0]] if g in joined else g for c, g in group.items()}
    sizes: dict[str, int] = {}
    parts: dict[str, Columns] = {}
    cells: dict[str, IntArray] = {}
    inside = {column: Origin((), np.zeros((), dtype=np.int64)) for column in shape}
    for first in dict.fromkeys(group.values()):
        own = tuple(c for c in reduction.columns if group[c] == first)
        dims = _within(own, shape, structure.max_cells)
        mask = forbidden(own, dims, [z for z in zeros if set(z.columns) <= set(own)])
        name = " × ".join(own)
        parts[name], cells[name] = own, np.flatnonzero(~mask)
        sizes[name] = len(cells[name])
        for column, codes in zip(own, np.unravel_index(cells[name], dims), strict=True):
            inside[column] = Origin((name,), np.asarray(codes, dtype=np.int64))
    origins = {}
    for column, origin in reduction.origins.items():
        needed = {i for base in origin.columns for i in inside[base].columns}
        inner = tuple(i for i in sizes if i in needed)
        spread = _within(inner, sizes, structure.max_cells)
        table = origin.table[tuple(_table_over(inner, spread, inside[base]) for base in origin.columns)]
        origins[column] = Origin(inner, np.ascontiguousarray(table, dtype=np.int64))
    return Composition(sizes, parts, cells, origins)


def fill(origins: Mapping[str, Origin], codes: Mapping[str, IntArray], rows: int) -> dict[str, IntArray]:
    """All columns, in the table's order, from codes of those they depend on."""
    return {
        column: np.broadcast_to(origin.table[tuple(codes[base] for base in origin.columns)], (rows,)).astype(np.int64)
        for column, origin in origins.items()
    }


def forbidden(columns: Columns, shape: tuple[int, ...], zeros: Sequence[StructuralZero]) -> BoolArray:
    """Cells over ``columns`` that zeros rule out, whatever other columns are."""
    mask: BoolArray = np.zeros(shape, dtype=np.bool_)
    for zero in zeros:
        inside = [c for c in zero.columns if c in columns]
        away = tuple(i for i, c in enumerate(zero.columns) if c not in columns)
        part = np.logical_and.reduce(zero.mask, axis=away) if away else zero.mask
        order = [inside.index(c) for c in columns if c in inside]
        spread = [size if c in inside else 1 for c, size in zip(columns, shape, strict=True)]
        mask = mask | np.transpose(part, order).reshape(spread)
    return mask
