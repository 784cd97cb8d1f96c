#!/bin/sh
# Installs the Chromium of Debian and Ubuntu with its driver; where that is not possible, says what to install.
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y chromium chromium-driver >/dev/null
else
    echo "test-browser: no chromium with chromedriver here, so its tests will be skipped; install them with your" \
        "system's packages, as root: apt-get install chromium chromium-driver" >&2
fi
