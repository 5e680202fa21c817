"""``report.html`` and ``compare.html`` in a real Chromium: narrow, wide, light, dark, printed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser
from typer.testing import CliRunner

from stream_metrics.cli import app
from tests.helpers import rest_long

pytestmark = [pytest.mark.service, pytest.mark.asyncio(loop_scope="session")]


def run(*arguments: str) -> None:
    """Run a command line."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The page of a replay, of an evaluation with strata, and of a comparison."""
    folder = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("STREAM_METRICS_CONFIG", "")
        monkeypatch.chdir(folder)
        make_reports()
    return [folder / "1/report.html", folder / "e/report.html", folder / "c/compare.html"]


def make_reports() -> None:
    """Write recordings and reports to the working directory."""
    cases = Path(__file__).parents[2] / "examples" / "evaluation"
    for name in "12":
        run("generate", "--out", f"{name}.jsonl", "--conversations", "20", "--seed", name)
        run("replay", f"{name}.jsonl", "--out", name)
    run("evaluate", "--qrels", str(cases / "cases"), "--run", str(cases / "found.jsonl"),
        "--out", "e")  # fmt: skip
    run("compare", "1", "2", "--stratify", "agent", "--resamples", "100", "--out", "c")


Scheme = Literal["light", "dark"]


async def looked_at(browser: Browser, page_path: Path, width: int, scheme: Scheme) -> list[str]:
    """The problems of a page with all folded sections open."""
    context = await browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
    )
    page = await context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("requestfailed", lambda request: wrong.append(request.url))
    await page.goto(page_path.as_uri())
    for closed in await page.locator("details > summary").all():
        await closed.click()
    violations = (await Axe().run(page)).response["violations"]
    wrong += [f"{one['id']}: {one['nodes'][0]['html']}" for one in violations]
    if not await page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
        wrong.append("something sticks out")
    await context.close()
    return [f"{page_path.parent.name} at {width} px, {scheme}: {one}" for one in wrong]


async def test_a_report_is_short_until_strata_are_opened(
    pages: list[Path], browser: Browser
) -> None:
    """Folded, the report of a replay has less than a third of its unfolded height."""
    page = await browser.new_page(viewport={"width": 1200, "height": 900})
    await page.goto(pages[0].as_uri())
    height = "document.documentElement.scrollHeight"
    folded = await page.evaluate(height)
    for closed in await page.locator("details.folded > summary").all():
        await closed.click()
    opened = await page.evaluate(height)
    await page.close()

    assert folded * 3 < opened


async def test_an_open_table_makes_only_its_own_chart_taller(
    pages: list[Path], browser: Browser
) -> None:
    """The charts beside it keep at most the height that they had."""
    heights = "() => [...document.querySelectorAll('.chart')].map((one) => one.offsetHeight)"
    page = await browser.new_page(viewport={"width": 1200, "height": 900})
    await page.goto(pages[0].as_uri())
    before = await page.evaluate(heights)
    await page.locator(".chart summary").first.click()
    after = await page.evaluate(heights)
    await page.close()

    assert len(before) > 1
    assert after[0] > before[0]
    assert [new <= old for old, new in zip(before[1:], after[1:], strict=True)] == [True] * (
        len(before) - 1
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "looks",
    rest_long([[(360, "dark"), (1440, "light")], [(360, "light"), (1440, "dark")]]),
    ids=["dark phone, light desktop", "light phone, dark desktop"],
)
async def test_pages_are_accessible_and_fit(
    pages: list[Path], browser: Browser, looks: list[tuple[int, Scheme]]
) -> None:
    """axe-core and the console report nothing, and nothing overflows."""
    wrong = []
    for path in pages:
        for width, scheme in looks:
            wrong += await looked_at(browser, path, width, scheme)

    assert wrong == []


async def test_pages_can_be_printed(pages: list[Path], browser: Browser) -> None:
    """The table of each chart is printed, too."""
    for path in pages:
        page = await browser.new_page()
        await page.goto(path.as_uri())
        assert (await page.pdf(format="A4")).startswith(b"%PDF")
        await page.emulate_media(media="print")
        for table in await page.locator("figure table").all():
            assert (await table.bounding_box()) is not None
        await page.close()
