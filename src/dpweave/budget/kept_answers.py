"""Answers that were paid for, kept beside the ledger until the model they make is saved (``<ledger>.<run>.answers``).

The first line says what the answers belong to: the run, and digests of the plan and of all else that decides which
questions are asked. Every other line is one answer: the digest of its question, the number of the ledger's line that
charged for it, and noisy counts. Each line carries the digest of the one before, and its own. All of it was released:
noise was added before, and nothing else is here. (Under ``insecure_seed`` the state of the seeded noise is, too.)

A fit that goes on asks the same questions in the same order, because learning depends on answers and on the plan alone.
So answers are given in the order in which they were kept, and a question that is not the next one is refused. Nothing
was charged by then: new charges come after the last answer that is known.
"""

from __future__ import annotations

import base64
import glob
import hashlib
import json
import math
import os
import warnings
import zlib
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.budget.spending import read
from dpweave.errors import BudgetError, LedgerError, UsageError
from dpweave.privacy.accounting import Budget, Cost, round_up
from dpweave.privacy.release import Answer
from dpweave.privacy.window import Candidate
from dpweave.schema.domain import MAX_CELLS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dpweave.arrays import IntArray
    from dpweave.privacy.ledger import Entry, Ledger
    from dpweave.privacy.noise import InsecureNoise
    from dpweave.privacy.release import Question

SUFFIX = ".answers"
UNSEALED, FORMAT = 1, 2
"""What version 0.3 wrote, lines without a digest of their own, and what this one writes."""
MALFORMED = (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError, zlib.error)
"""What reading raises where a file of answers is not one."""


@dataclass(frozen=True)
class Kept:
    """The answers of a run that may go on."""

    path: Path
    run: str
    version: str
    lines: int

    def above(self, ledger: Path | str, limit: Budget, *, delta: float) -> Budget:
        """Return the limit for going on: charges whose answer was lost are paid once more, on top of ``limit``."""
        lost = sum((e.cost for e in self.lost(ledger)), Cost.zero())
        rho, spent_delta = (max(x.values(), default=0) for x in lost.exact)
        raised = Budget(round_up(rho + Fraction(limit.rho)), round_up(spent_delta + Fraction(limit.delta)))
        if raised.delta >= delta:
            raise BudgetError(
                f"run {self.run} lost so many answers that asking again would spend delta {raised.delta:g} of"
                f" {delta:g}, and no epsilon holds with none left; begin a new run"
            )
        return raised

    def lost(self, ledger: Path | str) -> list[Entry]:
        """Return the charges of this run that have no answer; answers without a charge are refused."""
        entries = [e for d in read(ledger).databases.values() for e in d.entries if e.run == self.run]
        charged = {e.n: e for e in entries if e.kind == "charge" and e.what.get("verb") != "declared"}
        for line in _answers(self.path):
            if charged.pop(line["charge"], None) is None:
                raise LedgerError(
                    f"{self.path} has an answer that the ledger {ledger} was not charged for; name the ledger that was"
                )
        return [*charged.values()]


def find(ledger: Path | str, bound: Mapping[str, str]) -> Kept:
    """Return what was kept of a fit that is ``bound`` to the same plan, source and budget: the one that got furthest.

    Refused, with what differs, where there is none.
    """
    whole = Path(os.path.realpath(ledger))
    fitting: list[Kept] = []
    others: list[tuple[Kept, list[str]]] = []
    for path in sorted(whole.parent.glob(f"{glob.escape(whole.name)}.*{SUFFIX}")):
        if not _begun(path):
            continue
        head, *rest = _lines(path)
        kept = Kept(path, head["run"], head["version"], len(rest))
        differs = [name for name in {**bound, **head["bound"]} if head["bound"].get(name) != bound.get(name)]
        if differs:
            others.append((kept, differs))
        else:
            fitting.append(kept)
    if fitting:
        return max(fitting, key=lambda kept: kept.lines)
    if not others:
        raise UsageError(f"there is nothing to resume beside {ledger}: no fit that was cut off has kept answers there")
    kept, differs = min(others, key=lambda one: len(one[1]))
    raise UsageError(
        f"nothing beside {ledger} can be resumed with these arguments: the answers in {kept.path.name} belong to"
        f" another {' and another '.join(differs)}; resume with what that fit began with, or begin a new one"
    )


def forget_unbegun(ledger: Path | str, run: str) -> None:
    """Remove what a run left that died before it had said what its answers belong to; nothing was charged by then."""
    path = Path(f"{os.path.realpath(ledger)}.{run}{SUFFIX}")
    with suppress(OSError):
        if not _begun(path):
            path.unlink()


def _begun(path: Path) -> bool:
    with path.open("rb") as file:
        return file.readline().endswith(b"\n")


class KeptAnswers:
    """Answers of one run: those that are known, given in order, and those to come, on disk before they are used."""

    def __init__(self, book: Ledger, ledger: Path | str, *, noise: InsecureNoise | None = None) -> None:
        self.path = Path(f"{os.path.realpath(ledger)}.{book.run}{SUFFIX}")
        self._book = book
        self._noise = noise
        self._known: deque[dict[str, Any]] = deque()
        self._last = b""
        self._given = 0
        self._full = False

    def begin(self, bound: Mapping[str, str]) -> None:
        """Say what answers to come belong to. It is tried before anything is charged: what fails here costs nothing."""
        head = {"format": FORMAT, "run": self._book.run, "version": _version(), "bound": {**bound}}
        try:
            self._append(head)
            if os.name == "posix":  # the name itself must survive a crash
                folder = os.open(self.path.parent, os.O_RDONLY)
                os.fsync(folder)
                os.close(folder)
        except OSError as error:
            raise LedgerError(f"answers cannot be kept in {self.path}: {error.strerror}; make room there") from None

    def go_on(self) -> None:
        """Take in what is known. A last line that was cut off goes: its answer was never used."""
        whole = self.path.read_bytes()
        whole = whole[: whole.rfind(b"\n") + 1]
        os.truncate(self.path, len(whole))
        self._known.extend(_answers(self.path))
        self._last = whole.splitlines(keepends=True)[-1]

    def recall(self, question: Question) -> Answer | None:
        """See ``Answers``: the next answer that is known. A question that it does not belong to is refused."""
        if not self._known:
            return None
        line = self._known.popleft()
        self._given += 1
        if line["question"] != _digest(question):
            raise UsageError(
                f"answer {self._given} in {self.path.name} belongs to another question than {question.what['what']!r}:"
                " the fit that kept it learned in another way; resume with the version of dpweave and on the machine"
                " that began it, or begin a new one. Nothing was charged"
            )
        try:
            if self._noise is not None and line["noise"] is not None:
                self._noise.rng.bit_generator.state = line["noise"]
            answer = _answer(line)
            if len(answer.counts) != (len(question.about) if question.what["verb"] == "measure" else 1):
                raise ValueError("other counts")
        except MALFORMED:
            raise _damaged(self.path) from None
        return answer

    def keep(self, question: Question, answer: Answer) -> None:
        """See ``Answers``. If the disk takes no more, the fit goes on: it has what it paid for in memory."""
        line = {
            "question": _digest(question),
            "charge": self._book.entries[-1].n,
            "counts": [_packed(x) for x in answer.counts],
            "values": list(answer.values),
            "noise": None if self._noise is None else self._noise.rng.bit_generator.state,
        }
        if self._full:
            return
        try:
            self._append(line)
        except OSError as error:
            self._full = True  # a gap would let no later answer be given
            warnings.warn(
                f"answers can no longer be kept in {self.path}: {error.strerror}; if this fit is cut off, what it"
                " spends from here on is lost",
                RuntimeWarning,
                stacklevel=2,
            )

    def _append(self, content: Mapping[str, object]) -> None:
        line = _sealed(json.dumps({"chain": _sha(self._last), **content}))
        size = self.path.stat().st_size if self.path.exists() else 0
        with self.path.open("ab") as file:
            try:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.truncate(self.path, size)
                raise
        self._last = line


def _lines(path: Path) -> list[dict[str, Any]]:
    """Read the whole lines of a file of answers, its first line first; refused where they do not follow each other."""
    found: list[dict[str, Any]] = []
    last = b""
    try:
        for raw in path.read_bytes().splitlines(keepends=True):
            if not raw.endswith(b"\n"):
                break  # cut off
            line = json.loads(raw)
            if line["chain"] != _sha(last):
                raise ValueError("chain")
            if not _is_sealed(raw) and (found or [line])[0]["format"] != UNSEALED:
                raise ValueError("seal")
            found.append(line)
            last = raw
        head, *answers = found
        if head["format"] not in (UNSEALED, FORMAT) or not isinstance(head["bound"], dict):
            raise ValueError("format")
        if not (isinstance(head["run"], str) and isinstance(head["version"], str)):
            raise TypeError("head")
        if any(type(line["charge"]) is not int or not isinstance(line["question"], str) for line in answers):
            raise TypeError("answer")
        for line in answers:
            _answer(line)
    except OSError as error:
        raise LedgerError(f"the answers in {path} cannot be read: {error.strerror}") from None
    except MALFORMED:
        raise _damaged(path) from None
    return found


def _damaged(path: Path) -> LedgerError:
    return LedgerError(f"the answers in {path} are damaged; they cannot be used, and what they cost is spent")


def _sealed(body: str) -> bytes:
    """Return a line with its own digest, so that damage is noticed in the last line too."""
    return f'{body[:-1]}, "sum": "{_sha(body.encode())}"}}\n'.encode()


def _is_sealed(raw: bytes) -> bool:
    """Whether a line is as it was written."""
    return raw == _sealed(raw.rpartition(b', "sum": "')[0].decode() + "}")


@cache
def _version() -> str:
    return version("dpweave")  # reads a file


def _answers(path: Path) -> list[dict[str, Any]]:
    return _lines(path)[1:]


def _digest(question: Question) -> str:
    """Return the digest of a question. Of candidates only columns count: what a fit predicts for them is its own."""
    about = [x.columns if isinstance(x, Candidate) else x for x in question.about]
    return _sha(repr(({**question.what}, question.view, about)).encode("utf-8", "surrogatepass"))


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _answer(line: Mapping[str, Any]) -> Answer:
    """Read noisy counts, and the values they belong to if there are some: no more counts than a question may have."""
    values = line["values"]
    if not all(v is None or isinstance(v, str | int | float) for v in values):
        raise TypeError("values")
    return Answer(tuple(_counts(x, most=max(MAX_CELLS, len(values))) for x in line["counts"]), tuple(values))


def _packed(counts: IntArray) -> dict[str, object]:
    data = zlib.compress(counts.astype("<i8").tobytes(), 1)
    return {"shape": list(counts.shape), "data": base64.b64encode(data).decode()}


def _counts(packed: Mapping[str, Any], *, most: int) -> IntArray:
    cells = math.prod(packed["shape"])
    if not 0 <= cells <= most:
        raise ValueError("cells")
    data = zlib.decompressobj().decompress(base64.b64decode(packed["data"]), 8 * cells + 1)
    return np.frombuffer(data, dtype="<i8").astype(np.int64).reshape(packed["shape"])
