"""Instance ids: which are valid, and what happens to a worker that is fenced."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from pydantic import ValidationError

from stream_metrics.clients.kafka.errors import FencedInstance
from stream_metrics.clients.kafka.settings import KafkaSettings
from tests.simulation.brokers import Brokers
from tests.unit.test_inputs import Copying


async def fenced(*_: Any, **__: Any) -> NoReturn:
    """A call of a fenced client."""
    raise FencedInstance("group", "worker-1")


@pytest.mark.parametrize("name", ["worker-1", "a.b_c-D9", "...", "x" * 249])
def test_valid_instance_ids_are_accepted(name: str) -> None:
    """The rules are those of names of topics."""
    assert KafkaSettings(group_instance_id=name).group_instance_id == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "worker 1", "worker/1", "wörker", "a\n", "x" * 250]
)
def test_invalid_instance_ids_are_refused(name: str) -> None:
    """The worker does not start, because brokers would not admit it to the group."""
    with pytest.raises(ValidationError, match=r"group_instance_id\n.*up to 249 of the letters"):
        KafkaSettings(group_instance_id=name)


def test_a_worker_has_no_instance_id_by_default() -> None:
    """A generated id would not survive a restart."""
    assert KafkaSettings().group_instance_id is None


async def test_a_fenced_member_ends() -> None:
    """The worker ends instead of retrying, as it does after other errors."""
    brokers = Brokers(["events"], 1)
    copying = Copying(brokers)
    await copying.turn()
    brokers.rebalance([copying.client])
    await copying.turn()
    copying.client.getmany = fenced  # type: ignore[method-assign]

    with pytest.raises(FencedInstance, match=r"^another worker has joined group 'group' as"):
        await copying.turn()
