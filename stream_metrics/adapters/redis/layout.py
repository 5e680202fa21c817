"""Which state partitions a namespace has, and under which hash tags: one hash, changed in one step.

Beside the partitions in force it lists drafts, which are to take the place of others, and retired
ones, which are yet to be deleted, and who holds the namespace meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from stream_metrics.adapters.redis.keys import DRAFT, HELD, RETIRED, SWITCHED, Keys, choose_tag
from stream_metrics.adapters.redis.script import Client, Script
from stream_metrics.ports import OnHold

MARKED: Final = 8  # characters of a mark that are in the tags of its drafts


class Layout:
    """The layout of a namespace as its workers see it, or with ``mark`` its drafts."""

    def __init__(self, client: Client, keys: Keys, mark: bytes = b"") -> None:
        self._client = client
        self._key = keys.layout
        self._mark = mark
        self._prefix = DRAFT if mark else b""
        self._choose = Script("choose")
        self._hold = Script("hold")
        self._switch = Script("switch")
        self._release = Script("release")
        self._drop = Script("drop")

    async def tag(self, partition: int) -> str | None:
        """The partition's tag, if it was chosen before."""
        tag = await self._client.execute_command("HGET", self._key, self._field(partition))
        return None if tag is None else str(tag, "ascii")

    async def choose(self, partition: int, count: int) -> str:
        """The partition's tag; whoever comes first chooses it. Raises ``OnHold``."""
        taken = {str(tag, "ascii") for tag in (await self._all()).values()}
        wanted = choose_tag(partition, count, taken, str(self._mark[:MARKED], "ascii"))
        arguments: list[bytes | int] = [self._field(partition), wanted.encode(), self._mark]
        reply = await self._choose.run(self._client, [self._key], arguments)
        if reply[0] == b"held":
            raise OnHold(str(reply[1], "utf-8"))
        return str(reply[1], "ascii")

    async def tags(self) -> dict[int, str]:
        """All partitions with their tags, in rising order."""
        found = {}
        for field, tag in (await self._all()).items():
            name = field.removeprefix(self._prefix)
            if field.startswith(self._prefix) and name.isdigit():
                found[int(name)] = str(tag, "ascii")
        return dict(sorted(found.items()))

    async def leftovers(self, mark: bytes | None) -> dict[bytes, str]:
        """The fields of drafts and retired partitions, with their tags.

        Raises ``OnHold`` unless ``mark`` holds the namespace, if it is given.
        """
        fields = await self._all()
        holder, _, command = fields.get(HELD, b"").partition(b" ")
        if mark is not None and mark != holder:
            raise OnHold(str(command, "utf-8"))
        return {f: str(tag, "ascii") for f, tag in fields.items() if f.startswith((DRAFT, RETIRED))}

    async def drop(self, mark: bytes, field: bytes, tag: str) -> None:
        """Forget a leftover, if it still has that tag. Raises ``OnHold``."""
        self._check(await self._drop.run(self._client, [self._key], [mark, field, tag.encode()]))

    async def check_free(self) -> None:
        """Raise ``OnHold`` if somebody else holds the namespace; for drafts, unless they do."""
        held = await self._client.execute_command("HGET", self._key, HELD)
        holder, _, command = (held or b"").partition(b" ")
        if holder != self._mark:
            raise OnHold(str(command, "utf-8"))

    async def held_by(self) -> str | None:
        """The command that holds the namespace."""
        held = await self._client.execute_command("HGET", self._key, HELD)
        return None if held is None else str(held, "utf-8").partition(" ")[2]

    async def switched(self) -> bool:
        """See ``StateStore.switched``."""
        return await self._client.execute_command("HGET", self._key, SWITCHED) is not None

    async def hold(self, mark: bytes, command: str) -> None:
        """Hold it, in place of whoever did; also in a Redis that is full."""
        await self._hold.run(self._client, [self._key], [mark, command.encode()])

    async def switch(self, mark: bytes, retired: Sequence[int], drafted: Sequence[int]) -> None:
        """See ``StateStore.switch``."""
        arguments: list[bytes | int] = [mark, len(drafted), *drafted, *retired]
        reply = await self._switch.run(self._client, [self._key], arguments)
        self._check(reply)
        if reply[0] == b"others":
            found = sorted(int(number) for number in reply[1:])
            raise ValueError(f"the drafts are {found}, not {sorted(drafted)}")
        if reply[0] == b"taken":
            raise ValueError(f"partition {int(reply[1])} is in use and was not retired")

    async def release(self, mark: bytes) -> None:
        """See ``StateStore.release``."""
        self._check(await self._release.run(self._client, [self._key], [mark]))

    def _check(self, reply: Any) -> None:
        if reply[0] == b"held":
            raise OnHold(str(reply[1], "utf-8"))

    def _field(self, partition: int) -> bytes:
        return b"%b%d" % (self._prefix, partition)

    async def _all(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = await self._client.execute_command("HGETALL", self._key)
        return found
