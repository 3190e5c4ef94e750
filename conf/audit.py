"""Settings of the audit log: where it is, what stands in it, how large it gets. `broker.BrokerSettings` lists them."""

from pqbroker.conf.declare import Kind, setting

MIB = 1 << 20

FILE = setting(
    "pqbroker.audit.file", Kind.STRING, "",
    "File of the audit log: a JSON line for each refusal, for each login, and for each change that was allowed. "
    "Its directory must exist. Empty: there is none.",
)  # fmt: skip
EVERYTHING = setting(
    "pqbroker.audit.everything", Kind.BOOLEAN, False,
    "Write allowed reads, writes and descriptions to the audit log too, not only changes.",
)  # fmt: skip
AUDIT_FILE_BYTES_MAX = setting(
    "pqbroker.audit.file.bytes.max", Kind.LONG, 64 * MIB,
    "Bytes of one file of the audit log at most; then it is renamed to NAME.1, and a new one begins.", low=4096,
)  # fmt: skip
FILES_MAX = setting(
    "pqbroker.audit.files.max", Kind.INT, 8, "Files of the audit log at most, the one being written included.", low=1,
    high=1000,
)  # fmt: skip
LINES_PER_SECOND = setting(
    "pqbroker.audit.lines.per.second", Kind.INT, 1000,
    "Lines of the audit log a second at most, a quarter of them for one principal at one address. Further ones are "
    "counted, and one line says how many.", low=4, high=100_000,
)  # fmt: skip
