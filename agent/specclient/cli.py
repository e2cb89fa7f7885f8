"""The command line ``specweb``: experiments, results and hosts of a SpecWeb service, from a shell and from CI."""
