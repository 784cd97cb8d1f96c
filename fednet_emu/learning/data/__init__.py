"""What is learnt from: datasets, how they are dealt to devices, and who spoils them."""
