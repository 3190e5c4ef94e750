"""`pqbroker certificate`: an authority and certificates that it signs, for tests and small networks."""

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pqbroker.cli.command import Family, declare
from pqbroker.cli.options import Json
from pqbroker.cli.output import say, show_json
from pqbroker.cli.parsing import option
from pqbroker.cli.refusals import CommandError, WrongInput
from pqbroker.security.errors import SecurityError

if TYPE_CHECKING:
    from pqbroker.security.issuing import Authority, Issued

app = Family()

LOCALS = ("localhost", "127.0.0.1", "::1")
"""Hosts of every certificate of a broker: clients on its own machine use them."""
AUTHORITY, AUTHORITY_KEY, BROKER_FILE = "ca.pem", "ca.key", "broker.pem"


@declare(app, "certificate", "pqbroker certificate --for broker.example --client alice")
def certificate(
    hosts: Annotated[
        list[str],
        option("--for", metavar="HOST", help="Name or address that clients connect to; repeatable."),
    ] = [],  # noqa: B006 (it is not changed)
    clients: Annotated[
        list[str], option("--client", metavar="NAME", help="User to make a client's certificate for; repeatable.")
    ] = [],  # noqa: B006
    directory: Annotated[
        Path, option("--directory", "-d", metavar="DIR", help="Directory of the files.")
    ] = Path("certificates"),
    days: Annotated[
        int, option("--days", "-n", metavar="DAYS", least=1, most=3650, help="Days that the certificates are valid.")
    ] = 365,
    json: Json = False,
) -> None:
    """Make certificates for a broker and its clients, signed by an authority of their own.

    The first run makes the authority: ca.pem, which clients trust, and ca.key, which you keep. Later runs use it.
    --for writes broker.pem and broker.properties; `pqbroker serve --config` takes them, and a running broker takes a
    new broker.pem within seconds. --client writes NAME.pem and NAME.properties, for --command-config.
    client.properties is for clients without a certificate. Files with a key are readable by you alone.
    """
    if not hosts and not clients:
        raise WrongInput("nothing to make: give --for HOST for a broker's certificate, --client NAME for a client's")
    if wrong := [name for name in clients if not name.isprintable() or "/" in name or name.startswith(".")]:
        raise WrongInput(f"--client {wrong[0]!r} cannot be a file's name; give letters, digits, '-' and '_'")
    if {"ca", "broker", "client"} & set(clients):
        raise WrongInput("--client ca, broker and client are names of other files; give another name")
    place, now = directory.absolute(), datetime.now(UTC)
    try:
        from pqbroker.security.issuing import issue  # SecurityError without the library that it needs

        place.mkdir(parents=True, exist_ok=True)
        authority, written = _authority(place, now, days)
        if hosts:
            issued = issue(authority, hosts[0], list(dict.fromkeys([*hosts, *LOCALS])), now, days)
            written += _write_all(place, _broker_files(place, issued))
        for name in clients:
            written += _write_all(place, _client_files(place, name, issue(authority, name, (), now, days)))
    except SecurityError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"cannot write to {place}: {error.strerror}") from None
    for path in written:
        if json:
            show_json({"file": str(path)})
        else:
            say(str(path))


def _authority(place: Path, now: datetime, days: int) -> "tuple[Authority, list[Path]]":
    """Return the authority of the directory, and its files if it was made just now."""
    from pqbroker.security.issuing import load_authority, make_authority

    certificate_file, key_file = place / AUTHORITY, place / AUTHORITY_KEY
    if certificate_file.exists() and key_file.exists():
        return load_authority(certificate_file.read_bytes(), key_file.read_bytes()), []
    if certificate_file.exists():
        raise SecurityError(f"{certificate_file} has no {AUTHORITY_KEY} beside it; put it there, or give --directory")
    made = make_authority("pqbroker authority", now, 10 * days)
    texts = {AUTHORITY_KEY: made.issued.key, AUTHORITY: made.issued.certificate, "client.properties": _trusting(place)}
    return made, _write_all(place, texts)


def _broker_files(place: Path, issued: "Issued") -> dict[str, str]:
    settings = (
        "listeners=SSL://:9092\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={place / BROKER_FILE}\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={place / AUTHORITY}\n"
        "# required: each client shows a certificate, and is its user\n#ssl.client.auth=required\n"
    )
    return {BROKER_FILE: issued.certificate + issued.key, "broker.properties": settings}


def _client_files(place: Path, name: str, issued: "Issued") -> dict[str, str]:
    keys = f"ssl.keystore.type=PEM\nssl.keystore.location={place / f'{name}.pem'}\n"
    return {f"{name}.pem": issued.certificate + issued.key, f"{name}.properties": _trusting(place) + keys}


def _trusting(place: Path) -> str:
    return f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={place / AUTHORITY}\n"


def _write_all(place: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write files by name, each whole, so that a broker never reads half of one; keys are for their owner alone."""
    written = []
    for name, text in texts.items():
        path, beside = place / name, place / f".{name}.new"
        with suppress(FileNotFoundError):
            beside.unlink()
        mode = 0o600 if "PRIVATE KEY" in text else 0o644
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            file.write(text)
        beside.rename(path)
        written.append(path)
    return written
