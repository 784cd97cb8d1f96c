"""Search of the settings of a study: proposals, outcomes, and the settings that reach the target best."""
