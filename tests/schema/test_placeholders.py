"""Made-up texts: of their column's form, no longer than it allows, and different where they must be."""

from __future__ import annotations

import numpy as np
import pytest

from dpweave.schema.database import Column, Type
from dpweave.schema.placeholders import placeholders, texts_for


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Email", "person12@example.com"),
        ("home_phone", "+1-555-0000012"),
        ("url", "https://example.com/12"),
        ("a {b}", "a {b} 12"),
    ],
)
def test_texts_have_the_form_that_their_name_asks_for(name, text):
    assert texts_for(Column(name, Type("text")), np.array([12])).to_pylist() == [text]


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 30])
def test_texts_keep_their_length_and_differ_as_long_as_they_can(length):
    numbers = np.arange(1, min(36**length, 3000))
    texts = texts_for(Column("name", Type("text", length=length)), numbers).to_pylist()
    assert max(map(len, texts)) <= length
    assert len(set(texts)) == len(texts)


def test_nulls_stay_null():
    null = np.array([True, False, True])
    made = placeholders(Column("x", Type("text")), np.arange(3), null=null, rng=np.random.default_rng(0))
    assert made.to_pylist() == [None, "x 2", None]
