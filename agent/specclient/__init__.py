"""Client of SpecWeb's public API, and the command line ``specweb``."""
