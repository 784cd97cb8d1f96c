"""The sweep over all keys: each is changed in drawn scenarios, and must change what comes out of some of them."""
