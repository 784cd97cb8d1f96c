"""What all tests share: hypothesis without time limits, and with the same examples every time where CI says so.

Python's cyclic garbage collector looks through all modules and tests each time; it runs rarely, as it does in a run.
"""

import gc
import os

from hypothesis import settings

pytest_plugins = ["tests.run_folders"]

settings.register_profile("here", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "here")

gc.set_threshold(200_000, 50, 100)
