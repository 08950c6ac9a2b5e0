"""Buckets of degrees: how many rows lead to one row, in groups."""

from __future__ import annotations

import numpy as np

from dpweave import chosen
from dpweave.errors import UsageError


def buckets(cap: int, *, fine: int = 4, growth: float = chosen.GROWTH) -> tuple[int, ...]:
    """Edges of buckets: every degree up to ``fine`` by itself, then wider ones up to ``cap``; more counts as ``cap``.

    >>> buckets(10)
    (0, 1, 2, 3, 4, 5, 7, 9, 11)
    """
    if cap < 1 or fine < 0 or growth <= 1:
        raise UsageError(f"buckets up to {cap}, {fine} by themselves, growing by {growth}, make no sense")
    edges = list(range(min(cap, fine) + 2))
    while edges[-1] <= cap:
        edges.append(min(max(edges[-1] + 1, int(np.ceil(edges[-1] * growth))), cap + 1))
    return tuple(edges)
