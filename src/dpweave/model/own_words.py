"""The words in which a model was written. Its digests are of words, and later versions write the same in others: so
what a file says of answers, certificate and the plan that was asked under stays as it was written, as long as it says
what the model holds.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dpweave.model.file_format import _release_from_dict, release_to_dict
from dpweave.plan.plan import Plan
from dpweave.privacy.certificate import Certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dpweave.privacy.release import Release

RELEASE, CERTIFICATE, ASKED = "release.json", "certificate.json", "asked.toml"


def written_in(entries: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the words of a file that digests are of."""
    asked = entries.get(ASKED, entries["plan.toml"])
    return {RELEASE: entries[RELEASE], CERTIFICATE: entries[CERTIFICATE], ASKED: asked}


def own_words(
    release: Release, certificate: Certificate, asked: Plan, *, written: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return answers, certificate and the plan that was ``asked`` under: in the words in which they were ``written``,
    or, if they are new or were changed since, in the words of this version.
    """
    words = {
        RELEASE: json.dumps(release_to_dict(release), indent=1, default=str).encode(),
        CERTIFICATE: certificate.to_json().encode(),
        ASKED: asked.to_toml().encode(),
    }
    same: dict[str, Callable[[str], bool]] = {
        RELEASE: lambda text: _says(text, release, asked),
        CERTIFICATE: lambda text: Certificate.from_json(text) == certificate,
        ASKED: lambda text: Plan.from_toml(text) == asked,
    }
    return words | {name: old for name, old in written.items() if old != words[name] and same[name](old.decode())}


def counts_of(release: Release) -> dict[str, Any]:
    """Return the noisy counts of a release by the names under which a file has them."""
    return {
        **{f"measured/{i}": m.marginal.counts for i, m in enumerate(release.measured)},
        **{f"bagged/{i}": b.noisy.counts for i, b in enumerate(release.summed_by_unit)},
        **{f"moments/{i}": m.noisy.values for i, m in enumerate(release.moments)},
    }


def _says(text: str, release: Release, asked: Plan) -> bool:
    """Whether a text says all that a release does, but for its counts."""
    try:
        read = _release_from_dict(json.loads(text), counts_of(release), asked.database)
    except KeyError:  # it has more answers
        return False
    return _plain(read) == _plain(release)


def _plain(release: Release) -> str:
    return json.dumps(release_to_dict(release), sort_keys=True, default=str)
