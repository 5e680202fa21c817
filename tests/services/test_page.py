"""The page in a real Chromium: narrow, wide, light, dark, by keyboard and with hostile names."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, expect

from stream_metrics import __version__
from stream_metrics.core.compiled import ENGINE
from stream_metrics.live.page.finding import OK, Finding
from stream_metrics.live.page.rules import RULES, Rule
from tests.helpers import rest_long
from tests.page import NOON_US, Showcase
from tests.property.test_partition import once
from tests.unit.test_page_estimates import SAMPLED, in_sample, judged
from tests.unit.test_state_partition import NOON_S
from tests.unit.test_worst import labelled, searched

pytestmark = pytest.mark.asyncio(loop_scope="session")  # that of the browser

expect.set_options(timeout=20_000)

NO_LABEL = "no document has a label"
AGENTS = ("first", "second", "third")
HOSTILE = "<img src=x onerror=alert(1)>"
TEN = "abcdefghij"
JUDGED = {f"1.{at}.{doc}": at % 5 for at, doc in enumerate(TEN)}
ORDINARY = (
    *(
        searched(f"c-{n}", 1, [*TEN, "a", "b"], NOON_S + 60 * n, agent=agent)
        for n, agent in enumerate(["first", "second", "first", "third"] * 4)
    ),
    searched("c-1", 2, [], NOON_S + 90, agent="second", gate={"decision": "skip"}),
    labelled("c-1", JUDGED),
    labelled("c-2", JUDGED),
)


def routed(conversation: str, route: str, **more: Any) -> dict[str, Any]:
    """A search iteration whose search took a route; it returned the same document many times."""
    event = searched(conversation, 1, ["a"] * 12, **more)
    event["searches"][0]["routing"] = {"selected": route}
    return event


WELL = Rule(
    "well", "All well", "SRRSpike", "never", "", of_agent=lambda _: Finding(OK, "it is fine")
)


@dataclass
class Looked:
    """A page in the browser, and its errors."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def tile(self, name: str) -> Any:
        """The value of a tile."""
        return self.page.locator(f"#tile-{name} .value")


@asynccontextmanager
async def looking(
    browser: Browser, showcase: Showcase, path: str = "/", width: int = 1440, **options: Any
) -> AsyncIterator[Looked]:
    """The page of a worker, once it shows figures."""
    async with showcase.served() as address:
        context = await browser.new_context(
            viewport={"width": width, "height": 900}, timezone_id="UTC", **options
        )
        looked = Looked(await context.new_page())
        page = looked.page
        page.on("console", lambda message: looked.complaints.append(message.text))
        page.on("pageerror", lambda error: looked.complaints.append(str(error)))
        page.on("dialog", lambda dialog: looked.complaints.append(f"dialog: {dialog.message}"))
        await page.goto(address + path)
        await expect(page.locator("#tile-srr")).to_be_visible()
        await expect(page.locator("#worst-text")).not_to_have_text("\u00a0")
        yield looked
        await context.close()


async def ordinary(**options: Any) -> Showcase:
    """A worker that has read a quarter of an hour of three agents."""
    return await Showcase.new(*ORDINARY, **{"now_us": NOON_US + 1_000_000_000, **options})


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", rest_long([360, 768, 1440]))
async def test_the_page_is_accessible_and_fits(browser: Browser, width: int, scheme: str) -> None:
    """With all details open nothing overflows, and axe-core and the console report nothing."""
    showcase = await ordinary()
    async with looking(browser, showcase, width=width, color_scheme=scheme) as looked:
        page = looked.page
        for closed in await page.locator("details > summary").all():
            await closed.click()
        await expect(page.locator("details[open] tbody tr").nth(500)).to_be_attached()

        violations = (await Axe().run(page)).response["violations"]

        assert [(v["id"], v["nodes"][0]["html"]) for v in violations] == []
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert looked.complaints == []


async def test_the_foot_says_which_engine_runs(browser: Browser) -> None:
    """In the words of ``--version``."""
    async with looking(browser, await ordinary()) as looked:
        said = f"stream-metrics {__version__} · engine: {ENGINE}"
        await expect(looked.page.locator("footer #version")).to_have_text(said)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_page_of_faults_is_accessible(browser: Browser, scheme: str) -> None:
    """This includes warnings, waiting, and a worker without partitions."""
    showcase = await Showcase.new(total=None)
    showcase.health.set("redis", "cannot be reached; retrying")
    showcase.operations.lag("events", 0, 10, 100.0)
    async with looking(browser, showcase, width=360, color_scheme=scheme) as looked:
        await expect(looked.page.locator("#verdict")).to_have_attribute("data-level", "critical")

        violations = (await Axe().run(looked.page)).response["violations"]

        assert [(v["id"], v["nodes"][0]["html"]) for v in violations] == []


async def test_the_page_says_what_its_figures_leave_out(browser: Browser) -> None:
    """The sentence is above the figures, and is only there if a turn is beyond a limit."""
    showcase = await Showcase.new(*ORDINARY[:2], now_us=NOON_US + 60_000_000)
    async with looking(browser, showcase) as looked:
        await expect(looked.page.locator("#beyond-limit")).to_be_hidden()

        await showcase.take([searched("loop", n, ["a"] * 1_001, agent="third") for n in (1, 2)])
        await looked.page.reload()

        await expect(looked.page.locator("#beyond-limit")).to_have_text(
            "1 turn beyond a limit (third): 1,001 results of 1 search are not in these figures."
        )
        await expect(looked.page.locator("#worst-list")).to_contain_text("1,000 of 1,001+")
        violations = (await Axe().run(looked.page)).response["violations"]

    assert [(v["id"], v["nodes"][0]["html"]) for v in violations] == []
    assert looked.complaints == []


async def test_the_page_names_the_conversation_of_a_turn_that_runs_away(browser: Browser) -> None:
    """Among what is wrong, and with a link to its trace; its tile shows that it repeats itself."""
    loop = [searched("chat-7", n, ["a"], NOON_S + n, agent="third") for n in range(1, 52)]
    for event in loop:
        event["searches"][0]["query"] = "the same"
    url = "https://traces.example.org/{conversation_id}"
    showcase = await Showcase.new(*loop, now_us=NOON_US + 60_000_000, conversation_url=url)
    async with looking(browser, showcase) as looked:
        page = looked.page
        await expect(page.locator("#wrong")).to_contain_text(
            "turn 1 of conversation chat-7 (third) has 51 iterations"
        )
        await expect(page.locator("#runaways")).to_contain_text("turn 1: 51 iterations")
        link = page.locator("#runaway-list a")
        await expect(link).to_have_attribute("href", "https://traces.example.org/chat-7")
        await expect(looked.tile("repeated_searches")).to_have_text("98\u202f%")
        await page.get_by_role("radio", name="most repeated searches").check()
        await expect(page.locator("#worst-list")).to_contain_text("asked again 50 of 51 searches")
        violations = (await Axe().run(page)).response["violations"]

    assert [(v["id"], v["nodes"][0]["html"]) for v in violations] == []
    assert looked.complaints == []


async def test_hostile_names_are_shown_as_text(browser: Browser) -> None:
    """Agents, routes, conversations and results that look like markup are not executed."""
    event = routed(HOSTILE, HOSTILE, agent=HOSTILE)
    for result in event["searches"][0]["results"]:
        result["result_id"] = HOSTILE + result["result_id"]
    showcase = await Showcase.new(event, now_us=NOON_US + 1_000_000)
    async with looking(browser, showcase) as looked:
        page = looked.page
        await page.locator("#worst-list summary").first.click()

        for place in ("#agents tbody", "#agent", "#worst-list code", "#worst-list td", "#charts"):
            await expect(page.locator(place).filter(has_text=HOSTILE).first).to_be_attached()
        await page.locator("#agents .link").click()
        await expect(page.locator("#agent")).to_have_value(HOSTILE)
        await expect(looked.tile("srr")).to_have_text("92\u202f%")
        assert await page.locator("img").count() == 1  # the page's own
        assert looked.complaints == []


async def test_the_page_can_be_used_by_keyboard_alone(browser: Browser) -> None:
    """Tab reaches everything in reading order with visible focus; arrows and Enter work."""
    async with looking(browser, await ordinary()) as looked:
        page = looked.page
        reached: list[str] = []
        for _ in range(60):
            await page.keyboard.press("Tab")
            at = await page.evaluate(
                """() => {
                    const it = document.activeElement;
                    const box = it.matches("input") ? it.nextElementSibling : it;
                    const style = getComputedStyle(box);
                    const shown = style.outlineStyle !== "none" && style.outlineWidth !== "0px";
                    const name = it.id || it.name || it.className || it.tagName.toLowerCase();
                    return [name, shown];
                }"""
            )
            if at[0] == "body":
                break
            reached.append(at[0])
            assert at[1], f"focus cannot be seen on {at[0]}"

        for name in ("skip", "agent", "window", "plot", "summary", "link", "ranking"):
            assert name in reached, name
        assert reached.index("agent") < reached.index("window") < reached.index("plot")
        assert looked.complaints == []


async def test_a_chart_is_read_by_arrow_keys(browser: Browser) -> None:
    """A chart is a slider over time: each key press announces the time and the values there."""
    async with looking(browser, await ordinary()) as looked:
        plot = looked.page.get_by_role("slider", name="Redundancy (SRR)")
        await plot.focus()
        last = await plot.get_attribute("aria-valuetext")
        await looked.page.keyboard.press("Home")

        await expect(plot).to_have_attribute("aria-valuenow", "0")
        await looked.page.keyboard.press("ArrowRight")
        await expect(plot).to_have_attribute("aria-valuenow", "1")
        await expect(plot).to_have_attribute("aria-valuetext", "11:18: SRR –")
        assert last is not None
        assert last.startswith("12:16: SRR")


async def test_a_chart_explains_its_line_beside_the_picture(browser: Browser) -> None:
    """The dashed line is what is usual; above the chart, where it hides no value, it is said."""
    before = [searched(f"b-{n}", 1, [*TEN[:8], "a", "b"], NOON_S - 1_440 * n) for n in range(3, 20)]
    async with looking(browser, await Showcase.new(*before, searched("c", 1, TEN))) as looked:
        charts = looked.page.locator("figure.chart")
        srr = charts.filter(has=looked.page.get_by_role("heading", name="Redundancy (SRR)"))
        await expect(srr.locator(".usual-line")).to_be_attached()
        await expect(srr.locator(".legend")).to_have_text("usually 20\u202f%")


async def test_an_axis_of_counts_has_whole_numbers(browser: Browser) -> None:
    """Results are whole numbers, so the end of the axis is even."""
    one = await Showcase.new(searched("c", 1, list("abcdefghijklmn"), NOON_S), now_us=NOON_US + 1)
    async with looking(browser, one) as looked:
        charts = looked.page.locator("figure.chart")
        results = charts.filter(has=looked.page.get_by_role("heading", name="Results"))
        ticks = await results.locator("svg .tick").all_text_contents()
        assert ticks[:3] == ["0", "8", "16"]


# Draws a chart for each largest value, and gives those whose picture has an attribute that is no
# number, or whose highest point sticks out.
SWEEP = """async ({ options, decades }) => {
    const { Chart } = await import("/charts.js");
    const chart = new Chart({ title: "Swept", about: "", format: String, ...options });
    Object.assign(chart.element.style,
        { position: "fixed", top: 0, width: "400px", height: "300px", contain: "strict" });
    document.body.append(chart.element);
    const broken = [];
    for (const decade of decades) {
        for (let hundredths = 100; hundredths < 1000; hundredths += 1) {
            const largest = Number(`${hundredths}e${decade - 2}`);
            if (largest > (options.limit ?? Infinity)) continue;
            const series = [{ name: "it", values: [null, largest], tone: "tone-1" }];
            chart.update({ times: [0, 60], seconds: false, series });
            const parts = [...chart.element.querySelectorAll("svg *")];
            const wrong = parts.some((part) => [...part.attributes].some(({ value }) =>
                /NaN|undefined|Infinity/.test(value)));
            const drawn = parts.filter((part) => part.matches("circle, rect"));
            const top = Math.min(...drawn.map((part) =>
                Number(part.getAttribute("cy") ?? part.getAttribute("y"))));
            if (wrong || !drawn.length || !(top >= 0)) broken.push(largest);
        }
    }
    chart.element.remove();
    return broken;
}"""


@pytest.mark.parametrize("decades", rest_long([range(-5, 5, 3), range(-5, 5)]), ids=["some", "all"])
@pytest.mark.parametrize(
    "options",
    [{}, {"limit": 1}, {"kind": "bars", "whole": True}],
    ids=["any values", "shares", "counts"],
)
async def test_a_chart_has_an_axis_for_every_maximum(
    browser: Browser, options: dict[str, Any], decades: range
) -> None:
    """Over ten decades of maximum values no attribute is NaN, and nothing overflows."""
    async with looking(browser, await Showcase.new()) as looked:
        asked = {"options": options, "decades": list(decades)}

        assert await looked.page.evaluate(SWEEP, asked) == []
        assert looked.complaints == []


async def test_a_page_of_nearly_full_coverage_has_all_its_lines(browser: Browser) -> None:
    """Where 99% of the documents have a label, every attribute in every picture is a number."""
    hundred = [f"d{n}" for n in range(100)]
    labels = {f"1.{at}.{doc}": 2 for at, doc in enumerate(hundred[1:], 1)}
    showcase = await Showcase.new(
        searched("c", 1, hundred, NOON_S), labelled("c", labels), now_us=NOON_US + 60_000_000
    )
    async with looking(browser, showcase) as looked:
        await expect(looked.tile("coverage")).to_have_text("99\u202f%")
        attributes = await looked.page.evaluate(
            """() => [...document.querySelectorAll("svg *")].flatMap((part) =>
                [...part.attributes].map(({ name, value }) => `${name}=${value}`))"""
        )

        assert len(attributes) > 100
        assert [each for each in attributes if "NaN" in each or "undefined" in each] == []


async def test_every_chart_has_its_table(browser: Browser) -> None:
    """Each chart has a table with a row for each point, and the same values."""
    async with looking(browser, await ordinary()) as looked:
        charts = looked.page.locator("figure.chart")
        assert await charts.count() == 10
        for chart in await charts.all():
            await expect(chart.locator("details summary")).to_contain_text("Table")
        results = charts.filter(has=looked.page.get_by_role("heading", name="Results"))
        await results.locator("summary").click()

        rows = results.locator("tbody tr")
        await expect(rows).to_have_count(60)
        first = rows.filter(has=looked.page.get_by_text("12:00", exact=True))
        assert await first.locator("td").all_text_contents() == ["10", "2"]


FRAMES = """() => [...document.querySelectorAll("figure.chart")].map((chart) => {
    const at = (box) => [Math.round(box.top + scrollY), Math.round(box.bottom + scrollY)];
    const of = (name) => chart.querySelector(name).getBoundingClientRect();
    chart.scrollIntoView({ block: "center" });
    const head = of("h3");
    const over = document.elementFromPoint(head.x + 4, (head.top + head.bottom) / 2);
    return { plot: at(of(".plot")), end: at(of("details"))[1], read: over.matches("h3") };
})"""


@pytest.mark.parametrize("width", [900, 1440])
async def test_an_open_table_leaves_the_charts_beside_it_as_they_are(
    browser: Browser, width: int
) -> None:
    """The other charts of the row end where they did, and no plot moves; what is below moves down
    together.
    """
    async with looking(browser, await ordinary(), width=width) as looked:
        charts = looked.page.locator("figure.chart")
        before = await looked.page.evaluate(FRAMES)
        results = charts.filter(has=looked.page.get_by_role("heading", name="Results"))
        await results.locator("summary").click()
        await expect(results.locator("tbody tr")).to_have_count(60)
        after = await looked.page.evaluate(FRAMES)

    assert [chart["read"] for chart in after] == [True] * 10
    columns = sum(chart["plot"] == before[0]["plot"] for chart in before)
    assert columns > 1
    taller = after[1]["end"] - before[1]["end"]
    assert taller > 100
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        down = 0 if number < columns else taller
        assert new["plot"] == [edge + down for edge in old["plot"]], number
        assert new["end"] == old["end"] + (taller if number == 1 else down), number


async def test_window_and_agent_can_be_chosen(browser: Browser) -> None:
    """Figures follow the choice, and the address keeps it for a reload."""
    async with looking(browser, await ordinary()) as looked:
        page = looked.page
        await expect(looked.tile("results")).to_have_text("192")
        await page.get_by_role("radio", name="5m").check()
        await expect(looked.tile("results")).to_have_text("48")
        await page.get_by_role("radio", name="24h").check()
        await expect(looked.tile("results")).to_have_text("192")
        await page.locator("#agent").select_option("third")
        await expect(looked.tile("results")).to_have_text("48")

        assert page.url.endswith("?agent=third&window=24h")
        await page.reload()
        await expect(looked.tile("results")).to_have_text("48")
        await expect(page.locator("#agent")).to_have_value("third")
        await expect(page.get_by_role("radio", name="24h")).to_be_checked()


async def test_an_address_with_an_unknown_window_is_corrected(browser: Browser) -> None:
    """An old link with a removed window shows the default one."""
    async with looking(browser, await ordinary(), "/?window=7d") as looked:
        await expect(looked.page.get_by_role("radio", name="1h")).to_be_checked()
        assert "window" not in looked.page.url


async def test_figures_are_updated_without_a_reload(browser: Browser) -> None:
    """New events and labels show without a reload, and the focus stays where it was."""
    showcase = await ordinary()
    async with looking(browser, showcase) as looked:
        button = looked.page.locator("#agents .link").first
        await button.focus()
        await showcase.take([searched("late", 1, ["x"] * 9, NOON_S + 990, agent="first")])

        await expect(looked.tile("results")).to_have_text("201")
        await expect(looked.page.locator("#agents tbody tr").first).to_contain_text("105")
        await expect(button).to_be_focused()


async def test_the_page_reports_missing_traffic(browser: Browser) -> None:
    """A worker that has read nothing shows text instead of zeros."""
    async with looking(browser, await Showcase.new()) as looked:
        page = looked.page
        await expect(page.locator("#verdict-title")).to_have_text("No searches yet")
        await expect(looked.tile("srr")).to_have_text("–")
        await expect(page.locator("#tile-srr")).to_contain_text("no searches in this window")
        await expect(page.locator("#agents-none")).to_have_text("No agent has searched yet.")
        await expect(page.locator("#worst-none")).to_contain_text("No conversation has searched")


async def test_the_page_reports_missing_labels(browser: Browser) -> None:
    """Before the first label the gain is unknown, and is not shown as 0."""
    showcase = await Showcase.new(searched("c", 1, ["a", "b"]), now_us=NOON_US + 1)
    async with looking(browser, showcase) as looked:
        await expect(looked.tile("srr")).to_have_text("0\u202f%")
        await expect(looked.tile("sre")).to_have_text("–")
        await expect(looked.page.locator("#tile-sre .about")).to_have_text(NO_LABEL)
        await expect(looked.page.locator("#tile-gain .about")).to_have_text(NO_LABEL)
        await expect(looked.page.locator("#charts")).to_contain_text("No document has a label.")


async def test_estimates_are_shown_while_there_are_random_samples(browser: Browser) -> None:
    """Each has its interval and its conversations; that of SRE says where the judge is off."""
    showcase = await Showcase.new(*SAMPLED, now_us=NOON_US + 1)
    async with looking(browser, showcase) as looked:
        tile = looked.page.locator("#tile-estimate-sre")
        await expect(looked.tile("estimate-sre")).to_have_text("55\u202f%")
        await expect(tile.locator(".about")).to_contain_text("95% interval")
        await expect(tile.locator(".usual")).to_have_text(
            "For all turns of 24h, from labels of random samples: 24 conversations by people and a "
            "model, 24 by a model alone. The judge is 20 points too kind to it-desk."
        )
        await expect(looked.tile("estimate-gain")).to_have_text("16.50")
        showcase.now_us += 2 * 86_400_000_000
        await expect(tile).to_have_count(0)
        await expect(looked.tile("srr")).to_have_text("–")
        assert looked.complaints == []


async def test_labels_of_a_judge_that_is_behind_are_not_shown(browser: Browser) -> None:
    """The tile says so, of people's own estimate and where there is none."""
    cases = [
        (SAMPLED, "55\u202f%", "by people alone", "The judge has 3 turns yet to label"),
        (
            judged(1, "it-desk", ("model",)),
            "–",
            "yet to label: its endpoint gives no gra",
            "1 conv",
        ),
    ]
    for events, value, about, usual in cases:
        showcase = await Showcase.new(*events, now_us=NOON_US + 1)
        showcase.board.inputs = replace(
            showcase.board.inputs, due_turns=lambda: 3, gets_no_grades=lambda: True
        )
        async with looking(browser, showcase) as looked:
            tile = looked.page.locator("#tile-estimate-sre")
            await expect(looked.tile("estimate-sre")).to_have_text(value)
            await expect(tile.locator(".about")).to_contain_text(about)
            await expect(tile.locator(".usual")).to_contain_text(usual)
            assert looked.complaints == []


async def test_a_sample_of_a_part_of_the_turns_is_said_to_be_one(browser: Browser) -> None:
    """The tile says since when it is drawn, and what of it the model has not labelled."""
    early_s = NOON_US // 1_000_000 - 6 * 3_600
    early = [searched(f"early-{n}", 1, "abcdefghij", early_s) for n in range(60)]
    drawn = [
        event
        for n in range(3)
        for event in (searched(f"drawn-{n}", 1, "abcdefghij"), in_sample(f"drawn-{n}"))
    ]
    showcase = await Showcase.new(*SAMPLED, *early, *drawn, now_us=NOON_US + 1)
    async with looking(browser, showcase) as looked:
        tile = looked.page.locator("#tile-estimate-sre")
        await expect(tile.locator(".about")).to_contain_text("by people alone")
        for said in (
            re.compile("For the turns of 24h since .*, as none of the others is in a sample"),
            "24 by a model alone. 3 conversations, of these or others, are not labelled whole",
            "Over 5% of what was drawn for the model is not labelled by it, so its labels do not",
        ):
            await expect(tile.locator(".usual")).to_contain_text(said)
        assert looked.complaints == []


async def test_tiles_of_all_labels_say_what_they_count(browser: Browser) -> None:
    """Settled iterations, whoever labelled them: that is why they differ from estimates."""
    showcase = await Showcase.new(*SAMPLED, now_us=NOON_US + 1)
    async with looking(browser, showcase) as looked:
        await expect(looked.page.locator("#tile-sre .about")).to_have_text(
            "288 of 480 results of settled iterations are new and good, whoever labelled them"
        )
        await expect(looked.page.locator("#tile-gain .about")).to_have_text(
            "per iteration; 864 in 48 settled iterations, whoever labelled them"
        )
    more = [event for n in range(500, 510) for event in judged(n, "it-desk", ("model",))]
    showcase = await Showcase.new(*SAMPLED, *more, now_us=NOON_US + 1)
    async with looking(browser, showcase) as looked:
        await expect(looked.page.locator("#tile-sre .about")).to_contain_text(
            "most conversations of the samples by a model alone: see SRE, estimated"
        )


async def test_labels_before_anything_is_settled_are_not_called_missing(browser: Browser) -> None:
    """If one of two documents is labeled, the page says that no iteration is settled."""
    events = [searched("c", 1, ["a", "b"]), labelled("c", {"1.0.a": 3})]
    async with looking(browser, await Showcase.new(*events, now_us=NOON_US + 1)) as looked:
        settled = "no iteration with results is settled"
        await expect(looked.tile("coverage")).to_have_text("50\u202f%")
        await expect(looked.page.locator("#tile-sre .about")).to_contain_text(settled)
        await expect(looked.page.locator("#charts")).to_contain_text(settled.capitalize())


async def test_unlabeled_decisions_are_shown_as_unlabeled(browser: Browser) -> None:
    """Gates and routes from traces never get labels, and the page says that they have none."""
    events = [
        routed("r", "handbook", gate={"decision": "search"}),
        *gated("g", "skip", needed=True)[:1],
    ]
    async with looking(browser, await Showcase.new(*events, now_us=NOON_US + 1)) as looked:
        for tile, said in {
            "gate_efficiency": "no gate decision has a label",
            "routing_accuracy": "no routed search has a label",
        }.items():
            await expect(looked.page.locator(f"#tile-{tile} .about")).to_have_text(said)
        await expect(looked.page.locator("#charts")).to_contain_text("No routed search has a label")


async def test_a_fresh_start_is_reported_once(browser: Browser) -> None:
    """The banner says what cannot be judged and why; no tile repeats it."""
    events = [searched(f"c-{n}", 1, TEN, NOON_S - n, agent=AGENTS[n % 3]) for n in range(60)]
    async with looking(browser, await Showcase.new(*events)) as looked:
        page = looked.page
        banner = page.locator("#verdict")
        await expect(banner).to_contain_text("Too little data to judge: ")
        await expect(banner).to_contain_text(
            "What is usual for first, second and third is known after about 3 hours"
        )
        assert len(re.findall("cannot tell|Too little", await banner.inner_text())) == 1
        assert not any(await page.locator("#tiles .state").all_inner_texts())


async def test_a_waiting_worker_shows_the_reason(browser: Browser) -> None:
    """While Redis is unavailable, the page says so at the top, until Redis is back."""
    showcase = await ordinary()
    showcase.health.set("redis", "cannot be reached; retrying")
    async with looking(browser, showcase) as looked:
        title = looked.page.locator("#verdict-title")
        await expect(title).to_have_text("Waiting for Redis")
        await expect(looked.page.locator("#wrong")).to_contain_text("cannot be reached; retrying")

        showcase.health.clear("redis")
        await expect(title).to_have_text(re.compile("^Too little data to judge"))


@pytest.mark.parametrize(
    ("total", "text"),
    [
        (4, "1 of 4 partitions: 1 of this worker, as of now"),
        (1, "All partitions (1) are this worker’s, as of now"),
        (None, "No partition is known yet"),
    ],
)
async def test_the_page_shows_its_share_of_partitions(
    browser: Browser, total: int | None, text: str
) -> None:
    """The number of partitions in the figures is next to the name."""
    async with looking(browser, await ordinary(total=total)) as looked:
        await expect(looked.page.locator("#coverage")).to_have_text(text)
        await expect(looked.page.locator("#group")).to_be_hidden()


async def test_the_page_shows_the_owners_of_partitions(browser: Browser) -> None:
    """Figures include the partitions of other workers, with their owners and age."""
    more = [searched("d-1", 1, list("abcdefgh"), NOON_S + 60, agent="fourth")]
    other = await Showcase.new(*more, number=1)
    showcase = await ordinary(store=other.store, total=3, grouped=True)
    showcase.store.clock = lambda: 1
    await other.partition.beat(once, 0)
    async with looking(browser, showcase, width=360) as looked:
        await expect(looked.tile("results")).to_have_text("200")
        await expect(looked.page.locator("#coverage")).to_have_text(
            "2 of 3 partitions: 1 of this worker, as of now; "
            "1 of worker-1:9464, read 0.0\u202fs ago"
        )
        rows = looked.page.locator("#workers tbody tr")
        assert [await row.inner_text() for row in await rows.all()] == [
            "worker-0:9464 (this worker)\t0\tas of now",
            "worker-1:9464\t1\tread 0.0\u202fs ago",
            "not known\t2\tpartition 2: no figures (no worker has taken it over yet)",
        ]
        drop = looked.page.locator("#rules li").filter(has_text="Results drop")
        await expect(drop).to_contain_text("Judged without the latest of partition 2.")
        await expect(looked.page.locator("#wrong")).to_contain_text("Partitions missing")
        assert (await Axe().run(looked.page)).response["violations"] == []
        assert await looked.page.evaluate("document.documentElement.scrollWidth <= innerWidth")

        showcase.store.clock = lambda: 30_000
        showcase.seconds = 30.0
        await expect(looked.page.locator("#coverage")).to_have_text(
            "2 of 3 partitions: 1 of this worker, as of now; 1 of before, see below"
        )
        await expect(rows.nth(1)).to_contain_text("no worker has worked on it for 30 s")


def every_ten_seconds() -> Iterator[dict[str, Any]]:
    """A labelled search every ten seconds of the last half hour, and one every ten minutes before.

    So many that each rule about searches and labels has enough of them, now and in the day before.
    """
    ages = [*range(0, 1_800, 10), *range(1_800, 80_000, 600)]
    for number, age in enumerate(ages):
        yield searched(f"d-{number}", 1, TEN, NOON_S - age, agent="support")
        judged = {f"1.{place}.{document}": 3 for place, document in enumerate(TEN)}
        yield labelled(f"d-{number}", judged) | {"occurred_at": NOON_S - age}


async def test_the_verdict_is_green_only_if_every_rule_could_judge(browser: Browser) -> None:
    """A day of good labeled searches is green; with an additional fresh agent it is not."""
    showcase = await Showcase.new(*every_ten_seconds(), now_us=NOON_US + 1)
    showcase.runs_well()
    async with looking(browser, showcase) as looked:
        verdict = looked.page.locator("#verdict")
        await expect(verdict).to_contain_text("Nothing is wrong")
        await expect(verdict).to_have_attribute("data-level", "ok")
        await expect(looked.page.locator("#tile-srr .usual")).to_have_text(
            "usually 0\u202f% (the day before)"
        )
        await expect(looked.page.locator("#agents tbody")).to_contain_text("fine")

        await showcase.take(
            searched(f"f-{n}", 1, ["x"] * 12, NOON_S - n, agent="fresh") for n in range(40)
        )
        showcase.now_us += 60_000_000  # agents are judged once a minute
        showcase.seconds += 60

        await expect(verdict).to_contain_text("Too little data to judge: ")
        await expect(verdict).to_have_attribute("data-level", "unknown")


async def test_a_rule_says_what_is_missing_to_judge_an_agent(browser: Browser) -> None:
    """The reason is there beside the agents that are fine, whichever agent is chosen."""
    fresh = [searched(f"f-{n}", 1, TEN, NOON_S - n, agent="fresh") for n in range(3)]
    showcase = await Showcase.new(*every_ten_seconds(), *fresh, now_us=NOON_US + 1)
    async with looking(browser, showcase) as looked:
        rule = looked.page.locator("#rules > li").filter(has_text="SRR spike")
        await expect(rule).to_contain_text("Fine for support; too little data for fresh.")
        await expect(rule).to_contain_text(
            "fresh: 0 minutes with results in the day before the last hour, 30 are needed to know "
            "what is usual."
        )


async def test_a_fresh_agent_above_a_threshold_is_not_green(browser: Browser) -> None:
    """Redundancy without a previous day is shown, and called neither usual nor fine."""
    fresh = [
        searched(f"f-{n}", 1, [*"abcd", *"aaaaaa"], NOON_S - 20 * n, agent="fresh")
        for n in range(150)
    ]
    showcase = await Showcase.new(*fresh)
    showcase.runs_well()
    async with looking(browser, showcase) as looked:
        page = looked.page
        await expect(looked.tile("srr")).to_have_text("60\u202f%")
        await expect(page.locator("#verdict")).to_have_attribute("data-level", "unknown")
        await expect(page.locator("#wrong li")).to_contain_text("SRR spike")
        await expect(page.locator("#wrong li")).to_contain_text("which is above 40%")
        await expect(page.locator("#tile-srr .usual")).to_have_text("")
        await expect(page.locator("#tile-srr .state")).to_contain_text("cannot tell")
        await expect(page.locator("#agents tbody tr")).to_contain_text("cannot tell")
        rule = page.locator("#rules > li").filter(has_text="SRR spike")
        await expect(rule).to_have_attribute("data-level", "unknown")


async def test_a_spike_is_named_and_links_to_the_conversations(browser: Browser) -> None:
    """The fault is at the top in words, with links to its agent and the repeated results."""
    good = [
        searched(f"g-{n}", 1, list("abcdefgh"), NOON_S - 40_000 + 60 * n, agent="a")
        for n in range(130)
    ]
    bad = [searched(f"b-{n}", 1, ["x"] * 12, NOON_S - 50 * n, agent="a") for n in range(40)]
    async with looking(browser, await Showcase.new(*good, *bad)) as looked:
        page = looked.page
        wrong = page.locator("#wrong li")
        await expect(wrong).to_contain_text("SRR spike")
        await expect(wrong).to_contain_text("repeat what the turn had already")
        await wrong.get_by_role("button", name="a").click()
        await expect(page.get_by_role("combobox", name="Agent")).to_be_focused()
        await page.locator("#worst-list summary").first.click()
        row = page.locator("#worst-list tbody tr").first
        assert await row.locator("td").all_text_contents() == [
            "1.1.x", "1", "1.0.x", "1", "id", "other",
        ]  # fmt: skip
        heads = page.locator("#worst-list table").first.locator("th")
        assert await heads.all_text_contents() == [
            "result", "in iteration", "repeats", "of iteration", "evidence", "type",
        ]  # fmt: skip


async def test_a_conversation_links_to_its_trace(browser: Browser) -> None:
    """With a template each of the worst conversations has a link that contains only its id."""
    event = searched("a/b?c", 1, ["x"] * 12, NOON_S)
    url = "https://traces.example.org/{conversation_id}"
    async with looking(browser, await Showcase.new(event, conversation_url=url)) as looked:
        await looked.page.locator("#worst-list summary").click()
        link = looked.page.get_by_role("link", name="Open its trace")

        await expect(link).to_have_attribute("href", "https://traces.example.org/a%2Fb%3Fc")
        await expect(link).to_have_attribute("rel", "noopener noreferrer")
    async with looking(browser, await Showcase.new(event)) as looked:
        await looked.page.locator("#worst-list summary").click()
        await expect(looked.page.locator("#worst-list table")).to_be_visible()
        assert await looked.page.get_by_role("link", name="Open its trace").count() == 0


async def test_each_rule_links_to_its_runbook(browser: Browser) -> None:
    """With a template it is a link, without one the name of the file."""
    linked = await Showcase.new(runbook_url="https://docs.example.org/runbooks/{alert}")
    async with looking(browser, linked) as looked:
        await expect(looked.page.get_by_role("link", name="Runbook of SRRSpike")).to_have_attribute(
            "href", "https://docs.example.org/runbooks/SRRSpike"
        )
    async with looking(browser, await Showcase.new()) as looked:
        await expect(looked.page.locator("#rules")).to_contain_text("docs/runbooks/SRRSpike.md")


def gated(conversation: str, decision: str, *, needed: bool) -> list[dict[str, Any]]:
    """An iteration in which a gate decided, and a label that says what was needed."""
    found = [] if decision == "skip" else ["a"]
    event = searched(conversation, 1, found, NOON_S, gate={"decision": decision})
    if decision == "skip":
        del event["searches"]
    label = labelled(conversation, {}) | {"gate": [{"iteration": 1, "search_needed": needed}]}
    return [event, label]


async def test_gate_efficiency_shows_possible_savings(browser: Browser) -> None:
    """One of five labelled decisions skipped a search; two searches were not needed."""
    decided = [
        gated("g-1", "skip", needed=False),
        gated("g-2", "search", needed=False),
        *(gated(f"g-{n}", "search", needed=True) for n in (3, 4, 5)),
    ]
    events = [event for pair in decided for event in pair]
    async with looking(browser, await Showcase.new(*events)) as looked:
        tile = looked.page.locator("#tile-gate_efficiency")
        await expect(tile.locator(".value")).to_have_text("20\u202f%")
        await expect(tile.locator(".about")).to_have_text(
            "1 of 5 labelled decisions correctly skipped a search"
        )
        await expect(tile.locator(".usual")).to_have_text(
            "2 searches were not needed; 50\u202f% of them skipped"
        )


async def test_too_short_conversations_are_not_called_good(browser: Browser) -> None:
    """If none has enough results to be ranked, the page does not say that none has duplicates."""
    showcase = await Showcase.new(searched("c", 1, ["a", "a"], NOON_S))
    async with looking(browser, showcase) as looked:
        await expect(looked.page.locator("#worst-none")).to_have_text(
            "Cannot tell: no conversation has 10 results."
        )


async def test_the_page_polls_without_a_stream(browser: Browser) -> None:
    """A page beyond the limit of streams still shows its figures."""
    async with looking(browser, await ordinary(max_streams=0)) as looked:
        await expect(looked.page.locator("#connection-text")).to_have_text("every 5 s")
        await expect(looked.tile("results")).to_have_text("192")


async def test_a_lost_connection_is_shown(browser: Browser) -> None:
    """When the worker is down, the page says since when, keeps its figures, and is not green."""
    showcase = await ordinary()
    showcase.board.inputs = replace(showcase.board.inputs, rules=[WELL])
    async with showcase.served() as address:
        page = await browser.new_page()
        await page.clock.install()
        await page.goto(address)
        await expect(page.locator("#connection-text")).to_have_text("connected")
        await expect(page.locator("#verdict")).to_have_attribute("data-level", "ok")
    await page.clock.fast_forward(30_000)

    await expect(page.locator("#verdict")).to_have_attribute("data-level", "unknown")
    await expect(page.locator("#verdict-title")).to_have_text("This worker does not answer")
    await expect(page.locator("#verdict-text")).to_contain_text("It said then: Nothing is wrong.")
    await expect(page.locator("#connection-text")).to_contain_text("no answer since")
    await expect(page.locator("#tile-results .value")).to_have_text("192")


async def test_motion_is_reduced_on_request(browser: Browser) -> None:
    """The only animation is off for users who prefer reduced motion."""
    moving = "() => getComputedStyle(document.querySelector('.dot')).animationName"
    async with looking(browser, await ordinary()) as looked:
        await expect(looked.page.locator("#connection")).to_have_attribute("data-state", "live")
        assert await looked.page.evaluate(moving) != "none"
    async with looking(browser, await ordinary(), reduced_motion="reduce") as looked:
        await expect(looked.page.locator("#connection")).to_have_attribute("data-state", "live")
        assert await looked.page.evaluate(moving) == "none"


@pytest.mark.parametrize("width", [360, 1440])
async def test_without_kafka_nothing_unknown_is_shown_as_known(
    browser: Browser, width: int
) -> None:
    """The pill, the tile, the rule and the banner say what is unknown and since when; every rule
    names an alert."""
    showcase = await ordinary(behind_ms=300_000, grouped=True)
    showcase.operations.complete_until(43_200.0)
    showcase.operations.ends_told(43_205.0)
    showcase.board.sample()
    showcase.operations.complete_until(None)
    showcase.health.set("kafka", "brokers do not answer: TimeoutError")
    showcase.health.since["kafka"] = 43_207.0
    async with looking(browser, showcase, width=width, color_scheme="light") as looked:
        page = looked.page
        await expect(page.locator("#connection-text")).to_have_text(
            "waiting for Kafka since 12:00:07"
        )
        await expect(looked.tile("lag")).to_have_text("unknown")
        tile = page.locator("#tile-lag")
        await expect(tile).to_contain_text("since 12:00:05, when Kafka last told it")
        await expect(tile).to_contain_text("read up to 12:00:00")
        verdict = page.locator("#verdict")
        await expect(verdict).to_contain_text("Waiting for Kafka")
        await expect(verdict).to_contain_text("What was written up to 12:00:00 is in them.")
        await expect(verdict).to_contain_text("TimeoutError, since 12:00:07.")
        await expect(page.locator("#coverage")).not_to_contain_text("as of now")
        rules = page.locator("#rules > li")
        await expect(rules.filter(has_text="Consumer lag")).to_contain_text("cannot tell")
        await expect(rules.filter(has_text="alert StreamMetrics")).to_have_count(len(RULES) - 1)
        await expect(rules.filter(has_text="alert SRRSpike")).to_have_count(1)
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert looked.complaints == []
