"""Background work: dispatch, parse, compare, sweep."""
