"""Agents of the Vercel AI SDK."""

from tests.conformance.programs.node import programs
from tests.conformance.programs.running import main

if __name__ == "__main__":
    main("ai_sdk", programs("ai_sdk", ("subagent", "stream")))
