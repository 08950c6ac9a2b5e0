"""Tables of docs/decisions/links-map.md: random wiring, the paper's learner and ours, side by side.

    python -m benchmarks.links d10 [--seeds 5] [--tables real AIM] [--pgd]    MovieLens, the paper's setting
    python -m benchmarks.links full [--seeds 5] [--only whole users]     all 1,000,209 ratings, users protected
    python -m benchmarks.links census [--seeds 5]          persons, their households and their parents
    python -m benchmarks.links null                        links that are truly random
    python -m benchmarks.links speed                       wiring from 10^5 to 10^7 links
    python -m benchmarks.links write                       the tables of docs/decisions/links-map.md

Run from the project's root. Every run is kept in benchmarks/links.json under setting/variant/epsilon/seed and
not repeated: delete its line to run it again. Counts come through ``tests.windows.ArrayWindow``: the true law
of the noise, in memory. Data are looked for in $DPWEAVE_DATA, else ../shared/data. Seconds are CPU time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import sys
import time
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpweave.links.degrees import Degrees, bucketed, degrees_of, seen, whole
from dpweave.links.link_method import LinkProblem, link_model, random_links
from dpweave.links.map_learner import MAP
from dpweave.links.popularity import popularity, share_for
from dpweave.links.row_types import RowTypes
from dpweave.links.wiring.wire import wire
from dpweave.measure.cross_workloads import answers_from_links, cross_workloads
from dpweave.measure.question import Way
from dpweave.privacy.accounting import rho_of_epsilon
from dpweave.privacy.window import Units
from dpweave.schema.degree_buckets import buckets
from dpweave.tables.base import Structure, table_model
from dpweave.tables.owned_row_counts import degree_groups, degree_histogram
from tests.windows import ArrayWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "links.json"
PAGE = ROOT / "docs" / "decisions" / "links-map.md"
LINK_SHARE = 0.15
"""Share of rho for links where the user table is paid from the same budget."""
BOUND = 100
"""Ratings of a user that are looked at."""

Figures = dict[str, float]


def kept(name: str, run: Callable[..., Figures], *given: object) -> Figures:
    """Figures of a run, from the file of results or made now and put there."""
    done: dict[str, Figures] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if name not in done:
        start = time.process_time()
        found = {k: round(float(v), 4) for k, v in run(*given).items()}
        done = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        done[name] = {**found, "seconds": round(time.process_time() - start, 2)}
        RESULTS.write_text(json.dumps(done, indent=1, sort_keys=True) + "\n")
    print(name, done[name], flush=True)
    return done[name]


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
        self.ordered = {"age": self.shape["age"]}  # as text, too, ages are in order: 1, 18, 25 and so on
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

    def users_error(self, left: dict[str, np.ndarray], wanted: np.ndarray, degrees: np.ndarray) -> tuple[float, float]:
        """The same where only links per combination of user columns are wrong."""
        sets = [(c,) for c in self.left for _ in combinations(self.right, 2)]
        sets += [pair for pair in combinations(self.left, 2) for _ in self.right]
        distances = []
        for columns in sets:
            found, true = (_shares(side, columns, self.shape, w) for side, w in ((left, wanted), (self.left, degrees)))
            distances.append(100 * np.abs(found - true).sum())
        return float(np.mean(distances)), float(np.max(distances))

    def window(
        self, pairs: np.ndarray, left: dict[str, np.ndarray], l2: float, seed: int, *, bound: int | None = None
    ) -> ArrayWindow:
        """Links with the columns of both sides; in unit sums, as a fit counts links to
        public rows, where users are bounded.
        """
        codes = {c: v[pairs[:, 0]] for c, v in left.items()} | {c: v[pairs[:, 1]] for c, v in self.right.items()}
        units = None if bound is None else Units(bound, frozenset(left))
        shape = {c: self.shape[c] for c in codes}
        return ArrayWindow(codes, shape, l1=l2 * math.sqrt(2), l2=l2, seed=seed, unit=pairs[:, 0], units=units)


def _shares(
    codes: dict[str, np.ndarray], columns: tuple[str, ...], shape: dict[str, int], weights: np.ndarray
) -> np.ndarray:
    """Share of the weights on each combination of values."""
    sizes = tuple(shape[c] for c in columns)
    cell = np.ravel_multi_index([codes[c] for c in columns], sizes)
    return np.bincount(cell, weights=weights, minlength=math.prod(sizes)) / weights.sum()


def distance(found: tuple[float, float]) -> Figures:
    return {"mean": found[0], "max": found[1]}


EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 10.0)
FULL = ["whole", "real users", "users"]


def paper_setting(seeds: int, *, pgd: bool, tables: list[str]) -> None:
    """MovieLens with at most 10 links on either side, record neighbours, delta 1e-5."""
    data = MovieLens("ratings_d10")
    m, bound = len(data.pairs), 10

    @cache
    def sides(name: str, seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        return (data.left, data.right) if name == "real" else (aim(data.left, data, seed), aim(data.right, data, seed))

    def run(name: str, method: str, epsilon: float, seed: int) -> Figures:
        left, right = sides(name, seed)
        problem = LinkProblem(left, right, shape=data.shape, links=m, links_measured=m, ordered=data.ordered)
        rng = np.random.default_rng(seed)
        if method == "random":
            return distance(score(data, random_links(problem, rng), left, right))
        found = link_model(method, k=3).learn(
            data.window(data.pairs, data.left, bound * math.sqrt(2), seed),
            problem,
            rho=rho_of_epsilon(epsilon, delta=1e-5),
            rng=rng,
            progress=quiet,
            degrees=Degrees(left_bound=bound, right_bound=bound),
        )
        return distance(score(data, found.pairs, left, right))

    for seed in range(seeds):
        for name in tables:
            kept(f"d10/{name} random/0/{seed}", run, name, "random", 0.0, seed)
            for method in ("map", "pgd") if pgd else ("map",):
                for epsilon in EPSILONS:
                    kept(f"d10/{name} {method}/{epsilon:g}/{seed}", run, name, method, epsilon, seed)


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


def full_setting(seeds: int, *, only: list[str], bound: int = BOUND) -> None:
    """Users protected as entities, movies public, against the untruncated truth; total (eps, 1e-6).

    "real users": links alone are judged, with the users' own rows and degrees and three quarters of the budget.
    "whole": user table and degrees too (``benchmarks.users``), paid from the same budget.
    "users": what the user table and its degrees of "whole" cost alone, if all else about links were exact.
    """
    from benchmarks.users import synthetic_users

    data = MovieLens("ratings")
    users = len(data.left["gender"])
    degrees = np.bincount(data.pairs[:, 0], minlength=users)

    def run(variant: str, epsilon: float, seed: int) -> Figures:
        rng = np.random.default_rng(seed)
        if variant == "random":
            at_random = [rng.integers(0, n, 10**6) for n in (users, len(data.right["is_war"]))]
            return distance(data.error(np.stack(at_random, axis=1)))
        rho = rho_of_epsilon(epsilon, delta=1e-6)
        left, wanted, cut, share = data.left, degrees, (0, round(float(degrees.mean())), 1 << 20), 0.75
        if variant != "real users":
            share = LINK_SHARE
            left, wanted, cut = synthetic_users(
                data.left, degrees, data.shape, list(data.right), bound=bound, rho=rho * (1 - share), seed=seed
            )
        if variant == "users":
            return distance(data.users_error(left, wanted, degrees))
        data.shape["degree"] = len(cut) - 1
        real = {**data.left, "degree": bucketed(degrees, cut)}
        left = {**left, "degree": bucketed(wanted, cut)}
        shape = {c: data.shape[c] for c in (*real, *data.right)}
        links = int(wanted.sum())
        view = truncated(data.pairs, users, bound, rng)
        popular, spent = movie_popularity(data, view, bound, rho * share, seed)
        found = MAP(3, way=Way.CODED).learn(
            data.window(view, real, float(bound), seed, bound=bound),
            LinkProblem(
                left,
                data.right,
                shape=shape,
                links=links,
                links_measured=float((wanted * seen(wanted, bound)).sum()),
                ordered=data.ordered | {"degree": shape["degree"]},
            ),
            rho=rho * share - spent,
            rng=rng,
            progress=quiet,
            degrees=Degrees(
                left=wanted,
                left_seen=seen(wanted, bound),
                right_weights=popular,
            ),
        )
        return distance(data.error(found.pairs, left)) | degree_errors(data, left, wanted, degrees)

    kept("full/random/0/0", run, "random", 0.0, 0)
    for seed in range(seeds):
        for variant in only:
            for epsilon in (0.5, 1.0, 2.0):
                kept(f"full/{variant}/{epsilon:g}/{seed}", run, variant, epsilon, seed)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def movie_popularity(
    data: MovieLens, view: np.ndarray, bound: int, rho: float, seed: int
) -> tuple[np.ndarray | None, float]:
    """How often each movie is rated, as a fit counts it (docs/proofs, Theorem 5), and what that costs."""
    movies = len(data.right["is_war"])
    share = share_for(rho=rho, l2=math.sqrt(bound), mean=len(view) / movies, targets=movies)
    if not share:
        return None, 0.0
    window = ArrayWindow({"movie": view[:, 1]}, {"movie": movies}, l1=bound, l2=math.sqrt(bound), seed=seed + 2)
    (noisy,) = window.measure([("movie",)], rho=rho * share)
    return popularity(noisy.counts, sigma=noisy.sigma, columns=data.right), rho * share


def truncated(pairs: np.ndarray, users: int, bound: int, rng: np.random.Generator) -> np.ndarray:
    """At most ``bound`` links of each user, a random choice of them."""
    ordered = pairs[np.lexsort((rng.random(len(pairs)), pairs[:, 0]))]
    counts = np.bincount(pairs[:, 0], minlength=users)
    return ordered[np.arange(len(ordered)) - (np.cumsum(counts) - counts)[ordered[:, 0]] < bound]


def degree_errors(data: MovieLens, left: dict[str, np.ndarray], wanted: np.ndarray, degrees: np.ndarray) -> Figures:
    off = {
        c: [abs(wanted[left[c] == v].mean() / degrees[data.left[c] == v].mean() - 1) for v in range(data.shape[c])]
        for c in ("gender", "age")
    }
    # Ages are sorted as text: "1" (under 18), "18", "25", "35", "45", "50", "56".
    large = max(x for x, v in zip(off["age"], range(7), strict=True) if (data.left["age"] == v).sum() >= 400)
    return {
        "ks": kolmogorov_smirnov(wanted, degrees),
        "gender": max(off["gender"]),
        "age": max(off["age"]),
        "age, bands of 400 users and more": large,
    }


def kolmogorov_smirnov(one: np.ndarray, two: np.ndarray) -> float:
    grid = np.union1d(one, two)
    steps = [np.searchsorted(np.sort(x), grid, side="right") / len(x) for x in (one, two)]
    return float(np.abs(steps[0] - steps[1]).max())


def census(seeds: int) -> None:
    """Households protected with at most 8 persons: persons to households, and persons to their father and mother.

    A quarter of the budget is for the households' links, an eighth each for fathers and mothers; tables are real, and a
    fortieth counts persons per household, with a declared cap of 20, whose distribution is judged by itself.
    """
    import sqlite3

    path = Path(os.environ.get("DPWEAVE_DATA", "../shared/data")) / "census.sqlite"
    if not path.exists():
        sys.exit(f"no census in {path}; set DPWEAVE_DATA")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        persons, households = (
            _read(connection, table, columns.split())
            for table, columns in (
                ("person", "person_id household_id father_id mother_id age sex relate race_id esr wkhp schg industry"),
                ("household", "household_id persons age_of_head race_id cars children type hincp hht"),
            )
        )
    place = {key: i for i, key in enumerate(households.pop("household_id"))}
    parents = np.array([place[key] for key in persons.pop("household_id")])
    degrees = np.bincount(parents, minlength=len(place))
    position = {key: i for i, key in enumerate(persons.pop("person_id"))}
    ancestors = {
        who: np.array([position.get(key, -1) for key in persons.pop(f"{who}_id")]) for who in ("father", "mother")
    }
    left = {c: _binned(v) for c, v in persons.items()}
    right = {f"household.{c}": _binned(v) for c, v in households.items()}
    right["household.#person"] = bucketed(degrees, buckets(20, growth=2.0))

    def household(epsilon: float, seed: int) -> Figures:
        rho = rho_of_epsilon(epsilon, delta=1e-6) if epsilon else 0.0
        pairs = np.stack([np.arange(len(parents)), parents], axis=1)
        figures = _relation(left, right, pairs, rho=rho / 4, seed=seed, degrees=Degrees(right=degrees))
        if epsilon:
            edges = buckets(20)  # as with degree_cap = 20 in a plan
            window = ArrayWindow({"#": bucketed(degrees, edges)}, {"#": len(edges) - 1}, seed=seed)
            (noisy,) = window.measure([("#",)], rho=rho / 40)
            groups = degree_groups(noisy, edges, bound=8, noise=1.0, values=8)
            fine, counts = degree_histogram(noisy, edges, groups, bound=8)
            rng = np.random.default_rng(seed)
            shares = np.add.reduceat(counts, np.searchsorted(fine[:-1], groups[:-1]))
            codes = np.repeat(np.arange(len(shares)), whole(len(degrees) * shares / shares.sum(), len(degrees), rng))
            drawn = degrees_of(codes, np.array(groups), np.array(fine), counts, rng)
            figures["ks"] = kolmogorov_smirnov(drawn, degrees)
        return figures

    def ancestor(who: str, epsilon: float, seed: int) -> Figures:
        rows = np.flatnonzero(ancestors[who] >= 0)
        pairs = np.stack([np.arange(len(rows)), ancestors[who][rows]], axis=1)
        child = {c: v[rows] for c, v in left.items()}
        elder = {f"{who}.{c}": v for c, v in left.items()}
        rho = rho_of_epsilon(epsilon, delta=1e-6) if epsilon else 0.0
        return _relation(child, elder, pairs, rho=rho / 8, seed=seed, degrees=Degrees(right_bound=8))

    for seed in range(seeds):
        for epsilon in (0.0, 1.0):
            kept(f"census/household/{epsilon:g}/{seed}", household, epsilon, seed)
        for who in ("father", "mother"):
            for epsilon in (0.0, 1.0):
                kept(f"census/{who}/{epsilon:g}/{seed}", ancestor, who, epsilon, seed)


def _relation(
    left: dict[str, np.ndarray],
    right: dict[str, np.ndarray],
    pairs: np.ndarray,
    *,
    rho: float,
    seed: int,
    degrees: Degrees,
) -> Figures:
    """Mean and largest error over all three-way cross-table workloads; with no budget, of wiring at random."""
    shape = {c: int(v.max()) + 1 for c, v in (left | right).items()}
    rng = np.random.default_rng(seed)
    if not rho:
        found = np.stack([pairs[:, 0], rng.permutation(pairs[:, 1])], axis=1)
        if degrees.right is None:
            found[:, 1] = rng.integers(0, len(next(iter(right.values()))), len(pairs))
    else:
        codes = {c: v[pairs[:, 0]] for c, v in left.items()} | {c: v[pairs[:, 1]] for c, v in right.items()}
        problem = LinkProblem(
            left,
            right,
            shape=shape,
            links=len(pairs),
            links_measured=len(pairs),
            kind="one-to-many",
            ordered=shape,  # all columns are numbers
        )
        window = ArrayWindow(codes, shape, l1=8.0, l2=8.0, seed=seed)
        found = MAP(3).learn(window, problem, rho=rho, rng=rng, progress=quiet, degrees=degrees).pairs
    distances = [
        100
        * np.abs(
            np.subtract(*(answers_from_links(w, left, right, x, shape=shape) / len(x) for x in (found, pairs)))
        ).sum()
        for w in cross_workloads(list(left), list(right), k=3)
    ]
    return distance((float(np.mean(distances)), float(np.max(distances))))


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
    data = MovieLens("ratings_d10")

    def run(epsilon: float, seed: int) -> Figures:
        rng = np.random.default_rng(seed)
        problem = LinkProblem(
            data.left, data.right, shape=data.shape, links=10_075, links_measured=10_075, ordered=data.ordered
        )
        data.pairs = random_links(problem, rng)
        data.truth = data.answers(data.pairs, data.left)
        window = data.window(data.pairs, data.left, 10 * math.sqrt(2), seed)
        found = MAP(3).learn(window, problem, rho=rho_of_epsilon(epsilon, delta=1e-5), rng=rng, progress=quiet)
        return {"random": data.error(random_links(problem, rng))[0], "mean": data.error(found.pairs)[0]}

    for seed in range(max(seeds, 20)):
        for epsilon in (0.1, 1.0, 10.0):
            kept(f"null/map/{epsilon:g}/{seed}", run, epsilon, seed)


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


def collected() -> dict[str, dict[float, list[Figures]]]:
    """Runs by setting and variant, then by epsilon."""
    out: dict[str, dict[float, list[Figures]]] = {}
    for name, figures in json.loads(RESULTS.read_text()).items():
        variant, epsilon, _seed = name.rsplit("/", 2)
        out.setdefault(variant, {}).setdefault(float(epsilon), []).append(figures)
    return out


def averaged(results: Iterable[Figures], what: str, digits: int = 1) -> str:
    values = [r[what] for r in results]
    return f"{np.mean(values):.{digits}f}"


def lines(found: dict[str, dict[float, list[Figures]]], names: dict[str, str], epsilons: Iterable[float]) -> list[str]:
    """A row per variant: mean / max at each epsilon; wiring at random, which knows no epsilon, is repeated."""
    columns = list(epsilons)
    out = ["| eps | " + " | ".join(f"{e:g}" for e in columns) + " | seeds |", "|---" * (len(columns) + 2) + "|"]
    for variant, name in names.items():
        runs = found.get(variant)
        if runs is None:
            continue
        cells = [runs.get(e) or runs.get(0.0) for e in columns]
        text = [f"{averaged(c, 'mean')} / {averaged(c, 'max')}" if c else "" for c in cells]
        counts = {len(c) for c in cells if c}
        seeds = "–".join(str(n) for n in sorted({min(counts), max(counts)}))
        out.append(f"| {name} | " + " | ".join(text) + f" | {seeds} |")
    return out


def tables_text() -> dict[str, str]:
    """The tables of the page by name."""
    found = collected()
    d10 = lines(
        found,
        {
            f"d10/{tables} {method}": f"{name}, {tables} tables"
            for tables in ("real", "AIM")
            for method, name in (("random", "random wiring"), ("pgd", "pgd"), ("map", "**map**"))
        },
        EPSILONS,
    )
    full = lines(
        found,
        {
            "full/random": "random wiring",
            "full/real users": "map, the users' own rows and degrees, ¾ of rho",
            "full/users": "the user table of the whole pipeline, all else exact",
            "full/whole": "**map, whole pipeline**",
        },
        (0.5, 1.0, 2.0),
    )
    pipeline = found.get("full/whole", {})
    degrees = [
        "| whole pipeline, eps | " + " | ".join(f"{e:g}" for e in sorted(pipeline)) + " |",
        "|---" * (len(pipeline) + 1) + "|",
    ]
    for what, title in (
        ("ks", "Kolmogorov–Smirnov distance of degrees"),
        ("gender", "mean degree by gender, worst of two"),
        ("age", "mean degree by age band, worst of seven"),
        ("age, bands of 400 users and more", "the same, bands of at least 400 users"),
    ):
        digits = 3 if what == "ks" else 2
        degrees.append(
            f"| {title} | " + " | ".join(averaged(pipeline[e], what, digits) for e in sorted(pipeline)) + " |"
        )
    census_ = ["| census, eps 1 | random wiring | map | ratio | KS of degrees | seeds |", "|---|---|---|---|---|---|"]
    for what in ("household", "father", "mother"):
        runs = found.get(f"census/{what}", {})
        if 0.0 in runs and 1.0 in runs:
            one, two = (float(np.mean([r["mean"] for r in runs[e]])) for e in (0.0, 1.0))
            ks = averaged(runs[1.0], "ks", 3) if all("ks" in r for r in runs[1.0]) else ""
            census_.append(f"| person → {what} | {one:.1f} | {two:.1f} | {two / one:.2f} | {ks} | {len(runs[1.0])} |")
    null = ["| links at random, eps | error over that of random wiring | seeds |", "|---|---|---|"]
    for epsilon, runs_ in sorted(found.get("null/map", {}).items()):
        ratio = np.mean([r["mean"] for r in runs_]) / np.mean([r["random"] for r in runs_])
        null.append(f"| {epsilon:g} | {ratio:.2f} | {len(runs_)} |")
    return {
        n: "\n".join(t)
        for n, t in (("d10", d10), ("full", full), ("degrees", degrees), ("census", census_), ("null", null))
    }


def write() -> None:
    """Put the tables between their marks on the page."""
    page = PAGE.read_text()
    for name, text in tables_text().items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = f"{before}{begin}\n{text}\n{end}{after}"
    PAGE.write_text(page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["d10", "full", "census", "null", "speed", "write"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tables", nargs="+", choices=["real", "AIM"], default=["real", "AIM"])
    parser.add_argument("--pgd", action="store_true", help="the paper's learner too: some minutes per run")
    parser.add_argument("--only", nargs="+", choices=FULL, default=FULL)
    chosen = parser.parse_args()
    match chosen.what:
        case "d10":
            paper_setting(chosen.seeds, pgd=chosen.pgd, tables=chosen.tables)
        case "full":
            full_setting(chosen.seeds, only=chosen.only)
        case "census":
            census(chosen.seeds)
        case "null":
            truly_random(chosen.seeds)
        case "speed":
            speed()
        case "write":
            write()


if __name__ == "__main__":
    main()
