"""Windows that know about how many rows a unit has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.privacy.curator import Curator, CuratorWindow
    from dpweave.schema.domain import View


def unit_window(
    curator: Curator, view: View, name: str, sizes: Mapping[str, float], *, unit_sums: bool
) -> CuratorWindow:
    """Open a window on a view. If it may measure unit sums, they know about how many rows a unit has."""
    window = curator.window(view, name=name, unit_sums=unit_sums)
    if window.units is None:
        return window
    mean = sizes[view.base] / max(sizes[curator.promise.root(view.base)], 1.0)
    return replace(window, units=replace(window.units, mean=mean))
