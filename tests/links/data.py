"""The real databases, where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from dpweave.arrays import IntArray


def folder() -> Path:
    """``DPWEAVE_DATA``, or ``../shared/data`` from the project's root; skips the test where neither is."""
    found = Path(os.environ.get("DPWEAVE_DATA", Path(__file__).parents[3] / "shared" / "data"))
    if not found.is_dir():
        pytest.skip(f"no data folder {found}; set DPWEAVE_DATA")
    return found


def movielens() -> tuple[dict[str, IntArray], dict[str, IntArray], dict[str, int], IntArray]:
    """Codes of users and movies, domain sizes, and the 10,075 links of the paper."""
    import pyarrow.parquet as pq

    files = folder() / "movielens"
    users = pq.read_table(files / "users.parquet").to_pydict()
    movies = pq.read_table(files / "movies.parquet").to_pydict()
    ratings = pq.read_table(files / "ratings_d10.parquet").to_pydict()
    left, shape = {}, {}
    for column in ("gender", "age", "occupation"):
        values, codes = np.unique(np.array(users[column]), return_inverse=True)
        left[column], shape[column] = codes.astype(np.int64), len(values)
    right = {c: np.array(x, dtype=np.int64) for c, x in movies.items() if c.startswith("is_")}
    shape |= dict.fromkeys(right, 2)
    user = {key: i for i, key in enumerate(users["user_id"])}
    movie = {key: i for i, key in enumerate(movies["movie_id"])}
    links = [[user[u], movie[m]] for u, m in zip(ratings["user_id"], ratings["movie_id"], strict=True)]
    return left, right, shape, np.array(links, dtype=np.int64)
