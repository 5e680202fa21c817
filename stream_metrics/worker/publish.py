"""The output topic of a group whose state a command changes: who may write, and rows anew.

A worker sends rows as conversations change. Where all have changed at once, or were changed by a
command, the command sends them: by the ways of the state partitions, so that whatever an earlier
writer still had in hand does not arrive behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final

from stream_metrics.engine.config import EngineConfig
from stream_metrics.ports import (
    OnHold,
    Output,
    OutputFenced,
    OutputMessage,
    Outputs,
    OutputUnavailable,
    PartitionState,
    StateStore,
)
from stream_metrics.worker.export import Replaced, rows_of
from stream_metrics.worker.move import Progress
from stream_metrics.worker.output import message_of

AT_ONCE: Final = 250  # conversations in one transaction


class Unsent(OutputUnavailable):
    """State partitions are replaced, and rows of theirs are yet to be sent."""

    def __init__(self, why: OutputUnavailable) -> None:
        super().__init__(
            f"{why}. The new state partitions are in use, but some of their rows are not yet on "
            "the output topic; no worker can start until all are"
        )


async def shut_out(outputs: Outputs, partitions: Iterable[int]) -> None:
    """Let nothing arrive any more that others have in hand for these state partitions.

    Their tokens must have been taken before. Raises ``OutputUnavailable``.
    """
    for number in partitions:
        await outputs.of(number).begin()


async def publish_gone(
    store: StateStore,
    mark: bytes,
    outputs: Outputs,
    names: Iterable[str],
    way: Callable[[str], int],
) -> None:
    """Send null for conversations of which a move leaves no row, before its switch.

    Nobody could do so if the command died behind the switch: their ids are not stored any more.
    Each goes by the ``way`` of the state partition that had its row. Raises like ``shut_out``, and
    ``OnHold`` once another run has taken the namespace over.
    """
    there = await store.partitions()
    of_way: dict[int, list[OutputMessage]] = {}
    for name in sorted(names):
        number = way(name) if way(name) in there else there[0]
        of_way.setdefault(number, []).append(OutputMessage(name, None))
    for number, messages in of_way.items():
        output = outputs.of(number)
        try:
            await _begun(store, number, mark, output)
            for first in range(0, len(messages), AT_ONCE):
                await output.send(messages[first : first + AT_ONCE])
        except OutputFenced:
            raise OnHold(await store.held_by() or "") from None


async def publish(
    store: StateStore,
    mark: bytes,
    outputs: Outputs,
    config: EngineConfig,
    turn_scope: str,
    progress: Progress,
    names: Container[str] | None = None,
) -> None:
    """Send the rows of every conversation of a namespace that ``mark`` holds.

    ``names`` are the ids of those to send, where not all rows have changed.
    ``progress`` hears how many conversations were sent. Raises ``OnHold`` once another run has
    taken the namespace over, ``Unsent`` while the topic cannot be written.
    """
    for number in await store.partitions():
        output = outputs.of(number)
        try:
            await _publish(store, number, mark, output, config, turn_scope, progress, names)
        except (OutputFenced, Replaced):
            raise OnHold(await store.held_by() or "") from None
        except OutputUnavailable as error:
            raise Unsent(error) from error
        await outputs.keep(())


async def _publish(
    store: StateStore,
    number: int,
    mark: bytes,
    output: Output,
    config: EngineConfig,
    turn_scope: str,
    progress: Progress,
    names: Container[str] | None,
) -> None:
    """The same of one state partition."""
    state = await _begun(store, number, mark, output)
    waiting = []
    async for _, rows in rows_of(store, config, turn_scope, {number: state}):
        # without rows, labels wait for the first search
        if rows and (names is None or rows[0]["conversation_id"] in names):
            waiting.append(message_of(rows, turn_scope))
        if len(waiting) >= AT_ONCE:
            await output.send(waiting)
            progress(len(waiting))
            waiting = []
    if waiting:
        await output.send(waiting)
        progress(len(waiting))


async def _begun(store: StateStore, number: int, mark: bytes, output: Output) -> PartitionState:
    """Begin to write for a state partition; raises ``OnHold`` unless ``mark`` owns it then."""
    await output.begin()
    state = await store.describe(number)
    if state.token != mark:
        raise OnHold(await store.held_by() or "")
    return state
