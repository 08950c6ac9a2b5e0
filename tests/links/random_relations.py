"""Small random relations: codes of both sides, distinct links, domain sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.measure.cross_workloads import Workload


@dataclass(frozen=True)
class Relation:
    left: dict[str, IntArray]
    right: dict[str, IntArray]
    links: IntArray
    shape: dict[str, int]

    def view(self) -> dict[str, IntArray]:
        """Codes of the joined view, one row per link."""
        at_left = {c: x[self.links[:, 0]] for c, x in self.left.items()}
        return at_left | {c: x[self.links[:, 1]] for c, x in self.right.items()}


def random_relation(
    *,
    seed: int,
    left_rows: int,
    right_rows: int,
    links: int,
    left_shape: tuple[int, ...] = (2, 3, 2),
    right_shape: tuple[int, ...] = (2, 2, 4),
    planted: float = 0.0,
) -> Relation:
    """Rows with independent columns; ``planted`` > 0 makes links prefer rows whose first codes have the same parity."""
    rng = np.random.default_rng(seed)
    shape = {f"l{i}": s for i, s in enumerate(left_shape)} | {f"r{i}": s for i, s in enumerate(right_shape)}
    left = {f"l{i}": rng.integers(0, s, left_rows) for i, s in enumerate(left_shape)}
    right = {f"r{i}": rng.integers(0, s, right_rows) for i, s in enumerate(right_shape)}
    same = (left["l0"][:, None] + right["r0"][None, :]) % 2 == 0
    weight = (1.0 + planted * same).ravel()
    flat = rng.choice(left_rows * right_rows, size=links, replace=False, p=weight / weight.sum())
    return Relation(left, right, np.stack(np.divmod(np.sort(flat), right_rows), axis=1), shape)


def answers_from_matrix(
    workload: Workload,
    left: Mapping[str, IntArray],
    right: Mapping[str, IntArray],
    matrix: FloatArray,
    *,
    shape: Mapping[str, int],
) -> FloatArray:
    r"""Answers from a (weighted) bi-adjacency matrix :math:`\mathbf{B}`, query by query: the oracle of `lem::qv`.

    Slow on purpose. The operators of :mod:`dpweave.links.row_types` are tested against it.
    """
    sizes = tuple(shape[c] for c in workload.columns)
    answers = np.empty(sizes, dtype=np.float64)
    for value in np.ndindex(*sizes):
        at = dict(zip(workload.columns, value, strict=True))
        rows = np.ones(matrix.shape[0], dtype=bool)
        for column in workload.left:
            rows &= left[column] == at[column]
        others = np.ones(matrix.shape[1], dtype=bool)
        for column in workload.right:
            others &= right[column] == at[column]
        answers[value] = rows.astype(np.float64) @ matrix @ others.astype(np.float64)
    return answers
