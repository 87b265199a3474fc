"""Looks for records that end, stall or fill the process that decodes them: ``python -m tests.fuzzing``."""
