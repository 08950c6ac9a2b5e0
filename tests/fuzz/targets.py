"""What is broken, and what is done with it. Each target makes an input from a random generator, and tries it."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import zipfile
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pyarrow as pa
import tomlkit

import dpweave as dw
from dpweave.budget.kept_answers import _sealed, find
from dpweave.budget.spending import read
from dpweave.engines.opening import open_source
from dpweave.plan.plan import Plan
from tests.fuzz.breaking import spoilt, torn
from tests.model.shops import PLAN, fitted
from tests.plan_values import PLAN as EVERY_KEY

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True)
class Target:
    """One kind of input: how one is made, from what sound ones, and what reads it."""

    about: str
    make: Callable[[random.Random, Path], bytes]
    read: Callable[[bytes, Path], None]


def prepare(folder: Path) -> None:
    """Make the sound files that inputs are broken from."""
    model = fitted(folder / "ledger.jsonl", epsilon=2.0)
    model.save(folder / "shop.dpw")
    model.sample(scale=0.05).write(folder / "copy.csv")
    shutil.copy(folder / "copy.csv" / "datapackage.json", folder / "package.json")


@cache
def _entries(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


# -- plans -------------------------------------------------------------------------------------------------------------


def _plan_text(rng: random.Random, _: Path) -> bytes:
    return torn(rng.choice((PLAN.encode(), _every_key())), rng)


@cache
def _every_key() -> bytes:
    return Plan.from_dict(EVERY_KEY).to_toml().encode()


def _plan_values(rng: random.Random, _: Path) -> bytes:
    broken = spoilt(EVERY_KEY, rng, times=rng.choice((1, 1, 2, 3, 5)))
    try:
        return tomlkit.dumps(broken).encode("utf-8", "surrogatepass")
    except Exception:  # not every value is TOML
        return json.dumps(broken, default=str).encode()


def _read_plan(content: bytes, folder: Path) -> None:
    path = folder / "broken.toml"
    path.write_bytes(content)
    plan = Plan.load(path)
    assert Plan.from_toml(plan.to_toml()) == plan
    plan.explain(epsilon=8.0, delta=1e-6)


# -- models ------------------------------------------------------------------------------------------------------------


def _model_bytes(rng: random.Random, folder: Path) -> bytes:
    return torn((folder / "shop.dpw").read_bytes(), rng)


def _model_parts(rng: random.Random, folder: Path) -> bytes:
    entries = dict(_entries(folder / "shop.dpw"))
    name = rng.choice(list(entries))
    if name.endswith(".json") and rng.random() < 0.9:
        broken = spoilt(json.loads(entries[name]), rng, times=rng.choice((1, 1, 2, 4)))
        entries[name] = json.dumps(broken).encode("utf-8", "surrogatepass")
    elif rng.random() < 0.2:
        del entries[name]
    else:
        entries[name] = torn(entries[name], rng)
    return _zipped(entries, zipfile.ZIP_DEFLATED)


def _model_entry(rng: random.Random, folder: Path) -> bytes:
    """One part of a model, torn. Its first byte says which part it takes the place of."""
    entries = _entries(folder / "shop.dpw")
    at = rng.randrange(len(entries))
    return bytes([at]) + torn([*entries.values()][at], rng)


def _read_entry(content: bytes, folder: Path) -> None:
    entries = dict(_entries(folder / "shop.dpw"))
    if content:
        entries[[*entries][content[0] % len(entries)]] = content[1:]
    _read_model(_zipped(entries, zipfile.ZIP_STORED), folder)


def _zipped(entries: dict[str, bytes], how: int) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        for entry, content in entries.items():
            archive.writestr(entry, content)
    return out.getvalue()


def _read_model(content: bytes, folder: Path) -> None:
    path = folder / "broken.dpw"
    path.write_bytes(content)
    model = dw.load(path)
    dw.verify(model)
    if sum(model.sizes.values()) < 10_000:  # else it would only be slow
        dict(model.sample(scale=0.2))


# -- files beside a fit ------------------------------------------------------------------------------------------------


def _lines(name: str) -> Callable[[random.Random, Path], bytes]:
    def make(rng: random.Random, folder: Path) -> bytes:
        content = next(folder.glob(name)).read_bytes()
        if rng.random() < 0.5:
            return torn(content, rng)
        lines = content.splitlines(keepends=True)
        at = rng.randrange(len(lines))
        lines[at] = json.dumps(spoilt(json.loads(lines[at]), rng, times=rng.choice((1, 2)))).encode() + b"\n"
        return b"".join(lines)

    return make


def _answers(rng: random.Random, folder: Path) -> bytes:
    """Kept answers, torn; or edited by somebody who knows how their digests are made."""
    content = (folder / "answers.kept").read_bytes()
    if rng.random() < 0.3:
        return torn(content, rng)
    lines = [json.loads(line) for line in content.splitlines()]
    at = rng.randrange(len(lines))
    lines[at] = spoilt(lines[at], rng, times=rng.choice((1, 2)))
    out, last = b"", b""
    for line in lines:
        if isinstance(line, dict):
            chain = {"chain": hashlib.sha256(last).hexdigest()} if "chain" in line else {}
            line = {n: v for n, v in line.items() if n != "sum"} | chain
        last = _sealed(json.dumps(line))
        out += last
    return out


def _read_ledger(content: bytes, folder: Path) -> None:
    path = folder / "broken.jsonl"
    path.write_bytes(content)
    for database in read(path).databases.values():
        str(database.total)
    dw.verify(_sound(folder / "shop.dpw"), ledger=path)


@cache
def _sound(path: Path) -> dw.Model:
    return dw.load(path)


def _read_answers(content: bytes, folder: Path) -> None:
    (kept,) = folder.glob("kept.jsonl.*.answers")
    bound = json.loads(next(folder.glob("*.kept")).read_bytes().splitlines()[0])["bound"]
    kept.write_bytes(content)
    find(folder / "kept.jsonl", bound).lost(folder / "kept.jsonl")


# -- schemas -----------------------------------------------------------------------------------------------------------

NAMES = (
    "a", "true", "null", "select", "?", "../../x", "", " ", "a b", "é", "\x00", '"', "'", "a.b", "#", "[x]", "\n", "$1",
    "x" * 300, "id", "ID", "\u202e", "-1", "1", "%s", "{}",
)  # fmt: skip
KINDS = (
    pa.int64(), pa.int8(), pa.uint64(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("ns"),
    pa.timestamp("us", "UTC"), pa.time64("us"), pa.decimal128(38, 10), pa.binary(), pa.null(), pa.list_(pa.int64()),
    pa.large_string(), pa.duration("s"), pa.dictionary(pa.int8(), pa.string()), pa.float16(), pa.decimal256(60, 2),
)  # fmt: skip


def _schema(rng: random.Random, _: Path) -> bytes:
    tables = {
        rng.choice(NAMES): {rng.choice(NAMES): rng.randrange(len(KINDS)) for _ in range(rng.randrange(5))}
        for _ in range(rng.randrange(1, 4))
    }
    return json.dumps(tables).encode()


def _read_schema(content: bytes, _: Path) -> None:
    tables = json.loads(content)
    frames = {
        name: pa.table({c: pa.nulls(2, KINDS[kind]) for c, kind in columns.items()}) for name, columns in tables.items()
    }
    plan = Plan.draft(frames, protect=[next(iter(frames))])
    assert Plan.from_toml(plan.to_toml()) == plan
    with open_source(frames) as source:
        source.require_tables(plan.database.names)
        plan.require(source.catalogue)


def _package(rng: random.Random, folder: Path) -> bytes:
    content = (folder / "package.json").read_bytes()
    if rng.random() < 0.3:
        return torn(content, rng)
    broken = spoilt(json.loads(content), rng, times=rng.choice((1, 1, 2, 3, 5)))
    return json.dumps(broken).encode("utf-8", "surrogatepass")


def _read_package(content: bytes, folder: Path) -> None:
    (folder / "copy.csv" / "datapackage.json").write_bytes(content)
    with open_source(folder / "copy.csv") as source:
        names = source.catalogue.names
    plan = Plan.draft(folder / "copy.csv", protect=[n for n in names if n in {"people", "things"}] or names[:1])
    with open_source(folder / "copy.csv") as source:
        source.declare(plan.database)
        for name in plan.database.names:
            source.whole(name)


TARGETS = {
    "plan-text": Target("plans whose text was torn", _plan_text, _read_plan),
    "plan-values": Target("plans with wrong values in several places", _plan_values, _read_plan),
    "model-bytes": Target("model files whose bytes changed: load, verify, sample", _model_bytes, _read_model),
    "model-parts": Target("models whose parts were edited: load, verify, sample", _model_parts, _read_model),
    "model-entry": Target("models one part of which was torn: load, verify, sample", _model_entry, _read_entry),
    "ledger": Target("ledgers: read, verify a model against them", _lines("ledger.jsonl"), _read_ledger),
    "answers": Target("kept answers: find what can be resumed", _answers, _read_answers),
    "schema": Target("names and types of tables and columns: draft, check", _schema, _read_schema),
    "data-package": Target("descriptions of a folder of CSV files: draft, read", _package, _read_package),
}


def keep_answers(folder: Path) -> None:
    """Leave the answers of a fit that was never saved beside a ledger of their own, and a sound copy of them."""
    fitted(folder / "kept.jsonl", epsilon=2.0)
    (kept,) = folder.glob("kept.jsonl.*.answers")
    shutil.copy(kept, folder / "answers.kept")
