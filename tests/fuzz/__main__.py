"""Run targets: ``python -m tests.fuzz --count 1000 [--seed 1] [--counts FILE --table docs/fuzzing.md] [TARGET …]``.

Counts of all runs that name the same file add up there; the table is made of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.counting import BROKEN, add, write_table
from tests.fuzz.running import keep, limit_memory, run
from tests.fuzz.targets import TARGETS, keep_answers, prepare


def main() -> int:
    """Run what was asked for; 1 if something was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--counts", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--keep", action="store_true", help="keep what is found in the corpus")
    asked = parser.parse_args()
    found = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder)
        keep_answers(folder)
        limit_memory()
        for name in asked.targets or TARGETS:
            out = run(TARGETS[name], folder, asked.count, seed=asked.seed)
            print(f"{name}: {out.counts()}", flush=True)
            for where, content in out.findings.items():
                print(f"    {where}  ({len(content):,} bytes)", flush=True)
                if asked.keep:
                    print(f"    kept as {keep(name, content)}")
            found += len(out.findings)
            if asked.counts is not None:
                add(asked.counts, name, BROKEN, out)
    if asked.table is not None and asked.counts is not None:
        write_table(asked.table, asked.counts)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
