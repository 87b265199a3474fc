"""How pytest runs beside a mutant: no services, the same examples each time, and no search for the smallest one."""

from hypothesis import Phase, settings

from tests.unit.conftest import world  # noqa: F401 -- a fixture

settings.register_profile(
    "mutants", deadline=None, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("mutants")
