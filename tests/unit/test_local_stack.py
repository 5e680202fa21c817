"""The preparation of ``make stack`` before a server runs: ports and the settings file."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

from deploy.local.process import free_port
from deploy.local.stack import environment_file


def test_a_preferred_port_is_given_if_it_is_free() -> None:
    """A port in use, or given before, is not given."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        in_use = taken.getsockname()[1]
        assert free_port(in_use) != in_use

    assert free_port(in_use) == in_use
    assert free_port(in_use) != in_use


def test_a_shell_reads_every_setting_unchanged(tmp_path: Path) -> None:
    """Quotes, blanks and brackets reach the commands; the file is removed when the stack ends."""
    file = tmp_path / "out" / "stack.env"
    value = """["ndcg@10", "it's $HOME"]"""

    with environment_file(file, {"A_SETTING": value}):
        said = subprocess.run(
            ["sh", "-c", f". {file} && printenv A_SETTING"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    assert said == f"{value}\n"
    assert not file.exists()


def test_the_file_of_a_later_stack_stays(tmp_path: Path) -> None:
    """A stack that ends removes only its own file."""
    file = tmp_path / "stack.env"

    with environment_file(file, {"A_SETTING": "1"}):
        with environment_file(file, {"A_SETTING": "2"}):
            pass
        file.write_text("export A_SETTING=3\n")

    assert file.read_text() == "export A_SETTING=3\n"
