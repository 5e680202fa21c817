"""A server of the Model Context Protocol whose tool searches: ``mcp_server.py FORM``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[3]


def command(scenario: str) -> dict[str, Any]:
    """How clients start the server of a scenario: mcp returns objects, mcptext a text."""
    form = "objects" if scenario == "mcp" else "headed"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    module = "tests.conformance.programs.mcp_server"
    return {"command": sys.executable, "args": ["-m", module, form], "env": environment}


def main() -> None:
    """Serve on standard input and output."""
    from tests.conformance.programs.served import search_tool

    try:
        from mcp.server.mcpserver import MCPServer
    except ImportError:
        from mcp.server.fastmcp import FastMCP as MCPServer
    server = MCPServer("handbook")
    server.tool()(search_tool(sys.argv[1]))
    server.run()


if __name__ == "__main__":
    main()
