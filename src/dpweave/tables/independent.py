"""Columns one by one: no dependence but what structure demands. The mark every other model has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpweave.tables.base import Registration, Structure, ask_and_learn
from dpweave.tables.graphical.graphical_table import GraphicalTable, restore
from dpweave.tables.session import Asking, learned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dpweave.privacy.window import NoisyMarginal, Window


@dataclass(frozen=True)
class Independent:
    """All rho on one-way marginals."""

    name: str = "independent"

    def fit(
        self,
        window: Window,
        *,
        rho: float,
        rows: float | None,
        structure: Structure,
        progress: Callable[[str, float], None],
    ) -> GraphicalTable:
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
    ) -> Independent:
        """Measure every column once."""
        session = Asking(window, rho=rho, rows=rows, structure=structure)
        progress("measuring columns", 0.0)
        session.measure_singles(session.purse.rest())
        return self

    def learn(
        self,
        answers: Sequence[NoisyMarginal],
        shape: Mapping[str, int],
        *,
        rows: float | None,
        structure: Structure,
    ) -> GraphicalTable:
        """Each column for itself."""
        return learned(answers, shape, rows=rows, structure=structure, most=1)


REGISTRATION = Registration(make=Independent, restore=restore)
