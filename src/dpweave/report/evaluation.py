"""How close a synthetic database comes to the real one. NOT PRIVATE: every figure here is made from real rows.

Errors are 100 times the L1 distance between the distributions of linked rows over k columns, as in the paper's figures,
against the real database as it is, before any bound is enforced. Each stands next to what the same rows give when they
are wired without knowledge, and to what sampling alone would cost.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.errors import UsageError, nearest
from dpweave.progress import reporter
from dpweave.report.coding import encode
from dpweave.report.comparing import (
    SHOWN_PAIRS,
    Association,
    DegreeDistance,
    Retention,
    Score,
    WorkloadError,
    associated,
    crossing_errors,
    crossings,
    degree_distances,
    usable_columns,
    within_errors,
)
from dpweave.report.rivals import (
    INDEPENDENT,
    RANDOM,
    SHUFFLED,
    SYNTHETIC,
    independent_columns,
    random_wiring,
    shuffled_keys,
)
from dpweave.schema.domain import Bins, Categories, Learn, bins_at, to_axis

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from dpweave.plan import Plan
    from dpweave.schema.domain import Domain
    from dpweave.schema.model import Column, Type

STAMP = "NOT PRIVATE: made from real rows, for eyes that may see them. Do not share."
MOST_CATEGORIES = 100


@dataclass(frozen=True)
class Evaluation:
    """Every comparison of a synthetic database with the real one. NOT PRIVATE."""

    k: int
    rows: Mapping[str, tuple[int, int]]
    """Real and synthetic number of rows of each private table."""
    errors: tuple[WorkloadError, ...]
    degrees: tuple[DegreeDistance, ...]
    retentions: tuple[Retention, ...]
    associations: tuple[Association, ...]
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

    def to_html(self, path: str | Path) -> None:
        """Write the evaluation as one HTML file, stamped on every page."""
        from dpweave.outputs import write_text
        from dpweave.report.showing import evaluation_page

        write_text(Path(path), evaluation_page(self))

    def __str__(self) -> str:
        from dpweave.report.showing import evaluation_text

        return evaluation_text(self)


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {k: _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case float() | np.floating():
            return float(value) if math.isfinite(value) else None
    return value


def evaluate(
    source: object,
    db: Mapping[str, pa.Table],
    plan: Plan,
    k: int = 3,
    *,
    target: str | None = None,
    learners: bool = True,
    seed: int = 0,
    progress: bool | Callable[[str, float], None] = False,
) -> Evaluation:
    """Compare a synthetic database with the real rows of ``source``. NOT PRIVATE: the result must not be shared.

    ``k`` is the largest number of columns counted together. ``target`` names a column, as ``table.column``, that a model
    trained on synthetic rows shall predict on real ones. ``learners`` trains that model, and one that tells real rows from
    synthetic ones, and asks SDMetrics; without it only counts are compared, which is quick. ``seed`` draws the rivals and the
    samples. ``progress`` shows bars, or is called with step and share. Domains that ``plan`` leaves to be learned are read
    off the real rows, which is fine here and nowhere else.
    """
    from dpweave.sources import open_source

    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= 6:
        raise UsageError(f"k must be a whole number from 1 to 6, not {k!r}")
    steps = reporter(progress)
    with steps.step("read the real tables"), open_source(source) as opened:
        plan.require(opened.catalogue)
        opened.declare(plan.database)
        real_tables = {name: opened.whole(name) for name in plan.database.names}
    plan = resolved(plan, real_tables)
    goal = _target(plan, target)
    rng = np.random.default_rng(seed)
    real, copy = encode(plan, real_tables), encode(plan, db)
    rivals = {
        SYNTHETIC: copy,
        SHUFFLED: shuffled_keys(plan, copy, rng),
        RANDOM: random_wiring(plan, copy, rng),
        INDEPENDENT: independent_columns(plan, copy, rng),
    }
    notes: list[str] = []
    private = [n for n in plan.database.names if n not in plan.public]
    errors: list[WorkloadError] = []
    with steps.step("compare tables"):
        for i, name in enumerate(private):
            steps.inside(name, i / len(private))
            errors += within_errors(plan, real, rivals, name, k=k, rng=rng)
    retentions, associations, ways = [], [], crossings(plan)
    with steps.step("compare across keys"):
        for i, crossing in enumerate(ways):
            steps.inside(crossing.name, i / len(ways))
            found = crossing_errors(crossing, real, rivals, k=k, rng=rng)
            if found is None:
                notes.append(f"{crossing.name}: the real database has no linked rows here")
                continue
            errors.append(found)
            pairs, kept = associated(crossing, real, rivals, rng=rng)
            retentions.append(kept)
            associations += pairs
    from dpweave.report.learners import closest_records, scores

    with steps.step("distances to the closest record"):
        extra = closest_records(plan, real, rivals, rng)
    if learners:
        with steps.step("train on synthetic rows, test on real ones"):
            found_scores, more = scores(plan, real, rivals, real_tables=real_tables, db=db, target=goal, rng=rng)
        extra, notes = [*extra, *found_scores], [*notes, *more]
    return Evaluation(
        k=k,
        rows={n: (real.rows[n], copy.rows[n]) for n in private},
        errors=tuple(errors),
        degrees=tuple(degree_distances(plan, real, rivals)),
        retentions=tuple(retentions),
        associations=tuple(sorted(associations, key=lambda a: -a.real)[: SHOWN_PAIRS * 3]),
        scores=tuple(extra),
        notes=tuple(notes),
    )


def _target(plan: Plan, target: str | None) -> tuple[str, str] | None:
    if target is None:
        return None
    table, _, column = target.rpartition(".")
    if table not in plan.table:
        raise UsageError(f"target {target!r} names no table of the plan: {nearest(table, plan.table)}")
    usable = usable_columns(plan, table)
    if column not in usable:
        raise UsageError(f"target {target!r} names no modelled column of {table!r}: {nearest(column, usable)}")
    return table, column


# -- domains -----------------------------------------------------------------------------------------------------------


def resolved(plan: Plan, tables: Mapping[str, pa.Table]) -> Plan:
    """Fill in domains that are to be learned from the real rows themselves. NOT PRIVATE."""
    for table in plan.tables:
        for column in table.columns:
            if isinstance(column.domain, Learn):
                domain = _domain_of(column.column, tables[table.name][column.name], bins=column.domain.bins)
                plan = plan.replace_domain(table.name, column.name, domain)
    return plan


def _domain_of(column: Column, values: pa.ChunkedArray, *, bins: int) -> Domain:
    import pyarrow.compute as pc

    if column.type.ordered:
        return _bins_of(column.type, values, bins=bins)
    counts = pc.value_counts(values.drop_null()).to_pylist()
    ranked = sorted(counts, key=lambda c: (-c["counts"], str(c["values"])))[:MOST_CATEGORIES]
    return Categories(tuple(c["values"] for c in ranked), other=True)


def _bins_of(kind: Type, values: pa.ChunkedArray, *, bins: int) -> Bins:
    """Cut the real values into at most ``bins`` parts of about the same number of rows; few distinct values stay apart."""
    import pyarrow.compute as pc

    there = values.drop_null()
    if kind.kind == "float":
        there = there.filter(pc.is_finite(there))
    if not len(there):
        return bins_at(kind, [0, 1])
    distinct = there.unique()
    ordered = (distinct if len(distinct) <= bins else there).sort()
    picks = (
        [ordered[len(ordered) * i // bins].as_py() for i in range(bins)]
        if len(distinct) > bins
        else ordered.to_pylist()
    )
    points = sorted({to_axis(kind, v) for v in picks})
    last = to_axis(kind, ordered[-1].as_py())
    return bins_at(kind, [*points, max(last, points[-1]) + 1])
