"""The programs that are measured, each a process of its own. They take orders from the bench; see ``orders``."""
