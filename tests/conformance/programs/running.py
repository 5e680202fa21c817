"""Runs one agent program under one instrumentation, and writes its traces and its account.

``python -m tests.conformance.programs.langchain_programs openinference graph FOLDER``
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from tests.conformance.programs.corpus import OTHER_WORDS, PAGES, Account, Page, Turn, turns
from tests.conformance.programs.exporting import Receiver

Program = Callable[[Turn], Any]


class Run:
    """The context of a program: its instrumentation, and where it writes its account."""

    def __init__(self, telemetry: Any, variants: frozenset[str]) -> None:
        self.telemetry = telemetry
        self.variants = variants
        self.account = Account()
        self.pages: Sequence[Page] = PAGES
        self.skipping = False
        self.rooted = telemetry.rooted
        self.argument = "query"
        self.outer_tools: tuple[str, ...] = ()
        self.heard = ""
        self.closing: list[Callable[[], Any]] = []

    def outer(self, tools: tuple[str, ...]) -> bool:
        """Whether a model with these tools belongs to the agent that calls another."""
        return bool(self.outer_tools) and tools == self.outer_tools

    def plain(self, question: str) -> str:
        """The answer of a model without tools."""
        self.heard = question
        words = next((words for start, words in OTHER_WORDS.items() if start in question), "x")
        if "versions" in question or "queries" in question:
            return f"{words}\n{words.split()[0]} cable"
        return "As it was said."

    def config(self, turn: Turn) -> dict[str, Any]:
        """The configuration that LangChain's callers pass."""
        named = (
            {}
            if "nosession" in self.variants
            else dict.fromkeys(("session_id", "thread_id", "conversation_id"), turn.session)
        )
        return {
            "metadata": {**named, **self.telemetry.metadata(turn, named)},
            "callbacks": self.telemetry.callbacks(),
            "run_name": "workshop",
        }

    def span(self, name: str, turn: Turn) -> Any:
        """A span of the program itself around a turn."""
        return self.telemetry.span(name, "" if "nosession" in self.variants else turn.session)


def main(framework: str, programs: Mapping[str, Callable[[Run], Program]]) -> None:
    """Run the program that the command line names."""
    instrumentation, scenario, folder = sys.argv[1:4]
    variants = frozenset(sys.argv[4:])
    receiver = Receiver()
    from tests.conformance.programs.instruments import started

    telemetry = started(instrumentation, framework, receiver.address, variants)
    run = Run(telemetry, variants)
    program = programs[scenario](run)
    sessions: dict[str, list[Turn]] = {}
    for turn in turns(run.skipping):
        sessions.setdefault(turn.session, []).append(turn)
    for session, of_session in sessions.items():
        with ExitStack() as whole:
            if "onetrace" in variants:
                whole.enter_context(run.span("socket", of_session[0]))
            for turn in of_session:
                with ExitStack() as stack:
                    if run.rooted and "bare" not in variants:
                        stack.enter_context(run.span("turn", turn))
                    if "nosession" not in variants:
                        stack.enter_context(telemetry.session(session))
                    program(turn)
    for close in run.closing:
        close()
    telemetry.flush()
    receiver.close()
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    (out / "traces.jsonl").write_text("".join(line + "\n" for line in receiver.lines()))
    (out / "truth.json").write_text(json.dumps(run.account.rows))
    versions = {one.name.lower().replace("_", "-"): one.version for one in distributions()}
    versions |= {f"npm:{name}": version for name, version in telemetry.packages().items()}
    (out / "versions.json").write_text(json.dumps(versions, indent=1, sort_keys=True))
    os._exit(0)  # threads of SDKs that go on have nothing left to do
