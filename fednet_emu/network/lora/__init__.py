"""LoRa: frames with a duty cycle, and their collisions."""
