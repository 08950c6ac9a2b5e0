"""Whole databases, from the plans in examples/plans: every key valid, and how much of what spans tables survives.

    python benchmarks/databases.py run [--data FOLDER] [--only NAME ...] [--epsilon E ...] [--seeds N]
    python benchmarks/databases.py write        # the tables of what was run so far, into docs/databases.md

Runs are kept in benchmarks/databases.json and not repeated; delete the file to start
afresh. TPC-H at scale 0.1 is made by tpchgen-cli (the extra ``bench``), which must be
on the path. All figures but those on validity are made from real rows.

Errors are 100 x L1 over at most 600 sets of columns per relation, drawn once and for all; each next to the same rows
wired at random, and to rows whose columns are independent as well. Degrees are compared by the Kolmogorov-Smirnov
distance. Retention is the part of the association between columns of different tables that is still there: 1 all, 0
chance. Next to it stands what noise would allow if pairs of columns were counted one by one (:func:`allowed`).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import tempfile
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

import dpweave as dw
from dpweave.engines.opening import open_source
from dpweave.evaluation import distances as measures
from dpweave.evaluation.baselines import INDEPENDENT, RANDOM, RESAMPLED, SYNTHETIC, independent_columns, random_wiring
from dpweave.evaluation.comparisons import associated, crossing_errors, crossings, degree_distances
from dpweave.evaluation.evaluate import resolved
from dpweave.model.coded_database import encode
from dpweave.plan.plan import Plan
from dpweave.privacy.accounting import rho_of_epsilon
from dpweave.privacy.sensitivity import movement
from dpweave.report.integrity import check
from dpweave.schema.domain import Attribute, View

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from dpweave.model.coded_database import CodedDatabase

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "databases.json"
PAGE = ROOT / "docs" / "databases.md"
NAMES = ("chinook", "pedigree", "sakila", "census", "oulad", "movielens", "tpch")
DELTA = 1e-6
WORKLOADS = 60
"""Pairs of columns per relation at most, of which it is worked out what noise allows."""
FEW = 20
"""Rows of a target below which degrees are not compared: of two shops, one link more
for either is a distance of a half.
"""
TPCH = """
CREATE TABLE region (r_regionkey INTEGER PRIMARY KEY, r_name TEXT NOT NULL, r_comment TEXT);
CREATE TABLE nation (n_nationkey INTEGER PRIMARY KEY, n_name TEXT NOT NULL,
  n_regionkey INTEGER NOT NULL REFERENCES region,
  n_comment TEXT);
CREATE TABLE part (p_partkey INTEGER PRIMARY KEY, p_name TEXT NOT NULL, p_mfgr TEXT NOT NULL, p_brand TEXT NOT NULL,
  p_type TEXT NOT NULL, p_size INTEGER NOT NULL, p_container TEXT NOT NULL, p_retailprice DECIMAL(15,2) NOT NULL,
  p_comment TEXT NOT NULL);
CREATE TABLE supplier (s_suppkey INTEGER PRIMARY KEY, s_name TEXT NOT NULL, s_address TEXT NOT NULL,
  s_nationkey INTEGER NOT NULL REFERENCES nation, s_phone TEXT NOT NULL, s_acctbal DECIMAL(15,2) NOT NULL,
  s_comment TEXT NOT NULL);
CREATE TABLE partsupp (ps_partkey INTEGER NOT NULL REFERENCES part, ps_suppkey INTEGER NOT NULL REFERENCES supplier,
  ps_availqty INTEGER NOT NULL, ps_supplycost DECIMAL(15,2) NOT NULL, ps_comment TEXT NOT NULL,
  PRIMARY KEY (ps_partkey, ps_suppkey));
CREATE TABLE customer (c_custkey INTEGER PRIMARY KEY, c_name TEXT NOT NULL, c_address TEXT NOT NULL,
  c_nationkey INTEGER NOT NULL REFERENCES nation, c_phone TEXT NOT NULL, c_acctbal DECIMAL(15,2) NOT NULL,
  c_mktsegment TEXT NOT NULL, c_comment TEXT NOT NULL);
CREATE TABLE orders (o_orderkey INTEGER PRIMARY KEY, o_custkey INTEGER NOT NULL REFERENCES customer,
  o_orderstatus TEXT NOT NULL, o_totalprice DECIMAL(15,2) NOT NULL, o_orderdate DATE NOT NULL,
    o_orderpriority TEXT NOT NULL,
  o_clerk TEXT NOT NULL, o_shippriority INTEGER NOT NULL, o_comment TEXT NOT NULL);
CREATE TABLE lineitem (l_orderkey INTEGER NOT NULL REFERENCES orders, l_partkey INTEGER NOT NULL,
  l_suppkey INTEGER NOT NULL,
  l_linenumber INTEGER NOT NULL, l_quantity DECIMAL(15,2) NOT NULL, l_extendedprice DECIMAL(15,2) NOT NULL,
  l_discount DECIMAL(15,2) NOT NULL, l_tax DECIMAL(15,2) NOT NULL, l_returnflag TEXT NOT NULL,
    l_linestatus TEXT NOT NULL,
  l_shipdate DATE NOT NULL, l_commitdate DATE NOT NULL, l_receiptdate DATE NOT NULL, l_shipinstruct TEXT NOT NULL,
  l_shipmode TEXT NOT NULL, l_comment TEXT NOT NULL, PRIMARY KEY (l_orderkey, l_linenumber),
  FOREIGN KEY (l_partkey, l_suppkey) REFERENCES partsupp (ps_partkey, ps_suppkey));
"""
"""The tables of TPC-H with the keys of its own script (dss.ri)."""


def plan_of(name: str) -> Plan:
    return Plan.load(ROOT / "examples" / "plans" / f"{name}.toml")


def data_folder(given: str | None) -> Path:
    folder = Path(given or os.environ.get("DPWEAVE_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        raise SystemExit(f"no data in {folder}: give --data or set DPWEAVE_DATA")
    return folder


def source_of(name: str, data: Path) -> object:
    if name == "movielens":
        return {t: pq.read_table(data / "movielens" / f"{t}.parquet") for t in ("users", "movies", "ratings")}
    return tpch() if name == "tpch" else data / f"{name}.sqlite"


def tpch(scale: str = "0.1") -> Path:
    """TPC-H at a scale as a DuckDB file with keys; made once."""
    path = Path(tempfile.gettempdir()) / f"dpweave-tpch{'' if scale == '0.1' else f'-{scale}'}.duckdb"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["tpchgen-cli", "parquet", "-s", scale, "--output-dir", folder], check=True)
            with duckdb.connect(str(path)) as connection:
                connection.execute(TPCH)
                for table in Plan.load(ROOT / "examples" / "plans" / "tpch.toml").database.names:
                    connection.execute(f"INSERT INTO {table} SELECT * FROM '{folder}/{table}.parquet'")
    return path


# --- one run --------------------------------------------------------------------------------------------------------


def run(name: str, epsilon: float, seed: int, data: Path) -> dict[str, Any]:
    """Fit, sample, and compare with the real rows."""
    plan, source = plan_of(name), source_of(name, data)
    start = time.process_time()
    model = dw.fit(source, plan, epsilon=epsilon, delta=DELTA)
    fitted = time.process_time()
    db = model.sample(seed=seed)
    done = time.process_time()
    coded = encode(model.plan, db)
    checks = check(model.plan, db, coded, public=model.public)
    failed = [f"{c.rule}: {c.where} ({c.detail})" for c in checks if not c.passed and not c.advisory]
    with open_source(source) as opened:
        opened.declare(plan.database)
        tables = {n: opened.whole(n) for n in plan.database.names}
    return {
        "database": name,
        "epsilon": epsilon,
        "seed": seed,
        "fit_cpu": fitted - start,
        "sample_cpu": done - fitted,
        "rows": {n: (tables[n].num_rows, db[n].num_rows) for n in plan.promise.private},
        "checks": len(checks),
        "failed": failed,
        "repairs": dict(db.repairs),
        **compare(plan, tables, db, epsilon),
        **FACTS.get(name, lambda *_: {})(tables, db),
    }


def compare(plan: Plan, tables: Mapping[str, pa.Table], db: Mapping[str, pa.Table], epsilon: float) -> dict[str, Any]:
    plan = resolved(plan, tables)
    real, copy = encode(plan, tables), encode(plan, db)
    rng = np.random.default_rng(0)
    rivals = {
        SYNTHETIC: copy,
        RANDOM: random_wiring(plan, copy, rng),
        INDEPENDENT: independent_columns(plan, copy, rng),
    }
    errors: dict[str, list[tuple[int, Mapping[str, float]]]] = {"2-way": [], "3-way": [], "two-hop": []}
    kept: dict[str, list[tuple[int, float]]] = {SYNTHETIC: [], RANDOM: []}
    for crossing in crossings(plan):
        across = crossing.scope == "across"
        for k in (2, 3) if across else (2,):
            found = crossing_errors(crossing, real, rivals, k=k, rng=np.random.default_rng(1))
            if found is not None:
                errors[f"{k}-way" if across else "two-hop"].append((found.workloads, found.mean))
        if across:
            _, retention = associated(crossing, real, rivals, rng=np.random.default_rng(1))
            for rival, values in kept.items():
                if math.isfinite(retention.value[rival]):
                    values.append((retention.pairs, retention.value[rival]))
    return {
        "errors": {what: _means(found) for what, found in errors.items()},
        "retention": {rival: _mean(values) for rival, values in kept.items()},
        "allowed": allowed(plan, real, epsilon),
        "degree_ks": _means(_degrees(plan, real, rivals)),
    }


def allowed(plan: Plan, real: CodedDatabase, epsilon: float) -> float | None:
    r"""Retention that noise would leave if each pair of columns had the links' share of
    the budget for itself and were counted by itself.

    A cell with standardised residual r and noise :math:`\nu = \sigma / (n \sqrt{p q})` is then
    shrunk as well as can be, to :math:`r^3 / (r^2 + \nu^2)`; n are the rows that bounds leave.
    """
    found: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
    for crossing in crossings(plan):
        pairs = [(a, b) for a in crossing.left for b in crossing.right if crossing.scope == "across"]
        chosen = measures.sampled_combinations(pairs, 1, most=WORKLOADS, rng=np.random.default_rng(1)) if pairs else []
        rows = _seen_rows(plan, real, crossing.base, {a.path[:1] for a in (*crossing.left, *crossing.right)} - {()})
        for (pair,) in chosen:
            joint = _joint(real, crossing.base, pair)
            if not measures.is_associated(joint):
                continue
            view = View(crossing.base, tuple((str(i), a) for i, a in enumerate(pair)))
            l2 = max(movement(plan.promise, view, ("0", "1"), unit).l2 for unit in plan.promise.protected)
            share = joint / joint.sum()
            chance = np.outer(share.sum(axis=1), share.sum(axis=0))
            seen = chance > 0
            residual = measures.standardised_residuals(joint)[seen]
            found.append((residual**2, l2**2 / (2 * max(rows, 1.0) ** 2 * chance[seen])))
    if not found:
        return None
    rho = rho_of_epsilon(epsilon, delta=DELTA) * plan.shares.links
    kept = sum(float((r2**2 / (r2 + unit / rho)).sum()) for r2, unit in found)
    return kept / sum(float(r2.sum()) for r2, _ in found)


def _seen_rows(plan: Plan, real: CodedDatabase, base: str, steps: set[tuple[str, ...]]) -> float:
    """Linked rows that bounds leave: of the owning chain, and of the keys that are walked."""
    promise = plan.promise
    keys = {*promise.chain(base), *((base, step[0]) for step in steps)}
    rows = float(real.rows[base])
    for table, key in keys:
        degrees = real.degrees(table, key)
        bound = promise.bounds.get((table, key))
        if (table, key) == (base, key):
            rows *= degrees.sum() / max(real.rows[base], 1)
        if bound is not None:
            rows *= np.minimum(degrees, bound).sum() / max(degrees.sum(), 1)
    return rows


def _degrees(
    plan: Plan, real: CodedDatabase, rivals: Mapping[str, CodedDatabase]
) -> list[tuple[int, Mapping[str, float]]]:
    """Distances of degrees, but for targets so few that any difference at all is a large one."""
    targets = [plan.database[table].key[key].target for table, key in real.links if table not in plan.public]
    distances = degree_distances(plan, real, rivals)
    return [(1, d.target) for target, d in zip(targets, distances, strict=True) if real.rows[target] >= FEW]


def _mean(values: Sequence[tuple[int, float]]) -> float | None:
    count = sum(n for n, _ in values)
    return sum(n * v for n, v in values) / count if count else None


def _means(found: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float | None]:
    rivals = dict.fromkeys(rival for _, by in found for rival in by)
    return {rival: _mean([(n, by[rival]) for n, by in found if rival in by]) for rival in rivals}


# --- what is known about two of them --------------------------------------------------------------------------------


def oulad_facts(real: Mapping[str, pa.Table], db: Mapping[str, pa.Table]) -> dict[str, Any]:
    """Strength of four correlations in the copy, in parts of the real one, over values that the real data have."""
    plan = resolved(plan_of("oulad"), real)
    coded = [encode(plan, tables) for tables in (real, db)]
    out = {}
    for column in ("age_band", "highest_education", "imd_band"):
        pair = (Attribute("final_result"), Attribute(column, ("id_student",)))
        joint = [_joint(c, "enrolment", pair) for c in coded]
        seen = np.outer(joint[0].sum(axis=1) > 0, joint[0].sum(axis=0) > 0)
        strength = [measures.cramers_v(np.where(seen, j, 0.0), like=joint[0]) for j in joint]
        out[f"final_result ~ {column}"] = strength[1] / strength[0]
    eta = [_eta(t["student_assessment"]["score"], c) for t, c in zip((real, db), coded, strict=True)]
    out["score ~ assessment_type"] = eta[1] / eta[0]
    return {"strength": out}


def _joint(coded: CodedDatabase, base: str, pair: tuple[Attribute, Attribute]) -> np.ndarray[Any, Any]:
    (a, b), _ = coded.columns(base, pair)
    table = np.zeros([coded.size(base, x) for x in pair])
    np.add.at(table, (a, b), 1.0)
    return table


def _eta(scores: pa.ChunkedArray, coded: CodedDatabase) -> float:
    """Correlation ratio of the score by type of assessment."""
    (kind,), rows = coded.columns("student_assessment", [Attribute("assessment_type", ("id_assessment",))])
    values = scores.cast("float64").to_numpy()[rows]
    kind, values = kind[np.isfinite(values)], values[np.isfinite(values)]
    count = np.maximum(np.bincount(kind), 1)
    means = np.bincount(kind, weights=values) / count
    return float(np.sqrt((np.bincount(kind) * (means - values.mean()) ** 2).sum() / len(values)) / values.std())


def movielens_facts(real: Mapping[str, pa.Table], db: Mapping[str, pa.Table]) -> dict[str, Any]:
    """How far mean ratings by gender and by genre are off."""
    by = [mean_ratings(t) for t in (real, db)]
    off = {name: abs(by[1][name] - by[0][name]) for name in by[0] if name in by[1]}
    by_genre = {name: v for name, v in off.items() if name.startswith("is_")}
    genres = list(by_genre.values())
    return {
        "rating_by_gender": max(v for name, v in off.items() if not name.startswith("is_")),
        "rating_by_genre": {
            "mean": float(np.mean(genres)),
            "worst": max(genres),
            "within": sum(v < 0.1 for v in genres),
            "each": by_genre,
        },
    }


def mean_ratings(tables: Mapping[str, pa.Table]) -> dict[str, float]:
    users, movies, ratings = (tables[t] for t in ("users", "movies", "ratings"))
    ratings = ratings.filter(ratings["rating"].is_valid())
    rating = ratings["rating"].cast("float64").to_numpy()
    user = _positions(ratings["user_id"], users["user_id"])
    movie = _positions(ratings["movie_id"], movies["movie_id"])
    gender = np.array(users["gender"].to_pylist())[user]
    out = {str(g): float(rating[gender == g].mean()) for g in ("F", "M") if (gender == g).any()}
    for column in movies.column_names:
        if column.startswith("is_"):
            chosen = movies[column].to_numpy()[movie] == 1
            if chosen.any():
                out[column] = float(rating[chosen].mean())
    return out


def _positions(keys: pa.ChunkedArray, among: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    return pc.index_in(keys.cast("int64"), value_set=among.cast("int64").combine_chunks()).to_numpy()


FACTS = {"oulad": oulad_facts, "movielens": movielens_facts}


# --- keeping and writing --------------------------------------------------------------------------------------------


def load() -> dict[str, Any]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def keep(key: str, result: dict[str, Any]) -> None:
    results = load() | {key: result}
    partial = RESULTS.with_suffix(".part")
    partial.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
    partial.replace(RESULTS)


def run_all(args: argparse.Namespace) -> None:
    data = data_folder(args.data)
    for seed in range(args.seeds):
        for epsilon in args.epsilon:
            for name in args.only:
                key = f"{name}/{epsilon:g}/{seed}"
                if key in load():
                    continue
                result = run(name, epsilon, seed, data)
                keep(key, result)
                print(key, f"{result['fit_cpu']:.0f} s", result["failed"] or "all keys valid", flush=True)


PREFACE = """`python benchmarks/databases.py run`, then `write`, at delta 1e-6. Every copy was checked: keys lead to
rows, primary keys and unique columns hold, kinds of relations are kept, public tables are unchanged, declared rules
hold. Errors are 100 times the mean L1 distance over sets of columns from both sides of a relation, next to the same
rows wired at random, to rows whose columns are independent too, and to as many rows drawn from the real ones. Degrees
are compared by the Kolmogorov-Smirnov distance where the target has twenty rows or more. Retention is the part of the
association across relations that is left (1 all, 0 chance), next to what noise would allow if each pair of columns
had the links' share of the budget for itself and were counted by itself, which unit sums can pass. Time is CPU
seconds of fitting and sampling on one core.
"""


def write() -> None:
    """Put the tables between their marks on the page."""
    results = list(load().values())
    text = "\n".join([PREFACE, *_error_table(results), "", *_fact_lines(results)])
    begin, end = "<!-- measured: begin -->", "<!-- measured: end -->"
    before, _, rest = PAGE.read_text().partition(begin)
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}")


def _grouped(results: Sequence[Mapping[str, Any]]) -> dict[tuple[str, float], list[Mapping[str, Any]]]:
    groups: dict[tuple[str, float], list[Mapping[str, Any]]] = {}
    for r in sorted(results, key=lambda r: (r["database"], r["epsilon"], r["seed"])):
        groups.setdefault((r["database"], r["epsilon"]), []).append(r)
    return groups


def _error_table(results: Sequence[Mapping[str, Any]]) -> list[str]:
    head = (
        "database | ε | seeds | rules broken | 2-way: copy / random / independent / real rows drawn | 3-way | two-hop "
        "| degrees: copy / random | retention: copy / allowed | fit, sample"
    )
    lines = [f"| {head} |", "|---" * (head.count("|") + 1) + "|"]
    for (name, epsilon), runs in _grouped(results).items():
        rivals = (SYNTHETIC, RANDOM, INDEPENDENT, RESAMPLED)
        errors = [
            " / ".join(_average([r["errors"][what].get(x) for r in runs]) for x in rivals)
            for what in ("2-way", "3-way", "two-hop")
        ]
        degrees = " / ".join(_average([r["degree_ks"].get(x) for r in runs], 2) for x in (SYNTHETIC, RANDOM))
        kept = " / ".join(_average(x, 2) for x in ([r["retention"][SYNTHETIC] for r in runs], [runs[0]["allowed"]]))
        cost = ", ".join(f"{_average([r[x] for r in runs], 0)} s" for x in ("fit_cpu", "sample_cpu"))
        broken = sum(len(r["failed"]) for r in runs)
        cells = (name, f"{epsilon:g}", len(runs), broken, *errors, degrees, kept, cost)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _average(values: Sequence[float | None], digits: int = 1) -> str:
    there = [v for v in values if v is not None and not math.isnan(v)]  # nothing to compare where no row is
    return f"{np.mean(there):.{digits}f}" if there else "–"


def _fact_lines(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was asked of two databases in particular, over all seeds: means, and the worst of them."""
    lines = []
    for (name, epsilon), runs in _grouped(results).items():
        where = f"{name}, ε {epsilon:g}, {len(runs)} seeds"
        if "strength" in runs[0]:
            found = {k: [r["strength"][k] for r in runs] for k in runs[0]["strength"]}
            said = ", ".join(f"{k} {np.mean(v):.2f} ({min(v):.2f})" for k, v in found.items())
            lines.append(f"- {where}: part of the real strength, mean (least): {said}.")
        if "rating_by_gender" in runs[0]:
            off = [r["rating_by_gender"] for r in runs]
            mean, within = ([r["rating_by_genre"][k] for r in runs] for k in ("mean", "within"))
            each = {
                g: float(np.mean([r["rating_by_genre"]["each"][g] for r in runs]))
                for g in runs[0]["rating_by_genre"]["each"]
            }
            worst = max(each, key=each.__getitem__)
            lines.append(
                f"- {where}: mean rating by gender off by {np.mean(off):.3f} ({max(off):.3f}); by genre by"
                f" {np.mean(mean):.2f} in the mean, {np.mean(within):.1f} of 18 genres within 0.1 (least"
                f" {min(within)}); the genre that is off most, in the mean over seeds, is {worst.removeprefix('is_')}"
                f" by {each[worst]:.2f}."
            )
    return [textwrap.fill(line, 100, subsequent_indent="  ") for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("run", "write"))
    parser.add_argument("--data")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--epsilon", nargs="+", type=float, default=(1.0, 4.0))
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    match args.command:
        case "run":
            run_all(args)
        case "write":
            write()


if __name__ == "__main__":
    main()
