"""A rule for relevance: the section of the handbook that the query asks about is relevant."""

from stream_metrics.core.metrics.ranking.relevance import Query, Retrieved

SECTIONS = {"leave", "pension", "travel"}


class Handbook:
    """Finds the section by its id."""

    def total(self, query: Query) -> int | None:
        """One section; None if the handbook has none, so that the rule does not apply."""
        return 1 if query.query_id in SECTIONS else None

    def relevant(self, query: Query, result: Retrieved) -> bool:
        """Whether the result is that section."""
        return result.doc_id == f"handbook#{query.query_id}"


handbook = Handbook()
