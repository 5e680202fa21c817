"""Other settings, or another schema, for the state of a stopped group.

Every conversation is read, worked out by the new settings and written by the schema asked for, into
drafts that take the places of the old partitions (``move``). Numbers and positions stay, so that
nothing need be read to its end before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from stream_metrics.engine.codec import (
    add_fingerprints,
    decode_conversation,
    encode_changes,
    encode_stub,
    stored_header,
)
from stream_metrics.engine.step import Step
from stream_metrics.engine.windows import Window, parse_duration
from stream_metrics.ports import (
    Identity,
    Outputs,
    StateStore,
    StoredConversation,
    bounded_timestamp,
)
from stream_metrics.worker.identity import (
    MIGRATABLE,
    TURNS,
    Change,
    changed_settings,
    check_identity,
)
from stream_metrics.worker.move import Convert, Drafted, Move, Progress, Unmovable, draft, switch
from stream_metrics.worker.options import PartitionOptions
from stream_metrics.worker.publish import publish, shut_out
from stream_metrics.worker.stored import Stored, stored_state

REBUILD = "`stream-metrics rebuild` reads the topics again with the new settings"


class Migrate:
    """Applies the settings of ``options`` to the state of a namespace that is held.

    ``outputs`` lead to the output topic, if there is one; ``sent`` hears how many rows are there.
    """

    def __init__(
        self,
        store: StateStore,
        options: PartitionOptions,
        say: Callable[[str], None],
        progress: Progress,
        outputs: Outputs | None = None,
        sent: Progress = lambda _: None,
    ) -> None:
        self._store = store
        self._options = options
        self._say = say
        self._progress = progress
        self._outputs = outputs
        self._sent = sent

    async def check(self) -> tuple[Stored, list[Change]]:
        """What is stored, and which settings change.

        Raises ``OtherIdentity`` for another group's state, ``Unmovable`` for settings that cannot
        be applied.
        """
        stored = await stored_state(self._store)
        ours = self._target(stored)
        same = replace(
            ours,
            fingerprint=stored.identity.fingerprint,
            schema_version=stored.identity.schema_version,
        )
        check_identity(stored.identity, same, min(stored.positions))
        changes = changed_settings(stored.identity, ours)
        if not changes and stored.identity.fingerprint != ours.fingerprint:
            raise Unmovable(
                "the state does not record the settings that it was built with, so it is unknown "
                f"which changes to apply; {REBUILD}"
            )
        _check_changes(stored, changes, self._options, await self._now_ms(stored))
        return stored, changes

    async def run(self, mark: bytes) -> None:
        """All that is left to do; raises like ``check``, before anything is changed."""
        stored, changes = await self.check()
        now_ms = await self._now_ms(stored)
        kept_since_ms = _kept_since_ms(stored, changes, self._options, now_ms)
        target = replace(self._target(stored), kept_since_ms=kept_since_ms)
        if stored.identity != target:  # else an earlier run has come as far as that
            await self._replace(mark, stored, target)
        if self._outputs is not None:
            options = self._options
            await publish(
                self._store, mark, self._outputs, options.engine, options.turn_scope, self._sent
            )
            self._say("the output topic has the current version of all rows")

    async def _replace(self, mark: bytes, stored: Stored, target: Identity) -> None:
        convert = recoding(self._options)
        drafted: Drafted = {}
        for number, positions in stored.positions.items():
            start = {number: positions}
            move = Move(target, (number,), start, lambda _, home: home, convert)
            drafted |= await draft(self._store, mark, move, self._options, self._progress)
        if self._outputs is not None:
            await shut_out(self._outputs, stored.positions)
        await switch(self._store, mark, tuple(stored.positions), drafted)
        self._say(f"migrated {len(stored.positions)} state partitions")

    async def _now_ms(self, stored: Stored) -> int:
        """Up to when conversations may have expired: the later of this clock and the store's.

        By one that is behind, conversations would seem to be there that are gone. Without a clock
        it is record time.
        """
        clock = self._options.now_ms
        if clock is None:
            return stored.record_time_ms
        return max([clock(), *[await self._store.time_ms(number) for number in stored.positions]])

    def _target(self, stored: Stored) -> Identity:
        counts = stored.identity.partition_counts
        return replace(self._options.identity.after(stored.identity), partition_counts=counts)


def _check_changes(
    stored: Stored, changes: list[Change], options: PartitionOptions, now_ms: int
) -> None:
    if fixed := [change for change in changes if change.name not in MIGRATABLE]:
        listed = "; ".join(map(str, fixed))
        raise Unmovable(f"{listed}: this change cannot be applied to stored state. {REBUILD}")
    for change in changes:
        if change.name == TURNS and change.after < change.before:
            raise Unmovable(f"{change}: it can only be raised in stored state. {REBUILD}")
        if change.name == "metrics.windows":
            added = [window for window in options.windows if window.name not in change.before]
            _check_windows(added, stored, changes, options, now_ms)


def _check_windows(
    added: list[Window],
    stored: Stored,
    changes: list[Change],
    options: PartitionOptions,
    now_ms: int,
) -> None:
    """Raise ``Unmovable``, with the time from which it will do, unless all is stored that these
    windows hold."""
    kept_us = 1000 * _ttl_before_ms(changes, options)
    since_us = 1000 * _kept_since_ms(stored, changes, options, now_ms)
    read_us = 1000 * stored.record_time_ms
    full_us = 1000 * stored.identity.kept_since_ms  # from here on all was kept by the ttl till now
    long = [
        window
        for window in added
        if window.length_us > kept_us or _filled_us(window, full_us) > read_us
    ]
    if long:
        alone = "only state.ttl now, and " if since_us > full_us else ""
        at_ms = bounded_timestamp(max(_filled_us(window, since_us) for window in long) // 1000)
        at = datetime.fromtimestamp(-(-at_ms // 1000), UTC)
        raise Unmovable(
            f"windows {', '.join(window.name for window in long)} are longer than conversations "
            f"have been kept so far (state.ttl), so their sums are unknown. Migrate {alone}"
            f"these windows once records of {at:%FT%TZ} have been read. Or {REBUILD}"
        )


def _filled_us(window: Window, since_us: int) -> int:
    """The record time from which on no bucket of a window reaches back before ``since_us``."""
    if since_us == 0:
        return 0
    return window.length_us - -since_us // window.bucket_us * window.bucket_us


def _ttl_before_ms(changes: list[Change], options: PartitionOptions) -> int:
    """How long conversations were kept until now."""
    ttl = next((change.before for change in changes if change.name == "state.ttl"), None)
    return parse_duration(ttl) // 1000 if ttl else options.ttl_ms


def _kept_since_ms(
    stored: Stored, changes: list[Change], options: PartitionOptions, now_ms: int
) -> int:
    """Record time since which nothing has expired that the new ttl keeps (``Identity``).

    What has expired by the old one had its last record so long before now.
    """
    before_ms = _ttl_before_ms(changes, options)
    if before_ms == options.ttl_ms:
        return stored.identity.kept_since_ms
    return max(stored.identity.kept_since_ms, now_ms - before_ms)


def recoding(options: PartitionOptions) -> Convert:
    """How a conversation is stored by the settings and the schema of ``options``.

    Its fingerprints stay as they are.
    """
    dedups, rules = options.dedups, options.engine.rules
    schema = options.identity.schema_version
    step = Step(options.engine, lambda key_id: dedups.of(rules, options.keys[key_id]))

    def convert(parts: StoredConversation) -> StoredConversation:
        if stored_header(parts.hot).is_stub:
            hot = encode_stub(schema)
        else:
            conversation = decode_conversation("", parts.hot, "")
            dedup = step.dedup_of(conversation.key_id)
            add_fingerprints(conversation, parts.fingerprints or {}, dedup)
            step.restore(conversation)
            conversation.schema = 0  # every part is written anew
            hot, _ = encode_changes(conversation, step.restate(conversation), dedup, schema)
        kept = {name: part for name, part in hot.items() if part is not None}
        return StoredConversation(kept, parts.fingerprints, parts.last_record_ms)

    return convert
