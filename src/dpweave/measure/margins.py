"""What is known of one column before links are measured: the shares of its values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave import chosen
from dpweave.errors import UsageError

if TYPE_CHECKING:
    from dpweave.arrays import FloatArray


@dataclass(frozen=True)
class Margin:
    """One column of one side: the distribution of its values over the rows, by their weight."""

    p: FloatArray

    def __post_init__(self) -> None:
        if self.p.ndim != 1 or (self.p < 0).any() or not math.isclose(self.p.sum(), 1.0, rel_tol=1e-6):
            raise UsageError("a margin is a distribution over the values of one column")

    @classmethod
    def of(cls, codes: Any, weights: FloatArray, size: int) -> Margin:
        """Weighted shares of the values; a value that no row has keeps a thousandth of a row."""
        unseen = chosen.NEXT_TO_NOTHING * weights.sum() / max(len(weights), 1)
        p = np.bincount(codes, weights=weights, minlength=size) + unseen
        return cls(p / p.sum())

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.p)

    @cached_property
    def contrast(self) -> float:
        r"""Precision that unit counts give a contrast, :math:`(1 - b)/(n - 1)`."""
        return float(1 - (self.p**2).sum()) / max(self.size - 1, 1)

    @cached_property
    def norm(self) -> float:
        r"""Squared L1 norm of a typical contrast of unit variance, :math:`l^2`."""
        return float(np.sqrt(self.p * (1 - self.p)).sum()) ** 2


def even_margin(size: int) -> Margin:
    """The margin of a column of which nothing but the number of values is known."""
    return Margin(np.full(size, 1 / size))
