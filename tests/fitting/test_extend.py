"""fit(extend=): the answers of an earlier fit count too, and the certificate states the total."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import dpweave as dw
from dpweave.errors import PlanError, UsageError
from dpweave.model.extension import total
from dpweave.privacy.accounting import Cost
from dpweave.privacy.certificate import Certificate, said_together
from dpweave.privacy.release import guarantees
from tests.model.shops import PLAN, fitted, tables

if TYPE_CHECKING:
    from pathlib import Path

    from dpweave.model.model import Model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("extend")


@pytest.fixture(scope="module")
def earlier(folder: Path) -> Model:
    fitted(folder / "ledger.jsonl", epsilon=2.0).save(folder / "earlier.dpw")
    return dw.load(folder / "earlier.dpw")


@pytest.fixture(scope="module")
def extended(folder: Path, earlier: Model) -> Model:
    fitted(folder / "ledger.jsonl", epsilon=2.0, insecure_seed=4, extend=earlier).save(folder / "extended.dpw")
    return dw.load(folder / "extended.dpw")


def test_the_certificate_states_the_total_and_verify_agrees(folder: Path, earlier: Model, extended: Model) -> None:
    def cost(model: Model) -> Cost:
        return sum((Cost(e["rho"], e["delta"]) for e in model.certificate.events), Cost.zero())

    later = [e for e in extended.certificate.events if "run" not in e]
    assert cost(extended) == cost(earlier) + sum((Cost(e["rho"], e["delta"]) for e in later), Cost.zero())
    assert extended.certificate.rho == pytest.approx(2 * earlier.certificate.rho, rel=0.05)
    assert earlier.certificate.epsilon < extended.certificate.epsilon < 2 * earlier.certificate.epsilon
    found = dw.verify(extended, ledger=folder / "ledger.jsonl")
    assert found.true, found
    assert sum("charges, held against" in said for said in found.checked) == 2
    elsewhere = folder / "elsewhere.jsonl"
    alone = fitted(elsewhere, epsilon=1.0, extend=earlier)
    assert any("knows no run" in said for said in dw.verify(alone, ledger=elsewhere).unbound)


def test_a_charge_of_the_earlier_fit_that_was_changed_is_noticed(extended: Model) -> None:
    first, *rest = extended.certificate.events
    cheaper = {**first, "rho": {t: x / 2 for t, x in first["rho"].items()}}
    forged = replace(extended, certificate=replace(extended.certificate, events=(cheaper, *rest)))
    assert not dw.verify(forged).true


def test_both_answers_count_by_the_inverse_of_their_variance(earlier: Model, extended: Model) -> None:
    first, second = extended.release.find("sizes:people")
    weights = np.array([first.sigma**-2, second.sigma**-2])
    mean = float(weights @ [first.counts, second.counts] / weights.sum())
    assert extended.release.find("sizes:people")[0] == earlier.release.find("sizes:people")[0]
    assert len(extended.release.discovered) == 1  # learned domains stay, and are not paid for again
    assert not [e for e in extended.certificate.events if "run" not in e and e["verb"] == "discover"]
    assert abs(mean - 400) < 3 * (weights.sum() ** -0.5)
    again = dw.refit(extended)
    assert all(again.sample(seed=1)[t].equals(extended.sample(seed=1)[t]) for t in extended.sizes)


def test_more_budget_gives_less_error(earlier: Model, extended: Model) -> None:
    """Counts of the fitted tables against the truth, in all their cells: half the noise variance shows."""
    real = tables()

    def error(model: Model) -> float:
        found = model.tables["things"].marginal(("kind", "size"))
        kinds, sizes = real["things"]["kind"].to_pylist(), real["things"]["size"].to_pylist()
        truth = np.zeros(found.shape)
        for kind, size in zip(kinds, sizes, strict=True):
            truth["abc".index(kind), ["large", "small"].index(size)] += 1
        return float(np.abs(found - truth).sum())

    assert error(extended) < error(earlier)


def test_what_cannot_be_extended_is_refused_by_name(earlier: Model) -> None:
    with pytest.raises(PlanError, match=r"tables\.buys\.keys\.who\.max_degree cannot change"):
        fitted(None, extend=earlier, plan=PLAN.replace("max_degree = 4", "max_degree = 3"))
    other = replace(earlier, certificate=replace(earlier.certificate, database="frames/other"))
    with pytest.raises(UsageError, match="under the same name"):
        fitted(None, extend=other)


def test_a_person_in_two_tables_is_told_the_sum_of_both_fits(earlier: Model) -> None:
    """What each fit says for itself of such a person is too little for both."""

    def alone(rho: float) -> Certificate:
        tables = guarantees(Cost({"a": rho, "b": rho}, {}), ("a", "b"), delta=1e-5)
        event = {"n": 1, "rho": {"a": rho, "b": rho}, "delta": {}}
        said = ("something else", *said_together(tables))
        return replace(earlier.certificate, tables=tables, events=(event,), delta=1e-5, caveats=said)

    first, second = alone(0.1), replace(alone(0.4), run="another")
    found = total(first, second, ("a", "b"))
    (sentence,) = (c for c in found.caveats if "protected less" in c)
    assert (sentence,) == said_together(found.tables)
    assert sentence not in (*first.caveats, *second.caveats)
    assert found.caveats.count("something else") == 1
    again = total(found, replace(alone(0.2), run="a third"), ("a", "b"))
    assert sum("this is the total of" in c for c in again.caveats) == 1
    assert sum("protected less" in c for c in again.caveats) == 1
