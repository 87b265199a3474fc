"""The alert rules and the board that come with the metrics, as files of the package."""

from importlib.resources import files

RULES, BOARD = "rules.yaml", "board.json"


def read_shipped(name: str) -> str:
    """Return the rules for Prometheus, ``RULES``, or the board for Grafana, ``BOARD``, as they have to be stored."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
