"""What happens to one process while clients send."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from random import Random
from typing import Final

import aiohttp

from deploy.local.waiting import wait_until
from stream_metrics.live.local.folder import database_of
from tests.serve_campaign.load import Load
from tests.serve_campaign.process import STEPS, Disk, ServeProcess

STEP_DEADLINE_SECONDS: Final = 60.0
RARE: Final = frozenset({"claim", "tell", "commit", "trim"})
CONNECTIONS: Final = 10_000
INFLATED_BYTES: Final = 64 << 20  # of a member of a body that is packed
MEMBERS: Final = 100
WAL_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24


@dataclass
class World:
    """A process, its disk and its clients; ``wrong`` lists what must not have happened."""

    process: ServeProcess
    disk: Disk
    load: Load
    rng: Random
    connections: int
    hold_seconds: float
    wrong: list[str] = field(default_factory=list)


Strike = Callable[[World, float], Awaitable[None]]


async def kill(world: World, hold_seconds: float) -> None:
    """SIGKILL at a random moment."""
    world.process.note_memory()
    world.process.kill9()
    await asyncio.sleep(hold_seconds)
    await world.process.start()


async def kill_at(world: World, hold_seconds: float, *, when: str, step: str) -> None:
    """SIGKILL right before or after a step."""
    process, passes = world.process, 1 if step in RARE else world.rng.randint(1, 3)
    if step == "claim":
        process.kill9()
    process.orders.write_text(f"{when} {step} {passes} KILL")
    if not process.running:
        process.launch()

    def dead() -> bool:
        if step != "trim":  # which comes by itself
            world.load.trickle()
        return process.exit_code == -9

    await wait_until(dead, STEP_DEADLINE_SECONDS, f"it never came {when} {step}")
    await asyncio.sleep(hold_seconds)
    await world.process.start()


async def pause(world: World, hold_seconds: float) -> None:
    """SIGSTOP: its connections stay open, and nobody answers."""
    world.process.pause()
    await asyncio.sleep(hold_seconds)
    world.process.resume()


async def fill_disk(world: World, hold_seconds: float) -> None:
    """Nothing more can be written; it says so, goes on by itself, and may be killed meanwhile."""
    process = world.process
    before = world.load.again

    def noticed() -> bool:
        world.load.trickle()
        return world.load.again > before

    world.disk.fill()
    await wait_until(noticed, STEP_DEADLINE_SECONDS, "a full disk was not noticed")
    await asyncio.sleep(hold_seconds)
    if killed := world.rng.random() < 0.3:
        process.kill9()
    elif not process.running:
        world.wrong.append(f"a full disk ended it: {process.log_tail()}")
    world.disk.free()
    if killed:
        await world.process.start()


async def tear_log(world: World, hold_seconds: float) -> None:
    """SIGKILL, and behind the last commit the log of the file has what a power loss may leave."""
    world.process.kill9()
    path = database_of(world.process.data)
    log = path.with_name(f"{path.name}-wal")
    if log.exists():
        whole = log.read_bytes()
        end = end_of_commits(whole)
        torn = whole[end:][: world.rng.randint(0, len(whole) - end)]
        noise = world.rng.randbytes(world.rng.choice((0, 7, 24, 9_000)))
        log.write_bytes(whole[:end] + torn + noise)
    await asyncio.sleep(hold_seconds)
    await world.process.start()


def end_of_commits(log: bytes) -> int:
    """Where the last frame that commits ends, in a write-ahead log of SQLite."""
    if len(log) < WAL_HEADER_BYTES:
        return 0
    page, _, salts = struct.unpack(">II8s", log[8:24])
    end = at = WAL_HEADER_BYTES
    while at + FRAME_HEADER_BYTES + page <= len(log):
        committed, found = struct.unpack(">4xI8s", log[at : at + 16])
        if found != salts:
            break
        at += FRAME_HEADER_BYTES + page
        if committed:
            end = at
    return end


async def make_read_only(world: World, hold_seconds: float) -> None:
    """Killed, and started where it may only read: it refuses, and works again afterwards."""
    world.process.kill9()
    world.disk.make_read_only(read_only=True)
    try:
        world.process.launch()
        await world.process.ended(STEP_DEADLINE_SECONDS)
        if world.process.exit_code != 2:
            world.wrong.append(f"a folder to be read only: exit code {world.process.exit_code}")
        await asyncio.sleep(hold_seconds)
    finally:
        world.disk.make_read_only(read_only=False)
    await world.process.start()


async def set_clock_back(world: World, hold_seconds: float) -> None:
    """The clock is behind by up to an hour, and then right again."""
    world.process.clock.set(-world.rng.randint(2, 3_600))
    await asyncio.sleep(hold_seconds)
    world.process.clock.set(0)


async def start_second(world: World, hold_seconds: float) -> None:
    """A second process on the folder is refused, names the first, and leaves it alone."""
    first = world.process
    second = ServeProcess(first.folder, first.settings)
    second.log = first.folder / "second.log"
    second.launch()
    await second.ended(STEP_DEADLINE_SECONDS)
    said = second.log.read_text()
    if second.exit_code != 2 or str(first.pid) not in said:
        world.wrong.append(f"a second process: exit code {second.exit_code}, {said[-500:]}")
    await asyncio.sleep(hold_seconds)


async def connect_silently(world: World, hold_seconds: float) -> None:
    """Thousands of connections that send nothing, or half a request."""
    found: list[socket.socket] = []
    try:
        for _ in range(world.connections):
            one = socket.socket()
            one.setblocking(False)
            found.append(one)
            one.connect_ex(("127.0.0.1", world.process.receiver))
            if len(found) % 100 == 0:
                await asyncio.sleep(0.005)
        for one in found[::2]:
            try:
                one.send(b"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 99\r\n\r\n{")
            except OSError:
                continue
        before = world.load.share

        def others() -> bool:
            world.load.trickle()
            return world.load.share > before

        await asyncio.sleep(hold_seconds)
        await wait_until(others, STEP_DEADLINE_SECONDS, "others were kept out")
    finally:
        for one in found:
            one.close()


async def inflate(world: World, hold_seconds: float) -> None:
    """Small bodies that would have gigabytes once they are unpacked."""
    bomb = gzip.compress(bytes(INFLATED_BYTES), mtime=0) * MEMBERS
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/x-protobuf"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{world.process.receiver}") as session:

        async def send(path: str) -> None:
            try:
                async with session.post(path, data=BytesIO(bomb), headers=headers) as answer:
                    if answer.status not in (413, 503):
                        world.wrong.append(f"{path} answers a bomb with {answer.status}")
            except aiohttp.ClientError as error:
                world.wrong.append(f"{path} answers a bomb with {error!r}")

        await asyncio.gather(*map(send, ["/v1/events", "/v1/traces", "/v1/logs"] * 3))
    await asyncio.sleep(hold_seconds)


FAULTS: Final[dict[str, Strike]] = {
    "kill": kill,
    **{
        f"kill_{when}_{step}": partial(kill_at, when=when, step=step)
        for step in STEPS
        for when in ("before", "after")
    },
    "pause": pause,
    "full_disk": fill_disk,
    "torn_log": tear_log,
    "read_only": make_read_only,
    "clock_back": set_clock_back,
    "second_process": start_second,
    "silent_connections": connect_silently,
    "bombs": inflate,
}
NEED_A_DISK: Final = frozenset({"read_only"})
