"""``batchledger rename`` on real services: the order, the file that follows, and a file that does not."""

from dataclasses import replace

from batchledger.local.stack.defaults import LEDGER_OWNER_CONNECTION
from tests.integration.test_cli import ask, ask_status, batchledger
from tests.support import TestPipeline, Workplace

WHY = ("--reason", "the shop has a second warehouse")
BY_OWNER = ("--login", LEDGER_OWNER_CONNECTION, *WHY)


def rename_file(pipeline: TestPipeline, to: str) -> TestPipeline:
    """Give the file another name, and nothing else another one: topic and table stay."""
    content = pipeline.path.read_text()
    assert f"name: {pipeline.name}\n" in content
    path = pipeline.path.with_name(f"{to}.yaml")
    path.write_text(content.replace(f"name: {pipeline.name}\n", f"name: {to}\n", 1))
    pipeline.path.unlink()
    return replace(pipeline, path=path)


def test_renamed_pipeline_is_shown_first_then_goes_on_under_its_new_name_without_a_row_doubled_or_lost(
    workplace: Workplace,
) -> None:
    pipeline = workplace.create()
    old, new = pipeline.name, f"{pipeline.name}_new"
    pipeline.send(10)
    ask("run", old)
    shown = ask("rename", old, new, "--dry-run", *BY_OWNER)
    assert (shown["dry_run"], shown["before"], shown["after"]) == (True, {"name": old}, {"name": new})
    assert "Dry run: nothing was changed." in batchledger("rename", old, new, "--dry-run", *BY_OWNER).stdout
    assert [each["kind"] for each in ask("batches", old)["decisions"]] == []
    refused = batchledger("rename", old, new, *WHY)
    assert (refused.returncode, "Log in as the owner of the ledger" in refused.stderr) == (2, True)
    renamed = ask("rename", old, new, *BY_OWNER)
    assert (renamed["is_new"], renamed["pipeline"], renamed["reason"]) == (True, new, WHY[1])
    pipeline.send(10)
    # The file still has the old name.
    for command in (
        ("run", old),
        ("plan", old),
        ("verify", old),
        ("replay", old, "--range", f"{old}[0] 0..3", *WHY),
        ("rewind", old, "--to", "earliest", *WHY),
        ("pause", old, *WHY),
    ):
        refused = batchledger(*command)
        assert refused.returncode == 2, refused.stderr
        told = " ".join(refused.stderr.split())
        assert f"{old} is renamed: its history belongs to {new}. Nothing was written." in told
        assert f"Call the file {new}.yaml" in told
    (found,) = [each for each in ask_status(pipeline.path.parent)["pipelines"] if each["pipeline"] == old]
    assert (found["state"], f"its history belongs to {new}" in found["detail"]) == ("unknown", True)
    assert pipeline.count_target_rows() == 10
    followed = rename_file(pipeline, new)
    again = ask("rename", old, new, *BY_OWNER)
    assert (again["is_new"], again["decision_id"]) == (False, renamed["decision_id"])
    ask("run", new, "--until-caught-up")
    assert followed.count_target_rows() == 20
    assert followed.query("select count(distinct message_id) from {target}") == [(20,)]
    proved = ask("verify", new)
    assert (proved["holds"], proved["offsets"]) == (True, 20)
    assert [each["kind"] for each in ask("batches", new)["decisions"]] == ["rename"]
    assert ask("rename", new, old, *BY_OWNER)["after"] == {"name": old}
    rename_file(replace(followed, name=new), old)
    ask("run", old)
    assert ask("verify", old)["holds"]
    assert pipeline.count_target_rows() == 20


def test_name_that_no_pipeline_can_have_and_an_order_without_a_reason_are_refused(workplace: Workplace) -> None:
    pipeline = workplace.create()
    for to in ("Shop-Orders", "", "a" * 64):
        refused = batchledger("rename", pipeline.name, to, *BY_OWNER)
        assert (refused.returncode, "write a small letter" in " ".join(refused.stderr.replace("│", "").split())) == (
            2,
            True,
        )
    unknown = batchledger("rename", "there_is_none", "another", *BY_OWNER)
    assert (unknown.returncode, "There is no pipeline 'there_is_none'" in unknown.stderr) == (2, True)
    never_ran = batchledger("rename", pipeline.name, "another", *BY_OWNER)
    assert (never_ran.returncode, "has nothing of" in never_ran.stderr) == (2, True)
    assert batchledger("rename", pipeline.name, "another", "--reason", " ").returncode == 2
    assert batchledger("rename", pipeline.name, "another").returncode == 2
