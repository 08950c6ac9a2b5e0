"""Names of table mechanisms: those built in, and those that other packages register."""

from __future__ import annotations

from importlib.metadata import EntryPoints, entry_points

ENTRY_POINTS = "dpweave.table_models"


BUILT_IN = {name: f"dpweave.tables.{name}" for name in ("aim", "auto", "external", "independent", "mst", "woven")}


def added() -> EntryPoints:
    """Mechanisms that other packages register."""
    return entry_points(group=ENTRY_POINTS)


def registered() -> tuple[str, ...]:
    """Every known name, sorted."""
    return tuple(sorted({*BUILT_IN, *(point.name for point in added())}))
