"""The reference of the plan file: ``python -m tests.plan_reference`` writes docs/plan-file.md.

Which keys there are, and their defaults, come from the code. A key without words here stops it, and so do words for a
key that is gone. ``tests/test_docs.py`` holds page and code together.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_args

import pytest

from dpweave.errors import PlanError
from dpweave.plan.entries import ColumnPlan, External, KeyPlan, Shares, TablePlan, WorkloadPlan
from dpweave.plan.plan import Plan
from dpweave.plan.rules import Allowed, Constraint, Determined, Equal, Exactly, NeverBack, Ordered, Symmetric
from dpweave.schema.database import Column
from dpweave.schema.fake_values import KINDS

PAGE = Path(__file__).parent.parent / "docs" / "plan-file.md"

START = """# The plan file

A plan is a [TOML](https://toml.io) file. `dpweave draft SOURCE -o plan.toml` writes one from the
catalogue; you edit it. Everything in it is public. An unknown key is refused, with the nearest that
is known. This page is made from the code (`python -m tests.plan_reference`).
"""

EXAMPLE = """protect = ["patients"]
public = ["wards"]
locale = "de_DE"

[budget]
tables = 0.5
links = 0.35

[tables.wards]
primary_key = ["id"]
[tables.wards.columns]
id = { type = "int64", nullable = false, domain = "key" }
floor = { type = "int64", nullable = false, domain = [0, 1, 2] }

[tables.patients]
primary_key = ["id"]
unique = [["insurance"]]
mechanism = "aim"
rows = 20000
[tables.patients.columns]
id = { type = "int64", nullable = false, domain = "key" }
name = { type = "text", nullable = false, domain = "opaque", placeholder = "name" }
insurance = { type = "text", nullable = false, domain = "opaque" }
sex = { type = "text", nullable = false, domain = ["f", "m", "x"] }
born = { type = "date", domain = { low = 1920-01-01, high = 2026-01-01, bins = 20 } }
town = { type = "text", domain = "learn" }

[tables.visits]
primary_key = ["id"]
[tables.visits.columns]
id = { type = "int64", nullable = false, domain = "key" }
patient = { type = "int64", nullable = false, domain = "key" }
ward = { type = "int64", domain = "key" }
came = { type = "timestamp", nullable = false, domain = { learn = true, bins = 24 } }
left = { type = "timestamp", domain = { learn = true, bins = 24 } }
[tables.visits.keys.patient]
columns = ["patient"]
references = "patients"
target = ["id"]
role = "owning"
max_degree = 8
[tables.visits.keys.ward]
columns = ["ward"]
references = "wards"
target = ["id"]
role = "attribute"

[[constraints]]
table = "visits"
lower = "came"
upper = "left"

[[workloads]]
columns = ["patients.sex", "visits.came"]
weight = 2.0
"""

Words = dict[str, tuple[str, str, str]]
"""By key: its type, what it means, and an example."""

TOP: Words = {
    "version": ("whole number", "The version of the format.", "version = 1"),
    "protect": ("list of tables", "One row of these, with all rows it owns, is a unit.", 'protect = ["patients"]'),
    "public": ("list of tables", "Copied as they are, and promised nothing.", 'public = ["wards"]'),
    "neighbours": (
        "`entity` or `record`",
        "What is hidden: that a unit is there, or what one row says ([the two](privacy.md#two-kinds-of-neighbours)).",
        'neighbours = "entity"',
    ),
    "on_excess": (
        "`refuse` or `truncate`",
        "Under `record`, what happens if the data break a bound.",
        'on_excess = "refuse"',
    ),
    "k": ("whole number", "Up to how many columns together are asked about links.", "k = 3"),
    "views": ("list of tables", "Views of the source that are taken for tables.", 'views = ["grown_ups"]'),
    "locale": ("text", "Language and country of made-up values.", 'locale = "de_DE"'),
    "budget": ("table", "Shares of the budget, below.", "budget = { tables = 0.5 }"),
    "tables": ("table", "One entry for each table, below.", "tables = { }"),
    "constraints": (
        "list of tables",
        "Rules that every copy keeps, below.",
        'constraints = [{ table = "visits", lower = "came", upper = "left" }]',
    ),
    "workloads": (
        "list of tables",
        "Columns whose joint counts matter most, below.",
        'workloads = [{ columns = ["patients.sex", "visits.came"] }]',
    ),
}
BUDGET: Words = {
    "domains": (
        "number",
        "Share for domains that are learned. Left out: a tenth, or what they need to be useful.",
        "domains = 0.1",
    ),
    "sizes": ("number", "Share for numbers of rows.", "sizes = 0.05"),
    "tables": ("number", "Share for columns of tables.", "tables = 0.4"),
    "links": ("number", "Share for foreign keys.", "links = 0.45"),
    "delta_domains": ("number below 1", "Part of delta for learning categories.", "delta_domains = 0.1"),
}
TABLE: Words = {
    "primary_key": ("list of columns", "The primary key.", 'primary_key = ["id"]'),
    "unique": ("list of lists", "Further sets of columns that never repeat.", 'unique = [["insurance"]]'),
    "mechanism": ("text", "How its columns are learned ([methods](tables.md)).", 'mechanism = "mst"'),
    "rows": (
        "whole number",
        "About how many rows there are, for forecasts. With `rows_public`, exactly how many.",
        "rows = 20000",
    ),
    "rows_public": (
        "true or false",
        "The number of rows is no secret: not measured, and kept by copies.",
        "rows_public = true",
    ),
    "weight": ("number", "Its part of the share `tables`, relative to other tables.", "weight = 2.0"),
    "namespace": ("text", "The schema of the database server that holds it.", 'namespace = "clinic"'),
    "model_cells": ("whole number", "Cells that its model may have.", "model_cells = 1000000"),
    "external": ("table", "For the mechanism `external`, below.", "external = { rho = 0.1 }"),
    "columns": ("table", "One entry for each column, below.", "columns = { }"),
    "keys": ("table", "One entry for each foreign key, below.", "keys = { }"),
}
COLUMN: Words = {
    "type": ("text", "The type of its values.", 'type = "int64"'),
    "nullable": ("true or false", "Whether it may be null.", "nullable = false"),
    "domain": ("see below", "Which values there can be, or how that is learned.", 'domain = ["f", "m"]'),
    "placeholder": (
        "text",
        f"What kind of values is made up where the domain is `opaque`: {', '.join(f'`{k}`' for k in sorted(KINDS))}.",
        'placeholder = "name"',
    ),
    "locale": ("text", "Language and country of its placeholder.", 'locale = "fr_FR"'),
    "gathered": (
        "table",
        "Of a public table, no column of its own: what public rows that lead here say"
        " ([recipes](recipes.md#what-lies-behind-a-public-junction)).",
        'gathered = { table = "staff", key = "ward_id" }',
    ),
}
KEY: Words = {
    "columns": ("list of columns", "Columns of this table.", 'columns = ["patient"]'),
    "references": ("text", "The table it leads to.", 'references = "patients"'),
    "target": ("list of columns", "Columns there.", 'target = ["id"]'),
    "role": (
        "`owning`, `shared`, `linking` or `attribute`",
        "Its part in the promise ([roles](privacy.md#protected-owned-public)).",
        'role = "owning"',
    ),
    "max_degree": (
        "whole number",
        "How many rows may lead to one row; needed between private tables.",
        "max_degree = 8",
    ),
    "method": ("text", "How its links are learned ([methods](links.md)).", 'method = "map"'),
    "weight": ("number", "Its part of the share `links`, relative to other keys.", "weight = 2.0"),
    "degree_cap": ("whole number", "Owning: the most rows that one owner can have, if known.", "degree_cap = 40"),
    "degree_edges": (
        "list of whole numbers",
        "Owning: groups of degrees; a fit learns and writes them.",
        "degree_edges = [0, 1, 3]",
    ),
    "acyclic": (
        "true or false",
        "For a key of a table to itself: no row leads back to itself.",
        "acyclic = true",
    ),
    "within": ("true or false", "Linking: rows lead to rows of their own unit alone.", "within = true"),
    "min_degree": ("whole number", "Owning: the fewest rows that one owner has.", "min_degree = 1"),
    "order_by": (
        "column",
        "Owning: by which rows of one owner come one after the other; a draft guesses one ([recipes](recipes.md)).",
        'order_by = "came"',
    ),
}
EXTERNAL: Words = {
    "epsilon": ("number", "What its maker declares it cost, where no rho is known.", "epsilon = 1.0"),
    "delta": ("number", "The delta that goes with it.", "delta = 1e-7"),
    "rho": ("number", "What it cost in zCDP.", "rho = 0.1"),
    "path": ("text", "A Parquet or CSV file; without, the rows are given to `fit`.", 'path = "users.csv"'),
}
WORKLOAD: Words = {
    "columns": ("list of columns", "2 to 6 columns as `table.column`.", 'columns = ["patients.sex", "visits.came"]'),
    "weight": ("number", "Relative to everything else about its table or relation.", "weight = 2.0"),
}

DOMAINS = """## domain

| domain | means |
|---|---|
| `"key"` | the value is part of a key; keys decide it |
| `"opaque"` | not modelled: identifiers and prose, filled with made-up values |
| `"learn"` | categories, or bins of a range, are learned under the budget |
| `{ learn = true, low = 0, high = 99, bins = 10 }` | the same with what you know; each part may be missing |
| `["f", "m"]` | these values; any other becomes null or one of them |
| `{ values = ["f", "m"], other = true }` | these values, and one more for all others |
| `{ low = 0, high = 99, bins = 10 }` | a range in even bins (16 if not said); `step` makes multiples |
| `{ edges = [0, 18, 65, 100] }` | a range in bins of your own; a fit adds `step`, `spots`, `learned` |

Declare what is known from elsewhere. A list or a range that was read off the private data is a leak.
"""
RULES: tuple[tuple[type, str, Words], ...] = (
    (
        Ordered,
        "lower ≤ upper in every row that has both",
        {
            "lower": ("column", "The one that is never larger.", 'lower = "came"'),
            "upper": ("column", "The other, of the same type.", 'upper = "left"'),
            "key": ("key", "`lower` is then a column of the table it leads to.", 'key = "patient"'),
        },
    ),
    (
        Determined,
        "rows that agree on `columns` agree on `dependent`",
        {
            "columns": ("list of columns", "What decides.", 'columns = ["city"]'),
            "dependent": ("column", "What is decided.", 'dependent = "country"'),
        },
    ),
    (
        Allowed,
        "only the combinations that are listed, or those of a public table",
        {
            "columns": ("list of columns", "Which columns combine.", 'columns = ["type", "unit"]'),
            "allowed": (
                "list of lists, or table",
                "The combinations, or a public table that holds them.",
                'allowed = [["weight", "kg"], ["height", "cm"]]',
            ),
            "allowed_columns": (
                "list of columns",
                "What that table calls the columns, if otherwise.",
                'allowed_columns = ["kind", "measure"]',
            ),
        },
    ),
    (
        Exactly,
        "per target of a key, exactly so many rows have the value",
        {
            "per": ("key", "Which rows are counted together.", 'per = "account"'),
            "column": ("column", "The column.", 'column = "type"'),
            "value": ("value of it", "The value.", 'value = "owner"'),
            "exactly": ("whole number", "How many rows have it.", "exactly = 1"),
        },
    ),
    (
        Equal,
        "two paths lead to the same row",
        {
            "equal": (
                "list of two paths",
                "One key, and the keys that it follows, joined by dots.",
                'equal = ["district", "client.district"]',
            )
        },
    ),
    (
        Symmetric,
        "with each row that leads from x to y by two keys, one leads from y to x",
        {"symmetric": ("list of two keys", "Both lead to the same table.", 'symmetric = ["person", "friend"]')},
    ),
    (
        NeverBack,
        "in the order of `order_by`, no row of an owner has an earlier value than one before it",
        {"never_back": ("column", "Its values come in the order of its domain.", 'never_back = "status"')},
    ),
)
"""Every kind of rule: what every copy keeps, and words for its keys beside ``table``."""


def defaults(*owners: type) -> dict[str, object]:
    """Return the default of every field that has a plain one."""
    return {f.name: f.default for o in owners for f in fields(o) if f.default is not MISSING}


SECTIONS: tuple[tuple[str, str, Words, dict[str, object]], ...] = (
    ("top level", "x = 1\n", TOP, {**defaults(Plan), "version": 1}),
    ("[budget]", "[budget]\nx = 1\n", BUDGET, defaults(Shares)),
    ("[tables.NAME]", "[tables.t]\nx = 1\n", TABLE, defaults(TablePlan)),
    ("[tables.NAME.columns]", "[tables.t.columns.c]\nx = 1\n", COLUMN, defaults(Column, ColumnPlan)),
    ("[tables.NAME.keys.KEY]", "[tables.t.keys.k]\nx = 1\n", KEY, defaults(KeyPlan)),
    ("[tables.NAME.external]", "[tables.t.external]\nx = 1\n", EXTERNAL, defaults(External)),
    ("[[workloads]]", "[[workloads]]\nx = 1\n", WORKLOAD, defaults(WorkloadPlan)),
)
"""Of each part of a plan: its head, a text with an unknown key in it, words, and defaults."""


def known(text: str) -> set[str]:
    """Return the keys that the code knows where ``text`` has an unknown one."""
    if text.startswith("[[workloads]]"):
        text = EXAMPLE.partition("[[workloads]]")[0] + text
    with pytest.raises(PlanError, match="unknown key 'x': known are") as refused:
        Plan.from_toml(text)
    return set(str(refused.value).partition("known are ")[2].split(", "))


def page() -> str:
    """Return the page."""
    parts = [START, f"## An example\n\n```toml\n{EXAMPLE}```\n"]
    for head, unknown, words, default in SECTIONS:
        assert known(unknown) == set(words), (head, known(unknown) ^ set(words))
        lines = [f"## {head}", "", "| key | type | default | meaning | example |", "|---|---|---|---|---|"]
        for key, (kind, meaning, example) in words.items():
            lines.append(f"| `{key}` | {kind} | {_shown(default.get(key))} | {meaning} | `{example}` |")
        parts.append("\n".join(lines) + "\n")
        if words is COLUMN:
            parts.append(DOMAINS)
    return "\n".join([*parts, rules()])


def rules() -> str:
    """Return the part about rules: each kind is known by the keys that it has."""
    assert {kind for kind, _, _ in RULES} == set(get_args(Constraint))
    lines = ["## [[constraints]]", ""]
    lines += ["`table` names the table of each rule; what other keys there are says which rule it is. Longer"]
    lines += ["examples are in the [recipes](recipes.md#rules-that-must-hold).", ""]
    lines += ["| every copy keeps | key | type | default | meaning | example |", "|---|---|---|---|---|---|"]
    for kind, kept, words in RULES:
        assert {f.name for f in fields(kind)} == {"table", *words}, kind
        for key, (what, meaning, example) in words.items():
            default = _shown(defaults(kind).get(key))
            lines.append(f"| {kept} | `{key}` | {what} | {default} | {meaning} | `{example}` |")
            kept = ""
    return "\n".join(lines) + "\n"


def _shown(default: object) -> str:
    if default in (None, ()):
        return "–"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
