"""A short run of every target, and every input that ever was a finding."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.running import CORPUS, run
from tests.fuzz.targets import TARGETS, keep_answers, prepare

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("fuzz")
    prepare(made)
    keep_answers(made)
    return made


@pytest.mark.parametrize("name", TARGETS)
def test_what_was_found_once_is_mended(name: str, folder: Path) -> None:
    kept = sorted((CORPUS / name).glob("*"))
    out = run(TARGETS[name], folder, [path.read_bytes() for path in kept], seed=0)
    assert (out.tried, out.findings) == (len(kept), {})


@pytest.mark.parametrize("name", TARGETS)
def test_a_few_inputs_are_refused_by_us_or_survive(name: str, folder: Path) -> None:
    out = run(TARGETS[name], folder, 25, seed=7)
    assert out.findings == {}
    assert out.refused > 0


def test_a_run_notices_what_is_not_ours(folder: Path) -> None:
    """The harness itself: a foreign error and an endless loop are findings."""
    foreign = TARGETS["ledger"].__class__("", lambda *_: b"", lambda *_: json.loads("{"))
    assert list(run(foreign, folder, 1, seed=0).findings) == [
        "JSONDecodeError at outside: 'Expecting property name enclosed in double quotes: line 1 column 2 (char 1)'"
    ]


def test_memory_has_an_end() -> None:
    code = "from tests.fuzz.running import limit_memory; limit_memory(); bytearray(8 << 30)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, cwd=Path(__file__).parents[2])
    assert b"MemoryError" in done.stderr
