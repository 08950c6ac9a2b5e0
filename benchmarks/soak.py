"""Whether anything grows: fits, refits, extensions, samples and reports by chance in one process, on one ledger.

    python -m benchmarks.soak --rounds 500

Prints memory, open descriptors, threads and files after every tenth of the rounds, and at the end how much each grew
since the first tenth. Models and copies are replaced and not added; a ledger line for each charge is all that stays.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import tempfile
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa

import dpweave as dw
from dpweave.budget.spending import read
from dpweave.errors import PlanError

PLAN = """
protect = ["people"]
[tables.people]
primary_key = ["id"]
[tables.people.columns]
id = { type = "int64", nullable = false, domain = "key" }
sex = { type = "text", nullable = false, domain = ["f", "m"] }
age = { type = "int64", nullable = false, domain = { low = 0, high = 99, bins = 5 } }
[tables.buys]
primary_key = ["id"]
[tables.buys.columns]
id = { type = "int64", nullable = false, domain = "key" }
who = { type = "int64", nullable = false, domain = "key" }
price = { type = "int64", nullable = false, domain = { low = 0, high = 9, bins = 5 } }
[tables.buys.keys.who]
columns = ["who"]
references = "people"
target = ["id"]
role = "owning"
max_degree = 4
"""


def source() -> dict[str, pa.Table]:
    """People and what they buy."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(300), rng.integers(0, 5, 300))
    people = {"id": np.arange(300), "sex": rng.choice(["f", "m"], 300), "age": rng.integers(0, 100, 300)}
    buys = {"id": np.arange(len(who)), "who": who, "price": rng.integers(0, 10, len(who))}
    return {"people": pa.table(people), "buys": pa.table(buys)}


def once(folder: Path, rng: random.Random) -> str:
    """Do one thing by chance; return what."""
    model, ledger = folder / "model.dpw", folder / "ledger.jsonl"
    verbs = ["sample", "sample", "report", "refit", "verify", "fit", "extend", "refused"]
    verb = rng.choice(verbs) if model.exists() else "fit"
    match verb:
        case "fit":
            dw.fit(source(), dw.Plan.from_toml(PLAN), epsilon=0.5, ledger=ledger).save(model)
        case "extend" if len(dw.load(model).certificate.events) < 200:
            dw.fit(source(), extend=dw.load(model), epsilon=0.5, ledger=ledger).save(model)
        case "refit":
            dw.refit(dw.load(model)).save(model)
        case "report":
            loaded = dw.load(model)
            dw.report(loaded, loaded.sample(seed=rng.randrange(9)), folder / "report.html")
        case "verify":
            assert dw.verify(dw.load(model), ledger=ledger).true
        case "refused":
            try:
                dw.refit(dw.load(model), dw.Plan.from_toml(PLAN.replace("max_degree = 4", "max_degree = 5")))
            except PlanError:
                pass
            else:
                raise AssertionError("a changed bound was not refused")
        case _:
            dw.load(model).sample(seed=rng.randrange(9)).write(folder / "copy.duckdb", overwrite=True)
    return verb


def state(folder: Path) -> dict[str, int]:
    """What may grow."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    charges = sum(len(d.entries) for d in read(folder / "ledger.jsonl").databases.values())
    return {
        "resident KiB": resident >> 10,
        "descriptors": len([*Path("/proc/self/fd").iterdir()]),
        "threads": threading.active_count(),
        "files": len([*folder.iterdir()]),
        "ledger entries": charges,
    }


def main() -> None:
    """Run rounds and print what grew."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng, tenth = random.Random(asked.seed), max(asked.rounds // 10, 1)
    with tempfile.TemporaryDirectory() as place:
        first: dict[str, int] = {}
        done: dict[str, int] = {}
        for i in range(1, asked.rounds + 1):
            verb = once(Path(place), rng)
            done[verb] = done.get(verb, 0) + 1
            if i % tenth == 0:
                now = state(Path(place))
                first = first or now
                print(i, now, flush=True)
        print("done:", done)
        print("grown since the first tenth:", {name: now[name] - first[name] for name in now})


if __name__ == "__main__":
    main()
