"""A made-up clinic, and a schema of many tables, for the studio's tests."""

from __future__ import annotations

import random
import sqlite3
from datetime import date, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CLINIC = """
CREATE TABLE wards (id INTEGER PRIMARY KEY, name TEXT NOT NULL, floor INTEGER NOT NULL);
CREATE TABLE patients (id INTEGER PRIMARY KEY, insurance_id TEXT NOT NULL, sex TEXT NOT NULL, age INTEGER NOT NULL);
CREATE TABLE visits (id INTEGER PRIMARY KEY, patient_id INTEGER NOT NULL REFERENCES patients (id),
  ward_id INTEGER NOT NULL REFERENCES wards (id), came DATE NOT NULL, nights INTEGER NOT NULL);
"""
SECRET = "P-4711-SECRET"
"""Part of every insurance number: nothing that the studio sends may hold it."""


def clinic_rows(patients: int = 300) -> dict[str, list[tuple]]:
    chance = random.Random(7)
    found: dict[str, list[tuple]] = {
        "wards": [(1, "eyes", 1), (2, "heart", 2), (3, "skin", 3)],
        "patients": [],
        "visits": [],
    }
    for i in range(1, patients + 1):
        found["patients"].append((i, f"{SECRET}-{i}", chance.choice("fm"), min(99, int(chance.gammavariate(5, 9)))))
        for _ in range(chance.choice((1, 1, 2, 3))):
            came = date(2025, 1, 1) + timedelta(chance.randrange(365))
            nights = min(14, int(chance.expovariate(0.6)))
            found["visits"].append((len(found["visits"]) + 1, i, chance.randrange(1, 4), came.isoformat(), nights))
    return found


def write_clinic(path: Path) -> Path:
    with sqlite3.connect(path) as connection:
        connection.executescript(CLINIC)
        for table, rows in clinic_rows().items():
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)
    connection.close()
    return path


def write_many_tables(path: Path, *, tables: int = 60, columns: int = 800) -> Path:
    """No rows: the studio reads none."""
    chance = random.Random(1)
    with sqlite3.connect(path) as connection:
        for i in range(tables):
            parts = ["id INTEGER PRIMARY KEY"]
            if i:
                parts.append(f"parent_id INTEGER NOT NULL REFERENCES t{(i - 1) // 3:02d} (id)")
            wanted = columns // tables + (i < columns % tables) - len(parts)
            kinds = ("TEXT", "INTEGER", "DATE", "REAL", "BOOLEAN")
            parts += [f"c{c:02d} {chance.choice(kinds)}" for c in range(wanted)]
            connection.execute(f"CREATE TABLE t{i:02d} ({', '.join(parts)})")
    connection.close()
    return path
