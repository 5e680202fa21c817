"""Other settings, or another schema, for the state of a stopped group.

Every conversation is read, worked out by the new settings and written by the schema asked for, into
drafts that take the places of the old partitions (``move``). Numbers and positions stay, so that
nothing need be read to its end before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stream_metrics.engine.codec import (
    add_fingerprints,
    decode_conversation,
    encode_changes,
    encode_stub,
    stored_header,
)
from stream_metrics.engine.step import Step
from stream_metrics.engine.windows import parse_duration
from stream_metrics.ports import Identity, Outputs, StateStore, StoredConversation
from stream_metrics.worker.identity import MIGRATABLE, Change, changed_settings, check_identity
from stream_metrics.worker.move import Convert, Drafted, Move, Progress, Unmovable, draft, switch
from stream_metrics.worker.partition import PartitionOptions
from stream_metrics.worker.publish import publish
from stream_metrics.worker.reshard import Stored, stored_state

REBUILD = "`stream-metrics rebuild` reads the topics again under them"


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
                "nobody noted which settings the state was built with, so that nobody can tell "
                f"what to apply; {REBUILD}"
            )
        _check_changes(stored, changes, self._options)
        return stored, changes

    async def run(self, mark: bytes) -> None:
        """All that is left to do; raises like ``check``, before anything is changed."""
        stored, _ = await self.check()
        target = self._target(stored)
        if stored.identity != target:  # else an earlier run has come as far as that
            await self._replace(mark, stored, target)
        if self._outputs is not None:
            options = self._options
            await publish(
                self._store, mark, self._outputs, options.engine, options.turn_scope, self._sent
            )
            self._say("all rows are on the output topic as they are now")

    async def _replace(self, mark: bytes, stored: Stored, target: Identity) -> None:
        convert = recoding(self._options)
        drafted: Drafted = {}
        for number, positions in stored.positions.items():
            start = {number: positions}
            move = Move(target, (number,), start, lambda _, home: home, convert)
            drafted |= await draft(self._store, mark, move, self._options, self._progress)
        await switch(self._store, mark, tuple(stored.positions), drafted)
        self._say(f"{len(stored.positions)} state partitions are migrated")

    def _target(self, stored: Stored) -> Identity:
        counts, outgrown = stored.identity.partition_counts, stored.identity.outgrown
        return replace(self._options.identity, partition_counts=counts, outgrown=outgrown)


def _check_changes(stored: Stored, changes: list[Change], options: PartitionOptions) -> None:
    if fixed := [change for change in changes if change.name not in MIGRATABLE]:
        listed = "; ".join(map(str, fixed))
        raise Unmovable(f"{listed}: this cannot be applied to stored state. {REBUILD}")
    for change in changes:
        if change.name == "metrics.windows":
            ttl = next((c.before for c in changes if c.name == "state.ttl"), None)
            kept_us = parse_duration(ttl) if ttl else 1000 * options.ttl_ms
            if long := [w.name for w in options.windows if w.length_us > kept_us]:
                raise Unmovable(
                    f"windows {', '.join(long)} are longer than conversations were kept "
                    f"(state.ttl), so that their sums cannot be told. {REBUILD}"
                )


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
