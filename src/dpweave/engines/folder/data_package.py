"""A schema beside its files: Frictionless data packages (``datapackage.json``), in and out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dpweave.errors import SchemaError
from dpweave.schema.database import Column, Database, ForeignKey, Table, Type

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PACKAGE_FILE = "datapackage.json"
LONGEST = 1 << 26
"""Bytes that a data package may have."""
_EXACT = "dpweaveType"
_FRICTIONLESS = {
    "boolean": "boolean",
    "integer": "integer",
    "float": "number",
    "decimal": "number",
    "date": "date",
    "time": "time",
    "timestamp": "datetime",
    "json": "object",
    "array": "array",
}
_MODEL = {
    "boolean": Type("boolean"),
    "integer": Type("integer"),
    "year": Type("integer"),
    "number": Type("float"),
    "date": Type("date"),
    "time": Type("time"),
    "datetime": Type("timestamp"),
    "object": Type("json"),
    "array": Type("array"),
}


def package_of(database: Database, *, files: Mapping[str, str], format: str) -> dict[str, Any]:  # noqa: A002
    """Describe the files as a data package; ``dpweaveType`` keeps the exact type beside Frictionless's coarse one."""
    return {
        "profile": "tabular-data-package",
        "resources": [
            {
                "name": t.name,
                "path": files[t.name],
                "format": format,
                **({"namespace": t.namespace} if t.namespace else {}),
                "schema": {
                    "fields": [
                        {
                            "name": c.name,
                            "type": _FRICTIONLESS.get(c.type.kind, "string"),
                            _EXACT: str(c.type),
                            **({} if c.nullable else {"constraints": {"required": True}}),
                        }
                        for c in t.columns
                    ],
                    **({"primaryKey": list(t.primary_key)} if t.primary_key else {}),
                    **({"uniqueKeys": [list(u) for u in t.unique]} if t.unique else {}),
                    **({"foreignKeys": [_written(k) for k in t.foreign_keys]} if t.foreign_keys else {}),
                },
            }
            for t in database
        ],
    }


def database_of(content: bytes) -> tuple[Database, dict[str, str]]:
    """Read a data package: the schema, and the file of each table."""
    try:
        resources = json.loads(content)["resources"]
        return Database(tuple(_table(r) for r in resources)), {r["name"]: r["path"] for r in resources}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise SchemaError(
            f"the {PACKAGE_FILE} is not a tabular data package: every resource needs name, path and schema"
        ) from None


def package_in(path: Path) -> bytes:
    """Read the file that describes a folder, if it is not far too large to be one."""
    if path.stat().st_size > LONGEST:
        raise SchemaError(f"{path} is larger than {LONGEST >> 20} MB; it is not a tabular data package")
    return path.read_bytes()


def _written(key: ForeignKey) -> dict[str, Any]:
    named = {} if key.name == "+".join(key.columns) else {"name": key.name}
    return {
        "fields": list(key.columns),
        "reference": {"resource": key.target, "fields": list(key.target_columns)},
        **named,
    }


def _table(resource: dict[str, Any]) -> Table:
    schema = resource["schema"]
    return Table(
        _text(resource["name"]),
        tuple(
            Column(
                _text(f["name"]),
                Type.parse(f[_EXACT]) if _EXACT in f else _MODEL.get(f.get("type", "string"), Type("text")),
                nullable=not f.get("constraints", {}).get("required", False),
            )
            for f in schema["fields"]
        ),
        primary_key=_names(schema.get("primaryKey", ())),
        unique=tuple(_names(u) for u in schema.get("uniqueKeys", ())),
        foreign_keys=tuple(
            ForeignKey(
                _names(k["fields"]),
                _text(k["reference"]["resource"] or resource["name"]),  # Frictionless spells a self-reference as ""
                _names(k["reference"]["fields"]),
                name=_text(k.get("name", "")),
            )
            for k in schema.get("foreignKeys", ())
        ),
        namespace=None if resource.get("namespace") is None else _text(resource["namespace"]),
    )


def _names(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(_text(v) for v in value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("a name")
    return value
