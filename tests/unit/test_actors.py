"""Who acts: the one form in which people read it, and where the name on the command line comes from."""

import os
import pwd
import socket

import pytest

from batchledger.interfaces.cli.command_line import decide, find_actor, run_name
from batchledger.model.actors import Actor, cover_places
from batchledger.model.batch import Decision
from batchledger.model.offsets import OffsetRange, TopicPartition


@pytest.mark.parametrize(
    ("actor", "told"),
    [
        (Actor("ana", 1000, "host", "batchledger"), "ana (uid 1000 @host, role batchledger)"),
        (Actor("root", 0, "host"), "root (uid 0 @host)"),
        (Actor("ana", role="batchledger"), "ana (role batchledger)"),
        (Actor("ana@host"), "ana@host"),
    ],
    ids=["command line", "not recorded yet", "Airflow", "before version 0.3.0"],
)
def test_actor_has_one_form_with_all_that_is_known(actor: Actor, told: str) -> None:
    assert str(actor) == told


def test_name_on_the_command_line_is_of_the_uid_and_not_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "ceo")
    own = pwd.getpwuid(os.getuid()).pw_name
    assert run_name().endswith(f"__{own}@{socket.gethostname()}")
    assert decide("why") == Decision(own, "why", os.getuid(), socket.gethostname())


def test_uid_without_a_name_is_recorded_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs with a number of its own."""
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    assert find_actor() == Actor("unknown", 3_999_999_999, socket.gethostname())


def test_places_are_covered_by_one_range_a_partition() -> None:
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    assert cover_places([(first, 9), (second, 4), (first, 3)]) == [OffsetRange(first, 3, 10), OffsetRange(second, 4, 5)]
    assert cover_places([]) == []
