"""The radio: what happens between two antennas, in pure numpy, with SI units at every edge.

    geometry -> path_loss, shadowing -> mean gain (once per link)      noise    -> W
    fading -> gain of one coherence block (hot path of the medium)     rate     -> bit/s from SINR and bandwidth
    channel -> the component that holds one choice of each             energy   -> J

Every random quantity enters as an argument (a uniform or a standard normal), so this package owns no generator. Scalar
functions of the event loop use `math`; their vectorised twins use numpy and follow the same law.
"""
