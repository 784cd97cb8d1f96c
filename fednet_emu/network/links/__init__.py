"""Links: mean SNR, fading and transmit power between every two radios that may communicate."""
