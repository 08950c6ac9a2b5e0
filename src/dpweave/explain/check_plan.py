"""A plan held against the catalogue of a source: what would be refused, what is risky, what is worth knowing.

Reads the catalogue and never a row. Nothing here is needed for a fit: what must hold is checked there again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpweave import chosen
from dpweave.errors import PlanError, UsageError
from dpweave.explain.draft_notes import said_of_bare_rows, said_of_left_out
from dpweave.plan.drafting import looks_like_a_key
from dpweave.schema.domain import Categories, Learn, Opaque
from dpweave.schema.fake_values import require_faker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dpweave.plan.entries import KeyPlan, TablePlan
    from dpweave.plan.plan import Plan
    from dpweave.schema.database import Database, ForeignKey, Table

SEVERITIES = ("wrong", "risky", "note")


@dataclass(frozen=True)
class Finding:
    """One thing about a plan: ``wrong`` is refused by a fit, ``risky`` may make a bad copy or a weaker promise."""

    severity: str
    where: str
    text: str


def check_plan(plan: Plan, source: object, *, schema: str | None = None) -> tuple[Finding, ...]:
    """Compare a plan with the catalogue of a source; the worst comes first."""
    from dpweave.engines.opening import open_source

    with open_source(source, schema=schema, views=plan.views) as opened:
        catalogue, left_out = opened.catalogue, opened.not_copied
    found = [*_schema(plan, catalogue), *_not_in_plan(plan, catalogue)]
    for table in plan.tables:
        if table.name in catalogue:
            found += _keys(plan, table, catalogue[table.name])
            found += _columns(plan, table, catalogue[table.name])
        if table.name not in plan.public and table.rows is None:
            text = "rows is not declared, so what a copy is worth is predicted from a guess; say about how many"
            found.append(Finding("note", table.name, text))
    if left_out:
        found.append(Finding("note", "source", said_of_left_out(left_out)))
    return tuple(sorted(found, key=lambda f: SEVERITIES.index(f.severity)))


def _schema(plan: Plan, catalogue: Database) -> Iterable[Finding]:
    try:
        plan.require(catalogue)
    except PlanError as error:
        yield Finding("wrong", "schema", str(error))


def _not_in_plan(plan: Plan, catalogue: Database) -> Iterable[Finding]:
    """What the source has and the plan leaves out: no copy will have it."""
    for table in catalogue:
        if table.name not in plan.database:
            yield Finding("note", table.name, "the plan leaves this table out, so no copy has it")
            continue
        missing = [c.name for c in table.columns if c.name not in plan.database[table.name].column]
        if missing:
            text = f"the plan leaves out {', '.join(missing)}, so no copy has {'it' if len(missing) == 1 else 'them'}"
            yield Finding("note", table.name, text)
        for key in table.foreign_keys:
            if key.target in plan.database and not _same(key, plan.database[table.name]):
                text = (
                    f"the key ({', '.join(key.columns)}) to {key.target} stands in the catalogue and not in the plan:"
                    " its values are made up, and where rows of this table belong to somebody there, they are not"
                    " hidden with that row"
                )
                yield Finding("risky", table.name, text)


def _same(key: ForeignKey, table: Table) -> bool:
    return any(k.target == key.target and set(k.columns) == set(key.columns) for k in table.foreign_keys)


def _keys(plan: Plan, planned: TablePlan, real: Table) -> Iterable[Finding]:
    if planned.name in plan.public:
        return
    for key in planned.keys:
        where = f"{planned.name}.{key.key.name}"
        if not _same(key.key, real):
            yield Finding("note", where, "this key is declared by the plan alone: rows that lead nowhere are left out")
        yield from _bound(plan, planned, key, where)
        if key.role == "owning" and planned.table.is_nullable(key.key):
            yield Finding("risky", where, f"it may be null. {said_of_bare_rows(planned.name, key)}")
        if key.role == "linking" and not planned.table.is_nullable(key.key) and key.key.target in plan.protect:
            text = (
                f"rows of {planned.name} are not hidden with the row of {key.key.target} that they lead to: which ones"
                " lead there is hidden, what they say is not. If they are about both, make the key shared"
            )
            yield Finding("risky", where, text)


def _bound(plan: Plan, planned: TablePlan, key: KeyPlan, where: str) -> Iterable[Finding]:
    bound = key.max_degree
    if bound is None:
        return
    if plan.promise.graph.kind(planned.name, key.key) == "one-to-one":
        if bound > 1:
            yield Finding(
                "risky", where, f"max_degree = {bound:,}, but the key is unique: 1 hides nothing and costs less"
            )
    elif (
        planned.rows and (owners := plan.table[key.key.target].rows) and key.role != "attribute"
    ) and bound * owners < planned.rows:
        text = (
            f"at most {bound * owners:,} of about {planned.rows:,} rows can be counted: {owners:,} rows of"
            f" {key.key.target} have {bound:,} each; raise max_degree"
        )
        yield Finding("risky", where, text)
    elif bound == chosen.DEFAULT_DEGREE:
        text = f"max_degree = {bound} is the first guess of a draft; set what most rows keep, from what you know"
        yield Finding("note", where, text)


def _columns(plan: Plan, planned: TablePlan, real: Table) -> Iterable[Finding]:
    if planned.name in plan.public:
        return
    learned = [c.name for c in planned.columns if isinstance(c.domain, Learn)]
    if learned:
        text = f"learned domains cost budget; declare those you know: {', '.join(learned)}"
        yield Finding("note", planned.name, text)
    for column in planned.columns:
        have = real.column.get(column.name)
        where = f"{planned.name}.{column.name}"
        if have is None:
            continue
        if not column.column.nullable and have.nullable:
            text = "the catalogue allows nulls and the plan does not: a null there counts as some value of the domain"
            yield Finding("note", where, text)
        if column.column.nullable and not have.nullable and column.domain is not None:
            yield Finding("note", where, "the catalogue allows no nulls: nullable = false saves budget")
        values = have.type.values
        if values and isinstance(column.domain, Categories) and not column.domain.other:
            missing = [v for v in values if v not in column.domain.values]
            if missing:
                yield Finding("risky", where, f"the type allows {', '.join(missing)}, which the domain leaves out")
        if column.placeholder is not None:
            try:
                require_faker([(where, column.placeholder, column.locale or plan.locale)])
            except UsageError as error:
                yield Finding("wrong", where, str(error))
        if isinstance(column.domain, Opaque) and looks_like_a_key(column.column):
            yield Finding("note", where, "it looks like a key and is made up; if it leads to a table, declare a key")
