"""Made-up values that people recognise: names, addresses, e-mails that follow names. Faker makes them (extra ``fake``).

A value depends on the seed, the table, the column and the number of its row. It never depends on a row of the source,
nor on how many parts a copy is woven in. Faker draws one pool per kind and locale. Rows take from it by number, in an
order that is scattered anew each time the pool is used up, so a million rows cost Faker no more than a thousand.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from dpweave.arrays import IntArray

PERSON = ("name", "first_name", "last_name", "username", "email")
"""Kinds that say something of one person: in one row they agree."""
FAKER_METHODS = {
    "phone": "phone_number",
    "street": "street_address",
    "postcode": "postcode",
    "city": "city",
    "address": "address",
    "country": "country",
    "company": "company",
    "job": "job",
    "iban": "iban",
    "sentence": "sentence",
}
"""Which method of Faker draws a pool of each other kind."""
KINDS = (*PERSON, *FAKER_METHODS)
LOCALE = re.compile(r"[a-z]{2,3}(_[A-Z]{2})?")
DEFAULT_LOCALE = "en_US"

DRAWS = 1500
"""Draws from Faker per pool. More make copies more varied and the first rows slower: about a tenth of a second per pool
at 1500. First names and last names are combined, which makes hundreds of thousands of people.
"""
PHONE_DIGITS, IBAN_DIGITS = 7, 9
"""Last digits of a number that are made of the row's number. What stands before them (an area, a bank) is Faker's."""
FORMS = 64
"""Areas or banks that numbers of one column are spread over. Each is filled at once, so that more take longer."""
DOMAINS = ("example.com", "example.org", "example.net")
"""Reserved for examples (RFC 2606): nobody gets mail there."""


def require_faker(wanted: Iterable[tuple[str, str, str]]) -> None:
    """Refuse kinds that cannot be made here: Faker is missing, or does not know the locale.

    ``wanted`` has the name of each column, its kind and its locale.
    """
    for where, kind, locale in wanted:
        try:
            from faker.config import AVAILABLE_LOCALES
        except ImportError:
            raise UsageError(
                f'placeholder = "{kind}" of {where} needs Faker: install it with pip install "dpweave[fake]", or drop'
                " the placeholder from the plan"
            ) from None
        if locale not in AVAILABLE_LOCALES:
            raise UsageError(f"Faker knows no locale {locale!r}, which {where} asks for; de_DE and en_GB are examples")


def fake_texts(
    kind: str,
    numbers: IntArray,
    *,
    locale: str,
    pool: int,
    order: int,
    length: int | None = None,
    unique: bool = False,
) -> pa.Array | None:
    """Return one text per row number, or None where no text of this kind fits into ``length``.

    ``pool`` is the seed of the pool, ``order`` that of the order in which rows take from it: the same for columns that
    are to speak of the same person. With ``unique``, different numbers give different texts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from dpweave.schema.placeholders import short_form

    if kind in PERSON:
        texts = _people(kind, numbers, locale=locale, pool=pool, order=order, unique=unique)
    else:
        stems = _fitting(_pool(kind, locale, pool), length, strict=unique)
        if not stems:
            return None
        make = _numbers if kind in ("phone", "iban") else _stems
        texts = make(kind, stems, numbers, order=order, unique=unique)
    if length is None:
        return texts
    is_long = pc.greater(pc.utf8_length(texts), length)
    if not unique:
        return pc.utf8_rtrim_whitespace(pc.utf8_slice_codeunits(texts, 0, length))
    brief = [short_form(int(n) + 1, length) for n in numbers[is_long.to_numpy(zero_copy_only=False)]]
    return pc.replace_with_mask(texts, is_long, pa.array(brief, pa.string()))


def _fitting(stems: Sequence[str], length: int | None, *, strict: bool) -> Sequence[str]:
    """Return the texts that fit; with ``strict``, without those that look like the short form of a number."""
    from dpweave.schema.placeholders import DIGITS

    if length is None:
        return stems
    return [s for s in stems if len(s) <= length and (not strict or s.strip(DIGITS))]


def _people(kind: str, numbers: IntArray, *, locale: str, pool: int, order: int, unique: bool) -> pa.Array:
    """Return what a kind says of the person of each row.

    First names have no spaces, and the ASCII forms of names are different letters alone. So a text tells which person
    it was made of, and a number behind it tells apart those for whom there are no names left.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    firsts, lasts, last_first, between = _names(locale, pool)
    size = _prime(len(firsts) * len(lasts))
    place, turn = _scattered(numbers, size, order)
    first, last = np.divmod(place, len(lasts))
    if kind in ("first_name", "last_name"):
        mine, others, many = (first, last, len(lasts)) if kind == "first_name" else (last, first, len(firsts))
        texts = pa.array(firsts if kind == "first_name" else lasts).take(pa.array(mine))
        return _marked(texts, turn * many + others, " ({})") if unique else texts
    if kind == "name":
        parts = [pa.array(firsts).take(pa.array(first)), pa.array(lasts).take(pa.array(last))]
        texts = pc.binary_join_element_wise(*(parts[::-1] if last_first else parts), (between or " " * unique))
        return _marked(texts, turn, " {}") if unique else texts
    ascii_first, ascii_last = ([_ascii(n) for n in names] for names in (firsts, lasts))
    texts = pc.binary_join_element_wise(
        pa.array(ascii_first).take(pa.array(first)), pa.array(ascii_last).take(pa.array(last)), "."
    )
    texts = _marked(texts, turn, "{}") if unique else texts
    if kind == "username":
        return texts
    return pc.binary_join_element_wise(texts, pa.array(DOMAINS).take(pa.array(place % len(DOMAINS))), "@")


def _stems(_kind: str, stems: Sequence[str], numbers: IntArray, *, order: int, unique: bool) -> pa.Array:
    import pyarrow as pa

    place, turn = _scattered(numbers, _prime(len(stems)), order)
    texts = pa.array(stems).take(pa.array(place))
    return _marked(texts, turn, " ({})") if unique else texts


def _numbers(kind: str, stems: Sequence[str], numbers: IntArray, *, order: int, unique: bool) -> pa.Array:
    """Return numbers of the forms of a pool, whose last digits are made of the row's number."""
    import pyarrow as pa

    width = PHONE_DIGITS if kind == "phone" else IBAN_DIGITS
    place, turn = _scattered(numbers, _prime(10**width), order)
    forms = stems[:FORMS]
    digits = place[:, None] // 10 ** np.arange(width - 1, -1, -1) % 10
    chosen = (_mixed(numbers, order) % np.uint64(len(forms))).astype(np.int64)
    made = np.empty(len(numbers), dtype=object)
    for i, form in enumerate(forms):
        made[chosen == i] = _filled(form, digits[chosen == i], checked=kind == "iban")
    texts = pa.array(made, pa.string())
    return _marked(texts, turn, " x{}") if unique else texts


def _filled(form: str, digits: IntArray, *, checked: bool) -> list[str]:
    """Put digits, one row each, in the place of the last ones of a number; ``checked`` gives an IBAN its check digits.

    >>> _filled("+49 30 1234567", np.array([[0, 8, 1, 5]]), checked=False)
    ['+49 30 1230815']
    >>> _filled("DE00210501700012300000", np.array([[4, 5, 6, 7, 8]]), checked=True)
    ['DE68210501700012345678']
    """
    places = [i for i, c in enumerate(form) if c.isdecimal()][-digits.shape[1] :]
    text = np.empty((len(digits), len(form)), dtype="<U1")
    text[:] = list(form)
    text[:, places] = digits.astype("<U1")
    if checked:  # ISO 13616: letters count from 10, the country and 00 stand last, and the rest of 97 decides
        moved = [*range(4, len(form)), 0, 1]
        value, power = np.zeros(len(digits), dtype=np.int64), 100
        for i in reversed(moved):
            free = i in places
            value += (digits[:, places.index(i)] if free else int(form[i], 36)) * power
            power = power * (10 if free or form[i].isdecimal() else 100) % 97
        text[:, [2, 3]] = np.stack(np.divmod(98 - value % 97, 10), axis=1).astype("<U1")
    return list(text.view(f"<U{len(form)}")[:, 0].tolist()) if len(digits) else []


def _marked(texts: pa.Array, turn: IntArray, form: str) -> pa.Array:
    """Put a number behind texts that were taken before: 2 at their second turn."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not turn.any():
        return texts
    before, after = form.split("{}")
    number = pa.array(turn + 1, pa.int64()).cast(pa.string())
    return pc.if_else(pa.array(turn > 0), pc.binary_join_element_wise(texts, before, number, after, ""), texts)


def _scattered(numbers: IntArray, size: int, seed: int) -> tuple[IntArray, IntArray]:
    r"""Return a place below ``size`` for each number, and how often all places were taken before.

    ``size`` is a prime, so within one turn :math:`q \mapsto a q + b` takes every place once.
    """
    turn, at = np.divmod(np.asarray(numbers, np.int64), size)
    step = 1 + (_mixed(turn, seed) % np.uint64(max(size - 1, 1))).astype(np.int64)
    start = (_mixed(turn, seed + 1) % np.uint64(size)).astype(np.int64)
    return (step * at + start) % size, turn


def _mixed(numbers: IntArray, seed: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Scramble numbers, the same for the same seed (SplitMix64)."""
    x = np.asarray(numbers).astype(np.uint64) + np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(x ^ (x >> np.uint64(31)))


@lru_cache(maxsize=256)
def _prime(most: int) -> int:
    """Return the largest prime up to ``most``; 1 below 2.

    >>> [_prime(n) for n in (1, 2, 10, 10**7)]
    [1, 2, 7, 9999991]
    """
    return next((n for n in range(most, 1, -1) if all(n % d for d in range(2, int(n**0.5) + 1))), 1)


# -- pools -------------------------------------------------------------------------------------------------------------


def _faker(locale: str, seed: int) -> Any:
    from faker import Faker

    fake = Faker(locale, use_weighting=False)
    fake.seed_instance(seed)
    return fake


@lru_cache(maxsize=128)
def _pool(kind: str, locale: str, seed: int) -> tuple[str, ...]:
    """Return different texts of a kind, in the order in which they were drawn."""
    draw = getattr(_faker(locale, seed), FAKER_METHODS[kind])
    drawn = dict.fromkeys(" ".join(str(draw()).replace("\n", ", ").split()) for _ in range(DRAWS))
    if kind == "phone":  # extensions would stand where the row's number goes
        return tuple(t for t in drawn if sum(c.isdecimal() for c in t) > PHONE_DIGITS and not re.search("[a-z]", t))
    return tuple(t for t in drawn if t and not t.endswith(")"))


@lru_cache(maxsize=32)
def _names(locale: str, seed: int) -> tuple[tuple[str, ...], tuple[str, ...], bool, str]:
    """Return first names, last names, whether the last name comes first, and what stands between them."""
    fake = _faker(locale, seed)
    firsts = _different(fake.first_name() for _ in range(DRAWS))
    lasts = _different((fake.last_name() for _ in range(DRAWS)), spaces=True)
    orders: Counter[tuple[bool, str]] = Counter()
    for whole in (fake.name() for _ in range(50)):
        for last_first, (heads, tails) in enumerate(((firsts, lasts), (lasts, firsts))):
            for head in (h for h in heads if whole.startswith(h)):
                rest = whole.removeprefix(head)
                if rest.strip() in tails:
                    orders[bool(last_first), " " if rest[:1].isspace() else ""] += 1
    (last_first, between), _ = orders.most_common(1)[0] if orders else ((False, " "), 0)
    return firsts, lasts, last_first, between


def _different(names: Iterable[str], *, spaces: bool = False) -> tuple[str, ...]:
    """Return the names whose ASCII forms are there and differ; those with spaces only where they are wanted."""
    found: dict[str, str] = {}
    for name in names:
        if spaces or " " not in name:
            found.setdefault(_ascii(name), name)
    found.pop("", None)
    return tuple(found.values())


def _ascii(name: str) -> str:
    """Return the letters of a name as an address may have them."""
    from faker.decode import unidecode

    return re.sub(r"[^a-z]", "", unidecode(name).lower())
