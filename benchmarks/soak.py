"""Whether anything grows: fits, refits, extensions, samples and reports by chance in one process, on one ledger.

    python -m benchmarks.soak --rounds 500
    python -m benchmarks.soak --rounds 10000 --commands --seconds 1800

Prints memory, open descriptors, threads and files after every tenth of the rounds (of the seconds, where there are
any), and at the end how much each grew since the first tenth. Models and copies are replaced and not added; a ledger
line for each charge is all that stays. With ``--commands`` rounds are commands as they are typed, some of them wrong,
and the ledger has a cap that is raised where it refuses; fits are cut off now and then, and go on.
"""

from __future__ import annotations

import argparse
import gc
import io
import math
import os
import random
import sys
import tempfile
import threading
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

import dpweave as dw
from dpweave.budget.spending import read
from dpweave.cli import commands
from dpweave.errors import PlanError
from dpweave.fitting import fit as fitting

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


CUT_OFF = 130
"""How a command ends that was interrupted."""


def call(*arguments: object, cut_off: bool = False) -> tuple[int, str]:
    """Run one command in this process; return its exit code and what it said."""
    said, learn = io.StringIO(), fitting.learn_links

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    sys.argv = ["dpweave", *map(str, arguments)]
    if cut_off:
        fitting.learn_links = interrupted  # type: ignore[assignment]
    try:
        with redirect_stdout(said), redirect_stderr(said):
            commands.main()
    except SystemExit as stop:
        return int(stop.code or 0), said.getvalue()
    finally:
        fitting.learn_links = learn
    return 0, said.getvalue()


def typed(folder: Path, rng: random.Random) -> str:
    """Type one command by chance, and hold its exit code; return it."""
    shop, plan, model, ledger = (folder / name for name in ("shop", "plan.toml", "model.dpw", "ledger.jsonl"))
    fit = ("fit", shop, "-p", plan, "-e", "0.5", "-o", model, "--ledger", ledger, "-q", "-f")
    verbs = ["sample", "report", "refit", "verify", "ledger", "doctor", "explain", "check", "fit", "cut off", "wrong"]
    verb, expected = rng.choice(verbs) if model.exists() else "fit", {0}
    out = rng.choice(["copy.duckdb", "copy.sqlite", "copy", "copy.csv"])
    match verb:
        case "fit" | "cut off":
            left = [*folder.glob("*.answers")]
            resume = ["--resume"] if left else []
            code, said = call(*fit, *resume, cut_off=verb == "cut off")
            if code == 4:  # the cap
                assert "cap" in said, said
                found = max(d.cap.epsilon for d in read(ledger).databases.values() if d.cap is not None)
                verb = "cap"
                code, said = call("ledger", ledger, "--cap-epsilon", 2 * found)
            expected = {CUT_OFF} if verb == "cut off" else {0}
        case "sample":
            code, said = call("sample", model, "-o", folder / out, "-f", "-q", "--seed", rng.randrange(9))
        case "report":
            copy = folder / "copy.sqlite"
            call("sample", model, "-o", copy, "-f", "-q")
            code, said = call("report", model, copy, "-o", folder / "report.html", "-f")
        case "refit":
            code, said = call("refit", model, "-o", model, "-f", "-q")
        case "verify":
            code, said = call("verify", model, "--ledger", ledger)
        case "ledger":
            code, said = call("ledger", ledger, *rng.choice([[], ["--verify"], ["--anchor"], ["--json"]]))
        case "doctor":
            code, said = call("doctor", plan, "--ledger", ledger)
        case "explain":
            code, said = call("explain", plan, "-e", "1")
        case "check":
            code, said = call("check", plan, shop)
        case _:
            wrong = [
                ("fit", shop, "-p", model, "-e", "1", "-o", folder / "x.dpw"),
                ("sample", plan, "-o", folder / "x"),
            ]
            wrong += [("verify", folder / "none.dpw"), ("fit", shop, "-p", plan, "-e", "-1", "-o", folder / "x.dpw")]
            code, said = call(*rng.choice(wrong))
            expected = {2, 3, 5}
    assert code in expected, f"{verb}: {code}, {said}"
    return verb


def prepare(folder: Path) -> None:
    """What commands work on: a folder of files, a plan, and a ledger with a cap."""
    write_csv(folder / "shop")
    (folder / "plan.toml").write_text(PLAN)
    code, said = call(
        "fit",
        folder / "shop",
        "-p",
        folder / "plan.toml",
        "-e",
        "0.5",
        "-q",
        "-o",
        folder / "model.dpw",
        "--ledger",
        folder / "ledger.jsonl",
    )
    assert code == 0, said
    code, said = call("ledger", folder / "ledger.jsonl", "--cap-epsilon", 4)
    assert code == 0, said


def write_csv(folder: Path) -> None:
    """Put the source into a folder of CSV files."""
    folder.mkdir()
    for name, table in source().items():
        csv.write_csv(table, folder / f"{name}.csv")


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
    parser.add_argument("--commands", action="store_true")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more after so long")
    asked = parser.parse_args()
    rng, began, tenths = random.Random(asked.seed), time.monotonic(), 0
    with tempfile.TemporaryDirectory() as place:
        first: dict[str, int] = {}
        done: dict[str, int] = {}
        if asked.commands:
            prepare(Path(place))
        for i in range(1, asked.rounds + 1):
            verb = (typed if asked.commands else once)(Path(place), rng)
            done[verb] = done.get(verb, 0) + 1
            share = max(i / asked.rounds, (time.monotonic() - began) / asked.seconds)
            if share * 10 >= tenths + 1:
                tenths = int(share * 10)
                now = state(Path(place))
                first = first or now
                print(i, now, flush=True)
            if share >= 1:
                break
        print("done:", dict(sorted(done.items())))
        print("grown since the first tenth:", {name: now[name] - first[name] for name in now})


if __name__ == "__main__":
    main()
