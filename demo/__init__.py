"""One machine's demonstration: embedded servers, two small models, a sample experiment, and the command that runs them."""
