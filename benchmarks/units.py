"""What rows of one owner have in common, in the copy and in the data.

    python -m benchmarks.units [--data FOLDER] [--only NAME ...] [--epsilon E ...] [--seeds N]

Plans are those in examples/plans. For each owning key, over all columns of its rows with more than one value:

- siblings: total variation between real and synthetic tables of a column of one row and a column of another row of the
  same owner, all pairs of columns; pairs of an owner with n rows weigh 1/(n - 1), so that owners count by their rows.
  Next to it the real rows given to owners at random, and one half of the real owners against the other.
- excess agreement: how much more often two rows of one owner have the same value than two of any owners; the part that
  the copy keeps, in the mean over columns where it is above 0.02 in the data.
- owner x 2: total variation of tables of one column of the owner and two of the row, 60 of them.
- degrees: total variation of rows per owner, value by value.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

import dpweave as dw
from benchmarks.databases import DELTA, data_folder, plan_of, source_of
from dpweave.engines.opening import open_source
from dpweave.evaluation.evaluate import resolved
from dpweave.model.coded_database import encode
from dpweave.schema.domain import Opaque

if TYPE_CHECKING:
    from dpweave.model.coded_database import CodedDatabase
    from dpweave.plan.plan import Plan

NAMES = ("census", "oulad", "movielens")
LEAST_EXCESS = 0.02
TRIPLES = 60

Floats = np.ndarray[Any, Any]


def columns(plan: Plan, coded: CodedDatabase, table: str) -> list[str]:
    """Columns with values to compare."""
    own = [c.name for c in plan.table[table].columns if c.domain is not None and not isinstance(c.domain, Opaque)]
    return [c for c in own if len(np.unique(coded.codes[table, c])) > 1]


class Rows:
    """Rows of one table as vectors, with their owners."""

    def __init__(self, coded: CodedDatabase, table: str, key: str, names: list[str]) -> None:
        self.codes = [coded.codes[table, c].astype(np.int64) for c in names]
        sizes = [coded.sizes[table, c] for c in names]
        first = np.cumsum([0, *sizes])
        self.blocks = [slice(a, b) for a, b in pairwise(first.tolist())]
        rows = coded.rows[table]
        at = np.concatenate([c + f for c, f in zip(self.codes, first[:-1], strict=True)])
        self.x = sp.csr_matrix(
            (np.ones(len(at)), (np.tile(np.arange(rows), len(names)), at)), shape=(rows, int(first[-1]))
        )
        self.owner = coded.links[table, key].astype(np.int64)

    def siblings(self, owner: Floats) -> Floats:
        """Pairs of rows of one owner, over all pairs of codes."""
        rows = np.flatnonzero(owner >= 0)
        x, own = self.x[rows], owner[rows]
        count = np.bincount(own)
        weight = np.where(count > 1, 1 / np.maximum(count - 1, 1), 0.0)
        sums = sp.csr_matrix((np.ones(len(own)), (own, np.arange(len(own)))), shape=(len(count), len(own))) @ x
        pairs = sums.T @ (sp.diags(weight) @ sums) - x.T @ (sp.diags(weight[own]) @ x)
        return np.asarray(pairs.toarray())

    def some(self, which: Floats) -> Rows:
        """Only rows of some owners."""
        part = object.__new__(Rows)
        kept = np.flatnonzero((self.owner >= 0) & which[np.maximum(self.owner, 0)])
        part.codes, part.blocks = [c[kept] for c in self.codes], self.blocks
        part.x, part.owner = self.x[kept], self.owner[kept]
        return part


def distance(a: Floats, b: Floats) -> float:
    return float(np.abs(a / max(a.sum(), 1.0) - b / max(b.sum(), 1.0)).sum() / 2)


def tables_apart(a: Floats, b: Floats, blocks: list[slice]) -> float:
    return float(np.mean([distance(a[p, q], b[p, q]) for i, p in enumerate(blocks) for q in blocks[i:]]))


def excess(pairs: Floats, x: Any, block: slice) -> float:
    share = np.asarray(x[:, block].sum(axis=0)).ravel() / x.shape[0]
    return float(np.trace(pairs[block, block]) / max(pairs[block, block].sum(), 1.0) - np.square(share).sum())


def with_owner(real: CodedDatabase, copy: CodedDatabase, at: tuple[str, str, str], plan: Plan, own: list[str]) -> float:
    """Tables of a column of the owner and two of the row."""
    table, key, target = at
    theirs, rng, found = columns(plan, real, target), np.random.default_rng(0), []
    if not theirs or len(own) < 2:
        return float("nan")
    for _ in range(TRIPLES):
        p, (a, b) = rng.choice(theirs), rng.choice(own, 2, replace=False)
        counts = []
        for coded in (real, copy):
            owner = coded.links[table, key]
            code = coded.codes[target, p].astype(np.int64)[owner]
            size = real.sizes[target, p]
            for c in (a, b):
                code = code * real.sizes[table, c] + coded.codes[table, c]
                size *= real.sizes[table, c]
            counts.append(np.bincount(code, minlength=size).astype(float))
        found.append(distance(*counts))
    return float(np.mean(found))


def look(name: str, epsilon: float, seed: int, data: Any) -> None:
    plan, source = plan_of(name), source_of(name, data)
    copied = dw.fit(source, plan, epsilon=epsilon, delta=DELTA, insecure_seed=seed).sample(seed=seed)
    with open_source(source) as opened:
        opened.declare(plan.database)
        tables = {n: opened.whole(n) for n in plan.database.names}
    plan = resolved(plan, tables)
    real, copy = encode(plan, tables), encode(plan, {n: copied[n] for n in plan.database.names})
    rng = np.random.default_rng(0)
    for table, key in plan.promise.owning.items():
        target = plan.database[table].key[key].target
        own = columns(plan, real, table)
        if not own or target == table:
            continue
        a, b = Rows(real, table, key, own), Rows(copy, table, key, own)
        pairs, made = a.siblings(a.owner), b.siblings(b.owner)
        half = rng.random(real.rows[target]) < 0.5
        halves = [a.some(which) for which in (half, ~half)]
        noise = tables_apart(*(h.siblings(h.owner) for h in halves), a.blocks)
        random = tables_apart(pairs, a.siblings(rng.permutation(a.owner)), a.blocks)
        strong = [(block, e) for block in a.blocks if (e := excess(pairs, a.x, block)) > LEAST_EXCESS]
        kept = [excess(made, b.x, block) / e for block, e in strong]
        degrees = [np.bincount(d, minlength=1) for d in (real.degrees(table, key), copy.degrees(table, key))]
        most = max(map(len, degrees))
        apart = distance(*(np.pad(d, (0, most - len(d))).astype(float) for d in degrees))
        print(
            f"{name} eps {epsilon:g} seed {seed} {table} of {target}: siblings"
            f" {tables_apart(pairs, made, a.blocks):.3f} (random {random:.3f}, halves {noise:.3f}), excess kept"
            f" {np.mean(kept) if kept else float('nan'):.2f} of {len(kept)} columns, owner x 2"
            f" {with_owner(real, copy, (table, key, target), plan, own):.3f}, degrees {apart:.3f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0, 4.0])
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    for name in args.only:
        for epsilon in args.epsilon:
            for seed in range(args.seeds):
                look(name, epsilon, seed, data_folder(args.data))


if __name__ == "__main__":
    main()
