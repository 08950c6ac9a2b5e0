"""A whole page and its pieces: no script, no request, tables and figures that are escaped."""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FORBID = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""The page may load nothing from anywhere."""


def page(title: str, head: str, sections: Mapping[str, tuple[str, str]], foot: str, *, stamp: str | None) -> str:
    """Put sections (anchor → heading, content) into a whole page. ``stamp`` is a warning above everything."""
    css = files("dpweave.report").joinpath("style.css").read_text(encoding="utf-8")
    links = "".join(f'<li><a href="#{anchor}">{escape(name)}</a></li>' for anchor, (name, _) in sections.items())
    warning = "" if stamp is None else f'<div class="stamp" role="alert">{escape(stamp)}</div>'
    again = "" if stamp is None else f'<p class="bad"><strong>{escape(stamp)}</strong></p>'
    body = "".join(
        f'<section id="{anchor}" aria-labelledby="{anchor}-h"><h2'
        f' id="{anchor}-h">{escape(name)}</h2>{again}{content}</section>'
        for anchor, (name, content) in sections.items()
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{FORBID}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="referrer" content="no-referrer"><meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{css}{_on_paper(stamp)}</style></head><body>"
        f'<a class="skip" href="#content">Skip to the content</a>{warning}'
        f'<header class="top"><div class="wrap">{head}</div></header>'
        f'<nav class="contents" aria-label="Contents"><div class="wrap"><ul>{links}</ul></div></nav>'
        f'<main id="content" class="wrap">{body}</main>'
        f'<footer><div class="wrap">{foot}</div></footer></body></html>\n'
    )


def _on_paper(stamp: str | None) -> str:
    """Repeat a warning on every printed sheet."""
    if stamp is None:
        return ""
    words = re.sub(r"[^\w .,:;()-]", " ", stamp)
    return (
        f'@page {{ margin: 18mm 14mm; @top-center {{ content: "{words}"; color: #b3261e; font: 700 9pt sans-serif;'
        " } }"
    )


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, numeric: Sequence[int] = ()
) -> str:
    """Write a table whose cells are escaped; columns in ``numeric`` stand to the right."""

    def mark(i: int) -> str:
        return ' class="n"' if i in numeric else ""

    head = "".join(f'<th scope="col"{mark(i)}>{escape(c)}</th>' for i, c in enumerate(columns))
    body = "".join("<tr>" + "".join(_cell(i, v, mark(i)) for i, v in enumerate(row)) + "</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" aria-label="{escape(caption)}"'
        f' tabindex="0"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(i: int, value: object, mark: str) -> str:
    return f'<th scope="row"{mark}>{escape(str(value))}</th>' if i == 0 else f"<td{mark}>{escape(str(value))}</td>"


def figures(items: Sequence[tuple[str, str, str]]) -> str:
    """Write key figures: name, value, remark."""
    cells = "".join(
        f"<div><dt>{escape(n)}</dt><dd{' class=long' if len(v) > 8 else ''}>"
        f"{escape(v)}<small>{escape(remark)}</small></dd></div>"
        for n, v, remark in items
    )
    return f'<dl class="figures">{cells}</dl>'
