"""Semi-decentralised learning over directed device-to-device graphs (S3), and relaying of updates."""
