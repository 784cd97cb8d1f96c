"""Models of the radio link between two antennas, in NumPy; all interfaces use SI units.

    propagation            mean gain of a link: path loss (classical, tr38901, d2d, v2v) and shadowing
    fading                 gain of one coherence block, which is computed often
    rates                  rate in bit/s from SINR and bandwidth: Shannon, fixed rate, short blocks
    rates.narrowing        rates of senders that use part of their band
    rates.ergodic, ageing  mean rates over fading, with current and with outdated channel reports
    nr                     5G NR: resource blocks, modulation and coding schemes, transport blocks with retransmissions
    receiver               interference, power control and the combining of antennas, which determine the SINR
    overhead, energy       header bits, and energy in J
    channel, survey        the component that combines these models with the noise, and its rates over distance

Every random quantity is an argument (a uniform or standard normal number), so this package has no random generator.
Scalar functions for the event loop use `math`; their vectorised versions compute the same formulas with NumPy. The page
docs/concepts/radio.md names the source, the limits and the checks of each model.
"""
