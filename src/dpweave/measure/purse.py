"""What a client may still spend of the share that it was given."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dpweave.errors import BudgetError


@dataclass
class Purse:
    """An amount of rho that is handed out to the last digit.

    Shares are rounded down to a multiple of 2^-30 of the leading bit of ``rho``. Then every partial sum and the rest
    are floating-point numbers, so the parts add up to ``rho`` exactly, in any order.

    >>> purse = Purse(0.1)
    >>> parts = [purse.take(0.03), purse.take(0.05), purse.rest()]
    >>> sum(parts) == 0.1
    True
    """

    rho: float
    left: float = field(init=False)
    _grain: float = field(init=False)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rho) and self.rho > 0):
            raise BudgetError(
                f"a table model needs a positive share of the budget, got rho {self.rho}; raise epsilon, or its share"
                " in the plan"
            )
        self.left = self.rho
        self._grain = math.ldexp(1.0, math.frexp(self.rho)[1] - 31)

    def take(self, rho: float) -> float:
        """Hand out ``rho`` rounded down to the grain (at least one grain), which must leave something."""
        share = max(math.floor(rho / self._grain), 1) * self._grain
        if not share < self.left:
            raise BudgetError(f"a share of the budget (rho {rho}) does not fit into what is left (rho {self.left})")
        self.left -= share
        return share

    def rest(self) -> float:
        """Hand out all that is left."""
        share, self.left = self.left, 0.0
        return share
