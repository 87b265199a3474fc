"""A schema registry that speaks Confluent's protocol. ``client`` is the way in."""
