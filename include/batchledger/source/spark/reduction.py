"""Errors of workers without the values that they quote: Spark writes whatever a worker raises to its logs.

A worker raises the type and the place of an error. The whole text goes with it, sealed: the stage step that has started
the job is the only process that can open it. Its public key travels as a tag of the job, which Spark gives to each
worker.
"""

import base64
import json
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import PurePath

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pyspark import TaskContext
from pyspark.sql import SparkSession

from batchledger.model.errors import BatchledgerError, StagingError, TargetRefusedError

MOST_CHARACTERS = 8_000
"""The end of a longer text is kept: it names the error."""

# Spark passes an error of a worker on as the text of its trace, with the notes of the error.
CARRIED = "batchledger error: "
_SEALED = "batchledger sealed: "
_FOUND = re.compile(rf"^{_SEALED}([\w=-]+)$", re.MULTILINE)
_TAG = re.compile(r"batchledger-seal-([\w=-]+)")
_KEY_BYTES = 32
# Each key seals one text, so one number is enough.
_NONCE = bytes(12)

_PYTHON = PurePath(traceback.__file__).parent
_LIBRARIES = frozenset({"pyspark", "pyspark.zip", "pyarrow", "pandas", "numpy"})


@dataclass(frozen=True)
class Seal:
    """The key pair of one stage step."""

    private: X25519PrivateKey = field(default_factory=X25519PrivateKey.generate, repr=False)

    @contextmanager
    def lent_to_workers(self, session: SparkSession) -> Iterator[None]:
        """Give the public key to the workers of every job that this thread starts in the block."""
        session.addTag(self.tag)
        try:
            yield
        finally:
            session.removeTag(self.tag)

    @property
    def tag(self) -> str:
        """The public key as a tag of Spark."""
        return f"batchledger-seal-{base64.urlsafe_b64encode(self.private.public_key().public_bytes_raw()).decode()}"

    def open(self, text: str) -> str:
        """Return the texts that workers have sealed in ``text``, or all of it if there are none."""
        opened = [self._open(each) for each in dict.fromkeys(_FOUND.findall(text))]
        return "\n".join(each for each in dict.fromkeys(opened) if each)[-MOST_CHARACTERS:] or text[-MOST_CHARACTERS:]

    def _open(self, sealed: str) -> str:
        try:
            whole = base64.urlsafe_b64decode(sealed)
            key = _derive(self.private, X25519PublicKey.from_public_bytes(whole[:_KEY_BYTES]))
            return ChaCha20Poly1305(key).decrypt(_NONCE, whole[_KEY_BYTES:], None).decode()
        except (ValueError, InvalidTag):
            # Spark has cut it off.
            return ""


def seal(tag: str, text: str) -> str:
    """Return the text so that only the owner of the tag's key can read it."""
    one_time = X25519PrivateKey.generate()
    found = _TAG.search(tag)
    if found is None:
        raise ValueError("the tag holds no key")
    key = _derive(one_time, X25519PublicKey.from_public_bytes(base64.urlsafe_b64decode(found[1])))
    # Characters that have no bytes in UTF-8 may be what the error is about.
    whole = text[-MOST_CHARACTERS:].encode(errors="backslashreplace")
    sealed = one_time.public_key().public_bytes_raw() + ChaCha20Poly1305(key).encrypt(_NONCE, whole, None)
    return base64.urlsafe_b64encode(sealed).decode()


def find_tag() -> str | None:
    """Return the tag with the key for errors of this task; None if the job belongs to another program."""
    context = TaskContext.get()
    tags = context.getLocalProperty("spark.job.tags") if context is not None else None
    found = _TAG.search(tags or "")
    return found[0] if found else None


def reduce_error(error: Exception, tag: str | None) -> Exception:
    """Return what a worker may say: an error of ours in its three parts, or type and place of any other one.

    Both carry their parts, and the whole text sealed for the owner of the tag. Raise it ``from None``: the trace of a
    cause quotes the row. An error that is reduced already, and a package that is missing, stay as they are.
    """
    if isinstance(error, ImportError) or any(each.startswith(CARRIED) for each in getattr(error, "__notes__", ())):
        return error
    whole = "".join(traceback.format_exception(error))
    reduced = error if isinstance(error, BatchledgerError) else StagingError(f"{describe_raised(error)}.")
    rows = reduced.coordinates if isinstance(reduced, TargetRefusedError) else ()
    parts = (type(reduced).__name__, reduced.message, reduced.why, reduced.advice, rows)
    reduced.add_note(CARRIED + json.dumps(parts))
    if tag is not None:
        reduced.add_note(_SEALED + seal(tag, whole))
    return reduced


def describe_raised(error: BaseException) -> str:
    """Return type and place of an error. Example: ``ValueError was raised in /srv/dags/transforms.py, line 12``."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return f"{name} was raised"
    place = ([each for each in frames if not _is_library(PurePath(each.filename))] or frames)[-1]
    return f"{name} was raised in {place.filename}, line {place.lineno}"


def _is_library(file: PurePath) -> bool:
    """Whether a line of the file says less than the line that has called it: Python's own library, Spark and arrays."""
    is_python = file.is_relative_to(_PYTHON) and "site-packages" not in file.parts
    return is_python or not file.is_absolute() or not _LIBRARIES.isdisjoint(file.parts)


def _derive(mine: X25519PrivateKey, other: X25519PublicKey) -> bytes:
    return HKDF(SHA256(), _KEY_BYTES, None, b"batchledger errors").derive(mine.exchange(other))
