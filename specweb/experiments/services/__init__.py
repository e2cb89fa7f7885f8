"""Writes about experiments, hosts and jobs. Nothing else in the project changes these rows."""
