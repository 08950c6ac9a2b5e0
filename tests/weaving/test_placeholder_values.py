"""Placeholders in whole copies: chosen in the plan, of one person within a row, the same in one part as in many."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dpweave as dw
from dpweave.errors import PlanError, UsageError
from dpweave.explain.check_plan import check_plan
from dpweave.explain.draft_notes import draft_text
from dpweave.weaving import parts

pytest.importorskip("faker", reason="pip install '.[fake]'")
ROWS = 900
TEXTS = {n: ["x"] * ROWS for n in ("first_name", "last_name", "email", "second_email", "city", "note")}
SOURCE = {
    "people": pd.DataFrame({"id": range(ROWS), "kind": ["a", "b", "b"] * (ROWS // 3), **TEXTS}),
    "visits": pd.DataFrame({"id": range(2 * ROWS), "people_id": np.arange(2 * ROWS) // 2, "iban": "x"}),
}
KINDS = {
    "first_name": "first_name",
    "last_name": "last_name",
    "email": "email",
    "second_email": "email",
    "city": "city",
}


def with_placeholders(plan):
    data = plan.to_dict()
    people = data["tables"]["people"]
    people["unique"] = [["email"]]
    for name, kind in KINDS.items():
        people["columns"][name] |= {"domain": "opaque", "placeholder": kind, "nullable": False}
    people["columns"]["city"]["locale"] = "fr_FR"
    data["tables"]["visits"]["columns"]["iban"] |= {"domain": "opaque", "placeholder": "iban"}
    return dw.Plan.from_dict({**data, "locale": "de_DE"})


@pytest.fixture(scope="module")
def model():
    plan = with_placeholders(dw.Plan.draft(SOURCE, protect=["people"]))
    return dw.fit(SOURCE, plan, epsilon=50.0, delta=1e-5, insecure_seed=0)


def test_rows_have_values_that_belong_together(model):
    people = model.sample(seed=3).to_pandas()["people"]
    assert people["email"].is_unique
    same = (people["first_name"] + "." + people["last_name"]).str.lower()
    plain = same.str.fullmatch(r"[a-z]+\.[a-z]+")
    assert plain.mean() > 0.5
    assert (people["email"].str.split("@").str[0] == same)[plain].all()
    assert (people["email"] != people["second_email"]).mean() > 0.9  # the second one is of a second person
    assert people["city"].nunique() > 100
    assert people["note"].dropna().str.startswith("note ").all()  # no placeholder: the built-in form
    assert model.sample(seed=3).to_pandas()["people"].equals(people)
    assert not model.sample(seed=4).to_pandas()["people"]["email"].equals(people["email"])


def test_the_number_of_parts_changes_no_value(model, monkeypatch):
    one = model.sample(seed=3).to_pandas()
    monkeypatch.setattr(parts, "PART_VALUES", 1500)
    monkeypatch.setattr(parts, "FEW", 12)
    many = model.sample(seed=3)
    assert many.tables.count > 2
    many = many.to_pandas()
    for name in KINDS:
        rows = min(len(many["people"]), len(one["people"]))
        assert many["people"][name].tolist()[:rows] == one["people"][name].tolist()[:rows]
    assert many["visits"]["iban"].is_unique


def test_a_missing_faker_is_said_before_anything_is_spent(model, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "faker.config", None)
    with pytest.raises(UsageError, match=r"people.first_name needs Faker: .*dpweave\[fake\]"):
        dw.fit(SOURCE, model.plan, epsilon=1.0, delta=1e-5, ledger=tmp_path / "ledger.jsonl")
    assert not (tmp_path / "ledger.jsonl").exists()
    with pytest.raises(UsageError, match="needs Faker"):
        model.sample()
    assert next(f.where for f in check_plan(model.plan, SOURCE) if f.severity == "wrong") == "people.first_name"
    assert model.plan.explain(epsilon=1.0, delta=1e-5)


def test_an_unknown_language_is_refused_before_anything_is_spent(model):
    with pytest.raises(UsageError, match="Faker knows no locale 'xx_XX', which people"):
        dw.fit(SOURCE, replace(model.plan, locale="xx_XX"), epsilon=1.0, delta=1e-5)


@pytest.mark.parametrize(
    ("table", "column", "entry", "why"),
    [
        ("people", "email", {"placeholder": "emial"}, "did you mean 'email'"),
        ("people", "email", {"placeholder": "email", "domain": "learn"}, "stands for text that is not modelled"),
        ("people", "id", {"placeholder": "email"}, "needs a text type"),
        ("people", "email", {"locale": "de_DE"}, "locale means nothing without a placeholder"),
        ("people", "email", {"placeholder": "email", "locale": "german"}, "locale must be a language and a country"),
        ("visits", "people_id", {"placeholder": "name", "type": "text"}, "dictated by a foreign key"),
    ],
)
def test_placeholders_that_mean_nothing_are_refused(table, column, entry, why):
    data = dw.Plan.draft(SOURCE, protect=["people"]).to_dict()
    data["tables"][table]["columns"][column] |= entry
    with pytest.raises(PlanError, match=why):
        dw.Plan.from_dict(data)


def test_a_draft_proposes_placeholders_in_words_and_works_without_them(model):
    plan, text = draft_text(SOURCE, protect=("people",))
    assert not plan.placeholders
    proposed = [line for line in text.splitlines() if "would look real" in line]
    assert [line.split(" = ")[0] for line in proposed] == [
        "first_name",
        "last_name",
        "email",
        "second_email",
        "note",
        "iban",
    ]
    assert dw.Plan.from_toml(model.plan.to_toml()) == model.plan


@pytest.mark.parametrize("placeholder", [None, "email"])
def test_what_may_be_null_is_null_as_often_where_it_never_repeats(placeholder):
    email = [None if i % 4 == 0 else f"a{i}" for i in range(ROWS)]
    source = {"people": pd.DataFrame({"id": range(ROWS), "email": email})}
    data = dw.Plan.draft(source, protect=["people"]).to_dict()
    data["tables"]["people"]["unique"] = [["email"]]
    data["tables"]["people"]["columns"]["email"] |= {"domain": "opaque"} | (
        {"placeholder": placeholder} if placeholder else {}
    )
    fitted = dw.fit(source, dw.Plan.from_dict(data), epsilon=50.0, delta=1e-5, insecure_seed=0)
    made = fitted.sample(seed=1).to_pandas()["people"]["email"]
    assert made.isna().mean() == pytest.approx(0.25, abs=0.05)
    assert made.dropna().is_unique
