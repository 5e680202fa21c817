"""Made-up tables: a type more, and another row for types that none names."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from stream_metrics.core.dedup.tables import EntityType, Tables, newest, publish

NUMBER: Final = newest().number + 1
WIKI: Final = EntityType(
    name="WikiPage",
    code="I",
    definitive=frozenset(("page_id",)),
    rejects=("title",),
    confirms=(),
)


def publish_it() -> None:
    """Let this process have the tables; whoever only imports this module does not."""
    other = newest().other
    publish(
        Tables(
            number=NUMBER,
            types=(*newest().types, WIKI),
            other=replace(other, not_definitive=other.not_definitive | {"space_id"}),
        )
    )
