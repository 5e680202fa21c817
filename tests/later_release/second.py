"""Made-up tables: a type more, and another row for types that none names."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from stream_metrics.dedup.tables import EntityType, Tables, newest, publish

NUMBER: Final = newest().number + 1
WIKI: Final = EntityType(
    name="WikiPage",
    code="I",
    definitive=frozenset(("page_id",)),
    rejects=("title",),
    confirms=(),
)

publish(
    Tables(
        number=NUMBER,
        types=(*newest().types, WIKI),
        other=replace(newest().other, not_definitive=newest().other.not_definitive | {"space_id"}),
    )
)
