"""Whether a synthetic database keeps what its schema and its plan say: keys, nulls,
types, kinds, bounds, rules, public rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpweave.plan.rules import NeverBack
from dpweave.schema.arrow_types import arrow_type
from dpweave.schema.key_graph import KeyGraph
from dpweave.schema.key_lookup import column_of
from dpweave.weaving.kept_rules.never_back import going_back
from dpweave.weaving.kept_rules.rule_repair import broken

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.model.coded_database import CodedDatabase
    from dpweave.plan.entries import KeyPlan
    from dpweave.plan.plan import Plan
    from dpweave.schema.database import Table


@dataclass(frozen=True)
class Check:
    """One rule, where it was checked, whether it holds, and how many rows break it.

    A rule that the copy need not keep is ``advisory``: it tells and does not fail.
    """

    rule: str
    where: str
    passed: bool
    detail: str = ""
    advisory: bool = False


def check(
    plan: Plan, tables: Mapping[str, pa.Table], coded: CodedDatabase, *, public: Mapping[str, pa.Table]
) -> tuple[Check, ...]:
    """Check every rule on every table of a copy."""
    found: list[Check] = []
    for table in plan.database.stored:
        found += _types(table, tables)
        found += _nulls(table, tables)
        found += _unique(table, tables)
        for key in plan.table[table.name].keys:
            found += _references(plan, tables, coded, table, key)
        found += _cycles(plan, coded, table)
        if table.name in public:
            held = [c.name for c in table.columns]
            same = tables[table.name].select(held).equals(public[table.name].select(held))
            found.append(Check("public rows unchanged", table.name, same, "" if same else "rows differ"))
    return (*found, *_constraints(plan, tables, coded))


def _constraints(plan: Plan, tables: Mapping[str, pa.Table], coded: CodedDatabase) -> Iterator[Check]:
    """Check each rule that the plan declares."""
    for rule in plan.constraints:
        if isinstance(rule, NeverBack):
            wrong = going_back(plan, rule, tables, coded.links)
        else:
            wrong = broken(rule, tables, coded.links, plan.database)
        yield Check("declared rules", str(rule), not wrong, f"{wrong:,} rows break it" if wrong else "")


def _types(table: Table, tables: Mapping[str, pa.Table]) -> Iterator[Check]:
    have = tables[table.name].schema
    wrong = [c.name for c in table.columns if c.name not in have.names or have.field(c.name).type != arrow_type(c.type)]
    yield Check("columns and types as declared", table.name, not wrong, f"other: {', '.join(wrong)}" if wrong else "")


def _nulls(table: Table, tables: Mapping[str, pa.Table]) -> Iterator[Check]:
    for column in table.columns:
        if not column.nullable or column.name in table.primary_key:
            count = tables[table.name][column.name].null_count
            yield Check("not null", f"{table.name}.{column.name}", count == 0, _rows(count))


def _unique(table: Table, tables: Mapping[str, pa.Table]) -> Iterator[Check]:
    for rule, columns in (("primary key is unique", table.primary_key), *(("unique", u) for u in table.unique)):
        if columns:
            count = repeats(tables[table.name], columns)
            yield Check(rule, f"{table.name} ({', '.join(columns)})", count == 0, _rows(count))


def repeats(table: pa.Table, columns: tuple[str, ...]) -> int:
    """Count rows whose values in ``columns``, all of them there, occurred in a row before.

    >>> import pyarrow as pa
    >>> repeats(pa.table({"a": [1, 1, 1, None, None], "b": [1, 1, 2, 1, 1]}), ("a", "b"))
    1
    >>> repeats(pa.table({"../x": [1, 1]}), ("../x",))
    1
    """
    names = [f"c{i}" for i in range(len(columns))]  # Arrow takes names that begin with a dot for paths
    whole = table.select(list(columns)).rename_columns(names).drop_null()
    return int(whole.num_rows - whole.group_by(names).aggregate([]).num_rows)


def _references(
    plan: Plan, tables: Mapping[str, pa.Table], coded: CodedDatabase, table: Table, planned: KeyPlan
) -> Iterator[Check]:
    key = planned.key
    where = f"{table.name} ({', '.join(key.columns)}) → {key.target}"
    links = coded.links[table.name, key.name]
    there = np.ones(len(links), dtype=bool)
    for column in key.columns:
        there &= ~column_of(tables, table.name, table.column[column]).is_null().to_numpy(zero_copy_only=False)
    dangling = int((there & (links < 0)).sum())
    yield Check("foreign key leads to a row", where, dangling == 0, _rows(dangling))
    most = int(coded.degrees(table.name, key.name).max(initial=0))
    if KeyGraph(plan.database).kind(table.name, key) == "one-to-one":
        yield Check("one-to-one", where, most <= 1, f"at most {most} per {key.target}")
    elif planned.max_degree is not None and table.name not in plan.public and key.target not in plan.public:
        yield from _bound(plan, planned, where, most)
    if planned.min_degree:
        few = int((coded.degrees(table.name, key.name) < planned.min_degree).sum())
        yield Check(f"at least {planned.min_degree} rows per target", where, few == 0, _rows(few))
    if planned.within:
        here, there = (_units(plan, coded, name) for name in (table.name, key.target))
        away = int(((links >= 0) & (here != there[np.maximum(links, 0)])).sum()) if len(there) else 0
        yield Check("leads to a row of its own unit", where, away == 0, _rows(away))
    if key.target == table.name:
        own = int((links == np.arange(len(links))).sum())
        yield Check("no row leads to itself", where, own == 0, _rows(own))


def _units(plan: Plan, coded: CodedDatabase, name: str) -> IntArray:
    """Place of the unit that owns each row of a table; -1 where none does."""
    return coded.position(name, tuple(key for _, key in plan.promise.chain(name)))


def _cycles(plan: Plan, coded: CodedDatabase, table: Table) -> Iterator[Check]:
    keys = [k.key.name for k in plan.table[table.name].keys if k.acyclic]
    if keys:
        count = rows_in_cycles([coded.links[table.name, k] for k in keys])
        yield Check("no row is its own ancestor", f"{table.name} ({', '.join(keys)})", count == 0, _rows(count))


def rows_in_cycles(links: Sequence[IntArray]) -> int:
    """Count rows that lie on a circle, or lead to one, when every row leads to others by any of ``links``.

    >>> rows_in_cycles([np.array([1, 2, 0, 0, -1])])
    4
    """
    alive = np.ones(len(links[0]), dtype=bool)
    while alive.any():
        bound = np.zeros_like(alive)
        for link in links:
            bound |= (link >= 0) & alive[np.maximum(link, 0)]
        if np.array_equal(alive, alive & bound):
            break
        alive &= bound
    return int(alive.sum())


def _bound(plan: Plan, planned: KeyPlan, where: str, most: int) -> Iterator[Check]:
    """Compare degrees with the bound of a key.

    Under entity neighbours a bound limits what one unit adds to the counts, and a mandatory key needs a
    row all the same; the degrees of owners are measured beyond it, up to a cap of their own (PRIVACY §4).
    """
    entity = plan.neighbours == "entity"
    limit = planned.degree_cap if entity and planned.role == "owning" else planned.max_degree
    if limit is not None:
        detail = f"at most {most:,} rows per {planned.key.target}, bound {limit:,}"
        yield Check("rows per target within the bound", where, most <= limit, detail, advisory=entity)


def _rows(count: int) -> str:
    return "" if count == 0 else f"{count:,} rows break it"
