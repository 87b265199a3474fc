"""The parts of the bench: each module takes one kind of measurement and yields figures."""
