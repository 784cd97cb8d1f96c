"""Semi-decentralised learning over device-to-device digraphs (S3) and relaying."""
