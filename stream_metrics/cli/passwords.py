"""The command that hashes a password for the worker's pages."""

from __future__ import annotations

import sys

import typer

from stream_metrics.cli.common import UsageError
from stream_metrics.live.auth import hash_password


def hash_password_command() -> None:
    """Hash a password for [bold]web.users[/bold]; it is asked for, or read from standard input.

    Put the hash into the settings: STREAM_METRICS_WEB__USERS='{"prometheus": "scrypt$…"}', or as a
    line prometheus:scrypt$… into the file that web.users_file names.
    """
    if sys.stdin.isatty():
        password = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    try:
        typer.echo(hash_password(password))
    except ValueError as error:
        raise UsageError(str(error)) from error
