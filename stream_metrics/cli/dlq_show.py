"""``stream-metrics dlq show``: prints one dead letter."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import aclosing
from typing import Annotated, Any, Final

import msgspec
import typer

from stream_metrics.cli.common import (
    ConfigOption,
    FormatOption,
    UsageError,
    printable,
    time_text,
)
from stream_metrics.cli.dlq import (
    LetterIndex,
    LetterSummary,
    parse_place,
    read_letter_index,
)
from stream_metrics.cli.places import DataOption, Place, place_of
from stream_metrics.core.events.decode import levels
from stream_metrics.core.events.limits import Limits
from stream_metrics.core.events.turns import turn_text
from stream_metrics.live.letters import Letter, RecordId, format_record_id

SHOWN_CHARACTERS: Final = 100_000  # of a key or value, for people
BYTES_A_LINE: Final = 16


def dlq_show(
    letter_place: Annotated[
        list[str],
        typer.Argument(
            help="The letter: TOPIC PARTITION OFFSET as `dlq list` shows them, or "
            "TOPIC/PARTITION/OFFSET.",
            metavar="TOPIC PARTITION OFFSET",
            show_default=False,
        ),
    ],
    format_: FormatOption = "table",
    data: DataOption = None,
    config: ConfigOption = None,
) -> None:
    """Print one dead letter: where its record was read, why it was rejected, its key and value.

    JSON is indented, other text is escaped, and bytes that are not UTF-8 are printed in
    hexadecimal. Tables truncate very long values, with a note on standard error. --format json
    truncates nothing, and encodes bytes that are not UTF-8 as base64. The record is printed as its
    producer sent it, including all texts in it.
    """
    place = place_of(config, data)
    settings = place.settings
    wanted = parse_place("/".join(letter_place), settings, "letter")
    index, letter = place.run(_find(place, wanted))
    state = index.state(LetterSummary.of(letter, settings.engine_config().limits))
    if format_ == "json":
        typer.echo(json.dumps(document(letter, state)))
        return
    lines, cut = page(letter, state)
    for line in lines:
        typer.echo(line)
    for what in cut:
        typer.echo(f"the {what} is cut here; --format json prints all of it", err=True)


async def _find(place: Place, wanted: RecordId) -> tuple[LetterIndex, Letter]:
    """The index, and the letter with its value; if there are copies, the listed one."""
    index = await read_letter_index(place, [wanted[0]])
    if wanted not in index.letters:
        raise UsageError(
            place.told(
                f"there is no dead letter of {format_record_id(wanted)}; `stream-metrics dlq list` "
                "shows which there are"
            )
        )
    stored_at = index.letters[wanted].letter.stored_at
    async with aclosing(place.letters([wanted[0]])) as letters:
        async for found in letters:
            if isinstance(found, Letter) and found.stored_at == stored_at:
                return index, found
    raise UsageError(f"the dead letter of {format_record_id(wanted)} was deleted meanwhile")


def document(letter: Letter, state: str) -> dict[str, Any]:
    """The letter as JSON; ``key_base64`` and ``value_base64`` replace bytes that are not UTF-8.

    Times are in RFC 3339. ``value`` is the text as it was sent, not parsed.
    """
    record, stamp = letter.record, letter.record.timestamp_ms
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": None if stamp is None else time_text(stamp),
        "letter": format_record_id(letter.stored_at),
        "seen": None if letter.written_ms is None else time_text(letter.written_ms),
        "state": state,
        "headers": letter.headers,
        **_data("key", record.key),
        **_data("value", record.value),
    }


def _data(name: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(data).decode("ascii")}


def page(letter: Letter, state: str) -> tuple[list[str], list[str]]:
    """The letter as printable lines, and the names of its truncated parts."""
    content = document(letter, state)
    lines = [f"record     {printable(format_record_id(letter.place))}"]
    for name in ("timestamp", "letter", "seen", "state"):
        if content[name]:
            lines.append(f"{name:10} {printable(str(content[name]))}")
    turn = _turn(letter.record.value)
    if turn is not None:
        lines.append(f"{'turn':10} {turn_text(turn)}")
    lines += ["", "headers"]
    lines += [f"  {printable(name)}: {printable(str(v))}" for name, v in letter.headers.items()]
    cut = []
    for name, data in (("key", letter.record.key), ("value", letter.record.value)):
        size = "none" if data is None else f"{len(data):,} bytes"
        lines += ["", f"{name} ({size})"]
        if data:
            text, whole = _shown(data)
            lines += [f"  {line}" for line in text]
            if not whole:
                cut.append(name)
    return lines, cut


class _OfTurn(msgspec.Struct):
    turn: int


def _turn(value: bytes | None) -> int | None:
    """The turn number in an event, which may be invalid; None without one."""
    try:
        return msgspec.json.decode(value or b"", type=_OfTurn).turn
    except (msgspec.DecodeError, RecursionError):
        return None


def _shown(data: bytes) -> tuple[list[str], bool]:
    """A key or value as lines, and whether they are complete."""
    try:
        text = _indented(data).decode()
    except UnicodeDecodeError:
        most = SHOWN_CHARACTERS // 4  # a byte takes about so many characters
        starts = range(0, min(len(data), most), BYTES_A_LINE)
        return [_hex(data, at) for at in starts], len(data) <= most
    lines = [printable(line) for line in text[:SHOWN_CHARACTERS].split("\n")]
    return lines, len(text) <= SHOWN_CHARACTERS


def _indented(data: bytes) -> bytes:
    """Indent JSON without changing its tokens; return anything else unchanged.

    JSON that is nested more deeply than any valid event is not indented, since it would become a
    thousand times as long.
    """
    if levels(data, Limits().json_levels) > Limits().json_levels:
        return data
    try:
        return msgspec.json.format(data, indent=2)
    except (msgspec.DecodeError, RecursionError):
        return data


def _hex(data: bytes, at: int) -> str:
    part = data[at : at + BYTES_A_LINE]
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
    return f"{at:08x}  {part.hex(' '):{3 * BYTES_A_LINE}} {text}"
