"""What the two verbs cost each protected table, what they return, and what the certificate says of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dpweave.errors import UsageError
from dpweave.privacy.accounting import Budget, Cost, epsilon_of_rho, rho_of_epsilon, subtract
from dpweave.privacy.certificate import Certificate, statement
from dpweave.privacy.curator import Curator
from dpweave.privacy.ledger import Ledger
from dpweave.privacy.noise import InsecureNoise, NoiseSource
from dpweave.privacy.release import Answer, Question, certify, guarantees
from dpweave.privacy.unit_sums import LENGTH
from dpweave.privacy.window import Candidate, UnitSum
from dpweave.schema.codec import Codec
from dpweave.schema.database import Column, Type
from dpweave.schema.domain import Attribute, Categories, View
from tests.engine_counts import open_frames
from tests.oracle import make_promise

TABLES = {"users": (("x",), {}), "movies": (("x",), {}), "ratings": (("x",), {"user": "users", "movie": "movies"})}
CODEC = Codec(Column("x", Type("integer"), nullable=False), Categories((0, 1)))
LINKED = View("ratings", (("u", Attribute("x", ("user",))), ("m", Attribute("x", ("movie",)))), (("user",), ("movie",)))
ROWS: dict[str, Any] = {
    "users": {i: {"x": i % 2} for i in range(20)},
    "movies": {i: {"x": i % 2} for i in range(10)},
    "ratings": {i: {"user": i % 20, "movie": i % 10, "x": 0} for i in range(40)},
}


def _curator(
    neighbours: str = "entity", *, d: int = 4, e: int = 3, rho: float = 1e9, seed: int | None = None
) -> Curator:
    bounds = {("ratings", "user"): d, ("ratings", "movie"): e}
    promise = make_promise(
        TABLES, protect=("users", "movies"), owning={"ratings": "user"}, bounds=bounds, neighbours=neighbours
    )
    ledger = Ledger.open(None, database="films", limit=Budget(rho, 0.5), tables=promise.protected)
    noise = None if seed is None else InsecureNoise(seed)
    curator = Curator(open_frames(ROWS, promise), promise, ledger=ledger, noise=noise, salt="s")
    for table in TABLES:
        curator.set_codec(table, "x", CODEC)
    return curator


class Overheard(NoiseSource):
    """Noise that remembers at which scales it was drawn, one for each cell or each choice."""

    insecure = True

    def __init__(self) -> None:
        self._noise = InsecureNoise(1)
        self.sigmas: list[float] = []
        self.scales: list[float] = []

    def discrete_gaussian(self, counts: Any, *, sigma: float) -> Any:
        self.sigmas.append(sigma)
        return self._noise.discrete_gaussian(counts, sigma=sigma)

    def noisy_max(self, scores: Any, *, scale: float) -> int:
        self.scales.append(scale)
        return self._noise.noisy_max(scores, scale=scale)


def _overheard(neighbours: str = "entity", **bounds: int) -> tuple[Curator, Overheard]:
    curator = _curator(neighbours, **bounds)
    curator._noise = noise = Overheard()
    return curator, noise


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_one_of_several_choices_is_paid_for(count):
    """What ``count`` draws at the scale they were drawn at cost, by PRIVACY §5, against what was charged."""
    curator, noise = _overheard()
    candidates = [Candidate(("u", "m"), np.full((2, 2), 10.0 * i), weight=w) for i, w in enumerate([1, 2, 1, 1])]
    chosen = curator.select(LINKED, candidates, what="pick", rho=0.08, count=count)
    assert len(set(chosen)) == len(noise.scales) == count
    # A user moves the marginal by L1 8, a movie by 3, and a score by twice that.
    for table, moved in (("users", 16), ("movies", 6)):
        cost = sum((2 * moved / scale) ** 2 / 8 for scale in noise.scales)
        assert curator.spent.rho[table] == pytest.approx(cost, rel=1e-9)
    assert curator.spent.rho["users"] == 0.08


def test_every_clique_and_every_unit_sum_is_paid_for():
    curator, noise = _overheard()
    curator.measure(LINKED, [("u", "m"), ("u",), ("m",), ()], what="links", rho=0.3, weights=[5, 1, 1, 2])
    for table, square in (("users", 4**2 + 4**2), ("movies", 3**2)):  # 4 go and 4 others come; 3 are lost
        cost = sum(square / (2 * sigma**2) for sigma in noise.sigmas)
        assert curator.spent.rho[table] == pytest.approx(cost, rel=1e-9)
    assert curator.spent.rho["users"] == pytest.approx(0.3, rel=1e-9)
    curator, noise = _overheard()
    unit_sums = [UnitSum(("x",), ((),), (1.0,), 2.0), UnitSum((), ((("x", 0),), ()), (3.0, 1.0), 0.7)]
    noisy = curator.measure_unit_sums(View.of_table("ratings", ("x",)), unit_sums, what="bags", rho=0.3, weights=[1, 2])
    # In units of the grid, one unit of users moves a unit sum by its clip at most.
    cost = sum((b.unit_sum.clip / b.sigma) ** 2 / 2 for b in noisy)
    assert dict(curator.spent.rho) == {"users": pytest.approx(cost, rel=1e-5)}
    assert curator.spent.rho["users"] == 0.3
    assert [s / LENGTH * b.unit_sum.clip for s, b in zip(noise.sigmas, noisy, strict=True)] == [b.sigma for b in noisy]


def _passing(threshold: int, sigma: float, rows: int) -> float:
    """Most probably any of ``rows`` categories, with as many rows each, passes: a union
    bound over discrete Gaussian tails.
    """
    terms = np.exp(-(np.arange(-400.0, 400.0) ** 2) / (2 * sigma**2))
    return float(rows * terms[int(400 + threshold - rows) :].sum() / terms.sum())


def test_a_threshold_is_paid_for_by_delta_for_rows_that_come_back():
    """An order that goes frees a place with its shop and one with its clerk, and two others count again."""
    tables = {n: ((), {}) for n in ("users", "shops", "clerks")}
    keys = {"user": "users", "shop": "shops", "clerk": "clerks"}
    promise = make_promise(
        {**tables, "orders": (("x",), keys)},
        protect=("users", "shops", "clerks"),
        owning={"orders": "user"},
        bounds={("orders", k): 1 for k in keys},
        shared=frozenset({("orders", "shop"), ("orders", "clerk")}),
    )
    ledger = Ledger.open(None, database="shop", limit=Budget(1.0, 0.5), tables=promise.protected)
    rows: Any = {"users": {}, "shops": {}, "clerks": {}, "orders": {}}
    curator = Curator(open_frames(rows, promise), promise, ledger=ledger)
    curator.discover("orders", "x", what="words", rho=0.5, delta=1e-6)
    (found,) = curator.release.discovered
    assert curator.spent.rho["users"] == pytest.approx((1 + 4) / (2 * found.sigma**2), rel=1e-9) == 0.5
    assert _passing(found.threshold, found.sigma, 2) <= 1e-6 < _passing(found.threshold - 1, found.sigma, 2)
    assert set(curator.spent.delta.values()) == {1e-6}


@pytest.mark.parametrize(("neighbours", "d"), [("entity", 1), ("record", 1), ("record", 4)])
def test_a_threshold_is_paid_for_by_delta_for_all_rows_of_a_unit(neighbours, d):
    """A unit may bring d categories of its own, or one that d rows have; δ covers the
    worst of all that lies between. (Where units are counted: ``test_categories.py``.)
    """
    curator, noise = _overheard(neighbours, d=d, e=1)
    curator.discover("ratings", "x", what="words", rho=0.5, delta=1e-6)
    (found,) = curator.release.discovered
    assert noise.sigmas == [found.sigma]
    terms = np.exp(-(np.arange(-400.0, 400.0) ** 2) / (2 * found.sigma**2))
    for categories in range(1, d + 1):
        rows = d - categories + 1  # in one category, if each of the others has one
        passes = terms[int(400 + found.threshold - rows) :].sum() / terms.sum()
        assert categories * passes <= curator.spent.delta["users"] == 1e-6
    # The bound that is proved takes d categories of d rows each, and is met as nearly as whole numbers allow.
    assert _passing(found.threshold, found.sigma, d) <= 1e-6 < _passing(found.threshold - 1, found.sigma, d)
    cost = (1 if neighbours == "entity" else 2) * d**2 / (2 * found.sigma**2)
    assert curator.spent.rho["users"] == pytest.approx(cost, rel=1e-9) == 0.5


def test_measure_charges_each_table_for_what_its_units_move():
    curator = _curator()
    (noisy,) = curator.measure(LINKED, [("u", "m")], what="links", rho=0.5)
    # A user moves (4, 4): L2 4 sqrt 2; a movie (3, 0): L2 3.
    sigma = 4 * math.sqrt(2) / math.sqrt(2 * 0.5)
    assert noisy.sigma == pytest.approx(sigma, rel=1e-12)
    assert noisy.sigma >= sigma * (1 - 1e-15)
    assert curator.spent.rho["users"] == 0.5
    assert curator.spent.rho["movies"] == pytest.approx(9 / (2 * sigma**2), rel=1e-12)
    curator.measure(View.of_table("movies", ("x",)), [("x",), ()], what="movies", rho=0.2)
    assert curator.spent.rho["users"] == 0.5
    assert curator.spent.rho["movies"] == pytest.approx(9 / (2 * sigma**2) + 0.2, rel=1e-12)


def test_weights_split_what_cliques_get():
    curator = _curator()
    first, second = curator.measure(View.of_table("users", ("x",)), [("x",), ()], what="users", rho=0.4, weights=[3, 1])
    assert first.sigma == pytest.approx(1 / math.sqrt(2 * 0.3))
    assert second.sigma == pytest.approx(1 / math.sqrt(2 * 0.1))
    assert curator.spent.rho["users"] == pytest.approx(0.4)


def test_select_charges_each_table_and_scales_by_l1():
    curator = _curator()
    near, far = np.zeros((2, 2)), np.full((2, 2), 1e6)
    chosen = curator.select(LINKED, [Candidate(("u", "m"), near), Candidate(("u", "m"), far)], what="pick", rho=0.08)
    assert chosen == (1,)
    assert curator.spent.rho["users"] == 0.08
    # Users move L1 8, movies L1 3, so movies pay (3/8)^2 of it.
    assert curator.spent.rho["movies"] == pytest.approx(0.08 * 9 / 64, rel=1e-9)
    assert curator.release.selected[0].chosen == (1,)


def test_discover_charges_rho_and_delta():
    curator = _curator()
    found = curator.discover("ratings", "x", what="words", rho=5.0, delta=1e-6)
    assert set(found) == {"0"}
    assert curator.spent.rho == {"users": 5.0}  # movies do not own ratings, so they move no value of theirs
    assert curator.spent.delta == {"users": 1e-6}


def test_windows_pass_everything_on():
    curator = _curator(seed=5)
    window = curator.window(LINKED, name="links")
    assert (window.name, dict(window.shape)) == ("links", {"u": 2, "m": 2})
    assert window.l1(("u", "m")) == 8.0
    assert window.l2(("u", "m")) == pytest.approx(4 * math.sqrt(2))
    (noisy,) = window.measure([("u", "m")], rho=1e8)
    assert noisy.counts.tolist() == [[15, 0], [0, 15]]  # 40 ratings, of which each of 10 movies keeps 3
    assert window.select(
        [Candidate(("u", "m"), noisy.counts + 0.0), Candidate(("u", "m"), np.zeros((2, 2)))], rho=1e8
    ) == (1,)
    assert curator.release.find("links") == (noisy,)
    assert curator.insecure


def test_categories_are_counted_over_bounded_rows():
    """Each of 20 users has 2 ratings and keeps 1, whatever is counted of them."""
    curator = _curator(d=1, seed=1)
    assert curator.discover("ratings", "x", what="words", rho=1e6, delta=1e-6) == {"0": 20}


def test_a_certificate_says_what_was_spent_by_whom_and_on_whose_word():
    """The worst protected table's ε and ρ, and everything that weakens the promise."""
    curator = _curator()
    curator.measure(LINKED, [("u", "m")], what="links", rho=0.5)
    curator.discover("ratings", "x", what="words", rho=0.1, delta=4e-7)
    made = {"table": "films", "units": ["movies"]}
    for insecure, external in ((False, []), (True, [made])):
        got = certify(curator.promise, curator._ledger, delta=1e-6, insecure=insecure, external=external)
        spent = {g.table: g for g in got.tables}
        assert [spent[t].rho for t in ("users", "movies")] == pytest.approx([0.6, 0.5 * 9 / 32], rel=1e-9)
        assert got.rho == spent["users"].rho
        assert got.epsilon == spent["users"].epsilon == epsilon_of_rho(got.rho, delta=subtract(1e-6, 4e-7))
        assert got.insecure == insecure == str(got).startswith("INSECURE")
        caveats = [c for c in got.caveats if "films was made elsewhere" in c and "not checked" in c]
        assert len(caveats) == len(external)
        assert [e["what"] for e in got.events] == ["links", "words"]
        assert got.statement == statement(curator.promise)


def test_empty_cells_get_noise_too():
    """Which cells are empty is as private as how many rows the others have."""
    curator = _curator()
    (noisy,) = curator.measure(LINKED, [("u", "m")], what="links", rho=1e-9)
    assert noisy.counts[0, 1] != 0 or noisy.counts[1, 0] != 0  # both are, with a probability below 1e-9 at this scale
    assert noisy.sigma > 1e5
    unit_sum = UnitSum(("x",), ((),), (1.0,), 1.0)
    (sums,) = curator.measure_unit_sums(View.of_table("ratings", ("x",)), [unit_sum], what="bags", rho=1e-9)
    assert sums.counts[1, 0] != 0  # nobody gives 1; in units of the grid noise is far wider still


def test_release_holds_everything_that_was_returned():
    curator = _curator()
    first = curator.measure(LINKED, [("u",), ("m",)], what="one", rho=0.1)
    second = curator.measure(View.of_table("users", ()), [()], what="two", rho=0.1)
    assert curator.release.find("one") == first
    assert curator.release.find("two") == second
    assert [m.domains for m in curator.release.measured] == [(CODEC.domain,), (CODEC.domain,), ()]


def test_the_paper_s_setting_costs_less_than_its_sum():
    """Two protected tables at eps 1 each and eps_rel 2: the paper adds up to 4; zCDP
    per table needs less (PRIVACY §5).
    """
    delta = 1e-5
    rho_table, rho_links = rho_of_epsilon(1.0, delta=delta), rho_of_epsilon(2.0, delta=delta)
    curator = _curator("record", d=4, e=4, rho=rho_table + rho_links)
    curator.measure(View.of_table("users", ("x",)), [("x",)], what="users", rho=rho_table)
    curator.measure(View.of_table("movies", ("x",)), [("x",)], what="movies", rho=rho_table)
    curator.measure(LINKED, [("u", "m")], what="links", rho=rho_links)
    columns = guarantees(curator.spent, ("users", "movies"), delta=delta)
    paper = 1.0 + 1.0 + 2.0
    derived = epsilon_of_rho(rho_table + rho_links, delta=delta)
    assert [g.epsilon for g in columns] == pytest.approx([derived, derived])
    assert max(g.epsilon for g in columns) < paper
    assert derived == pytest.approx(2.27, abs=0.05)
    # Even the paper's way of adding, but with the right composition, comes out below its sum.
    assert derived < epsilon_of_rho(2 * rho_table + rho_links, delta=delta) < paper


def test_a_certificate_survives_json():
    columns = guarantees(_curator().spent, ("users", "movies"), delta=1e-6)
    made = Certificate(
        epsilon=1.0,
        delta=1e-6,
        rho=0.1,
        tables=columns,
        neighbours="entity",
        statement="so be it",
        bounds=(("ratings", "user", 4),),
        owned_rows={"users": {"ratings": 4}},
        events=({"n": 1, "what": "x"},),
        versions={"python": "3"},
        database="films",
        run="r",
        insecure=True,
    )
    assert Certificate.from_json(made.to_json()) == made
    assert str(made).startswith("INSECURE")


def test_targets_are_counted_one_by_one_only_where_they_are_public():
    curator = _curator()
    with pytest.raises(UsageError, match=r"ratings\.movie leads to private rows"):
        curator.set_targets("ratings", "movie")
    with pytest.raises(UsageError, match="set_targets declares them"):
        curator.set_codec("ratings", "@movie", CODEC)


def test_codes_of_targets_are_their_keys_and_what_was_not_there_is_left_out():
    promise = make_promise(
        TABLES, protect=("users",), public=("movies",), owning={"ratings": "user"}, bounds={("ratings", "user"): 4}
    )
    ledger = Ledger.open(None, database="films", limit=Budget(1e9, 0.5), tables=promise.protected)
    curator = Curator(open_frames(ROWS, promise), promise, ledger=ledger, salt="s")
    keys = curator.set_targets("ratings", "movie")
    assert sorted(keys) == list(range(10))
    view = View("ratings", (("which", Attribute("@movie")),))
    (noisy,) = curator.window(view, name="which").measure([("which",)], rho=1e6)
    assert dict(zip(keys, noisy.counts.tolist(), strict=True)) == dict.fromkeys(range(10), 2)  # each user once for each
    # A list that has become too short, as of a table that grew, leaves rows out and never fails.
    codec = curator._counts.codec(view, "which")
    curator._counts.set_codec("ratings", "@movie", Codec(codec.column, Categories(keys[:3])))
    (few,) = curator.measure(view, [("which",)], what="which", rho=1e6)
    assert few.counts.tolist() == [2, 2, 2]


def test_guarantees_take_spent_deltas_off_first():
    from dpweave.privacy.accounting import Cost

    (column,) = guarantees(Cost({"t": 0.1}, {"t": 4e-6}), ("t",), delta=1e-5)
    assert column.epsilon >= epsilon_of_rho(0.1, delta=6e-6)
    (nothing_left,) = guarantees(Cost({"t": 0.1}, {"t": 1e-5}), ("t",), delta=1e-5)
    assert nothing_left.epsilon == math.inf


def test_sizes_and_counts_of_an_empty_database():
    promise = make_promise(
        TABLES,
        protect=("users", "movies"),
        owning={"ratings": "user"},
        bounds={("ratings", "user"): 1, ("ratings", "movie"): 1},
    )
    ledger = Ledger.open(None, database="films", limit=Budget(1e12, 0.1), tables=promise.protected)
    for embedded in (True, False):
        source = open_frames({"users": {}, "movies": {}, "ratings": {}}, promise)
        source.embedded = embedded
        curator = Curator(source, promise, ledger=ledger)
        curator.check()
        for table in TABLES:
            curator.set_codec(table, "x", CODEC)
        got = curator.measure(LINKED, [(), ("u",), ("u", "m")], what="w", rho=1e9)
        assert [m.counts.tolist() for m in got] == [0, [0, 0], [[0, 0], [0, 0]]]
        assert curator.discover("ratings", "x", what="d", rho=1.0, delta=1e-9) == {}


class Remembered:
    """Answers in memory, and when they were kept."""

    def __init__(self, curator: Curator) -> None:
        self.known: list[Answer] = []
        self.kept: list[tuple[str, Answer, int]] = []
        self._curator = curator

    def recall(self, question: Question) -> Answer | None:
        return self.known.pop(0) if self.known else None

    def keep(self, question: Question, answer: Answer) -> None:
        self.kept.append((question.what["verb"], answer, len(self._curator._ledger.entries)))


def test_answers_are_kept_after_their_charge_and_given_again_for_nothing():
    view = View.of_table("users", ("x",))
    unit_sum = UnitSum(("x",), ((("x", 1),), ()), (1.0, 1.0), 2.0)

    def ask(curator: Curator) -> list[object]:
        (counts,) = curator.measure(view, [("x",)], what="a", rho=1.0)
        (sums,) = curator.measure_unit_sums(View.of_table("ratings", ("x",)), [unit_sum], what="b", rho=1.0)
        chosen = curator.select(view, [Candidate(("x",), np.full(2, n)) for n in (0.0, 9.0)], what="c", rho=1.0)
        found = curator.discover("users", "x", what="d", rho=1.0, delta=0.1)
        return [counts.counts.tolist(), sums.counts.tolist(), chosen, found]

    first = _curator(seed=1)
    kept = first._kept = Remembered(first)
    said = ask(first)
    assert [(verb, lines) for verb, _, lines in kept.kept] == [
        ("measure", 2),
        ("measure", 3),
        ("select", 4),
        ("discover", 5),
    ]
    again = _curator(rho=0.0)  # which can pay for nothing
    memory = again._kept = Remembered(again)
    memory.known = [answer for _, answer, _ in kept.kept]
    assert ask(again) == said
    assert not memory.kept
    assert again.spent == Cost.zero()
    assert repr(again.release.measured[0].marginal) == repr(first.release.measured[0].marginal)
