"""Configurations that are measured again on each new build, alerts on what changed, and notices."""
