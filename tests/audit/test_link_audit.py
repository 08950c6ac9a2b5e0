"""``dw.link`` from end to end on neighbouring databases: its certificate holds, and
what is broken on purpose is caught.

Every run is a whole call, with its own ledger, noise, budget split, learning and certificate. Only
what has no randomness is kept between the runs on one database: the rows as they were read and
coded. The attacker sees what the caller gets, on the one hand the release, on the other the links.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dpweave as dw
from dpweave.fitting import link_tables
from dpweave.privacy import curator as curator_module
from dpweave.privacy import release as release_module
from dpweave.privacy.curator import Curator
from dpweave.privacy.noise import SecureNoise
from dpweave.tables import base as tables_module
from tests.audit.harness import Runs, audit, zcdp_claim

RUNS = 200
"""On either database of a pair."""
DEGREE = 2
LEFT = pa.table({"user": range(6), "age": [0, 1, 0, 1, 0, 1], "sex": [0, 0, 1, 1, 0, 1]})
RIGHT = pa.table({"movie": range(6), "genre": [0, 0, 1, 1, 0, 1]})
OTHERS = [(1, 2), (2, 3), (3, 4), (4, 5), (5, 4)]
ONE = [(0, 0), (0, 1)]
PAIRS = {"replaced": [(0, 2), (0, 3)], "dropped": []}
"""What the first user is linked to in the other database: its two links to genre 0 become two to genre 1, or none."""

pytestmark = pytest.mark.slow


class Weak:
    """Noise of a fraction of the scale that was charged for."""

    insecure = False

    def __init__(self, share: float) -> None:
        self._noise, self._share = SecureNoise(), share

    def discrete_gaussian(self, counts: Any, *, sigma: float) -> Any:
        return self._noise.discrete_gaussian(counts, sigma=sigma * self._share)

    def noisy_max(self, scores: Any, *, scale: float) -> int:
        return self._noise.noisy_max(scores, scale=scale)


class Reading:
    """Rows of each database, read once; ``noise`` is what every Curator gets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.noise: Any = None
        self._opened: dict[str, Any] = {}
        self._read: dict[int, Curator] = {}
        self._open = link_tables.open_source
        monkeypatch.setattr(link_tables, "open_source", self._source)
        monkeypatch.setattr(link_tables, "Curator", self._curator)
        coded = lru_cache(lambda table, columns: self._encode(self._tables[table], dict(columns)))
        self._encode, self._tables = link_tables.encode_table, {}

        def encode_table(table: pa.Table, codecs: Any) -> Any:
            self._tables[str(table)] = table
            return coded(str(table), tuple(codecs.items()))

        monkeypatch.setattr(link_tables, "encode_table", encode_table)
        for module, name in (
            (curator_module, "gaussian_sigma"),
            (curator_module, "selection_scale"),
            (release_module, "epsilon_of_rho"),
            (release_module, "version"),
            (link_tables, "rho_of_epsilon"),
            (tables_module, "registered"),
        ):
            monkeypatch.setattr(module, name, lru_cache(getattr(module, name)))

    def _source(self, frames: dict[str, pa.Table]) -> Any:
        key = str(frames["links"].to_pylist())
        if key not in self._opened:
            self._opened[key] = self._open(frames)
        return nullcontext(self._opened[key])

    def _curator(self, source: Any, promise: Any, *, ledger: Any, noise: Any, salt: str, kept: Any) -> Curator:
        assert isinstance(noise, SecureNoise)  # nobody asked for an insecure seed
        assert kept is None  # nor for a ledger, beside which answers would be kept
        made = Curator(source, promise, ledger=ledger, noise=self.noise, salt=salt)
        first = self._read.setdefault(id(source), made)
        if first is not made:
            made._bounding, made._counts, made._movement = first._bounding, first._counts, first._movement
            made.check = made.set_codec = lambda *_, **__: None  # type: ignore[method-assign]
        return made


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    return Reading(monkeypatch)


def link(pairs: list[tuple[int, int]]) -> dw.Links:
    users, movies = zip(*pairs, strict=True)
    return dw.link(
        LEFT, RIGHT, pa.table({"user": users, "movie": movies}), left_key="user", right_key="movie",
        synthetic_left=LEFT, synthetic_right=RIGHT, max_degree=DEGREE, k=2, epsilon=3.0, delta=0.01,
        method=dw.PGD(T=1, K=1, k=2, slices=None, iterations=2),
    )  # fmt: skip


def exact(pairs: list[tuple[int, int]], columns: tuple[str, ...]) -> np.ndarray:
    """True counts, by the names that the view gives to columns."""
    if not columns:
        return np.array(len(pairs))
    tables = {"left": (LEFT, 0), "right": (RIGHT, 1)}
    codes = []
    for name in columns:
        side = next(s for s in tables if name.split(".")[-1] in tables[s][0].column_names)
        table, end = tables[side]
        codes.append(table[name.split(".")[-1]].to_numpy()[[p[end] for p in pairs]])
    counts = np.zeros((2,) * len(columns))
    np.add.at(counts, tuple(codes), 1)
    return counts


def collect(pair: str, runs: int) -> tuple[tuple[Runs, Runs], tuple[Runs, Runs], float]:
    """What the releases say, what the links say, and rho of the certificate."""
    worlds = [OTHERS + ONE, OTHERS + PAIRS[pair]]
    said, made = (Runs(), Runs()), (Runs(), Runs())
    exactly = lru_cache(lambda columns: [exact(world, columns) for world in worlds])
    rho = 0.0
    for world, in_release, in_links in zip(worlds, said, made, strict=True):
        for _ in range(runs):
            links = link(world)
            ratio = 0.0
            for measured in links.release.measured:
                one, zero = exactly(measured.marginal.columns)
                noisy = measured.marginal
                ratio += float(((noisy.counts - (one + zero) / 2) * (one - zero)).sum()) / noisy.sigma**2
            in_release.kind.append(tuple(s.chosen for s in links.release.selected))
            in_release.projection.append(ratio)
            found = links.pairs.to_pandas()
            genre = RIGHT["genre"].to_numpy()[found.right]
            in_links.kind.append((len(found), int((genre == 0).sum())))
            in_links.projection.append(0.0)
            rho = links.certificate.rho
    return said, made, rho


@pytest.mark.parametrize("pair", PAIRS)
def test_the_certificate_stands(reading: Reading, pair: str) -> None:
    said, made, rho = collect(pair, RUNS)
    claim = zcdp_claim(rho)
    for runs in (said, made):
        verdict = audit(*runs, claim)
        assert not verdict.broken, verdict
    gap = np.mean(said[0].projection) - np.mean(said[1].projection)
    assert gap > 0.05  # no formality: the releases of the two differ, by 0.4 at least on average


def test_weak_noise_is_caught(reading: Reading) -> None:
    reading.noise = Weak(0.15)
    said, _, rho = collect("replaced", 2 * RUNS)  # fewer leave the odds of choices so unsure that they hide it
    assert audit(*said, zcdp_claim(rho)).broken


def test_the_true_number_of_links_is_caught(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release as it should be, and as many links as there really are: seen in the links alone."""
    honest = link_tables._Task.count

    def count(task: Any, curator: Any, plan: Any, *, rho: float) -> tuple[float, float]:
        _, scale = honest(task, curator, plan, rho=rho)
        return float(task.arrows["pairs"].num_rows), scale

    monkeypatch.setattr(link_tables._Task, "count", count)
    said, made, rho = collect("dropped", RUNS // 2)
    assert not audit(*said, zcdp_claim(rho)).broken
    assert audit(*made, zcdp_claim(rho)).broken
