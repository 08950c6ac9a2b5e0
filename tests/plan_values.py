"""A plan that uses every key, and what people and programs write into it by mistake."""

from __future__ import annotations

import copy
import datetime as dt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAN: dict[str, Any] = {
    "version": 1,
    "neighbours": "entity",
    "on_excess": "refuse",
    "k": 3,
    "protect": ["users", "films"],
    "public": ["lands"],
    "budget": {"domains": 0.1, "sizes": 0.05, "tables": 0.4, "links": 0.45, "delta_domains": 0.1},
    "tables": {
        "lands": {
            "primary_key": ["id"],
            "columns": {
                "id": {"type": "int64", "nullable": False, "domain": "key"},
                "name": {"type": "text", "domain": "learn"},
            },
        },
        "users": {
            "primary_key": ["id"],
            "mechanism": "external",
            "external": {"epsilon": 0.5, "delta": 1e-7, "path": "made.parquet"},
            "rows": 100,
            "weight": 1.0,
            "model_cells": 1000,
            "namespace": "main",
            "columns": {
                "id": {"type": "int64", "nullable": False, "domain": "key"},
                "land": {"type": "int64", "domain": "key"},
                "sex": {"type": "text", "nullable": False, "domain": ["f", "m"]},
                "job": {"type": "text", "domain": {"values": ["a", "b"], "other": True}},
                "age": {"type": "int64", "domain": {"low": 0, "high": 99, "bins": 4}},
                "pay": {"type": "float64", "domain": {"low": 0.0, "high": 9.5, "bins": 3, "step": 0.5}},
                "born": {"type": "date", "domain": {"learn": True, "low": dt.date(1900, 1, 1), "bins": 8}},
                "gone": {"type": "date", "domain": {"learn": True, "high": dt.date(2030, 1, 1)}},
                "debt": {"type": "decimal(9,2)", "domain": {"edges": ["0.00", "5.00", "9.99"]}},
                "note": {"type": "text", "domain": "opaque"},
            },
            "keys": {
                "land": {"columns": ["land"], "references": "lands", "target": ["id"], "role": "attribute"},
            },
        },
        "films": {
            "primary_key": ["id"],
            "mechanism": "independent",
            "columns": {
                "id": {"type": "int64", "nullable": False, "domain": "key"},
                "genre": {"type": "text", "nullable": False, "domain": ["drama", "noir"]},
                "after": {"type": "int64", "domain": "key"},
            },
            "keys": {
                "after": {
                    "columns": ["after"],
                    "references": "films",
                    "target": ["id"],
                    "role": "linking",
                    "max_degree": 2,
                    "acyclic": True,
                    "method": "map",
                    "weight": 2.0,
                },
            },
        },
        "views": {
            "primary_key": ["id"],
            "unique": [["user", "film"]],
            "columns": {
                "id": {"type": "int64", "nullable": False, "domain": "key"},
                "user": {"type": "int64", "nullable": False, "domain": "key"},
                "film": {"type": "int64", "domain": "key"},
                "stars": {"type": "int64", "nullable": False, "domain": [1, 2, 3]},
                "score": {"type": "int64", "nullable": False, "domain": {"edges": [0, 5, 10], "spots": [[1, 2, 2.0]]}},
            },
            "keys": {
                "user": {
                    "columns": ["user"],
                    "references": "users",
                    "target": ["id"],
                    "role": "owning",
                    "max_degree": 6,
                    "degree_cap": 50,
                    "min_degree": 1,
                    "order_by": "score",
                    "degree_edges": [0, 1, 3],
                },
                "film": {
                    "columns": ["film"],
                    "references": "films",
                    "target": ["id"],
                    "role": "linking",
                    "max_degree": 40,
                    "within": False,
                },
            },
        },
    },
    "constraints": [
        {"table": "users", "lower": "born", "upper": "gone"},
        {"table": "users", "columns": ["sex"], "dependent": "job"},
        {"table": "films", "columns": ["genre"], "allowed": [["drama"], ["noir"]]},
    ],
    "workloads": [{"columns": ["views.stars", "users.sex"], "weight": 1.0}],
}

WRONG: tuple[Any, ...] = (
    "false",
    "",
    "nope",
    "\0",
    "x" * 5000,
    "enum(1)",
    "decimal(99999999999)",
    "int" + "6" * 400,
    ["a"],
    [],
    [[]],
    ["nope"],
    [1, "a", None],
    {},
    {"x": 1},
    {"learn": 1},
    {"values": 3},
    {"edges": []},
    {"low": 0, "high": 1, "bins": -1},
    {"low": 0, "high": 10**30, "bins": 10**9},
    True,
    0,
    -1,
    1.5,
    10**400,
    1 << 40000,
    float("nan"),
    float("inf"),
    1e308,
    dt.date(1, 1, 1),
    dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    dt.time(1, 2),
    None,
)
"""None stands for: the key is missing."""


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in nested values."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def spoilt(path: tuple[Any, ...], wrong: Any) -> dict[str, Any]:
    """The plan with another value, or none, in one place."""
    plan = copy.deepcopy(PLAN)
    at: Any = plan
    for key in path[:-1]:
        at = at[key]
    if wrong is None:
        del at[path[-1]]
    else:
        at[path[-1]] = copy.deepcopy(wrong)
    return plan
