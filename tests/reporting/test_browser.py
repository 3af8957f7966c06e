"""A page in a browser: seen, heard, typed at, printed, on a phone and in the dark."""

import base64
import json
import shutil
from io import BytesIO
from tempfile import TemporaryDirectory

import pytest
from pages import HOSTILE, model, page

import skdp
from skdp.estimators.plots import ACCENT, INK, PALE, SOFT

pytest.importorskip("jinja2")
webdriver = pytest.importorskip("selenium.webdriver")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
if not (CHROMIUM and DRIVER):
    pytest.skip("There is no chromium with its driver here.", allow_module_level=True)

FLAGS = (
    *("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run"),
    *("disable-background-networking", "disable-component-update", "disable-sync"),
    "disable-dev-shm-usage",
)
NAMES = ("plain", "seeded", "softmax", "hostile", "wide", "evaluation", "curves")
PHONE, DESK = (360, 740), (1200, 900)


class Browser:
    """A page at a time, in a window of some size and colour."""

    def __init__(self, driver, folder):
        self.driver, self.folder = driver, folder

    def show(self, name, size=DESK, colours="light", unfold=True):
        path = self.folder / f"{name}.html"
        if not path.exists():
            path.write_text(written(name), encoding="utf-8")
        width, height = size
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=size == PHONE,
        )
        scheme = {"name": "prefers-color-scheme", "value": colours}
        self.tell("Emulation.setEmulatedMedia", media="", features=[scheme])
        for log in ("browser", "performance"):
            self.driver.get_log(log)
        self.driver.get(path.as_uri())
        if unfold:
            self.run("document.querySelectorAll('details').forEach(d => d.open = true)")
        return path

    def tell(self, command, **given):
        return self.driver.execute_cdp_cmd(command, given)

    def run(self, script, *given):
        return self.driver.execute_script(script, *given)

    def requests(self):
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                yield message["params"]["request"]["url"]


def written(name):
    if name != "evaluation":
        return page(name)
    from pages import TABLE

    metrics = ["accuracy", "calibration"]
    return skdp.report(
        skdp.evaluate(model("plain"), TABLE, epsilon=2.0, metrics=metrics)
    )


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability(
        "goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"}
    )
    with TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"user-data-dir={profile}"):
            options.add_argument(f"--{flag}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SE_OFFLINE", "true")
            patch.setenv("SE_AVOID_STATS", "true")
            service = webdriver.ChromeService(executable_path=DRIVER)
            driver = webdriver.Chrome(options=options, service=service)
        driver.set_script_timeout(300)  # axe takes long on a busy machine
        try:
            yield Browser(driver, tmp_path_factory.mktemp("pages"))
        finally:
            driver.quit()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_seen_and_asks_for_nothing(browser, name):
    path = browser.show(name, unfold=False)
    assert list(browser.requests()) == [path.as_uri()]
    assert browser.driver.get_log("browser") == []
    assert browser.driver.title.endswith("report")
    hidden = browser.run(
        """const box = e => e.getBoundingClientRect();
        return [...document.querySelectorAll('h1, h2, figure, svg, summary')]
        .filter(e => !e.closest('details') || e.closest('details').open)
        .filter(e => !box(e).width || !box(e).height).map(e => e.outerHTML)"""
    )
    assert hidden == []
    titles = browser.run(
        "return [...document.querySelectorAll('h2')].map(e => e.innerText)"
    )
    assert [title[:1] for title in titles] == list("123456"[: len(titles)])
    assert len(titles) == (5 if name == "evaluation" else 6)


def test_names_do_nothing_in_a_browser(browser):
    browser.show("hostile")
    assert "pwned" not in browser.driver.title
    text = browser.run("return document.body.innerText")
    for level in (HOSTILE[0], HOSTILE[1], HOSTILE[2]):
        assert level in text
    # If a name were not escaped, the policy would still stop it.
    browser.run(
        "document.body.append(Object.assign(document.createElement('img'),"
        "{src: 'https://example.org/x.png'}))"
    )
    said = [entry["message"] for entry in browser.driver.get_log("browser")]
    assert len(said) == 1
    assert "Content Security Policy" in said[0]


@pytest.mark.parametrize(
    ("size", "colours"), [(DESK, "light"), (DESK, "dark"), (PHONE, "light")]
)
@pytest.mark.parametrize("name", ["seeded", "softmax", "evaluation", "curves"])
def test_axe_finds_nothing(browser, name, size, colours):
    axe = pytest.importorskip("axe_core_python.selenium")
    browser.show(name, size, colours)
    found = axe.Axe().run(browser.driver)
    assert found["passes"]
    violations = {
        one["id"]: [node["html"] for node in one["nodes"]]
        for one in found["violations"]
    }
    assert violations == {}


CONTRAST = """
const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
const light = c => c.map(v => v / 255)
  .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const paper = light(rgb(getComputedStyle(document.body).backgroundColor));
return arguments[0].flatMap(([selector, property]) =>
  [...document.querySelectorAll(selector)].map(e => {
    const own = light(rgb(getComputedStyle(e)[property]));
    return [selector, (Math.max(own, paper) + .05) / (Math.min(own, paper) + .05)];
  }));
"""


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_pictures_stand_out(browser, colours):
    """Letters in pictures by 4.5 to 1, what is drawn by 3 to 1 (WCAG 1.4.3, 1.4.11)."""
    browser.show("plain", colours=colours)
    letters = browser.run(CONTRAST, [["svg text", "fill"], ["body", "color"]])
    assert len(letters) > 10
    assert min(ratio for _, ratio in letters) >= 4.5
    drawn = browser.run(
        CONTRAST,
        [
            ["circle", "stroke"],
            *([f"[stroke='{c}']", "stroke"] for c in (INK, SOFT, ACCENT, PALE)),
        ],
    )
    assert len({name for name, _ in drawn}) == 5
    assert min(ratio for _, ratio in drawn) >= 3.0
    dark = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(255, 255, 255)") == (colours == "light")


@pytest.mark.parametrize("name", NAMES)
def test_a_phone_shows_all_of_it(browser, name):
    browser.show(name, PHONE)
    width, wide = browser.run(
        """return [document.documentElement.scrollWidth,
        [...document.querySelectorAll('body *')]
        .filter(e => !e.closest('.scroll') && !e.closest('.skip'))
        .filter(e => e.getBoundingClientRect().right > 361).map(e => e.outerHTML)]"""
    )
    assert wide == []
    assert width == 360


def test_the_keyboard_reaches_everything(browser):
    from selenium.webdriver.common.keys import Keys

    browser.show("plain", unfold=False)
    steps = []
    for _ in range(40):
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
        told = browser.run(
            "const e = document.activeElement;"
            "return [e.tagName, e.innerText, getComputedStyle(e).outlineStyle]"
        )
        if told[0] == "BODY":
            break
        steps.append(told)
        if told[0] == "SUMMARY":
            browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert steps[0][:2] == ["A", "Skip to the report"]
    assert all(outline == "solid" for _, _, outline in steps)
    folded = browser.run(
        "return [...document.querySelectorAll('details')].filter(d => !d.open).length"
    )
    assert folded == 0
    assert len([tag for tag, _, _ in steps if tag == "SUMMARY"]) == 6
    assert len([tag for tag, _, _ in steps if tag == "A"]) == 7


@pytest.mark.parametrize("name", ["plain", "seeded", "wide"])
def test_paper_has_all_of_it_unfolded(browser, name):
    pypdf = pytest.importorskip("pypdf")
    browser.show(name, unfold=False)
    printed = browser.tell("Page.printToPDF", preferCSSPageSize=True)["data"]
    pages = pypdf.PdfReader(BytesIO(base64.b64decode(printed))).pages
    text = " ".join(" ".join(one.extract_text() for one in pages).split())
    assert 4 <= len(pages) <= 9
    for wanted in ("What is promised", "How to check it", "Noise multiplier"):
        assert wanted in text
    for event in model(name).privacy_.events:
        assert event.query in text
    if name == "wide":
        assert "zip: zip 59" in text
    alarm = "No privacy is claimed: do not publish" in text
    assert alarm == (name == "seeded")
