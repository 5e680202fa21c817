"""Agents of Mastra."""

from tests.conformance.programs.node import programs
from tests.conformance.programs.running import main
from tests.conformance.programs.served import AGENTS

if __name__ == "__main__":
    main("mastra", programs("mastra", (*AGENTS, "stream")))
