"""Kill processes: ``python -m tests.faults --kills 2000 [--seed 1] [--counts FILE] [--table docs/faults.md] [DEED …]``.

Counts of all runs that name the same file add up there; the table is made of them.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is there: threads do not come along into a fork

import argparse
import json
import math
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.deeds import Killer
from tests.faults.dying import AFTER, ANY_TIME, BEFORE, TORN

BATCH = 100
"""Kills after which counts are written."""


def main() -> int:
    """Kill as often as was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("deeds", nargs="*", metavar="DEED")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more after so long")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--counts", type=Path)
    parser.add_argument("--table", type=Path)
    asked = parser.parse_args()
    end, kills = time.monotonic() + asked.seconds, 0
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        killer = Killer(Path(place), random.Random(asked.seed), asked.deeds or None)
        while kills < asked.kills and time.monotonic() < end:
            before = Counter(killer.kills), Counter(killer.ends)
            kills += killer.kill(min(BATCH, asked.kills - kills), seconds=end - time.monotonic())
            print(f"{kills:,} kills, {sum(killer.ends.values()):,} ends as if nobody had been killed", flush=True)
            if asked.counts is not None:
                _add(asked.counts, killer.kills - before[0], killer.ends - before[1])
        if asked.table is not None:
            _write_table(asked.table, asked.counts, killer)
    return 0


def _add(path: Path, kills: Counter[tuple[str, str]], ends: Counter[str]) -> None:
    line = {"kills": [[*at, n] for at, n in kills.items()], "ends": dict(ends)}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _write_table(path: Path, counts: Path | None, killer: Killer) -> None:
    kills, ends = Counter(killer.kills), Counter(killer.ends)
    if counts is not None:
        kills, ends = Counter(), Counter()
        for line in map(json.loads, counts.read_text().splitlines()):
            kills.update({(deed, kind): n for deed, kind, n in line["kills"]})
            ends.update(line["ends"])
    kinds = (TORN, AFTER, BEFORE, ANY_TIME)
    rows = ["| deed | what | torn | after | before | any time | kills | ends |", "|" + "---|" * 8]
    for deed in killer.deeds:
        each = [kills[deed.name, kind] for kind in kinds]
        cells = [deed.name, deed.about, *(f"{n:,}" for n in (*each, sum(each), ends[deed.name]))]
        rows.append(f"| {' | '.join(cells)} |")
    each = [sum(n for (_, k), n in kills.items() if k == kind) for kind in kinds]
    rows.append(f"| all | | {' | '.join(f'{n:,}' for n in (*each, sum(each), sum(ends.values())))} |")
    text = path.read_text()
    start, end = text.index("<!-- kills -->"), text.index("<!-- end -->")
    path.write_text(f"{text[:start]}<!-- kills -->\n\n" + "\n".join(rows) + f"\n\n{text[end:]}")


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # DuckDB, imported and never used, complains as it goes
