"""A member of a group under an instance id: what the client's library leaves out of it.

The library joins under the id, and leaves it out of heartbeats and commits. A broker that has given
a member's place to another answers those as if it had never known the member, whereupon the library
joins anew, and takes the place back: two live processes with one id would do so for ever. Told the
id, the broker says that the member is fenced, and then nothing is sent any more.
"""

from __future__ import annotations

from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.coordinator.protocol import ConsumerProtocol
from aiokafka.errors import KafkaError
from aiokafka.protocol.commit import OffsetCommitRequest, OffsetCommitRequest_v3
from aiokafka.protocol.group import HeartbeatRequest, HeartbeatRequest_v1

from stream_metrics.adapters.kafka.noting import layout
from stream_metrics.adapters.kafka.requests import StaticCommit, StaticHeartbeat
from stream_metrics.adapters.kafka.rights import KafkaRefused

FENCED_INSTANCE_ID: Final = 82  # as brokers number it; the library has no name for it

TOO_OLD: Final = "`kafka.group_instance_id` needs brokers 2.3 or later; leave it unset"


class FencedInstance(KafkaError):  # type: ignore[misc]
    """Another member has joined the group under our instance id, and has what was ours."""

    def __init__(self, group: str, instance_id: str) -> None:
        self.message = (
            f"another worker has joined group {group!r} as {instance_id!r} "
            "(kafka.group_instance_id), and Kafka gave it the partitions of this worker, which "
            "stops. If it was not meant to replace this one, give each worker a unique id and "
            "start this one again"
        )
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.message


class StaticConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """A client with an instance id; once it is fenced every call raises ``FencedInstance``."""

    async def start(self) -> None:
        """See ``AIOKafkaConsumer.start``."""
        await super().start()
        # The library makes the coordinator itself. It has sent nothing yet: there is no
        # subscription.
        self._coordinator.__class__ = StaticCoordinator


class StaticCoordinator(GroupCoordinator):  # type: ignore[misc]
    """The library's coordinator of a member that has an instance id."""

    _fenced: FencedInstance | None = None
    _asked_anew = False  # once a client: where members see other layouts they would never rest
    _group_subscription: set[str] | None

    async def _send_req(self, request: Any) -> Any:
        if self._fenced is None:
            # While the member has no member id, because it is to join anew, a commit or a heartbeat
            # that comes too late is sent as the library does: under its instance id the broker
            # would take it for another's.
            named = _under(request, self._group_instance_id) if self.member_id else request
            try:
                answer = await super()._send_req(named)
            except NotImplementedError as error:
                raise KafkaRefused(TOO_OLD) from error
            if FENCED_INSTANCE_ID not in _error_codes(answer):
                return answer
            self._fenced = FencedInstance(self.group_id, self._group_instance_id)
        raise self._fenced

    def check_errors(self) -> None:
        """Raise what the reader has to hear of."""
        if self._fenced is not None:
            raise self._fenced
        super().check_errors()

    async def _do_rejoin_group(self, subscription: Any) -> bool:
        joined = await super()._do_rejoin_group(subscription)
        return joined and subscription.assignment is not None

    async def _on_join_complete(
        self, generation: int, member_id: str, protocol: str, share: bytes
    ) -> None:
        """Watch the topics' layout, too, where the group's leader ought to.

        A leader that comes back under its id is not told that it leads, so that nobody would notice
        more partitions. What changed while a member was away, topics of its own settings too, has
        not been shared out: then there is no assignment, and the member joins once more.
        """
        led = self._group_subscription is not None
        made_for = b"" if led else await self._made_for(share)
        outdated = not led and made_for != layout(self._cluster, self._subscription.topics)
        asked_anew, self._asked_anew = self._asked_anew, True
        if outdated and not asked_anew:
            self._lookup_assignor(protocol).ask_anew()
            return
        await super()._on_join_complete(generation, member_id, protocol, share)
        if not led:
            self._group_subscription = set(self._subscription.topics)
            # With none, the next look at the topics is a change.
            self._metadata_snapshot = {} if outdated and made_for else self._get_metadata_snapshot()

    async def _made_for(self, share: bytes) -> bytes:
        """The layout that it was made for, empty if a member without an instance id made it.

        From then on the layout of our topics is known.
        """
        await self._client._maybe_wait_metadata()
        return ConsumerProtocol.ASSIGNMENT.decode(share).user_data or b""


def _under(request: Any, instance_id: str) -> Any:
    """The request with the id, if it is one that the library sends without."""
    if isinstance(request, HeartbeatRequest):
        beat = request.build(HeartbeatRequest_v1)
        return StaticHeartbeat(beat.group, beat.generation_id, beat.member_id, instance_id)
    if isinstance(request, OffsetCommitRequest):
        sent = request.build(OffsetCommitRequest_v3)
        return StaticCommit(
            sent.consumer_group,
            sent.consumer_group_generation_id,
            sent.consumer_id,
            instance_id,
            sent.topics,
        )
    return request


def _error_codes(answer: Any) -> set[int]:
    """Those of a whole answer, or of the partitions in one to a commit."""
    if isinstance(answer, StaticCommit.ANSWER):
        return {code for _, partitions in answer.topics for _, code in partitions}
    return {getattr(answer, "error_code", 0)}
