"""Fuzzing that is guided by which lines an input reaches: ``python -m tests.fuzz.guided TARGET --count 100000``.

Needs atheris (``pip install atheris``), which no other test does. Inputs grow from sound ones and from some that the
other generators made; whatever is a finding is kept like theirs.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

SEEDS = 30
LONGEST = 1 << 16


def main() -> None:
    """Try a target so often, and count."""
    import atheris

    with atheris.instrument_imports(include=["dpweave", "tomlkit", "tomllib"]):
        from tests.fuzz.counting import GUIDED, add
        from tests.fuzz.running import Outcome, attempt, keep
        from tests.fuzz.targets import TARGETS, keep_answers, prepare
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--counts", type=Path)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    prepare(folder)
    keep_answers(folder)
    target, rng, out = TARGETS[asked.target], random.Random(asked.seed), Outcome()
    corpus = folder / "corpus"
    corpus.mkdir()
    for i in range(SEEDS):
        (corpus / str(i)).write_bytes(target.make(rng, folder))

    def once(content: bytes) -> None:
        attempt(target, folder, content, out)
        if out.tried == asked.count:
            for where, found in out.findings.items():
                print(f"    {where}: kept as {keep(asked.target, found)}")
            print(f"{asked.target}: {out.counts()}, {len(out.findings)} found", flush=True)
            if asked.counts is not None:
                add(asked.counts, asked.target, GUIDED, out)
            os._exit(int(bool(out.findings)))

    atheris.Setup([sys.argv[0], f"-max_len={LONGEST}", f"-seed={asked.seed}", "-rss_limit_mb=0", str(corpus)], once)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
