"""Digests of events with any JSON text in them, and times in RFC 3339."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from stream_metrics.core.events import Limits
from stream_metrics.core.events.canonical import content_digest, decode_json
from stream_metrics.core.events.decode import SCHEMA_VERSION
from stream_metrics.core.events.times import parse_rfc3339
from tests.helpers import examples
from tests.twins import Claim, Pair, Twin, kernel
from tests.unit.test_canonical import DOCUMENT, NUMBER
from tests.unit.test_times import OFFSETS, written

LEVELS = Limits().json_levels


def slow_digest(value: bytes) -> bytes | None:
    """The digest in Python; None if the text is refused."""
    try:
        obj, delicate = decode_json(value)
        return content_digest(obj, delicate=delicate)
    except (ValueError, RecursionError, OverflowError):
        return None


def event_with(value: bytes) -> bytes:
    """An event with this JSON text as one of its values."""
    return b'{"a":' + value + b',"occurred_at":0,"type":"t"}'


def fast_digest(event: bytes, levels: int = LEVELS) -> bytes | None:
    """The digest of an event by the kernel; None if it leaves the event to Python."""
    found = kernel.envelope(event, SCHEMA_VERSION, levels)
    return None if found is None else found[0]


def run_whole(event: bytes) -> Iterator[Pair]:
    """The digest of an event."""
    yield fast_digest(event), slow_digest(event)


def run_digest(value: bytes | str) -> Iterator[Pair]:
    """The digest of an event with a JSON text as one of its values."""
    return run_whole(event_with(value.encode() if isinstance(value, str) else value))


def run_instant(text: str) -> Iterator[Pair]:
    """The time of an event that says it with this text; None if it is no time."""
    raw = json.dumps({"occurred_at": text, "type": "t"}).encode()
    found = kernel.envelope(raw, SCHEMA_VERSION, LEVELS)
    yield (None if found is None else found[2]), parse_rfc3339(text)


def is_half_way(value: float) -> bool:
    """Whether two shortest decimals are equally near, of which ``repr`` takes the even one."""
    shown, exact = Decimal(repr(value)), Decimal(value)
    unit = Decimal((0, (1,), int(shown.as_tuple().exponent)))
    return abs(shown - exact) * 2 == unit


# --- cases ----------------------------------------------------------------------------------------


def edited_texts() -> Iterator[bytes]:
    """An event with any byte inserted into a value or behind it all, or replacing another."""
    value = b'{"k":["a\\n",1.5,{"\xc3\xa9":true,"b":[]}]}'
    text = event_with(value)
    start = text.index(value)
    for byte in range(256):
        for place in (*range(start, start + len(value) + 1), len(text)):
            yield text[:place] + bytes([byte]) + text[place:]
            yield text[:place] + bytes([byte]) + text[place + 1 :]


def every_character() -> Iterator[bytes]:
    """Every character, as it is and escaped."""
    for code in (*range(0xD800), *range(0xE000, 0x10000), 0x10000, 0x1F600, 0x10FFFF):
        units = chr(code).encode("utf-16-be").hex()
        coded = "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
        yield f'["{coded}","12345678{coded.upper().replace("U", "u")}"]'.encode()
        yield json.dumps([f"{chr(code)}12345678"], ensure_ascii=False).encode()


def every_character_as_a_name() -> Iterator[bytes]:
    """The same in names, of which one may stand twice."""
    for code in (*range(0xD800), *range(0xE000, 0x10000), 0x10000, 0x1F600, 0x10FFFF):
        units = chr(code).encode("utf-16-be").hex()
        coded = "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
        yield f'{{"{coded}":1,"a":2}}'.encode()


def floats_around_powers_of_two() -> Iterator[float]:
    """Doubles where their precision changes."""
    for power in range(-14, 54):
        for factor in range(-40, 41):
            value = 2.0**power * (1 + factor * 2**-52)
            for number in (value, value + 2.0 ** (power - 3), value * 10):
                if 1e-4 <= number < 1e16:
                    yield number


BROKEN_ESCAPES = [
    "\\ud83d", "\\ude00", "\\ude00\\ud83d", "\\ud83dx", "\\ud83d\\n", "\\ud83d\\u0041",
    "\\u12g4", "\\u123", "\\x41", "\\U0041", "\\u+041", "\\", "\\'", "\\u\xe9\xe9",
]  # fmt: skip
WHOLE = b' {"k" : ["a\\ud83d\\ude00", -1.5 , {"\xc3\xa9":null,"b":false}], "a": 1}'
HALF_WAY = [562949953421312.25, 1125899906842624.25, 9007199.0009765625]
assert all(is_half_way(value) and repr(value) != str(Decimal(value)) for value in HALF_WAY)

_PLAIN_NAME = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\'))
_PLAIN_FLOAT = st.floats(1e-4, 1e16, exclude_max=True).filter(lambda v: not is_half_way(v))
_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**18) + 1, 10**19 - 1)
    | st.just(0.0)
    | st.just(-0.0)
    | _PLAIN_FLOAT
    | _PLAIN_FLOAT.map(lambda value: -value)
    | st.floats(0, 1000).map(lambda value: round(value, 3)).filter(lambda v: v >= 1e-4)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_PLAIN_NAME, inner, max_size=12),
    max_leaves=30,
)


@st.composite
def plain_texts(draw: st.DrawFn) -> tuple[bytes]:
    """Ordinary values as JSON libraries write them."""
    separators = (",", ":") if draw(st.booleans()) else None
    text = json.dumps(
        draw(_PLAIN),
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 0, 2])),
        separators=separators,
    )
    return (text.encode(),)


@st.composite
def changed(draw: st.DrawFn) -> tuple[bytes]:
    """Any text, into which some bytes were put."""
    value = draw(st.binary() | st.text().map(str.encode) | DOCUMENT.map(str.encode))
    place = draw(st.integers(0, len(value)))
    piece = draw(
        st.binary(max_size=3) | st.sampled_from([b'"', b"\\", b"{", b"]", b",", b":", b"-", b"."])
    )
    behind = place + draw(st.integers(0, 3))
    return (value[:place] + piece + value[behind:],)


def wide() -> dict[str, Any]:
    """Nested objects with many keys out of order."""
    names = [f"{word}{number}" for number in range(500, 0, -7) for word in ("b", "longer_key_")]
    return {name: {n: [{n: 1.5}] for n in names[:9]} for name in names}


def deep(levels: int) -> str:
    """Objects nested to a depth, each with its keys out of order."""
    return '{"b":' * levels + '"' + "x" * 999 + '"' + ',"a":1}' * levels


_RFC_3339 = (
    r"\A(0000|1900|2000|2023|2024|9999)-(00|01|02|04|12|13)-(00|01|28|29|30|31|32)[Tt ]"
    r"(00|23|24):(00|59|60):(00|59|60)(\.[0-9]{0,8})?([Zz]|[+-](00|23|24):(00|59|60))?\n?\Z"
)
_NEARLY_RFC_3339 = st.lists(
    st.sampled_from([
        *("2024", "0000", "1900", "02", "29", "30", "12", "23", "24", "59", "60"),
        *"--:::Tt Zz+.09x\u0663\ud800",
    ]),
    max_size=16,
).map("".join)  # fmt: skip

# --- claims ---------------------------------------------------------------------------------------

DIGEST = Twin("envelope", run_digest)
WHOLE_DIGEST = Twin("envelope", run_whole)
INSTANT = Twin("envelope", run_instant)
CLAIMS = [
    Claim(
        DIGEST,
        "any JSON text, in any spelling, has one digest",
        st.tuples(DOCUMENT),
        [
            ('{"b":1,"a":{"d":[],"c":{}}}',),
            ('{"a":1,"a":2}',),
            ('{"a\\u0000":1,"a":2}',),
            ('{"\\u00e9":1,"e":2,"\U00010000":3,"\uffff":4}',),
            ('{"longer_key_b":1,"longer_key_a":2,"longer_k":3}',),
            ('{"longer_key_a":1,"longer_key_a":2}',),
            ('{"":1}',),
        ],
        max_examples=examples(300),
    ),
    *(
        Claim(
            DIGEST,
            f"so has any number, of which most are hard ones, written as {form!r}",
            st.tuples(NUMBER.map(lambda token, form=form: form.replace("@", token))),  # type: ignore[misc]
            max_examples=examples(1_000),
        )
        for form in ('{"a":@}', "[ @ ]", "@")
    ),
    *(
        Claim(
            DIGEST,
            f"no text of {size} characters that resembles a number is taken but where Python does",
            listed=lambda size=size: (  # type: ignore[misc]
                (f"[{''.join(one)}]",) for one in itertools.product("-+019.e", repeat=size)
            ),
            at_least=1,
        )
        for size in range(1, 6)
    ),
    Claim(
        WHOLE_DIGEST,
        "a byte that is put anywhere into a text is refused where Python refuses it",
        listed=lambda: ((text,) for text in edited_texts()),
    ),
    Claim(DIGEST, "a whole text is handled", listed=[(WHOLE,)], handled=True),
    Claim(
        WHOLE_DIGEST,
        "an event that ends too early is left to Python",
        listed=[(event_with(WHOLE)[:end],) for end in range(len(event_with(WHOLE)))],
        handled=False,
    ),
    Claim(
        DIGEST,
        "every character is written as Python writes it, whether it was escaped or not",
        listed=lambda: ((text,) for text in every_character()),
        handled=True,
        slow=True,
    ),
    Claim(
        DIGEST,
        "so is every character in a name",
        listed=lambda: ((text,) for text in every_character_as_a_name()),
        slow=True,
    ),
    Claim(
        DIGEST,
        "half a pair of surrogates and escapes that JSON does not know are left to Python",
        listed=[
            (text,) for escape in BROKEN_ESCAPES for text in (f'["{escape}"]', f'{{"{escape}":1}}')
        ],
        handled=False,
    ),
    Claim(
        DIGEST,
        "floats are written as repr writes them",
        listed=lambda: ((f"[{n!r}]",) for n in floats_around_powers_of_two() if not is_half_way(n)),
        handled=True,
    ),
    Claim(
        DIGEST,
        "floats that lie just between the two shortest decimals are left to Python",
        listed=lambda: [
            *((f"[{n!r}]",) for n in floats_around_powers_of_two() if is_half_way(n)),
            *((text,) for n in HALF_WAY for text in (repr(n), str(Decimal(n)))),
        ],
        handled=False,
    ),
    Claim(
        DIGEST,
        "what JSON libraries write of ordinary values is handled",
        plain_texts(),
        handled=True,
        max_examples=examples(300),
    ),
    Claim(
        DIGEST,
        "whatever bytes are put into whatever text, there is the one digest or none",
        changed(),
        max_examples=examples(300),
    ),
    Claim(
        DIGEST,
        "wide and deep objects are put in order",
        listed=lambda: [(json.dumps({"z": wide(), "a": [wide()]}),), (deep(12),), (deep(60),)],
        handled=True,
    ),
    Claim(
        DIGEST,
        "a name that stands twice in a wide object is left to Python",
        listed=lambda: [(json.dumps({**wide(), "twice": 1})[:-1] + ',"twice":2}',)],
        handled=False,
    ),
    Claim(
        INSTANT,
        "times of any offset and precision are read alike",
        st.tuples(
            st.builds(
                written,
                st.datetimes(),
                OFFSETS,
                st.text("0123456789", max_size=12),
                st.sampled_from(["TZ", "tz", "Tz", "tZ"]),
            )
        ),
        handled=True,
    ),
    Claim(
        INSTANT,
        "what Python refuses is refused",
        st.tuples(_NEARLY_RFC_3339 | st.from_regex(_RFC_3339)),
    ),
]
