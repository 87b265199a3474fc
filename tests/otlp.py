"""A real receiver of OTLP over HTTP on 127.0.0.1, to which Airflow sends spans and metrics."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.endpoints import HOST, serving

Series = tuple[str, tuple[tuple[str, Any], ...]]
"""The name of a metric, and its labels in order."""


@dataclass
class OtlpReceiver:
    """What has arrived, in order. An answer waits for ``may_answer``."""

    port: int
    bodies: list[bytes] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    gauges: list[tuple[Series, float]] = field(default_factory=list)
    may_answer: threading.Event = field(default_factory=threading.Event)

    @property
    def settings(self) -> dict[str, str]:
        """The variables with which an Airflow sends its traces and metrics here."""
        return {
            "AIRFLOW__TRACES__OTEL_ON": "True",
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "OTEL_TRACES_EXPORTER": "otlp_proto_http",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{HOST}:{self.port}",
            # Seconds. The task of a silent receiver stays for so long.
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2",
        }

    def spans_of(self, pipeline: str) -> list[Span]:
        """The spans that say which pipeline, or which DAG, they are about."""
        found = []
        for each in list(self.spans):
            attributes = read_attributes(each.attributes)
            if pipeline in (attributes.get("batchledger.pipeline"), attributes.get("airflow.dag_id")):
                found.append(each)
        return found

    def gauges_of(self, pipeline: str) -> dict[Series, float]:
        """The newest number of each gauge of a pipeline, without the label that says so."""
        label = ("pipeline", pipeline)
        return {
            (name, tuple(each for each in labels if each != label)): value
            for (name, labels), value in list(self.gauges)
            if label in labels
        }

    def _take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            sent = ExportTraceServiceRequest.FromString(body)
            self.spans += [span for each in sent.resource_spans for scope in each.scope_spans for span in scope.spans]
        else:
            assert path == "/v1/metrics"
            metrics = [
                metric
                for each in ExportMetricsServiceRequest.FromString(body).resource_metrics
                for scope in each.scope_metrics
                for metric in scope.metrics
            ]
            self.gauges += [
                ((metric.name, tuple(sorted(read_attributes(point.attributes).items()))), _read_number(point))
                for metric in metrics
                for point in metric.gauge.data_points
            ]
        # Last: who finds a body finds what was in it.
        self.bodies.append(body)


def read_attributes(attributes: "Any") -> Mapping[str, Any]:
    """The attributes of a span or of a point, as values of Python."""
    pairs: list[KeyValue] = list(attributes)
    return {each.key: _read_value(each.value) for each in pairs}


def _read_value(value: AnyValue) -> Any:
    if value.WhichOneof("value") == "array_value":
        return [_read_value(each) for each in value.array_value.values]
    return getattr(value, str(value.WhichOneof("value")))


def _read_number(point: NumberDataPoint) -> float:
    return float(getattr(point, str(point.WhichOneof("value"))))


@contextmanager
def serve_otlp() -> Iterator[OtlpReceiver]:
    """Serve until the test leaves; a request that is held back then is let go."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver._take(self.path, body)
            receiver.may_answer.wait()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name of the base class
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    receiver = OtlpReceiver(server.server_address[1])
    receiver.may_answer.set()
    with serving(server):
        try:
            yield receiver
        finally:
            receiver.may_answer.set()
