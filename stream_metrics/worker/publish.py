"""The output topic of a group whose state a command changes: who may write, and all rows anew.

A worker sends rows as conversations change. Where all have changed at once, or were changed by a
command, the command sends them: by the ways of the state partitions, so that whatever an earlier
writer still had in hand does not arrive behind them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from stream_metrics.engine.config import EngineConfig
from stream_metrics.ports import (
    OnHold,
    Output,
    OutputFenced,
    Outputs,
    OutputUnavailable,
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
            f"{why}. The new state partitions are in force, but not all their rows are on the "
            "output topic; workers are refused until they are"
        )


async def shut_out(outputs: Outputs, partitions: Iterable[int]) -> None:
    """Let nothing arrive any more that others have in hand for these state partitions.

    Their tokens must have been taken before. Raises ``OutputUnavailable``.
    """
    for number in partitions:
        await outputs.of(number).begin()


async def publish(
    store: StateStore,
    mark: bytes,
    outputs: Outputs,
    config: EngineConfig,
    turn_scope: str,
    progress: Progress,
) -> None:
    """Send the rows of every conversation of a namespace that ``mark`` holds.

    ``progress`` hears how many conversations are done. Raises ``OnHold`` once another run has taken
    the namespace over, ``Unsent`` while the topic cannot be written.
    """
    for number in await store.partitions():
        output = outputs.of(number)
        try:
            await _publish(store, number, mark, output, config, turn_scope, progress)
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
) -> None:
    """The same of one state partition."""
    await output.begin()
    state = await store.describe(number)  # after the beginning: nobody can have begun before
    if state.token != mark:
        raise OnHold(await store.held_by() or "")
    waiting = []
    async for _, rows in rows_of(store, config, turn_scope, {number: state}):
        if rows:  # else its labels wait for the first search
            waiting.append(message_of(rows, turn_scope))
        if len(waiting) >= AT_ONCE:
            await output.send(waiting)
            progress(len(waiting))
            waiting = []
    if waiting:
        await output.send(waiting)
        progress(len(waiting))
