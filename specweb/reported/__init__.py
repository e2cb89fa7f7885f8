"""Results of other tools: reported, not verified, and never part of a verdict."""
