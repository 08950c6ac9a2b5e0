"""Noise sources: shapes, guards, OpenDP's own proofs, and the exact delta of private partition selection."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import cache

import mpmath as mp
import numpy as np
import pytest

from dpweave.errors import DpweaveError, UsageError
from dpweave.privacy import noise as module
from dpweave.privacy.accounting import gaussian_rho, selection_rho, selection_scale
from dpweave.privacy.noise import LARGEST_SCALE, InsecureNoise, NoiseSource, SecureNoise, threshold_delta, threshold_for

SOURCES = [pytest.param(SecureNoise(), id="secure"), pytest.param(InsecureNoise(3), id="insecure")]
both = pytest.mark.parametrize("noise", SOURCES)


@cache
def gaussian_mass(start: int, sigma: float) -> mp.mpf:
    """Sum of exp(-j^2 / 2 sigma^2) from j = start on, term by term with 40 digits until nothing is added."""
    with mp.workdps(40):
        step = mp.exp(-1 / mp.mpf(sigma) ** 2)
        term, ratio = step ** (mp.mpf(start) ** 2 / 2), step ** (start + mp.mpf(1) / 2)
        total = mp.mpf(0)
        while term > total * mp.mpf(10) ** -30:
            total, term, ratio = total + term, term * ratio, ratio * step
        return total


def exact_tail(k: int, sigma: float) -> mp.mpf:
    """P(N >= k) for the discrete Gaussian."""
    with mp.workdps(40):
        return gaussian_mass(k, sigma) / (1 + 2 * gaussian_mass(1, sigma))


@both
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 4), (2, 1, 3), (0,), (4, 0)])
def test_shape_and_type_are_kept(noise: NoiseSource, shape: tuple[int, ...]) -> None:
    counts = np.full(shape, 1000, dtype=np.int64)
    noisy = noise.discrete_gaussian(counts, sigma=2.0)
    assert noisy.shape == shape
    assert noisy.dtype == np.int64
    assert (abs(noisy - 1000) < 40).all()
    assert (counts == 1000).all()


@both
def test_cells_get_independent_noise(noise: NoiseSource) -> None:
    noisy = noise.discrete_gaussian(np.zeros((50, 2), dtype=np.int64), sigma=100.0)
    assert len(set(noisy[:, 0])) > 20
    assert abs(np.corrcoef(noisy.T)[0, 1]) < 0.6


@both
def test_non_contiguous_counts_keep_their_places(noise: NoiseSource) -> None:
    counts = (np.arange(12, dtype=np.int64).reshape(3, 4) * 10**6).T
    assert (abs(noise.discrete_gaussian(counts, sigma=1.0) - counts) < 30).all()


@both
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 1e-16, LARGEST_SCALE])
def test_bad_scales(noise: NoiseSource, bad: float) -> None:
    with pytest.raises(UsageError, match="sigma is"):
        noise.discrete_gaussian(np.zeros(2, dtype=np.int64), sigma=bad)
    with pytest.raises(UsageError, match="sigma is"):
        noise.threshold_counts({"a": 5}, sigma=bad, threshold=3)
    with pytest.raises(UsageError, match="scale is"):
        noise.noisy_max([1.0, 2.0], scale=bad)
    with pytest.raises(UsageError, match="sigma is"):
        threshold_delta(bad, 10, l0=1, linf=1)


@both
def test_huge_scales_work(noise: NoiseSource) -> None:
    noisy = noise.discrete_gaussian(np.zeros(200, dtype=np.int64), sigma=LARGEST_SCALE / 2)
    assert 0.7 < noisy.std() / (LARGEST_SCALE / 2) < 1.3


@both
def test_noisy_max_needs_candidates(noise: NoiseSource) -> None:
    with pytest.raises(UsageError, match="0 candidates"):
        noise.noisy_max([], scale=1.0)
    assert noise.noisy_max([-3.0], scale=1.0) == 0
    assert noise.noisy_max(np.array([0.0, 1e6, 0.0]), scale=1.0) == 1
    assert isinstance(noise.noisy_max([0.0, 1e6], scale=1.0), int)


def test_insecurity_is_stamped_and_seeded() -> None:
    assert SecureNoise().insecure is False
    assert InsecureNoise(0).insecure is True
    counts = np.zeros(30, dtype=np.int64)
    first, again, other = (InsecureNoise(s).discrete_gaussian(counts, sigma=9.0) for s in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    secure = [SecureNoise().discrete_gaussian(counts, sigma=9.0) for _ in range(2)]
    assert (secure[0] != secure[1]).any()


def test_secure_noise_ignores_numpys_seed() -> None:
    draws = []
    for _ in range(2):
        np.random.seed(0)  # noqa: NPY002
        draws.append(SecureNoise().discrete_gaussian(np.zeros(30, dtype=np.int64), sigma=50.0))
    assert (draws[0] != draws[1]).any()


def test_importing_noise_does_not_import_opendp() -> None:
    code = "import sys, dpweave.privacy.noise; sys.exit('opendp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("scale", [1e-3, 0.37, 1.0, 2.5, 33.3, 1e6])
@pytest.mark.parametrize("sensitivity", [1.0, math.sqrt(2), 7.0, 1000.5])
def test_opendp_proves_what_we_charge(scale: float, sensitivity: float) -> None:
    gaussian, choice = module._secure_gaussian(scale), module._secure_noisy_max(scale)
    assert gaussian.map(sensitivity) == pytest.approx(gaussian_rho(sensitivity, scale), rel=1e-9)
    assert choice.map(sensitivity) == pytest.approx(selection_rho(sensitivity, scale), rel=1e-9)


def test_calibrated_selection_meets_its_rho_by_opendps_map() -> None:
    scale = selection_scale(6.0, 0.02)
    assert module._secure_noisy_max(scale).map(6.0) <= 0.02 * (1 + 1e-9)


@pytest.mark.parametrize("name", ["gaussian_rho", "selection_rho"])
def test_a_library_that_proves_less_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = getattr(module, name)
    monkeypatch.setattr(module, name, lambda *args: honest(*args) * 0.999)
    build = module._secure_gaussian if name == "gaussian_rho" else module._secure_noisy_max
    with pytest.raises(DpweaveError, match="OpenDP proves rho"):
        build(1.2345)


def test_measurements_are_built_once() -> None:
    assert module._secure_gaussian(4.25) is module._secure_gaussian(4.25)
    assert module._secure_noisy_max(4.25) is module._secure_noisy_max(4.25)


@both
def test_threshold_keeps_the_frequent_and_drops_the_rare(noise: NoiseSource) -> None:
    counts = {"zebra": 500, "ant": 400, "once": 1, "none": 0, "é": 300, "minus": -5}
    kept = noise.threshold_counts(counts, sigma=2.0, threshold=60)
    assert list(kept) == ["ant", "zebra", "é"]  # order tells nothing
    assert all(abs(kept[name] - counts[name]) < 40 for name in kept)
    assert noise.threshold_counts({}, sigma=2.0, threshold=60) == {}


@both
def test_absent_and_zero_are_the_same(noise: NoiseSource) -> None:
    kept = noise.threshold_counts({f"c{i}": 0 for i in range(1000)}, sigma=5.0, threshold=1)
    assert kept == {}


@both
def test_released_counts_reach_the_threshold_and_may_equal_it(noise: NoiseSource) -> None:
    kept = noise.threshold_counts({f"c{i}": 10 for i in range(2000)}, sigma=2.0, threshold=10)
    assert min(kept.values()) == 10
    share = len(kept) / 2000
    assert abs(share - float(exact_tail(0, 2.0))) < 5 * math.sqrt(0.25 / 2000)


@pytest.mark.parametrize("sigma", [0.2, 0.5, 1.0, 1.7, 5.0, 40.0, 300.0, 1500.0])
@pytest.mark.parametrize(("l0", "linf"), [(1, 1), (3, 2), (10, 25)])
def test_threshold_delta_is_the_exact_tail_on_the_safe_side(sigma: float, l0: int, linf: int) -> None:
    for k in {1, 2, math.ceil(sigma), math.ceil(3 * sigma), math.ceil(6 * sigma)}:
        claimed = threshold_delta(sigma, linf + k, l0=l0, linf=linf)
        exact = l0 * exact_tail(k, sigma)
        assert claimed >= min(1, exact)
        assert claimed <= exact * (1 + 1e-3) + mp.mpf(10) ** -299


def test_threshold_delta_for_scales_beyond_the_series() -> None:
    sigma, k = 1e6, 5_000_000
    claimed = threshold_delta(sigma, k + 1, l0=1, linf=1)
    normal = 0.5 * math.erfc(k / sigma / math.sqrt(2))
    assert normal <= claimed <= normal * 1.001


def test_threshold_delta_is_never_zero_and_at_most_one() -> None:
    assert threshold_delta(1.0, 10**6, l0=1, linf=1) > 0
    assert threshold_delta(1.0, 1, l0=1, linf=1) == 1.0
    assert threshold_delta(1.0, -5, l0=1, linf=1) == 1.0
    assert threshold_delta(5.0, 2, l0=100, linf=1) == 1.0
    assert threshold_delta(1e-9, 2, l0=1, linf=1) < 1e-250


@pytest.mark.parametrize("bad", [0, -1, math.nan])
def test_threshold_guards(bad: int) -> None:
    with pytest.raises(UsageError, match="l0 is"):
        threshold_delta(1.0, 10, l0=bad, linf=1)
    with pytest.raises(UsageError, match="linf is"):
        threshold_delta(1.0, 10, l0=1, linf=bad)
    with pytest.raises(UsageError, match="delta is"):
        threshold_for(bad, 1.0, l0=1, linf=1)
    with pytest.raises(UsageError, match="1e-290"):
        threshold_for(1e-295, 1.0, l0=1, linf=1)


@pytest.mark.parametrize("sigma", [0.01, 0.4, 1.0, 12.5, 900.0, 1e7])
@pytest.mark.parametrize("delta", [0.4, 1e-3, 1e-6, 1e-12, 1e-200])
@pytest.mark.parametrize(("l0", "linf"), [(1, 1), (20, 5)])
def test_threshold_for_is_the_smallest(sigma: float, delta: float, l0: int, linf: int) -> None:
    threshold = threshold_for(delta, sigma, l0=l0, linf=linf)
    assert threshold_delta(sigma, threshold, l0=l0, linf=linf) <= delta
    assert threshold == linf + 1 or threshold_delta(sigma, threshold - 1, l0=l0, linf=linf) > delta


@pytest.mark.parametrize(
    ("sigma", "threshold", "l0", "linf"), [(2.0, 8, 1, 1), (2.0, 8, 3, 2), (1.3, 6, 5, 1), (5.0, 20, 1, 4)]
)
def test_threshold_against_opendps_map(sigma: float, threshold: int, l0: int, linf: int) -> None:
    """Same rho. OpenDP 0.16's delta leaves out the probability at the threshold itself (opendp/opendp#2922)."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="i64"))
    metric = dp.l02inf_distance(dp.absolute_distance(T=float))
    measurement = dp.m.make_gaussian_threshold(domain, metric, scale=sigma, threshold=threshold)
    l2 = linf * math.sqrt(l0)
    rho, delta = measurement.map((l0, l2, float(linf)))
    assert rho == pytest.approx(gaussian_rho(l2, sigma))
    ours = threshold_delta(sigma, threshold, l0=l0, linf=linf)
    assert ours / 4 < delta < ours * 4
    assert delta >= float(l0 * exact_tail(threshold - linf + 1, sigma))  # all but the threshold itself
