"""Where a command finds state, records and dead letters: servers, or the folder of one process.

A command asks its ``Place``, and is the same for both. What each needs is imported only then.
"""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from stream_metrics.cli.common import Finding, UsageError, load_settings

if TYPE_CHECKING:  # the help of a command needs none of them
    from stream_metrics.cli.settings import Settings
    from stream_metrics.clients.kafka.records import OutgoingRecord
    from stream_metrics.live.layout import Generation
    from stream_metrics.live.letters import Forgotten, Letter, Resubmitted
    from stream_metrics.live.ports import StateStore
    from stream_metrics.live.worker.ownership.build import Logs
    from stream_metrics.live.worker.ownership.switch import Fence

T = TypeVar("T")

DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data",
        help="The folder of [bold]stream-metrics serve[/bold], in place of Kafka and Redis; also "
        "while it runs.",
        show_default=False,
    ),
]

Send = Callable[["Iterable[OutgoingRecord]"], Awaitable[Sequence[Exception | None]]]
"""Stores records: for each its error, or None if it is stored."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What ``check`` has found: the partitions by topic, and whether the store can be read."""

    findings: list[Finding]
    counts: dict[str, int]
    readable: bool


class Place(Protocol):
    """Where state, records and dead letters are."""

    @property
    def settings(self) -> Settings:
        """The settings, with those that the place decides itself."""
        ...

    @property
    def name(self) -> str:
        """The namespace or the folder."""
        ...

    @property
    def where(self) -> str:
        """The same, and which Redis it is in."""
        ...

    @property
    def confirmation(self) -> tuple[str, str]:
        """What has to be typed before the state is deleted: its kind and itself."""
        ...

    @property
    def starting(self) -> str:
        """What to do so that there is a state."""
        ...

    def no_state(self) -> UsageError:
        """The error of a command that finds no state."""
        ...

    def errors(self, advice: str = "") -> AbstractContextManager[None]:
        """Convert the errors of the state, which ``advice`` follows, into ``UsageError``."""
        ...

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work with records; raises ``UsageError`` for errors."""
        ...

    def store(self, *, writes: bool = False) -> AbstractAsyncContextManager[StateStore]:
        """The state, which is closed at the end."""
        ...

    async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Partitions by topic; topics that do not exist are left out."""
        ...

    def sending(self) -> AbstractAsyncContextManager[Send]:
        """A way to store records on topics and on their dead-letter topics."""
        ...

    def letters(
        self, topics: Sequence[str]
    ) -> AsyncGenerator[Letter | Resubmitted | Forgotten, None]:
        """Everything about dead letters of these topics."""
        ...

    async def check(self, *, keys: bool) -> Checked:
        """Check what the state is built from, and what keeps it; with ``keys``, the records' too.

        The state itself is not looked at.
        """
        ...

    # -- purge

    def of_namespace(self, namespace: str | None) -> Place:
        """The place of another namespace; raises ``UsageError`` if there are none."""
        ...

    async def users(self, groups: Sequence[str]) -> str:
        """A message about who works on the state of these groups; empty if nobody does."""
        ...

    async def purged(self, store: StateStore, groups: Sequence[str]) -> str:
        """Tidy up after the state was deleted; returns what is left to do."""
        ...

    # -- forget

    @property
    def staying(self) -> str:
        """A line about what stays of forgotten conversations; empty if the guide says it all."""
        ...

    # -- build

    async def state_counts(self) -> dict[str, int]:
        """Partitions by topic that state is built from, equal for all."""
        ...

    def logs(self) -> AbstractAsyncContextManager[Logs]:
        """What tells how far the topics reach back."""
        ...

    async def room(self, store: StateStore, live: Generation) -> str:
        """What room a build needs and there is; raises ``CannotBuild`` if it is too little."""
        ...

    def fence(self) -> Fence:
        """What keeps workers of an earlier generation from writing rows."""
        ...

    async def settle(self) -> None:
        """Wait until every running worker has read the layout."""
        ...

    @property
    def keeping(self) -> str:
        """What to do so that records are kept longer."""
        ...

    def building(self, option: str) -> AbstractAsyncContextManager[str]:
        """The work on the generation that is being built: what to tell about it; ``option`` is
        what workers need to prefer it."""
        ...

    def finishing(self) -> AbstractAsyncContextManager[None]:
        """The work on the generation that has come into force, until the one before is deleted."""
        ...

    def told(self, message: str) -> str:
        """The message, with the commands in it as they are typed for this place."""
        ...


def place_of(config: Path | None, data: Path | None) -> Place:
    """The place that the options name; raises ``UsageError``."""
    if data is None:
        settings = load_settings(config)
        from stream_metrics.cli.servers import Servers  # imports their clients

        mention_folder(settings)
        return Servers(settings)
    settings = load_settings(config, connects=False)
    from stream_metrics.cli.folder import Folder

    return Folder(settings, data)


def mention_folder(settings: Settings) -> None:
    """Say on standard error how to look into the folder of one process, if there is one here."""
    folder = settings.serve.data
    if folder.is_dir():
        typer.echo(
            f"{folder} has the data of one process. To look into it: "
            f"--data {shlex.quote(str(folder))}",
            err=True,
        )
