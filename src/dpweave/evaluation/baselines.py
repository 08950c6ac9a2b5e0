"""What a synthetic database is set against: its own rows wired otherwise, and columns
that know nothing of each other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpweave.model.coded_database import with_derived

if TYPE_CHECKING:
    from dpweave.arrays import IntArray
    from dpweave.model.coded_database import CodedDatabase
    from dpweave.plan.plan import Plan

SYNTHETIC, SHUFFLED, RANDOM, INDEPENDENT, RESAMPLED, HALVES = (
    "synthetic",
    "shuffled keys",
    "random wiring",
    "independent columns",
    "resampled real",
    "half of the real owners",
)
MEANING = {
    SYNTHETIC: "the copy as it is",
    SHUFFLED: "the copy with every foreign key permuted: degrees stay, who goes with whom is lost",
    RANDOM: "the copy with every foreign key drawn uniformly: degrees are lost too",
    INDEPENDENT: "random wiring of tables whose columns are permuted one by one",
    RESAMPLED: "as many draws from the real distribution as the copy has rows: the error that sampling alone makes",
    HALVES: "one half of the real owners with their rows, against the other half: what chance alone makes",
}


def shuffled_keys(plan: Plan, coded: CodedDatabase, rng: np.random.Generator) -> CodedDatabase:
    """Permute the links of every private table's keys, each on its own."""
    return _rewired(plan, coded, {k: rng.permutation(v) for k, v in coded.links.items() if k[0] not in plan.public})


def random_wiring(plan: Plan, coded: CodedDatabase, rng: np.random.Generator) -> CodedDatabase:
    """Let every link of the private tables lead to any row of its target alike; one-to-one keys are permuted."""
    made: dict[tuple[str, str], IntArray] = {}
    for (table, name), links in coded.links.items():
        if table in plan.public:
            continue
        key = plan.database[table].key[name]
        targets = coded.rows[key.target]
        if plan.database[table].is_unique(key.columns) or not targets:
            made[table, name] = rng.permutation(links)
        else:
            made[table, name] = np.where(
                rng.permutation(links) >= 0, rng.integers(0, targets, len(links), dtype=links.dtype), -1
            )
    return _rewired(plan, coded, made)


def independent_columns(plan: Plan, coded: CodedDatabase, rng: np.random.Generator) -> CodedDatabase:
    """Permute every column of the private tables on its own, and wire at random."""
    codes = {k: v if k[0] in plan.public else rng.permutation(v) for k, v in coded.codes.items()}
    return random_wiring(plan, replace(coded, codes=codes), rng)


def _rewired(plan: Plan, coded: CodedDatabase, links: dict[tuple[str, str], IntArray]) -> CodedDatabase:
    return with_derived(plan, coded.rewired(links))
