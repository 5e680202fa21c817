"""The page of a conversation in a real Chromium: narrow, wide, light, dark, and by its links."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, expect

from tests.helpers import rest_long
from tests.page import NOON_US, Showcase
from tests.services.test_page import HOSTILE, looking
from tests.unit.test_reading import found
from tests.unit.test_worst import labelled

pytestmark = pytest.mark.asyncio(loop_scope="session")  # that of the browser

PATHS = ("conversation?id=c&turn=1", "conversation?id=c&turn=1&page=2", "conversations")
WORD = "Donaudampfschifffahrtsgesellschaft" * 6


def told(**more: Any) -> list[dict[str, Any]]:
    """Two turns with everything that a page can show."""
    events = []
    for number in range(1, 4):
        results: list[dict[str, Any]] = [
            {"doc_id": "a", "title": WORD, "baseline_rank": 2},
            {"doc_id": "b" * 200, "title": HOSTILE, "baseline_rank": 1},
            *({"doc_id": f"d{number}-{n}", "content": "Some text\nof more"} for n in range(50)),
        ]
        event = found(number, *results, gate={"decision": "search", "score": 0.5}, **more)
        event["searches"][0] |= {
            "query": f"who pays {WORD}" if number < 3 else HOSTILE,
            "routing": {"selected": "knowledge", "scores": {"knowledge": 0.7, "mail": 0.1}},
        }
        events.append(event)
    labels = labelled("c", {"r1.1": 3, "r1.2": 1, "nothing": 2}) | {
        "labeller": WORD,
        "gate": [{"iteration": 2, "search_needed": False}],
        "routing": [{"search_id": "s-1", "optimal": "mail"}],
    }
    end = {"type": "turn_completed", "event_id": "end", "conversation_id": "c", "turn": 1}
    end |= {"occurred_at": labels["occurred_at"], "question": f"Who? {WORD}", "answer": HOSTILE}
    second = {**found(1, {"doc_id": "z"}), "turn": 2, "event_id": "second"}
    return [*events, labels, end, second, {**second, "event_id": "bad", "iteration": "x"}, second]


async def readable() -> Showcase:
    """A worker whose conversations can be read."""
    return await Showcase.new(*told(), readable=True, now_us=NOON_US + 60_000_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", rest_long([360, 768, 1440]))
async def test_a_conversation_is_accessible_and_fits(
    browser: Browser, width: int, scheme: str
) -> None:
    """On each of its pages, with all details open; so is the list of the latest ones."""
    async with looking(browser, await readable(), width=width, color_scheme=scheme) as looked:
        page = looked.page
        for path in (
            "conversation?id=c&turn=1",
            "conversation?id=c&turn=1&page=2",
            "conversations",
        ):
            await page.goto(page.url.split("conversation")[0] + path)
            for closed in await page.locator("details > summary").all():
                await closed.click()

            violations = (await Axe().run(page)).response["violations"]

            assert [(v["id"], v["nodes"][0]["html"]) for v in violations] == []
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert looked.complaints == []


async def test_a_conversation_is_found_from_the_page_of_figures(browser: Browser) -> None:
    """By the worst conversation's link, by the list, and by its id; hostile texts are texts."""
    async with looking(browser, await readable()) as looked:
        page = looked.page
        await page.locator("#worst-list summary").first.click()
        await page.locator("#worst-list a", has_text="Read it").click()
        await expect(page.locator("h1")).to_have_text("Conversation c")
        await expect(page.locator("h2", has_text="Turn 1")).to_be_visible()  # what repeats

        await page.get_by_role("link", name="Latest conversations").click()
        await page.locator("tbody a").first.click()
        await expect(page.locator("h1")).to_have_text("Conversation c")

        await page.get_by_role("searchbox", name="Conversation").fill("nobody")
        await page.get_by_role("button", name="Read").click()
        await expect(page.locator("main")).to_contain_text("no event with this conversation_id")

        await page.go_back()
        await page.get_by_role("link", name="Turn 1", exact=True).click()
        await expect(page.locator(".title", has_text=HOSTILE).first).to_be_visible()
        assert await page.locator("img").count() == 1  # the page's own
        assert [one for one in looked.complaints if "404" not in one] == []


async def test_a_repeated_result_leads_to_the_one_that_it_repeats(browser: Browser) -> None:
    """On another page, too, where it is marked."""
    async with looking(browser, await readable()) as looked:
        page = looked.page
        await page.goto(page.url + "conversation?id=c&turn=1&page=2")
        repeated = page.locator(".repeated").first
        await repeated.get_by_role("link").first.click()

        target = page.locator(".result:target")
        await expect(target).to_be_in_viewport()
        await expect(target.locator(".names")).to_contain_text("r1.1")
        assert looked.complaints == []
