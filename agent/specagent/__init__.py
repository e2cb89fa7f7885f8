"""The agent of a GPU host: says what the machine offers, runs trials, times requests, keeps the evidence until it is delivered."""

__version__ = "0.1.0"
