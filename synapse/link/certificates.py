"""Makes the certificates of the fleet's own NATS server: an authority that signs this server's and nothing else."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import NameOID

from synapse.config.fleet import CA_FILE, CERTIFICATE_DAYS, CERTIFICATE_FILE, KEY_FILE, write_atomically

CA_KEY: Final = "ca.key"
CA_YEARS: Final = 20
# A machine whose clock is some days behind still accepts a new certificate.
_BEFORE: Final = timedelta(days=30)
_NAME: Final = "synapse-fleet"


def make_authority(folder: Path, fleet: str, now: datetime) -> None:
    """Makes the certificate authority of a fleet, with its key. Raises OSError."""
    key = Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Synapse fleet {fleet}")])
    certificate = (
        _certificate(name, name, now, timedelta(days=365 * CA_YEARS))
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, None)
    )
    write_atomically(folder / CA_KEY, _key_text(key))
    write_atomically(folder / CA_FILE, certificate.public_bytes(serialization.Encoding.PEM).decode())


def make_server_certificate(folder: Path, now: datetime) -> None:
    """Makes the server's certificate and key, for a year. Raises OSError, ValueError."""
    authority = x509.load_pem_x509_certificate((folder / CA_FILE).read_bytes())
    signer = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    if not isinstance(signer, Ed25519PrivateKey):
        raise ValueError(f"{folder / CA_KEY} is no Ed25519 key")  # noqa: TRY004 - the file's content is wrong
    key = Ed25519PrivateKey.generate()
    certificate = (
        _certificate(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)]),
            authority.subject,
            now,
            timedelta(days=CERTIFICATE_DAYS),
        )
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(signer, None)
    )
    write_atomically(folder / KEY_FILE, _key_text(key))
    write_atomically(folder / CERTIFICATE_FILE, certificate.public_bytes(serialization.Encoding.PEM).decode())


def days_left(folder: Path, now: datetime) -> int:
    """Returns for how many days the server's certificate is valid. Raises OSError, ValueError."""
    certificate = x509.load_pem_x509_certificate((folder / CERTIFICATE_FILE).read_bytes())
    return (certificate.not_valid_after_utc - now).days


def days_left_of(certificate: bytes, now: datetime) -> int:
    """Returns for how many days a certificate (DER) is valid. Raises ValueError."""
    return (x509.load_der_x509_certificate(certificate).not_valid_after_utc - now).days


def pin_of(authority: str) -> bytes:
    """Returns the public key of a certificate authority (PEM), by which an invitation names it. Raises ValueError."""
    key = x509.load_pem_x509_certificate(authority.encode()).public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("the fleet's certificate authority has no Ed25519 key")  # noqa: TRY004 - a wrong value, not a wrong call
    return key.public_bytes_raw()


def is_signed_by(certificate: bytes, pin: bytes) -> bool:
    """Decides whether the authority with the public key `pin` has signed a certificate (DER)."""
    try:
        found = x509.load_der_x509_certificate(certificate)
        Ed25519PublicKey.from_public_bytes(pin).verify(found.signature, found.tbs_certificate_bytes)
    except (ValueError, InvalidSignature):
        return False
    return True


def _certificate(name: x509.Name, issuer: x509.Name, now: datetime, valid: timedelta) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + valid)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_text(key: Ed25519PrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
