"""Links: mean SNR, fading and transmit power of every pair of radios that may communicate."""
