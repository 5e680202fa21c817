"""The contract in three forms: the decoder, the published models, and the generated documents."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from pydantic import BaseModel

from stream_metrics.core.contract import (
    DEAD_LETTER_HEADERS,
    asyncapi,
    json_schema,
    row_schema,
)
from stream_metrics.core.engine.published import EXAMPLE as ROW_EXAMPLE
from stream_metrics.core.engine.published import (
    Row,
    RowGate,
    RowIteration,
    RowReranking,
    RowRouting,
)
from stream_metrics.core.events import REASONS, BadRecord, Limits, decode
from stream_metrics.core.events.models import EVENT, MODELS, read
from stream_metrics.core.events.record import Record
from stream_metrics.core.events.rejections import REJECTIONS
from stream_metrics.lab.replay.offline import Replay
from stream_metrics.lab.traffic import TrafficProfile, generate
from tests.corpus import FIELDS, FULL, TOKENS, Field, cases

ROOT = Path(__file__).parents[2]
DECODERS_OWN = ("over_limit", "time_out_of_range", "missing_key", "key_mismatch")
LIMITS = Limits()
SCHEMA = Draft202012Validator(json_schema())
# What JSON Schema cannot express: 1.0 is an integer to it, and numbers have no upper end; Python's
# `$` (not the one of JSON Schema) also matches before a newline at the end.
INTEGRAL_FLOATS = tuple(t for t in TOKENS if t[:1] in "-0123456789" and not t.lstrip("-").isdigit())
SCHEMA_IS_WEAKER = {
    *INTEGRAL_FLOATS, "[1.0]", '{"a":1.0}', '{"a":1e999}', '{"a":' + "9" * 400 + "}",
    "1" + "0" * 309, "9" * 5000, '"2024-06-10T09:15:25Z\\n"',
    '"2024-02-30T00:00:00Z"', '"2023-02-29T00:00:00Z"',
}  # fmt: skip
WHOLE = 5  # values of each field with which whole events are validated
SCHEMA_IS_STRICTER = {'{"":null}', f'{{"{"x" * 257}":null}}'}  # in `relevant`


def decodes(text: str) -> bool | None:
    """The decoder's verdict; None if it rejects the event by a rule that only it has."""
    event = decode(text.encode(), limits=LIMITS)
    if isinstance(event, BadRecord):
        return None if event.reason in DECODERS_OWN else False
    return True


def validates(text: str) -> bool:
    """The models' verdict."""
    try:
        read(text.encode())
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("kind", FULL)
def test_full_events_are_valid(kind: str) -> None:
    """The corpus starts from events that all three forms of the contract accept."""
    text = json.dumps(FULL[kind])
    assert decodes(text)
    assert validates(text)
    assert SCHEMA.is_valid(FULL[kind])


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_any_value_in_any_field_gets_the_same_verdict(field: Field) -> None:
    """Decoder and models accept a value exactly if the corpus's own rules do."""
    wrong = []
    for case in cases(field):
        decoded, modelled = decodes(case.text), validates(case.text)
        if (decoded is not None and decoded != case.accepted) or modelled != case.accepted:
            wrong.append((str(case.token)[:60], case.accepted, decoded, modelled))
    assert wrong == []


def within(schema: dict[str, Any], step: str | int) -> dict[str, Any]:
    """The schema of a part of what a schema describes."""
    forms = [schema]
    for form in forms:  # which grow meanwhile
        if "$ref" in form:
            forms.append(_follow(SCHEMA.schema, form["$ref"]))
        forms += form.get("anyOf", ())
    if isinstance(step, int):
        found = [form.get("items") for form in forms]
    else:
        found = [form.get("properties", {}).get(step) for form in forms]
        found += [form.get("additionalProperties") for form in forms]
    return next(one for one in found if isinstance(one, dict))


@pytest.mark.parametrize("field", FIELDS, ids=str)
def test_the_schema_gives_the_models_verdict(field: Field) -> None:
    """The exceptions are the few things that JSON Schema cannot express.

    Of events, the object that has the field is validated, and all of it for the first values.
    """
    schema = {"$ref": f"#/$defs/{MODELS[field.type].__name__}"}
    for step in field.path[:-1]:
        schema = within(schema, step)
    validator = SCHEMA if field.path == ("type",) else SCHEMA.evolve(schema=schema)
    wrong = []
    for number, case in enumerate(cases(field)):
        if case.token is not None and len(case.token) > 4_300:
            continue
        event = part = json.loads(case.text)
        for step in field.path[:-1]:
            part = part[step]
        valid = validator.is_valid(part)
        if number < WHOLE:
            assert SCHEMA.is_valid(event) == valid
        excused = SCHEMA_IS_WEAKER if valid else SCHEMA_IS_STRICTER
        if valid != case.accepted and case.token not in excused:
            wrong.append((str(case.token)[:60], case.accepted, valid))
    assert wrong == []


def test_the_corpus_has_every_field() -> None:
    """A field added to the models must be added to the corpus."""
    definitions = json_schema()["$defs"]
    named = {step for field in FIELDS for step in field.path if isinstance(step, str)}
    published = {name for model in definitions.values() for name in model["properties"]}
    assert published <= named


# --- mutations ------------------------------------------------------------------------------------

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 6)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["doc_id", "search", "skip", "forget", "x" * 64, "x" * 65, "x" * 129])
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
_NAMES = st.sampled_from(sorted({s for f in FIELDS for s in f.path if isinstance(s, str)}))


def _places(node: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = node.items() if isinstance(node, dict) else enumerate(node)
    places = []
    for step, value in inner:
        places.append((*place, step))
        if isinstance(value, dict | list):
            places += _places(value, (*place, step))
    return places


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A valid event with one to four changes."""
    event = copy.deepcopy(FULL[draw(st.sampled_from(sorted(FULL)))])
    for _ in range(draw(st.integers(1, 4))):
        places = _places(event)
        if not places:
            break
        *above, last = draw(st.sampled_from(places))
        node: Any = event
        for step in above:
            node = node[step]
        match draw(st.sampled_from(["drop", "set", "copy", "add", "repeat"])):
            case "drop":
                del node[last]
            case "set":
                node[last] = draw(_JSON)
            case "copy":
                other = FULL[draw(st.sampled_from(sorted(FULL)))]
                node[last] = copy.deepcopy(other[draw(st.sampled_from(sorted(other)))])
            case "add" if isinstance(node, dict):
                node[draw(_NAMES | st.text(max_size=3))] = draw(_JSON)
            case _ if isinstance(node, list):
                node.append(copy.deepcopy(node[last]))
            case _:
                node[last] = [node[last]]
    return json.dumps(event, ensure_ascii=draw(st.booleans()))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(mutated())
def test_decoder_and_models_agree_about_mutated_events(text: str) -> None:
    """They give the same verdict after any changes to a valid event."""
    decoded = decodes(text)
    assert decoded is None or decoded == validates(text)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(mutated())
def test_the_schema_accepts_everything_that_the_models_accept(text: str) -> None:
    """A producer who validates by the schema loses no event that the worker would accept."""
    event = json.loads(text)
    grades = event.get("relevant")
    if isinstance(grades, dict) and any(not 1 <= len(doc) <= 256 for doc in grades):
        return
    if validates(text):
        assert SCHEMA.is_valid(event)


# --- the documents --------------------------------------------------------------------------------


def test_the_page_of_rejections_explains_every_reason_once() -> None:
    """In the order in which a decoder finds them."""
    assert tuple(REJECTIONS) == REASONS


@pytest.mark.parametrize("schema", [json_schema(), row_schema()], ids=["events", "row"])
def test_the_schema_is_valid_and_self_contained(schema: dict[str, Any]) -> None:
    """It is a draft 2020-12 schema whose references and id need no network."""
    Draft202012Validator.check_schema(schema)
    assert schema["$id"].startswith("urn:")
    assert all(ref.startswith("#/$defs/") for ref in _refs(schema))


@pytest.mark.parametrize("schema", [json_schema(), row_schema()], ids=["events", "row"])
def test_every_field_is_described(schema: dict[str, Any]) -> None:
    """Every published model and field has a description, except the tag itself."""
    silent = [
        f"{model}.{name}"
        for model, definition in schema["$defs"].items()
        for name, field in definition["properties"].items()
        if name != "type" and not field.get("description")
    ]
    assert silent == []
    assert all(definition["description"] for definition in schema["$defs"].values())


@pytest.mark.slow
def test_published_examples_are_accepted() -> None:
    """The events and single values in the documents are valid."""
    for example in json_schema()["examples"]:
        assert decodes(json.dumps(example))
        assert SCHEMA.is_valid(example)
    for name, definition in json_schema()["$defs"].items():
        for field, schema in definition["properties"].items():
            ref = {"$ref": f"#/$defs/{name}/properties/{field}"}
            validator = Draft202012Validator({**json_schema(), "oneOf": [ref]})
            assert all(validator.is_valid(value) for value in schema.get("examples", ()))


def _refs(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [ref for value in node.values() for ref in _refs(value)]
    return [ref for item in node for ref in _refs(item)] if isinstance(node, list) else []


def _follow(document: Any, ref: str) -> Any:
    assert ref.startswith("#/")
    for step in ref[2:].split("/"):
        document = document[step]
    return document


INPUTS = ("search-iterations", "relevance-labels")


def test_the_asyncapi_document_is_complete() -> None:
    """It has the parts that version 3.0 requires, and no dangling reference."""
    document = asyncapi()
    assert document["asyncapi"] == "3.0.0"
    assert {"title", "version"} <= set(document["info"])
    assert all(_follow(document, ref) for ref in _refs(document))
    for channel in document["channels"].values():
        assert set(channel) <= {"address", "description", "messages", "bindings"}
        assert channel["bindings"]["kafka"]["topic"] == channel["address"]
    for operation in document["operations"].values():
        assert set(operation) <= {"action", "channel", "summary"}
        assert operation["action"] in ("receive", "send")
        address = _follow(document, operation["channel"]["$ref"])["address"]
        assert (operation["action"] == "receive") == (address in INPUTS)
    addresses = [channel["address"] for channel in document["channels"].values()]
    assert sorted(addresses) == sorted(
        [*INPUTS, *(f"{topic}.dlq" for topic in INPUTS), "conversation-rows"]
    )


def test_every_event_type_is_a_message_of_every_input_topic() -> None:
    """Its key is the conversation."""
    document = asyncapi()
    messages = document["components"]["messages"]
    for channel in ("searchIterations", "relevanceLabels"):
        assert set(document["channels"][channel]["messages"]) == set(MODELS)
    for kind, model in MODELS.items():
        assert messages[kind]["payload"] == {"$ref": f"#/components/schemas/{model.__name__}"}
        assert messages[kind]["bindings"]["kafka"]["key"]["maxLength"] == 128
        assert isinstance(EVENT.validate_python(messages[kind]["examples"][0]["payload"]), model)
    assert set(messages["dead_letter"]["headers"]["properties"]) == set(DEAD_LETTER_HEADERS)


def rows() -> list[dict[str, Any]]:
    """Rows of all kinds: of generated traffic and of the example streams, for every turn."""
    replay = Replay(turn_scope="all")
    for record in generate(TrafficProfile(seed=3, conversations=40)):
        replay.feed(Record(record.value, record.key, record.timestamp_ms))
    for path in sorted((ROOT / "examples").glob("*.jsonl")):
        if not path.name.endswith(".expected.jsonl"):
            for line in path.read_bytes().splitlines():
                replay.feed(Record(line))
    return replay.rows()


def _like(value: Any, model: type[BaseModel]) -> None:
    """Fail unless a part of a row has the model's fields in the model's order, at any depth."""
    absent = {"labelled_by"} - value.keys()
    assert list(value) == [name for name in model.model_fields if name not in absent]
    parsed = model.model_validate(value)
    dumped = parsed.model_dump_json(exclude_unset=True)
    assert json.loads(dumped) == json.loads(json.dumps(value))


def test_rows_have_the_published_form() -> None:
    """They have the fields of the models, in that order, and satisfy the JSON Schema."""
    validator = Draft202012Validator(row_schema())
    found = rows()
    assert len(found) > 50
    for row in [*found, ROW_EXAMPLE]:
        _like(row, Row)
        for name, model in (
            ("gate", RowGate),
            ("routing", RowRouting),
            ("reranking", RowReranking),
        ):
            _like(row[name], model)
        for iteration in row["iterations"]:
            _like(iteration, RowIteration)
        assert validator.is_valid(row)
    assert validator.is_valid(found)
    assert validator.is_valid(None)
    assert not validator.is_valid({**found[0], "srr": 1.5})
    assert not validator.is_valid({key: found[0][key] for key in list(found[0])[1:]})


def test_shared_examples_are_valid() -> None:
    """The example streams in the repository follow the contract."""
    streams = [
        path
        for path in sorted((ROOT / "examples").glob("*.jsonl"))
        if not path.name.endswith(".expected.jsonl")
    ]
    lines = [line for path in streams for line in path.read_text(encoding="utf-8").splitlines()]
    for line in lines or [json.dumps(model.example) for model in MODELS.values()]:
        assert SCHEMA.is_valid(json.loads(line)), line
        assert validates(line), line
        assert decodes(line), line
