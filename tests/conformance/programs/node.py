"""Runs programs of JavaScript frameworks, whose tools and model are in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.conformance.programs.corpus import Turn
from tests.conformance.programs.running import Run
from tests.conformance.programs.served import Served, of_scenarios


def programs(file: str, more: Sequence[str] = ()) -> dict[str, Any]:
    """The programs of a file, in all scenarios."""

    def program(run: Run, scenario: str, _: Any) -> Any:
        node = subprocess.Popen(
            ["node", f"{os.environ['NODE_PROGRAMS']}/{file}.mjs", sys.argv[1], scenario],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "MODEL_ADDRESS": Served(run).address,
                "TRACES_ADDRESS": run.telemetry.endpoint,
            },
        )
        run.telemetry.node = node

        def ask(turn: Turn) -> None:
            print(
                json.dumps({"session": turn.session, "question": turn.question}),
                file=node.stdin,
                flush=True,
            )
            while (said := node.stdout.readline()) != "done\n":
                if not said:
                    raise SystemExit(f"node ended with {node.wait()}")

        return ask

    return of_scenarios(program, more)
