"""A block of a relation: some left rows, some right rows, and how many links to put between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.row_types import RowTypes

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray, IntArray
    from dpweave.links.link_method import LinkProblem
    from dpweave.measure.cross_workloads import Workload


@dataclass(frozen=True)
class Block:
    """Row types of both sides of a block, and the pairs of rows that each pair of types stands for.

    ``twin`` gives, for each left row of the block, the position of the same row among the block's right rows, or -1:
    the pair that may not be linked. It is None where every pair may be. ``start`` is the state of the links now, where
    they are known. In a many-to-many block ``multiplicity`` then has two layers, pairs that are not linked now
    (``current``) and pairs that are: descent from a 0/1 matrix keeps each layer constant, so this collapse is exact
    too.
    """

    left: RowTypes
    right: RowTypes
    multiplicity: FloatArray
    links: int
    twin: IntArray | None = None
    current: IntArray | None = None
    start: FloatArray | None = None

    @classmethod
    def of(
        cls,
        problem: LinkProblem,
        workloads: tuple[Workload, ...],
        *,
        links: int,
        left_rows: IntArray | None = None,
        right_rows: IntArray | None = None,
        current: IntArray | None = None,
    ) -> Block:
        """Collapse the rows of a block onto their types in the columns of ``workloads``.

        A row's own pair is one less among the pairs of its two types. Where rows are bound one by one (one-to-many),
        two rows are interchangeable only if their missing pairs are of the same type too, so their right-hand columns
        count as well. ``current`` are links inside the block, as positions among its rows.
        """
        rows = np.arange(problem.left_rows) if left_rows is None else left_rows
        others = np.arange(problem.right_rows) if right_rows is None else right_rows
        used_left = [c for c in problem.left if any(c in w.left for w in workloads)]
        used_right = [c for c in problem.right if any(c in w.right for w in workloads)]
        left_codes = {c: problem.left[c][rows] for c in used_left}
        right = RowTypes.of({c: problem.right[c][others] for c in used_right}, used_right, shape=problem.shape)
        twin = None
        if problem.bars_self:
            place = np.full(problem.right_rows, -1, dtype=np.int64)
            place[others] = np.arange(len(others))
            twin = place[rows]
            if problem.kind == "one-to-many":
                left_codes |= {c: np.where(twin < 0, problem.shape[c], problem.right[c][rows]) for c in used_right}
        shape = {c: problem.shape[c] if c in problem.left else problem.shape[c] + 1 for c in left_codes}
        left = RowTypes.of(left_codes, list(left_codes), shape=shape)
        multiplicity = np.multiply.outer(left.multiplicity, right.multiplicity).astype(np.float64)
        if twin is not None:
            present = twin >= 0
            np.subtract.at(multiplicity, (left.of_row[present], right.of_row[twin[present]]), 1.0)
        if current is not None:
            linked = np.zeros_like(multiplicity)
            np.add.at(linked, (left.of_row[current[:, 0]], right.of_row[current[:, 1]]), 1.0)
            if problem.kind == "many-to-many":
                layers = np.stack([multiplicity - linked, linked])
                start = np.broadcast_to(np.array([0.0, 1.0])[:, None, None], layers.shape)
                return cls(left, right, layers, links, twin, current, start)
            start = np.divide(linked, multiplicity, out=np.zeros_like(linked), where=multiplicity > 0.0)
            return cls(left, right, multiplicity, links, twin, None, start)
        return cls(left, right, multiplicity, links, twin)


def keep_links(counts: IntArray, block: Block, current: IntArray, rng: np.random.Generator) -> IntArray:
    """Keep ``counts`` of the current links of each pair of types, uniformly."""
    links = rng.permutation(current)
    cell = block.left.of_row[links[:, 0]] * block.right.count + block.right.of_row[links[:, 1]]
    order = np.argsort(cell, kind="stable")
    rank = np.arange(len(cell)) - np.searchsorted(cell[order], cell[order], side="left")
    kept: IntArray = links[order[rank < counts.ravel()[cell[order]]]]
    return kept


def place_links(counts: IntArray, block: Block, rng: np.random.Generator) -> IntArray:
    """Put ``counts`` links of each pair of types on distinct pairs of rows, uniformly: positions inside the block.

    Pairs that are linked now are not among them.
    """
    order_left, start_left = block.left.members
    order_right, start_right = block.right.members
    flat = np.flatnonzero(counts)
    many = counts.ravel()[flat]
    s, t = np.divmod(flat, counts.shape[1])
    size = block.left.multiplicity[s] * block.right.multiplicity[t]
    chosen = [np.zeros((0, 2), dtype=np.int64)]
    key = np.array([block.right.rows, 1])

    def rows_of(cell: IntArray, at: IntArray) -> IntArray:
        i, j = np.divmod(at, block.right.multiplicity[t[cell]])
        return np.stack([order_left[start_left[s[cell]] + i], order_right[start_right[t[cell]] + j]], axis=1)

    def allowed(pairs: IntArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        fine = np.ones(len(pairs), dtype=bool) if block.twin is None else block.twin[pairs[:, 0]] != pairs[:, 1]
        if block.current is None:
            return fine
        return fine & ~np.isin(pairs @ key, block.current @ key)

    # Crowded cells are dealt out from a full shuffle, the others by drawing until enough distinct pairs are found.
    crowded = many * 3 > size
    for full in np.flatnonzero(crowded):
        pairs = rows_of(np.full(size[full], full), rng.permutation(size[full]))
        chosen.append(pairs[allowed(pairs)][: many[full]])
    missing = np.where(crowded, 0, many)
    taken = np.zeros((0, 2), dtype=np.int64)  # (cell, position in the cell), distinct
    while missing.any():
        cell = np.repeat(np.arange(len(flat)), missing)
        drawn = np.stack([cell, rng.integers(0, size[cell])], axis=1)
        drawn = drawn[allowed(rows_of(drawn[:, 0], drawn[:, 1]))]
        # Keep earlier draws and the first of equal new ones; equal draws of one batch are interchangeable.
        _, first = np.unique(np.concatenate([taken, drawn]), axis=0, return_index=True)
        taken = np.concatenate([taken, drawn])[np.sort(first)]
        missing = np.where(crowded, 0, many) - np.bincount(taken[:, 0], minlength=len(flat))
    chosen.append(rows_of(taken[:, 0], taken[:, 1]))
    return np.concatenate(chosen)
