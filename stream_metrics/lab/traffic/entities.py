"""Realistic results of each entity type: ids, URLs, titles and fields, without snippets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from urllib.parse import quote

from stream_metrics.lab.traffic import words

Value = str | int | list[str]
_EPOCH = datetime(2024, 6, 3, 7, 0, tzinfo=UTC)
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"


@dataclass(slots=True)
class Entity:
    """What a search engine knows about one document; ``text`` is its snippet."""

    entity_type: str
    title: str
    ids: dict[str, str] = field(default_factory=dict)
    doc_id: str | None = None
    url: str | None = None
    fields: dict[str, Value] = field(default_factory=dict)
    text_key: str = "snippet"
    text: str = ""


@dataclass(slots=True)
class Seed:
    """The input of a maker of entities: randomness, a topic and a unique number."""

    rng: Random
    topic: str
    serial: int
    twin: Entity | None = None
    """An earlier document of the same route and topic, for series and near misses."""

    def pick(self, options: tuple[str, ...]) -> str:
        """One of ``options``."""
        return options[int(self.rng.random() * len(options))]

    def below(self, bound: int) -> int:
        """A whole number from 0 to ``bound`` - 1."""
        return int(self.rng.random() * bound)

    def token(self, length: int) -> str:
        """A random part of an id."""
        return "".join(_ALPHABET[self.below(len(_ALPHABET))] for _ in range(length))

    def person(self) -> str:
        """A person's name."""
        return f"{self.pick(words.FIRST_NAMES)} {self.pick(words.LAST_NAMES)}"

    def time(self, minutes: int = 15) -> datetime:
        """A unique time in the last nine months, on a multiple of ``minutes``."""
        step = self.serial * 7 + self.below(7)
        return _EPOCH + timedelta(minutes=step * minutes % 388_800)


def address(person: str) -> str:
    """A mail address for a person, with non-ASCII letters transliterated."""
    plain = person.casefold().translate(_SPELLING).replace(" ", ".")
    return f"{plain}@{words.DOMAIN}"


_SPELLING = str.maketrans("łöřáüóø", "lorauoo")


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _title_of(seed: Seed, tail: str) -> str:
    return f"{seed.topic[0].upper()}{seed.topic[1:]}: {tail}"


def knowledge(seed: Seed) -> Entity:
    """An article of the knowledge base; most have the generic id only."""
    number = f"HB-{20_000 + seed.serial}"
    title = _title_of(seed, f"{seed.pick(words.ASPECTS)} ({seed.pick(words.SITES)}, {number})")
    made = Entity("Document", title, doc_id=number)
    if seed.rng.random() < 0.3:
        made.ids = {"article_id": f"art-{seed.token(8)}"}
    made.url = f"https://help.{words.DOMAIN}/articles/{number.lower()}"
    made.fields = {"author": seed.person(), "modified": _stamp(seed.time())}
    if seed.rng.random() < 0.15:
        made.text_key = "content"
    return made


def tickets(seed: Seed) -> Entity:
    """A ticket; some share their title with another ticket that is not a duplicate."""
    number = f"REQ{300_000 + seed.serial}"
    title = _title_of(seed, f"{seed.pick(words.SYMPTOMS)} in {seed.pick(words.SITES)} [{number}]")
    if seed.twin is not None and seed.rng.random() < 0.1:
        title = seed.twin.title
    made = Entity("Ticket", title, {"ticket_id": number}, f"ticket/{number}")
    made.url = f"https://desk.{words.DOMAIN}/requests/{number}?view=full&queue={seed.topic[:3]}"
    made.fields = {
        "status": seed.pick(("open", "solved", "waiting")),
        "priority": 1 + seed.below(4),
        "opened": _stamp(seed.time()),
    }
    return made


def files(seed: Seed) -> Entity:
    """A file in a document library."""
    kind = seed.pick(("docx", "pdf", "xlsx", "pptx"))
    site = seed.pick(words.SITES)
    year = 2019 + seed.below(7)
    name = f"{seed.topic} {seed.pick(words.NOUNS)} {site} {year}-{seed.serial}.{kind}"
    title = f"{name[0].upper()}{name[1:].rsplit('.', 1)[0]}"
    made = Entity("File", title, {"file_id": f"01{seed.token(12)}"})
    made.ids["site_id"] = f"site-{seed.topic[:4].strip().casefold()}"
    made.doc_id = f"file-{seed.serial}"
    made.url = f"https://files.{words.DOMAIN}/sites/{site.casefold()}/Shared/{name}"
    made.url = quote(made.url, safe=":/~")
    made.fields = {"file_name": name, "file_type": kind, "author": seed.person()}
    return made


def mail(seed: Seed) -> Entity:
    """A mail; replies share the subject of the original."""
    subject = f"{seed.topic}: {seed.pick(words.ASPECTS)}, {seed.pick(words.SITES)} {seed.serial}"
    if seed.twin is not None and seed.rng.random() < 0.2:
        subject = seed.twin.title
    made = Entity("EmailMessage", subject)
    made.ids = {"email_url": f"https://mail.{words.DOMAIN}/owa/#ItemID={seed.token(20)}"}
    made.doc_id = f"mail-{seed.serial}"
    made.fields = {
        "date_time_received": _stamp(seed.time()),
        "from": address(seed.person()),
        "to": [address(seed.person())],
        "subject": subject,
    }
    return made


def chats(seed: Seed) -> Entity:
    """A chat message; all messages of a chat share its name."""
    topic = f"{seed.topic} / {seed.pick(words.SITES)}"
    made = Entity("TeamsMessage", topic, {"item_id": f"19:{seed.token(16)}"})
    made.url = f"https://chat.{words.DOMAIN}/l/message/{seed.token(10)}/{1_700_000 + seed.serial}"
    made.fields = {"from": seed.person(), "participants": [seed.person(), seed.person()]}
    return made


def calendar(seed: Seed) -> Entity:
    """An appointment; many belong to a series and differ in their times only."""
    start = seed.time(30)
    title = f"{_title_of(seed, seed.pick(words.MEETINGS))} {seed.pick(words.SITES)} {seed.serial}"
    made = Entity("Event", title, {"event_id": f"evt-{seed.token(10)}"})
    made.ids["original_id"] = f"series-{seed.serial}"
    made.fields = {"organizer_email": address(seed.person())}
    if seed.twin is not None and seed.rng.random() < 0.4:
        made.title, made.text = seed.twin.title, seed.twin.text
        made.ids["original_id"] = seed.twin.ids["original_id"]
        made.fields["organizer_email"] = seed.twin.fields["organizer_email"]
    made.url = f"https://calendar.{words.DOMAIN}/item/{seed.token(10)}"
    made.fields["start"] = _stamp(start)
    made.fields["end"] = _stamp(start + timedelta(minutes=30))
    return made


def people(seed: Seed) -> Entity:
    """A colleague."""
    name = f"{seed.person()} {seed.pick(words.LAST_NAMES)}"
    made = Entity("PeopleInferenceAnswer", name)
    made.ids = {"alias": f"{name.split()[0].casefold().translate(_SPELLING)[:3]}{seed.serial}"}
    made.fields = {
        "display_name": name,
        "department": seed.pick(words.DEPARTMENTS),
        "company_name": "Bright Harbor",
        "office_location": f"{seed.pick(words.SITES)} {1 + seed.below(6)}.{seed.below(40)}",
    }
    return made


def connectors(seed: Seed) -> Entity:
    """A record of another system, reached through a connector."""
    plugin = seed.pick(("crm", "wiki", "contracts"))
    made = Entity("External", _title_of(seed, f"{seed.pick(words.NOUNS)} {seed.serial}"))
    made.ids = {"artifact_id": f"{plugin}:{seed.token(9)}"}
    made.doc_id = f"{plugin}-{seed.serial}"
    made.url = f"https://{plugin}.{words.DOMAIN}/page?id={seed.serial + 90_000}&lang=en"
    made.fields = {"plugin_id": plugin, "plugin_type": "connector", "owner": seed.person()}
    return made


def transcripts(seed: Seed) -> Entity:
    """A part of a meeting's transcript; parts of one meeting share its id."""
    start = seed.time(30)
    title = _title_of(seed, f"{seed.pick(words.MEETINGS)} {seed.pick(words.SITES)} {seed.serial}")
    made = Entity("MeetingTranscript", title, {"event_id": f"evt-{seed.token(10)}"})
    made.fields = {"segment": seed.serial, "start": _stamp(start)}
    if seed.twin is not None and seed.rng.random() < 0.3:
        made.title, made.ids = seed.twin.title, dict(seed.twin.ids)
    made.fields["end"] = _stamp(start + timedelta(minutes=5))
    made.url = f"https://meet.{words.DOMAIN}/recordings/{seed.serial}"
    return made


MAKERS: dict[str, Callable[[Seed], Entity]] = {
    "knowledge": knowledge,
    "tickets": tickets,
    "files": files,
    "mail": mail,
    "chats": chats,
    "calendar": calendar,
    "people": people,
    "connectors": connectors,
    "transcripts": transcripts,
}
