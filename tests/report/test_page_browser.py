"""The page in a real browser: it draws, fits, prints, runs nothing that a user typed, and asks the network nothing."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from colligate.records import Row
from colligate.report import render_page

HOSTILE = "<script>alert(1)</script>"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright isn't installed")
    named = (os.environ.get("COLLIGATE_CHROMIUM"), shutil.which("chromium"), shutil.which("google-chrome"))
    found = next((path for path in named if path and Path(path).is_file()), None)
    if found is None:
        pytest.skip("no Chromium here; name one in COLLIGATE_CHROMIUM")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=found, args=FLAGS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    """Open a page and note whatever goes wrong in it."""
    contexts = []

    def open_page(text: str, **given):
        path = tmp_path_factory.mktemp("page") / "report.html"
        path.write_text(text, encoding="utf-8")
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **given}))
        page = contexts[-1].new_page()
        page.troubles = []
        page.on("pageerror", lambda error: page.troubles.append(f"error {error}"))
        page.on("console", lambda m: page.troubles.append(m.text) if m.type == "error" else None)
        page.on("dialog", lambda dialog: (page.troubles.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on(
            "request",
            lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else page.troubles.append(f"asks {r.url}"),
        )
        page.goto(path.as_uri(), timeout=120_000)
        page.wait_for_selector("html[data-ready=yes]", timeout=120_000)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def page(opened, fresh):
    """The page of a whole study, with a picture for each object; tests leave it as they found it."""
    from base64 import b64encode
    from io import BytesIO

    from PIL import Image

    record, studies, figures = fresh()
    file = BytesIO()
    Image.new("RGB", (8, 8), "red").save(file, format="PNG")
    address = f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"
    figures["pictures"] = {point["hover"]: address for point in figures["objects"]["points"]}
    return opened(render_page(record, studies["whole"], figures))


def overflow(page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


def test_every_figure_is_drawn_without_a_complaint(page):
    places = page.locator("[data-figure]")
    assert places.count() >= 10
    drawn = places.evaluate_all("all => all.map(p => p.querySelectorAll('.main-svg .trace path').length)")
    assert all(count > 0 for count in drawn)
    assert page.locator("[data-figure=probes] path.point").count() >= 6
    assert page.locator(".tile svg.axis").count() == 5
    assert overflow(page) <= 0
    assert page.troubles == []


def test_it_fits_a_telephone_in_light_and_in_dark(opened, fresh):
    record, studies, figures = fresh()
    record["inputs"]["model"]["name"] = "hf:" + "a-very-long-model-name/" * 6
    page = opened(render_page(record, studies["whole"], figures), viewport={"width": 400, "height": 800})
    assert overflow(page) <= 0
    page.locator("details").evaluate_all("all => all.forEach(d => { d.open = true; })")
    assert overflow(page) <= 0
    papers = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        ink, paper = page.evaluate(
            "(() => { const s = getComputedStyle(document.body); return [s.color, s.backgroundColor]; })()"
        )
        assert contrast(ink, paper) > 7
        label = page.locator("[data-figure=probes] .ytick text").first.evaluate("e => getComputedStyle(e).fill")
        assert contrast(label, paper) > 4.5
        for soft in (".facts-line", ".legend", "caption", ".tile-sentence", ".answer-yes", ".contents a", "td small"):
            assert contrast(page.locator(soft).first.evaluate("e => getComputedStyle(e).color"), paper) > 4.5, soft
        papers.append(paper)
        title = page.locator("[data-figure=probes] .annotation text").first.evaluate("e => getComputedStyle(e).fill")
        assert contrast(title, paper) > 4.5
    assert papers[0] != papers[1]
    assert page.troubles == []


def test_figures_follow_their_place_and_not_only_the_window(opened, fresh):
    """A window that shrinks while figures are drawn, or a scrollbar that appears, leaves none wider than its place."""
    record, studies, figures = fresh()
    page = opened(render_page(record, studies["whole"], figures))
    page.evaluate("document.querySelector('main').style.width = '364px'")
    page.wait_for_timeout(500)
    wide = page.evaluate(
        """[...document.querySelectorAll('[data-figure]')].filter(place => {
            const [own, drawn] = [place, place.querySelector('.main-svg')].map(e => e.getBoundingClientRect().width);
            return own > 364 || Math.abs(drawn - own) > 1;
        }).map(place => place.dataset.figure)"""
    )
    assert wide == []
    assert page.troubles == []


@pytest.mark.parametrize(
    ("width", "face"), [(400, None), (400, "monospace"), (400, "'DejaVu Sans', sans-serif"), (1280, None)]
)
def test_no_label_is_cut_at_any_width(width, face, opened, fresh):
    """Labels of maps and titles of axes lie inside their picture, however wide the system's font is."""
    record, studies, figures = fresh()
    points = figures["quadruple"]["points"]
    for end in (min, max):
        end((p for p in points if p["kind"] != "sum"), key=lambda p: p["x"])["label"] = "a red square | a blue circle"
    family = "global_product.head"
    level: dict[str, Any] = {"on": "test", "coverage": 0.8, "chance": 0.1}
    rules = [Row(id=f"complexity.{kind}", family=family, value=0.6, **level) for kind in ("concept", "object")]
    rules.append(Row(id="complexity.area", on="test", family=family, value=0.5, low=0.4, high=0.6))
    rules.append(Row(id="complexity.sound", family=family, value=1.0, **level))
    text = render_page(record, [*studies["whole"], *rules], figures)
    if face is not None:
        assert text.count("--sans: ") == 1
        text = re.sub(r"--sans: [^;]+;", f"--sans: {face};", text)
    page = opened(text, viewport={"width": width, "height": 800})
    assert page.locator("[data-figure=complexity-best] .ytick text").count() == 2
    cut = page.evaluate(
        """[...document.querySelectorAll(
            '[data-figure] :is(.textpoint, .annotation, .ytick, .xtick) text'
        )].filter(t => {
            const [own, all] = [t, t.closest('.main-svg')].map(e => e.getBoundingClientRect());
            return own.left < all.left - 1 || own.right > all.right + 1 || own.top < all.top - 1 ||
                own.bottom > all.bottom + 1;
        }).map(t => t.textContent)"""
    )
    assert cut == []
    assert page.locator("[data-figure=map-quadruple] .textpoint text").count() >= 12
    assert page.locator("[data-figure] .annotation text").count() >= 5


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = [float(part) / 255 for part in colour.split("(")[1].rstrip(")").split(",")[:3]]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_it_prints_dark_ink_on_white(page):
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    label = page.locator("[data-figure=probes] .ytick text").first
    assert label.evaluate("e => getComputedStyle(e).fill") == "rgb(0, 0, 0)"
    assert not page.locator(".contents").is_visible()
    assert page.locator("[data-figure=probes] .main-svg").first.is_visible()
    page.emulate_media(media="screen", color_scheme="light")


def test_a_value_that_is_a_script_is_shown_and_not_run(opened, fresh):
    record, studies, figures = fresh()
    link, image = "<a href='javascript:alert(3)'>x</a>", "<img src=x onerror=alert(2)>"
    record["inputs"]["world"]["concepts"] = {"color": [HOSTILE, "blue"], HOSTILE: ["a", "b"]}
    for point in figures["quadruple"]["points"] + figures["objects"]["points"]:
        point.update(label=HOSTILE, hover=HOSTILE)
    for point in figures["objects"]["points"]:
        point["values"] = {HOSTILE: HOSTILE, image: link}
    rows = [*studies["whole"], Row(id=f"probe.concept.{HOSTILE}", concept=HOSTILE, on="test", value=0.5)]
    page = opened(render_page(record, rows, figures))
    ticks = page.locator("[data-figure=probes] .ytick text").all_text_contents()
    assert any(HOSTILE in tick for tick in ticks)
    assert page.locator("[data-figure=map-quadruple] .textpoint text").first.text_content() == HOSTILE
    assert page.locator("[data-legend=map-objects]").inner_text().strip() == HOSTILE
    page.locator("[data-figure=map-quadruple] path.point").nth(6).hover(force=True)
    page.wait_for_selector(".hovertext")
    assert HOSTILE in (page.locator(".hovertext").first.text_content() or "")
    page.locator("[data-for=map-objects] label", has_text="img").click()
    assert page.locator("[data-legend=map-objects]").inner_text().strip() == link
    assert page.locator("[data-figure] a, [data-figure] img, #every img").count() == 0
    assert page.troubles == []


def test_a_picture_is_shown_beside_its_point(page):
    assert not page.locator("#peek").is_visible()
    page.locator("[data-figure=map-objects] path.point").first.hover(force=True)
    page.wait_for_selector("#peek", state="visible")
    assert page.locator("#peek img").evaluate("e => e.decode().then(() => e.naturalWidth)") == 8
    page.mouse.move(2, 2)
    page.wait_for_selector("#peek", state="hidden")


def test_maps_turn_to_another_concept_and_to_space(page):
    controls, legend = page.locator("[data-for=map-objects]"), page.locator("[data-legend=map-objects]")
    assert legend.inner_text().split()[0] == "red"
    controls.locator("label", has_text="shape").click()
    assert legend.inner_text().split()[0] == "circle"
    controls.locator("label", has_text="3-D").click()
    page.wait_for_function(
        "document.querySelector('[data-figure=map-objects] canvas') || document.querySelector('.said').textContent"
    )
    controls.locator("label", has_text="2-D").click()
    controls.locator("label", has_text="color").click()
    assert page.locator("[data-figure=map-objects] path.point").count() == 64
    assert page.troubles == []


def test_the_table_of_every_number_can_be_searched(page, studies):
    page.locator("details.every summary").click()
    page.locator("#filter").fill("probe.object.swap test")
    assert page.locator("#every tbody tr:visible").count() == 1
    assert page.locator("#filter-count").inner_text() == "1 row"
    page.locator("#filter").fill("")
    assert page.locator("#every tbody tr:visible").count() == len(studies["whole"])
    page.locator("details.every summary").click()


def test_the_keyboard_reaches_the_report(page):
    page.evaluate("document.activeElement.blur(); getSelection().removeAllRanges(); scrollTo(0, 0)")
    page.locator("a.skip").focus()
    assert page.locator("a.skip").bounding_box()["x"] >= 0
    page.locator("[data-for=map-objects] input").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("[data-legend=map-objects]").inner_text().split()[0] == "circle"
    page.keyboard.press("ArrowLeft")
    assert page.locator("[data-legend=map-objects]").inner_text().split()[0] == "red"
