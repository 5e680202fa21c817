"""Free ports: no two processes of a machine get the same one."""

from __future__ import annotations

import subprocess
import sys

from deploy.local.process import PORTS, free_port

ASK_FOR = """
from deploy.local import process
process.PORTS = range({port}, {port} + 1)
process.free_port()
"""


def test_a_port_is_given_to_one_process_only() -> None:
    """This holds even before the process listens on it."""
    port = free_port()
    assert port in PORTS

    asked = subprocess.run(
        [sys.executable, "-c", ASK_FOR.format(port=port)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert "ServerFailed: no free port" in asked.stderr
