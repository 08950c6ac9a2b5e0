"""Words that turned out to be riddles stay out of names, code and pages; those in use are in ``docs/glossary.md``."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

NAMES = {
    "bag",
    "brought",
    "cloth",
    "fabric",
    "foretold",
    "heard",
    "home",
    "lean",
    "reach",
    "seat",
    "told",
    "warp",
    "worth",
}
"""Say unit sum, external, state, blueprint, predicted, unit, effect, presence, place, known, shared or priority."""

PHRASES = re.compile(
    r"\b(bags?|cloths?|fabric|foretold|foretells?|had back|made good|leans?|leaning|seats?|was heard)\b", re.IGNORECASE
)
"""In prose, too. Some words of the first list are plain there: what a copy is worth."""


def names(text: str) -> set[str]:
    """Words of the names in some code: ``_unit_sums`` has ``unit`` and ``sums``."""
    found = (t.string for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.NAME)
    return {word for name in found for word in re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower())}


def plural(words: set[str]) -> set[str]:
    return words | {f"{word}s" for word in words}


def test_names_are_words_of_the_glossary():
    found = {path.name: names(path.read_text(encoding="utf-8")) & plural(NAMES) for path in SOURCES}
    assert {name: words for name, words in found.items() if words} == {}


def test_prose_has_no_riddles():
    found = {path.name: PHRASES.findall(path.read_text(encoding="utf-8")) for path in (*SOURCES, *PAGES)}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    ("code", "word"),
    [("my_bag = 1", "bag"), ("class Lean: ...", "lean"), ("def f(told): ...", "told"), ("a.homes", "homes")],
)
def test_riddles_are_found(code, word):
    assert word in names(code) & plural(NAMES)
