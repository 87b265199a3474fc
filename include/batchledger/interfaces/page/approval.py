"""What somebody has been shown, signed: only that can be carried out, by whom it was shown to, and for a while.

A page of another site, which can read no answer of this one, has no such text.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from itsdangerous import BadSignature, URLSafeTimedSerializer

from batchledger.model.batch import DecisionKind
from batchledger.model.errors import DecisionRefusedError

# A dry run comes between what is asked for and what is carried out.
VALID_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Approval:
    """What was shown: to whom, of which pipeline, what was asked for in the form, and a digest of what it changes.

    ``user_id`` is that of Airflow, which may show another name.
    """

    user_id: str
    pipeline: str
    kind: DecisionKind
    fields: Mapping[str, str]
    effect: str


def sign(approval: Approval, secret: str) -> str:
    """Return the approval as a text that nobody else can make."""
    return _serializer(secret).dumps(asdict(approval))


def read(text: str, secret: str, user_id: str, pipeline: str) -> Approval:
    """Return the approval that a text holds. Raises DecisionRefusedError for another one's, a forged or an old one."""
    try:
        content = _serializer(secret).loads(text, max_age=VALID_SECONDS)
    except BadSignature as error:
        raise DecisionRefusedError(
            "what was to be done was shown too long ago, or never; have it shown again. Nothing was changed."
        ) from error
    approval = Approval(**{**content, "kind": DecisionKind(content["kind"])})
    if (approval.user_id, approval.pipeline) != (user_id, pipeline):
        raise DecisionRefusedError("what was to be done was shown to somebody else; nothing was changed.")
    return approval


def digest(effect: Any) -> str:
    """Return what differs as soon as the effect does."""
    return hashlib.sha256(json.dumps(effect, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _serializer(secret: str) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(secret, salt="batchledger approval")
