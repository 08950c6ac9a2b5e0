"""Every example runs as it stands, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
DATA = Path(os.environ.get("DPWEAVE_DATA", Path(__file__).parents[2] / "shared" / "data"))
SAYS = {
    "shop.py": "epsilon",
    "dataframes.py": "ward",
    "link_tables.py": "poetry",
    "publish_movielens.py": "users",
}


def test_every_example_is_known():
    assert {p.name for p in EXAMPLES} == set(SAYS)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_run(path, tmp_path):
    arguments = []
    if path.name == "publish_movielens.py":
        if not (DATA / "movielens").is_dir():
            pytest.skip("MovieLens is not here")
        arguments = [str(DATA / "movielens")]
    command = [sys.executable, "-W", "error", str(path), *arguments]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert SAYS[path.name] in found.stdout
