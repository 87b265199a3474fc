"""How texts write a number with its noun. Pure."""


def describe_count(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 record``, ``1,000 records``. ``many``: the plural, if it is not one with an s.

    The nouns may include a verb: ``describe_count(1, "row becomes", "rows become")``.
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"
