"""The default: pick a mechanism by public facts, and say why."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

from dpweave import chosen
from dpweave.schema.domain import parse_degree
from dpweave.tables.base import Learner, Registration, Structure, ask_and_learn, table_model
from dpweave.tables.base import restore as restore_by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    import numpy.typing as npt

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.privacy.window import Columns, NoisyMarginal, Window
    from dpweave.tables.base import FittedTable

WIDE = 40
"""More modelled columns than this make AIM's rounds slow: it looks at every pair in each."""


def choose(shape: Mapping[str, int], rho: float, rows_hint: float | None, l2: float) -> tuple[str, str]:
    """Name of the mechanism for a table of this ``shape`` and the reason in one sentence, from public facts alone.

    ``rows_hint`` is a declared or noisily measured number of rows, if there is one. A pair is worth measuring when its
    expected noise stays below the rows it describes.

    >>> choose({"sex": 2, "age": 7, "job": 21}, 0.03, 60_000.0, 1.0)
    ('aim', 'aim, because 3 columns are few enough to choose marginals round by round.')
    """
    sizes = sorted(size for size in shape.values() if size > 1)
    if len(sizes) < 2:
        return "independent", f"independent, because {len(sizes)} column(s) with more than one value leave no pair."
    if rows_hint is not None:
        noise = pair_noise(sizes, rho, l2)
        if noise > rows_hint * sizes[0]:
            return "independent", (
                f"independent, because noise in the smallest pairs would hide even columns that say the same: it adds "
                f"up to {noise:.0f} counts over {rows_hint:.0f} rows."
            )
        shrunk = len(sizes) > 2 or noise > rows_hint or any(parse_degree(column) for column in shape)
        if noise > chosen.UNNOTICED * rows_hint and shrunk and len(sizes) <= WIDE:
            return "woven", "woven, because how columns go together is faint at this budget and must be shrunk."
    if len(sizes) > WIDE:
        return "mst", f"mst, because {len(sizes)} columns are too many to choose marginals round by round."
    return "aim", f"aim, because {len(sizes)} columns are few enough to choose marginals round by round."


def pair_noise(sizes: list[int], rho: float, l2: float) -> float:
    """Expected L1 noise of one pair of the smallest columns when a tree of pairs shares ``rho``."""
    cells = min(a * b for a, b in combinations(sizes[:2], 2))
    sigma = l2 * math.sqrt((len(sizes) - 1) / (2 * rho))
    return math.sqrt(2 / math.pi) * sigma * cells


@dataclass(frozen=True)
class ChosenTable:
    """A fitted table that remembers which mechanism was chosen for it."""

    mechanism: str
    table: FittedTable

    @property
    def rows(self) -> float:
        """Estimated number of rows."""
        return self.table.rows

    def marginal(self, columns: Columns) -> FloatArray:
        """Expected counts over ``columns``."""
        return self.table.marginal(columns)

    def sample(self, rows: int, rng: np.random.Generator) -> dict[str, IntArray]:
        """Codes of ``rows`` rows."""
        return self.table.sample(rows, rng)

    def state(self) -> tuple[dict[str, object], dict[str, npt.NDArray[Any]]]:
        """What :func:`restore` needs."""
        state, arrays = self.table.state()
        return {"mechanism": self.mechanism, "state": state}, arrays


@dataclass(frozen=True)
class Auto:
    """Delegates to what :func:`choose` names; ``settled`` where that was done before."""

    settled: str = ""
    name: str = field(default="auto", init=False)

    def fit(
        self,
        window: Window,
        *,
        rho: float,
        rows: float | None,
        structure: Structure,
        progress: Callable[[str, float], None],
    ) -> ChosenTable:
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
    ) -> Auto:
        """Choose, then ask as the chosen one does."""
        l2 = max((window.l2((column,)) for column in window.shape), default=1.0)
        found = self.settled or choose(window.shape, max(rho, math.ulp(0.0)), rows, l2)[0]
        _learner(found).ask(window, rho=rho, rows=rows, structure=structure, progress=progress)
        return Auto(found)

    def learn(
        self,
        answers: Sequence[NoisyMarginal],
        shape: Mapping[str, int],
        *,
        rows: float | None,
        structure: Structure,
    ) -> ChosenTable:
        """Learn as the chosen one does; where none was chosen, as far as answers go: pairs, or columns alone."""
        deep = any(len(m.columns) > 1 for m in answers)
        found = self.settled or ("aim" if deep else "independent")
        return ChosenTable(found, _learner(found).learn(answers, shape, rows=rows, structure=structure))


def _learner(name: str) -> Learner[FittedTable]:
    found = table_model(name)
    assert isinstance(found, Learner)
    return found


def restore(state: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> ChosenTable:
    """Rebuild a table by the mechanism that was chosen for it.

    Models that were loaded and saved again lost its name for a while. Their state is that of the
    table itself, and tells woven tables ("parts") from graphical ones, which are all rebuilt alike.
    """
    if "mechanism" not in state:
        state = {"mechanism": "woven" if "parts" in state else "aim", "state": state}
    return ChosenTable(state["mechanism"], restore_by_name(state["mechanism"], state["state"], arrays))


REGISTRATION = Registration(make=Auto, restore=restore)
