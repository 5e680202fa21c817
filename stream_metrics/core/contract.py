"""The contract as documents: JSON Schemas and AsyncAPI 3.

All of them are generated from ``events.models`` and ``engine.published``. ``make docs`` writes the
committed copies in ``docs/reference/contract``; a test compares them.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from stream_metrics.core.engine import published
from stream_metrics.core.events.decode import SCHEMA_VERSION
from stream_metrics.core.events.models import EVENT, MODELS

SCHEMA_ID: Final = f"urn:stream-metrics:events:{SCHEMA_VERSION}"
CONTRACT_VERSION: Final = f"{SCHEMA_VERSION}.0.0"
TOPICS: Final = {"searchIterations": "search-iterations", "relevanceLabels": "relevance-labels"}
DEAD_LETTER_SUFFIX: Final = ".dlq"
ROW_SCHEMA_ID: Final = "urn:stream-metrics:row:1"
OUTPUT_TOPIC: Final = "conversation-rows"  # an example: by default there is none
KAFKA_BINDING: Final = "0.5.0"

_FIRST: Final = ("$schema", "$id", "title", "description", "type", "const", "enum")
_LAST: Final = ("default", "examples", "$defs")

_ABOUT: Final = (
    "Events that the worker reads: one JSON object in UTF-8 for each Kafka record, keyed by"
    " conversation_id. Fields that are not listed are ignored. null means absent, except in gain,"
    " optimal and search_needed of labels. Lengths count Unicode code points."
)
_WEAKER: Final = (
    " JSON Schema cannot say everything: an integer must be written without fraction and exponent"
    " (1.0 is refused), a date must exist in the calendar, and a number must fit a double."
    " x-default-limit shows what the worker accepts unless it is configured otherwise."
)

_ABOUT_ROWS: Final = (
    "The value of a record on the output topic (kafka.output_topic): the row of a conversation as"
    " `stream-metrics export` writes it; with metrics.turn_scope all the list of its rows, one a"
    " turn. null stands for a conversation that was forgotten. A value that is not defined is null,"
    " never 0. Later releases may add fields: a reader ignores those that it does not know."
)
_OUTPUT_HEADERS: Final = {
    "stream-metrics.version": "A whole number in decimal digits. It grows from message to message"
    " of a conversation; of two messages the one with the larger version holds. One that is not"
    " larger than the version that a reader already has is a copy.",
}

DEAD_LETTER_HEADERS: Final = {
    "stream-metrics.topic": "Topic that the record was read from.",
    "stream-metrics.partition": "Its partition there, in decimal digits.",
    "stream-metrics.offset": "Its offset there, in decimal digits. Topic, partition and offset"
    " identify the record: after a crash a dead letter may be written twice.",
    "stream-metrics.timestamp": "The record's timestamp, if any: Unix milliseconds, in digits.",
    "stream-metrics.error.class": "Why it was rejected, in one word.",
    "stream-metrics.error.message": "Where and what to change. Never quotes the record.",
    "stream-metrics.truncated": "Size of the whole value in bytes, in decimal digits; present only"
    " if the value was cut because it was too large for the topic.",
    "stream-metrics.value_sha256": "SHA-256 of the whole value, in hexadecimal digits; present only"
    " when the value was cut.",
}
_OPTIONAL_HEADERS: Final = frozenset(
    {"stream-metrics.timestamp", "stream-metrics.truncated", "stream-metrics.value_sha256"}
)


class _Generator(GenerateJsonSchema):
    """Leaves out the titles that only repeat a field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema() -> dict[str, Any]:
    """One JSON Schema (draft 2020-12) for all event types."""
    generated = EVENT.json_schema(schema_generator=_Generator)
    document: dict[str, Any] = _tidy(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": SCHEMA_ID,
            "title": "stream-metrics events",
            "description": _ABOUT + _WEAKER,
            "oneOf": [{"$ref": f"#/$defs/{model.__name__}"} for model in MODELS.values()],
            "examples": [model.example for model in MODELS.values()],
            "$defs": dict(sorted(generated["$defs"].items())),
        }
    )
    return document


def row_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of what a record of the output topic holds."""
    generated = TypeAdapter(published.Row).json_schema(
        schema_generator=_Generator, ref_template="#/$defs/{model}"
    )
    definitions = generated.pop("$defs") | {"Row": generated}
    row = {"$ref": "#/$defs/Row"}
    document: dict[str, Any] = _tidy(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": ROW_SCHEMA_ID,
            "title": "stream-metrics rows",
            "description": _ABOUT_ROWS,
            "oneOf": [row, {"type": "array", "items": row}, {"type": "null"}],
            "examples": [published.EXAMPLE],
            "$defs": dict(sorted(definitions.items())),
        }
    )
    return document


def asyncapi() -> dict[str, Any]:
    """The AsyncAPI 3.0 document: which topics are read and written, and with what."""
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for name, topic in TOPICS.items():
        dead = f"{name}DeadLetters"
        events = {kind: _ref("messages", kind) for kind in MODELS}
        channels[name] = _channel(topic, "Events; each topic takes all types.", events)
        channels[dead] = _channel(
            topic + DEAD_LETTER_SUFFIX,
            f"Records of {topic} that are no valid events, as they came.",
            {"dead_letter": _ref("messages", "dead_letter")},
        )
        operations[f"read{name[0].upper()}{name[1:]}"] = {
            "action": "receive",
            "channel": {"$ref": f"#/channels/{name}"},
            "summary": f"The worker reads {topic}.",
        }
        operations[f"write{dead[0].upper()}{dead[1:]}"] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{dead}"},
            "summary": "The worker writes a record that it rejects, before it commits its offset.",
        }
    channels["conversationRows"] = _channel(
        OUTPUT_TOPIC,
        "Rows of conversations, on the topic that kafka.output_topic names (none by default).",
        {name: _ref("messages", name) for name in ("conversation_row", "conversation_forgotten")},
    )
    operations["writeConversationRows"] = {
        "action": "send",
        "channel": {"$ref": "#/channels/conversationRows"},
        "summary": "The worker writes a conversation's row whenever the conversation has changed.",
    }
    definitions = json_schema()["$defs"]
    messages = {kind: _message(kind, model.__name__, definitions) for kind, model in MODELS.items()}
    return {
        "asyncapi": "3.0.0",
        "id": SCHEMA_ID,
        "info": {
            "title": "stream-metrics",
            "version": CONTRACT_VERSION,
            "description": f"{_ABOUT}{_WEAKER} Names of topics are the defaults.",
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": messages | _output_messages() | {"dead_letter": _dead_letter()},
            "schemas": _moved(definitions | row_schema()["$defs"]),
        },
    }


def rendered() -> dict[str, str]:
    """The texts of the documents by file name."""
    return {
        "events.schema.json": _text(json_schema()),
        "row.schema.json": _text(row_schema()),
        "asyncapi.json": _text(asyncapi()),
    }


def _channel(topic: str, description: str, messages: dict[str, Any]) -> dict[str, Any]:
    return {
        "address": topic,
        "description": description,
        "messages": messages,
        "bindings": {"kafka": {"topic": topic, "bindingVersion": KAFKA_BINDING}},
    }


def _message(kind: str, model: str, definitions: dict[str, Any]) -> dict[str, Any]:
    key = definitions[model]["properties"]["conversation_id"]
    return {
        "name": kind,
        "summary": definitions[model]["description"],
        "payload": _ref("schemas", model),
        "bindings": _key({**key, "description": "The event's conversation_id in UTF-8."}),
        "examples": [{"name": kind, "payload": MODELS[kind].example}],
    }


def _output_messages() -> dict[str, Any]:
    row = _ref("schemas", "Row")
    common = {
        "headers": _headers(_OUTPUT_HEADERS),
        "bindings": _key({"type": "string", "description": "The conversation_id in UTF-8."}),
    }
    return {
        "conversation_row": {
            "name": "conversation_row",
            "summary": "The conversation as it is now; the list with metrics.turn_scope all.",
            "payload": {"oneOf": [row, {"type": "array", "items": row}]},
            **common,
            "examples": [{"name": "row", "payload": published.EXAMPLE}],
        },
        "conversation_forgotten": {
            "name": "conversation_forgotten",
            "summary": "The conversation was forgotten: a record without a value.",
            "payload": {"type": "null"},
            **common,
        },
    }


def _headers(
    descriptions: dict[str, str], optional: frozenset[str] = frozenset()
) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            name: {"type": "string", "description": description}
            for name, description in descriptions.items()
        },
        "required": [name for name in descriptions if name not in optional],
    }


def _dead_letter() -> dict[str, Any]:
    return {
        "name": "dead_letter",
        "summary": "A record that was rejected.",
        "contentType": "application/octet-stream",
        "headers": _headers(DEAD_LETTER_HEADERS, _OPTIONAL_HEADERS),
        "payload": {"description": "The value as it came: any bytes, or none."},
        "bindings": _key({"description": "The key as it came: any bytes, or none."}),
    }


def _key(schema: dict[str, Any]) -> dict[str, Any]:
    return {"kafka": {"key": schema, "bindingVersion": KAFKA_BINDING}}


def _ref(part: str, name: str) -> dict[str, str]:
    return {"$ref": f"#/components/{part}/{name}"}


def _moved(node: Any) -> Any:
    """``node`` with its references changed to the place of schemas in AsyncAPI."""
    if isinstance(node, dict):
        return {
            name: value.replace("#/$defs/", "#/components/schemas/")
            if name == "$ref"
            else _moved(value)
            for name, value in node.items()
        }
    return [_moved(item) for item in node] if isinstance(node, list) else node


def _tidy(node: Any) -> Any:
    """``node`` with its keys in a fixed order, independent of the version of pydantic."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    tidy: dict[str, Any] = {}
    for name in sorted(node, key=_place):
        value = node[name]
        if name == "description":
            tidy[name] = " ".join(value.split())
        elif name in ("properties", "$defs"):
            first = sorted(value, key=lambda field: field != "type")
            tidy[name] = {field: _tidy(value[field]) for field in first}
        elif name in ("examples", "default"):
            tidy[name] = value
        else:
            tidy[name] = _tidy(value)
    return tidy


def _place(name: str) -> tuple[int, str]:
    if name in _FIRST:
        return (_FIRST.index(name) - len(_FIRST), name)
    return (_LAST.index(name) + 1 if name in _LAST else 0, name)


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
