"""What an instance of OCI is to itself: its metadata, and rights that it gets for its certificate.

Used for `auth: instance`, where whoever runs on the machine has no key of their own.
"""

import json
import time
from base64 import b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from functools import cached_property

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

METADATA = "/opc/v2/"
FEDERATION = "/v1/x509"
LIFE_S = 1200


class MachineIdentity:
    """The machine that the client runs on."""

    def __init__(self, tenancy: str, region: str) -> None:
        self.tenancy = tenancy
        self.region = region
        self.sessions: dict[str, rsa.RSAPublicKey] = {}
        """The keys that may sign, by the ids of their tokens."""

    @cached_property
    def key(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @cached_property
    def certificate(self) -> bytes:
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, "ocid1.instance.oc1.phx.control"),
                x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, f"opc-tenant:{self.tenancy}"),
            ]
        )
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .sign(self.key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    def metadata(self, path: str) -> bytes | None:
        """What the metadata service says; None: it has no such page."""
        private = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        pages = {
            "identity/cert.pem": self.certificate,
            "identity/intermediate.pem": self.certificate,
            "identity/key.pem": private,
            "instance/region": self.region.encode(),
        }
        return pages.get(path.removeprefix(METADATA))

    def session(self, body: dict[str, str]) -> dict[str, str]:
        """A token for the key that is sent, which must come with our certificate."""
        ours = "".join(self.certificate.decode().splitlines()[1:-1])
        if body["certificate"] != ours:
            raise ValueError("another certificate")
        public = serialization.load_der_public_key(b64decode(body["publicKey"]))
        assert isinstance(public, rsa.RSAPublicKey)
        now = int(time.time())
        token = ".".join(
            urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
            for part in ({"alg": "RS256"}, {"iat": now, "exp": now + LIFE_S}, "signature")
        )
        self.sessions[f"ST${token}"] = public
        return {"token": token}
