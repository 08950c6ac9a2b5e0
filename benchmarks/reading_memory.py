"""Peak memory of ``report`` and ``evaluate`` against the rows of the database, each in a fresh process.

    python -m benchmarks.reading_memory --rows 1e5 1e6

Customers, public products and sales are made up in a DuckDB file: for each ten sales a customer. Sales have the columns
that tables have: dates, amounts, counts, texts, nulls, a note that nobody models. The plan is fitted on a database of
20,000 sales, so that a model is quick to be had, and sampled at a scale. The commands run as a user runs them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb

SMALL = 20_000
"""Sales of the database that is fitted."""
PRODUCTS = 500
MADE_UP = """
CREATE TABLE products (id INTEGER PRIMARY KEY, price DECIMAL(8, 2) NOT NULL, kind VARCHAR NOT NULL);
CREATE TABLE customers (id INTEGER PRIMARY KEY, born DATE NOT NULL, kind VARCHAR NOT NULL, city VARCHAR);
CREATE TABLE sales (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers (id),
    product INTEGER NOT NULL REFERENCES products (id), sold TIMESTAMP NOT NULL, amount DECIMAL(10, 2) NOT NULL,
    pieces INTEGER NOT NULL, weight DOUBLE, status VARCHAR NOT NULL, channel VARCHAR, paid BOOLEAN NOT NULL,
    discount INTEGER, note VARCHAR);
SELECT setseed({seed});
INSERT INTO products SELECT i, random() * 900, 'kind ' || (random() * 5)::INTEGER FROM range({products}) t(i);
INSERT INTO customers SELECT i, DATE '1940-01-01' + (random() * 22000)::INTEGER, 'kind ' || (random() * 4)::INTEGER,
    CASE WHEN random() < 0.9 THEN 'city ' || (random() * 30)::INTEGER END FROM range({customers}) t(i);
INSERT INTO sales SELECT i, floor({customers} * sqrt(random())), floor({products} * random()),
    TIMESTAMP '2020-01-01' + INTERVAL 1 MINUTE * (random() * 2000000)::INTEGER, random() * random() * 5000,
    1 + (random() * 9)::INTEGER, CASE WHEN random() < 0.8 THEN random() * 50 END, 'status ' || (random() * 6)::INTEGER,
    CASE WHEN random() < 0.7 THEN 'channel ' || (random() * 3)::INTEGER END, random() < 0.5,
    (random() * 40)::INTEGER, CASE WHEN random() < 0.5 THEN 'a note about sale ' || i END FROM range({sales}) t(i);
"""


def made_up(path: Path, sales: int, seed: float) -> None:
    """Write a database of so many sales."""
    with duckdb.connect(str(path)) as connection:
        customers = max(sales // 10, 10)
        connection.execute(MADE_UP.format(products=PRODUCTS, customers=customers, sales=sales, seed=seed))


def run(*arguments: object) -> tuple[int, float]:
    """Run a command of dpweave; return its peak memory in MB and its CPU seconds."""
    child = subprocess.Popen([sys.executable, "-m", "dpweave.cli", *map(str, arguments)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{arguments[0]} failed")
    return round(used.ru_maxrss / 1024), used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6])
    parser.add_argument("--target", choices=("duckdb", "sqlite"), default="duckdb", help="What the copy is written to.")
    chosen = parser.parse_args()
    print("| sales | command | peak MB | CPU s |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        small, plan, model = home / "small.duckdb", home / "plan.toml", home / "small.dpw"
        made_up(small, SMALL, 0.25)
        run("draft", small, "--protect", "customers", "--public", "products", "-o", plan)
        run("fit", small, "--plan", plan, "--epsilon", 4, "-o", model, "--ledger", home / "ledger.jsonl", "--quiet")
        for rows in map(int, chosen.rows):
            real, copy = home / f"{rows}.duckdb", home / f"{rows}-copy.{chosen.target}"
            made_up(real, rows, 0.5)
            run("sample", model, "-o", copy, "--scale", rows / SMALL, "--quiet")
            for command in (
                ("report", model, copy, "-o", home / f"{rows}.html"),
                ("evaluate", real, copy, "--plan", plan, "--i-may-see-real-data"),
            ):
                peak, cpu = run(*command, "--quiet")
                print(f"| {rows:,} | {command[0]} | {peak} | {cpu:.0f} |", flush=True)
            real.unlink()
            copy.unlink()


if __name__ == "__main__":
    main()
