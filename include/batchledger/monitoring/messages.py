"""What a channel delivers of an incident: a title, a text, and a document for webhooks. Pure.

A message is made of what the incident holds and of links. It never holds a record's value or a secret, because nothing
that it is made of does.
"""

from dataclasses import dataclass
from urllib.parse import quote

from batchledger.model.incidents import Event, Incident, Message
from batchledger.model.runs import find_place
from batchledger.monitoring.health import describe_duration

LINE_CHARACTERS = 1000


@dataclass(frozen=True, slots=True)
class Links:
    """Pages about a batch; None if there is no Airflow whose address is known.

    ``section`` is the part of the page that has them: ``pipelines``, or ``watches``.
    """

    airflow_url: str | None = None
    section: str = "pipelines"

    def to_run(self, pipeline: str, run: str | None) -> str | None:
        """Return the page of an Airflow run; None for a run of the command line."""
        place = find_place(pipeline, run) if run is not None else None
        if self.airflow_url is None or place is None:
            return None
        return f"{self.airflow_url.rstrip('/')}/dags/{quote(place.dag_id)}/runs/{quote(place.run_id, safe='')}"

    def to_page(self, pipeline: str, batch_id: int | None) -> str | None:
        """Return the page of a batch, or of the pipeline if there is none; within Airflow's, so with its login."""
        if self.airflow_url is None:
            return None
        page = f"{self.airflow_url.rstrip('/')}/plugin/batchledger/batchledger/{self.section}/{quote(pipeline)}"
        return page if batch_id is None else f"{page}/batches/{batch_id}"

    def to_docs(self, pipeline: str, batch_id: int | None) -> str | None:
        """Return the Data Docs page of a batch."""
        if self.airflow_url is None or batch_id is None:
            return None
        return f"{self.airflow_url.rstrip('/')}/batchledger/docs/{quote(pipeline)}/{batch_id}"


def compose(incident: Incident, event: Event, links: Links) -> Message:
    """Return the message about an incident: ``[batchledger] orders: blocked — no_unexplained_holes``."""
    condition = incident.condition
    is_over = event is Event.ENDED
    how = f", {incident.ending}" if incident.ending else ""
    over = f": over after {describe_duration(incident.duration)}{how}" if is_over else ""
    title = _one_line(f"[batchledger] {condition.pipeline}: {condition.title}{over}")
    lines = tuple(_one_line(each) for each in (condition.facts if is_over else condition.lines))
    run_url = links.to_run(condition.pipeline, condition.run)
    page_url = links.to_page(condition.pipeline, condition.batch_id)
    docs_url = links.to_docs(condition.pipeline, condition.batch_id)
    since = f"{condition.severity} since {incident.opened_at:%Y-%m-%d %H:%M:%S} UTC"
    ended = f"over since {incident.ended_at:%Y-%m-%d %H:%M:%S} UTC{how}. It was:" if incident.ended_at else ""
    further = (
        ("Look at it", condition.command),
        ("Page", page_url),
        ("Airflow run", run_url),
        ("Data Docs", docs_url),
        ("Incident", f"{incident.incident_id}, {since}"),
    )
    told = [f"{label}: {value}" for label, value in further if value]
    document = {
        "source": "batchledger",
        "event": event,
        "incident_id": incident.incident_id,
        "pipeline": condition.pipeline,
        "kind": condition.kind,
        "subject": condition.subject,
        "severity": condition.severity,
        "title": title,
        "lines": lines,
        "command": condition.command,
        "batch_id": condition.batch_id,
        "page_url": page_url,
        "run_url": run_url,
        "docs_url": docs_url,
        "opened_at": incident.opened_at.isoformat(),
        "ended_at": incident.ended_at.isoformat() if incident.ended_at else None,
        "ending": incident.ending,
    }
    text = "\n".join([*([ended] if ended else []), *lines, "", *told])
    return Message(title, text, condition.severity, is_over, {**document, "text": f"{title}\n{text}"})


def compose_trial(connection_id: str) -> Message:
    """Return the message with which a person tries a channel."""
    title = f"[batchledger] a trial message through {connection_id}"
    text = "Alerts of pipelines whose file names this connection will arrive here."
    return Message(
        title,
        text,
        is_good=True,
        document={"source": "batchledger", "event": "test", "title": title, "text": f"{title}\n{text}"},
    )


def _one_line(text: str) -> str:
    """Return a text that breaks no header and no list, cut if it is very long. It keeps how far it is indented."""
    joined = text[: len(text) - len(text.lstrip(" "))] + " ".join(text.split())
    return joined if len(joined) <= LINE_CHARACTERS else f"{joined[: LINE_CHARACTERS - 1]}…"
