"""Facts of a certificate in DER that a broker needs: its subject as Java prints it, its last day, its hosts.

The subject is a text by RFC 2253, as `X500Principal.getName()` has it: the last name first; types that the RFC does not
name as numbers, and their values as bytes. Only what is needed is read: OpenSSL has verified the rest.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

_SEQUENCE, _OID, _UTC_TIME, _GENERALIZED_TIME, _EXPLICIT_0, _EXPLICIT_3 = 0x30, 0x06, 0x17, 0x18, 0xA0, 0xA3
_TEXTS = {
    0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "ascii", 0x1C: "utf-32-be", 0x1E: "utf-16-be",
}  # fmt: skip
"""Encodings of texts by their tags."""
_KEYWORDS = {
    "2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O",
    "2.5.4.11": "OU", "0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}  # fmt: skip
_ESCAPED = frozenset(',=+<>#;"\\')
_DAY_S = 86_400
_SUBJECT_ALT_NAME = "2.5.29.17"


class Element(NamedTuple):
    """One element of DER: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    whole: bytes


class CertificateFacts(NamedTuple):
    """Known facts of one certificate."""

    subject: str
    not_after: str
    """Last moment in UTC, as YYYYMMDDhhmmss."""
    hosts: frozenset[bytes]
    """Alternative names, as each is encoded."""

    def days_left(self, now_s: float) -> float:
        """Return the days until it expires; `now_s`: seconds since 1970."""
        until = datetime.strptime(self.not_after, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
        return (until.timestamp() - now_s) / _DAY_S


def certificate_facts(der: bytes) -> CertificateFacts:
    """Read a certificate; ValueError for what is none."""
    (certificate,) = _elements(der)
    signed = list(_elements(next(_elements(certificate.content)).content))
    if signed[0].tag == _EXPLICIT_0:
        del signed[0]
    _serial, _algorithm, _issuer, validity, subject, _key, *rest = signed
    _, until = _elements(validity.content)
    found = (_hosts(each.content) for each in rest if each.tag == _EXPLICIT_3)
    hosts: frozenset[bytes] = next(found, frozenset())
    return CertificateFacts(_name(subject.content), _moment(until), hosts)


def _elements(data: bytes) -> Iterator[Element]:
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ValueError("an element is cut")
        size, start = data[at + 1], at + 2
        if size & 0x80:
            digits = size & 0x7F
            size, start = int.from_bytes(data[start : start + digits]), start + digits
        if start + size > len(data):
            raise ValueError("an element is cut")
        yield Element(data[at], data[start : start + size], data[at : start + size])
        at = start + size


def _name(content: bytes) -> str:
    names = ["+".join(_attribute(each.content) for each in _elements(part.content)) for part in _elements(content)]
    return ",".join(reversed(names))


def _attribute(content: bytes) -> str:
    kind, value = _elements(content)
    number = _oid(kind.content)
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _TEXTS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.content.decode(_TEXTS[value.tag], 'replace'))}"


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text)
    inner = escaped.lstrip(" \r")
    lead = len(escaped) - len(inner)
    trail = len(inner) - len(inner.rstrip(" \r"))
    kept = inner[: len(inner) - trail]
    return "".join(f"\\{each}" for each in escaped[:lead]) + kept + "".join(f"\\{each}" for each in inner[len(kept) :])


def _oid(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _moment(element: Element) -> str:
    """Years of two digits are of 1950 to 2049 (RFC 5280)."""
    text = element.content.decode("ascii").removesuffix("Z")
    if element.tag == _UTC_TIME:
        return ("19" if text[:2] >= "50" else "20") + text
    return text


def _hosts(content: bytes) -> frozenset[bytes]:
    (extensions,) = _elements(content)
    for extension in _elements(extensions.content):
        kind, *rest = _elements(extension.content)
        if _oid(kind.content) == _SUBJECT_ALT_NAME:
            (names,) = _elements(rest[-1].content)
            return frozenset(each.whole for each in _elements(names.content))
    return frozenset()
