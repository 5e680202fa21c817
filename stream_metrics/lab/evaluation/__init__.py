"""Score rankings and summarise them: rows of ``queries.jsonl``, block ``retrieval`` of a report.

Three steps, each usable on its own:

1. ``scoring.Ranking`` is one search with its judgements. ``Relevance.judge`` makes them from
   events, ``collection.join`` from a run and qrels. Its unit is what is resampled: the query or
   the conversation.
2. ``scoring.score_rankings`` scores as many rankings as fit in memory. Parts may be scored in
   different processes.
3. ``retrieval.retrieval_block`` summarises the parts. The result is identical whatever the order of
   the parts and however the rankings were divided among them.
"""
