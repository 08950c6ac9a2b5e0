"""Rows whose values go together as a plan allows: which do not, and how they are mended.

Table models know these rules, so that hardly a row needs it: only those of a mechanism that does not keep
structural zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from dpweave.plan.rules import Allowed

Mask = np.ndarray[Any, Any]


def combinations_of(rule: Allowed, tables: Mapping[str, pa.Table]) -> list[tuple[Any, ...]]:
    """The combinations that a rule allows, as values; those of a public table's rows once each."""
    if not isinstance(rule.allowed, str):
        return list(rule.allowed)
    rows = tables[rule.allowed].select(list(rule.source_columns))
    return list(dict.fromkeys(zip(*(c.to_pylist() for c in rows.columns), strict=True)))


def breaking(rule: Allowed, tables: Mapping[str, pa.Table]) -> Mask:
    """Which rows have a combination that is not allowed."""
    rows = tables[rule.table].select(list(rule.columns))
    label = np.zeros(rows.num_rows, dtype=np.int64)
    for column in rows.columns:
        coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        codes = np.asarray(coded.indices.to_numpy(zero_copy_only=False), dtype=np.int64)
        _, label = np.unique(label * max(len(coded.dictionary), 1) + codes, return_inverse=True)
    _, first, place = np.unique(label, return_index=True, return_inverse=True)
    allowed = set(combinations_of(rule, tables))
    found = zip(*(c.to_pylist() for c in rows.take(first).columns), strict=True)
    return np.array([values not in allowed for values in found], dtype=bool)[place]


def mend(rules: Sequence[Allowed], tables: dict[str, pa.Table]) -> dict[str, int]:
    """Give rows of one table that break a rule the values of rows that keep all, in all columns of the rules.

    Returns how many rows broke each rule.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    wrong = {str(rule): breaking(rule, tables) for rule in rules}
    anywhere = np.logical_or.reduce(list(wrong.values()))
    if anywhere.any():
        table, good = tables[rules[0].table], np.flatnonzero(~anywhere)
        donor = np.arange(len(anywhere))
        columns = dict.fromkeys(c for rule in rules for c in rule.columns)
        made = next(_joint(rules, tables, {})) if not len(good) else {}
        donor[anywhere] = np.resize(good, int(anywhere.sum())) if len(good) else 0
        for name in columns:
            values = table[name].combine_chunks()
            values = values.take(donor) if len(good) else pa.array([made[name]] * len(donor), values.type)
            table = table.set_column(table.column_names.index(name), name, pc.cast(values, table[name].type))
        tables[rules[0].table] = table
    return {name: int(rows.sum()) for name, rows in wrong.items()}


def _joint(rules: Sequence[Allowed], tables: Mapping[str, pa.Table], known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Values for all columns of the rules, such that every rule holds."""
    if not rules:
        yield known
        return
    for values in combinations_of(rules[0], tables):
        more = dict(zip(rules[0].columns, values, strict=True))
        if all(known.get(c, v) == v for c, v in more.items()):
            yield from _joint(rules[1:], tables, known | more)
