"""Says at the head of a run which schedules it plays."""

from tests.machine.schedules import CHOSEN


def pytest_report_header() -> str:
    return f"state machine: {CHOSEN}"
