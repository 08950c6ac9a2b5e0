"""A release and public tables as the entries of a model file: JSON and Arrow, never pickle."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np

from dpweave.privacy.release import Discovered, Measured, MeasuredMoments, MeasuredUnitSum, Release, Selected
from dpweave.privacy.window import NoisyMarginal, NoisyMoments, NoisyUnitSum, UnitMoments, UnitSum
from dpweave.schema.domain import Attribute, Categories, View

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from dpweave.schema.database import Database


def release_to_dict(release: Release) -> dict[str, Any]:
    """Return a release as plain values; counts of marginals are kept apart, as Arrow."""
    return {
        "measured": [
            {
                "what": m.what,
                "view": _view_to_dict(m.view),
                "columns": list(m.marginal.columns),
                "domains": [_domain_to_dict(d) for d in m.domains],
                "sigma": m.marginal.sigma,
            }
            for m in release.measured
        ],
        "bagged": [
            {
                "what": b.what,
                "view": _view_to_dict(b.view),
                "columns": list(b.noisy.unit_sum.columns),
                "codes": [[list(pair) for pair in code] for code in b.noisy.unit_sum.codes],
                "scales": list(b.noisy.unit_sum.scales),
                "centres": list(b.noisy.unit_sum.centres),
                "clip": b.noisy.unit_sum.clip,
                "sigma": b.noisy.sigma,
            }
            for b in release.summed_by_unit
        ],
        "moments": [
            {
                "what": m.what,
                "view": _view_to_dict(m.view),
                "of": m.noisy.moments.owner,
                "centres": [[name, list(shares)] for name, shares in m.noisy.moments.centres],
                "together": [list(pair) for pair in m.noisy.moments.together],
                "siblings": [list(pair) for pair in m.noisy.moments.siblings],
                "clip": m.noisy.moments.clip,
                "scale": m.noisy.moments.scale,
                "beside": [_view_to_dict(view) for view in m.noisy.moments.beside],
                "sigma": m.noisy.sigma,
            }
            for m in release.moments
        ],
        "selected": [
            {
                "what": s.what,
                "view": _view_to_dict(s.view),
                "candidates": [list(c) for c in s.candidates],
                "chosen": list(s.chosen),
                "weights": list(s.weights),
                "scale": s.scale,
            }
            for s in release.selected
        ],
        "discovered": [
            {
                "what": d.what,
                "table": d.table,
                "column": d.column,
                "counts": dict(d.counts),
                "sigma": d.sigma,
                "threshold": d.threshold,
                "by_unit": d.by_unit,
            }
            for d in release.discovered
        ],
    }


def _release_from_dict(data: dict[str, Any], arrays: Mapping[str, Any], database: Database) -> Release:
    return Release(
        measured=[
            Measured(
                m["what"],
                _view_from_dict(m["view"]),
                tuple(m["domains"]),
                NoisyMarginal(tuple(m["columns"]), arrays[f"measured/{i}"], m["sigma"]),
            )
            for i, m in enumerate(data["measured"])
        ],
        selected=[
            Selected(
                s["what"],
                _view_from_dict(s["view"]),
                tuple(tuple(c) for c in s["candidates"]),
                tuple(s["chosen"]),
                tuple(s.get("weights", ())),
                s.get("scale", 0.0),
            )
            for s in data["selected"]
        ],
        discovered=[Discovered(**d) for d in data["discovered"]],
        summed_by_unit=[_unit_sum(b, arrays[f"bagged/{i}"]) for i, b in enumerate(data.get("bagged", ()))],
        moments=[_moments(m, arrays[f"moments/{i}"], database) for i, m in enumerate(data.get("moments", ()))],
    )


def _moments(data: dict[str, Any], values: Any, database: Database) -> MeasuredMoments:
    view = _view_from_dict(data["view"])
    owner = data["of"] if "of" in data else database[view.base].key[data["owner"]].target  # a key in models of 0.3
    moments = UnitMoments(
        owner,
        tuple((name, tuple(shares)) for name, shares in data["centres"]),
        tuple((a, b) for a, b in data["together"]),
        tuple((a, b) for a, b in data["siblings"]),
        data["clip"],
        data["scale"],
        tuple(_view_from_dict(other) for other in data.get("beside", ())),
    )
    return MeasuredMoments(data["what"], view, NoisyMoments(moments, values, data["sigma"]))


def _unit_sum(data: dict[str, Any], counts: Any) -> MeasuredUnitSum:
    codes = tuple(tuple((c, int(v)) for c, v in code) for code in data["codes"])
    unit_sum = UnitSum(
        tuple(data["columns"]), codes, tuple(data["scales"]), data["clip"], tuple(data.get("centres", ()))
    )
    return MeasuredUnitSum(data["what"], _view_from_dict(data["view"]), NoisyUnitSum(unit_sum, counts, data["sigma"]))


def _domain_to_dict(domain: Any) -> Any:
    """Return a domain as plain values, for people: edges and categories as they print."""
    if isinstance(domain, dict):
        return domain
    return {"kind": type(domain).__name__.lower()} | {
        k: [str(v) for v in value] if isinstance(value, tuple) else value for k, value in vars(domain).items()
    }


def listed(domain: Any) -> tuple[Any, ...]:
    """Return the values of a list of categories, as a new release or one from a file has it; none of other domains."""
    if isinstance(domain, dict):
        return tuple(domain.get("values", ()))
    return domain.values if isinstance(domain, Categories) else ()


def _view_to_dict(view: View) -> dict[str, Any]:
    return {
        "base": view.base,
        "columns": [[n, a.column, list(a.path)] for n, a in view.columns],
        "linked": [list(p) for p in view.linked],
    }


def _view_from_dict(data: dict[str, Any]) -> View:
    columns = tuple((n, Attribute(c, tuple(p))) for n, c, p in data["columns"])
    return View(data["base"], columns, tuple(tuple(p) for p in data["linked"]))


def _ipc(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _pack(arrays: Mapping[str, Any]) -> bytes:
    """Put NumPy arrays into one Arrow file: name, type, shape, bytes."""
    import pyarrow as pa

    plain = {name: np.ascontiguousarray(a) for name, a in arrays.items()}
    return _ipc(
        pa.table(
            {
                "name": pa.array(list(plain), pa.string()),
                "dtype": pa.array([a.dtype.str for a in plain.values()], pa.string()),
                "shape": pa.array([list(np.shape(arrays[n])) for n in plain], pa.list_(pa.int64())),
                "data": pa.array([a.tobytes() for a in plain.values()], pa.large_binary()),
            }
        )
    )


def _table(content: bytes) -> pa.Table:
    """Read an Arrow file. It is checked through and through: offsets that lead nowhere would end the process."""
    import pyarrow as pa

    table = pa.ipc.open_file(content).read_all()
    table.validate(full=True)
    return table


def _unpack(content: bytes) -> dict[str, Any]:
    rows = _table(content).to_pylist()
    return {r["name"]: np.frombuffer(r["data"], dtype=np.dtype(r["dtype"])).reshape(r["shape"]).copy() for r in rows}
