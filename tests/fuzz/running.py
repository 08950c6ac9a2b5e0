"""Running a target: in a process of its own, with an end to its memory and an alarm for every input."""

from __future__ import annotations

import hashlib
import os
import random
import resource
import signal
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from dpweave.errors import DpweaveError

if TYPE_CHECKING:
    from types import FrameType

    from tests.fuzz.targets import Target

CORPUS = Path(__file__).parent / "corpus"
SECONDS = 20
"""What one input may take, on a busy machine."""
MEMORY = 2 << 30
"""Bytes that inputs may take on top of what the process had."""


class TooLong(BaseException):
    """An input that did not come to an end."""


@dataclass
class Outcome:
    """What became of the inputs of a target."""

    tried: int = 0
    refused: int = 0
    taken: int = 0
    slowest: float = 0.0
    findings: dict[str, bytes] = field(default_factory=dict)
    """One input for each place where something went wrong, with what it was."""

    def counts(self) -> dict[str, float]:
        """Return everything but the inputs."""
        return {"tried": self.tried, "refused": self.refused, "taken": self.taken, "slowest": self.slowest}


def run(target: Target, folder: Path, inputs: list[bytes] | int, *, seed: int) -> Outcome:
    """Try inputs: those given, or so many that are made."""
    rng, out = random.Random(seed), Outcome()
    for i in range(inputs if isinstance(inputs, int) else len(inputs)):
        content = target.make(rng, folder) if isinstance(inputs, int) else inputs[i]
        attempt(target, folder, content, out)
    return out


def attempt(target: Target, folder: Path, content: bytes, out: Outcome) -> None:
    """Try one input."""
    signal.signal(signal.SIGALRM, _alarm)
    out.tried += 1
    start = time.monotonic()
    signal.alarm(SECONDS)
    try:
        with warnings.catch_warnings(action="ignore"):  # numbers of strangers may be infinite
            target.read(content, folder)
        out.taken += 1
    except DpweaveError:
        out.refused += 1
    except (Exception, TooLong) as error:
        found = f"{_where(error)}: {str(error)[:80]!r}"
        if not any(known.startswith(_where(error)) for known in out.findings):
            out.findings[found] = content
    finally:
        signal.alarm(0)
    out.slowest = max(out.slowest, time.monotonic() - start)


def limit_memory() -> None:
    """End what takes far more than it has now with an error instead of the machine's patience."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))


def _alarm(_: int, frame: FrameType | None) -> None:
    raise TooLong(f"at {frame.f_code.co_name if frame else '?'}")


def _where(error: BaseException) -> str:
    """What went wrong, and the last line of ours that it went through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "dpweave" in f.filename]
    last = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "outside"
    return f"{type(error).__name__} at {last}"


def keep(name: str, content: bytes) -> Path:
    """Keep an input that something went wrong with."""
    path = CORPUS / name / hashlib.sha256(content).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
