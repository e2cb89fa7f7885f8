"""The service under attack: its parts killed and frozen at chosen or random moments, and what must hold all the same."""
