"""The paper's experiments (`sec::experiments`): how well links are learned by its own method, from one command.

    python benchmarks/paper.py run [--data FOLDER] [--movielens DIR] [--ipums FILE] [--only SWEEP ...] [--seeds 0 1 2]
    python benchmarks/paper.py write        # tables and plots from what was run so far, into docs/paper.md

Runs are kept in benchmarks/paper.json under data/sweep/tables/value/seed and not repeated, and synthetic tables under
build/paper, one pair per mechanism and seed; delete both to start afresh. ``write`` also quotes links_speed.json.
Everything goes through ``dw.fit`` (tables) and ``dw.link`` (links), so all noise is the Curator's.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dpweave as dw
from dpweave.links.link_method import RandomWiring
from dpweave.links.pgd_learner import PGD
from dpweave.measure.cross_workloads import answers_from_links, cross_workloads
from dpweave.plan.entries import ColumnPlan, TablePlan
from dpweave.plan.plan import Plan
from dpweave.schema.arrow_types import type_of_arrow
from dpweave.schema.database import Column
from dpweave.schema.domain import Categories

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "paper.json"
SPEED = ROOT / "benchmarks" / "links_speed.json"
CACHE = ROOT / "build" / "paper"
DELTA = 1e-5
TABLE_EPSILON = 2.0
EPSILONS = {"movielens": (0.1, 0.5, 1.0, 2.0, 4.0, 6.0, 10.0), "census": (0.05, 0.1, 0.25, 0.5, 0.75, 1.0)}
SCRIPTS = {
    "movielens": PGD(
        K=15,
        worst=15,
        guaranteed=0.0,
        tau=0.2065,
        candidates=300,
        fitted="random",
        start="random",
        projection="rescaled",
    ),
    "census": PGD(slices=3, guaranteed=0.08, candidates=300, start="random", projection="rescaled"),
}
"""What the authors' scripts run with. On MovieLens they depart from the text in the number of workloads
chosen and fitted, in guaranteed links and in the slices (1,247 users × 801 movies), on IPUMS in guaranteed
links alone; on both, 300 workloads compete, slices start from random links and the projection is a rescaling.
"""
SWEEPS: dict[str, dict[str, tuple[float, ...]]] = {
    "movielens": {"T": (5, 25), "alpha": (0.0, 0.5), "K": (1, 4), "worst": (1, 4)},
    "census": {"T": (5, 25), "alpha": (0.0, 0.5), "K": (1, 8), "worst": (1, 15)},
}
"""One setting at a time, from the scripts' settings, on MST tables."""
SWEEP_EPSILON = {"movielens": 2.0, "census": 1.0}
FEW = {"movielens": (0.5, 2.0, 10.0), "census": (0.1, 0.5, 1.0)}
"""Values of eps_rel for curves that need no more."""
PAPER = {
    ("movielens", "aim", "mean"): (18.1, 15.3, 12.6, 10.0, 8.2, 7.5, 6.8),
    ("movielens", "mst", "mean"): (18.9, 15.8, 13.2, 10.5, 8.5, 8.2, 7.3),
    ("movielens", "aim", "max"): (38.4, 34.8, 31.8, 28.7, 24.3, 23.8, 21.6),
    ("movielens", "mst", "max"): (41.6, 40.5, 35.8, 30.8, 27.9, 28.1, 26.0),
    ("census", "aim", "mean"): (9.4, 7.4, 5.2, 4.5, 4.4, 4.2),
}
"""The paper's figures, read off its plots (ALGORITHMS B); its second data set is IPUMS, ours a census of its shape."""


# --- data -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Data:
    """Two tables and the links between them; ``right`` is ``left`` in a self-referential relation."""

    name: str
    left: pa.Table
    right: pa.Table
    pairs: pa.Table
    left_key: str
    right_key: str
    max_degree: int
    slices: int
    synthetic_rows: tuple[int, int] | None = None

    @property
    def selfish(self) -> bool:
        return self.right is self.left

    def own_key(self, side: str) -> str:
        return self.left_key if side == "left" or self.selfish else self.right_key

    def codes(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, int], np.ndarray]:
        """Codes of the real rows and links by position, for scoring (NOT PRIVATE)."""
        return (*encode(self, self.left, self.right), positions(self))


def domains(data: Data) -> dict[str, list[Any]]:
    """Values by column name. They are public: a census' code book, a web site's forms."""
    found: dict[str, list[Any]] = {}
    for side, table in (("left", data.left), ("right", data.right)):
        for column in table.column_names:
            if column != data.own_key(side):
                found[f"{side}.{column}"] = sorted(table[column].unique().to_pylist())
    return found


def encode(
    data: Data, left: pa.Table, right: pa.Table
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[str, int]]:
    values = domains(data)
    sides: dict[str, dict[str, np.ndarray]] = {"left": {}, "right": {}}
    for name, known in values.items():
        side, column = name.split(".", 1)
        place = {v: i for i, v in enumerate(known)}
        table = left if side == "left" else right
        sides[side][name] = np.array([place[v] for v in table[column].to_pylist()], dtype=np.int64)
    return sides["left"], sides["right"], {name: len(v) for name, v in values.items()}


def positions(data: Data) -> np.ndarray:
    left = {k: i for i, k in enumerate(data.left[data.left_key].to_pylist())}
    right = {k: i for i, k in enumerate(data.right[data.own_key("right")].to_pylist())}
    ends = zip(data.pairs[data.left_key].to_pylist(), data.pairs[data.right_key].to_pylist(), strict=True)
    return np.array([[left[a], right[b]] for a, b in ends], dtype=np.int64)


def data_folder(given: str | None) -> Path:
    folder = Path(given or os.environ.get("DPWEAVE_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        raise SystemExit(f"no data in {folder}: set DPWEAVE_DATA, or give --movielens and --ipums")
    return folder


def movielens_parquet(given: str | None) -> Data:
    """The prepared tables: 6,040 users, 3,883 movies, 10,075 links."""
    folder = data_folder(given) / "movielens"
    users = pq.read_table(folder / "users.parquet", columns=["user_id", "gender", "age", "occupation"])
    movies = pq.read_table(folder / "movies.parquet").drop_columns(["title"])
    ratings = pq.read_table(folder / "ratings_d10.parquet", columns=["user_id", "movie_id"])
    return movielens_data(users, movies, ratings)


def movielens_data(users: pa.Table, movies: pa.Table, ratings: pa.Table) -> Data:
    return Data("movielens", plain(users), plain(movies), plain(ratings), "user_id", "movie_id", 10, 8)


def plain(table: pa.Table) -> pa.Table:
    """Without what pandas left in the schema, and with ordinary types."""
    arrays = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        arrays[name] = column.cast(pa.int64() if pa.types.is_integer(column.type) else pa.string())
    return pa.table(arrays)


GENRES = [
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
]


def movielens_files(folder: Path, *, max_degree: int = 10) -> Data:
    """GroupLens' own ``ml-1m``: ``users.dat``, ``movies.dat``, ``ratings.dat`` with ``::`` between fields.

    Links are thinned as in the paper: the first 10 ratings of each movie in file order, then of each user.
    """

    def fields(name: str) -> Iterator[list[str]]:
        with (folder / name).open(encoding="latin-1") as lines:
            for line in lines:
                if line.strip():
                    yield line.rstrip("\r\n").split("::")

    rows = [(int(user), gender, int(age), int(job)) for user, gender, age, job, _ in fields("users.dat")]
    users = pa.table(dict(zip(("user_id", "gender", "age", "occupation"), zip(*rows, strict=True), strict=True)))
    found = [(int(movie), set(genres.split("|"))) for movie, _, genres in fields("movies.dat")]
    movies = pa.table(
        {"movie_id": [m for m, _ in found]}
        | {"is_" + g.lower().replace("-", "_").replace("'", ""): [int(g in has) for _, has in found] for g in GENRES}
    )
    links = [(int(user), int(movie)) for user, movie, _, _ in fields("ratings.dat")]
    for side in (1, 0):
        links = list(first_of_each(links, side, max_degree))
    ratings = pa.table({"user_id": [u for u, _ in links], "movie_id": [m for _, m in links]})
    return movielens_data(users, movies, ratings)


def first_of_each(links: list[tuple[int, int]], side: int, limit: int) -> Iterator[tuple[int, int]]:
    seen: dict[int, int] = {}
    for link in links:
        seen[link[side]] = seen.get(link[side], 0) + 1
        if seen[link[side]] <= limit:
            yield link


def person_data(people: Mapping[str, list[Any]], parents: list[tuple[Any, Any]], *, rows: int) -> Data:
    """A person table with links from child to parent: the shape of the paper's IPUMS experiment, d_max 4."""
    table = plain(pa.table(dict(people)))
    known = set(table["person"].to_pylist())
    pairs = list(first_of_each([p for p in dict.fromkeys(parents) if set(p) <= known and p[0] != p[1]], 1, 4))
    pairs = list(first_of_each(pairs, 0, 4))
    links = pa.table({"person": [c for c, _ in pairs], "parent": [p for _, p in pairs]})
    return Data("census", table, table, plain(links), "person", "parent", 4, 3, (rows, rows))


AGE_EDGES = (6, 12, 18, 21, 25, 30, 40, 50, 65)
HOURS_EDGES = (1, 16, 31, 40, 41, 51)
SCHOOL_EDGES = (0, 2, 9, 13, 15, 16)


def census(given: str | None, *, rows: int = 10_000) -> Data:
    """The census person table with father and mother, and columns of the kind that the paper took from IPUMS.

    There they are sex, marital status, one flag per race, health insurance and employment; here sex, a flag per race,
    employment, hours of work, school and military service. No age: the paper has none.
    """
    with sqlite3.connect(f"file:{data_folder(given) / 'census.sqlite'}?mode=ro", uri=True) as database:
        query = "select person_id, sex, race_id, esr, wkhp, schg, mil, father_id, mother_id from person"
        person, sex, race, esr, hours, school, mil, father, mother = map(
            list, zip(*database.execute(query), strict=True)
        )
    people = (
        {"person": person, "sex": sex}
        | {f"race_{r}": [int(mine == r) for mine in race] for r in sorted(set(race))}
        | {
            "employment": esr,
            "hours": np.digitize(hours, HOURS_EDGES).tolist(),
            "school": np.digitize(school, SCHOOL_EDGES).tolist(),
            "military": mil,
        }
    )
    parents = [(c, p) for mine in (father, mother) for c, p in zip(person, mine, strict=True) if p is not None]
    return person_data(people, parents, rows=rows)


def ipums(file: Path, *, share: float = 0.05, rows: int = 10_000) -> Data:
    """An IPUMS USA extract (fixed width or CSV) with its DDI beside it: person records with the pointers of `MOMLOC` …

    A person is (SERIAL, PERNUM); MOMLOC, MOMLOC2, POPLOC and POPLOC2 give the PERNUM of
    parents in the household, 0 for none. Other coded columns are attributes, AGE in
    groups. The first ``share`` of the records is used, as in the paper.
    """
    from ipumspy import readers

    ddi = readers.read_ipums_ddi(file.with_name(file.name.split(".")[0] + ".xml"))
    frame = readers.read_microdata(ddi, file)
    frame = frame.head(max(int(share * len(frame)), 1))
    pointers = [c for c in ("MOMLOC", "MOMLOC2", "POPLOC", "POPLOC2") if c in frame]
    if not pointers or not {"SERIAL", "PERNUM"} <= set(frame):
        raise SystemExit("the extract needs SERIAL, PERNUM and at least one of MOMLOC, MOMLOC2, POPLOC, POPLOC2")
    key = {(s, n): i for i, (s, n) in enumerate(zip(frame["SERIAL"], frame["PERNUM"], strict=True))}
    parents = [
        (key[s, n], key[s, at])
        for pointer in pointers
        for s, n, at in zip(frame["SERIAL"], frame["PERNUM"], frame[pointer], strict=True)
        if at > 0 and (s, at) in key
    ]
    keys = {"YEAR", "SAMPLE", "SERIAL", "CBSERIAL", "PERNUM", "HHWT", "PERWT", "CLUSTER", "STRATA", *pointers}
    people: dict[str, list[Any]] = {"person": list(range(len(frame)))}
    for column in frame.columns:
        if column == "AGE":
            people["age"] = np.digitize(frame[column].to_numpy(dtype=float), AGE_EDGES).tolist()
        elif column not in keys and frame[column].nunique() <= 64:
            people[column.lower()] = [int(x) for x in frame[column]]
    return person_data(people, parents, rows=rows)


# --- one run --------------------------------------------------------------------------------------------------------


def synthetic_tables(data: Data, mechanism: str, *, seed: int) -> tuple[pa.Table, pa.Table]:
    """Synthetic rows of both sides: from AIM or MST at eps 2 each, or the real rows (resampled where sizes differ)."""
    sides = ("left",) if data.selfish else ("left", "right")
    rows = data.synthetic_rows or (data.left.num_rows, data.right.num_rows)
    made = {}
    for side, count in zip(("left", "right"), rows, strict=True):
        if side not in sides:
            continue
        real = data.left if side == "left" else data.right
        key = data.own_key(side)
        if mechanism == "real":
            at = np.random.default_rng(seed).choice(real.num_rows, size=count, replace=count > real.num_rows)
            table = real if count == real.num_rows else real.take(np.sort(at))
        else:
            known = domains(data)
            columns = tuple(
                ColumnPlan(
                    Column(c, type_of_arrow(real.schema.field(c).type), nullable=False),
                    None if c == key else Categories(tuple(known[f"{side}.{c}"])),
                )
                for c in real.column_names
            )
            plan = Plan((TablePlan("rows", columns, (key,), mechanism=mechanism),), ("rows",), neighbours="record")
            model = dw.fit({"rows": real}, plan, epsilon=TABLE_EPSILON, delta=DELTA)
            table = model.sample(scale=count / real.num_rows, seed=seed)["rows"]
        made[side] = table.set_column(table.column_names.index(key), key, pa.array(range(table.num_rows)))
    return made["left"], made["left"] if data.selfish else made["right"]


def one_run(data: Data, left: pa.Table, right: pa.Table, method: Any, *, epsilon: float, seed: int) -> dict[str, float]:
    """Learn links between the synthetic tables and compare them with the real ones: 100 × L1 over 3-way workloads."""
    start = time.process_time()
    columns = {name.split(".", 1)[1]: values for name, values in domains(data).items()}
    links = dw.link(
        data.left,
        data.right,
        data.pairs,
        left_key=data.left_key,
        right_key=data.right_key,
        synthetic_left=left,
        synthetic_right=right,
        max_degree=data.max_degree,
        k=3,
        epsilon=epsilon,
        delta=DELTA,
        neighbours="record",
        on_excess="truncate",
        method=method,
        m_syn=round(data.pairs.num_rows * left.num_rows / data.left.num_rows),
        domains=columns,
        seed=seed,
    )
    took = time.process_time() - start
    pairs = np.stack([column.to_numpy() for column in links.pairs.columns], axis=1)
    return score(data, left, right, pairs) | {"seconds": took}


def sample_run(data: Data, *, seed: int) -> dict[str, float]:
    """The real tables and as many of the real links as are made: what links that were learned perfectly would score."""
    start = time.process_time()
    rows = data.synthetic_rows or (data.left.num_rows,)
    count = round(data.pairs.num_rows * rows[0] / data.left.num_rows)
    some = np.random.default_rng(seed).choice(data.pairs.num_rows, size=count, replace=False)
    return score(data, data.left, data.right, positions(data)[some]) | {"seconds": time.process_time() - start}


def score(data: Data, left: pa.Table, right: pa.Table, pairs: np.ndarray) -> dict[str, float]:
    real_left, real_right, shape, real = data.codes()
    made_left, made_right, _ = encode(data, left, right)
    errors = []
    for w in cross_workloads(list(real_left), list(real_right), k=3):
        truth = answers_from_links(w, real_left, real_right, real, shape=shape) / len(real)
        made = answers_from_links(w, made_left, made_right, pairs, shape=shape) / max(len(pairs), 1)
        errors.append(np.abs(truth - made).sum())
    return {"mean": 100 * float(np.mean(errors)), "max": 100 * float(np.max(errors))}


# --- all runs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One point of one curve; ``name`` is its key in the results. Without a method it is a sample of the real links."""

    data: str
    sweep: str
    tables: str
    value: float
    seed: int
    epsilon: float
    method: Any

    @property
    def name(self) -> str:
        return f"{self.data}/{self.sweep}/{self.tables}/{self.value:g}/{self.seed}"


def curves(data: str, slices: int) -> Iterator[tuple[str, str, tuple[float, ...], Any]]:
    """Every curve over eps_rel: its name, the synthetic tables, the values and the method."""
    text = PGD(slices=slices)
    for tables in ("mst", "aim"):
        yield "script", tables, EPSILONS[data], SCRIPTS[data]
        yield "text", tables, EPSILONS[data], text
    yield "script", "real", FEW[data], SCRIPTS[data]
    if data == "movielens":
        yield "mixed", "mst", EPSILONS[data], replace(text, fitted="random", projection="rescaled")
        yield "even", "mst", FEW[data], replace(text, start="even")


def schedule(data: str, slices: int, seed: int) -> Iterator[Run]:
    """All runs of one seed. Where a sweep meets the script's own setting, the script's run is its point."""
    for tables in ("mst", "aim", "real"):
        yield Run(data, "random", tables, 0.0, seed, 1.0, RandomWiring())
    if data == "census":
        yield Run(data, "sample", "real", 0.0, seed, 1.0, None)
    for curve, tables, grid, method in curves(data, slices):
        for epsilon in grid:
            yield Run(data, curve, tables, epsilon, seed, epsilon, method)
    for sweep, values in SWEEPS[data].items():
        for value in values:
            method = replace(SCRIPTS[data], **{sweep: value if sweep == "alpha" else int(value)})
            yield Run(data, sweep, "mst", value, seed, SWEEP_EPSILON[data], method)


STAGES = ("random", "sample", "script", "T", "alpha", "K", "worst", "mixed", "even", "text", "real")
"""What comes first, on all data and seeds: so that something complete is there at any time."""


def stage(one: Run) -> int:
    return STAGES.index("real" if one.tables == "real" and one.sweep == "script" else one.sweep)


def cached_tables(data: Data, mechanism: str, *, seed: int) -> tuple[pa.Table, pa.Table]:
    """Synthetic tables of one seed, fitted the first time they are asked for."""
    files = [CACHE / f"{data.name}-{mechanism}-{seed}-{side}.parquet" for side in ("left", "right")]
    if not all(file.exists() for file in files):
        CACHE.mkdir(parents=True, exist_ok=True)
        for file, table in zip(files, synthetic_tables(data, mechanism, seed=seed), strict=True):
            pq.write_table(table, file)
    left, right = map(pq.read_table, files)
    return left, left if data.selfish else right


def run(everything: list[Data], only: Collection[str], seeds: list[int]) -> None:
    done = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    todo = [(data, one) for seed in seeds for data in everything for one in schedule(data.name, data.slices, seed)]
    for data, one in sorted(todo, key=lambda x: stage(x[1])):
        if one.name in done or one.sweep not in only:
            continue
        if one.method is None:
            done[one.name] = sample_run(data, seed=one.seed)
        else:
            tables = cached_tables(data, one.tables, seed=one.seed)
            done[one.name] = one_run(data, *tables, one.method, epsilon=one.epsilon, seed=one.seed)
        print(one.name, {k: round(v, 2) for k, v in done[one.name].items()}, flush=True)
        RESULTS.write_text(json.dumps(done, indent=1, sort_keys=True) + "\n")


# --- tables and plots -----------------------------------------------------------------------------------------------


Results = dict[str, dict[str, float]]
Found = dict[tuple[str, str, str], dict[float, list[dict[str, float]]]]
"""Results of all seeds by data, curve and tables, then by value."""

NAMES = {
    "script": "authors' script",
    "text": "text",
    "even": "text, even start",
    "mixed": "text, random workloads, rescaled",
}
"""What the page calls the curves over eps_rel."""


def collect(done: Results) -> Found:
    found: Found = {}
    for name, result in done.items():
        data, sweep, tables, value, _ = name.split("/")
        found.setdefault((data, sweep, tables), {}).setdefault(float(value), []).append(result)
    for data, sweeps in SWEEPS.items():
        met = found.get((data, "script", "mst"), {}).get(SWEEP_EPSILON[data])
        for sweep in sweeps:
            if met and (data, sweep, "mst") in found:
                found[data, sweep, "mst"][float(getattr(SCRIPTS[data], sweep))] = met
    return found


def cell(results: list[dict[str, float]], what: str) -> str:
    values = [r[what] for r in results]
    return f"{np.mean(values):.1f} ± {np.std(values):.1f}" if len(values) > 1 else f"{values[0]:.1f}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)] + [""]


def epsilon_table(found: Found, data: str, what: str) -> list[str]:
    grid = EPSILONS[data]
    rows = []
    for tables in ("mst", "aim", "real"):
        if (data, tables, what) in PAPER:
            figures = [f"{x:g}" for x in PAPER[data, tables, what]]
            rows.append([f"*{tables}, the paper{' on IPUMS' if data == 'census' else ''}*", *figures])
        for curve, called in NAMES.items():
            got = found.get((data, curve, tables), {})
            if got:
                rows.append([f"{tables}, {called}", *(cell(got[e], what) if e in got else "" for e in grid)])
        for constant, called in (("random", "random wiring"), ("sample", "as many of the real links")):
            flat = found.get((data, constant, tables), {}).get(0.0)
            if flat:
                rows.append([f"{tables}, {called}", *[cell(flat, what)] * len(grid)])
    return [f"### {data}: {what} error by eps_rel", "", *table(["tables, settings", *(f"{e:g}" for e in grid)], rows)]


def sweep_table(found: Found, data: str, sweep: str) -> list[str]:
    got = found.get((data, sweep, "mst"), {})
    if not got:
        return []
    values = sorted(got)
    rows = [[what, *(cell(got[v], what) for v in values)] for what in ("mean", "max")]
    title = f"### {data}: {sweep}, eps_rel {SWEEP_EPSILON[data]:g}, MST tables, authors' script"
    return [title, "", *table(["error", *(f"{v:g}" for v in values)], rows)]


def tables_text(done: Results) -> str:
    found = collect(done)
    lines: list[str] = []
    for data in ("movielens", "census"):
        for what in ("mean", "max"):
            lines += epsilon_table(found, data, what)
        for sweep in SWEEPS[data]:
            lines += sweep_table(found, data, sweep)
    return "\n".join(lines)


def draw(axis: Any, got: dict[float, list[dict[str, float]]], label: str) -> None:
    """One curve of mean errors, with standard deviations over seeds."""
    x = sorted(got)
    y = [[r["mean"] for r in got[v]] for v in x]
    axis.errorbar(x, [np.mean(v) for v in y], [np.std(v) for v in y], marker="o", ms=3, label=label)


def plots(done: Results, folder: Path) -> list[str]:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "dpweave"
    from matplotlib import pyplot as plt

    found = collect(done)
    made = []
    for data in ("movielens", "census"):
        sweeps = [s for s in SWEEPS[data] if (data, s, "mst") in found]
        figure, axes = plt.subplots(1, 1 + len(sweeps), figsize=(4.0 * (1 + len(sweeps)), 3.4), squeeze=False)
        first, *others = axes[0]
        for curve, called in NAMES.items():
            if (data, curve, "mst") in found:
                draw(first, found[data, curve, "mst"], called)
        paper = next(t for t in ("mst", "aim") if (data, t, "mean") in PAPER)
        where = f"the paper, {paper.upper()}{' on IPUMS' if data == 'census' else ''}"
        first.plot(EPSILONS[data], PAPER[data, paper, "mean"], "k--", label=where)
        first.set_xlabel("eps_rel, MST tables")
        for axis, sweep in zip(others, sweeps, strict=True):
            draw(axis, found[data, sweep, "mst"], NAMES["script"])
            axis.set_xlabel(f"{sweep}, at eps_rel {SWEEP_EPSILON[data]:g}")
        flat = found.get((data, "random", "mst"), {}).get(0.0, [])
        for axis in axes[0]:
            if flat:
                axis.axhline(np.mean([r["mean"] for r in flat]), color="grey", lw=1, label="random wiring")
            axis.set_ylabel("100 × mean L1")
            axis.set_ylim(bottom=0)
            axis.legend(fontsize=6)
        figure.tight_layout()
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / f"paper_{data}.svg", metadata={"Date": None})
        plt.close(figure)
        made.append(f"![{data}](figures/paper_{data}.svg)")
    return made


def speed_text(found: dict[str, float]) -> str:
    """What benchmarks/links_speed.py measured, in a sentence."""
    rows = f"{found['rows']:,.0f}"
    return (
        f"One slice solve of {rows} × {rows} rows with 8 three-way workloads and 100 steps takes"
        f" {found['collapsed s']:.2f} s of CPU time on {found['types']:,.0f} pairs of types, and"
        f" {found['explicit s']:.1f} s with Q as an explicit sparse matrix (scipy CSR, not counting"
        f" {found['explicit, building Q s']:.1f} s to build it): **{found['ratio']:.0f} times** as long, for the same"
        f" result (largest difference {found['largest difference']:.0e}). The whole MovieLens run at the defaults, 15"
        f" rounds of 8 slices, takes **{found['MovieLens at the defaults, s']:.0f} s**."
    )


def between(text: str, what: str, new: str) -> str:
    """Replace what stands between the two marks of ``what``."""
    begin, end = f"<!-- {what}: begin -->", f"<!-- {what}: end -->"
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return before + begin + "\n\n" + new + "\n\n" + end + after


def write() -> None:
    done = json.loads(RESULTS.read_text())
    page = ROOT / "docs" / "paper.md"
    figures = plots(done, ROOT / "docs" / "figures")
    text = between(page.read_text(), "measured", "\n\n".join([*figures, tables_text(done).rstrip()]))
    page.write_text(between(text, "speed", speed_text(json.loads(SPEED.read_text()))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "write"])
    parser.add_argument("--data", help="folder with the prepared databases")
    parser.add_argument("--movielens", type=Path, help="folder with GroupLens' own ml-1m files")
    parser.add_argument("--ipums", type=Path, help="IPUMS USA extract; its DDI (.xml) beside it")
    parser.add_argument("--sets", nargs="+", default=["movielens", "census"], choices=["movielens", "census"])
    parser.add_argument("--only", nargs="+", default=list(STAGES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    arguments = parser.parse_args()
    if arguments.what == "write":
        write()
        return
    everything = []
    if "movielens" in arguments.sets:
        given = arguments.movielens
        everything.append(movielens_files(given) if given else movielens_parquet(arguments.data))
    if "census" in arguments.sets:
        everything.append(ipums(arguments.ipums) if arguments.ipums else census(arguments.data))
    run(everything, arguments.only, arguments.seeds)


if __name__ == "__main__":
    main()
