"""Links: mean SNR, fading and power between every two radios that may talk."""
