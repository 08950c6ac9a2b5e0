"""Run targets: ``python -m tests.fuzz --count 1000 [--seed 1] [--table docs/fuzzing.md] [TARGET …]``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.running import CORPUS, keep, limit_memory, run
from tests.fuzz.targets import TARGETS, keep_answers, prepare


def main() -> int:
    """Run what was asked for; 1 if something was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--keep", action="store_true", help="keep what is found in the corpus")
    asked = parser.parse_args()
    rows, found = [], 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        prepare(folder)
        keep_answers(folder)
        limit_memory()
        for name in asked.targets or TARGETS:
            out = run(TARGETS[name], folder, asked.count, seed=asked.seed)
            kept = len(list((CORPUS / name).glob("*"))) if (CORPUS / name).exists() else 0
            rows.append(
                f"| {name} | {TARGETS[name].about} | {out.tried:,} | {out.refused:,} | {out.taken:,} |"
                f" {len(out.findings)} | {kept} | {out.slowest:.1f} |"
            )
            print(rows[-1], flush=True)
            for where, content in out.findings.items():
                print(f"    {where}  ({len(content):,} bytes)", flush=True)
                if asked.keep:
                    print(f"    kept as {keep(name, content)}")
            found += len(out.findings)
    if asked.table is not None:
        text = asked.table.read_text()
        start, end = text.index("<!-- counts -->"), text.index("<!-- end -->")
        head = "| target | what | inputs | refused by us | taken | found open | in the corpus | slowest (s) |\n"
        table = head + "|---|---|---|---|---|---|---|---|\n" + "\n".join(rows)
        asked.table.write_text(f"{text[:start]}<!-- counts -->\n\n{table}\n\n{text[end:]}")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
