"""What was tried in all, added up over runs, and the table of docs/fuzzing.md that says so."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from tests.fuzz.running import CORPUS
from tests.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fuzz.running import Outcome

GUIDED, BROKEN = "guided", "broken"


def add(path: Path, name: str, how: str, out: Outcome) -> None:
    """Write one run of a target down."""
    with path.open("a") as file:
        file.write(json.dumps({"target": name, "how": how, "open": len(out.findings), **out.counts()}) + "\n")


def table(path: Path) -> str:
    """Return the table of all runs that a file has."""
    total: dict[str, Counter[str]] = {name: Counter() for name in TARGETS}
    slowest = dict.fromkeys(TARGETS, 0.0)
    for line in map(json.loads, path.read_text().splitlines()):
        name = line["target"]
        total[name].update({line["how"]: line["tried"], "refused": line["refused"], "taken": line["taken"]})
        slowest[name] = max(slowest[name], line["slowest"])
    columns = (BROKEN, GUIDED, "refused", "taken")
    rows = [
        "| target | what | broken | guided | refused by us | taken | kept findings | slowest (s) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, target in TARGETS.items():
        kept = len(list((CORPUS / name).glob("*"))) if (CORPUS / name).exists() else 0
        cells = [name, target.about, *(f"{total[name][c]:,}" for c in columns), str(kept), f"{slowest[name]:.1f}"]
        rows.append(f"| {' | '.join(cells)} |")
    every = sum(total.values(), Counter())
    inputs = every[BROKEN] + every[GUIDED]
    rows.append(f"| all: {inputs:,} | | {' | '.join(f'{every[c]:,}' for c in columns)} | | |")
    return "\n".join(rows)


def write_table(path: Path, counts: Path) -> None:
    """Put the table of all runs into a page."""
    text = path.read_text()
    start, end = text.index("<!-- counts -->"), text.index("<!-- end -->")
    path.write_text(f"{text[:start]}<!-- counts -->\n\n{table(counts)}\n\n{text[end:]}")
