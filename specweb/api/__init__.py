"""The JSON interfaces. Agents have their own address tree and their own tokens."""
