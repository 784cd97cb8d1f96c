#!/bin/sh
# Runs the command that is installed in a folder of programs (.../bin) as someone without a clone would: in an empty folder.
set -eu
bin=$1
cd "$(mktemp -d)"
"$bin/fednet" --version
"$bin/fednet" run quickstart --set stop.rounds=3 --out here
"$bin/fednet" check quickstart >checked.yaml
"$bin/fednet" run checked.yaml --set stop.rounds=3 --out again
"$bin/python" - <<'PYTHON'
import json

import fednet_emu

print(fednet_emu.__file__)
here, again = (json.load(open(f"{run}/summary.json")) for run in ("here", "again"))
assert here["verified"] and here["event_digest"] == again["event_digest"], (here, again)
PYTHON
