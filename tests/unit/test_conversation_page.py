"""The pages of conversations on a real server: what they show, in what pieces, and what not."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any

import pytest

from stream_metrics.core.engine.config import EngineConfig
from stream_metrics.core.events.record import DeadLetter, Record
from stream_metrics.live.memory import MemoryConversationRecords
from stream_metrics.live.page import conversations
from stream_metrics.live.page.conversation_html import LINES, Pager, Site, conversation_page
from stream_metrics.live.page.conversations import ConversationPages, LatestSearch, in_pieces
from stream_metrics.live.page.worst import TooManyRequests
from stream_metrics.live.ports import Arrived, ConversationRecords, StoreUnavailable
from tests.page import Showcase
from tests.unit.test_page_server import asking
from tests.unit.test_reading import found, read, record
from tests.unit.test_state_partition import NOON_S
from tests.unit.test_worst import labelled, searched

HOSTILE = "\"><img src=x onerror=alert(1)>'{{ 7*7 }}\u202e</bdi></script>"
SITE = Site("All figures")


class Elements(HTMLParser):
    """The elements of a page: their attributes by name, and all of its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep an element."""
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Keep text."""
        self.text += data

    def values(self, tag: str, attribute: str) -> list[str]:
        """The values of an attribute."""
        return [of[attribute] or "" for name, of in self.found if name == tag and attribute in of]


async def shown(path: str, *events: Mapping[str, Any], status: int = 200, **query: str) -> Elements:
    """A page of a worker that has read these events."""
    showcase = await Showcase.new(*events, readable=True)
    async with asking(showcase) as client, client.get(path, params=query) as answer:
        assert answer.status == status
        return Elements(await answer.text())


def large(iterations: int = 20, results: int = 100) -> list[dict[str, Any]]:
    """A turn of many results, of which each iteration after the first repeats the first."""
    return [
        found(number, *({"doc_id": f"d{n}"} for n in range(results)))
        for number in range(1, iterations + 1)
    ]


async def test_a_page_shows_a_turn_from_top_to_bottom() -> None:
    """The query, the result with its label, and what the repeated one repeats, in this order."""
    event = found(1, {"doc_id": "a", "title": "Travel policy"})
    event["searches"][0]["query"] = "who pays"
    gain = {**labelled("c", {"r1.1": 3}), "labeller": "judge-v3"}
    page = await shown("/conversation", event, found(2, {"doc_id": "a"}), gain, id="c")

    words = " ".join(page.text.split())
    assert re.search(
        "SRR50.0%.*Iteration 1.*who pays.*Travel policy.*gain 3, by judge-v3.*Iteration 2.*"
        "Repeats result 1 of iteration 1, search s-1: same id",
        words,
    )
    assert "#r-0" in page.values("a", "href")
    assert "r-0" in page.values("li", "id")


async def test_hostile_texts_stay_texts() -> None:
    """Whatever a producer writes, in every field that is shown, becomes no element."""
    name = HOSTILE[:60]
    event = found(
        1,
        {"doc_id": HOSTILE, "title": HOSTILE, "entity_type": name},
        {"doc_id": "b", "ids": {HOSTILE: HOSTILE}},
    )
    event |= {"agent": name, "release": name, "conversation_id": HOSTILE, HOSTILE: 1}
    event["searches"][0] |= {"search_id": HOSTILE, "query": HOSTILE}
    event["searches"][0]["routing"] = {"selected": name, "scores": {HOSTILE: 1}}
    for result in event["searches"][0]["results"]:
        result["result_id"] += HOSTILE
    again = json.loads(json.dumps(event)) | {"event_id": "2", "iteration": 2}
    again["searches"][0]["search_id"] += "2"
    labels = {
        **labelled(HOSTILE, {f"r1.1{HOSTILE}": 1, HOSTILE: 2}),
        "labeller": HOSTILE,
        "routing": [{"search_id": HOSTILE, "optimal": HOSTILE}],
    }
    end = {**labels, "type": "turn_completed", "event_id": "e", "question": HOSTILE}
    end = {name: value for name, value in end.items() if name not in ("labels", "routing")}
    events = [event, again, labels, {**end, "answer": HOSTILE}]

    for page in (
        await shown("/conversation", *events, id=HOSTILE),
        await shown("/conversations", *events),
        await shown("/conversations", *events, agent=name),
    ):
        assert [of["src"] for tag, of in page.found if tag == "img"] == ["icon.svg"]
        assert not [tag for tag, _ in page.found if tag == "script"]
        assert not [at for _, of in page.found for at in of if at.startswith("on")]
        assert "49" not in page.text
        assert "\u202e" not in page.text
        assert all(re.match(r"(conversations?[?]|#|[.]/|conversations$)", href) for href in
                   page.values("a", "href") if href != "#main")  # fmt: skip
        assert HOSTILE.replace("\u202e", "\ufffd")[:20] in page.text


async def test_a_turn_of_two_thousand_results_is_shown_in_pages() -> None:
    """Each result is on one page, a page has at most so many lines, and links lead to the page."""
    pages = [
        await shown("/conversation", *large(), id="c", turn="1", page=str(number))
        for number in (1, 21)
    ]

    first, last = pages
    assert sum(tag == "li" and "result" in (of.get("class") or "") for tag, of in first.found) == 98
    assert "conversation?id=c&turn=1&page=21" in first.values("a", "href")
    assert "conversation?id=c&turn=1#r-97" in last.values("a", "href")
    assert "conversation?id=c&turn=1&page=2#r-99" in last.values("a", "href")


def test_the_pages_of_a_turn_are_all_of_it() -> None:
    """In order, without a gap, and each result is where the page of its position is."""
    reading = read(*large(7, 45))
    turn = reading.turn(1)
    pager = Pager(turn, 10)
    positions = []
    for number in range(1, pager.pages + 1):
        lines = 0
        for part in pager.page(number):
            lines += part.begins
            for search in part.searches:
                lines += search.begins + len(search.results)
                for one in search.results:
                    positions.append(one.place.position)
                    assert pager.page_of(one.place.position) == number
        assert lines == 10 or number == pager.pages

    assert positions == list(range(7 * 45))


async def test_a_conversation_without_events_is_not_there() -> None:
    """A page says so."""
    page = await shown("/conversation", found(1), id="nobody", status=404)

    assert "there is no event with this conversation_id" in page.text


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({}, 400),
        ({"id": "x" * 129}, 400),
        ({"id": "c", "turn": "0"}, 400),
        ({"id": "c", "turn": "9" * 17}, 400),
        ({"id": "c", "page": "1e3"}, 400),
        ({"id": "c", "turn": "2"}, 404),
        ({"id": "c", "page": "2"}, 404),
    ],
)
async def test_what_is_no_page_is_refused(query: dict[str, str], status: int) -> None:
    """With a page that says what is wrong."""
    page = await shown("/conversation", found(1), status=status, **query)

    assert "There is nothing to show" in page.text


async def test_the_page_has_nothing_inline_and_submits_to_itself_only() -> None:
    """The policy of its headers, and no style, script or handler in its HTML."""
    showcase = await Showcase.new(found(1, {"doc_id": "a"}), readable=True)
    async with asking(showcase) as client, client.get("/conversation?id=c") as answer:
        text, policy = await answer.text(), answer.headers["Content-Security-Policy"]

        assert "form-action 'self'" in policy
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["Cache-Control"] == "no-store"
        assert not re.search(r"<style|style=|\son[a-z]+=|<script", text)
        for name in re.findall(r'(?:src|href)="([\w.]+[.](?:css|svg))"', text):
            async with client.get(f"/{name}") as asset:
                assert asset.status == 200


async def test_users_see_conversations_only_with_their_password() -> None:
    """The pages are behind the access control of the others."""
    from stream_metrics.live.auth import hash_password

    users = {"ann": hash_password("secret")}
    showcase = await Showcase.new(found(1), readable=True)
    async with asking(showcase, users=users) as client:
        for path in ("/conversation?id=c", "/conversations"):
            async with client.get(path) as answer:
                assert answer.status == 401


async def test_texts_can_be_left_out() -> None:
    """Ids, labels and figures remain."""
    event = found(1, {"doc_id": "a", "title": "Secret plan"})
    event["searches"][0]["query"] = "secret query"
    showcase = await Showcase.new(event, readable=True, texts=False)
    async with asking(showcase) as client, client.get("/conversation?id=c") as answer:
        text = await answer.text()

    assert "ecret" not in text
    assert "query not shown" in text
    assert "<code>a</code>" in text


async def test_the_latest_conversations_are_those_of_the_agent() -> None:
    """The latest first; one that was forgotten is not named."""
    forget = {
        "type": "forget",
        "event_id": "f",
        "occurred_at": NOON_S + 60,
        "conversation_id": "c-3",
    }
    events = [
        searched(f"c-{n}", 1, ["a"], NOON_S + n, agent="odd" if n % 2 else "even")
        for n in range(1, 6)
    ]
    page = await shown("/conversations", *events, forget, agent="odd")

    names = [href for href in page.values("a", "href") if href.startswith("conversation?")]
    assert names == ["conversation?id=c-5", "conversation?id=c-1"]


async def test_the_list_says_among_how_many_events_it_was_looked() -> None:
    """An agent whose events are older is not found, and the page does not say that it has none."""
    search = LatestSearch("rare")
    events = [record(searched(f"c-{n}", 1, ["a"], agent="often")) for n in range(100)]
    while not search.enough:
        search.add(events)

    assert search.found() == []
    assert search.looked_at == f"Among the latest {conversations.NEWEST:,} events."


async def test_the_page_of_figures_links_to_conversations_that_can_be_read() -> None:
    """And only to those: a worker on Kafka has no events to show."""
    for readable in (True, False):
        showcase = await Showcase.new(found(1), readable=readable)
        async with asking(showcase) as client:
            async with client.get("/api/worst") as answer:
                assert (await answer.json())["readable"] is readable
            async with client.get("/conversations") as answer:
                assert (answer.status == 200) is readable


class Log(MemoryConversationRecords):
    """Records that can be told to fail, to be trimmed, or to have letters."""

    def __init__(self) -> None:
        super().__init__(EngineConfig().limits)
        self.asked = 0
        self.since_ms: int | None = None
        self.refused: list[DeadLetter] = []
        self.available = True

    async def of_conversation(self, conversation_id: str, after: int, most: int) -> list[Arrived]:
        """Counts the calls."""
        self.asked += 1
        if not self.available:
            raise StoreUnavailable("the disk is full")
        return await super().of_conversation(conversation_id, after, most)

    async def letters(self, conversation_id: str, most: int) -> list[DeadLetter]:
        """The letters."""
        return self.refused

    async def kept_since_ms(self) -> int | None:
        """The time."""
        return self.since_ms


def pages_of(log: ConversationRecords | None, **options: Any) -> ConversationPages:
    """The pages of a log."""
    return ConversationPages(lambda: log, EngineConfig, SITE, **options)


async def test_a_page_says_that_older_events_are_deleted() -> None:
    """Its figures may lack them, which nothing in what is left would tell."""
    log = Log()
    log.add([record(found(1, {"doc_id": "a"}))])
    log.since_ms = NOON_S * 1000

    text = await pages_of(log).conversation("c", None, 1)
    assert "Events from before 2024-06-10 12:00:00 UTC are deleted" in text


async def test_a_dead_letter_is_on_the_page_of_its_conversation() -> None:
    """With its reason, even if the log has no event of the conversation."""
    log = Log()
    log.refused = [DeadLetter(Record(b"{", b"c", NOON_S * 1000, "searches"), "not_json", "no JSON")]

    text = await pages_of(log).conversation("c", None, 1)
    assert "Nothing is left of it" in text
    assert "<code>not_json</code>, no JSON" in text


async def test_a_conversation_is_read_once_for_all_its_pages() -> None:
    """For a while; then it is read anew."""
    log = Log()
    log.add(record(event) for event in large(4, 60))
    kept, anew = pages_of(log), pages_of(log, kept_seconds=0.0)
    for page in (1, 2, 3):
        await kept.conversation("c", 1, page)
    once = log.asked
    for page in (1, 2, 3):
        await anew.conversation("c", 1, page)

    assert log.asked == 4 * once


def test_events_are_processed_in_pieces_of_bounded_size() -> None:
    """All of them, in order; one that is larger than a piece is alone."""
    sizes = [3, 3, 3, 20, 1, 1, 9]
    pieces = in_pieces([Record(b"x" * size) for size in sizes], 9)

    assert [[len(one.value or b"") for one in piece] for piece in pieces] == [
        [3, 3, 3],
        [20],
        [1, 1],
        [9],
    ]


@pytest.mark.parametrize("name", ["MOST_EVENTS", "MOST_BYTES", "MOST_RESULTS"])
async def test_a_conversation_that_is_too_large_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how much is shown at most, and shows nothing of it."""
    log = Log()
    log.add(record(event) for event in large(3, 3))
    monkeypatch.setattr(conversations, name, 2)

    with pytest.raises(conversations.TooLarge, match="more than 2 "):
        await pages_of(log).conversation("c", None, 1)


async def test_a_log_that_cannot_be_read_is_said_to_be_that() -> None:
    """The page has status 503 and the reason."""
    showcase = await Showcase.new(readable=True)
    log = Log()
    log.available = False
    showcase.recorded = log
    async with asking(showcase) as client, client.get("/conversation?id=c") as answer:
        assert answer.status == 503
        assert "the disk is full" in await answer.text()


async def test_only_so_many_requests_wait() -> None:
    """Others are told to come again."""
    pages = pages_of(Log())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversations, "MAX_WAITING", 0)
        with pytest.raises(TooManyRequests):
            await pages.latest(None)


def test_of_many_turns_those_around_are_named() -> None:
    """And the first and the last, so that a page has a bounded size."""
    events = [{**found(1), "turn": n, "event_id": str(n)} for n in range(1, 101)]
    text = conversation_page(read(*events), SITE, 50)

    assert text is not None
    numbers = [int(number) for number in re.findall(r">Turn (\d+)</a>", text)]
    assert numbers == [1, *range(40, 61), 100]
    assert "100 turns" in text


def test_figures_by_labels_are_unknown_without_any_label() -> None:
    """They are 0 by definition, which would say that nothing good was found."""
    text = conversation_page(read(found(1, {"doc_id": "a"})), SITE)

    assert text is not None
    words = " ".join(Elements(text).text.split())
    assert "SRE–No document has a label" in words
    assert "RG–" in words
    assert LINES == 100
