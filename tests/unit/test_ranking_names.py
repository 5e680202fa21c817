"""Names of ranked metrics parse and print."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_metrics.core.metrics.ranking.names import MetricNameError, Option, RankedMetric
from stream_metrics.core.metrics.ranking.registry import (
    BY_NAME,
    DEFINITIONS,
    companions,
    parse,
    parse_all,
)


def texts_of(option: Option) -> st.SearchStrategy[str]:
    """Some texts that an option takes."""
    if option.word:
        return st.sampled_from(["lin", "resnik", "graphic"])
    if option.choices:
        collection = ["collection(1000000)"] if option.collection else []
        return st.sampled_from([*option.choices, *collection])
    if isinstance(option.default, bool):
        return st.sampled_from(["true", "false"])
    high = min(option.high, 1e6)
    return st.floats(option.low, high, exclude_min=option.low_open).map(repr)


@st.composite
def metrics(draw: st.DrawFn) -> RankedMetric:
    """Any metric with any options."""
    definition = draw(st.sampled_from(DEFINITIONS))
    chosen = draw(st.lists(st.sampled_from(definition.options), unique=True))
    inside = ",".join(f"{option.name}={draw(texts_of(option))}" for option in chosen)
    cut = {"required": st.integers(1, 2_000), "none": st.none()}.get(
        definition.cutoff, st.none() | st.integers(1, 2_000)
    )
    k = draw(cut)
    text = definition.name + (f"({inside})" if inside else "") + (f"@{k}" if k else "")
    return parse(text)


@given(metrics())
def test_a_metric_parses_back_to_itself(metric: RankedMetric) -> None:
    """The printed name means the same metric, in either case and with spaces."""
    assert parse(str(metric)) == metric
    assert parse(f" {str(metric).upper()} ") == metric
    assert hash(parse(str(metric))) == hash(metric)
    assert str(parse(str(metric))) == str(metric)


PRINTED = [
    ("NDCG@10", "ndcg@10"),
    ("ndcg_at_10", "ndcg@10"),
    ("NDCG_AT_10", "ndcg@10"),
    ("alpha_ndcg_at_5", "alpha_ndcg@5"),
    ("hr@3", "hit@3"),
    ("Success@3", "hit@3"),
    ("RR", "mrr"),
    ("ap@5", "map@5"),
    ("P(rel=2)@5", "precision(rel=2)@5"),
    ("precision(rel=2.0, denominator=k)@5", "precision(rel=2)@5"),
    ("precision(rel=2,denominator=retrieved)_at_5", "precision(denominator=retrieved,rel=2)@5"),
    ("ndcg(gains=linear)@10", "ndcg(gains=linear)@10"),
    ("aqwv(beta=40, fa=collection( 012000 ))@10", "aqwv(fa=collection(12000))@10"),
    ("aqwv(beta=0.5)@10", "aqwv(beta=0.5)@10"),
    ("rbp(p=0.80)", "rbp"),
    ("q_measure()", "q_measure"),
    ("mrr(judged_only=false)", "mrr"),
    ("max_ont_sim(formula=Resnik)@5", "max_ont_sim(formula=resnik)@5"),
]


@pytest.mark.parametrize(("text", "printed"), PRINTED)
def test_a_name_prints_canonically(text: str, printed: str) -> None:
    """Case, aliases, order and defaults do not show in the printed name."""
    assert str(parse(text)) == printed


REFUSED = [
    ("ngcd@10", "unknown metric 'ngcd@10'; did you mean ndcg"),
    ("recal@10", "did you mean recall"),
    ("presicion@5", "did you mean precision"),
    ("average_precision@10", r"did you mean map\?"),
    ("mean_average_precision", r"did you mean map\?"),
    ("mean_reciprocal_rank@10", r"did you mean mrr\?"),
    ("reciprocal_rank", r"did you mean mrr\?"),
    ("normalized_discounted_cumulative_gain@10", r"did you mean ndcg\?"),
    ("zzz@5", "unknown metric 'zzz@5'; known are hit, precision"),
    ("@5", "write name@k"),
    ("ndcg@", "write name@k"),
    ("ndcg@10x", "write name@k"),
    ("", "write name@k"),
    ("hit", "'hit' needs a cut-off, as in hit@10"),
    ("hit@0", "cut-off must be from 1"),
    ("hit@10000000", "cut-off must be from 1 to 1,000,000"),
    ("q_measure@10", "q_measure takes no cut-off"),
    ("ndcg(gain=linear)@10", "ndcg has no option 'gain'; it has gains, rel, judged_only"),
    ("ndcg(gains=log)@10", "gains takes linear or binary or exponential"),
    ("ndcg(rel=0)@10", "rel takes a number above 0"),
    ("ndcg(rel=two)@10", "rel takes a number above 0"),
    ("ndcg(rel=nan)@10", "rel takes a number above 0"),
    ("ndcg(rel=inf)@10", "rel takes a number above 0"),
    ("rbp(p=1.5)", "p takes a number from 0 to 1"),
    ("ndcg(judged_only=yes)@10", "judged_only takes true or false"),
    ("aqwv(fa=collection(0))@10", r"fa takes retrieved or collection\(N\)"),
    ("ndcg@١٠", "write name@k"),
    ("ndcg_at_１０", "write name@k"),
    ("ndcg(rel=1_0)@10", "rel takes a number above 0"),
    ("ndcg(rel=٢)@10", "rel takes a number above 0"),
    ("aqwv(fa=collection(١))@10", r"fa takes retrieved or collection\(N\)"),
    ("ndcg(rel=1,rel=2)@10", "rel is given twice"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_an_unknown_metric_is_refused(text: str, message: str) -> None:
    """The error says what is wrong and lists the known ones."""
    with pytest.raises(MetricNameError, match=message):
        parse(text)


def test_names_and_aliases_are_unique() -> None:
    """No alias is another metric's name."""
    words = [word for d in DEFINITIONS for word in (d.name, *d.aliases)]

    assert len(words) == len(set(words)) == len(BY_NAME)


def test_every_metric_has_a_direction() -> None:
    """Misses, false alarms and repeats are better when lower; coverage by judgements has none."""
    by_direction: dict[str, set[str]] = {}
    for definition in DEFINITIONS:
        by_direction.setdefault(definition.metric.better, set()).add(definition.name)

    assert by_direction["lower"] == {"p_miss", "p_fa", "redundancy"}
    assert by_direction["neither"] == {"rbp_residual", "judged"}


def test_several_names_come_once_each() -> None:
    """A suite and its members together give each metric once, in order."""
    assert [str(one) for one in parse_all(["code", "MRR", "recall_at_10", "hit@1"])] == [
        "ndcg(gains=binary)@5",
        "ndcg(gains=binary)@10",
        "precision@5",
        "recall@10",
        "mrr",
        "hit@1",
    ]


def test_parts_are_listed_with_their_metric() -> None:
    """AQWV has misses and false alarms with its own options, and RBP its residual."""
    assert [str(one) for one in companions(parse("aqwv(beta=5,rel=2)@10"))] == [
        "p_miss(rel=2)@10",
        "p_fa(rel=2)@10",
    ]
    assert [str(one) for one in companions(parse("rbp(p=0.5,rel=2)"))] == ["rbp_residual(p=0.5)"]
    assert companions(parse("ndcg@10")) == []
