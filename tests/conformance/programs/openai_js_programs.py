"""Loops over OpenAI's API in JavaScript, without a framework."""

from tests.conformance.programs.node import programs
from tests.conformance.programs.running import main
from tests.conformance.programs.served import RESPONSES

if __name__ == "__main__":
    main("openai_js", programs("openai_js", (*RESPONSES, "stream")))
