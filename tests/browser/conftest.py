"""A headless browser for pages; tests that need it are skipped where there is none."""

import json
import os
import shutil
from pathlib import Path

import pytest

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --force-device-scale-factor=1"
)
SMALL, LARGE = (700, 900), (1400, 1000)
DRAWN = "return document.documentElement.dataset.ready || document.querySelector('.problem') !== null"


class Browser:
    """A browser that shows one page at a time, and its notes on what the page did."""

    def __init__(self, driver):
        self.driver = driver

    def open(self, path: Path, size=LARGE):
        """Open a page and wait until it has drawn itself."""
        from selenium.webdriver.support.ui import WebDriverWait

        self.driver.set_window_size(*size)
        self.notes()
        self.driver.get(path.as_uri())
        WebDriverWait(self.driver, 60).until(lambda driver: driver.execute_script(DRAWN))
        return self

    def js(self, code: str, *arguments):
        return self.driver.execute_script(code, *arguments)

    def notes(self):
        """Addresses that were asked for, and errors on the console, since the last call."""
        events = [json.loads(each["message"])["message"] for each in self.driver.get_log("performance")]
        asked = [each["params"]["request"]["url"] for each in events if each["method"] == "Network.requestWillBeSent"]
        errors = [each["message"] for each in self.driver.get_log("browser") if each["level"] in ("SEVERE", "WARNING")]
        return asked, errors


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium."""
    webdriver = pytest.importorskip(
        "selenium.webdriver", reason="selenium is not installed; `make test-browser` does it"
    )
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        missing = "chromium" if binary is None else "chromedriver"
        pytest.skip(f"no {missing} on this machine; `make test-browser` says how to get it")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    os.environ["SE_OFFLINE"] = "true"
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield Browser(started)
    started.quit()
