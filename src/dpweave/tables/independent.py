"""Columns one by one: no dependence but what structure demands. The mark every other model has to beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpweave.tables.base import Registration, Structure
from dpweave.tables.graphical.graphical_table import GraphicalTable, restore
from dpweave.tables.session import Session, polish

if TYPE_CHECKING:
    from collections.abc import Callable

    from dpweave.privacy.window import Window


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
        """Measure every column once."""
        session = Session(window, rho=rho, rows=rows, structure=structure)
        progress("measuring columns", 0.0)
        session.measure_singles(session.purse.rest())
        return polish(session, progress)


REGISTRATION = Registration(make=Independent, restore=restore)
