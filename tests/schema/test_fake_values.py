"""Made-up values that people recognise: repeatable, different where they must be, of one person within a row."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dpweave.schema.fake_values import KINDS, PERSON, fake_texts

pytest.importorskip("faker", reason="pip install '.[fake]'")
ROWS = np.arange(4000)


def texts(kind, numbers=ROWS, *, locale="en_US", order=5, **options):
    return fake_texts(kind, numbers, locale=locale, pool=3, order=order, **options).to_pylist()


@pytest.mark.parametrize("kind", KINDS)
def test_values_depend_on_the_number_of_the_row_alone_and_differ_where_they_must(kind):
    made = texts(kind, unique=True)
    assert made == texts(kind, ROWS[:7], unique=True) + texts(kind, ROWS[7:], unique=True)
    assert len(set(made)) == len(made)
    assert made != texts(kind, unique=True, order=6)
    assert texts(kind, ROWS[:50]) == made[:50] or kind in ("first_name", "last_name")  # which are marked at once


@pytest.mark.parametrize("locale", ["zh_CN", "vi_VN", "nl_NL", "hu_HU"])
@pytest.mark.parametrize("kind", ["name", "email", "username", "phone"])
def test_languages_with_few_names_or_another_order_keep_them_apart(kind, locale):
    made = texts(kind, locale=locale, unique=True)
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [4, 12, 40])
def test_values_fit_and_differ_all_the_same(kind, length):
    made = fake_texts(kind, ROWS, locale="en_US", pool=3, order=5, length=length, unique=True)
    if made is not None:
        assert max(map(len, made.to_pylist())) <= length
        assert len(set(made.to_pylist())) == len(made)
    loose = fake_texts(kind, ROWS, locale="en_US", pool=3, order=5, length=length)
    assert loose is None or max(map(len, loose.to_pylist())) <= length


def test_a_row_speaks_of_one_person():
    name, first, last, user, mail = (texts(kind, locale="de_DE") for kind in PERSON)
    assert name == [f"{a} {b}" for a, b in zip(first, last, strict=True)]
    assert all(m.startswith(f"{u}@example.") for u, m in zip(user, mail, strict=True))
    plain = [i for i, (a, b) in enumerate(zip(first, last, strict=True)) if f"{a}{b}".isascii() and f"{a}{b}".isalpha()]
    assert len(plain) > len(ROWS) / 2
    assert all(user[i] == f"{first[i]}.{last[i]}".lower() for i in plain)
    assert all(re.fullmatch(r"[a-z]+\.[a-z]+", u) for u in user)


def test_last_names_come_first_where_people_write_them_so():
    name, first, last = (texts(kind, ROWS[:20], locale="ja_JP") for kind in PERSON[:3])
    assert name == [f"{b} {a}" for a, b in zip(first, last, strict=True)]


@pytest.mark.parametrize("locale", ["de_DE", "en_GB"])
def test_ibans_have_right_check_digits(locale):
    for iban in texts("iban", ROWS[:200], locale=locale, unique=True):
        assert int("".join(str(int(c, 36)) for c in iban[4:] + iban[:4])) % 97 == 1


def test_a_million_rows_do_not_ask_faker_a_million_times(monkeypatch):
    from faker.proxy import Faker

    asked = []
    monkeypatch.setattr(
        Faker, "city", property(lambda self: lambda: asked.append(0) or f"City {len(asked)}"), raising=False
    )
    assert len(set(texts("city", np.arange(100_000), locale="fr_FR"))) > 1000
    assert 0 < len(asked) <= 2000
