"""A swarm of seeds: each draws a whole scenario, plays it in several ways, and checks laws that hold for all."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # else a thread of PyTorch's waits for the next work at full load
