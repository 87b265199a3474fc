"""The measured programs, each a process of its own. They take orders from the bench; see ``orders``."""
