"""Tables of docs/decisions/links-map.md: random wiring, the paper's learner and ours, side by side.

    python -m benchmarks.links d10 [--seeds 5] [--tables real AIM] [--pgd]    MovieLens, the paper's setting
    python -m benchmarks.links full [--seeds 5]            all 1,000,209 ratings, users protected
    python -m benchmarks.links census [--seeds 5]          persons and their households
    python -m benchmarks.links null                        links that are truly random
    python -m benchmarks.links speed                       wiring from 10^5 to 10^7 links

Run from the project's root. Counts come through ``tests.windows.ArrayWindow``: the true law of the noise, in memory.
MovieLens is looked for in $DPWEAVE_DATA, else ../shared/data.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import sys
import time
from itertools import combinations
from pathlib import Path

import numpy as np

from dpweave.links.base import LinkProblem, link_model, random_links
from dpweave.links.degrees import Degrees, bucketed, buckets, decode, seen
from dpweave.links.map import MAP
from dpweave.links.types import RowTypes
from dpweave.links.wiring import wire
from dpweave.links.workload import answers_from_links, cross_workloads
from dpweave.privacy.accounting import rho_of_epsilon
from dpweave.tables.base import Structure, table_model
from tests.windows import ArrayWindow


def quiet(_what: str, _share: float) -> None:
    pass


class MovieLens:
    """Users and movies as codes, links as positions, and the 513 three-way cross-table workloads."""

    def __init__(self, ratings: str) -> None:
        import pyarrow.parquet as pq

        folder = Path(os.environ.get("DPWEAVE_DATA", "../shared/data")) / "movielens"
        if not folder.exists():
            sys.exit(f"no MovieLens in {folder}; set DPWEAVE_DATA")
        users, movies, links = (pq.read_table(folder / f"{n}.parquet") for n in ("users", "movies", ratings))
        self.left = {
            c: np.unique(users[c].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)[1].astype(np.int64)
            for c in ("gender", "age", "occupation")
        }
        self.right = {c: movies[c].to_numpy().astype(np.int64) for c in movies.column_names if c.startswith("is_")}
        self.shape = {c: int(v.max()) + 1 for c, v in (self.left | self.right).items()}
        position = [
            {key: i for i, key in enumerate(t[c].to_pylist())} for t, c in ((users, "user_id"), (movies, "movie_id"))
        ]
        self.pairs = np.array(
            [
                [position[0][u], position[1][m]]
                for u, m in zip(links["user_id"].to_pylist(), links["movie_id"].to_pylist(), strict=True)
            ]
        )
        self.truth = self.answers(self.pairs, self.left)

    def answers(self, pairs: np.ndarray, left: dict[str, np.ndarray]) -> list[np.ndarray]:
        lefts = {c: left[c][pairs[:, 0]] for c in self.left}
        rights = {c: self.right[c][pairs[:, 1]] for c in self.right}
        triples = [(a, b, c) for a in self.left for b, c in combinations(self.right, 2)]
        triples += [(a, b, c) for a, b in combinations(self.left, 2) for c in self.right]
        out = []
        for triple in triples:
            flat = np.zeros(len(pairs), dtype=np.int64)
            for c in triple:
                flat = flat * self.shape[c] + (lefts[c] if c in lefts else rights[c])
            out.append(np.bincount(flat, minlength=math.prod(self.shape[c] for c in triple)) / len(pairs))
        return out

    def error(self, pairs: np.ndarray, left: dict[str, np.ndarray] | None = None) -> tuple[float, float]:
        """100 times the mean and the largest L1 distance."""
        found = self.answers(pairs, self.left if left is None else left)
        distances = [100 * np.abs(a - b).sum() for a, b in zip(found, self.truth, strict=True)]
        return float(np.mean(distances)), float(np.max(distances))

    def window(self, pairs: np.ndarray, left: dict[str, np.ndarray], l2: float, seed: int) -> ArrayWindow:
        codes = {c: v[pairs[:, 0]] for c, v in left.items()} | {c: v[pairs[:, 1]] for c, v in self.right.items()}
        return ArrayWindow(codes, {c: self.shape[c] for c in codes}, l1=l2 * math.sqrt(2), l2=l2, seed=seed)


def row(name: str, results: list[tuple[float, float]], seconds: float) -> None:
    mean, most = np.mean(results, axis=0)
    spread = np.std([m for m, _ in results])
    print(f"| {name} | {mean:.2f} ± {spread:.2f} | {most:.1f} | {seconds:.1f} |", flush=True)


def paper_setting(seeds: int, *, pgd: bool, tables: list[str]) -> None:
    data = MovieLens("ratings_d10")
    m, bound = len(data.pairs), 10
    sides = {
        "real": lambda _: (data.left, data.right),
        "AIM": lambda seed: (aim(data.left, data, seed), aim(data.right, data, seed)),
    }
    made = {name: [sides[name](seed) for seed in range(seeds)] for name in tables}
    print("| MovieLens d10, record, δ 1e-5 | mean | max | s |\n|---|---|---|---|")
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0, 10.0):
        rho = rho_of_epsilon(epsilon, delta=1e-5)
        for name in tables:
            results: dict[str, list[tuple[float, float]]] = {}
            spent: dict[str, float] = {}
            for seed in range(seeds):
                left, right = made[name][seed]
                problem = LinkProblem(left, right, shape=data.shape, links=m, links_measured=m)
                judge = lambda pairs, left=left, right=right: score(data, pairs, left, right)  # noqa: E731
                rng = np.random.default_rng(seed)
                results.setdefault("random", []).append(judge(random_links(problem, rng)))
                for method in ("map", "pgd") if pgd else ("map",):
                    start = time.perf_counter()
                    window = data.window(data.pairs, data.left, bound * math.sqrt(2), seed)
                    extra = {"degrees": Degrees(left_bound=bound, right_bound=bound)} if method == "map" else {}
                    model = link_model(method, k=3)
                    found = model.learn(window, problem, rho=rho, rng=rng, progress=quiet, **extra)
                    spent[method] = spent.get(method, 0.0) + (time.perf_counter() - start) / seeds
                    results.setdefault(method, []).append(judge(found.pairs))
            for method, found_ in results.items():
                row(f"eps {epsilon}, {name} tables, {method}", found_, spent.get(method, 0.0))


def aim(codes: dict[str, np.ndarray], data: MovieLens, seed: int) -> dict[str, np.ndarray]:
    """A synthetic table of the same size by AIM at (1, 1e-5), record neighbours."""
    rows = len(next(iter(codes.values())))
    window = ArrayWindow(codes, {c: data.shape[c] for c in codes}, l1=2, l2=math.sqrt(2), seed=seed)
    rho = rho_of_epsilon(1.0, delta=1e-5)
    fitted = table_model("aim").fit(window, rho=rho, rows=float(rows), structure=Structure(), progress=quiet)
    return dict(fitted.sample(rows, np.random.default_rng(seed)))


def score(
    data: MovieLens, pairs: np.ndarray, left: dict[str, np.ndarray], right: dict[str, np.ndarray]
) -> tuple[float, float]:
    kept, data.right = data.right, right
    try:
        return data.error(pairs, left)
    finally:
        data.right = kept


def full_setting(seeds: int, *, bound: int = 20) -> None:
    """Users protected as entities, movies public, against the untruncated truth; total (eps, 1e-6).

    "real users": links alone are judged, with the users' own rows and degrees and three quarters of the budget.
    "whole": user table and degrees too, columns woven one after the other as relations to their values.
    """
    from benchmarks.users import woven_users

    data = MovieLens("ratings")
    users = len(data.left["gender"])
    degrees = np.bincount(data.pairs[:, 0], minlength=users)
    edges = buckets(2000, growth=2.0)
    data.shape["degree"] = len(edges) - 1
    real = {**data.left, "degree": bucketed(degrees, edges)}
    print("| MovieLens full, entity, δ 1e-6 | mean | max | s | KS degrees | mean degree, worst of gender and age |")
    print("|---|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    at_random = np.stack([rng.integers(0, users, 10**6), rng.integers(0, len(data.right["is_war"]), 10**6)], axis=1)
    print("| random wiring | {:.1f} | {:.1f} | | | |".format(*data.error(at_random)))
    for epsilon in (0.5, 1.0, 2.0):
        rho = rho_of_epsilon(epsilon, delta=1e-6)
        for whole in (False, True):
            results = []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                start = time.perf_counter()
                share = 0.25 if whole else 0.75
                left, wanted = real, degrees
                if whole:
                    left = woven_users(real, {c: data.shape[c] for c in real}, rho=rho * (1 - share), seed=seed)
                    wanted = decode(left["degree"], edges, rng)
                view = truncated(data.pairs, users, bound, rng)
                links = int(wanted.sum())
                shape = {c: data.shape[c] for c in (*real, *data.right)}
                problem = LinkProblem(left, data.right, shape=shape, links=links, links_measured=links)
                found = MAP(3).learn(
                    data.window(view, real, float(bound), seed),
                    problem,
                    rho=rho * share,
                    rng=rng,
                    progress=quiet,
                    degrees=Degrees(left=wanted, left_seen=seen(wanted, bound)),
                )
                seconds = time.perf_counter() - start
                results.append((*data.error(found.pairs, left), seconds, *degree_errors(data, left, wanted, degrees)))
            name = "whole" if whole else "real users"
            print(
                f"| eps {epsilon}, {name} | " + " | ".join(f"{x:.2f}" for x in np.mean(results, axis=0)) + " |",
                flush=True,
            )
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def truncated(pairs: np.ndarray, users: int, bound: int, rng: np.random.Generator) -> np.ndarray:
    """At most ``bound`` links of each user, a random choice of them."""
    ordered = pairs[np.lexsort((rng.random(len(pairs)), pairs[:, 0]))]
    counts = np.bincount(pairs[:, 0], minlength=users)
    return ordered[np.arange(len(ordered)) - (np.cumsum(counts) - counts)[ordered[:, 0]] < bound]


def degree_errors(
    data: MovieLens, left: dict[str, np.ndarray], wanted: np.ndarray, degrees: np.ndarray
) -> tuple[float, float]:
    grid = np.union1d(wanted, degrees)
    steps = [np.searchsorted(np.sort(x), grid, side="right") / len(x) for x in (wanted, degrees)]
    worst = max(
        abs(wanted[left[c] == v].mean() / degrees[data.left[c] == v].mean() - 1)
        for c in ("gender", "age")
        for v in range(data.shape[c])
    )
    return float(np.abs(steps[0] - steps[1]).max()), float(worst)


def census(seeds: int) -> None:
    """Households and their persons, households protected with at most 8 persons, half the budget for links."""
    import sqlite3

    path = Path(os.environ.get("DPWEAVE_DATA", "../shared/data")) / "census.sqlite"
    if not path.exists():
        sys.exit(f"no census in {path}; set DPWEAVE_DATA")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        persons, households = (
            _read(connection, table, columns.split())
            for table, columns in (
                ("person", "household_id age sex relate race_id esr wkhp schg industry"),
                ("household", "household_id persons age_of_head race_id cars children type hincp hht"),
            )
        )
    place = {key: i for i, key in enumerate(households.pop("household_id"))}
    parents = np.array([place[key] for key in persons.pop("household_id")])
    pairs = np.stack([np.arange(len(parents)), parents], axis=1)
    degrees = np.bincount(parents, minlength=len(place))
    left = {c: _binned(v) for c, v in persons.items()}
    right = {f"household.{c}": _binned(v) for c, v in households.items()}
    right["household.#person"] = bucketed(degrees, buckets(20, growth=2.0))
    shape = {c: int(v.max()) + 1 for c, v in (left | right).items()}
    workloads = cross_workloads(list(left), list(right), k=3)

    def error(found: np.ndarray) -> tuple[float, float]:
        distances = [
            100
            * np.abs(
                np.subtract(*(answers_from_links(w, left, right, x, shape=shape) / len(x) for x in (found, pairs)))
            ).sum()
            for w in workloads
        ]
        return float(np.mean(distances)), float(np.max(distances))

    problem = LinkProblem(left, right, shape=shape, links=len(pairs), links_measured=len(pairs), kind="one-to-many")
    print("| census, person → household, entity, δ 1e-6 | mean | max | s |\n|---|---|---|---|")
    rng = np.random.default_rng(0)
    at_random = np.stack([pairs[:, 0], rng.permutation(parents)], axis=1)
    row("random wiring to the true degrees", [error(at_random)], 0.0)
    for epsilon in (0.5, 1.0, 2.0):
        results, start = [], time.process_time()
        for seed in range(seeds):
            codes = {c: v[pairs[:, 0]] for c, v in left.items()} | {c: v[pairs[:, 1]] for c, v in right.items()}
            window = ArrayWindow(codes, shape, l1=8.0, l2=8.0, seed=seed)
            rho = 0.5 * rho_of_epsilon(epsilon, delta=1e-6)
            rng = np.random.default_rng(seed)
            found = MAP(3).learn(window, problem, rho=rho, rng=rng, progress=quiet, degrees=Degrees(right=degrees))
            results.append(error(found.pairs))
        row(f"eps {epsilon}, map", results, (time.process_time() - start) / seeds)


def _read(connection: object, table: str, columns: list[str]) -> dict[str, np.ndarray]:
    rows = connection.execute(f"select {', '.join(columns)} from {table}").fetchall()  # type: ignore[attr-defined]
    return {
        c: np.array([-1e9 if x is None else x for x in values], dtype=float)
        for c, values in zip(columns, zip(*rows, strict=True), strict=True)
    }


def _binned(values: np.ndarray, bins: int = 8) -> np.ndarray:
    found = np.unique(values)
    if len(found) <= bins + 4:
        return np.searchsorted(found, values)
    return np.searchsorted(np.unique(np.quantile(values, np.linspace(0, 1, bins + 1)[1:-1])), values, side="right")


def truly_random(seeds: int) -> None:
    print("| links at random, 20 seeds | random wiring | map | ratio |\n|---|---|---|---|")
    data = MovieLens("ratings_d10")
    for epsilon in (0.1, 1.0, 10.0):
        scores = []
        for seed in range(max(seeds, 20)):
            rng = np.random.default_rng(seed)
            problem = LinkProblem(data.left, data.right, shape=data.shape, links=10_075, links_measured=10_075)
            data.pairs = random_links(problem, rng)
            data.truth = data.answers(data.pairs, data.left)
            window = data.window(data.pairs, data.left, 10 * math.sqrt(2), seed)
            rho = rho_of_epsilon(epsilon, delta=1e-5)
            found = MAP(3).learn(window, problem, rho=rho, rng=rng, progress=quiet)
            scores.append((data.error(random_links(problem, rng))[0], data.error(found.pairs)[0]))
        one, two = np.mean(scores, axis=0)
        print(f"| eps {epsilon} | {one:.2f} | {two:.2f} | {two / one:.3f} |", flush=True)


def speed() -> None:
    print("| links | CPU ns per link | peak MB |\n|---|---|---|")
    for links in (10**5, 10**6, 10**7):
        rng = np.random.default_rng(0)
        rows = links // 10
        shape = {"a": 20, "b": 20}
        left = RowTypes.of({"a": rng.integers(0, 20, rows)}, ["a"], shape=shape)
        right = RowTypes.of({"b": rng.integers(0, 20, rows)}, ["b"], shape=shape)
        degrees = np.full(rows, 10)
        best = math.inf
        for _ in range(3):
            start = time.process_time()
            wire(
                lambda u, v: 1.0 + 3.0 * (u.codes[:, :1] == v.codes[:, 0]),
                left,
                right,
                left_degrees=degrees,
                right_degrees=degrees,
                rng=rng,
            )
            best = min(best, time.process_time() - start)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"| {links:,} | {1e9 * best / links:.0f} | {peak:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["d10", "full", "census", "null", "speed"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tables", nargs="+", choices=["real", "AIM"], default=["real", "AIM"])
    parser.add_argument("--pgd", action="store_true", help="the paper's learner too: some minutes per run")
    chosen = parser.parse_args()
    match chosen.what:
        case "d10":
            paper_setting(chosen.seeds, pgd=chosen.pgd, tables=chosen.tables)
        case "full":
            full_setting(chosen.seeds)
        case "census":
            census(chosen.seeds)
        case "null":
            truly_random(chosen.seeds)
        case "speed":
            speed()


if __name__ == "__main__":
    main()
