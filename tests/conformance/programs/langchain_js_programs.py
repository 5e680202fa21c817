"""Agents of LangChain.js."""

from tests.conformance.programs.node import programs
from tests.conformance.programs.running import main

if __name__ == "__main__":
    main("langchain_js", programs("langchain_js"))
