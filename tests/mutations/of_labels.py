"""Broken builds that confuse labels of people with those of a model."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutation import Edit, Mutation
from tests.mutations.of_figures import LABELLING, PLAN, RIVALS, ROWS

REGISTERS: Final = "stream_metrics/core/engine/registers.py"
CODEC: Final = "stream_metrics/core/engine/codec.py"
LABELS: Final = "stream_metrics/core/metrics/labels.py"
SUMS: Final = (
    "tests/property/test_label_sums.py::test_the_sums_of_each_source_are_those_of_the_reference"
)
SOURCES: Final = "tests/unit/test_label_sources.py"
SCHEMAS: Final = "tests/unit/test_schemas.py"

LABEL_MUTATIONS: Final = (
    Mutation(
        "a model's label replaces a person's",
        "labels of both sources are items of the same registers",
        (
            Edit(
                REGISTERS,
                "    _label_registers(\n        MODEL_RESULT_LABEL,\n",
                "    _label_registers(\n        RESULT_LABEL,\n",
            ),
        ),
        RIVALS,
        ROWS,
    ),
    Mutation(
        "a model's label never counts",
        "a document without a label of a person is unlabelled",
        (
            Edit(
                LABELS,
                "if counting == MODEL or (human is None and counting != HUMAN):",
                "if counting == MODEL:",
            ),
        ),
        RIVALS,
        ROWS,
    ),
    Mutation(
        "a model's label that waited is lost",
        "labels of a model that come before the search do not count",
        (
            Edit(
                LABELLING,
                "                self._relabel(turn, model, position, event.items[0][result_id])\n",
                "                pass\n",
            ),
        ),
        f"{SOURCES}::test_a_later_label_of_a_model_never_replaces_a_persons",
        "== (2, 2, 7)",
    ),
    Mutation(
        "whose label counts is not followed",
        "a row says that a model's label counts after a person has given one",
        (Edit(LABELLING, "iteration.by_model += more", "iteration.by_model += max(more, 0)"),),
        f"{SOURCES}::test_a_later_label_of_a_model_never_replaces_a_persons",
        "labelled_by",
    ),
    Mutation(
        "the gains of people are those that count",
        "what people say of a document includes the labels of a model",
        (
            Edit(
                "stream_metrics/core/engine/label_sums.py",
                "_sums(turn, turn.human.gains, config)",
                "_sums(turn, turn.document_gains, config)",
            ),
        ),
        SUMS,
        "assert",
    ),
    Mutation(
        "a later event takes a turn out of the sample",
        "the latest event of a source says whether its turn was drawn at random",
        (
            Edit(
                REGISTERS,
                "    return {MODEL: True} if sent.sample == RANDOM else {}\n",
                "    return {MODEL: sent.sample == RANDOM}\n",
            ),
            Edit(
                "stream_metrics/core/engine/label_sums.py",
                "    return frozenset(turn.winners[SAMPLE])\n",
                "    return frozenset(\n"
                "        name for name, won in turn.winners[SAMPLE].items() if won.items[3][name]\n"
                "    )\n",
            ),
        ),
        f"{SOURCES}::test_a_random_sample_is_for_good",
        "== {'model'}",
    ),
    Mutation(
        "a sample is not stored",
        "a turn that is loaded is in no random sample",
        (Edit(REGISTERS, "    return bool(items)\n", "    return False\n"),),
        f"{SCHEMAS}::test_labels_by_source_are_still_written_byte_for_byte",
        "== unordered",
    ),
    Mutation(
        "an earlier release reads labels of a model",
        "the header of a conversation does not say that it has labels by source",
        (
            Edit(
                CODEC,
                "            return SCHEMA_WITH_SOURCES\n",
                "            return schema\n",
            ),
        ),
        f"{SCHEMAS}::test_only_conversations_with_sources_have_the_third_schema",
        "assert",
    ),
    Mutation(
        "one limit for the labels of both sources",
        "labels of a model that wait keep those of people out",
        (
            Edit(
                PLAN,
                "            labelled += turn.labels(model=model)\n",
                "            labelled += turn.labels(model=True) + turn.labels(model=False)\n",
            ),
            Edit(
                PLAN,
                "        excess = sum([counted[turn.number] for turn in all_turns]) - most\n",
                "        excess = sum([waiting_labels(turn, k) for turn in all_turns"
                " for k in LABEL_TYPES]) - most\n",
            ),
        ),
        f"{SOURCES}::test_the_limit_of_waiting_labels_holds_for_each_source",
        "assert",
    ),
    Mutation(
        "labels of an event are refused in the order of their register",
        "which of them is refused depends on what was cached",
        (
            Edit(
                PLAN,
                "            places[label[0].digest, label[1].turn_index, label[2]],\n",
                "            0,\n",
            ),
        ),
        "tests/property/test_limits.py::test_labels_of_an_event_are_refused_in_its_own_order",
        "assert",
    ),
)
"""Each must be detected."""
