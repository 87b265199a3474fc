"""The kinds of sinks, one folder each, and the staging that all of them share."""
