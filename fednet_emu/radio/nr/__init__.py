"""Physical layer of 5G NR: resource blocks, modulation and coding schemes, transport blocks, and link adaptation."""
