"""The measuring client beside its peers: CPU, accuracy and counts against a replay server that knows the truth (``make bench-probe``)."""
