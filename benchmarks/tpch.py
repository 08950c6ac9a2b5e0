"""TPC-H drafts, fits with the independent model and samples: CPU time and peak memory of each step.

Columns are independent, and so are links: their number for each row is learned, where they lead is not (``random``).

    pip install tpchgen-cli
    python benchmarks/tpch.py [--scale 1] [--data FOLDER] [--work FOLDER]

Customers are protected, with the orders and line items they own; parts, suppliers and places are public. Each step is
a process of its own, so that its peak memory is its own. Writes ``tpch.json`` beside this file when the scale is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import dpweave as dw
from dpweave.engines.folder.data_package import PACKAGE_FILE, package_of
from dpweave.engines.opening import open_source
from dpweave.schema.database import Database, ForeignKey, Table
from dpweave.schema.domain import Opaque

PRIMARY = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "customer": ("c_custkey",),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
FOREIGN = {
    "nation": (("n_regionkey",), "region"),
    "supplier": (("s_nationkey",), "nation"),
    "customer": (("c_nationkey",), "nation"),
    "orders": (("o_custkey",), "customer"),
}
"""Foreign keys of tables that have one, to the target's primary key."""
PUBLIC = ("region", "nation", "supplier", "part", "partsupp")
BOUNDS = {"orders": 30, "lineitem": 7}
FREE_TEXT = {
    "customer": ("c_name", "c_address", "c_phone", "c_comment"),
    "orders": ("o_clerk", "o_comment"),
    "lineitem": ("l_comment",),
}
EPSILON, DELTA, SEED = 10.0, 1e-6, 0
STEPS = ("draft", "fit", "sample")


def declare_keys(folder: Path) -> None:
    """Put the keys beside the Parquet files, which cannot hold them."""
    with open_source(folder) as source:
        held = source.database
    tables = []
    for name, primary in PRIMARY.items():
        keys = [FOREIGN[name]] if name in FOREIGN else []
        if name == "partsupp":
            keys = [(("ps_partkey",), "part"), (("ps_suppkey",), "supplier")]
        elif name == "lineitem":
            keys = [(("l_orderkey",), "orders"), (("l_partkey", "l_suppkey"), "partsupp")]
        columns = tuple(replace(c, nullable=False) for c in held[name].columns)
        foreign = tuple(ForeignKey(c, t, PRIMARY[t]) for c, t in keys)
        tables.append(Table(name, columns, primary_key=primary, foreign_keys=foreign))
    files = {name: f"{name}.parquet" for name in PRIMARY}
    package = package_of(Database(tuple(tables)), files=files, format="parquet")
    (folder / PACKAGE_FILE).write_text(json.dumps(package, indent=1), encoding="utf-8")


def draft(data: Path, work: Path) -> None:
    plan = dw.Plan.draft(data, protect=["customer"], public=PUBLIC)
    for table, columns in FREE_TEXT.items():
        for column in columns:
            plan = plan.replace_domain(table, column, Opaque())
    tables = tuple(
        replace(
            t,
            mechanism="independent",
            keys=tuple(
                replace(k, method="random", max_degree=BOUNDS[t.name] if k.max_degree else None) for k in t.keys
            ),
        )
        for t in plan.tables
    )
    replace(plan, tables=tables).save(work / "plan.toml")


def fit(data: Path, work: Path) -> None:
    plan = dw.Plan.load(work / "plan.toml")
    dw.fit(data, plan, epsilon=EPSILON, delta=DELTA, insecure_seed=SEED).save(work / "model.dpw")


def sample(data: Path, work: Path) -> None:  # noqa: ARG001 - the data are not touched again
    shutil.rmtree(work / "copy", ignore_errors=True)
    dw.load(work / "model.dpw").sample(seed=SEED).write(work / "copy")


def measured(step: str, data: Path, work: Path) -> dict[str, float]:
    """Run one step in a process of its own."""
    command = [sys.executable, __file__, "--step", step, "--data", str(data), "--work", str(work)]
    child = os.posix_spawn(sys.executable, command, os.environ)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"the step {step} failed")
    return {"cpu_s": round(used.ru_utime + used.ru_stime, 1), "peak_mb": round(used.ru_maxrss / 1024)}


def rows_of(folder: Path) -> dict[str, int]:
    import pyarrow.parquet as pq

    return {name: pq.ParquetFile(folder / f"{name}.parquet").metadata.num_rows for name in PRIMARY}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        {"draft": draft, "fit": fit, "sample": sample}[options.step](options.data, options.work)
        return
    work = options.work or Path(tempfile.mkdtemp(prefix="tpch"))
    work.mkdir(parents=True, exist_ok=True)
    data = options.data or work / f"scale{options.scale:g}"
    if not (data / "lineitem.parquet").is_file():
        subprocess.run(["tpchgen-cli", "parquet", "-s", f"{options.scale:g}", "-o", str(data)], check=True)
    declare_keys(data)
    found = {step: measured(step, data, work) for step in STEPS}
    real, copy = rows_of(data), rows_of(work / "copy")
    print(f"TPC-H at scale {options.scale:g}: {sum(real.values()):,} rows; the copy has {sum(copy.values()):,}\n")
    print("| step | CPU, s | peak memory, MB |\n|---|---|---|")
    for step, used in found.items():
        print(f"| {step} | {used['cpu_s']:.0f} | {used['peak_mb']:,} |")
    if options.scale == 1:
        report = {"scale": 1, "rows": real, "copy": copy, "steps": found}
        Path(__file__).with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
