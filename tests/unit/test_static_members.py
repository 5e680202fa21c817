"""Instance ids: which are taken, and what ends a worker whose place another has."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from pydantic import ValidationError

from stream_metrics.clients.kafka.errors import FencedInstance
from stream_metrics.clients.kafka.settings import KafkaSettings
from tests.simulation.brokers import Brokers
from tests.unit.test_inputs import Copying


async def fenced(*_: Any, **__: Any) -> NoReturn:
    """A call of a client whose place another has."""
    raise FencedInstance("group", "worker-1")


@pytest.mark.parametrize("name", ["worker-1", "a.b_c-D9", "...", "x" * 249])
def test_valid_instance_ids_are_accepted(name: str) -> None:
    """They are those that it takes for topics, too."""
    assert KafkaSettings(group_instance_id=name).group_instance_id == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "worker 1", "worker/1", "wörker", "a\n", "x" * 250]
)
def test_invalid_instance_ids_are_refused(name: str) -> None:
    """A worker would not be let into the group; so it does not start."""
    with pytest.raises(ValidationError, match=r"group_instance_id\n.*up to 249 of the letters"):
        KafkaSettings(group_instance_id=name)


def test_a_worker_has_no_instance_id_by_default() -> None:
    """A name that is made up would be no name that comes back."""
    assert KafkaSettings().group_instance_id is None


async def test_a_fenced_member_ends() -> None:
    """The worker ends, where other errors are waited out."""
    brokers = Brokers(["events"], 1)
    copying = Copying(brokers)
    await copying.turn()
    brokers.rebalance([copying.client])
    await copying.turn()
    copying.client.getmany = fenced  # type: ignore[method-assign]

    with pytest.raises(FencedInstance, match=r"^another worker has joined group 'group' as"):
        await copying.turn()
