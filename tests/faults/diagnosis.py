"""Reads the doctor's findings on a directory that was damaged on purpose."""

from pathlib import Path

from pqbroker.doctor.checkup import examine
from pqbroker.doctor.findings import Findings, Weight
from pqbroker.storage.engine import EngineError


async def named_damages(path: Path) -> tuple[str, ...]:
    """Each damage by its place, or the refusal; no blob of what is refused whole is said to be nobody's."""
    findings = Findings(lambda size: None)
    try:
        await examine(path, {}, findings, lambda total: None)
    except EngineError as refusal:
        return (str(refusal),)
    nobodys = {found.where.split(":")[0] for found in findings.found if found.what == "no row holds it"}
    refused = {f"[{found.what.split()[3]}" for found in findings.found if "refused whole" in found.what}
    assert not nobodys & refused, f"the doctor calls blobs of {nobodys & refused} both refused and without an owner"
    return tuple(f"{found.where}: {found.what}" for found in findings.found if found.weight is Weight.DAMAGE)
