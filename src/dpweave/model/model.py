"""Model: a release and what was fitted to it. Sampling sees nothing else, costs nothing, and repeats."""

from __future__ import annotations

import json
import math
import os
import tempfile
import traceback
import zipfile
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from dpweave.budget.tasks import Task
from dpweave.engines.staging import staged
from dpweave.errors import ModelFileError, UsageError
from dpweave.links.link_method import Refittable
from dpweave.links.relation_model import relation_model
from dpweave.measure.answers import averaged
from dpweave.model.file_format import _ipc, _pack, _release_from_dict, _table, _unpack
from dpweave.model.own_words import ASKED, CERTIFICATE, RELEASE, counts_of, own_words, written_in
from dpweave.plan.plan import Plan
from dpweave.privacy.certificate import Certificate
from dpweave.schema.domain import presence, repetition
from dpweave.schema.fake_values import require_faker
from dpweave.tables.base import restore
from dpweave.tables.owned_row_counts import degree_histogram, joined
from dpweave.weaving.blueprint import Blueprint
from dpweave.weaving.known_links import KnownLinks
from dpweave.weaving.parts import Part, Parts, SharedRows, WeavingJob, Woven, divide
from dpweave.weaving.weaver import Weaver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa

    from dpweave.arrays import IntArray
    from dpweave.model.spark_copy import SparkCopy
    from dpweave.model.synthetic_database import SyntheticDatabase
    from dpweave.plan.compiled import CompiledPlan
    from dpweave.privacy.release import Release
    from dpweave.tables.base import FittedTable


FORMAT = 2
SHRINKING = 100
"""How many times smaller than its content a model may be: counts shrink ten times, and zip could a thousand."""
SMALL = 1 << 26
"""Bytes of content (64 MB) that need no such explanation: older files shrank as far as they could."""


@dataclass(frozen=True)
class Model:
    """Everything that was learned, all of it safe to publish."""

    blueprint: Blueprint
    """Sizes, fitted tables, public tables, and the plan with every learned domain filled in."""
    certificate: Certificate
    release: Release
    mechanisms: Mapping[str, str] = field(default_factory=dict)
    """Name of the table model that fitted each table."""
    fits: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    """What was fitted to the links of each relation, by (table, key), so that sampling need not repeat it."""
    answers: Path | None = field(default=None, compare=False, repr=False)
    """File that keeps what was paid for until this is saved."""
    asked: Plan | None = None
    """The plan under which rows were asked, where the model was learned again since under another one."""
    lineage: tuple[Mapping[str, str], ...] = ()
    """How it came from the model of that fit: one entry for every time it was learned again."""
    file: Path | None = field(default=None, compare=False, repr=False)
    """The file that it was loaded from, which a stranger may have written."""
    written: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """What its digests are of, in the words of the version that wrote it (``model.own_words``)."""

    @property
    def plan(self) -> Plan:
        """The plan with every learned domain filled in."""
        return self.blueprint.plan

    @property
    def certified_plan(self) -> Plan:
        """The plan that the certificate is about."""
        return self.plan if self.asked is None else self.asked

    @property
    def sizes(self) -> Mapping[str, float]:
        """Noisy number of rows of each private table."""
        return self.blueprint.sizes

    @property
    def linked(self) -> Mapping[tuple[str, str], float]:
        """Share of rows with a target, by (table, foreign key), where a key may be null."""
        compiled = self.plan.compile()
        keys = [(t, k) for t in self.tables for k in compiled.table[t].key]
        return {(t, k): self.blueprint.share(t, k) for t, k in keys if presence(k) in compiled.table[t].presence_codecs}

    @property
    def tables(self) -> Mapping[str, FittedTable]:
        """Fitted table models."""
        return self.blueprint.tables

    @property
    def public(self) -> Mapping[str, pa.Table]:
        """Public tables, as they are."""
        return self.blueprint.public

    def sample(
        self,
        scale: float = 1.0,
        seed: int = 0,
        *,
        workers: int = 1,
        progress: Callable[[str, float], None] | None = None,
    ) -> SyntheticDatabase:
        """Draw a synthetic database, ``scale`` times the size of the real one. Free; the same seed gives the same.

        A large one is woven part by part when it is written, so that memory does not
        grow with it; looking at one of its tables puts all of it into memory. ``workers`` is how many processes weave
        parts at the same time, each in memory of its own; the database is the same.
        ``progress`` is told the relation that is wired and the share of them that was.
        """
        from dpweave.model.synthetic_database import SyntheticDatabase

        if isinstance(workers, bool) or not isinstance(workers, (int, np.integer)) or workers < 1:
            raise UsageError(f"workers must be a whole number of at least 1, not {workers!r}")
        job = self._job(scale, seed)
        tell = progress if job.count == 1 else None  # parts are woven, and tell of it, when they are written
        parts = Parts(
            lambda: self._weave(job, tell),
            self.plan.database.names,
            job.count,
            kept=None if workers == 1 else lambda folder: self._weave_with(int(workers), job, folder),
        )
        return SyntheticDatabase(self.plan.database.stored, parts if job.count > 1 else parts.gathered, parts.repairs)

    def sample_spark(self, session: Any, scale: float = 1.0, seed: int = 0) -> SparkCopy:
        """Draw the same database as :meth:`sample` on the executors of a Spark session, one part per task.

        Rows never pass through the driver. What comes back maps names of tables to Spark's data frames; its ``write``
        and ``write_tables`` write from the executors, and ``close`` lets them forget the rows. Nothing is left to
        write before the last part is woven.
        """
        from dpweave.model.spark_copy import Weaving, woven_on_spark

        job = self._job(scale, seed)
        with BytesIO() as file:
            _zip(file, _entries(self))
            weaving = Weaving(file.getvalue(), self.file, _of_bytes, job)
        return woven_on_spark(session, weaving, self.plan)

    def _job(self, scale: float, seed: int) -> WeavingJob:
        """The database to weave, where that can be said."""
        if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not (math.isfinite(scale) and scale > 0):
            raise UsageError(f"scale must be a positive number, not {scale!r}")
        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
            raise UsageError(f"seed must be a whole number of at least 0, not {seed!r}")
        require_faker(self.plan.placeholders)
        with self.blaming_its_file():
            return WeavingJob(float(scale), int(seed), *divide(self.plan, self.blueprint.expected_rows(scale)))

    def _weave(self, job: WeavingJob, tell: Callable[[str, float], None] | None) -> Iterator[Woven]:
        """Weave all parts in order; none is held while the next one is made."""
        known, shared_rows = KnownLinks(self.plan.compile(), self.release, self.fits, tell), SharedRows(job.common)
        return (self._woven(job, index, known, shared_rows) for index in range(job.count))

    def _woven(self, job: WeavingJob, index: int, known: KnownLinks, shared_rows: SharedRows) -> Woven:
        with self.blaming_its_file():
            weaver = self.wired(job, index, known, shared_rows)
            return Woven(weaver.tables(), weaver.repairs)

    def wired(self, job: WeavingJob, index: int, known: KnownLinks, shared_rows: SharedRows) -> Weaver:
        """Wire one part, whose rows are still to be made."""
        part = Part(index, job.count)
        weaver = Weaver(
            self.blueprint, scale=job.scale, seed=job.seed, fits=self.fits, part=part, shared_rows=shared_rows
        )
        for unlinked in weaver.wire():
            known.link(unlinked)
        return weaver

    def _weave_with(self, workers: int, job: WeavingJob, folder: Path) -> Iterator[Woven]:
        """Weave the first part, on which all others rest, and have these woven by processes into files of a folder."""
        from dpweave.engines.spill import keep_part
        from dpweave.model.part_workers import woven_by_workers

        known, shared_rows = KnownLinks(self.plan.compile(), self.release, self.fits), SharedRows(job.common)
        first = self._woven(job, 0, known, shared_rows)
        yield Woven(keep_part(first.tables, self.plan.database.stored, folder, 0), first.repairs)
        del first
        file = folder / "model.dpw"
        _write(file, _entries(replace(self, fits=known.fits)))
        yield from woven_by_workers(workers, job, shared_rows, model=file, loaded_from=self.file, plan=self.plan)

    @contextmanager
    def blaming_its_file(self) -> Iterator[None]:
        """Say of a model from a file that it cannot be sampled, where numbers in it fit nothing that a fit leaves."""
        try:
            yield
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            if self.file is None:
                raise
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise ModelFileError(
                f"the model {self.file} cannot be sampled: its parts do not belong together, as if it was edited or"
                f" damaged ({type(error).__name__} at {Path(at.filename).name}:{at.lineno}); if nobody touched it, this"
                " is a bug: report it"
            ) from error

    def save(self, path: str | Path) -> None:
        """Write the model as a zip of JSON, TOML and Arrow, whole or not at all:
        nothing is replaced by what cannot be read.
        """
        target = Path(path)
        with staged(target) as draft:
            _write(draft, _entries(self))
            try:
                load(draft)
            except ModelFileError as error:
                spoilt = target.with_name(f"{target.name}.unreadable")
                draft.replace(spoilt)
                raise ModelFileError(
                    f"the model was written and cannot be read again; {target} is left as it was, and {spoilt} has all"
                    " of the model: keep it, and report this"
                ) from error
        if self.answers is not None:
            with suppress(OSError):  # a folder that has become read-only keeps it
                self.answers.unlink(missing_ok=True)


def degree_counts(plan: CompiledPlan, release: Release) -> dict[tuple[str, str], tuple[tuple[int, ...], IntArray]]:
    """Return, for every owning key, the buckets in which degrees were counted and their noisy counts."""
    found = {}
    for table in plan.promise.private:
        for key in plan.table[table].counted_keys:
            looks = release.find(Task("domains", table, key.degree).name)
            groups, bound = key.planned.degree_edges, plan.promise.bounds[key.table, key.name]
            if looks and groups is not None:
                found[key.table, key.name] = degree_histogram(*joined(looks, key.fine_degrees), groups, bound=bound)
    return found


def repetitions(plan: CompiledPlan, release: Release) -> dict[str, tuple[float, float]]:
    """Return, for every junction whose pairs may repeat, the share of its rows that do, and its standard error."""
    found = {}
    for table in plan.promise.private:
        key = plan.table[table].repeating_key
        known_counts = release.find(Task("sizes", table, repetition(key)).name) if key else ()
        if known_counts:
            noisy = averaged(known_counts)
            once, again = np.maximum(noisy.counts, 0)
            rows = max(float(once + again), 1.0)
            found[table] = float(again) / rows, noisy.sigma / rows
    return found


def load(path: str | Path) -> Model:
    """Read a model that :meth:`Model.save` wrote. Whatever else is in the file, it raises ``ModelFileError``."""
    entries = _read(Path(path))
    try:
        manifest = json.loads(entries["manifest.json"])
        if manifest["format"] != FORMAT:
            wrote = json.loads(entries[CERTIFICATE])["versions"]["dpweave"]
            raise ModelFileError(
                f"the model {path} has format {manifest['format']!r} and this dpweave reads format {FORMAT}: sample"
                f" from it, or refit it, with the version that wrote it, dpweave {wrote}"
            )
        return replace(_from_entries(manifest, entries), file=Path(path))
    except ModelFileError:
        raise
    except MemoryError:
        raise ModelFileError(f"memory is not enough to read the model {path}; give it more") from None
    except Exception as error:  # a stranger's file can break anything that reads it
        raise ModelFileError(
            f"the model {path} lacks parts that this dpweave needs; it was damaged or written by another version"
        ) from error


def weave_parts() -> None:
    """Weave parts of a copy for the process that started this one; see :mod:`dpweave.model.part_workers`."""
    from dpweave.model.part_workers import main

    main(lambda path, blamed: replace(load(path), file=blamed))


@lru_cache(maxsize=1)
def _of_bytes(content: bytes, blamed: Path | None) -> Model:
    """Load a model from the bytes of its file; an executor does so once for all parts that it weaves."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.dpw"
        path.write_bytes(content)
        return replace(load(path), file=blamed)


def _write(path: Path, entries: Mapping[str, bytes]) -> None:
    """Write a zip that is the same for the same entries. One that shrinks more than a
    reader believes is stored as it is.
    """
    with path.open("xb") as file:
        _zip(file, entries)
        file.flush()
        os.fsync(file.fileno())


def _zip(file: IO[bytes], entries: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            shrunk = len(zlib.compress(content)) * SHRINKING >= len(content)
            info = zipfile.ZipInfo(name)  # dated 1980
            archive.writestr(info, content, zipfile.ZIP_DEFLATED if shrunk else zipfile.ZIP_STORED)


def _read(path: Path) -> dict[str, bytes]:
    """Read what is in a zip, unless it would fill the memory."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(e.file_size for e in archive.infolist()) > max(SMALL, SHRINKING * path.stat().st_size):
                raise ModelFileError(
                    f"the model {path} would take far more memory than its size explains; it is no model"
                )
            return {name: archive.read(name) for name in archive.namelist()}
    except OSError as error:
        raise ModelFileError(f"the model {path} cannot be read: {error.strerror or 'no such file'}") from None
    except (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError, ValueError):  # encrypted, or packed in another way
        raise ModelFileError(
            f"the model {path} is damaged or not a model; take it from where it was saved again"
        ) from None


def _entries(model: Model) -> dict[str, bytes]:
    states = {name: fitted.state() for name, fitted in model.tables.items()}
    arrays = {f"tables/{t}/{k}": v for t, (_, found) in states.items() for k, v in found.items()}
    arrays |= counts_of(model.release)
    arrays |= {f"popularity/{t}/{k}": v for (t, k), v in model.blueprint.popularity.items()}
    links = []
    for i, (at, fit) in enumerate(model.fits.items()):
        state, found = _method(model.plan.compile(), at).state(fit)
        links.append({"relation": list(at), "state": state})
        arrays |= {f"links/{i}/{k}": v for k, v in found.items()}
    manifest = {
        "format": FORMAT,
        "sizes": dict(model.sizes),
        "loose": dict(model.blueprint.loose),
        "tables": {t: {"mechanism": model.mechanisms[t], "state": state} for t, (state, _) in states.items()},
        "public": list(model.public),
        "links": links,
        "popularity": [list(at) for at in model.blueprint.popularity],
    }
    words = own_words(model.release, model.certificate, model.certified_plan, written=model.written)
    entries = {
        "manifest.json": json.dumps(manifest, indent=1).encode(),
        "plan.toml": words[ASKED] if model.asked is None else model.plan.to_toml().encode(),
        CERTIFICATE: words[CERTIFICATE],
        RELEASE: words[RELEASE],
        "arrays.arrow": _pack(arrays),
    }
    if model.asked is not None:
        entries[ASKED] = words[ASKED]
        entries["lineage.json"] = json.dumps([dict(step) for step in model.lineage], indent=1).encode()
    return entries | {f"public/{i}.arrow": _ipc(t) for i, t in enumerate(model.public.values())}


def _from_entries(manifest: dict[str, Any], entries: dict[str, bytes]) -> Model:
    arrays = _unpack(entries["arrays.arrow"])
    tables = {
        name: restore(entry["mechanism"], entry["state"], _under(arrays, f"tables/{name}/"))
        for name, entry in manifest["tables"].items()
    }
    plan = Plan.from_toml(entries["plan.toml"].decode())
    fits = {}
    for i, entry in enumerate(manifest.get("links", ())):  # older files have none: links are then fitted again
        table, key = entry["relation"]
        fits[table, key] = _method(plan.compile(), (table, key)).restore(entry["state"], _under(arrays, f"links/{i}/"))
    release = _release_from_dict(json.loads(entries[RELEASE]), arrays, plan.database)
    blueprint = Blueprint(
        plan=plan,
        sizes=_numbers(manifest["sizes"]),
        tables=tables,
        public={t: _table(entries[f"public/{i}.arrow"]) for i, t in enumerate(manifest["public"])},
        degrees=degree_counts(plan.compile(), release),
        repetitions=repetitions(plan.compile(), release),
        loose=_numbers(manifest.get("loose", {})),
        popularity={(t, k): arrays[f"popularity/{t}/{k}"] for t, k in manifest.get("popularity", ())},
    )
    return Model(
        blueprint,
        certificate=Certificate.from_json(entries[CERTIFICATE].decode()),
        release=release,
        mechanisms={t: entry["mechanism"] for t, entry in manifest["tables"].items()},
        fits=fits,
        asked=Plan.from_toml(entries[ASKED].decode()) if ASKED in entries else None,
        lineage=tuple(json.loads(entries.get("lineage.json", b"[]"))),
        written=written_in(entries),
    )


def _numbers(found: Mapping[str, Any]) -> dict[str, float]:
    """Refuse sizes that are none: whoever wrote the file, they are added up and drawn from."""
    if any(type(n) not in (int, float) or not math.isfinite(n) for n in found.values()):
        raise ValueError("sizes")
    return {**found}


def _under(arrays: Mapping[str, Any], mark: str) -> dict[str, Any]:
    return {k.removeprefix(mark): v for k, v in arrays.items() if k.startswith(mark)}


def _method(plan: CompiledPlan, at: tuple[str, str]) -> Refittable:
    """Return the link model of a relation whose fits are kept."""
    method = relation_model(plan, plan.relation[at])
    if not isinstance(method, Refittable):
        raise UsageError(f"links of {'.'.join(at)} are made by a method that keeps no fit")
    return method
