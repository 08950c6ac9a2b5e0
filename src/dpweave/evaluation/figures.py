"""The figures of an evaluation, as values and as JSON. NOT PRIVATE."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.evaluation.comparisons import Association, DegreeDistance, Retention, Score, WorkloadError


STAMP = "NOT PRIVATE: made from real rows, for eyes that may see them. Do not share."


@dataclass(frozen=True)
class EvaluationFigures:
    """Every comparison of a synthetic database with the real one, as values. NOT PRIVATE."""

    k: int
    rows: Mapping[str, tuple[int, int]]
    """Real and synthetic number of rows of each private table."""
    errors: tuple[WorkloadError, ...]
    degrees: tuple[DegreeDistance, ...]
    retentions: tuple[Retention, ...]
    associations: tuple[Association, ...]
    units: tuple[Score, ...] = ()
    """What rows of one owner have in common, and their order, by owning key."""
    scores: tuple[Score, ...] = ()
    notes: tuple[str, ...] = field(default=())
    stamp: str = STAMP

    def overall(self, scope: str) -> Mapping[str, tuple[float, float]]:
        """Mean and largest error over all workloads of ``scope`` (within, across or two-hop), by rival.

        Where a rival has no figure for some workloads, over the others; not a number where it has none at all.
        """
        found = [
            e for e in self.errors if e.scope == scope and e.k == max(x.k for x in self.errors if x.scope == scope)
        ]
        out = {}
        for rival in dict.fromkeys(r for e in found for r in e.mean):
            known = [e for e in found if math.isfinite(e.mean.get(rival, math.nan))]
            total = sum(e.mean[rival] * e.workloads for e in known)
            mean = total / sum(e.workloads for e in known) if known else math.nan
            out[rival] = mean, max((e.worst[rival] for e in known), default=math.nan)
        return out

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; what is not a number is null."""
        return _plain(asdict(self))  # type: ignore[no-any-return]

    def to_json(self) -> str:
        """Return the evaluation as JSON."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {k: _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case float() | np.floating():
            return float(value) if math.isfinite(value) else None
    return value
