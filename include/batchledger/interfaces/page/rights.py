"""What people do here, by verbs, and which right of Airflow a verb needs. Pure; ``access`` asks Airflow.

A user who may read a DAG may look at its pipeline. Every other verb needs the right to trigger the DAG. Airflow's
configuration may ask for a further right for seeing payloads, for deciding and for destroying. It only adds: no setting
gives a user what the right to trigger does not give.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, cast

from batchledger.model.errors import ConfigurationError
from batchledger.model.quoting import quote

Method = Literal["GET", "POST", "PUT", "DELETE"]

SECTION = "batchledger"
"""The section of Airflow's configuration."""


class Verb(StrEnum):
    """What a user does with a pipeline, from the least harmful on."""

    LOOK = "look"
    SEE_PAYLOADS = "see_payloads"
    OPERATE = "operate"
    DECIDE = "decide"
    DESTROY = "destroy"


SETTINGS: Mapping[Verb, str] = {each: f"to_{each}" for each in (Verb.SEE_PAYLOADS, Verb.DECIDE, Verb.DESTROY)}
"""The setting that names a further right. Airflow's own Trigger button operates, too, so there is none for that."""


class Resource(StrEnum):
    """What a further right of Airflow can be about: the DAG of the pipeline, connections, a view by its name."""

    DAG = "dag"
    CONNECTION = "connection"
    VIEW = "view"


@dataclass(frozen=True, slots=True)
class Right:
    """A right as Airflow's auth managers know it: a method on a resource. Only a view has a ``name``."""

    method: Method
    resource: Resource
    name: str = ""


def parse_right(text: str, setting: str) -> Right | None:
    """Read the value of a setting: ``DELETE dag``, ``PUT connection`` or ``POST view NAME``; None if it is empty.

    Raises ConfigurationError.
    """
    if not text.strip():
        return None
    found = re.fullmatch(r"\s*(GET|POST|PUT|DELETE)\s+(?:(dag|connection)|(view)\s+(\S(?:.*\S)?))\s*", text)
    if found is None:
        raise ConfigurationError(
            f"{setting} in the section [{SECTION}] of Airflow's configuration names no right: {quote(text)}. "
            "Nothing was shown or changed.",
            advice="Write a method and a resource, such as DELETE dag, PUT connection or POST view NAME.",
            subject=setting,
        )
    method, resource, view, name = found.groups()
    return Right(cast("Method", method), Resource(resource or view), name or "")
