"""``python -m deploy.local install | compiler | faketime | doctor | stack``.

Only stack needs our packages.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from deploy.local import install


def main() -> int:
    """Run one of the commands; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m deploy.local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    installing = commands.add_parser("install", help="install the servers that are missing")
    installing.add_argument(
        "--traces", action="store_true", help="also install the OpenTelemetry Collector"
    )
    installing.add_argument(
        "--charts", action="store_true", help="install what checks the Helm chart, and no server"
    )
    installing.add_argument(
        "--tests", action="store_true", help="also install what only the tests need"
    )
    commands.add_parser("compiler", help="install the compilers that are missing")
    commands.add_parser(
        "faketime", help="install the tool with which the fault campaign changes clocks"
    )
    commands.add_parser(
        "doctor", help="list what is installed, what is missing and how to install it"
    )
    stack = commands.add_parser("stack", help="run the whole live system until Ctrl-C")
    stack.add_argument(
        "--traffic",
        choices=["generated", "otel"],
        default="generated",
        help="generated events, or the traces of an agent",
    )
    stack.add_argument(
        "--keep", action="store_true", help="leave data and logs, and say where they are"
    )
    stack.add_argument(
        "--folder",
        type=Path,
        metavar="DIR",
        help="keep data and logs in this folder, and go on with what an earlier stack left there",
    )
    chosen = parser.parse_args()
    if chosen.command == "install":
        if chosen.tests:
            return install.install(install.TESTS, traces=True, fast_start=True)
        if chosen.charts:
            return install.install((install.GO,), charts=True)
        traced = install.TRACED if chosen.traces else install.SERVERS
        return install.install(traced, traces=chosen.traces)
    if chosen.command == "compiler":
        return install.install(install.COMPILERS)
    if chosen.command == "faketime":
        return install.install((install.FAKETIME,))
    if chosen.command == "doctor":
        return install.doctor()
    from deploy.local.stack import main as run_stack  # needs our packages, unlike the others

    return run_stack(chosen.traffic, folder=chosen.folder, keep=chosen.keep)


sys.exit(main())
