"""Release against copy: figures known beforehand, evidence that is calibrated and has power."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from dpweave.measure.estimates import Estimate, combined, estimates
from dpweave.model.file_format import release_to_dict
from dpweave.privacy.release import Measured, Release
from dpweave.privacy.window import NoisyMarginal, NoisyUnitSum, UnitSum
from dpweave.report.fidelity import _title, fidelity
from dpweave.report.noisy_estimates import Distribution, excess, margins
from dpweave.report.svg_figures import agreement
from dpweave.schema.domain import Attribute, Bins, View
from tests.report.worlds import model, shop, shop_plan

AB = ("a", "b")


def test_without_noise_the_measurement_is_the_count() -> None:
    tables = shop(0)
    made = model(tables, sigma=0.0)
    found = fidelity(made, tables)  # type: ignore[arg-type]
    country = next(c for t in found.tables if t.name == "customers" for c in t.columns if c.name == "country")
    names = tables["customers"]["country"].to_pylist()
    expected = [sum(n == v for n in names) for v in ("DE", "FR", "IT")] + [names.count("PL")]
    assert country.synthetic.tolist() == expected
    assert country.measured is not None
    assert country.measured.counts.tolist() == pytest.approx(expected)
    assert country.labels == ("DE", "FR", "IT", "(other)")
    for table in found.tables:
        for c in table.columns:
            assert (c.measured is None) == (table.role == "public")
            if c.measured is not None:
                assert c.agreeing == len(c.labels)
                assert c.synthetic_shares == pytest.approx(c.measured_shares)
    for relation in found.relations:
        for pair in relation.pairs:
            assert pair.measured.counts == pytest.approx(pair.synthetic)
            if pair.stands_out:
                assert pair.kept == pytest.approx(1.0, abs=1e-6)


def test_pairs_across_a_key_by_loops() -> None:
    tables = shop(1)
    found = fidelity(model(tables, sigma=0.0), tables)  # type: ignore[arg-type]
    relation = next(r for r in found.relations if (r.table, r.key) == ("orders", "product"))
    pair = next(p for p in relation.pairs if (p.left, p.right) == ("orders.channel", "products.kind"))
    kinds = {(p["sku"], p["shelf"]): p["kind"] for p in tables["products"].to_pylist()}
    expected = np.zeros((2, 2))
    for o in tables["orders"].to_pylist():
        if o["sku"] is not None:
            expected[("app", "web").index(o["channel"]), ("book", "toy").index(kinds[o["sku"], o["shelf"]])] += 1
    assert np.array_equal(pair.synthetic, expected)
    assert relation.verdict == "learned"
    shares = expected / expected.sum()
    by_hand = [[shares[i, j] - shares[i].sum() * shares[:, j].sum() for j in range(2)] for i in range(2)]
    assert excess(expected, margins(expected)) / expected.sum() == pytest.approx(np.array(by_hand))


def test_degrees_by_loops() -> None:
    tables = shop(2)
    found = fidelity(model(tables, sigma=0.0), tables)  # type: ignore[arg-type]
    relation = next(r for r in found.relations if (r.table, r.key) == ("staff", "boss"))
    bosses = tables["staff"]["boss"].to_pylist()
    degrees = [bosses.count(i) for i in tables["staff"]["id"].to_pylist()]
    zero, one = relation.degrees.labels.index("0"), relation.degrees.labels.index("1")
    assert relation.degrees.synthetic[zero] == degrees.count(0)
    assert relation.degrees.synthetic[one] == degrees.count(1)
    assert relation.degrees.synthetic.sum() == len(degrees)
    assert relation.linked == pytest.approx(sum(b is not None for b in bosses) / len(bosses))


def test_a_pure_junction_shows_its_pairs_once() -> None:
    tables = shop(2)
    found = fidelity(model(tables, sigma=0.0), tables)  # type: ignore[arg-type]
    first, second = (r for r in found.relations if r.table == "friends")
    assert (first.shown_at, second.shown_at) == ("b", None)
    assert first.kind == second.kind == "many-to-many"
    assert not first.pairs
    assert second.pairs


def test_measurements_in_other_codes_or_over_links_alone_are_left_out() -> None:
    tables = shop(0)
    made = model(tables, sigma=0.0)
    plain = fidelity(made, tables).tables[0].columns  # type: ignore[arg-type]
    table = View.of_table("customers", ("age",))
    junk = NoisyMarginal(("age",), np.full(4, 10_000), 0.001)
    made.release.measured += [
        Measured("domains:customers.age", table, (Bins((0, 1, 2, 3)),), junk),  # four codes, too, but others
        Measured(
            "links:x", replace(table, linked=(("x",),)), (made.plan.table["customers"].column["age"].domain,), junk
        ),  # type: ignore[arg-type]
        Measured(
            "links:y",
            View("orders", (("age", Attribute("age", ("customer",))),)),
            (made.plan.table["customers"].column["age"].domain,),
            junk,
        ),  # type: ignore[arg-type]
    ]
    again = fidelity(made, tables).tables[0].columns  # type: ignore[arg-type]
    assert again[1].name == "age"
    assert plain[1].measured is not None
    assert again[1].measured is not None
    assert np.array_equal(again[1].measured.counts, plain[1].measured.counts)


def test_a_release_that_was_saved_and_loaded_shows_the_same() -> None:
    tables = shop(0)
    made = model(tables, sigma=3.0)
    described = [tuple(d["domains"]) for d in release_to_dict(made.release)["measured"]]
    loaded = Release([replace(m, domains=d) for m, d in zip(made.release.measured, described, strict=True)])
    a, b = fidelity(made, tables), fidelity(replace(made, release=loaded), tables)  # type: ignore[arg-type]
    for x, y in zip(a.tables, b.tables, strict=True):
        for c, d in zip(x.columns, y.columns, strict=True):
            assert (c.measured is None) == (d.measured is None)
            if c.measured is not None and d.measured is not None:
                assert np.array_equal(c.measured.counts, d.measured.counts)
                assert c.measured.sigma == d.measured.sigma


@pytest.mark.parametrize(("off", "low", "high"), [(1.0, 0.935, 0.97), (2 / 3, 0.7, 0.9), (3 / 2, 0.98, 1.0)])
def test_values_agree_nineteen_times_in_twenty_if_chance_alone_differs(off: float, low: float, high: float) -> None:
    """The copy is drawn from the original itself; an allowance of two thirds or three halves would be noticed."""
    tables = shop(0)
    agreeing = cells = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        drawn = {
            n: t if n == "products" else t.take(pa.array(rng.integers(0, t.num_rows, t.num_rows)))
            for n, t in tables.items()
        }
        made = model(tables, sigma=8.0, seed=seed)
        for m in made.release.measured:
            object.__setattr__(m.marginal, "sigma", 8.0 * off)
        for view in fidelity(made, drawn).tables:  # type: ignore[arg-type]
            for c in view.columns:
                if c.measured is not None and c.synthetic.min() > 5:
                    # The same factor for what drawing adds.
                    shown = replace(c, synthetic=np.rint(c.synthetic / off**2).astype(int))
                    agreeing, cells = agreeing + shown.agreeing, cells + len(c.labels)
    assert low < agreeing / cells < high


def test_degrees_that_do_not_occur_are_not_drawn() -> None:
    tables = shop(0)
    found = fidelity(model(tables, sigma=0.0), tables)  # type: ignore[arg-type]
    degrees = next(r for r in found.relations if (r.table, r.key) == ("orders", "customer")).degrees
    holds = np.flatnonzero(degrees.synthetic)
    assert degrees.last == holds.max() + 2 < len(degrees.labels)


def test_summing_and_combining_by_simulation() -> None:
    rng = np.random.default_rng(0)
    truth = np.array([[10.0, 20], [30, 40], [5, 15]])
    errors = []
    for _ in range(4000):
        joint = Estimate(("a", "b"), truth + rng.normal(0, 4, (3, 2)), 4.0)
        alone = Estimate(("a",), truth.sum(axis=1) + rng.normal(0, 3, 3), 3.0)
        part = joint.summed(("a",))
        both = combined([part, alone])
        assert both is not None
        errors.append(both.counts - truth.sum(axis=1))
    assert part.sigma == pytest.approx(4 * np.sqrt(2))
    assert np.std(errors) == pytest.approx(both.sigma, rel=0.03)
    assert abs(np.mean(errors)) < 0.1
    turned = joint.summed(("b", "a"))
    assert np.array_equal(turned.counts, joint.counts.T)
    assert combined([]) is None


def test_bands_are_calibrated_where_noise_is_shared_between_values() -> None:
    """As in a unit sum: the commonest value is what the others leave of the rows, so
    that it has the noise of all of them.
    """
    rng = np.random.default_rng(3)
    shape = {"colour": 5}
    codes = ((), *(((("colour", v),)) for v in range(1, 5)))
    p, q, total = np.array([0.5, 0.3, 0.2]), np.array([0.6, 0.2, 0.1, 0.06, 0.04]), 20_000.0
    truth = total * np.outer(p, q)
    exact = np.column_stack([truth.sum(axis=1), truth[:, 1:]])
    unit_sum = UnitSum(("kind",), codes, (2.0, 1.5, 1.0, 0.8, 0.5), 10.0)
    inside, far = [], []
    for _ in range(1000):
        noisy = NoisyUnitSum(unit_sum, exact + rng.normal(0, 40.0, exact.shape) * unit_sum.scales, 40.0)
        rows, found = estimates(noisy, shape, lambda _: np.array(total))
        assert (rows.columns, rows.even) == (("kind",), True)
        assert (found.columns, found.even) == (("kind", "colour"), False)
        far.append(((found.counts - truth) ** 2).mean(axis=0))
        one = found.summed(("colour",))
        column = Distribution("colour", "", tuple("abcde"), False, np.rint(total * q).astype(int), one, None)
        inside.append(np.abs(column.measured_shares - q) <= column.band)
    np.testing.assert_allclose(np.mean(far, axis=0), found.covariance.diagonal(), rtol=0.1)
    assert np.all(np.abs(np.mean(inside, axis=0) - 0.954) < 0.025)


def test_the_report_says_what_the_certificate_says() -> None:
    """Of every pair of columns and of every relation, whatever stands out or not."""
    said = 0
    for seed in range(4):
        tables = shop(seed)
        made = model(tables, sigma=15.0, seed=seed)
        planned = {f"{r.table}.{r.key}": r for r in made.plan.compile().relations}
        shown = {f"{r.table}.{r.key}": r for r in fidelity(made, tables).relations}  # type: ignore[arg-type]
        for e in made.certificate.evidence:
            relation, components = shown[e["relation"]], e["components"]
            assert ("the data support" in e["verdict"]) == (relation.verdict == "learned")
            assert any(c["stands_out"] for c in components) == (relation.verdict == "learned")
            at = planned[e["relation"]]
            titles = {n: _title(made, at, a) for n, a in (*at.left, *at.right)}  # type: ignore[arg-type]
            assert len(set(titles.values())) == len(titles)
            judged = {tuple(titles[n] for n in c["columns"]): c for c in components}
            for pair in relation.pairs:
                c = judged[pair.left, pair.right]
                assert (pair.evidence, pair.stands_out) == (c["score"], c["stands_out"])
                said += 1
    assert said > 40
    assert {r.verdict for r in shown.values()} >= {"learned", "weak"}


def test_a_certificate_of_an_earlier_version_has_scores_alone() -> None:
    tables = shop(0)
    made = model(tables, sigma=15.0)
    old = tuple(
        {**e, "components": [{k: v for k, v in c.items() if k != "stands_out"} for c in e["components"]]}
        for e in made.certificate.evidence
    )
    earlier = replace(made, certificate=replace(made.certificate, evidence=old))
    new, again = (fidelity(m, tables).relations for m in (made, earlier))  # type: ignore[arg-type]
    for a, b in zip(new, again, strict=True):
        assert [p.stands_out for p in a.pairs] == [p.stands_out for p in b.pairs]


def test_what_is_kept_is_not_inflated_by_noise() -> None:
    tables = shop(0, orders=4000)
    wired = np.random.default_rng(0).permutation(4000)
    random = {
        **tables,
        "orders": tables["orders"]
        .set_column(2, "sku", tables["orders"]["sku"].take(pa.array(wired)))
        .set_column(3, "shelf", tables["orders"]["shelf"].take(pa.array(wired))),
    }
    kept: dict[str, list[float]] = {"same": [], "random": []}
    for seed in range(8):
        made = model(tables, sigma=40.0, seed=seed)
        for name, db in (("same", tables), ("random", random)):
            found = fidelity(made, db)  # type: ignore[arg-type]
            relation = next(r for r in found.relations if (r.table, r.key) == ("orders", "product"))
            pair = next(p for p in relation.pairs if (p.left, p.right) == ("orders.channel", "products.kind"))
            kept[name].append(pair.kept)
    assert np.mean(kept["same"]) == pytest.approx(1.0, abs=0.1)
    assert np.mean(kept["random"]) == pytest.approx(0.0, abs=0.1)


def test_nothing_measured_across_is_wired_at_random() -> None:
    tables = shop(0)
    made = model(tables, sigma=1.0)
    made.release.measured = [m for m in made.release.measured if not m.what.startswith("links:")]
    assert {r.verdict for r in fidelity(made, tables).relations} == {"random"}  # type: ignore[arg-type]


def test_an_empty_copy_is_shown_all_the_same() -> None:
    tables = shop(0)
    empty = {n: t.slice(0, 0) if n != "products" else t for n, t in tables.items()}
    found = fidelity(model(tables, sigma=2.0), empty)  # type: ignore[arg-type]
    assert all(t.rows == 0 for t in found.tables if t.role != "public")
    assert all(c.passed for c in found.checks)
    assert shop_plan().database.names == tuple(t.name for t in found.tables)


@pytest.mark.parametrize("size_sigma", [5.0, 200.0, float("inf")])
def test_the_band_is_two_standard_deviations_of_a_share(size_sigma: float) -> None:
    """By simulation, whichever way the number of rows is known: well, badly, or from the cells alone."""
    rng = np.random.default_rng(0)
    truth = np.array([800.0, 150, 50])
    shares, bands = [], []
    for _ in range(6000):
        total = 1000 + rng.normal(0, size_sigma) if np.isfinite(size_sigma) else None
        d = Distribution(
            "c",
            "text",
            ("a", "b", "c"),
            False,
            np.array([8, 1, 1]),
            Estimate(("c",), truth + rng.normal(0, 20, 3), 20.0),
            total,
            size_sigma,
        )
        assert d.measured_shares is not None
        shares.append(d.measured_shares)
        bands.append(d.band)
    assert np.mean(shares, axis=0) == pytest.approx(truth / 1000, abs=0.003)
    assert 2 * np.std(shares, axis=0) == pytest.approx(np.mean(bands, axis=0), rel=0.05)


def test_agreement_is_not_claimed_where_the_noise_is_wider_than_the_shares() -> None:
    def said(sigma: float) -> str:
        noisy = Estimate(("c",), np.array([700.0, 290.0, 10.0]), sigma)
        return agreement(Distribution("c", "text", tuple("abc"), False, np.array([70, 29, 1]), noisy, 1000.0, 1.0))

    assert said(1.0) == "3 of 3 values agree with the measurement."
    assert said(20.0) == "2 of 2 values agree with the measurement. Of 1 more it is too noisy to tell."
    assert said(2000.0).startswith("Too noisy to tell")


def test_a_share_of_nothing_is_not_shown() -> None:
    d = Distribution("c", "text", ("a",), False, np.array([0]), Estimate(("c",), np.array([-5.0]), 2.0), None)
    assert d.measured_shares is None
    assert d.agreeing == 0
