"""A made-up clinic whose visits come in a planted order, and how much of it a copy keeps.

``python benchmarks/sequences.py`` fits at epsilon 1 and 4, three seeds each, with and without ``order_by``, and prints:

- transitions: the part of the planted excess of (column of a row, column of the next) that a copy has, 1 for all of it;
- gaps: Kolmogorov-Smirnov distance of the gaps between visits, and by how much the gap after an acute visit is shorter;
- first and last: the same distance of the first and last visit per patient; times: of the column itself;
- in a row: total variation of (month, ward), which must not get worse.
"""

from __future__ import annotations

import argparse
import datetime as dt
from typing import Any

import numpy as np
import pandas as pd

import dpweave as dw

STATUS, WARDS = ("acute", "treated", "stable", "discharged"), ("a", "b", "c", "d", "e")
NEXT = np.array(
    [[0.15, 0.65, 0.15, 0.05], [0.10, 0.35, 0.45, 0.10], [0.10, 0.10, 0.50, 0.30], [0.70, 0.10, 0.10, 0.10]]
)
MEAN_GAP = np.array([7.0, 21.0, 60.0, 150.0])
BEGIN, END = dt.date(2018, 1, 1), dt.date(2024, 12, 31)
ONE_DAY = dt.timedelta(days=1)


def clinic(patients: int, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Patients who registered some day, and their visits: a chain of statuses, wards that stay, gaps by status."""
    rng = np.random.default_rng([seed, 22])
    span = (END - BEGIN).days
    registered = rng.integers(0, span - 200, patients)
    old = rng.integers(0, 3, patients)
    rows = []
    wanted = 1 + rng.poisson(3 + 2 * old)
    for p in range(patients):
        day, status, ward = registered[p] + int(rng.exponential(20)), int(rng.integers(0, 2)), int(rng.integers(0, 5))
        for _ in range(wanted[p]):
            if day > span:
                break
            rows.append((p, day, status, ward))
            day += 1 + int(rng.exponential(MEAN_GAP[status]))
            status = int(rng.choice(4, p=NEXT[status]))
            ward = ward if rng.random() < 0.7 else int(rng.integers(0, 5))
    who, day, status, ward = (np.array(x) for x in zip(*rows, strict=True))
    shuffled = rng.permutation(len(rows))
    visits = pd.DataFrame(
        {
            "patient_id": who,
            "came": [BEGIN + int(d) * ONE_DAY for d in day],
            "status": np.array(STATUS)[status],
            "ward": np.array(WARDS)[(ward + (day > span / 2)) % 5],
        }
    ).iloc[shuffled]
    visits.insert(0, "id", np.arange(len(rows)))
    known = pd.DataFrame(
        {"id": np.arange(patients), "age": old, "registered": [BEGIN + int(d) * ONE_DAY for d in registered]}
    )
    return {"patients": known, "visits": visits.reset_index(drop=True)}


def plan(*, order: bool = True, cap: int = 16, never_back: bool = False) -> dw.Plan:
    """The clinic's plan: domains of dates are declared, so that what is left is order."""
    key = {"type": "int64", "nullable": False, "domain": "key"}
    when = {"type": "date", "nullable": False, "domain": {"low": BEGIN, "high": END, "bins": 28}}
    link: dict[str, Any] = {
        "columns": ["patient_id"], "references": "patients", "target": ["id"], "role": "owning", "max_degree": cap,
        "degree_cap": cap,
    }  # fmt: skip
    if order:
        link["order_by"] = "came"
    return dw.Plan.from_dict(
        {
            "protect": ["patients"],
            "tables": {
                "patients": {
                    "primary_key": ["id"],
                    "columns": {
                        "id": key,
                        "age": {"type": "int64", "nullable": False, "domain": [0, 1, 2]},
                        "registered": when,
                    },
                },
                "visits": {
                    "primary_key": ["id"],
                    "columns": {
                        "id": key,
                        "patient_id": key,
                        "came": when,
                        "status": {"type": "text", "nullable": False, "domain": list(STATUS)},
                        "ward": {"type": "text", "nullable": False, "domain": list(WARDS)},
                    },
                    "keys": {"patient_id": link},
                },
            },
            **({"constraints": [{"table": "visits", "never_back": "status"}]} if never_back else {}),
        }
    )


def in_order(visits: pd.DataFrame) -> pd.DataFrame:
    """Visits by patient and day, with what the one before was, and how long ago."""
    visits = visits.sort_values(["patient_id", "came"], kind="stable").reset_index(drop=True)
    day = pd.to_datetime(visits.came)
    grouped = visits.groupby("patient_id")
    return visits.assign(
        day=day,
        gap=day.groupby(visits.patient_id).diff().dt.days,
        was_status=grouped.status.shift(),
        was_ward=grouped.ward.shift(),
    )


def excess(visits: pd.DataFrame, column: str) -> np.ndarray:
    """How much more often than by chance a value comes after another, as a table."""
    pairs = visits.dropna(subset=[f"was_{column}"])
    values = STATUS if column == "status" else WARDS
    joint = pd.crosstab(pairs[f"was_{column}"], pairs[column]).reindex(index=values, columns=values, fill_value=0)
    shares = joint.to_numpy() / max(len(pairs), 1)
    return shares - np.outer(shares.sum(axis=1), shares.sum(axis=0))


def distance(a: pd.Series, b: pd.Series) -> float:
    """Kolmogorov-Smirnov distance."""
    a, b = np.sort(a.dropna().to_numpy()), np.sort(b.dropna().to_numpy())
    at = np.concatenate([a, b])
    return float(np.abs(np.searchsorted(a, at, "right") / len(a) - np.searchsorted(b, at, "right") / len(b)).max())


def figures(real: dict[str, pd.DataFrame], copy: dict[str, pd.DataFrame]) -> dict[str, float]:
    """What a copy keeps."""
    a, b = in_order(real["visits"]), in_order(copy["visits"])
    out = {}
    for column in ("status", "ward"):
        x, y = excess(a, column), excess(b, column)
        out[column] = float((x * y).sum() / (x * x).sum())
    out["gaps"] = distance(a.gap, b.gap)
    x, y = (np.log(v[v.was_status == "acute"].gap.mean() / v[v.was_status == "stable"].gap.mean()) for v in (a, b))
    out["gap by status"] = float(y / x)
    for name in ("min", "max"):
        x, y = (v.groupby("patient_id").day.agg(name) for v in (a, b))
        out["first" if name == "min" else "last"] = distance(x, y)
    out["times"] = distance(a.day, b.day)
    x, y = (
        pd.crosstab(v.day.dt.to_period("Y"), v.ward, normalize="all").reindex(columns=WARDS, fill_value=0)
        for v in (a, b)
    )
    out["in a row"] = float((x - y).abs().fillna(1).to_numpy().sum() / 2)
    x, y = (
        pd.crosstab(v.merge(t["patients"], left_on="patient_id", right_on="id").age, v.status, normalize="all")
        for v, t in ((a, real), (b, copy))
    )
    out["with owner"] = float((x - y).abs().to_numpy().sum() / 2)
    out["visits per patient"] = distance(a.groupby("patient_id").size(), b.groupby("patient_id").size())
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patients", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, nargs="*", default=[1.0, 4.0])
    parser.add_argument("--order", choices=["yes", "no", "both"], default="both")
    chosen = parser.parse_args()
    real = clinic(chosen.patients)
    half = clinic(chosen.patients, seed=1)
    print("another clinic alike", {k: round(v, 3) for k, v in figures(real, half).items()}, flush=True)
    for epsilon in chosen.epsilon:
        for order in {"yes": [True], "no": [False], "both": [True, False]}[chosen.order]:
            for seed in range(chosen.seeds):
                model = dw.fit(real, plan(order=order), epsilon=epsilon, delta=1e-6, insecure_seed=seed)
                found = figures(real, model.sample(seed=seed).to_pandas())
                named = "ordered" if order else "independent"
                print(
                    f"epsilon {epsilon:g} seed {seed} {named}", {k: round(v, 3) for k, v in found.items()}, flush=True
                )


if __name__ == "__main__":
    main()
