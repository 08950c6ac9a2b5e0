"""Parts of a large copy, woven by several processes of this machine at the same time.

All parts after the first are wired without a word from each other. What rows and numbers of a part are, and with rules
what values, depends on the parts before it. So each process says what its part counts once it is wired, and waits to be
told what is before it. Whoever it is that weaves a part, it comes out the same.

Processes are started as programs of their own, so that a script which samples needs no guard, and speak over their
pipes. What they say is pickled: both ends are this program.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

from dpweave.engines.spill import Spool, keep_part
from dpweave.errors import TargetError
from dpweave.plan.rules import settling_order
from dpweave.weaving.known_links import KnownLinks
from dpweave.weaving.parts import EarlierRows, SharedRows, Woven

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import IO

    from dpweave.plan.plan import Plan
    from dpweave.privacy.release import Release
    from dpweave.weaving.parts import WeavingJob
    from dpweave.weaving.weaver import Weaver


class Wirable(Protocol):
    """What parts are woven from: a :class:`~dpweave.model.model.Model`."""

    @property
    def plan(self) -> Plan:
        """The plan with every learned domain."""
        ...

    @property
    def release(self) -> Release:
        """All answers."""
        ...

    @property
    def fits(self) -> Mapping[tuple[str, str], Any]:
        """What was fitted to links."""
        ...

    def wired(self, job: WeavingJob, index: int, known: KnownLinks, shared_rows: SharedRows) -> Weaver:
        """Wire one part."""
        ...

    def blaming_its_file(self) -> AbstractContextManager[None]:
        """Say which file is damaged, where that is why weaving fails."""
        ...


@dataclass(frozen=True)
class _Start:
    """What every process is told first. ``loaded_from`` is the file that a fault is blamed on."""

    job: WeavingJob
    shared_rows: SharedRows
    model: Path
    loaded_from: Path | None


@dataclass(frozen=True)
class _Waiting:
    """Asks for the parts before, which were needed while a part is still being wired."""


@dataclass(frozen=True)
class Wired:
    """What a part counts, and where its numbers must end if nobody has been informed of the parts before."""

    counted: EarlierRows
    hopes: Mapping[tuple[str, str], tuple[int, int]]


@dataclass(frozen=True)
class _Go:
    """What is before a part; ``again`` where it has to be wired anew, since numbers end too early."""

    earlier: EarlierRows
    again: bool = False


@dataclass(frozen=True)
class _Done:
    """A part in files, and all values that rules have settled so far."""

    tables: Mapping[str, Spool]
    repairs: Mapping[str, int]
    settled: Mapping[str, Any]


class _Worker:
    """A process that weaves parts. What it says is put into ``inbox``, at last its exception or None."""

    def __init__(self, start: _Start, inbox: SimpleQueue[tuple[_Worker, Any]]) -> None:
        paths = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from dpweave.model.model import weave_parts; weave_parts()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        self.part = 0
        """The part that it weaves."""
        self.say(start)
        self._listener = Thread(target=self._listen, args=(inbox,), daemon=True)
        self._listener.start()

    def say(self, what: object) -> None:
        """Say something; whether it still listens is found out elsewhere."""
        assert self._process.stdin is not None
        with suppress(OSError):
            _say(self._process.stdin, what)

    def _listen(self, inbox: SimpleQueue[tuple[_Worker, Any]]) -> None:
        assert self._process.stdout is not None
        said: Any = self
        while said is not None:
            try:
                said = pickle.load(self._process.stdout)  # noqa: S301 - our own process
            except (EOFError, OSError, pickle.UnpicklingError):
                said = None
            inbox.put((self, said))

    def why(self) -> str:
        """How a process ended that should not have."""
        code = self._process.wait()
        with suppress(ValueError):
            return f"by the signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        return f"with exit code {code}"

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._listener.join()
        with suppress(OSError), self._process:
            pass


def woven_by_workers(
    workers: int,
    job: WeavingJob,
    shared_rows: SharedRows,
    *,
    model: Path,
    loaded_from: Path | None,
    plan: Plan,
) -> Iterator[Woven]:
    """Weave all parts but the first, which has left ``shared_rows``, into files beside that of the ``model``.

    They come in order. Nothing is left running, however this ends.
    """
    inbox: SimpleQueue[tuple[_Worker, Any]] = SimpleQueue()
    start = _Start(job, replace(shared_rows, _earlier=EarlierRows()), model, loaded_from)
    order = _Order(shared_rows.earlier, in_turn=bool(settling_order(plan.constraints)))
    done: dict[int, Woven] = {}
    given = out = 1
    with ExitStack() as at_end:
        for _ in range(min(workers, job.count - 1)):
            worker = at_end.enter_context(_Worker(start, inbox))
            given = _give(worker, given)
        while out < job.count:
            worker, said = inbox.get()
            if isinstance(said, BaseException):
                raise said
            if said is None:
                raise TargetError(
                    f"a process that wove part {worker.part + 1} of {job.count} ended {worker.why()}; nothing was"
                    " written. Most often memory is short: take fewer workers"
                )
            if isinstance(said, _Done):
                done[worker.part] = Woven(said.tables, said.repairs)
                order.finish(worker.part, said.settled)
                if given < job.count:
                    given = _give(worker, given)
            else:
                order.hear(worker, said)
            order.go_on()
            while out in done:
                yield done.pop(out)
                out += 1


def _give(worker: _Worker, part: int) -> int:
    worker.part = part
    worker.say(part)
    return part + 1


class _Order:
    """Tells each part, in order, what is before it."""

    def __init__(self, earlier: EarlierRows, *, in_turn: bool) -> None:
        self._earlier = earlier
        self._in_turn = in_turn
        """Whether a part needs the values that the one before it settled."""
        self._next, self._finished = 1, 0
        self._asking: dict[int, tuple[_Worker, _Waiting | Wired]] = {}
        self._answered = False

    def hear(self, worker: _Worker, said: _Waiting | Wired) -> None:
        self._asking[worker.part] = worker, said

    def finish(self, part: int, settled: Mapping[str, Any]) -> None:
        if self._in_turn:
            self._finished, self._earlier.settled = part, {**settled}

    def go_on(self) -> None:
        """Answer all that can be answered by now."""
        while self._next in self._asking and not (self._in_turn and self._finished < self._next - 1):
            worker, said = self._asking.pop(self._next)
            short = isinstance(said, Wired) and not self._earlier.leave_room(said.hopes)
            if not self._answered:
                worker.say(_Go(self._earlier, again=short))
            self._answered = short or isinstance(said, _Waiting)
            if isinstance(said, Wired) and not short:
                self._earlier.add(said.counted)
                self._next += 1


# -- the other end -----------------------------------------------------------------------------------------------------


def main(load: Callable[[Path, Path | None], Wirable]) -> None:
    """Weave the parts that the process which started this one asks for. ``load`` is given the file of a model and the
    one that is to be blamed.
    """
    with suppress(ValueError, AttributeError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this one ends it
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may be printed between what is said
    given = sys.stdin.buffer
    try:
        start = pickle.load(given)  # noqa: S301 - our own process
        model = load(start.model, start.loaded_from)
        known = KnownLinks(model.plan.compile(), model.release, model.fits)
        while True:
            _say(out, _woven(model, start, pickle.load(given), known, given, out))  # noqa: S301
    except (EOFError, BrokenPipeError):
        return
    except BaseException as error:  # noqa: BLE001 - told to whoever started this one
        _say(out, _sayable(error))


def _woven(model: Wirable, start: _Start, index: int, known: KnownLinks, given: IO[bytes], out: IO[bytes]) -> _Done:
    def wait() -> EarlierRows:
        _say(out, _Waiting())
        return pickle.load(given).earlier  # type: ignore[no-any-return]  # noqa: S301

    def wire(wait: Callable[[], EarlierRows] | None, earlier: EarlierRows) -> tuple[Weaver, SharedRows]:
        first = start.shared_rows
        shared_rows = replace(first, owned=dict(first.owned), hopes={}, wait=wait, _earlier=earlier)
        return model.wired(start.job, index, known, shared_rows), shared_rows

    with model.blaming_its_file():
        weaver, shared_rows = wire(wait, EarlierRows())
        if shared_rows.wait is None and not shared_rows.earlier.leave_room(shared_rows.hopes):
            weaver, shared_rows = wire(None, shared_rows.earlier)
        waits = shared_rows.wait is not None
        _say(out, Wired(weaver.counted(), shared_rows.hopes if waits else {}))
        if waits:
            go: _Go = pickle.load(given)  # noqa: S301
            shared_rows.know(go.earlier)
            if go.again:
                weaver, shared_rows = wire(None, go.earlier)
                _say(out, Wired(weaver.counted(), {}))
        tables = weaver.tables()
    kept = keep_part(tables, model.plan.database.stored, start.model.parent, index)
    return _Done(kept, weaver.repairs, shared_rows.earlier.settled)


def _say(pipe: IO[bytes], what: object) -> None:
    pickle.dump(what, pipe, protocol=pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def _sayable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301
    except Exception:  # noqa: BLE001 - of many kinds
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
