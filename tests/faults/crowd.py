"""Many fits at the same time on one ledger whose cap leaves room for some of them:

    python -m tests.faults.crowd --fits 100 --models 37

All begin at once. Exactly so many models must be there in the end, each of them true; every other fit must have been
refused before it was charged for anything, and nothing may be left of it.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is there: threads do not come along into a fork

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

import dpweave as dw
from dpweave.budget.spending import read
from dpweave.errors import BudgetError
from dpweave.privacy.accounting import epsilon_of_rho, rho_of_epsilon
from dpweave.privacy.ledger import set_cap
from tests.faults.deeds import LEDGER, ONE, PEOPLE
from tests.faults.dying import forked, warm

EPSILON, DELTA = 0.5, 1e-5
FRAMES = {"people": PEOPLE["people"]}
REFUSED = 4


def fit(folder: Path, name: str) -> None:
    """Fit and save under a name of its own."""
    plan = dw.Plan.from_toml(ONE)
    dw.fit(FRAMES, plan, epsilon=EPSILON, delta=DELTA, ledger=folder / LEDGER).save(folder / name)


def one_of_many(folder: Path, name: str, start: int) -> int:
    """Wait until all are let go, and fit; say how it ended."""
    os.read(start, 1)  # ends when the parent closes its end
    try:
        fit(folder, name)
    except BudgetError:
        return REFUSED
    return 0


def crowd(folder: Path, *, fits: int, models: int) -> None:
    """Let so many fits go at the same time, where there is room for so many models."""
    (folder / "first").mkdir()
    warm(forked(partial(fit, folder / "first", "m.dpw"), folder / "first"))
    (database,) = read(folder / "first" / LEDGER).databases
    room = rho_of_epsilon(EPSILON, delta=DELTA) * (models + 0.05)
    set_cap(folder / LEDGER, database=database, epsilon=epsilon_of_rho(room, delta=DELTA), delta=DELTA)
    start, go = os.pipe()
    children = []
    for i in range(fits):
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            os.close(go)
            code = 1
            try:
                code = one_of_many(folder, f"m{i}.dpw", start)
            finally:
                os._exit(code)
        children.append(child)
    os.close(start)
    os.close(go)
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(ends) == [0] * models + [REFUSED] * (fits - models), ends
    made = {f"m{i}.dpw" for i, end in enumerate(ends) if end == 0}
    assert {p.name for p in folder.iterdir()} == made | {LEDGER, f"{LEDGER}.lock", "first"}
    found = read(folder / LEDGER).databases[database]
    charged = {e.run for e in found.entries if e.kind == "charge"}
    assert not found.reserved
    for name in made:
        model = dw.load(folder / name)
        assert dw.verify(model, ledger=folder / LEDGER).true
        charged.discard(model.certificate.run)
    assert not charged, "a fit was charged for something, and has no model"


def main() -> None:
    """Crowd as was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--models", type=int, default=37)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        crowd(Path(place), fits=asked.fits, models=asked.models)
    print(f"{asked.fits} fits at the same time under a cap for {asked.models}: exactly {asked.models} models")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # DuckDB, imported and never used, complains as it goes
