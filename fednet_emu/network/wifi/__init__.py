"""Wi-Fi: contention and rates of IEEE 802.11 stations."""
