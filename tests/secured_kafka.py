"""A broker with a listener for every login, an authority for its certificates, and a server that hands out tokens."""

import base64
import contextlib
import datetime
import ipaddress
import json
import secrets
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import RSAAlgorithm

from batchledger.local.stack import kafka_broker, local_stack, processes
from batchledger.local.stack.home import Home
from batchledger.local.stack.jars import fetch_jars
from batchledger.local.stack.machine import HOST, find_java
from tests.conftest import ROOT, SERVICES, choose_ports
from tests.support import admin_client, wait_until

PASSWORD = secrets.token_hex(12)
USER = "etl"
STRANGERS = ("stranger", "planner", "reader", "writer")
"""They may log in, and then have the rights that a test grants. ``USER`` has all."""
ACCESS_KEY, SECRET_KEY = "TESTKEY", secrets.token_hex(20)
REGION = "eu-test-1"

_SCRAM = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}
_VALIDATOR = ROOT / "tests" / "AwsValidator.scala"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
_CHECK = "OAuthBearerValidatorCallbackHandler"
_BEARER = "org.apache.kafka.common.security.oauthbearer"


@dataclass(frozen=True)
class Authority:
    """Issues certificates, in PEM."""

    folder: Path
    _key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @cached_property
    def certificate(self) -> x509.Certificate:
        builder = _builder("batchledger-test", "batchledger-test", self._key.public_key(), days=1)
        return builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
            self._key, hashes.SHA256()
        )

    @cached_property
    def path(self) -> Path:
        place = self.folder / "authority.pem"
        place.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return place

    def issue(self, name: str, expired: bool = False, password: str = "") -> tuple[Path, Path]:
        """Return the files of a certificate for this machine and of its key; an expired one ended yesterday."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _builder(name, "batchledger-test", key.public_key(), days=-1 if expired else 1)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST))]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        lock = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
        stem = f"{name}-{secrets.token_hex(4)}"
        places = self.folder / f"{stem}.crt", self.folder / f"{stem}.key"
        places[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        places[1].write_bytes(private)
        return places

    def issue_for_broker(self, expired: bool = False) -> Path:
        """Return a file with a certificate and its key, as a broker wants it."""
        certificate, key = self.issue("broker", expired)
        keystore = certificate.with_suffix(".pem")
        keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
        return keystore


def _builder(name: str, issuer: str, key: Any, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, issuer)]))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=3))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


@dataclass
class TokenServer:
    """An OAuth server that knows the grant of client credentials; every token lasts ``lifetime_seconds``."""

    url: str
    jwks: Path
    served: list[Mapping[str, str]] = field(default_factory=list)
    lifetime_seconds: int = 60


@contextmanager
def serve_tokens(authority: Authority) -> Iterator[TokenServer]:
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    public = json.loads(RSAAlgorithm.to_jwk(key.public_key())) | {"kid": "test", "alg": "RS256", "use": "sig"}
    jwks = authority.folder / "jwks.json"
    jwks.write_text(json.dumps({"keys": [public]}))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = {name: each[0] for name, each in parse_qs(self._body()).items()}
            login = base64.b64decode(self.headers.get("Authorization", "Basic ").removeprefix("Basic ")).decode()
            user, _, password = login.partition(":")
            if form.get("grant_type") != "client_credentials" or password != PASSWORD:
                self._answer(401, {"error": "invalid_client", "error_description": "the secret of the client is wrong"})
                return
            now = int(time.time())
            claims = {"sub": user, "iat": now, "exp": now + server.lifetime_seconds, "scope": form.get("scope", "")}
            token = jwt.encode(
                claims | {"iss": "batchledger-test", "aud": "kafka"}, key, "RS256", headers={"kid": "test"}
            )
            server.served.append(form | {"user": user})
            self._answer(200, {"access_token": token, "token_type": "Bearer", "expires_in": server.lifetime_seconds})

        def _body(self) -> str:
            return self.rfile.read(int(self.headers["Content-Length"])).decode()

        def _answer(self, status: int, content: Mapping[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    listener = ThreadingHTTPServer((HOST, 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("tokens"))
    listener.socket = context.wrap_socket(listener.socket, server_side=True)
    server = TokenServer(f"https://{HOST}:{listener.server_port}/token", jwks)
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


@dataclass(frozen=True)
class SecuredKafka:
    """A broker whose every listener asks for another login. ``operator`` needs none, and may do everything."""

    authority: Authority
    tokens: TokenServer
    port_by_listener: Mapping[str, int]

    @property
    def operator(self) -> dict[str, str]:
        return {"bootstrap.servers": self.servers("operator")}

    def grant(self, user: str, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        bindings = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
            for operation in operations
        ]
        with admin_client(self.operator) as client:
            for future in client.create_acls(bindings).values():
                future.result(30)

    def servers(self, listener: str) -> str:
        return f"{HOST}:{self.port_by_listener[listener]}"

    def trusting(self, listener: str, protocol: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.servers(listener),
            "security.protocol": protocol,
            "ssl.ca.location": str(self.authority.path),
        }

    def password(self, mechanism: str, user: str = USER) -> dict[str, str]:
        login = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": PASSWORD}
        return self.trusting("sasl", "SASL_SSL") | login

    def certificate(self, name: str = USER, expired: bool = False) -> dict[str, str]:
        certificate, key = self.authority.issue(name, expired)
        files = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
        return self.trusting("mutual", "SSL") | files

    def certificate_as_text(self, password: str = "") -> dict[str, str]:
        certificate, key = self.authority.issue(USER, password=password)
        options = self.trusting("mutual", "SSL")
        del options["ssl.ca.location"]
        return options | {
            "ssl.ca.pem": self.authority.path.read_text(),
            "ssl.certificate.pem": certificate.read_text(),
            "ssl.key.pem": key.read_text(),
            **({"ssl.key.password": password} if password else {}),
        }

    def client_credentials(self, user: str = USER) -> dict[str, str]:
        return self.trusting("sasl", "SASL_SSL") | {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
            "sasl.oauthbearer.client.id": user,
            "sasl.oauthbearer.client.secret": PASSWORD,
            "sasl.oauthbearer.scope": "kafka",
            "https.ca.location": str(self.authority.path),
        }

    def machine_identity(self) -> dict[str, str]:
        return self.trusting("aws", "SASL_SSL") | {"sasl.mechanism": "AWS_MSK_IAM", "aws.region": REGION}


def _compile_validator(folder: Path) -> Path:
    """Compile what stands for Amazon's side of the broker, with the Scala compiler that Spark brings along."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    compiler = [str(next(jars.glob(f"scala-{name}-2.13*.jar"))) for name in ("compiler", "library", "reflect")]
    kafka = list(map(str, fetch_jars(SERVICES.home, "kafka")))
    classes = folder / "classes"
    classes.mkdir()
    command = [str(find_java()), "-cp", ":".join(compiler), "scala.tools.nsc.Main", "-nowarn", "-d", str(classes)]
    subprocess.run([*command, "-cp", ":".join([*kafka, *compiler]), str(_VALIDATOR)], check=True, timeout=120)
    return classes


def _properties(plain: str, ports: Mapping[str, int], authority: Authority, tokens: TokenServer) -> str:
    """The settings of the local broker, with a listener for every login."""
    settings = dict(line.split("=", 1) for line in plain.splitlines())
    protocols = {"operator": "PLAINTEXT", "mutual": "SSL", "sasl": "SASL_SSL", "aws": "SASL_SSL", "expired": "SSL"}
    addresses = ",".join(f"{name.upper()}://{HOST}:{port}" for name, port in ports.items())
    controller = settings["listeners"].split(",")[-1]
    users = " ".join(f'user_{user}="{PASSWORD}"' for user in (USER, *STRANGERS))
    settings |= {
        "listeners": f"{addresses},{controller}",
        "advertised.listeners": addresses,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,"
        + ",".join(f"{name.upper()}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": "OPERATOR",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:{USER};User:CN={USER};User:{ACCESS_KEY}",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": f"{_PLAIN} required {users};",
        **{f"listener.name.sasl.{each.lower()}.sasl.jaas.config": f"{_SCRAM_MODULE} required;" for each in _SCRAM},
        "listener.name.sasl.oauthbearer.sasl.jaas.config": f"{_BEARER}.OAuthBearerLoginModule required;",
        "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": f"{_BEARER}.{_CHECK}",
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": tokens.jwks.as_uri(),
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.expected.issuer": "batchledger-test",
        "listener.name.sasl.oauthbearer.sasl.oauthbearer.clock.skew.seconds": "0",
        # Without a longest session, the broker would let a client go on after the end of its token.
        **{f"listener.name.{each}.oauthbearer.connections.max.reauth.ms": "3600000" for each in ("sasl", "aws")},
        "listener.name.aws.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.aws.oauthbearer.sasl.jaas.config": f"{_BEARER}.OAuthBearerLoginModule required "
        f'unsecuredLoginStringClaim_sub="unused";',
        "listener.name.aws.oauthbearer.sasl.server.callback.handler.class": "AwsValidator",
    }
    for name, protocol in protocols.items():
        if "SSL" in protocol:
            settings |= {
                f"listener.name.{name}.ssl.keystore.type": "PEM",
                f"listener.name.{name}.ssl.keystore.location": authority.issue_for_broker(expired=name == "expired"),
                f"listener.name.{name}.ssl.truststore.type": "PEM",
                f"listener.name.{name}.ssl.truststore.location": authority.path,
            }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def wait_for_broker(home: Home, client: AdminClient) -> None:
    """Wait until the broker of this folder answers; fail with its last words if it ended or takes two minutes."""

    def answers() -> bool:
        record = processes.ServiceRecord.read(home, "kafka")
        assert record is not None
        assert record.is_alive, processes.tail_log(home, "kafka")
        with contextlib.suppress(KafkaException):
            return bool(client.list_topics(timeout=2).brokers)
        return False

    wait_until(answers, 120)


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[SecuredKafka]:
    """Start the broker for one module, in a folder of its own; import it as a fixture."""
    home = replace(SERVICES.home, local=SERVICES.home.local / request.module.__name__.rpartition(".")[2])
    ports, more = choose_ports(), choose_ports()
    names = ("mutual", "sasl", "aws", "expired")
    others = (more.kafka, more.kafka_controller, more.postgres, more.spark)
    port_by_listener = {"operator": ports.kafka, **dict(zip(names, others, strict=True))}
    folder = home.local / "kafka"
    folder.mkdir(parents=True)
    authority = Authority(folder)
    with serve_tokens(authority) as tokens:
        launch = kafka_broker.kafka_service(home, ports, SERVICES.credentials).prepare()
        properties = folder / "server.properties"
        properties.write_text(_properties(properties.read_text(), port_by_listener, authority, tokens))
        options = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.jwks.as_uri()}"]
        options += [f"-Dbatchledger.test.aws={ACCESS_KEY}:{SECRET_KEY}:{REGION}"]
        at = launch.argv.index("-cp")
        classes = _compile_validator(folder)
        path = f"{classes}:{launch.argv[at + 1]}"
        launch = replace(launch, argv=(*launch.argv[:at], *options, "-cp", path, *launch.argv[at + 2 :]))
        processes.start(home, "kafka", launch)
        try:
            broker = SecuredKafka(authority, tokens, port_by_listener)
            with admin_client(broker.operator | {"log_level": "0"}) as client:
                wait_for_broker(home, client)
                for user, mechanism in product((USER, STRANGERS[0]), _SCRAM.values()):
                    login = ScramCredentialInfo(mechanism, 4096)
                    change = UserScramCredentialUpsertion(user, login, PASSWORD.encode())
                    client.alter_user_scram_credentials([change])[user].result(30)
            yield broker
        finally:
            local_stack.down(home)
