"""Few blocks of columns that hold many cliques, so that one count of a block answers for all of them."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

Columns = tuple[str, ...]


def cover(cliques: Sequence[Columns], sizes: Mapping[str, int], *, limit: int) -> list[tuple[Columns, list[Columns]]]:
    """Return blocks, each with the cliques it answers for; a block has at most ``limit`` cells, or is one clique alone.

    Greedy: a block starts as the longest clique that is left and takes, one by one, the column that brings most cliques
    into it.

    >>> cover([("a",), ("a", "b"), ("c", "b")], {"a": 2, "b": 2, "c": 2}, limit=8)
    [(('a', 'b', 'c'), [('a',), ('a', 'b'), ('c', 'b')])]
    """
    names = list(dict.fromkeys(chain(*cliques)))
    left = list(dict.fromkeys(cliques))
    holds = np.array([[name in clique for name in names] for clique in left], dtype=bool).reshape(len(left), len(names))
    cells = np.array([float(sizes[name]) for name in names])
    blocks = []
    while left:
        block = holds[holds.sum(axis=1).argmax()].copy()
        while True:
            lacking = holds & ~block
            gain = lacking[lacking.sum(axis=1) == 1].sum(axis=0) * (cells[block].prod() * cells <= limit)
            if not gain.any():
                break
            block[gain.argmax()] = True
        inside = ~(holds & ~block).any(axis=1)
        answered = [clique for clique, is_in in zip(left, inside, strict=True) if is_in]
        blocks.append((tuple(name for name, is_in in zip(names, block, strict=True) if is_in), answered))
        left = [clique for clique, is_in in zip(left, inside, strict=True) if not is_in]
        holds = holds[~inside]
    return blocks


def summed(counts: npt.NDArray[np.int64], block: Columns, clique: Columns) -> npt.NDArray[np.int64]:
    """Sum a block's counts over the columns that a clique lacks, and bring the others into the clique's order.

    >>> summed(np.array([[1, 2], [3, 4]]), ("a", "b"), ("b",))
    array([4, 6])
    """
    left = [name for name in block if name in clique]
    out: npt.NDArray[np.int64] = counts.sum(axis=tuple(i for i, name in enumerate(block) if name not in clique))
    return out.transpose([left.index(name) for name in clique])
