"""What ``batchledger schema`` prints: names of records as they are, and files that work as they stand."""

import json
from pathlib import Path

import pytest

from batchledger.adapters.decoding.sampling import look_at
from batchledger.config.pipeline_file import read_pipeline_file
from batchledger.interfaces.cli.display.schemas import describe_proposal, differences_table
from batchledger.interfaces.cli.printing import Shown, show
from batchledger.model.records.columns import parse_columns
from batchledger.model.records.contract import Contract


@pytest.mark.parametrize("topic", ["orders", "1Orders.x", "123", "_internal", "a-b.c"])
def test_proposed_file_is_a_pipeline_as_it_stands(
    topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = look_at([json.dumps({"id": 1, "note": "x"}).encode()], ())
    show(describe_proposal(topic, "shop", sample), as_json=False)
    text = capsys.readouterr().out
    file = text[text.index("name: ") :]
    name = file.split("\n", 1)[0].removeprefix("name: ")
    path = tmp_path / f"{name}.yaml"
    path.write_text(file)
    config = read_pipeline_file(path)
    assert (config.source.topics, config.source.connection) == ([topic], "shop")
    assert config.source.columns == parse_columns("id bigint, note string")


def test_names_of_records_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["[/b]", "items[red]", "[bold]x", "\x1b[31m"]
    contract = Contract((), look_at([json.dumps(dict.fromkeys(names, 1)).encode()], ()))
    show(Shown(None, [differences_table("Fields", contract.differences)]), as_json=False)
    text = capsys.readouterr().out
    assert [each for each in names if each in text] == names[:3]
    assert r"\u001b[31m" in text


def test_field_with_the_name_of_a_column_of_key_or_headers_is_not_proposed() -> None:
    sample = look_at([b'{"id": 1, "Order_Id": 2, "tax": 3}'], parse_columns("id int"))
    contract = Contract(parse_columns("id int"), sample, taken=["order_id"])
    assert contract.proposal == "id int, tax bigint"


def test_texts_of_digits_are_proposed_as_texts() -> None:
    sample = look_at([b'{"customer": "1001", "zip": "00123", "count": 7}'], ())
    assert Contract((), sample).proposal == "customer string, zip string, count bigint"
