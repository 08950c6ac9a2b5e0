"""A certificate is true of its own model alone: files are edited digit by digit, and who may write what is played
through.
"""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from dataclasses import replace

import numpy as np
import pytest

import dpweave as dw
from dpweave.errors import LedgerError, ModelFileError
from dpweave.model.verification import bound_certificate
from dpweave.privacy.accounting import Cost
from dpweave.privacy.ledger import release
from dpweave.privacy.release import guarantees
from tests.model.shops import fitted

EDITS = 25
"""Digits changed in each entry of a model; spread over all of it. 1,274 were tried once."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shop")
    fitted(folder / "ledger.jsonl").save(folder / "shop.dpw")
    return folder


@pytest.fixture(scope="module")
def model(shop):
    return dw.load(shop / "shop.dpw")


@pytest.fixture
def ledger(shop, tmp_path):
    return shutil.copy(shop / "ledger.jsonl", tmp_path / "ledger.jsonl")


def rewritten(model, events=None, answers=None):
    """What somebody can make who may write the model: costs, guarantees and digests as they would be."""
    certificate, answers = model.certificate, answers or model.release
    events = certificate.events if events is None else tuple(events)
    total = sum((Cost(e["rho"], e["delta"]) for e in events), Cost.zero())
    tables = guarantees(total, model.plan.protect, delta=certificate.delta)
    most = {"epsilon": max(g.epsilon for g in tables), "rho": max(g.rho for g in tables)}
    certificate = replace(certificate, events=events, tables=tables, **most)
    return replace(model, certificate=bound_certificate(certificate, answers, model.plan), release=answers)


def test_what_was_fitted_is_true_before_and_after_it_was_saved(shop, model):
    found = dw.verify(model, ledger=shop / "ledger.jsonl")
    assert found.true
    verbs = {(e["verb"], "clip" in e) for e in model.certificate.events}
    assert verbs == {("measure", False), ("measure", True), ("select", False), ("discover", False)}
    assert found.checked[0].startswith(f"{len(model.certificate.events)} charges, worked out from ")
    assert found.to_dict()["true"]
    assert dw.verify(rewritten(model), ledger=shop / "ledger.jsonl").true  # the hand that edits below changes nothing


@pytest.mark.parametrize("entry", ["plan.toml", "certificate.json", "release.json"])
def test_one_digit_in_the_file_is_enough(shop, tmp_path, entry):
    with zipfile.ZipFile(shop / "shop.dpw") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    text = entries[entry].decode()
    digits = [m.start() for m in re.finditer(r"\d", text)]
    for at in digits[:: max(len(digits) // EDITS, 1)]:
        changed = text[:at] + str((int(text[at]) + 5) % 10) + text[at + 1 :]
        if entry.endswith("json") and json.loads(changed) == json.loads(text):
            continue  # the last digit of a number that rounds to the same
        with zipfile.ZipFile(tmp_path / "edited.dpw", "w") as archive:
            for name, content in entries.items():
                archive.writestr(name, changed if name == entry else content)
        try:
            found = dw.verify(dw.load(tmp_path / "edited.dpw"))
        except ModelFileError:
            continue
        assert not found.true, text[max(at - 60, 0) : at + 20]


def test_one_count_of_any_answer_is_enough(model):
    for kind, held in (("measured", "marginal"), ("summed_by_unit", "noisy")):
        answers = getattr(model.release, kind)
        assert len(answers) > 5
        for i, answer in enumerate(answers):
            noisy = getattr(answer, held)
            counts = np.array(noisy.counts)
            counts.flat[i % counts.size] += 1
            edited = [*answers]
            edited[i] = replace(answer, **{held: replace(noisy, counts=counts)})
            found = dw.verify(replace(model, release=replace(model.release, **{kind: edited})))
            assert found.wrong == ("the answers in this model changed after the certificate was made",)


@pytest.mark.parametrize("verb", ["measure", "select", "discover"])
def test_a_price_that_is_too_low_is_found_whoever_wrote_the_digests(model, verb):
    for i, event in enumerate(model.certificate.events):
        if event["verb"] == verb:
            lower = {**event, "rho": {t: 0.99 * x for t, x in event["rho"].items()}}
            events = [lower if j == i else e for j, e in enumerate(model.certificate.events)]
            (wrong,) = dw.verify(rewritten(model, events)).wrong
            assert wrong.startswith(f"charge {event['n']}, {event['what']!r}: its answer costs rho ")


def test_noise_a_scale_or_a_threshold_that_was_not_charged_is_found(model):
    whole = model.release
    first = whole.measured[0]
    other = replace(first, marginal=replace(first.marginal, sigma=first.marginal.sigma / 2))
    found = dw.verify(rewritten(model, answers=replace(whole, measured=[other, *whole.measured[1:]])))
    assert any("no charge names it and its sigma" in text for text in found.wrong)
    other = replace(whole.selected[0], scale=whole.selected[0].scale / 2)
    found = dw.verify(rewritten(model, answers=replace(whole, selected=[other, *whole.selected[1:]])))
    assert any("the choice was made at scale" in text for text in found.wrong)
    known = whole.discovered[0]
    event = next(e for e in model.certificate.events if e["verb"] == "discover")
    low = {**event, "threshold": known.threshold / 2}
    events = [low if e is event else e for e in model.certificate.events]
    edited = replace(whole, discovered=[replace(known, threshold=known.threshold / 2)])
    (wrong,) = dw.verify(rewritten(model, events, edited)).wrong
    assert "its threshold is lower than delta" in wrong


def test_an_answer_without_a_charge_is_wrong_and_a_charge_without_an_answer_is_said(model):
    whole = model.release
    more = replace(whole, measured=[*whole.measured, whole.measured[0]])
    found = dw.verify(rewritten(model, answers=more))
    assert found.wrong == ("an answer to 'sizes:people' is in the release, and no charge names it and its sigma",)
    events = [model.certificate.events[0], *model.certificate.events]  # as after a crash: paid once more
    found = dw.verify(rewritten(model, events))
    assert found.true
    assert any(text.startswith("1 charge has no answer") for text in found.unbound)


def test_only_the_ledger_knows_where_the_whole_model_was_written_anew(model, ledger):
    """Whoever halves a count and writes all digests anew is true by the model alone."""
    first = model.release.measured[0]
    half = replace(first, marginal=replace(first.marginal, counts=first.marginal.counts // 2))
    forged = rewritten(model, answers=replace(model.release, measured=[half, *model.release.measured[1:]]))
    assert dw.verify(forged).true
    found = dw.verify(forged, ledger=ledger)
    assert found.wrong == ("the ledger ends this run with other answers, plan or certificate",)


def test_a_ledger_that_was_cut_off_anywhere_is_noticed(model, ledger):
    lines = ledger.read_bytes().splitlines(keepends=True)
    for kept in range(len(lines)):
        ledger.write_bytes(b"".join(lines[:kept]))
        assert not dw.verify(model, ledger=ledger).true, kept
    ledger.write_bytes(b"".join(lines[:-1]))
    (wrong,) = dw.verify(model, ledger=ledger).wrong
    assert wrong == "the ledger was cut off: the line that ends this run is missing"
    ledger.write_bytes(b"".join(lines[:5]))
    (wrong,) = dw.verify(model, ledger=ledger).wrong
    assert wrong.startswith("the ledger was cut off: it ends at line 5, and the certificate names line ")


def test_digits_of_a_ledger_are_bound_but_for_the_time_of_its_last_line(model, ledger):
    text = ledger.read_text()
    last = text.rindex('{"n"')
    free = range(text.index('"time"', last), text.index('"kind"', last))
    digits = [m.start() for m in re.finditer(r"\d", text)]
    for at in (d for i, d in enumerate(digits) if (d > last or i % 40 == 0) and d not in free):
        ledger.write_text(text[:at] + str((int(text[at]) + 5) % 10) + text[at + 1 :])
        assert not dw.verify(model, ledger=ledger).true, text[max(at - 60, 0) : at + 20]


def test_a_ledger_that_knows_another_run_or_is_not_there_is_said(model, tmp_path):
    fitted(tmp_path / "other.jsonl", insecure_seed=4)
    (wrong,) = dw.verify(model, ledger=tmp_path / "other.jsonl").wrong
    assert "knows no run" in wrong
    whole = (tmp_path / "other.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "short.jsonl").write_text("".join(whole[:3]))
    (wrong,) = dw.verify(model, ledger=tmp_path / "short.jsonl").wrong
    assert "name the one that the fit was charged to. If it is that one, it was cut off: it ends at line 3" in wrong
    with pytest.raises(LedgerError, match="No such file"):
        dw.verify(model, ledger=tmp_path / "missing.jsonl")


def test_a_run_that_another_process_ended_is_not_bound_and_not_wrong(model, ledger):
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:-1]))
    release(ledger, database=model.certificate.database, run=model.certificate.run)
    found = dw.verify(model, ledger=ledger)
    assert found.true
    assert any("the ledger has no digest of these answers" in text for text in found.unbound)


def test_certificates_of_older_versions_are_priced_and_said_to_be_unbound(model):
    unweighed = replace(model.release, selected=[replace(s, weights=(), scale=0.0) for s in model.release.selected])
    older = replace(model, release=unweighed, certificate=replace(model.certificate, digests={}))
    found = dw.verify(older)
    assert found.true
    assert any("version without digests" in text for text in found.unbound)
    assert any("kept no weights" in text for text in found.unbound)


def test_values_that_none_can_hold_are_wrong_and_no_bug(model):
    for broken in ({"verb": "measure"}, {"verb": "steal"}, {"verb": "measure", "cliques": 1, "sigma": None}):
        events = ({"n": 2, "what": "sizes:people", "rho": {}, "delta": {}, **broken}, *model.certificate.events[1:])
        assert not dw.verify(replace(model, certificate=replace(model.certificate, events=events))).true
    assert not dw.verify(replace(model, certificate=replace(model.certificate, delta="x"))).true
