"""The folder of ``stream-metrics serve`` as the place of a command; see ``places.Place``."""

from __future__ import annotations

import asyncio
import shlex
import shutil
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack, asynccontextmanager, contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from stream_metrics.cli.common import Finding, UsageError
from stream_metrics.cli.errors import error_lines
from stream_metrics.cli.places import Checked, Send
from stream_metrics.cli.settings import Settings
from stream_metrics.clients.kafka.records import OutgoingRecord
from stream_metrics.clients.setting_files import UnreadableFile
from stream_metrics.core.engine.codec import UnknownSchema
from stream_metrics.core.engine.state import DamagedState
from stream_metrics.core.events.record import Extent
from stream_metrics.live.layout import Generation
from stream_metrics.live.letters import Forgotten, Letter, Resubmitted
from stream_metrics.live.local.database import (
    Database,
    FileDamaged,
    FileRefused,
    FileUnavailable,
    ReadOnlyDatabase,
    large_wal,
)
from stream_metrics.live.local.folder import (
    KEY,
    FolderInUse,
    FolderRefused,
    building,
    database_of,
    held,
    told_for,
    user_of,
)
from stream_metrics.live.local.letters import note_about_letters, read_letters
from stream_metrics.live.local.log import Entry, Log
from stream_metrics.live.local.store import LocalStore
from stream_metrics.live.local.tables import EVENTS, SPANS, TOPICS
from stream_metrics.live.ports import StateStore, StoreRefused
from stream_metrics.live.worker.clock import wall_ms
from stream_metrics.live.worker.ownership.build import CannotBuild, Logs, needed_bytes
from stream_metrics.live.worker.ownership.identity import OtherIdentity
from stream_metrics.live.worker.ownership.switch import SETTLE_SECONDS, Fence, NoFence

T = TypeVar("T")

UNUSABLE = (FileUnavailable, FileDamaged, FileRefused, FolderRefused, StoreRefused)


class Folder:
    """A folder that ``stream-metrics serve`` has made; raises ``UsageError`` for any other."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        check_folder(folder)
        self.folder = folder
        self.settings = settings_of_folder(settings, folder)

    @property
    def name(self) -> str:
        """The folder."""
        return str(self.folder)

    @property
    def where(self) -> str:
        """The folder."""
        return str(self.folder)

    @property
    def confirmation(self) -> tuple[str, str]:
        """See ``Place.confirmation``."""
        return "the name of the folder", self.folder.absolute().name

    @property
    def starting(self) -> str:
        """See ``Place.starting``."""
        return f"start {self._command('serve')}"

    def no_state(self) -> UsageError:
        """See ``Place.no_state``."""
        return UsageError(f"{self.folder} has no state yet: {self.starting}")

    @contextmanager
    def errors(self, advice: str = "") -> Iterator[None]:
        """See ``Place.errors``."""
        try:
            yield
        except UNUSABLE as error:
            passing = isinstance(error, FileUnavailable)
            raise UsageError(f"{error}{advice if passing else ''}") from error
        except OtherIdentity as error:
            raise UsageError(self.told(str(error))) from error
        except (DamagedState, UnknownSchema) as error:
            raise UsageError(self.told("; ".join(error_lines(error)))) from error

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """See ``Place.run``."""
        with self.errors():
            return asyncio.run(work)

    def _command(self, words: str) -> str:
        return f"`stream-metrics {words} --data {shlex.quote(str(self.folder))}`"

    @asynccontextmanager
    async def database(self, *, writes: bool = False) -> AsyncIterator[Database]:
        """The file, which is closed at the end."""
        path = database_of(self.folder)
        database = Database(path) if writes else ReadOnlyDatabase(path)
        try:
            yield database
        finally:
            await database.close()

    @asynccontextmanager
    async def store(self, *, writes: bool = False) -> AsyncIterator[StateStore]:
        """See ``Place.store``."""
        async with self.database(writes=writes) as database:
            yield LocalStore(database)

    # -- records

    async def partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        """See ``Place.partition_counts``."""
        known = {*TOPICS, *(self._letters_of(topic) for topic in TOPICS)}
        return {topic: 1 for topic in topics if topic in known}

    def _letters_of(self, topic: str) -> str:
        return topic + self.settings.kafka.dead_letter_suffix

    @asynccontextmanager
    async def sending(self) -> AsyncIterator[Send]:
        """See ``Place.sending``; a record is on the disk when it is stored."""
        async with self.database(writes=True) as database:
            records = Log(database)
            letters = {self._letters_of(topic): topic for topic in TOPICS}

            async def send(outgoing: Iterable[OutgoingRecord]) -> Sequence[Exception | None]:
                answers: list[Exception | None] = []
                for topic, group in groupby(outgoing, lambda record: record.topic):
                    part = list(group)
                    if topic in letters:
                        await note_about_letters(database, letters[topic], part, wall_ms())
                    else:
                        entries = [Entry(one.key, one.value, one.timestamp_ms) for one in part]
                        await records.append(topic, entries, wall_ms())
                    answers += [None] * len(part)
                return answers

            yield send

    async def letters(
        self, topics: Sequence[str]
    ) -> AsyncGenerator[Letter | Resubmitted | Forgotten, None]:
        """See ``Place.letters``."""
        async with self.database() as database:
            suffix = self.settings.kafka.dead_letter_suffix
            async for found in read_letters(database, topics, suffix):
                yield found

    # -- check

    async def check(self, *, keys: bool) -> Checked:
        """See ``Place.check``."""
        if keys:
            raise UsageError("--topics looks at topics of Kafka: leave it out with --data")
        user = user_of(self.folder)
        used_by = f"in use by {user}" if user else "nobody serves it now"
        findings = [Finding("folder", "ok", f"{self.folder}: {used_by}"), self._check_doors()]
        try:
            async with self.database() as database:
                records = Log(database)
                extents = await records.extents(TOPICS)
                backlog = await records.backlog(EVENTS)
                used = (await records.kept()).file_bytes
        except UNUSABLE as error:
            return Checked([*findings, Finding("file", "error", str(error))], {}, readable=False)
        for topic, extent in extents.items():
            kept = f"{extent.end - extent.first:,} records, from offset {extent.first}"
            findings.append(Finding(f"log {topic}", "ok", kept))
        findings += [self._check_backlog(backlog, bool(user)), self._check_room(used)]
        return Checked(findings, {EVENTS: 1}, readable=True)

    def _check_doors(self) -> Finding:
        from stream_metrics.cli.serving import check_doors  # imports the whole engine

        serve = self.settings.serve
        try:
            check_doors(self.settings)
        except (ValueError, UnreadableFile) as error:
            return Finding("receiver", "error", str(error))
        return Finding("receiver", "ok", f"{serve.host}, port {serve.otlp_port}")

    def _check_backlog(self, backlog: int, serves: bool) -> Finding:
        told = f"{backlog:,} events are not read yet"
        if serves and backlog > self.settings.serve.max_backlog:
            return Finding("backlog", "error", f"{told}: requests are answered with 503")
        return Finding("backlog", "ok", told)

    def _check_room(self, used: int) -> Finding:
        free, most = shutil.disk_usage(self.folder).free, self.settings.serve.max_bytes
        told = f"{used:,} bytes are used (serve.max_bytes: {most:,}); the disk has {free:,} free"
        if why := large_wal(database_of(self.folder)):
            return Finding("disk", "warning", why)
        if free < used // 10:
            return Finding("disk", "warning", f"{told}. Make room, or lower serve.max_bytes")
        return Finding("disk", "ok", told)

    # -- purge

    def of_namespace(self, namespace: str | None) -> Folder:
        """See ``Place.of_namespace``."""
        if namespace:
            raise UsageError("--namespace is one of Redis: leave it out with --data")
        return self

    async def users(self, groups: Sequence[str]) -> str:
        """See ``Place.users``."""
        user = user_of(self.folder)
        return f"{self.folder} is in use by {user}. Stop that first" if user else ""

    async def purged(self, store: StateStore, groups: Sequence[str]) -> str:
        """See ``Place.purged``: the log is then read from its beginning."""
        assert isinstance(store, LocalStore)
        await store.drop_notes()
        async with self.database(writes=True) as database:
            await Log(database).forget_readers(groups)
        return (
            f"The log is kept: {self._command('serve')}\n"
            "builds the state from it again. To delete that, too, delete the folder"
        )

    # -- forget

    @property
    def staying(self) -> str:
        """See ``Place.staying``: what the log has, which has texts."""
        serve = self.settings.serve
        return (
            f"what was received of them stays in the log: events and dead letters for "
            f"{serve.retention} (serve.retention), spans for {serve.spans_retention} "
            "(serve.spans_retention)"
        )

    # -- build

    async def state_counts(self) -> dict[str, int]:
        """See ``Place.state_counts``."""
        return {EVENTS: 1}

    @asynccontextmanager
    async def logs(self) -> AsyncIterator[Logs]:
        """See ``Place.logs``."""
        async with self.database() as database:
            yield _Logs(Log(database))

    async def room(self, store: StateStore, live: Generation) -> str:
        """See ``Place.room``: a line about the disk."""
        needed = await needed_bytes(store, live)
        free = shutil.disk_usage(self.folder).free
        more = "an unknown number of" if needed is None else f"about {needed:,}"
        what = f"disk: {more} bytes more; {free:,} are free"
        if (needed or 0) > free:
            raise CannotBuild(f"{what}. Make room first")
        return what

    def fence(self) -> Fence:
        """See ``Place.fence``."""
        return NoFence()

    async def settle(self) -> None:
        """See ``Place.settle``."""
        if user_of(self.folder):
            await asyncio.sleep(SETTLE_SECONDS)

    @property
    def keeping(self) -> str:
        """See ``Place.keeping``."""
        return "Keep events longer from now on, with serve.retention"

    @asynccontextmanager
    async def building(self, option: str) -> AsyncIterator[str]:
        """See ``Place.building``: it is done here."""
        with building(self.folder):
            async with self._working():
                yield "What serves the folder goes on until the switch. Then use these settings"

    @asynccontextmanager
    async def finishing(self) -> AsyncIterator[None]:
        """See ``Place.finishing``: it is done here, unless somebody serves the folder already."""
        with ExitStack() as stack:
            try:
                stack.enter_context(held(self.folder))
            except FolderInUse:
                yield
                return
            async with self._working():
                yield

    @asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        from stream_metrics.cli.build_process import BuildProcess  # imports the whole engine
        from stream_metrics.cli.logs import configure_logs

        configure_logs(self.settings.log.model_copy(update={"level": "WARNING"}))
        async with self.database(writes=True) as database:
            process = BuildProcess(self.settings, database)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(process.run())
                    yield
                    process.stop()
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None

    def told(self, message: str) -> str:
        """See ``Place.told``."""
        return told_for(self.folder, message)


def check_folder(folder: Path) -> None:
    """Raise ``UsageError`` unless ``stream-metrics serve`` has made the folder."""
    path = database_of(folder)
    try:
        if path.is_file():
            return
        found = folder.is_dir()
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}") from error
    if not found:
        raise UsageError(f"{folder}: there is no such folder")
    raise UsageError(
        f"{folder}: there is no {path.name} in it. Give the folder that `stream-metrics "
        "serve` has made, by default ./stream-metrics-data"
    )


def settings_of_folder(settings: Settings, folder: Path) -> Settings:
    """The settings as ``stream-metrics serve`` has them in this folder: with its defaults, topics
    and key."""
    settings = settings.in_one_process()
    kafka = settings.kafka.model_copy(
        update={"topics": (EVENTS,), "repartition_topic": None, "output_topic": None}
    )
    update: dict[str, object] = {
        "kafka": kafka,
        "bridge": settings.bridge.model_copy(update={"topic": SPANS}),
        "serve": settings.serve.model_copy(update={"data": folder}),
    }
    state, key = settings.state, folder / KEY
    if not (state.key() or state.allow_empty_key) and key.exists():
        update["state"] = state.model_copy(update={"digest_key_file": key.absolute()})
    return settings.model_copy(update=update)


class _Logs:
    """See ``build.Logs``."""

    def __init__(self, records: Log) -> None:
        self._records = records

    async def extents(
        self, places: Collection[tuple[str, int]]
    ) -> Mapping[tuple[str, int], Extent]:
        found = await self._records.extents([topic for topic, _ in places])
        return {(topic, 0): extent for topic, extent in found.items()}

    async def oldest_ms(self, places: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        oldest = {}
        for place, extent in (await self.extents(places)).items():
            time_ms = await self._records.time_at(place[0], extent)
            if time_ms is not None:
                oldest[place] = time_ms
        return oldest
