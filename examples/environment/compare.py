"""Compare the agent of a study with Oort, FedCS and random selection: differences paired by seed, 95 % intervals.

python examples/environment/compare.py results/trained_agent

If an interval contains zero, report: "These twenty seeds do not show that the agent is better or worse."
"""

import sys

import fednet_emu as fe

study = fe.open(sys.argv[1])
for other in ("oort", "fedcs", "uniform"):
    print(study.compare("rule=agent", f"rule={other}"))
    print()
