"""What a person has seen, signed: this person can carry out only that, and only for a while.

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

    ``user_id`` is Airflow's, which may show another name. ``dag_id`` is the DAG that gave the right.
    """

    user_id: str
    pipeline: str
    dag_id: str
    kind: DecisionKind
    fields: Mapping[str, str]
    effect: str


def sign(approval: Approval, secret: str) -> str:
    """Return the approval as a text that no other program can make."""
    return _serializer(secret).dumps(asdict(approval))


def read(text: str, secret: str, user_id: str, pipeline: str) -> Approval:
    """Return the approval that a text holds. Raises DecisionRefusedError for another one's, a forged or an old one."""
    try:
        content = _serializer(secret).loads(text, max_age=VALID_SECONDS)
    except BadSignature as error:
        raise DecisionRefusedError(
            "What you confirmed was shown too long ago, or never. Nothing was changed.",
            why=f"What the page shows can be confirmed for {VALID_SECONDS // 60} minutes.",
            advice="Let the page show again what would change, then confirm it.",
        ) from error
    approval = Approval(**{**content, "kind": DecisionKind(content["kind"])})
    if (approval.user_id, approval.pipeline) != (user_id, pipeline):
        raise DecisionRefusedError(
            "What you confirmed was shown to another person, or about another pipeline. Nothing was changed.",
            advice="Let the page show you what would change, then confirm it.",
        )
    return approval


def digest(effect: Any) -> str:
    """Return what differs as soon as the effect does."""
    return hashlib.sha256(json.dumps(effect, sort_keys=True, default=str).encode()).hexdigest()[:32]


def _serializer(secret: str) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(secret, salt="batchledger approval")
