"""Every example runs as it stands, in an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
DATA = Path(os.environ.get("DPWEAVE_DATA", Path(__file__).parents[2] / "shared" / "data"))
SAYS = {
    "shop.py": "epsilon",
    "dataframes.py": "ward",
    "link_tables.py": "poetry",
    "publish_movielens.py": "users",
    "opendp_table.py": "patients was made elsewhere",
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
    if path.name == "opendp_table.py" and find_spec("mbi") is None:
        pytest.skip("OpenDP's synthesizers are not here: pip install 'opendp[mbi]'")
    # What another library warns of is its own affair.
    strict = [] if path.name == "opendp_table.py" else ["-W", "error"]
    command = [sys.executable, *strict, str(path), *arguments]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert SAYS[path.name] in found.stdout
