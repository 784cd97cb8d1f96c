"""Training elsewhere: jobs are dealt to Ray actors, which may be on other machines."""
