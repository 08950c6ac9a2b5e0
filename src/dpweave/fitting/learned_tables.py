"""Tables learned from what a release holds about them: the half of fitting that asks nothing."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from dpweave import chosen
from dpweave.budget.tasks import Task, favoured
from dpweave.errors import PlanError
from dpweave.fitting.rule_structure import with_dependencies
from dpweave.measure.answers import averaged, counted, onto
from dpweave.schema.codec import Codec
from dpweave.schema.domain import Learn, parse_degree, size
from dpweave.tables.aim import MAX_TRIPLES
from dpweave.tables.base import Learner, StructuralZero, Structure
from dpweave.tables.session import require_structure
from dpweave.tables.woven import seen_through_links

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dpweave.plan.compiled import CompiledPlan
    from dpweave.plan.plan import Plan
    from dpweave.privacy.release import Release
    from dpweave.privacy.window import Columns, NoisyMarginal
    from dpweave.tables.base import FittedTable


def learn_table(
    plan: Plan, name: str, model: Learner[FittedTable], known: Structure, release: Release, *, rows: float
) -> FittedTable:
    """Learn a table from everything that ``release`` says of it. ``known`` are its limits and structural zeros."""
    answers, shape = table_answers(plan.compile(), name, release, rows=rows), table_shape(plan.compile(), name)
    known = with_dependencies(plan, name, shape, known, answers, rows=rows)
    known = without_unseen(plan, name, shape, known, answers)
    known = with_workloads(plan.compile(), name, tuple(shape), replace(known, measured=()))
    return model.learn(answers, shape, rows=rows, structure=known)


def without_unseen(
    plan: Plan, name: str, shape: Mapping[str, int], known: Structure, answers: Sequence[NoisyMarginal]
) -> Structure:
    """Rule out nulls, and values beside those that are listed, where counts of them do not stand out of noise.

    Negative counts become none and positive ones stay, so that of what does not occur noise alone would make some.
    Rows that were made elsewhere stay as they are.
    """
    if plan.table[name].external is not None:
        return known
    zeros = []
    for column in plan.table[name].modelled:
        domain, about = column.domain, [onto(m, (column.name,)) for m in answers if column.name in m.columns]
        if column.name not in shape or not about or isinstance(domain, Learn | None):
            continue
        codec, found = Codec(column.column, domain), averaged(about)
        seldom = {codec.unknown_code, codec.null_code} - set(range(codec.listed))
        rare = [code for code in seldom if found.counts[code] < chosen.SURE * found.sigma]
        mask = np.isin(np.arange(codec.size), rare)
        if rare and not mask.all():
            zeros.append(StructuralZero((column.name,), mask))
    seen = replace(known, zeros=(*known.zeros, *zeros))
    try:
        require_structure(shape, seen)
    except PlanError:  # rules leave no other row
        return known
    return seen


def table_answers(plan: CompiledPlan, name: str, release: Release, *, rows: float) -> tuple[NoisyMarginal, ...]:
    """Return all counts of a table's rows that a release holds."""
    what, shape = Task("tables", name).name, table_shape(plan, name)
    return counted([*release.find(what), *release.find_unit_sums(what)], shape, rows=rows)


def table_shape(plan: CompiledPlan, name: str) -> dict[str, int]:
    """Return the number of codes of each column that a table's model has."""
    table = plan.table[name]
    shape = {}
    for column in table.model_columns:
        if column in table.derived_codecs:
            shape[column] = table.derived_codecs[column].size
            continue
        planned = table.planned.column[column]
        assert planned.domain is not None
        assert not isinstance(planned.domain, Learn)
        shape[column] = size(planned.domain, nullable=planned.column.nullable)
    return shape


def limits(plan: Plan, name: str) -> Structure:
    """Return the size limits of a table's model; columns that they cannot hold are
    refused, before anything is spent.
    """
    table = plan.table[name]
    structure = Structure() if table.model_cells is None else Structure(max_model_cells=table.model_cells)
    declared = {c.name: c for c in table.modelled if not isinstance(c.domain, Learn | None)}
    shape = {n: size(c.domain, nullable=c.column.nullable) for n, c in declared.items()}  # type: ignore[arg-type]
    try:
        structure.require_room(shape, cells=sum(shape.values()))
    except PlanError as error:
        raise PlanError(f"table {name!r}: {error}") from None
    return structure


def with_workloads(plan: CompiledPlan, name: str, columns: Columns, known: Structure) -> Structure:
    """Add which sets of a table's columns matter, by themselves and for its links."""
    return replace(known, workload=_favoured(plan, Task("tables", name), columns), linked=_linked(plan, name))


def _favoured(plan: CompiledPlan, task: Task, columns: Columns) -> dict[Columns, float] | None:
    """Return the workload of a table where some is declared: of weight 1, as much as
    all other sets of columns together.
    """
    declared = favoured(plan, task)
    if not declared:
        return None
    order = min(3 if math.comb(len(columns), 3) <= MAX_TRIPLES else 2, len(columns))
    every = list(combinations(columns, order))
    wanted = dict.fromkeys(every, 1 / len(every))
    for names, weight in declared.items():
        key = tuple(c for c in columns if c in names)
        wanted[key] = wanted.get(key, 0.0) + weight
    return wanted


def _linked(plan: CompiledPlan, name: str) -> dict[Columns, float]:
    """Return what links see of a table's rows: sets of its columns, each with a degree,
    by the workloads they are in.
    """
    out: dict[Columns, float] = {}
    for key in plan.table[name].counted_keys:
        for relation in (r for r in plan.relations if r.table == key.table):
            for side, other in ((relation.left, relation.right), (relation.right, relation.left)):
                own = [a.column for _, a in side if a.path == (key.name,) and parse_degree(a.column) is None]
                found = seen_through_links(own, key.degree, others=len(other), k=plan.k, beside=len(side) - len(own))
                for columns, weight in found.items():
                    out[columns] = out.get(columns, 0.0) + weight
    return out
