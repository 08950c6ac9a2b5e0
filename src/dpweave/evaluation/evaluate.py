"""How close a synthetic database comes to the real one. NOT PRIVATE: every figure here is made from real rows.

Errors are 100 times the L1 distance between the distributions of linked rows over k columns, as in the paper's figures,
against the real database as it is, before any bound is enforced. Each stands next to what the same rows give when they
are wired without knowledge, and to what sampling alone would cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpweave.engines.stored_tables import StoredTables
from dpweave.errors import UsageError, nearest
from dpweave.evaluation.baselines import (
    INDEPENDENT,
    RANDOM,
    SHUFFLED,
    SYNTHETIC,
    independent_columns,
    random_wiring,
    shuffled_keys,
)
from dpweave.evaluation.comparisons import (
    REAL,
    SHOWN_PAIRS,
    WorkloadError,
    associated,
    crossing_errors,
    crossings,
    degree_distances,
    usable_columns,
    within_errors,
)
from dpweave.evaluation.figures import EvaluationFigures
from dpweave.evaluation.unit_comparisons import moments_of, unit_figures
from dpweave.model.coded_database import encode
from dpweave.progress import reporter
from dpweave.schema.domain import Bins, Categories, Learn, bins_at, to_axis

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from dpweave.plan.plan import Plan
    from dpweave.schema.database import Column, Type
    from dpweave.schema.domain import Domain


MOST_CATEGORIES = 100


@dataclass(frozen=True)
class Evaluation(EvaluationFigures):
    """Every comparison of a synthetic database with the real one. NOT PRIVATE."""

    def to_html(self, path: str | Path) -> None:
        """Write the evaluation as one HTML file, stamped on every page."""
        from dpweave.engines.staging import write_text
        from dpweave.evaluation.evaluation_page import evaluation_page

        write_text(Path(path), evaluation_page(self))

    def __str__(self) -> str:
        from dpweave.evaluation.evaluation_page import evaluation_text

        return evaluation_text(self)


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
    schema: str | None = None,
) -> Evaluation:
    """Compare a synthetic database with the real rows of ``source``. NOT PRIVATE: the result must not be shared.

    ``k`` is the largest number of columns counted together. ``target`` names a column, as ``table.column``, that a
    model trained on synthetic rows shall predict on real ones. ``learners`` trains that model, and one that tells real
    rows from synthetic ones, and asks SDMetrics; without it only counts are compared, which is quick. ``seed`` draws
    the rivals and the samples. ``progress`` shows bars, or is called with step and share. Domains that ``plan`` leaves
    to be learned are read off the real rows, which is fine here and nowhere else. ``schema`` says where on a server the
    real tables are.
    """
    from dpweave.engines.opening import open_source
    from dpweave.evaluation.learners import MOST_SDMETRICS_ROWS, closest_records, scores

    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= 6:
        raise UsageError(f"k must be a whole number from 1 to 6, not {k!r}")
    steps = reporter(progress)
    with open_source(source, schema=schema, views=plan.views) as opened:
        plan.require(opened.catalogue)
        opened.declare(plan.database)
        stored = StoredTables(opened, plan.database)
        with steps.step("read the real tables"):
            plan = resolved(plan, stored)
            goal = _target(plan, target)
            real = encode(plan, stored)
            when = moments_of(plan, lambda table, column: _values(stored, table, column))
        small = learners and sum(real.rows.values()) <= MOST_SDMETRICS_ROWS
        real_tables = dict(stored) if small else None
    rng = np.random.default_rng(seed)
    copy = encode(plan, db)
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
    with steps.step("compare units"):
        copied = moments_of(plan, lambda table, column: _values(db, table, column))
        times = {REAL: when, **dict.fromkeys((SYNTHETIC, SHUFFLED, RANDOM), copied)}
        shown = {n: r for n, r in rivals.items() if n != INDEPENDENT}
        units = unit_figures(plan, real, shown, times, rng=rng)
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
        units=tuple(units),
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
                domain = _domain_of(column.column, _values(tables, table.name, column.name), bins=column.domain.bins)
                plan = plan.replace_domain(table.name, column.name, domain)
    return plan


def _values(tables: Mapping[str, pa.Table], table: str, column: str) -> pa.ChunkedArray:
    return (tables.some_columns(table, [column]) if isinstance(tables, StoredTables) else tables[table])[column]


def _domain_of(column: Column, values: pa.ChunkedArray, *, bins: int) -> Domain:
    import pyarrow.compute as pc

    if column.type.ordered:
        return _bins_of(column.type, values, bins=bins)
    counts = pc.value_counts(values.drop_null()).to_pylist()
    ranked = sorted(counts, key=lambda c: (-c["counts"], str(c["values"])))[:MOST_CATEGORIES]
    return Categories(tuple(c["values"] for c in ranked), other=True)


def _bins_of(kind: Type, values: pa.ChunkedArray, *, bins: int) -> Bins:
    """Cut the real values into at most ``bins`` parts of about the same number of rows;
    few distinct values stay apart.
    """
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
