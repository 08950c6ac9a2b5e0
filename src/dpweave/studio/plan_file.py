"""The plan as a person's file: edited as text, saved when asked, never over what somebody else wrote unseen."""

from __future__ import annotations

import difflib
import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dpweave.engines.staging import write_text
from dpweave.errors import PlanError, UsageError
from dpweave.plan.plan import Plan
from dpweave.studio.plan_edits import apply

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dpweave.studio.plan_edits import Edit


def stamp(text: str | None) -> str:
    """Name a text, so that the page can say which one it has seen; the name of no file at all is empty."""
    return "" if text is None else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class PlanFile:
    """The text of a plan, what of it is on disk, and what it was before each change.

    ``text`` is always a plan. ``disk`` is what the file held when it was last read or written here, None where there
    was no file.
    """

    def __init__(self, path: Path, text: str, *, disk: str | None) -> None:
        self.path = path
        self.plan = Plan.from_toml(text)
        self.text = text
        self.disk = disk
        self.news = ""
        """What happened to the file meanwhile, in words; for the person to see once."""
        self._before: list[str] = []
        self._after: list[str] = []
        self._document: Any = None

    @classmethod
    def open(cls, path: Path) -> PlanFile:
        """Read a plan that is there."""
        text = _read(path)
        if text is None:
            raise PlanError(f"the plan {path} cannot be read: there is no such file")
        return cls(path, text, disk=text)

    # -- changing ------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Take the text apart for the next change, which takes longest of all that a change does."""
        import tomlkit

        if self._document is None:
            self._document = tomlkit.parse(self.text)

    def edit(self, edits: Sequence[Edit]) -> None:
        """Change the text; refused whole if the result is no plan."""
        import tomlkit

        self.prepare()
        document, self._document = self._document, None  # half of the changes may have been made when one is refused
        try:
            apply(document, edits)
        except (KeyError, IndexError, TypeError, tomlkit.exceptions.TOMLKitError):
            raise UsageError("the plan has no such place; what is to be changed is gone") from None
        text = tomlkit.dumps(document)
        self.replace(text)
        self._document = document

    def replace(self, text: str) -> None:
        """Take another text, which can be undone."""
        plan = Plan.from_toml(text)
        if text != self.text:
            self._before.append(self.text)
            self._after.clear()
            self._take(text, plan)

    def undo(self) -> None:
        """Go back by one change."""
        if self._before:
            self._after.append(self.text)
            self._take(self._before.pop())

    def redo(self) -> None:
        """Make the change again that was undone last."""
        if self._after:
            self._before.append(self.text)
            self._take(self._after.pop())

    def _take(self, text: str, plan: Plan | None = None) -> None:
        before, self.plan = self.plan, Plan.from_toml(text) if plan is None else plan
        self.plan.compile().take_over(before.compile())
        self.text, self._document = text, None

    @property
    def undoable(self) -> tuple[int, int]:
        """How many changes can be undone, and made again."""
        return len(self._before), len(self._after)

    @property
    def is_saved(self) -> bool:
        """Whether the file holds what is shown, as far as was seen."""
        return self.text == self.disk

    @property
    def is_pristine(self) -> bool:
        """Whether this is a draft that nobody has changed or saved: then another draft may take its place."""
        return self.disk is None and not self._before

    def redraft(self, text: str) -> None:
        """Put another draft in the place of one that nobody has changed."""
        self._take(text)

    # -- the disk ------------------------------------------------------------------------------------------------------

    def look(self) -> str | None:
        """See what the file holds now. What somebody else wrote is taken up if nothing here would be lost by it.

        Returns the text on disk where it is not what was last seen and could not be taken up.
        """
        now = _read(self.path)
        if now == self.disk:
            return None
        if self.is_saved and now is not None:
            with suppress(PlanError):
                self.replace(now)
                self.disk = now
                self.news = f"{self.path.name} was changed on disk and has been read again. Undo goes back."
                return None
        return now if now is not None else ""

    def save(self, *, seen: str) -> None:
        """Write the text. ``seen`` is the stamp of what the person was shown of the file: another one is refused."""
        now = _read(self.path)
        if stamp(now) != seen:
            raise UsageError(
                f"{self.path.name} was changed on disk meanwhile, and nothing was written; look at both, then choose"
            )
        write_text(self.path, self.text)
        self.disk = self.text

    def take_disk(self) -> None:
        """Show what the file holds, and let go of what was not saved; undo brings it back."""
        now = _read(self.path)
        if now is None:
            raise UsageError(f"there is no file {self.path.name} any more; save to write it again")
        self.replace(now)
        self.disk = now

    def difference(self) -> list[str]:
        """What saving would change in the file, as lines of a diff."""
        return _difference(_read(self.path) or "", self.text)


def _difference(old: str, new: str) -> list[str]:
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "on disk", "here", lineterm="", n=2)
    return list(lines)[2:]


def _read(path: Path) -> str | None:
    """Return what a file holds, with its line ends as they are."""
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(
            f"the plan {path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8 text'}"
        ) from None
