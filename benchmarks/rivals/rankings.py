"""Five ranked metrics of a run by each tool: from dictionaries, and from the tool's own form.

Each leaves its scores by query behind, so that they can be compared (``check``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.collection import Collection, collection
from benchmarks.rivals import serve

METRICS: Final = ("ndcg@10", "map", "mrr", "precision@10", "recall@100")
TREC_EVAL: Final = ("ndcg_cut_10", "map", "recip_rank", "P_10", "recall_100")
IR_MEASURES: Final = ("nDCG@10", "AP", "RR", "P@10", "R@100")

Scores = Any
"""Scores by query in whatever form the tool gives them."""


class Tools:
    """The tools of one environment, over one collection.

    ``parsed`` holds each tool's own form of qrels and run, and ``scored`` what it gave last.
    """

    def __init__(self) -> None:
        self.data = Collection({}, {})
        self.parsed: dict[str, Any] = {}
        self.scored: dict[str, Scores] = {}

    def make(self, queries: int) -> None:
        """Make the collection."""
        self.data = collection(queries)

    def from_dicts(self, tool: str) -> None:
        """Score from dictionaries of dictionaries."""
        self.scored[tool] = FROM_DICTS[tool](self.data)

    def parse(self, tool: str) -> None:
        """Bring qrels and run into the tool's own form."""
        self.parsed[tool] = PARSE[tool](self.data)

    def from_parsed(self, tool: str) -> None:
        """Score from the tool's own form."""
        self.scored[tool] = FROM_PARSED[tool](self.parsed[tool])

    def as_arrays(self, tool: str) -> None:
        """The same, but that the scores stay arrays, for tools that else bring them by query."""
        self.scored[tool] = AS_ARRAYS[tool](self.parsed[tool])

    def forget(self, tool: str) -> None:
        """Free parsed data and scores, so that they do not count for the next tool."""
        self.parsed.pop(tool, None)
        self.scored.pop(tool, None)

    def save(self, tool: str, path: str) -> None:
        """Write the scores, a row a query and a column a metric."""
        np.save(Path(path), BY_QUERY[tool](self.scored[tool], list(self.data.qrels)))


# -- ours -------------------------------------------------------------------------------------


def _ours(data: Collection) -> Scores:
    from stream_metrics.lab.metrics.run_scores import score_run

    return score_run(data.qrels, data.run, METRICS).by_query()


def _ours_parse(data: Collection) -> Any:
    from stream_metrics.lab.metrics.run_scores import judged_batches

    return list(judged_batches(data.qrels, data.run)), tuple(data.qrels)


def _ours_parsed(parsed: Any) -> Scores:
    from stream_metrics.lab.metrics.run_scores import RunScores

    _, queries = parsed
    return RunScores(queries, _ours_arrays(parsed)).by_query()


def _ours_arrays(parsed: Any) -> Scores:
    from stream_metrics.core.metrics.ranking.registry import parse_all
    from stream_metrics.core.metrics.ranking.scoring import score_batches

    batches, queries = parsed
    return score_batches(batches, len(queries), parse_all(METRICS))


def _ours_by_query(scored: Any, queries: list[str]) -> Any:
    if not isinstance(scored, dict):
        return scored.values
    return _table(scored, METRICS, queries)


# -- pytrec_eval ------------------------------------------------------------------------------


def _trec_eval_parse(data: Collection) -> Any:
    import pytrec_eval

    return pytrec_eval.RelevanceEvaluator(data.qrels, set(TREC_EVAL)), data.run


def _trec_eval(data: Collection) -> Scores:
    return _trec_eval_parsed(_trec_eval_parse(data))


def _trec_eval_parsed(parsed: Any) -> Scores:
    evaluator, run = parsed
    return evaluator.evaluate(run)


# -- ranx -------------------------------------------------------------------------------------


def _ranx_parse(data: Collection) -> Any:
    """Its typed lists, which are what its compiled loops run over."""
    import ranx

    return ranx.Qrels(data.qrels).to_typed_list(), ranx.Run(data.run).to_typed_list()


def _ranx_parsed(parsed: Any) -> Scores:
    import ranx

    return ranx.evaluate(*parsed, list(METRICS), return_mean=False)


def _ranx(data: Collection) -> Scores:
    """Dictionaries as they are: it makes its typed lists of them, as fast as it can."""
    import ranx

    return ranx.evaluate(data.qrels, data.run, list(METRICS), return_mean=False)


def _ranx_by_query(scored: Any, queries: list[str]) -> Any:
    return np.column_stack([scored[name] for name in METRICS])


# -- ir_measures ------------------------------------------------------------------------------


def _ir_measures_parse(data: Collection) -> Any:
    import ir_measures

    measures = [ir_measures.parse_measure(one) for one in IR_MEASURES]
    return ir_measures.evaluator(measures, data.qrels), data.run


def _ir_measures(data: Collection) -> Scores:
    return _ir_measures_parsed(_ir_measures_parse(data))


def _ir_measures_parsed(parsed: Any) -> Scores:
    evaluator, run = parsed
    return list(evaluator.iter_calc(run))


def _ir_measures_by_query(scored: Any, queries: list[str]) -> Any:
    found: dict[str, dict[str, float]] = {}
    for one in scored:
        found.setdefault(one.query_id, {})[str(one.measure)] = one.value
    return _table(found, IR_MEASURES, queries)


def _table(scored: Any, names: tuple[str, ...], queries: list[str]) -> Any:
    return np.array([[scored[query][name] for name in names] for query in queries])


FROM_DICTS: Final[dict[str, Callable[[Collection], Scores]]] = {
    "ours": _ours,
    "ours, no kernel": _ours,
    "pytrec_eval": _trec_eval,
    "ranx": _ranx,
    "ir_measures": _ir_measures,
}
PARSE: Final[dict[str, Callable[[Collection], Any]]] = {
    "ours": _ours_parse,
    "ours, no kernel": _ours_parse,
    "pytrec_eval": _trec_eval_parse,
    "ranx": _ranx_parse,
    "ir_measures": _ir_measures_parse,
}
FROM_PARSED: Final[dict[str, Callable[[Any], Scores]]] = {
    "ours": _ours_parsed,
    "ours, no kernel": _ours_parsed,
    "pytrec_eval": _trec_eval_parsed,
    "ranx": _ranx_parsed,
    "ir_measures": _ir_measures_parsed,
}
AS_ARRAYS: Final[dict[str, Callable[[Any], Scores]]] = {
    "ours": _ours_arrays,
    "ours, no kernel": _ours_arrays,
}
BY_QUERY: Final[dict[str, Callable[[Any, list[str]], Any]]] = {
    "ours": _ours_by_query,
    "ours, no kernel": _ours_by_query,
    "pytrec_eval": lambda scored, queries: _table(scored, TREC_EVAL, queries),
    "ranx": _ranx_by_query,
    "ir_measures": _ir_measures_by_query,
}

if __name__ == "__main__":
    TOOLS = Tools()
    serve(
        {
            "make": TOOLS.make,
            "from_dicts": TOOLS.from_dicts,
            "parse": TOOLS.parse,
            "from_parsed": TOOLS.from_parsed,
            "as_arrays": TOOLS.as_arrays,
            "forget": TOOLS.forget,
            "save": TOOLS.save,
        }
    )
