"""Domains learned under the budget: lists of categories, and groups of degrees. Ranges
are learned in :mod:`dpweave.tables.domains.learned_ranges`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpweave.schema.domain import Bins, Categories, Domain, bins_at, from_axis, is_plain, to_axis

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.schema.database import Column, Type


def categories_from(found: Mapping[str, float], *, most: int = 1000) -> Categories:
    """Return the categories that passed the threshold, commonest first; the rest is
    *other*, and so are texts with a NUL.
    """
    ranked = sorted(filter(is_plain, found), key=lambda v: (-found[v], v))[:most]
    return Categories(tuple(ranked), other=True)


def public_domain(column: Column, values: list[object], *, bins: int) -> Domain:
    """Domain of a column whose values are public, from those values themselves."""
    if column.type.ordered:
        return public_bins(column.type, values, bins=bins)
    present = {v for v in values if v is not None and not (isinstance(v, str) and not is_plain(v))}
    return Categories(tuple(sorted(present, key=str)), other=True)  # type: ignore[arg-type]


def public_bins(kind: Type, values: list[object], *, bins: int) -> Bins:
    """Bins for a public column, from its values themselves."""
    axis = sorted({to_axis(kind, v) for v in values if v is not None})  # type: ignore[arg-type]
    if not axis:
        return Bins((from_axis(kind, 0), from_axis(kind, 1)))
    step = 1 if kind.kind != "float" else 0
    if len(axis) <= bins:
        return bins_at(kind, [*axis, axis[-1] + (step or 1)])
    picks = [axis[len(axis) * i // bins] for i in range(bins)]
    return bins_at(kind, [*picks, axis[-1] + step])
