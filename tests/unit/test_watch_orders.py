"""The options of ``batchledger watch``: one that would be dropped is refused, before a file is read."""

import os

import pytest

from tests.forked import run_command


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--missing", "--missing belongs to one watch: name it"),
        ("--adopt p", "--adopt belongs to one watch: name it"),
        ("--forget", "--forget belongs to one watch: name it"),
        ("w --records", "--records belongs to --missing"),
        ("w --as-pipeline p", "--as-pipeline belongs to --missing"),
        ("w --missing --limit 20", "--limit belongs to --records"),
        ("w --missing --schema id", "--schema belongs to --as-pipeline"),
        ("w --apply --reason why", "--apply belongs to --adopt"),
        ("w --reason why", "--reason belongs to --adopt"),
        ("w --missing --forget", "--forget and --missing do not go together"),
        ("w --adopt p --forget", "--forget and --adopt do not go together"),
        ("w --all --forget", "--forget and --all do not go together"),
        ("w --adopt p --all", "--adopt and --all do not go together"),
        ("w --adopt p --missing", "--adopt and --missing do not go together"),
        ("w --missing --records --as-pipeline p", "--records and --as-pipeline do not go together"),
        ("w --adopt p --apply", "give a --reason"),
    ],
)
def test_option_that_would_be_dropped_is_refused(options: str, told: str) -> None:
    refused = run_command(("watch", *options.split()), os.environ)
    assert refused.returncode == 2
    # Long lines are broken within a frame.
    assert told in " ".join(refused.stderr.replace("│", " ").split())
