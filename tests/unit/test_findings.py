"""The catalogue of findings: a row has all that is asked of it, and the reference tells of each kind of incident."""

import re
from pathlib import Path

from batchledger.model.checks import Severity
from batchledger.model.findings import STATES_OF_WATCHES, IncidentKind, LedgerCheck, PipelineState

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "states-and-incidents.md").read_text("utf-8")
KINDS_OF_PAGE = {
    kind
    for line in PAGE.partition("| kind | begins when |")[2].splitlines()
    for kind in re.findall(r"`(\w+)`", line.partition("|")[2].partition("|")[0])
}


def test_reference_says_of_each_kind_when_it_begins() -> None:
    assert set(IncidentKind) == KINDS_OF_PAGE


def test_each_check_of_the_audit_has_a_promise_and_what_it_finds_is_told_in_words() -> None:
    for check in LedgerCheck:
        assert check.row.promise.endswith(".")
        assert check.row.happened or check.row.kind.row.happened
        assert check.row.kind.row.command.startswith("batchledger ")


def test_only_checks_of_the_proof_share_a_kind() -> None:
    kinds = [each.row.kind for each in LedgerCheck if not each.row.invariant]
    assert len(set(kinds)) == len(kinds)
    assert {each.row.kind for each in LedgerCheck if each.row.invariant} == {IncidentKind.LEDGER_FINDING}


def test_state_belongs_to_one_kind_and_states_without_one_are_no_fault() -> None:
    states = [each.row.state for each in IncidentKind if each.row.state]
    assert len(set(states)) == len(states)
    assert set(PipelineState) - set(states) == {
        PipelineState.PAUSED, PipelineState.RUNNING, PipelineState.UNREAD, PipelineState.CAUGHT_UP,
        PipelineState.RETIRED, PipelineState.FILE_GONE, *STATES_OF_WATCHES,
    }  # fmt: skip


def test_names_that_are_stored_and_printed_are_those_of_the_rows() -> None:
    for name in (*IncidentKind, *LedgerCheck):
        assert (str(name), name.value, type(name)(name.row.name)) == (name.row.name, name.row.name, name)


def test_every_kind_but_these_warnings_is_critical() -> None:
    assert {each for each in IncidentKind if each.row.severity is Severity.WARNING} == {
        IncidentKind.QUARANTINED,
        IncidentKind.FRESHNESS,
        IncidentKind.LAG,
        IncidentKind.UNREACHABLE,
        IncidentKind.TOPIC_AWAITED,
        IncidentKind.CHANNEL_FAILING,
        IncidentKind.STALE_ATTEMPT,
        IncidentKind.ORPHANED_STAGING,
        IncidentKind.TABLE_UNPROVED,
    }
