"""Broken builds whose replays do not read exactly what was recorded."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation

FILES: Final = "stream_metrics/lab/sources/files.py"
ATOMIC_FILES: Final = "stream_metrics/lab/atomic_files.py"
MERGING: Final = "stream_metrics/lab/sources/kafka/merger.py"
READING: Final = "stream_metrics/clients/kafka/partition_reader.py"
SPANS: Final = "stream_metrics/core/telemetry/otlp/spans.py"
TREE: Final = "stream_metrics/core/telemetry/roles/tree.py"
RERANKING: Final = "stream_metrics/core/telemetry/retrieval/reranking.py"
SEARCHES: Final = "stream_metrics/core/telemetry/retrieval/searches.py"
INTERPRET: Final = "stream_metrics/core/telemetry/interpret.py"
DOCUMENTS: Final = "stream_metrics/core/telemetry/contents/documents.py"
EVALUATIONS: Final = "stream_metrics/core/telemetry/labels/evaluations.py"
LABELS: Final = "stream_metrics/core/telemetry/labels/labels.py"
WIRE: Final = "stream_metrics/core/events/wire.py"
IDENTITY: Final = "stream_metrics/live/worker/ownership/identity.py"
SUMS: Final = "stream_metrics/core/engine/window_sums.py"
PACE: Final = "stream_metrics/lab/sources/replay_pace.py"

UNCHANGED: Final = "stream_metrics/lab/sources/unchanged.py"
SOURCES: Final = "stream_metrics/cli/sources.py"

READ_ONCE: Final = "tests/unit/test_unchanged.py"

RECORDINGS: Final = (
    Mutation(
        "what is appended counts",
        "a file is read to its present end",
        (
            Edit(
                UNCHANGED,
                "        left = max(0, self._size - self._file.tell())\n",
                "        left = len(buffer)\n",
            ),
        ),
        f"{READ_ONCE}::test_what_is_appended_while_a_file_is_read_does_not_count",
        "== as_it_was",
    ),
    Mutation(
        "a file as it is when its turn comes",
        "a file that was changed after the command began is read as it is",
        (Edit(SOURCES, "path, places=True, known=known", "path, places=True"),),
        f"{READ_ONCE}::test_a_file_that_changes_before_its_turn_is_an_error",
        "DID NOT RAISE",
    ),
    Mutation(
        "any larger file has grown",
        "a file that was overwritten by more bytes is taken for one that was appended to",
        (
            Edit(
                UNCHANGED,
                "        is_same = _ends(descriptor, known.size) == known.ends\n",
                "        is_same = True\n",
            ),
        ),
        f"{READ_ONCE}::test_a_file_that_changes_while_it_is_read_is_an_error",
        "DID NOT RAISE",
    ),
    Mutation(
        "a pipe is opened twice",
        "the reading of a pipe that was begun to look for traces is dropped",
        (
            Edit(
                SOURCES,
                "            self._started[source] = _from_the_first(first, records)\n",
                "            records.close()\n",
            ),
        ),
        f"{READ_ONCE}::test_a_pipe_is_read_from_its_first_record",
        "== LINES",
    ),
    Mutation(
        "merged in the order of fetches",
        "records of several partitions are ordered by when brokers answered",
        (Edit(MERGING, "        if self.starved(left):\n            return taken\n", ""),),
        "tests/unit/test_kafka_source.py::test_the_order_does_not_depend_on_fetches",
        "== merged(found, [100])",
    ),
    Mutation(
        "read past the end",
        "a replay reads past its end if a fetch returns more records",
        (Edit(READING, " if record.offset < partitions[partition]", ""),),
        "tests/services/test_record.py::test_marks_bound_what_is_read",
        "== expected",
        service=True,
    ),
    Mutation(
        "truncated files are accepted",
        "truncated compressed data counts as the end of the file",
        (
            Edit(
                FILES,
                "        except EOFError as error:\n",
                "        except EOFError as error:\n            return\n",
            ),
        ),
        "tests/unit/test_recordings.py::test_a_file_that_cannot_be_read_is_named",
        "DID NOT RAISE",
    ),
    Mutation(
        "written in place",
        "an interrupted recording destroys the previous one",
        (
            Edit(
                ATOMIC_FILES,
                'temporary = path.with_name(f".{path.name}.part")',
                "temporary = path",
            ),
        ),
        "tests/unit/test_recordings.py::test_a_recording_is_written_atomically",
        "no such file",
    ),
    Mutation(
        "a bucket left behind",
        "backfilled windows keep the first bucket that leaves them at a step",
        (Edit(SUMS, "range(before.start, min", "range(before.start + 1, min"),),
        "tests/unit/test_backfill.py::test_the_sums_of_each_step_equal_the_windows",
        'replay.windows(steps[at])["sums"]',
    ),
    Mutation(
        "only record timestamps are moved",
        "a recording sent again has new record timestamps but old event times",
        (
            Edit(
                PACE,
                "value=self._moved_value(record.value), timestamp_ms=stamp",
                "timestamp_ms=stamp",
            ),
        ),
        "tests/unit/test_pace.py::test_moved_times_keep_their_distances",
        "assert abs(moment_us",
    ),
    Mutation(
        "hexadecimal as base64",
        "hexadecimal ids in OTLP JSON are read as base64",
        (Edit(SPANS, "if len(value) == 2 * size and _HEX.fullmatch(value):", "if False:"),),
        "tests/unit/test_otlp.py::test_hexadecimal_and_base64_ids_are_the_same_ids",
        "== spans_of(",
    ),
    Mutation(
        "the last copy of a span counts",
        "of two versions of a span, the one that arrived last is kept",
        (Edit(TREE, "(span.end_ns, _digest(span)) > (kept.end_ns, _digest(kept))", "span"),),
        "tests/unit/test_otlp.py::test_a_repeated_span_counts_once",
        '["doc_id"] == f"late',
    ),
    Mutation(
        "each retriever span is a search",
        "a nested retriever counts as a separate search",
        (
            Edit(
                SEARCHES,
                "if span.span_id in chosen and outer == span.span_id:",
                "if span.span_id in chosen:",
            ),
        ),
        "tests/unit/test_otlp.py::test_the_outermost_retrieval_that_names_documents_is_the_search",
        "== [",
    ),
    Mutation(
        "truncated documents count",
        "a search with attributes that the SDK dropped counts with its remaining documents",
        (
            Edit(
                DOCUMENTS,
                "if span.dropped_attributes or len(parts) != max(parts) + 1:",
                "if False:",
            ),
        ),
        "tests/unit/test_telemetry.py::test_a_search_without_recorded_results_is_refused",
        "assert (one.turns, one.refused)",
    ),
    Mutation(
        "rerankers are ignored",
        "the results of a retriever count instead of those that the agent received",
        (Edit(RERANKING, "return {id for id in ids if outer[id] == id}", "return set()"),),
        "tests/unit/test_telemetry.py::test_a_reranker_replaces_the_search_before_it",
        "assert searched(one)",
    ),
    Mutation(
        "evaluators search",
        "searches of an evaluator count as searches of the agent",
        (Edit(TREE, "elif span.parent_id in in_evaluators:", "elif False:"),),
        "tests/unit/test_telemetry_edge_cases.py::test_spans_inside_an_evaluator_are_ignored",
        "assert searched(",
    ),
    Mutation(
        "hidden documents are assumed unchanged",
        "results that a postprocessor may have changed count as they were found",
        (
            Edit(
                RERANKING,
                "return _hides(span, row.inputs) and (said or span.dropped_attributes > 0)",
                "return False",
            ),
        ),
        "tests/unit/test_telemetry_edge_cases.py::test_a_postprocessor_that_hides_its_documents_is_refused",
        "assert one.refused",
    ),
    Mutation(
        "labels keep their rank",
        "a score of a nested or reranked search labels the result of the same rank",
        (
            Edit(
                LABELS,
                "            return position\n        if self._known",
                "            return place\n        if self._known",
            ),
        ),
        "tests/unit/test_labels.py::test_a_label_on_a_search_goes_to_the_results_of_its_reranker",
        "assert given(",
    ),
    Mutation(
        "every evaluation counts as relevance",
        "a score of toxicity or correctness becomes the gain of a document",
        (Edit(EVALUATIONS, "return name is None or any(", "return True or any("),),
        "tests/unit/test_labels.py::test_other_evaluations_are_counted_and_label_nothing",
        "assert labelled(",
    ),
    Mutation(
        "the last of conflicting scores counts",
        "which of two scores with the same time counts depends on their order",
        (Edit(LABELS, "if len(gains) == 1:", "if True:"),),
        "tests/unit/test_labels.py::test_simultaneous_scores_that_disagree_are_refused",
        "assert labelled(",
    ),
    Mutation(
        "a span without an id is ignored",
        "a trace is interpreted although one of its spans cannot be identified",
        (Edit(INTERPRET, 'if interpretation.refused["bad_id"]:', "if False:"),),
        "tests/unit/test_hostile_traces.py::test_a_trace_with_one_bad_id_is_refused",
        "assert (one.turns, one.refused)",
    ),
    Mutation(
        "32-bit turn numbers",
        "turns numbered by time are rejected",
        (
            Edit(
                WIRE, "TurnNumber = Annotated[int, Meta(ge=1, le=2**53 - 1)]", "TurnNumber = Count"
            ),
        ),
        "tests/unit/test_telemetry.py::test_every_event_is_valid",
        "assert isinstance(decode(",
    ),
    Mutation(
        "new defaults for old state",
        "an upgrade applies its new default to state that was built with the old one",
        (Edit(IDENTITY, "KEPT: Final = (TABLES, TURNS)", "KEPT: Final = (TABLES,)"),),
        "tests/unit/test_kept_settings.py::test_state_of_the_release_before_keeps_its_fingerprint",
        "assert found.fingerprint()",
    ),
)
