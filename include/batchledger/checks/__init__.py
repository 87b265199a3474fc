"""Great Expectations judges facts that were aggregated once."""
