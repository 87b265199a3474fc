"""The TLS of one stream: a certificate that is made for it, and that its tasks alone believe.

Nothing of it is kept. The tasks get the certificate with their work, so no authority and no name of a host is asked.
"""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

_NAME = "batchledger stream"
# Clocks of two machines differ.
_SKEW = timedelta(days=1)


def make_server_context() -> tuple[ssl.SSLContext, str]:
    """Return what a server needs, and the certificate that it shows, in PEM."""
    # Imported here, because a stream on one machine needs none.
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _SKEW)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, SHA256())
    )
    certificate = made.public_bytes(Encoding.PEM)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Python's TLS reads keys from files alone; only this account can read the folder.
    with TemporaryDirectory(prefix="batchledger-stream-") as folder:
        path = Path(folder, "pem")
        path.write_bytes(private + certificate)
        context.load_cert_chain(path)
    return context, certificate.decode()


def make_client_context(certificate: str) -> ssl.SSLContext:
    """Return what a task needs to believe that certificate alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(cadata=certificate)
    return context
