"""Made-up tables: one type more, with a code that is free, and another row for other types."""

from __future__ import annotations

from dataclasses import replace
from string import ascii_uppercase
from typing import Final

from stream_metrics.core.dedup.tables import (
    OTHER_CODE,
    EntityType,
    newest,
    publish,
    type_codes,
)

NUMBER: Final = newest().number + 1
CODE: Final = next(
    code for code in ascii_uppercase if code not in {OTHER_CODE, *type_codes().values()}
)
LATER: Final = EntityType(
    name="LaterType",
    code=CODE,
    definitive=frozenset(("page_id",)),
    rejects=("title",),
    confirms=(),
)


def publish_it() -> None:
    """Let this process have the tables; whoever only imports this module does not."""
    other = newest().other
    publish(
        replace(
            newest(),
            number=NUMBER,
            types=(*newest().types, LATER),
            other=replace(other, not_definitive=other.not_definitive | {"space_id"}),
        )
    )
