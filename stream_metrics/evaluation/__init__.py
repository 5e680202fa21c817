"""Rankings scored and summed up: rows of ``queries.jsonl``, the block ``retrieval`` of a report.

Three steps, each of use by itself:

1. ``scoring.Ranking`` is one search with its judgements (``Relevance.judge`` makes them of events,
   ``collection.join`` of a run and qrels). Its unit is what is resampled: the query, or the
   conversation.
2. ``scoring.score_rankings`` scores as many as fit in memory. Do it in parts, in any process.
3. ``report.retrieval_block`` sums the parts up. Neither their order nor how the rankings were cut
   into parts changes a bit of it.
"""
