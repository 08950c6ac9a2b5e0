"""Rows whose values may not go together: found, and mended where a mechanism knows no zeros."""

from __future__ import annotations

import pyarrow as pa

from dpweave.plan.rules import Allowed
from dpweave.weaving.allowed_rows import breaking, mend

RULE = Allowed("t", ("a", "b"), (("x", 1), ("y", None)))
OTHER = Allowed("t", ("b", "c"), "known", ("p", "q"))
KNOWN = pa.table({"p": [1, None, 1], "q": [True, False, True]})


def table(a: list[str], b: list[int | None], c: list[bool]) -> dict[str, pa.Table]:
    return {"t": pa.table({"a": a, "b": pa.array(b, pa.int32()), "c": c, "d": list(range(len(a)))}), "known": KNOWN}


def test_rows_that_break_a_rule_are_found_nulls_too() -> None:
    tables = table(["x", "x", "y", "y"], [1, None, None, 1], [True, True, False, True])
    assert breaking(RULE, tables).tolist() == [False, True, False, True]
    assert breaking(OTHER, tables).tolist() == [False, True, False, False]
    assert breaking(RULE, table([], [], [])).tolist() == []


def test_mended_rows_take_values_of_rows_that_keep_all_rules() -> None:
    tables = table(["x", "x", "y", "y"], [1, None, None, 1], [True, True, False, True])
    assert mend([RULE, OTHER], tables) == {str(RULE): 2, str(OTHER): 1}
    assert not breaking(RULE, tables).any()
    assert not breaking(OTHER, tables).any()
    assert tables["t"].slice(0, 1).to_pylist() == [{"a": "x", "b": 1, "c": True, "d": 0}]
    assert tables["t"]["d"].to_pylist() == [0, 1, 2, 3]
    assert tables["t"].schema.field("b").type == pa.int32()


def test_where_no_row_keeps_them_a_combination_that_does_is_taken() -> None:
    tables = table(["x", "y"], [None, 1], [True, False])
    mend([RULE, OTHER], tables)
    assert not breaking(RULE, tables).any()
    assert not breaking(OTHER, tables).any()
