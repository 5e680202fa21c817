"""What commands say when a server is away or input is missing, and their exit codes."""

from __future__ import annotations

import socket
import subprocess
import sys

import numpy as np
import pytest
import typer
from aiokafka.errors import KafkaConnectionError
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from redis import exceptions as redis

from deploy.local.process import free_port
from stream_metrics.cli import refuse_overflow
from stream_metrics.cli.common import UsageError, answered
from stream_metrics.cli.errors import error_lines
from stream_metrics.clients.kafka.rights import error_text, explain
from stream_metrics.clients.kafka.settings import KafkaSettings
from stream_metrics.live.redis.errors import translate_error
from tests.helpers import ran


@pytest.mark.filterwarnings("default")
def test_overflow_is_an_error_of_one_line() -> None:
    """Numpy would warn on standard error, and the figure be infinite or not a number."""
    refuse_overflow()
    array = np.array([1e200, 0.0])

    with pytest.raises(RuntimeWarning, match="overflow encountered") as ended:
        np.var(array)

    (line,) = error_lines(ended.value)
    assert line.startswith("a figure is beyond the range of double precision (overflow")
    with pytest.warns(RuntimeWarning, match="overflow encountered"):
        array * array  # of other modules, such as a rule of relevance


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            redis.ConnectionError("Error 111 connecting to a:1. Connection refused."),
            "Redis is unavailable: Error 111 connecting to a:1. Connection refused",
        ),
        (
            redis.ResponseError("LOADING Redis is loading the dataset in memory."),
            "Redis cannot take commands now: LOADING Redis is loading the dataset in memory",
        ),
        (
            redis.AuthenticationError("invalid username-password pair."),
            "Redis refuses this user: invalid username-password pair",
        ),
    ],
)
def test_what_redis_says_is_the_middle_of_a_sentence(error: Exception, said: str) -> None:
    """A message of Redis loses its full stop, since other words follow it."""
    assert str(translate_error(error)) == said


async def test_a_broker_that_is_away_is_told_by_what_the_system_says() -> None:
    """The cause has no class of Python, and what to check."""
    servers = KafkaSettings(bootstrap_servers=f"127.0.0.1:{free_port()}")

    assert await explain(servers, ConnectionRefusedError(111, "Connect call failed")) == (
        "Connection refused. Check `kafka.bootstrap_servers`, and whether the brokers run"
    )
    assert await explain(servers, TimeoutError()) == (
        "no answer. Check `kafka.bootstrap_servers`, and whether the brokers run"
    )


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KafkaConnectionError("Unable to bootstrap from [('a', 1, 2)]"), "no answer"),
        (
            KafkaConnectionError("No connection to node 1"),
            "KafkaConnectionError: No connection to node 1",
        ),
        (KafkaConnectionError(), "KafkaConnectionError"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
    ],
)
def test_what_a_client_says_is_told_once(error: Exception, said: str) -> None:
    """Its class is not told twice, nor are the parameters of its search for a broker."""
    assert error_text(error) == said


class Table(BaseModel):
    """Settings."""

    model_config = ConfigDict(extra="forbid")

    number: int = 0

    @field_validator("number")
    @classmethod
    def check_number(cls, number: int) -> int:
        """Refuse all but 0."""
        if number:
            raise ValueError("write 0")
        return number


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"number": 1}, "setting number: write 0"),
        (
            {"numbr": 0},
            "setting numbr: there is no such setting; see docs/reference/settings.md",
        ),
    ],
)
def test_wrong_settings_are_told_in_the_words_of_this_program(
    settings: dict[str, int], said: str
) -> None:
    """The line has neither phrases nor prefixes of the library that checks settings."""
    with pytest.raises(ValidationError) as raised:
        Table.model_validate(settings)

    assert error_lines(raised.value) == [said]


@pytest.mark.parametrize(("port", "bound"), [("65536", "65535"), ("-1", "0")])
def test_a_port_that_does_not_exist_is_an_error_of_usage(port: str, bound: str) -> None:
    """The demo names the option and the bound, and exits with 2."""
    done = ran("demo", "--port", port, environment={"COLUMNS": "300"})
    code, said = done.returncode, " ".join(done.stderr.split())

    assert (code, "'--port'" in said, f"equal to {bound} " in said) == (2, True, True), said


def test_a_question_without_an_answer_is_an_error() -> None:
    """The end of the input is not a no: the message says how not to be asked."""
    with (
        pytest.raises(UsageError, match="use --yes to switch without being asked"),
        answered("switch"),
    ):
        raise typer.Abort


@pytest.mark.slow
def test_a_bridge_says_once_why_it_cannot_work() -> None:
    """The reason is in its log, and not on standard error a second time."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "stream_metrics", "bridge", "--web-port", port],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip

    assert (done.returncode, done.stderr.count("cannot listen on")) == (2, 1)
