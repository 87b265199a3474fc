"""What a pipeline file says of its transform, found and read: a function of Python, or SQL over one row. Pure."""

from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from typing_extensions import override

from batchledger.model.records.row_query import RowQuery


@dataclass(frozen=True)
class PythonTransform:
    """``module:function``. ``file`` is where the module may lie beside the pipeline file; ``text`` is what it holds.

    A module without a text is an installed one. One of a package has no such file.
    """

    reference: str
    file: Path | None = None
    text: str | None = field(default=None, repr=False)

    @override
    def __str__(self) -> str:
        return self.reference

    @property
    def rule(self) -> str:
        """What two pipeline files share if they make the same rows, so far as is known without importing a module."""
        return self.reference if self.text is None else f"{self.reference} {sha256(self.text.encode()).hexdigest()}"


Transform = PythonTransform | RowQuery
