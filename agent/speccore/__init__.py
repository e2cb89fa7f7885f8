"""The contract that agent and server share: schema, messages, states, metrics, parsers, plans, statistics, verdicts.

Nothing in this package does I/O, reads a clock or knows Django.
"""

__version__ = "0.1.0"
