"""Figures that need a learner or an outside library: detection, prediction, closeness, SDMetrics. NOT PRIVATE."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave import chosen
from dpweave.evaluation.baselines import INDEPENDENT, RANDOM, SYNTHETIC
from dpweave.evaluation.comparisons import REAL, Score, usable_columns
from dpweave.schema.domain import Attribute

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.arrays import FloatArray, IntArray
    from dpweave.model.coded_database import CodedDatabase
    from dpweave.plan.plan import Plan

MOST_ROWS = 5000
"""Rows of either kind that a learner sees."""
MOST_UNITS = 1000
"""Synthetic entities whose closest real one is looked for, among at most ten times as many."""
MOST_SDMETRICS_ROWS = 300_000
EXTRA = "install dpweave[evaluate] for it"


def scores(
    plan: Plan,
    real: CodedDatabase,
    rivals: Mapping[str, CodedDatabase],
    *,
    real_tables: Mapping[str, pa.Table] | None,
    db: Mapping[str, pa.Table],
    target: tuple[str, str] | None,
    rng: np.random.Generator,
) -> tuple[list[Score], list[str]]:
    """Return every further figure that can be had here, and a note for each that cannot."""
    out: list[Score] = []
    notes: list[str] = []
    if find_spec("sklearn") is None:
        notes.append(f"detection and prediction need scikit-learn; {EXTRA}")
    else:
        out += detection(plan, real, rivals, rng)
        if target is None:
            notes.append("prediction was not asked for; name a column: --predict table.column, or target= in Python")
        else:
            out.append(prediction(plan, real, rivals, target, rng))
    if find_spec("sdmetrics") is None:
        notes.append(f"the SDMetrics quality report needs sdmetrics; {EXTRA}")
    else:
        found, why = sdmetrics_quality(plan, real_tables, db, rng)
        out += found
        notes += why
    return out, notes


# -- joined rows as features -------------------------------------------------------------------------------------------


def features(
    plan: Plan, coded: CodedDatabase, table: str, rows: IntArray | None = None, *, without: str | None = None
) -> IntArray:
    """Rows of a table, or some of them, with the columns of their parents and grandparents and the numbers of rows
    that lead to them.
    """
    rows = np.arange(coded.rows[table]) if rows is None else rows
    paths: list[tuple[str, ...]] = [()]
    for key in plan.database[table].foreign_keys:
        paths.append((key.name,))
        paths += [(key.name, onward.name) for onward in plan.database[key.target].foreign_keys]
    found: list[IntArray] = []
    for path in paths:
        end = plan.promise.graph.walk(table, path)
        at = coded.position(table, path)[rows]
        columns = [c for c in usable_columns(plan, end) if path or c != without]
        counted = [(t.name, k.name) for t, k in plan.promise.graph.incoming(end) if t.name not in plan.public]
        found += [_at(coded.codes[end, column], at) for column in columns]
        found += [_at(coded.degrees(child, key), at) for child, key in counted]
    if not found:
        return np.zeros((len(rows), 0), dtype=np.int64)
    return np.stack(found, axis=1)


def _at(values: IntArray, at: IntArray) -> IntArray:
    padded = values if len(values) else np.zeros(1, dtype=np.int64)
    return np.where(at >= 0, padded[np.maximum(at, 0)].astype(np.int64), -1)


def _some(rows: int, most: int, rng: np.random.Generator) -> IntArray:
    """Numbers of at most so many rows, in any order."""
    return rng.permutation(rows)[:most]


def detection(
    plan: Plan, real: CodedDatabase, rivals: Mapping[str, CodedDatabase], rng: np.random.Generator
) -> list[Score]:
    """Train a classifier to tell real rows, joined with their parents, from synthetic ones."""
    out = []
    for table in plan.database.names:
        if table in plan.public:
            continue
        true = features(plan, real, table, _some(real.rows[table], 2 * MOST_ROWS, rng))
        if len(true) < 40 or not true.shape[1]:
            continue
        value = {
            n: separability(true, features(plan, r, table, _some(r.rows[table], MOST_ROWS, rng)), rng)
            for n, r in rivals.items()
        }
        half = rng.permutation(len(true))
        value[REAL] = separability(true[half[::2]], true[half[1::2]], rng)
        meaning = "area under the ROC curve of a classifier on held-out rows: 0.5 cannot tell, 1 always can"
        out.append(Score("real or synthetic?", table, value, meaning))
    return out


def separability(a: IntArray, b: IntArray, rng: np.random.Generator) -> float:
    """How well held-out rows of ``a`` and ``b`` can be told apart: area under the ROC curve."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score
    from threadpoolctl import threadpool_limits

    count = min(len(a), len(b), MOST_ROWS)
    if count < 20:
        return float("nan")
    rows = np.concatenate([x[_some(len(x), count, rng)] for x in (a, b)]).astype(np.float64)
    mark = np.repeat([0, 1], count)
    order = rng.permutation(2 * count)
    known = int((1 - chosen.HELD_OUT) * len(order))
    train, test = order[:known], order[known:]
    with threadpool_limits(limits=1):  # threads that wait for each other on a busy machine take minutes
        learner = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(rows[train], mark[train])
        return float(roc_auc_score(mark[test], learner.predict_proba(rows[test])[:, 1]))


def prediction(
    plan: Plan,
    real: CodedDatabase,
    rivals: Mapping[str, CodedDatabase],
    target: tuple[str, str],
    rng: np.random.Generator,
) -> Score:
    """Train on synthetic rows and predict the target column of held-out real ones;
    train on real ones for comparison.
    """
    table, column = target
    order = rng.permutation(real.rows[table])
    held = order[: min(len(order) // 3, MOST_ROWS)]
    test, answer = features(plan, real, table, held, without=column), real.codes[target][held]
    seen = {n: (r, _some(r.rows[table], 2 * MOST_ROWS, rng)) for n, r in rivals.items()}
    seen[REAL] = real, order[len(held) :][: 2 * MOST_ROWS]
    value = {
        n: _accuracy(features(plan, r, table, rows, without=column), r.codes[target][rows], test, answer)
        for n, (r, rows) in seen.items()
    }
    common = np.bincount(answer).max() / max(len(held), 1) if len(held) else float("nan")
    value["commonest value"] = float(common)
    return Score(
        "train on synthetic, test on real",
        f"{table}.{column}",
        value,
        "share of held-out real rows whose value is predicted right; 'real' was trained on real rows",
    )


def _accuracy(rows: IntArray, truth: IntArray, test: IntArray, answer: IntArray) -> float:
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    if not len(rows) or not len(test) or not rows.shape[1]:
        return float("nan")
    if len(np.unique(truth)) == 1:
        return float((answer == truth[0]).mean())
    with threadpool_limits(limits=1):
        learner = HistGradientBoostingClassifier(max_iter=60, random_state=0)
        learner.fit(rows.astype(np.float64), truth)
        return float((learner.predict(test.astype(np.float64)) == answer).mean())


# -- closeness ---------------------------------------------------------------------------------------------------------


def entities(plan: Plan, coded: CodedDatabase, table: str, rows: IntArray) -> IntArray:
    """One row for each of some protected rows: its own codes, and for each table it owns
    directly the commonest code of each column.
    """
    found = [coded.codes[table, c][rows].astype(np.int64) for c in usable_columns(plan, table)]
    for child, key in plan.promise.owning.items():
        if plan.database[child].key[key].target != table or child == table:
            continue
        found.append(coded.degrees(child, key)[rows])
        owner = coded.links[child, key]
        for column in usable_columns(plan, child):
            size = coded.sizes[child, column]
            found.append(_commonest(owner, coded.codes[child, column], coded.rows[table], size)[rows])
    if not found:
        return np.zeros((len(rows), 0), dtype=np.int64)
    return np.stack(found, axis=1)


def _commonest(owner: IntArray, codes: IntArray, owners: int, size: int) -> IntArray:
    """Commonest code among the rows of each owner (the smallest of several), or -1 where there are none."""
    cell, count = np.unique(owner[owner >= 0].astype(np.int64) * size + codes[owner >= 0], return_counts=True)
    best = np.full(owners, -1, dtype=np.int64)
    order = np.lexsort((-cell, count))  # the last one assigned stays: the commonest, of those the smallest
    best[cell[order] // size] = cell[order] % size
    return best


def closest_records(
    plan: Plan, real: CodedDatabase, rivals: Mapping[str, CodedDatabase], rng: np.random.Generator
) -> list[Score]:
    """How near synthetic entities come to real ones, next to how near real ones come to each other."""
    out = []
    for table in plan.protect:
        order = rng.permutation(real.rows[table])
        known = entities(plan, real, table, order[::2][: 10 * MOST_UNITS])
        samples = {
            n: entities(plan, rivals[n], table, _some(rivals[n].rows[table], MOST_UNITS, rng))
            for n in (SYNTHETIC, INDEPENDENT)
        }
        samples[REAL] = entities(plan, real, table, order[1::2][:MOST_UNITS])
        if real.rows[table] < 4 or not len(samples[SYNTHETIC]) or not known.shape[1]:
            continue
        nearest = {n: closest(x, known) for n, x in samples.items()}
        out.append(
            Score(
                "distance to the closest real entity",
                table,
                {n: float(d.mean()) for n, d in nearest.items()},
                "mean share of columns that differ; 'real' are held-out real entities. Much below them is copying",
            )
        )
        out.append(
            Score(
                "entities equal to a real one",
                table,
                {n: float((d == 0).mean()) for n, d in nearest.items()},
                "share that agree with some real entity in every column; 'real' are held-out real entities",
            )
        )
    return out


def closest(rows: IntArray, among: IntArray) -> FloatArray:
    """Share of columns in which each row differs from the most similar row of ``among``."""
    out = np.empty(len(rows), dtype=np.float64)
    step = max(1, 20_000_000 // max(among.size, 1))
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        out[start : start + step] = (part[:, None, :] != among[None, :, :]).mean(axis=2).min(axis=1)
    return out


# -- SDMetrics ---------------------------------------------------------------------------------------------------------


def sdmetrics_quality(
    plan: Plan, real: Mapping[str, pa.Table] | None, db: Mapping[str, pa.Table], rng: np.random.Generator
) -> tuple[list[Score], list[str]]:
    """The multi-table quality report of SDMetrics, which knows keys of one column only, also for random wiring."""
    if real is None:
        return [], [f"the SDMetrics quality report was left out: more than {MOST_SDMETRICS_ROWS:,} rows"]
    names = [n for n in plan.database.names if n not in plan.public]
    metadata, notes = sdmetrics_metadata(plan, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sdmetrics.reports import QualityReport

        truth, copy = ({n: _frame(plan, t[n], n) for n in names} for t in (real, db))
        found: dict[str, dict[str, float]] = {}
        for rival, frames in ((SYNTHETIC, copy), (RANDOM, _randomly_wired(copy, metadata, rng))):
            made = QualityReport()
            made.generate(truth, frames, metadata, verbose=False)
            found.setdefault("overall", {})[rival] = float(made.get_score())
            for r in made.get_properties().to_dict("records"):
                found.setdefault(r["Property"], {})[rival] = float(r["Score"])
    meaning = "between 0 and 1, 1 is best; a dash where SDMetrics finds nothing strong enough to compare"
    return [Score(f"SDMetrics, {name}", "all private tables", value, meaning) for name, value in found.items()], notes


def _randomly_wired(frames: Mapping[str, Any], metadata: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Let every key that SDMetrics knows lead to any row of its target alike; nulls stay."""
    made = {name: frame.copy() for name, frame in frames.items()}
    for key in metadata["relationships"]:
        child, parents = made[key["child_table_name"]], frames[key["parent_table_name"]][key["parent_primary_key"]]
        column = key["child_foreign_key"]
        if len(parents):
            drawn = parents.to_numpy()[rng.integers(0, len(parents), len(child))]
            child[column] = child[column].mask(child[column].notna(), drawn)
    return made


def sdmetrics_metadata(plan: Plan, names: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Describe private tables in SDMetrics' words, and say what it cannot hold."""
    notes: list[str] = []
    tables: dict[str, Any] = {}
    relationships = []
    for name in names:
        table = plan.database[name]
        columns = {c.name: {"sdtype": _sdtype(plan, name, c.name)} for c in table.columns}
        tables[name] = {"columns": columns}
        if len(table.primary_key) == 1:
            tables[name]["primary_key"] = table.primary_key[0]
    for name in names:
        for key in plan.database[name].foreign_keys:
            if key.target not in names:
                continue
            if (
                len(key.columns) == 1
                and plan.database[key.target].primary_key == key.target_columns
                and key.target != name
            ):
                relationships.append(
                    {
                        "parent_table_name": key.target,
                        "parent_primary_key": key.target_columns[0],
                        "child_table_name": name,
                        "child_foreign_key": key.columns[0],
                    }
                )
            else:
                notes.append(f"SDMetrics cannot hold the key {name}.{key.name}, which its figures leave out")
    return {"tables": tables, "relationships": relationships}, notes


def _sdtype(plan: Plan, table: str, column: str) -> str:
    planned = plan.table[table].column[column]
    if planned.domain is None or Attribute(column).column not in usable_columns(plan, table):
        return "id"
    match planned.column.type.kind:
        case "integer" | "float" | "decimal":
            return "numerical"
        case "date" | "timestamp":
            return "datetime"
        case "boolean":
            return "boolean"
        case _:
            return "categorical"


def _frame(plan: Plan, table: pa.Table, name: str) -> Any:
    import pandas as pd

    frame = table.to_pandas()
    for column in plan.database[name].columns:
        kind = column.type.kind
        if _sdtype(plan, name, column.name) == "datetime":
            frame[column.name] = pd.to_datetime(frame[column.name], errors="coerce")
        elif kind == "decimal":
            frame[column.name] = frame[column.name].astype(float)
    return frame
