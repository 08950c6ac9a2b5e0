"""What an older version wrote stays as good as it was, and gets better for free."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

import dpweave as dw
from dpweave.errors import ModelFileError
from tests.model.older.writing import source

OLDER = sorted((Path(__file__).parent / "older").glob("*.dpw"))


def entries(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path: Path, parts: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("path", OLDER, ids=lambda p: p.stem)
def test_its_certificate_is_still_true_and_it_is_refitted_in_its_own_words(path, tmp_path):
    model = dw.load(path)
    assert model.certificate.versions["dpweave"] == path.stem
    assert dw.verify(model).true
    assert model.sample(seed=1)["buys"].num_rows > 100
    plan = dw.Plan.from_toml(model.plan.to_toml().replace('mechanism = "mst"', 'mechanism = "aim"'))
    for changed in (None, plan):
        again = dw.refit(model, changed)
        assert dw.verify(again).true
        again.save(tmp_path / "again.dpw")
        kept = dw.load(tmp_path / "again.dpw")
        assert dw.verify(kept).true
        assert dw.verify(dw.refit(kept)).true
        assert kept.sample(seed=1)["buys"].num_rows > 100
        for name in ("certificate.json", "release.json"):
            assert entries(tmp_path / "again.dpw")[name] == entries(path)[name]
    assert kept.mechanisms["people"] == "aim"


@pytest.mark.parametrize("path", OLDER, ids=lambda p: p.stem)
def test_what_is_learned_from_it_is_what_today_learns_from_its_answers(path, tmp_path):
    """Nothing of how the older version learned is left after a refit: learning again gives the same, to the byte."""
    dw.refit(dw.load(path)).save(tmp_path / "once.dpw")
    dw.refit(dw.load(tmp_path / "once.dpw")).save(tmp_path / "twice.dpw")
    once, twice = entries(tmp_path / "once.dpw"), entries(tmp_path / "twice.dpw")
    assert {name for name in once if once[name] != twice[name]} == {"lineage.json"}
    assert once["arrays.arrow"] != entries(path)["arrays.arrow"]


@pytest.mark.parametrize("path", OLDER, ids=lambda p: p.stem)
def test_it_can_be_extended(path, tmp_path):
    earlier = dw.load(path)
    more = dw.fit(source(), extend=earlier, epsilon=4.0, delta=1e-5, insecure_seed=4, ledger=tmp_path / "l.jsonl")
    assert more.certificate.epsilon > earlier.certificate.epsilon
    more.save(tmp_path / "more.dpw")
    found = dw.verify(dw.load(tmp_path / "more.dpw"), ledger=tmp_path / "l.jsonl")
    assert found.true, found.wrong


def test_words_of_an_older_version_are_bound_as_today_s_are(tmp_path):
    """A release in the words of 0.3 is not excused from its digests: neither in the file nor in memory."""
    path = next(p for p in OLDER if p.stem == "0.3.0")
    parts = entries(path)
    release = json.loads(parts["release.json"])
    release["moments"][0]["clip"] *= 2
    edited = dw.load(rewritten(tmp_path / "edited.dpw", parts | {"release.json": json.dumps(release).encode()}))
    assert "the answers in this model changed after the certificate was made" in dw.verify(edited).wrong
    model = dw.load(path)
    model.release.moments[0].noisy.values[0] += 1
    assert dw.verify(model).wrong == ("the answers in this model changed after the certificate was made",)
    model = dw.load(path)
    model.release.measured.pop()
    assert "the answers in this model changed after the certificate was made" in dw.verify(model).wrong


def test_a_format_that_is_not_read_is_refused_with_the_version_to_use(tmp_path):
    shutil.copy(OLDER[0], tmp_path / "m.dpw")
    parts = entries(OLDER[0])
    manifest = json.loads(parts["manifest.json"]) | {"format": 1}
    rewritten(tmp_path / "m.dpw", parts | {"manifest.json": json.dumps(manifest).encode()})
    with pytest.raises(ModelFileError, match=r"has format 1 and this dpweave reads format 2.*dpweave 0\.2\.0"):
        dw.load(tmp_path / "m.dpw")
