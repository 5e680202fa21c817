"""Agents of Mastra."""

from tests.conformance.programs.node import programs
from tests.conformance.programs.running import main

if __name__ == "__main__":
    main("mastra", programs("mastra", ("subagent", "stream")))
