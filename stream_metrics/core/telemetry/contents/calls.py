"""Tool calls and their results in the messages of model calls.

A model's answer has the calls with their arguments, the input of the next model call their results,
each by the id of the call. Instrumentations write these messages as JSON, as events, or as
attributes with numbers in their names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from stream_metrics.core.telemetry.contents.documents import MAX_DEPTH
from stream_metrics.core.telemetry.contents.literals import parse_value
from stream_metrics.core.telemetry.spans import Span, text

_OUTPUTS: Final = (
    "gen_ai.output.messages",
    "ai.response.toolCalls",
    "output.value",
    "traceloop.entity.output",
    "langfuse.observation.output",
    "mlflow.spanOutputs",
    "gen_ai.completion",
    "gcp.vertex.agent.llm_response",
)
_INPUTS: Final = (
    "gen_ai.input.messages",
    "ai.prompt.messages",
    "input.value",
    "traceloop.entity.input",
    "langfuse.observation.input",
    "mlflow.spanInputs",
    "gen_ai.prompt",
    "gcp.vertex.agent.llm_request",
)
_CONVERSATIONS: Final = ("pydantic_ai.all_messages", "all_messages_events")
_NUMBERED_OUTPUTS: Final = ("llm.output_messages.", "gen_ai.completion.")
_NUMBERED_INPUTS: Final = ("llm.input_messages.", "gen_ai.prompt.")
_INPUT_EVENTS: Final = ("gen_ai.tool.message", "gen_ai.user.message")
_GIVEN_EVENTS: Final = (*_INPUT_EVENTS, "gen_ai.assistant.message")
_CALL_IDS: Final = ("tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "call_id", "callId")
_NAMING_CALLS: Final = frozenset((*_CALL_IDS, "id"))
_RESULTS: Final = ("content", "output", "response", "result")
_REQUESTS: Final = re.compile(r"tool[_-]?call|tool[_-]?use|function", re.IGNORECASE)
_MAY_CALL: Final = re.compile(r"tool|call|function|grounding|search_results", re.IGNORECASE)


class ToolCall(NamedTuple):
    """A call that a model's answer requests.

    ``number`` names a call without an id among those of its name.
    """

    id: str
    name: str
    arguments: Any
    number: str = ""

    def result(self, told: dict[str, Any]) -> Any:
        """Its result among those of ``results_of``; None if it is not there."""
        return told.get(self.id, told.get(self.number))


def calls_of(span: Span) -> list[ToolCall]:
    """The tool calls in a model's answer, in order, each id once.

    >>> answer = '[{"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "f"}]}]'
    >>> calls_of(Span("t", "s", "", 0, 1, False, {"gen_ai.output.messages": answer}, {}))
    [ToolCall(id='c', name='f', arguments=None, number='')]
    """
    found: dict[str, ToolCall] = {}
    if not any(map(_REQUESTS.search, texts_of(span))):
        return []
    for message in answers_of(span):
        for one in walk(message):
            call = _call(one)
            if call is not None:
                found.setdefault(call.id, call)
        if not found and (unnamed := [*_without_ids(walk(message), span)]):
            return unnamed
    return [*found.values()]


def calls_given(span: Span) -> list[ToolCall]:
    """The tool calls in what a model was given, which earlier answers requested, each id once."""
    found: dict[str, ToolCall] = {}
    for message in _messages(span, _INPUTS, _NUMBERED_INPUTS, _GIVEN_EVENTS):
        for one in walk(message):
            if (call := _call(one)) is not None:
                found.setdefault(call.id, call)
    return [*found.values()]


def is_recorded(span: Span, answer: bool) -> bool:
    """Whether a span has a model's answer, or else what the model was given."""
    names = _OUTPUTS if answer else _INPUTS
    numbered = _NUMBERED_OUTPUTS if answer else _NUMBERED_INPUTS
    events = ("gen_ai.choice",) if answer else _GIVEN_EVENTS
    return (
        any(span.value(name) is not None for name in names)
        or any(name.startswith(numbered) for name in span.attributes)
        or any(event.name in events for event in span.events)
    )


def _without_ids(objects: Iterable[dict[str, Any]], span: Span) -> Iterator[ToolCall]:
    """The calls that have no ids, such as Gemini's; of equal ones each is the next."""
    calls: _CallsWithoutIds | None = None
    for one in objects:
        if _call_without_id(one) is None:
            continue
        if calls is None:
            calls = _given(span)
        if (call := calls.add(one)) is not None:
            yield call


class _CallsWithoutIds:
    """Calls without ids and their results, as they follow each other in messages.

    The id of a call is made of its name, its arguments, and how many equal ones were before it.
    """

    def __init__(self) -> None:
        self._equal: Counter[str] = Counter()
        self._numbers: Counter[str | None] = Counter()
        self._calls: list[ToolCall] = []
        self._answers: list[tuple[str | None, Any]] = []
        self._results: dict[str, Any] = {}

    def add(self, one: dict[str, Any]) -> ToolCall | None:
        """Note the object; the call if it is one."""
        if (response := _response(one)) is not None:
            self._answers.append(response)
            return None
        if (asked := _call_without_id(one)) is None:
            return None
        if self._answers:
            self._join()
        written = json.dumps(asked, sort_keys=True, default=str).encode()
        id = hashlib.blake2b(written, digest_size=8).hexdigest()
        place = self._numbers[asked[0]] + sum(one.name == asked[0] for one in self._calls)
        call = ToolCall(f"{id}#{self._equal[id]}", *asked, f"{asked[0]}#{place}")
        self._equal[id] += 1
        self._calls.append(call)
        return call

    def results(self) -> dict[str, Any]:
        """The results by the ids of the calls."""
        self._join()
        return self._results

    def _join(self) -> None:
        """Join the calls of a message with their results, unless some have none.

        Results without calls, in messages that leave these out, have a number.
        """
        for name in {name for name, _ in self._answers}:
            calls = [one for one in self._calls if name in (None, one.name)]
            answers = [answer for of, answer in self._answers if of == name]
            if len(calls) == len(answers):
                ids = (call.id for call in calls)
                self._results.update(zip(ids, answers, strict=True))
            elif not self._equal:
                numbers = (f"{name}#{place}" for place in range(len(answers)))
                self._results.update(zip(numbers, answers, strict=True))
            self._numbers[name] += len(answers)
        self._calls, self._answers = [], []


def _given(span: Span) -> _CallsWithoutIds:
    """The calls without ids in what a model was given; the first form that has some suffices."""
    for message in _messages(span, _INPUTS, _NUMBERED_INPUTS, _INPUT_EVENTS):
        calls = _CallsWithoutIds()
        for one in walk(message):
            calls.add(one)
        if calls.results():
            return calls
    return _CallsWithoutIds()


def _call_without_id(value: dict[str, Any]) -> tuple[str, Any] | None:
    """The name and the arguments of a call in one of Gemini's messages, or in one made of them."""
    inner = value.get("functionCall", value.get("function_call"))
    if isinstance(inner, dict) and "args" in inner:
        name, asked = text(inner.get("name")), inner["args"]
    elif value.get("type") == "tool_call" and text(value.get("id")) is None:
        name, asked = text(value.get("name")), value.get("arguments")
    else:
        return None
    return None if name is None else (name, asked)


def _response(value: dict[str, Any]) -> tuple[str | None, Any] | None:
    """The name of a function and its result in such messages; they may leave out the name."""
    inner = value.get("functionResponse", value.get("function_response"))
    if isinstance(inner, dict) and inner.get("response") is not None:
        name = text(inner.get("name"))
        return None if name is None else (name, inner["response"])
    if value.get("type") != "tool_call_response" or text(value.get("id")) is not None:
        return None
    found = value.get("response", value.get("result"))
    return None if found is None else (text(value.get("name")), found)


def texts_of(span: Span) -> Iterator[str]:
    """The texts of a span and its events, and the names of its attributes."""
    yield from span.attributes
    for attributes in (span.attributes, *(event.attributes for event in span.events)):
        for value in attributes.values():
            if isinstance(value, str):
                yield value


def answers_of(span: Span) -> Iterator[Any]:
    """The messages of a model's answer, in each form in which the span has them."""
    return _messages(span, _OUTPUTS, _NUMBERED_OUTPUTS, ("gen_ai.choice",))


def answer_is_lost(span: Span) -> bool:
    """Whether limits cut off or dropped a model's answer, so that it may have had more calls."""
    values = [value for name in _OUTPUTS if isinstance(value := span.value(name), str)]
    if not values:
        return span.dropped_attributes > 0
    return _are_cut_off(values)


def is_given_lost(span: Span) -> bool:
    """Whether limits cut off what a model was given, so that it may have had more results."""
    return _are_cut_off([value for name in _INPUTS if isinstance(value := span.value(name), str)])


def _are_cut_off(values: Iterable[str]) -> bool:
    begun = [value for value in values if value.lstrip()[:1] in ("[", "{")]
    return bool(begun) and all(parse_value(value) is None for value in begun)


def results_of(span: Span, whole: bool = False) -> dict[str, Any]:
    """The latest result of each tool call in what a model was given, by the calls' ids.

    ``whole`` is whether to look at all messages of an agent's span instead.
    """
    found: dict[str, Any] = {}
    names = (*_INPUTS, *_CONVERSATIONS, *_OUTPUTS) if whole else _INPUTS
    for message in _messages(span, names, _NUMBERED_INPUTS, _INPUT_EVENTS):
        calls = _CallsWithoutIds()
        called: list[str] = []
        answers: list[tuple[str, Any]] = []
        for one in walk(message):
            if (result := _result(one)) is not None:
                answers.append(result)
                continue
            if (call := _call(one)) is None:
                calls.add(one)
                continue
            if answers:
                found |= _joined(called, answers)
                called, answers = [], []
            called.append(call.id)
        found |= _joined(called, answers)
        if results := calls.results():
            return found | results  # the same messages in another form would be counted again
    return found


def was_given_results(span: Span) -> bool:
    """Whether a model was given a tool's result after what a user wrote last."""
    given = False
    for message in _messages(span, _INPUTS, _NUMBERED_INPUTS, _INPUT_EVENTS):
        for one in walk(message):
            if one.get("role") in ("user", "human"):
                given = False
            elif _result(one) is not None or _response(one) is not None:
                given = True
    return given


def _joined(called: list[str], answers: list[tuple[str, Any]]) -> dict[str, Any]:
    """The results after the calls of a message; the only one is that of the only call, even if
    their ids differ, as OpenLLMetry's of OpenAI's responses do."""
    found = dict(answers)
    if len(called) == len(answers) == 1:
        found.setdefault(called[0], answers[0][1])
    return found


def _messages(
    span: Span, names: Iterable[str], numbered: Iterable[str], events: Iterable[str]
) -> Iterator[Any]:
    """What a span has of messages; the first attribute that has tool calls suffices."""
    values = [span.attributes.get(name) for name in names]
    for event in span.events:
        values += [event.attributes.get(name) for name in names]
        if event.name in events:
            values += [event.attributes.get(name) for name in ("message", "content", "tool_calls")]
            role = {"role": "tool"} if event.name == "gen_ai.tool.message" else {}
            yield {**role, **event.attributes}
    for value in values:
        if isinstance(value, str) and _MAY_CALL.search(value):
            value = parse_value(value)
        if isinstance(value, (dict, list)):
            yield value
    for prefix in numbered:
        yield from _unflattened(span.attributes, prefix)


def _unflattened(attributes: dict[str, Any], prefix: str) -> Iterator[Any]:
    """The objects that attributes such as ``llm.input_messages.0.message.role`` stand for."""
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(prefix):
            place = root
            *path, last = name[len(prefix) :].split(".")
            for key in path:
                inner = place.setdefault(key, {})
                if not isinstance(inner, dict):
                    break
                place = inner
            else:
                place[last] = value
    for key in sorted(root, key=lambda key: (len(key), key)):
        yield root[key]


def walk(value: Any, depth: int = 0) -> Iterator[dict[str, Any]]:
    """The objects in a value, also in JSON; what a tool was given or returned is left alone."""
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        if value[:1] in ("[", "{") and _MAY_CALL.search(value):
            yield from walk(parse_value(value), depth + 1)
    elif isinstance(value, list):
        for one in value:
            yield from walk(one, depth + 1)
    elif isinstance(value, dict):
        yield value
        if _result(value) is None and _call(value) is None:
            for one in value.values():
                yield from walk(one, depth + 1)


def _call(value: dict[str, Any]) -> ToolCall | None:
    """The tool call that an object is, in one of the forms of the providers."""
    if "toolUse" in value and isinstance(value["toolUse"], dict):
        value = value["toolUse"]
    inner = value.get("tool_call", value.get("function"))
    if not isinstance(inner, dict) and "name" not in value and "toolName" not in value:
        return None
    about: dict[str, Any] = inner if isinstance(inner, dict) else {}
    function = about.get("function")
    about = {**about, **function} if isinstance(function, dict) else about
    id = _first(value, ("toolCallId", "toolUseId", "call_id", "id")) or _first(about, ("id",))
    name = text(value.get("name")) or text(value.get("toolName")) or text(about.get("name"))
    asked = next(
        (
            holder[key]
            for holder in (value, about)
            for key in ("arguments", "input", "args")
            if holder.get(key) is not None
        ),
        None,
    )
    kind = value.get("type")
    says = kind in ("tool_call", "tool-call", "tool_use", "function_call", "function") or (
        asked is not None
        and (bool(about) or not {"toolName", "toolUseId", "args", "arguments"}.isdisjoint(value))
    )
    if id is None or name is None or not says or "parameters" in about or "parameters" in value:
        return None
    return ToolCall(
        id,
        name.strip("'\""),
        parse_value(asked) if isinstance(asked, str) and asked[:1] in ("{", "[") else asked,
    )


def _result(value: dict[str, Any]) -> tuple[str, Any] | None:
    """The id of a call and its result, if the object is one, in one of the forms."""
    inner = value.get("toolResult")
    if isinstance(inner, dict):
        value = inner
    if _NAMING_CALLS.isdisjoint(value):
        return None
    id = _first(value, _CALL_IDS)
    if id is None and value.get("type") in (
        "tool_call_response",
        "tool_result",
        "function_call_output",
    ):
        id = _first(value, ("id",))
    if id is None and value.get("role") == "tool":
        id = _first(value, ("id",))
    if id is None:
        return None
    if value.get("type") in ("tool_call", "tool-call", "tool_use", "function_call"):
        return None
    if "input" in value or "arguments" in value or "args" in value:
        return None
    return next(((id, value[key]) for key in _RESULTS if value.get(key) is not None), None)


def _first(value: dict[str, Any], names: Iterable[str]) -> str | None:
    return next((found for name in names if (found := text(value.get(name))) is not None), None)


def latest_results(span: Span, ids: Collection[str]) -> dict[str, Any]:
    """The latest results of these calls in what a model was given, which stand at the end of it."""
    found: dict[str, Any] = {}
    numbered = ([*_unflattened(span.attributes, prefix)] for prefix in _NUMBERED_INPUTS)
    for value in chain(numbered, _messages(span, _INPUTS, (), _INPUT_EVENTS)):
        lists = value.values() if isinstance(value, dict) else [value]
        for messages in lists:
            for message in reversed(messages) if isinstance(messages, list) else ():
                for one in walk(message):
                    if (result := _result(one)) is not None and result[0] in ids:
                        found.setdefault(*result)
                if len(found) == len(ids):
                    return found
    return found


def mentions(span: Span, ids: Iterable[str]) -> bool:
    """Whether a span has one of these ids of calls in a text."""
    texts = [*texts_of(span)]
    return any(id in each for id in ids for each in texts)
