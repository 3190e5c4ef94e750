"""Settings of the HTTP address: who may ask for what, how much, and how long. `broker.BrokerSettings` lists them."""

from pqbroker.conf.declare import Kind, setting

MIB = 1 << 20

SECURITY_PROTOCOL = setting(
    "pqbroker.http.security.protocol", Kind.STRING, "PLAINTEXT",
    "Protocol of the HTTP address and the console: PLAINTEXT, or SSL for https, which `--http https://HOST:PORT` says "
    "too. Its listener is called HTTP: `listener.name.http.ssl.keystore.location`.", choices=("PLAINTEXT", "SSL"),
)  # fmt: skip
ADVERTISED_HTTP = setting(
    "pqbroker.advertised.http", Kind.STRING, "",
    "[https://]HOST:PORT at which clients reach the HTTP address. Commands that know the Kafka address alone learn it "
    "here. Not set: where it listens, and if that is every address, the host that Kafka clients are sent to.",
)  # fmt: skip
HOSTS = setting(
    "pqbroker.http.hosts", Kind.LIST, (),
    "Host names under which HTTP clients reach this node. Requests for other names (`Host`) and requests of web pages "
    "of other names (`Origin`) are refused. A web site of that name could have sent them (DNS rebinding). IP "
    "addresses, `localhost` and the host of `--http` need no entry.",
)  # fmt: skip
BODY_BYTES_MAX = setting(
    "pqbroker.http.body.bytes.max", Kind.INT, 2 * MIB, "Bytes of the body of an HTTP request at most.", low=1024
)
BODY_OBJECTS_MAX = setting(
    "pqbroker.http.body.objects.max", Kind.INT, 200_000,
    "Objects and arrays in a JSON body of an HTTP request at most: rows, records, and what lies in them. They are "
    "counted before they are parsed, which takes up to thirty times their text. A row or record of one object counts "
    "once.", low=1000,
)  # fmt: skip
BYTES_MAX = setting(
    "pqbroker.http.inflight.bytes.max", Kind.LONG, 64 * MIB,
    "Bytes of HTTP bodies and answers in memory at once. Above, the slowest connection that holds some is closed; "
    "if none does, the request is answered 503.", low=1024,
)  # fmt: skip
CONNECTIONS_MAX = setting(
    "pqbroker.http.connections.max", Kind.INT, 128,
    "HTTP connections with a request at most. For one more, the connection that has waited longest for its client "
    "is closed; while the broker works for all of them, the answer is 503. `/health` and `/metrics` do not count.",
    low=1,
)  # fmt: skip
ARRIVALS_MAX = setting(
    "pqbroker.http.arrivals.max", Kind.INT, 1024,
    "HTTP connections without a request yet at most; for one more, the oldest of them is closed. At most an eighth "
    "of the open files that the system allows.", low=1,
)  # fmt: skip
REQUEST_TIMEOUT_MS = setting(
    "pqbroker.http.request.timeout.ms", Kind.INT, 30_000,
    "Time that an HTTP client has for each of three steps: sending the head of a request, sending its body, reading "
    "the answer. Then the connection closes.", low=1,
)  # fmt: skip
IDLE_TIMEOUT_MS = setting(
    "pqbroker.http.idle.timeout.ms", Kind.INT, 75_000,
    "Time that an HTTP connection stays open between two requests.", low=1,
)  # fmt: skip
ITEMS_MAX = setting(
    "pqbroker.http.items.max", Kind.INT, 1000,
    "Topics, groups, tablets, keys or records in one HTTP answer at most.", low=1, high=100_000,
)  # fmt: skip
ANSWER_BYTES_MAX = setting(
    "pqbroker.http.answer.bytes.max", Kind.INT, MIB,
    "Bytes of records in one HTTP answer at most, but one record in any case.", low=1024,
)  # fmt: skip
LOOK_BYTES_MAX = setting(
    "pqbroker.http.look.bytes.max", Kind.INT, 32 * MIB,
    "Uncompressed bytes of records that one HTTP request searches at most.", low=1024,
)  # fmt: skip
FOLLOWERS_MAX = setting(
    "pqbroker.http.followers.max", Kind.INT, 32,
    "HTTP answers of unknown length (followers of topics, events, SQL) at once, at most half of "
    "`pqbroker.http.connections.max`; one more is answered 503.", low=0,
)  # fmt: skip
UNSENT_BYTES_MAX = setting(
    "pqbroker.http.unsent.bytes.max", Kind.INT, 256 << 10,
    "Bytes of records, about, sent to a follower that it has not read; the next ones wait. A follower that reads "
    "nothing for `pqbroker.http.request.timeout.ms` is closed.", low=1024,
)  # fmt: skip
LOOKS_MAX = setting(
    "pqbroker.http.looks.max", Kind.INT, 2,
    "HTTP requests that decode records, or parse a body of 8 KiB or more, at once; more wait.",
    low=1,
)  # fmt: skip
LOGIN_REQUIRED = setting(
    "pqbroker.http.login.required", Kind.BOOLEAN, None,
    "Serve HTTP to users who log in alone: with a password (Basic), a token, or a certificate. `/health` and `/ready` "
    "stay open. Not set: true if a listener of Kafka clients has a login.",
)  # fmt: skip
CONSOLE_LOGIN_MS = setting(
    "pqbroker.console.login.ms", Kind.LONG, 12 * 3_600_000,
    "Time after which a browser must log in to the console again.", low=1000,
)  # fmt: skip
CONSOLE_LOGINS_MAX = setting(
    "pqbroker.console.logins.max", Kind.INT, 1000, "Browsers logged in to the console at most; for one more the first "
    "to log in must do so again.", low=1,
)  # fmt: skip
CONSOLE_WRITES = setting(
    "pqbroker.console.writes", Kind.BOOLEAN, False,
    "Offer to produce, delete and reset on the console's pages. It concerns the pages alone: the API takes changes "
    "either way.",
)  # fmt: skip
