"""Photograph report pages, section by section, for results/reference/report; needs the extra `browser` and Chromium.

    python tools/screenshots.py results/reference/report PAGE.html [dark] [SECTION ...] [SECTION:SCRIPT ...]

`SCRIPT` is JavaScript that runs before the picture is taken, for example `timeline:fednet.run.timeline.show(90,120)`.
Pictures have at most 100 kB, as PNG with 128 colours.
"""

import shutil
import sys
import time
from io import BytesIO
from pathlib import Path

from PIL import Image
from selenium import webdriver

WIDTH, MOST_BYTE = 1000, 100_000
FLAGS = "--headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1 --disable-sync"


def browser() -> webdriver.Chrome:
    """A headless Chromium."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS.split():
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver") or ""))


def photograph(driver: webdriver.Chrome, section: str, path: Path) -> None:
    """Save a picture of a section, smaller if it would be too large."""
    driver.execute_script("document.querySelector('nav').style.position = 'static'")
    picture = Image.open(BytesIO(driver.find_element("id", section).screenshot_as_png)).convert("RGB")
    for scale in (1.0, 0.85, 0.7, 0.6):
        size = (round(scale * picture.width), round(scale * picture.height))
        small = picture.resize(size, Image.Resampling.LANCZOS) if scale < 1 else picture
        small.quantize(128).save(path, optimize=True)
        if path.stat().st_size <= MOST_BYTE:
            return


def main(folder: Path, page: Path, *views: str) -> None:
    """Photograph the views of a page."""
    driver = browser()
    driver.set_window_size(WIDTH, 1000)
    driver.get(page.resolve().as_uri())
    while not driver.execute_script("return document.documentElement.dataset.ready"):
        time.sleep(0.1)
    dark = "dark" in views
    if driver.execute_script("return fednet.dark()") != dark:
        driver.find_element("id", "theme").click()
    driver.set_window_size(WIDTH, driver.execute_script("return document.documentElement.scrollHeight") + 200)
    for place, view in enumerate(view for view in views if view != "dark"):
        section, _, script = view.partition(":")
        driver.execute_script(script)
        time.sleep(2)
        name = f"{page.stem}-{section}{f'-{place}' if script else ''}.png"
        photograph(driver, section, folder / name)
        sys.stdout.write(f"{folder / name}\n")
    driver.quit()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
