"""How often public rows are led to, where few of them have most links: Zipf targets, 100,000 links, made up.

    python -m benchmarks.popularity [--epsilon E ...] [--seeds N] [--targets N ...]

Users own links, each of which leads to a target. In ``junction`` a user has a target at most once, in ``orders`` as
often as chance has it. Targets have no modelled column, or a ``genre`` that says nothing of their rank. Printed are
the largest error of the ten targets with most links, as a part of their links, and the error of the Gini coefficient
of all targets.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pyarrow as pa

import dpweave as dw
from benchmarks.databases import DELTA

USERS, LINKS, BOUND = 20_000, 100_000, 12
ID = {"type": "int64", "nullable": False, "domain": "key"}


def made_up(kind: str, targets: int, seed: int) -> dict[str, pa.Table]:
    """Users with 1 to 9 links, to targets whose popularity falls as one over their rank."""
    rng = np.random.default_rng(seed)
    shares = 1 / np.arange(1, targets + 1)
    users = np.repeat(np.arange(USERS), rng.integers(1, 10, USERS))
    if kind == "junction":  # the first of exponential clocks: draws without repetition
        chosen = [
            np.argpartition(rng.exponential(size=targets) / shares, n)[:n] for n in np.bincount(users, minlength=USERS)
        ]
        linked = np.concatenate(chosen)
    else:
        linked = rng.choice(targets, len(users), p=shares / shares.sum())
    names = rng.permutation(targets)  # rank is not to be read off the key
    return {
        "users": pa.table({"id": np.arange(USERS), "sex": rng.choice(["f", "m"], USERS)}),
        "targets": pa.table({"id": np.arange(targets), "genre": rng.choice(["a", "b", "c"], targets)}),
        "links": pa.table({"id": np.arange(len(users)), "user": users, "target": names[linked]}),
    }


def plan_of(kind: str, *, columns: bool) -> dw.Plan:
    """Users are protected, targets public; domains are declared, so that none is learned."""
    genre = {"type": "text", "nullable": False, "domain": ["a", "b", "c"] if columns else "opaque"}

    def key(name: str, references: str, **more: object) -> dict[str, object]:
        return {"columns": [name], "references": references, "target": ["id"], **more}

    pair = {"unique": [["user", "target"]]} if kind == "junction" else {}
    return dw.Plan.from_dict(
        {
            "protect": ["users"],
            "public": ["targets"],
            "tables": {
                "users": {
                    "primary_key": ["id"],
                    "columns": {"id": ID, "sex": {"type": "text", "nullable": False, "domain": ["f", "m"]}},
                },
                "targets": {"primary_key": ["id"], "columns": {"id": ID, "genre": genre}},
                "links": {
                    "primary_key": ["id"],
                    **pair,
                    "columns": {"id": ID, "user": ID, "target": ID},
                    "keys": {
                        "user": key("user", "users", role="owning", max_degree=BOUND),
                        "target": key("target", "targets", role="attribute"),
                    },
                },
            },
        }
    )


def gini(counts: np.ndarray) -> float:
    """Gini coefficient: 0 where all have the same, near 1 where one has all."""
    ordered, n = np.sort(counts), len(counts)
    return float(((2 * np.arange(1, n + 1) - n - 1) * ordered).sum() / (n * ordered.sum()))


def errors(real: np.ndarray, made: np.ndarray) -> tuple[float, float]:
    """The largest relative error of the ten largest, and the error of the Gini coefficient."""
    top = np.argsort(-real)[:10]
    return float(np.abs(made[top] / real[top] - 1).max()), gini(made) - gini(real)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--targets", type=int, nargs="+", default=[1000])
    args = parser.parse_args()
    for targets in args.targets:
        for kind in ("junction", "orders"):
            for columns in (False, True):
                for epsilon in args.epsilon:
                    for seed in range(args.seeds):
                        start = time.process_time()
                        real = made_up(kind, targets, seed)
                        plan = plan_of(kind, columns=columns)
                        model = dw.fit(real, plan, epsilon=epsilon, delta=DELTA, insecure_seed=seed)
                        copy = model.sample(seed=seed)
                        counts = [
                            np.bincount(np.asarray(t["links"]["target"]), minlength=targets) for t in (real, copy)
                        ]
                        top, off = errors(*counts)
                        print(
                            f"{kind}, {targets:,} targets, {'columns' if columns else 'bare'}, epsilon {epsilon:g},"
                            f" seed {seed}: top ten off by {top:.1%}, Gini {gini(counts[0]):.3f} off by {off:+.3f},"
                            f" {counts[1].sum():,} of {counts[0].sum():,} links, {time.process_time() - start:.0f} s"
                        )


if __name__ == "__main__":
    main()
