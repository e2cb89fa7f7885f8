"""Programs that run as clients: ours, a bare reader, and thin shells around peers that don't export what they know."""
