"""Keys are compared byte by byte, whatever collation a SQLite column declares: one key never matches two rows."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import dpweave as dw
from dpweave.privacy.accounting import Budget
from dpweave.privacy.curator import Curator
from dpweave.privacy.ledger import Ledger
from dpweave.schema.domain import View
from dpweave.sources import open_source

if TYPE_CHECKING:
    from pathlib import Path


def test_a_key_that_ignores_case_does_not_multiply_rows(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """
            CREATE TABLE owner (code TEXT PRIMARY KEY NOT NULL, kind TEXT);
            CREATE TABLE pet (id INTEGER PRIMARY KEY, owner TEXT NOT NULL COLLATE NOCASE REFERENCES owner(code));
            INSERT INTO owner VALUES ('A', 'x'), ('a', 'x');
            INSERT INTO pet VALUES (1, 'a'), (2, 'A'), (3, 'a');
            """
        )
    connection.close()
    plan = dw.Plan.draft(path, protect=["owner"])
    with open_source(path) as source:
        source.declare(plan.database)
        ledger = Ledger.open(None, database=source.name, limit=Budget(1e9), tables=plan.protect)
        curator = Curator(source, plan.promise, ledger=ledger)
        view = View("pet", (), (("owner",),))
        (total,) = curator.measure(view, [()], what="pets", rho=1e6)
    assert int(total.counts) == 3
