"""The JSON Schema of the pipeline file, made of the models that read it, for editors and other programs.

What it refuses, the models refuse; rules about several keys, schedules and columns are theirs alone. It keeps to what
draft 7 has, which every editor knows. The meaning of a key is the text below it in its model.
"""

import ast
import inspect
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import override

from batchledger.config.pipeline_file import PipelineConfig
from batchledger.settings.values import find_section, write_duration


def make_schema(model: type[BaseModel] = PipelineConfig, what: str = "pipeline file") -> dict[str, Any]:
    """Return the schema of the files that a model reads; ``what`` is what people call them."""
    schema = model.model_json_schema(schema_generator=_Generator)
    for definition in schema["$defs"].values():
        if "enum" in definition:
            # The text of an enumeration is about its members, which files do not name.
            del definition["title"], definition["description"]
    return {"$schema": "http://json-schema.org/draft-07/schema#", **schema, "title": f"A {what} of Batchledger"}


class _Generator(GenerateJsonSchema):
    """Leaves out what pydantic makes up for readers: titles, and defaults that no file could have."""

    @override
    def model_schema(self, schema: Any) -> dict[str, Any]:
        made = super().model_schema(schema)
        meanings = read_meanings(schema["cls"])
        for name, field in schema["cls"].model_fields.items():
            section = find_section(field.annotation)
            # A section says what it is; a union of several of them has a text of its own.
            meaning = meanings.get(name) or (section and inspect.getdoc(section))
            made["properties"][field.alias or name]["description"] = meaning
        made.pop("title")
        return made

    @override
    def tagged_union_schema(self, schema: Any) -> dict[str, Any]:
        made = super().tagged_union_schema(schema)
        made.pop("discriminator", None)
        return made

    @override
    def default_schema(self, schema: Any) -> dict[str, Any]:
        made, default = self.generate_inner(schema["schema"]), schema.get("default")
        if default is None or isinstance(default, BaseModel) or default == []:
            return made
        return {**made, "default": write_duration(default) if isinstance(default, float) else default}

    @override
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def read_meanings(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the text below each key, from the source: pydantic would read it whenever a command imports the model."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, BaseModel) and each is not BaseModel:
            (definition,) = ast.parse(inspect.getsource(each)).body
            found |= _read_below_fields(definition)
    return found


def _read_below_fields(definition: Any) -> Mapping[str, str]:
    return {
        key: " ".join(text.split())
        for line, below in pairwise(definition.body)
        if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr)
        for key, text in [(ast.unparse(line.target), ast.literal_eval(below.value))]
    }
