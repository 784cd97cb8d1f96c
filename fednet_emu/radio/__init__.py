"""The radio: what happens between two antennas, in pure numpy, with SI units at every edge.

    propagation: link -> path_loss (classical, tr38901, d2d, v2v) -> shadowing           mean gain, once per link
    fading    gain of one coherence block (hot path of the medium)
    rates     bit/s from SINR and bandwidth: Shannon, fixed, nr_mcs (retransmissions too), finite_blocklength
    narrowing the rate of a sender that may use part of its band; ergodic averages over fading
    receiver: interference, power_control, combining, over_the_air                       SINR
    numerology, overhead                                                                 what the standard adds
    energy                                                                               J
    channel   the component that holds one choice of each, and the noise; survey looks at its rates over distance

Every random quantity enters as an argument (a uniform or a standard normal), so this package owns no generator. Scalar
functions of the event loop use `math`; their vectorised twins use numpy and follow the same law. docs/concepts/radio.md
says which clause each law is from, what is ignored, and how it was checked.
"""
