"""What ``stream-metrics explain`` prints."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from stream_metrics.cli.common import printable
from stream_metrics.cli.trace_files import named_first
from stream_metrics.core.telemetry import page_ids_message
from stream_metrics.core.telemetry.explanation import TO_RECORD
from stream_metrics.core.telemetry.interpretation import FOLLOWING

_COPIED: Final = re.compile(
    r"; (if that scope is the one to use, set |say which it is: |if it (has|is none)[^:]*: "
    r"|if none of them is a search: )otlp\..*",
    re.DOTALL,
)
"""The rows at the end of a message, which are tried and printed by themselves."""
INDENT: Final = 2
PLACE_OF_SETTINGS: Final = (
    "Settings belong above the first [section] of the settings file, or without `otlp.` below its "
    "[otlp]."
)
REFUSED: Final = "yellow"
MAX_SHOWN: Final = 50
"""The most tools of an agent that are printed."""
HEADS: Final = 13
"""The columns of the words before each line about a tool."""


def print_explanation(documents: Iterable[Mapping[str, Any]], name: str) -> None:
    """Print what ``as_documents`` returns."""
    # A terminal's or a file's encoding may lack characters of names, texts and ellipses.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False)
    about, *rest = documents
    rows = any(one.get("effects") or one.get("to_record") for one in rest)
    for line in _of_traces(about, printable(name)):
        _print_wrapped(console, line, 0)
    while rest:
        agent, *rest = rest
        tools = [*takewhile(lambda one: one["what"] == "tool", rest)]
        rest = rest[len(tools) :]
        _print_agent(console, agent, tools)
    if rows:
        console.print()
        _print_wrapped(console, PLACE_OF_SETTINGS, 0)


def _print_agent(
    console: Console, agent: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]
) -> None:
    console.print()
    _print_wrapped(console, _agent_title(agent), 0, "bold")
    for line in _of_agent(agent, {tool["name"] for tool in tools}):
        _print_wrapped(console, line, INDENT, REFUSED if line.startswith("refused") else "")
    if (effect := agent["together"]) is not None:
        head = f"what follows together, {effect['condition']}:"
        _print_row(console, head, effect, INDENT, turns_only=False)
    most = sorted(tools, key=lambda tool: -tool["spans"])[:MAX_SHOWN]
    for tool in (tool for tool in tools if tool in most):
        console.print()
        _print_wrapped(console, _tool_title(tool), INDENT, "cyan")
        for head, said in _lines(tool):
            style = REFUSED if head == "refused" else ""
            _print_wrapped(console, printable(said), INDENT + HEADS, style, head)
        _print_rows(console, tool)
    if further := len(tools) - len(most):
        console.print()
        said = f"{further:,} more with fewer spans; --format json lists them"
        _print_wrapped(console, said, INDENT)


def _print_wrapped(
    console: Console, said: str, indent: int, style: str = "", first: str = ""
) -> None:
    """Print a text in lines with this indent, after ``first`` in front of it, without spaces at
    their ends."""
    for line in Text(said, style).wrap(console, max(console.width - indent, 20)):
        line.rstrip()
        head = f"{'':{INDENT * 2}}{first}" if first else ""
        console.print(Text.assemble((f"{head:{indent}}", "dim"), line), soft_wrap=True)
        first = ""


def _number(count: int, what: str, several: str | None = None) -> str:
    return f"{count:,} {what if count == 1 else several or what + 's'}"


def _of_traces(one: Mapping[str, Any], name: str) -> Iterator[str]:
    yield f"{name}: {_number(one['traces'], 'trace')} with {_number(one['spans'], 'span')}"
    if one["conflicting"]:
        yield (
            f"{_number(one['repeated'], 'span has', 'spans have')} the ids of others and are left "
            f"out, {one['conflicting']:,} of them with other contents: give captures of different "
            "programs with the same ids one by one"
        )
    elif one["repeated"]:
        said = _number(one["repeated"], "span is a copy", "spans are copies")
        yield f"{said} of others, which count once"
    if one["empty"]:
        said = _number(one["empty"], "trace has", "traces have")
        names = ", ".join(map(printable, one.get("empty_names", ())))
        scopes = ", ".join(
            f"{printable(scope) or 'no scope'} ({number:,})"
            for scope, number in one["empty_scopes"].items()
        )
        yield (
            f"{said} neither a search nor a turn in which a model answered"
            f"{': ' if names else ''}{names}; spans by scope: {scopes}; there is nothing to do "
            "unless you expected searches there"
        )
    if one["others"]:
        kinds = ", ".join(f"{kind} ({number:,})" for kind, number in one["others"].items())
        where = printable(named_first(one["others_in"]))
        yield f"left aside are records that are no traces: {kinds}, in {where}"
    if one["tools_not_listed"]:
        yield f"{one['tools_not_listed']:,} spans are of further tools, which are not listed"
    if one["tools_not_tried"]:
        yield f"no settings were tried for {one['tools_not_tried']:,} tools with the fewest spans"


def _agent_title(one: Mapping[str, Any]) -> str:
    name = one["name"]
    return "Agent without a name" if name is None else f"Agent {printable(name)}"


def _of_agent(one: Mapping[str, Any], told: Container[str]) -> Iterator[str]:
    turns = one["turns"]
    said = f"{_number(turns, 'turn')} with {_number(one['searches'], 'search', 'searches')}"
    said += f" and {_number(one['results'], 'result')}" if one["searches"] else ""
    said = f"counted: {said}"
    if one["skipped"]:
        decided = _number(one["skipped"], "is a decision", "are decisions")
        said += f"; {decided} not to search"
    yield said
    if one["refused"]:
        reasons = ", ".join(
            f"{reason} ({_number(number, 'time')})" for reason, number in one["refused"].items()
        )
        turns = one["refused_turns"]
        whole = f"{_number(turns, 'turn')}: " if turns else ""
        yield f"refused: {whole}{reasons}"
    if one["roles"]:
        yield "spans: " + ", ".join(f"{number:,} {role}" for role, number in one["roles"].items())
    if unknown := [name for name in one.get("without_role", ()) if name not in told]:
        named = ", ".join(map(printable, unknown))
        yield (
            f"spans without a role, which are passed over: {named}; if one searches, give it a "
            "role in otlp.rows"
        )
    if one["unnamed"]:
        yield (
            f"{_number(one['unnamed'], 'turn')} in traces that name no conversation, so that each "
            "trace counts as one: name the attribute in otlp.conversation"
        )
    if one["inferred"]:
        yield (
            f"iterations of {_number(one['inferred'], 'turn')} are told apart by times only "
            "(iterations_inferred): SRR and SRE hold, and figures by iteration may not"
        )
    if one["following"]:
        yield f"{_number(one['following'], 'turn')} of it follow one of another agent; {FOLLOWING}"
    if one["page_ids"]:
        yield page_ids_message(one["name"], one["page_ids"])


def _tool_title(one: Mapping[str, Any]) -> str:
    if not one["name"]:
        return "Traces"
    kind = one["kind"]
    if kind in ("span", "turn"):
        role = next(iter(one["roles"]))
        kind = role if role in ("turn", "model", "step") else "span"
    return f"{kind.capitalize()} {printable(one['name'])}"


def _lines(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    outcomes, spans = one["outcomes"], one["spans"]
    parts = [_number(number, *_OUTCOMES[outcome]) for outcome, number in outcomes.items()]
    yield "spans", parts[0] if len(parts) == 1 else f"{spans:,}: {', '.join(parts)}"
    if one["why"]:
        yield "role", f"{_most(one['roles'])}: {_most(one['why'])}"
    if one["shapes"]:
        yield "shape", _most(one["shapes"])
        yield "read from", _most(one["places"])
    if searches := outcomes.get("search", 0):
        yield "results", _results(one, searches)
    if one["identified"]:
        by = one["identified"]
        yield "identity", f"by {_most(by)}"
    yield from _refused(one)
    if one.get("example"):
        yield "example", one["example"]
    elif one.get("recorded"):
        yield "not read", one["recorded"]
    elif one["blank_lines"]:
        fewest, most = one["blank_lines"]
        each = f"{fewest:,} to {most:,} blank lines" if fewest < most else ""
        yield "not read", f"texts with {each or _number(most, 'blank line')} each"


def _results(one: Mapping[str, Any], searches: int) -> str:
    fewest, most = one["fewest"], one["most"]
    each = f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}"
    said = f"{each} a search, {one['results']:,} in all" if searches > 1 else each
    if one["empty"]:
        said += f"; {_number(one['empty'], 'search', 'searches')} found nothing"
    return said


def _refused(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not one["refused"]:
        return
    number, spans, own = sum(one["refused"].values()), one["spans"], one["own"]
    yield "refused", f"{number:,} of {spans:,} ({number / spans:.0%}): {_most(one['refused'])}"
    for reason, message in one["messages"].items():
        which = f"{reason}: " if len(one["refused"]) > 1 else ""
        yield "", which + _COPIED.sub("", message)
    if one["faults"]:
        yield "", f"because something else in the same turn is refused: {_most(one['faults'])}"
    helped = bool(one["effects"])
    if "unseen_searches" in own:
        helped = any(effect["searches"] for effect in one["effects"])
    for reason in own:
        if reason == "left_out":
            yield "", "as you chose: there is nothing to do unless these traces count"
        elif not helped or reason not in _HAVE_ROWS:
            yield "", f"what helps: {one['help'][reason]}"


_HAVE_ROWS: Final = {
    "ambiguous_documents",
    "incomplete",
    "no_conversation",
    "no_identity",
    "outside_turn",
    "two_scopes",
    "unrecognised",
    "unseen_searches",
}
"""Reasons against which settings are tried."""
_OUTCOMES: Final = {
    "search": ("search", "searches"),
    "inside": ("part of another search", "parts of other searches"),
    "around": ("around a search", "around searches"),
    "no search": ("that is no search", "that are no searches"),
    "refused": ("refused", "refused"),
}


def _most(counts: Mapping[str, int]) -> str:
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{name} ({number:,})" for name, number in counts.items())


def _print_rows(console: Console, one: Mapping[str, Any]) -> None:
    """The rows to copy, each whole on its line, with what they would give."""
    turns = one["kind"] == "turn"
    if one["to_record"]:
        head = f"if it searches, record its documents as JSON in {TO_RECORD}, and copy this:"
        _print_wrapped(console, head, 2 * INDENT, "dim")
        console.print(Text(f"{'':{2 * INDENT + 2}}{one['to_record']}", "green"), soft_wrap=True)
    for place, effect in enumerate(one["effects"], start=bool(one["to_record"])):
        head = f"{'or, ' if place else 'setting to copy, '}{effect['condition']}:"
        _print_row(console, head, effect, 2 * INDENT, turns_only=turns)
    if further := len(one["not_tried"]):
        said = f"{_number(further, 'more setting was', 'more settings were')} not tried; "
        _print_wrapped(console, f"{said}--format json lists them", 2 * INDENT)


def _print_row(
    console: Console, head: str, effect: Mapping[str, Any], indent: int, *, turns_only: bool
) -> None:
    _print_wrapped(console, head, indent, "dim")
    for line in effect["row"].splitlines():
        console.print(Text(f"{'':{indent + 2}}{line}", style="green"), soft_wrap=True)
    said = f"with this: {_effect(effect, turns_only=turns_only)}"
    _print_wrapped(console, said, indent + 2)


def _effect(one: Mapping[str, Any], *, turns_only: bool) -> str:
    """What a row gives; ``turns_only`` is whether it is about turns instead of searches."""
    calls = one["calls"]
    parts = []
    if one["searches"]:
        parts.append(
            f"{one['searches']:,} of {_number(calls, 'search', 'searches')}, "
            f"{_number(one['results'], 'result')}"
        )
    if one["no_search"]:
        what = "no longer refused" if turns_only else "no search"
        parts.append(f"{one['no_search']:,} of {calls:,} {what}")
    if one["left_out"]:
        parts.append(f"{one['left_out']:,} of {calls:,} left out")
    if one["waiting"]:
        parts.append(
            f"{one['waiting']:,} of {_number(calls, 'span')} all right, in turns that something "
            "else refuses"
        )
    if one["still"]:
        parts.append(f"{one['still']:,} still refused")
    changed = one["turns"] != one["turns_before"]
    if changed and not one["turns_before"]:
        turns = _number(one["turns"], "more turn counts", "more turns count")
    else:
        turns = _number(one["turns"], "turn of these traces counts", "turns of these traces count")
        turns += f" instead of {one['turns_before']:,}" if changed else ", as before"
    if one["no_search"] and not changed and not turns_only:
        others = ", ".join(map(printable, one["refusing"])) or "something else in them"
        turns += f": {others} {'are' if len(one['refusing']) > 1 else 'is'} refused, too"
    if one["all_searches"] > one["searches"]:
        turns += f", with {_number(one['all_searches'], 'search', 'searches')} and "
        turns += _number(one["all_results"], "result")
    if one["skipped"]:
        turns += f", {one['skipped']:,} as a decision not to search"
    parts.append(turns)
    if one["traces"] < one["of_traces"]:
        parts.append(f"tried on {one['traces']:,} of {one['of_traces']:,} traces")
    return "; ".join(parts)
