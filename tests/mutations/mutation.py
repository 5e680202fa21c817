"""A broken build: a small change of the source that a named check must catch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """Replaces ``old``, which must occur once, by ``new`` in the file at ``path`` from the root."""

    path: str
    old: str
    new: str


class Stale(Exception):
    """An edit no longer fits the source."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A broken build.

    ``breaks`` describes the defect. ``check`` is the pytest id of the test that catches it, and
    ``shows`` a text in its output, so that no other failure counts. ``service`` is True if the
    check needs servers.
    """

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    check: str
    shows: str
    service: bool = False


def edited(text: str, edit: Edit) -> str:
    """The text of a file after an edit; raises ``Stale`` unless ``old`` occurs once."""
    found = text.count(edit.old)
    if found != 1:
        raise Stale(
            f"{edit.path}: the text to replace occurs {found} times instead of once; update the "
            f"mutation to match the source:\n{edit.old}"
        )
    return text.replace(edit.old, edit.new)
