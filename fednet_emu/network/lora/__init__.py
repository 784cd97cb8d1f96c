"""LoRa."""
