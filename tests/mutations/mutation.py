"""A broken build: a small change of the source by which a named check must fail."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """In the file at ``path``, from the root, ``new`` for ``old``, which stands there once."""

    path: str
    old: str
    new: str


class Stale(Exception):
    """The source has changed: an edit does not fit it any more."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A broken build.

    ``breaks`` says what is wrong with it. ``check`` is the test that catches it, as pytest names
    it, and ``shows`` a text that its failure holds, so that nothing else passes for it.
    ``service``: the check needs servers.
    """

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    check: str
    shows: str
    service: bool = False


def edited(text: str, edit: Edit) -> str:
    """The text of a file after an edit; ``Stale`` unless what is to go stands there once."""
    found = text.count(edit.old)
    if found != 1:
        raise Stale(
            f"{edit.path}: the text to be replaced stands there {found} times, not once; bring the "
            f"mutation in line with the source:\n{edit.old}"
        )
    return text.replace(edit.old, edit.new)
