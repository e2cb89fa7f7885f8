"""The pages: read-only views over experiments and results."""
