"""Links drawn from a fit: shares of right rows are those of all left rows, and as the fit found them in the view."""

from __future__ import annotations

import numpy as np
import pytest

from dpweave.links import draw_links
from dpweave.links.degrees import Degrees
from dpweave.links.link_fit import LinkFit
from dpweave.links.link_method import LinkProblem
from dpweave.links.map_learner import fit_links
from dpweave.measure.cross_workloads import Workload
from dpweave.privacy.window import NoisyMarginal

COMMON, RARE = 3000, 3000
EFFECT = np.log(9.0)


def _scene() -> tuple[LinkProblem, LinkFit]:
    """Rows of one common type lead to kind 0 nine times in ten, as many rows that are
    each of a type of their own to kind 1.
    """
    left = {"a": np.concatenate([np.zeros(COMMON, dtype=np.int64), np.arange(1, RARE + 1)])}
    right = {"kind": np.arange(40) % 2}
    shape = {"a": RARE + 1, "kind": 2}
    links = COMMON + RARE
    problem = LinkProblem(left, right, shape=shape, links=links, links_measured=float(links), kind="one-to-many")
    theta = np.zeros((RARE + 1, 2))
    theta[0, 0] = theta[1:, 1] = EFFECT
    return problem, LinkFit(shape, {Workload(("a",), ("kind",)): theta}, 0, converged=True)


def _share(problem: LinkProblem, pairs: np.ndarray) -> float:
    return float((problem.right["kind"][pairs[:, 1]] == 0).mean())


@pytest.mark.parametrize("most", [1 << 26, 2 * 1000], ids=["all", "a sample"])
def test_shares_of_right_rows_are_those_of_all_left_rows(most, monkeypatch):
    """Neither common types nor the types that come first count for more than their rows."""
    monkeypatch.setattr(draw_links, "WHOLE_CELLS", 1000)
    monkeypatch.setattr(draw_links, "_SHARED_CELLS", most, raising=False)
    problem, fit = _scene()
    degrees = Degrees(right_weights=np.ones(40))
    pairs = draw_links.draw_links(fit, problem, degrees=degrees, rng=np.random.default_rng(0))
    assert _share(problem, pairs) == pytest.approx(0.5, abs=0.01)


def test_shares_where_no_degrees_are_known_are_on_one_scale(monkeypatch):
    """Rows that lean to all kinds have more links, whichever block they are in."""
    monkeypatch.setattr(draw_links, "WHOLE_CELLS", 1000)
    problem, fit = _scene()
    theta = {
        Workload(("a",), ("kind",)): np.repeat(np.where(np.arange(RARE + 1) < RARE / 2, EFFECT, 0.0), 2).reshape(-1, 2)
    }
    left, right = draw_links._drawing_types(fit, problem)
    rows, _ = draw_links._type_shares(
        LinkFit(fit.shape, theta, 0, converged=True), left, right, None, None, None, np.random.default_rng(0)
    )
    assert rows[1] / rows[-1] == pytest.approx(9.0)


def test_margins_are_those_of_the_fit_and_rows_that_bounds_hid_come_on_top():
    """In the view three links in ten are of kind 0. Its common rows stand for twice as many, which lean to it."""
    problem, fit = _scene()
    found = LinkFit(
        fit.shape, fit.theta, 0, converged=True, joint={Workload((), ("kind",)): (np.array([0.3, 0.7]), 1.0)}
    )
    seen = np.where(problem.left["a"] == 0, 0.5, 1.0)
    shares = []
    for share in (np.ones(COMMON + RARE), seen):
        degrees = Degrees(left_seen=share, right_weights=np.ones(40))
        pairs = draw_links.draw_links(found, problem, degrees=degrees, rng=np.random.default_rng(0))
        shares.append(_share(problem, pairs))
    assert shares[0] == pytest.approx(0.3, abs=0.01)
    # By itself the fit has 0.367 of kind 0 in the view and 0.5 of all.
    times = (0.3 / 0.7) / (0.3667 / 0.6333)
    assert shares[1] == pytest.approx(times / (1 + times), abs=0.01)


def test_a_right_column_that_was_counted_and_not_heard_is_left_out_of_margins():
    """Its counts were mere noise, so that right rows are not told apart by it where
    there are too many types of them.
    """
    rng, rows = np.random.default_rng(0), 1500
    left = {"a": np.arange(rows) % 2, "own": np.arange(rows)}
    right = {"b": np.arange(rows) % 2, "c": np.arange(rows) % 5, "far": np.arange(rows)}
    shape = {"a": 2, "own": rows, "b": 2, "c": 5, "far": rows}
    problem = LinkProblem(left, right, shape=shape, links=3 * rows, links_measured=3.0 * rows)
    measured = [
        NoisyMarginal(("a", "b"), np.array([[2000, 250], [250, 2000]]), 5.0),
        NoisyMarginal(("c",), np.array([400, -900, 2000, 1500, 900]), 1e6),
    ]
    degrees = Degrees(left=np.full(rows, 3))
    fit = fit_links(problem, measured, degrees=degrees, rng=rng)
    assert Workload((), ("c",)) in fit.joint
    assert "c" not in fit.right
    pairs = draw_links.draw_links(fit, problem, degrees=degrees, rng=rng)
    alike = (left["a"][pairs[:, 0]] == right["b"][pairs[:, 1]]).mean()
    assert alike == pytest.approx(4000 / 4500, abs=0.02)
