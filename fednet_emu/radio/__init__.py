"""The radio link between two antennas, in NumPy, with SI units at every interface.

    propagation: link -> path_loss (classical, tr38901, d2d, v2v) -> shadowing           mean gain, once per link
    fading    gain of one coherence block (hot path of the medium)
    rates     bit/s from SINR and bandwidth: Shannon, fixed, nr.mcs (with retransmissions), finite_blocklength;
              narrowing (senders that use part of their band), ergodic (averages over fading)
    ageing    rates with outdated reports
    receiver: interference, power_control, combining                                     SINR
    nr.numerology, overhead                                                              resource blocks, headers
    energy                                                                               J
    channel   the component with one model of each part, and the noise; survey: its rates over distance

Every random quantity is an argument (a uniform or standard normal number), so this package has no random generator.
Scalar functions for the event loop use `math`; their vectorised versions compute the same formulas with NumPy. The page
docs/concepts/radio.md names the source, the limits and the checks of each model.
"""
