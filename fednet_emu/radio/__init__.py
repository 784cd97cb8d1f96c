"""The radio: what happens between two antennas, in pure numpy, with SI units at every edge.

    geometry, draws -> path_loss (classical, tr38901, d2d, v2v) -> shadowing, movement   mean gain, once per link
    fading    gain of one coherence block (hot path of the medium)
    rate      bit/s from SINR and bandwidth: Shannon, fixed, nr_mcs, finite_blocklength
    narrowing the rate of a sender that may use part of its band; ergodic averages over fading
    noise, interference, power_control, reception                                        SINR
    numerology, retransmission, overhead                                                 what the standard adds
    energy                                                                               J
    channel   the component that holds one choice of each; survey looks at its rates over distance

Every random quantity enters as an argument (a uniform or a standard normal), so this package owns no generator. Scalar
functions of the event loop use `math`; their vectorised twins use numpy and follow the same law. docs/concepts/radio.md
says which clause each law is from, what is ignored, and how it was checked.
"""
