"""Records in Protobuf: schemas of a real registry, and messages written by the runtime of Protobuf."""

from typing import Any

from batchledger.formats.decoding.protobuf.compiling import compile_files
from batchledger.formats.decoding.protobuf.schema import load_message, make_class
from batchledger.formats.registry.client import RegisteredReference, Registry
from batchledger.model.records.registry_settings import RegistrySettings
from batchledger.model.records.writer_schemas import SchemaType


def register_file(url: str, subject: str, text: str, *references: RegisteredReference) -> int:
    """Return the id that the registry gives a ``.proto`` file."""
    return Registry(RegistrySettings(url)).register(subject, SchemaType.PROTOBUF, text, references)


def write_message(
    text: str,
    message: tuple[int, ...] | str = (0,),
    references: tuple[tuple[str, str], ...] = (),
    **fields: Any,
) -> bytes:
    """The bytes of a message, without a frame."""
    made = make_class(load_message(compile_files(text, references), message))(**fields)
    written: bytes = made.SerializeToString()
    return written
