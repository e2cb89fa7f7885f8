"""Any table of the service as CSV, JSON or Parquet, with the columns, filters and rights that its page has."""
