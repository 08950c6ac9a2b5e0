"""The default: pick a mechanism by public facts, and say why."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING

from dpweave.tables.base import Registration, Structure, table_model
from dpweave.tables.graphical.table import restore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dpweave.privacy.window import Window
    from dpweave.tables.base import FittedTable

WIDE = 40
"""More modelled columns than this make AIM's rounds slow: it looks at every pair in each."""


def choose(shape: Mapping[str, int], rho: float, rows_hint: float | None, l2: float) -> tuple[str, str]:
    """Name of the mechanism for a table of this ``shape`` and the reason in one sentence, from public facts alone.

    ``rows_hint`` is a declared or noisily measured number of rows, if there is one. A pair is worth measuring when its
    expected noise stays below the rows it describes.

    >>> choose({"sex": 2, "age": 7, "job": 21}, 0.03, 6000.0, 1.0)
    ('aim', 'aim, because 3 columns are few enough to choose marginals round by round.')
    """
    sizes = sorted(size for size in shape.values() if size > 1)
    if len(sizes) < 2:
        return "independent", f"independent, because {len(sizes)} column(s) with more than one value leave no pair."
    if rows_hint is not None:
        noise = pair_noise(sizes, rho, l2)
        if noise > rows_hint:
            return "independent", (
                f"independent, because the noise of the smallest pairs would add up to {noise:.0f} counts over "
                f"{rows_hint:.0f} rows."
            )
    if len(sizes) > WIDE:
        return "mst", f"mst, because {len(sizes)} columns are too many to choose marginals round by round."
    return "aim", f"aim, because {len(sizes)} columns are few enough to choose marginals round by round."


def pair_noise(sizes: list[int], rho: float, l2: float) -> float:
    """Expected L1 noise of one pair of the smallest columns when a tree of pairs shares ``rho``."""
    cells = min(a * b for a, b in combinations(sizes[:2], 2))
    sigma = l2 * math.sqrt((len(sizes) - 1) / (2 * rho))
    return math.sqrt(2 / math.pi) * sigma * cells


@dataclass(frozen=True)
class Auto:
    """Delegates to what :func:`choose` names."""

    name: str = field(default="auto", init=False)

    def fit(
        self,
        window: Window,
        *,
        rho: float,
        rows: float | None,
        structure: Structure,
        progress: Callable[[str, float], None],
    ) -> FittedTable:
        """Choose, then fit."""
        l2 = max((window.l2((column,)) for column in window.shape), default=1.0)
        chosen, _ = choose(window.shape, max(rho, math.ulp(0.0)), rows, l2)
        return table_model(chosen).fit(window, rho=rho, rows=rows, structure=structure, progress=progress)


REGISTRATION = Registration(make=Auto, restore=restore)
