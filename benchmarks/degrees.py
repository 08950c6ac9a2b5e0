"""How many rows owners have, in OULAD: student → enrolment → result, total variation of degrees on every key.

    python -m benchmarks.degrees [--data FOLDER] [--epsilon E ...] [--seeds N]

Results are tied to the enrolment in whose module they were handed in. Columns have declared domains, so that the
budget goes to sizes, tables and links as in a plan that somebody has edited. Bounds hide nothing.
"""

from __future__ import annotations

import argparse
import sqlite3
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

import dpweave as dw
from benchmarks.databases import DELTA, data_folder

if TYPE_CHECKING:
    from pathlib import Path

KEYS = {"enrolment": ("student", 3), "result": ("enrolment", 14)}
COLUMNS = {
    "student": ("gender", "region", "highest_education", "imd_band", "age_band", "disability"),
    "enrolment": ("code_module", "num_of_prev_attempts", "final_result"),
    "result": ("assessment_type", "is_banked"),
}


def read(data: Path) -> dict[str, pd.DataFrame]:
    """The three tables, with keys of one column."""
    with sqlite3.connect(f"file:{data / 'oulad.sqlite'}?mode=ro", uri=True) as connection:
        names = ("student", "enrolment", "student_assessment", "assessment")
        student, enrolment, handed_in, assessment = (pd.read_sql(f"SELECT * FROM {n}", connection) for n in names)
    course = ["code_module", "code_presentation"]
    result = handed_in.merge(assessment[["id_assessment", *course, "assessment_type"]], on="id_assessment")
    student, enrolment = student.assign(id=student.id_student), enrolment.assign(id=range(len(enrolment)))
    enrolment["student"] = enrolment.id_student
    result = result.merge(
        enrolment[["id", "id_student", *course]].rename(columns={"id": "enrolment"}), on=["id_student", *course]
    )
    tables = {"student": student, "enrolment": enrolment, "result": result.assign(id=range(len(result)))}
    return {n: t[["id", *(KEYS[n][:1] if n in KEYS else ()), *COLUMNS[n]]] for n, t in tables.items()}


def plan_of(tables: dict[str, pd.DataFrame]) -> dw.Plan:
    """Values as they are, listed; one student is protected with all that is theirs."""
    planned = {}
    for name, table in tables.items():
        key = {"type": "int64", "nullable": False, "domain": "key"}
        columns = dict.fromkeys(("id", *(KEYS[name][:1] if name in KEYS else ())), key)
        for c in COLUMNS[name]:
            values = sorted(table[c].dropna().unique().tolist())
            kind = "text" if isinstance(values[0], str) else "int64"
            columns[c] = {"type": kind, "nullable": bool(table[c].isna().any()), "domain": values}
        planned[name] = {"primary_key": ["id"], "columns": columns}
        if name in KEYS:
            target, bound = KEYS[name]
            planned[name]["keys"] = {
                target: {
                    "columns": [target],
                    "references": target,
                    "target": ["id"],
                    "role": "owning",
                    "max_degree": bound,
                }
            }
    return dw.Plan.from_dict({"protect": ["student"], "tables": planned})


def degrees(tables: dict[str, pd.DataFrame], name: str) -> np.ndarray:
    """How many rows of a table each row of its owner has."""
    owner = KEYS[name][0]
    return tables[name].groupby(owner).size().reindex(tables[owner].id, fill_value=0).to_numpy()


def total_variation(a: np.ndarray, b: np.ndarray) -> float:
    """Half the sum of absolute differences of shares."""
    most = max(a.max(), b.max()) + 1
    return float(np.abs(np.bincount(a, minlength=most) / len(a) - np.bincount(b, minlength=most) / len(b)).sum() / 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0, 4.0])
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    real = read(data_folder(args.data))
    plan = plan_of(real)
    for epsilon in args.epsilon:
        for seed in range(args.seeds):
            copy = dw.fit(real, plan, epsilon=epsilon, delta=DELTA, insecure_seed=seed).sample(seed=seed).to_pandas()
            for name, (owner, _) in KEYS.items():
                true, made = degrees(real, name), degrees(copy, name)
                distance = total_variation(true, made)
                print(f"{epsilon:g} {seed} {name} per {owner}: {distance:.4f}, largest {made.max()} ({true.max()})")


if __name__ == "__main__":
    main()
