"""What a client can make grow, and what ends it: the source of the table in `docs/settings.md`.

A limit without a setting is a constant of the code, named with its file.
"""

from dataclasses import dataclass
from enum import Enum


class Share(Enum):
    """Whose a limit is."""

    ADDRESS = "address"
    """A pool of all clients, which addresses share by conf/shares.py."""
    OWNER = "owner"
    """A topic, a group, a table or the node has it, whoever uses that."""
    REQUEST = "request"
    """One request, connection or answer has it to itself."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One thing that grows; `test` exceeds the limit and is PATH::NAME below `tests/`."""

    what: str
    names: tuple[str, ...]
    """Settings, the one that ends it first; or FILE:CONSTANT."""
    beyond: str
    """What happens to what is over it."""
    test: str
    share: Share = Share.OWNER
    beside: str = ""
    """Of what addresses share: the test that fills it from one address while another is served."""


_FILLED = "attacks/test_filled_budgets.py::test_another_address_is_served_beside_one_that_fills"
_CLOSES = "the connection closes"
_PAUSES = "reading pauses"
_FULL = "GROUP_MAX_SIZE_REACHED"

LIMITS = (
    # Transactional producers
    Limit(
        "time that a producer's transaction stays open", ("transaction.max.timeout.ms",), "INVALID_TRANSACTION_TIMEOUT",
        "broker/kafka/handlers/test_transactional_producers.py::test_the_longest_timeout_is_transaction_max_timeout_ms",
        share=Share.REQUEST,
    ),
    Limit(
        "partitions and offsets of a producer's transaction", ("pqbroker.transactional.id.bytes.max",),
        "POLICY_VIOLATION, of offsets INVALID_COMMIT_OFFSET_SIZE",
        "broker/kafka/handlers/test_transactional_producers.py::test_transactions_hold_as_many_bytes_as_their_limit",
    ),
    Limit(
        "transactional ids, with what their transactions hold",
        ("pqbroker.transactional.ids.bytes.max", "transactional.id.expiration.ms"), "POLICY_VIOLATION",
        "broker/kafka/handlers/test_transactional_producers.py::"
        "test_transactional_ids_hold_as_many_bytes_as_their_limit_together",
        share=Share.ADDRESS,
        beside="broker/kafka/handlers/test_transactional_producers.py::"
        "test_ids_of_one_address_leave_room_for_those_of_another",
    ),
    # Logins
    Limit(
        "bytes of a request before its client has logged in", ("sasl.server.max.receive.size",), _CLOSES,
        "broker/kafka/net/test_logins.py::test_a_frame_before_a_login_is_limited", share=Share.REQUEST,
    ),
    Limit(
        "bytes of all requests whose clients have not logged in", ("pqbroker.login.bytes.max",),
        f"{_PAUSES}, on connections before a login",
        "broker/kafka/net/test_logins.py::test_requests_before_logins_have_a_budget_of_their_own", share=Share.ADDRESS,
        beside="broker/kafka/net/test_logins.py::test_another_address_logs_in_beside_one_that_fills_the_budget",
    ),
    Limit(
        "time until a client logs in", ("pqbroker.login.timeout.ms",), _CLOSES,
        "broker/kafka/net/test_logins.py::test_a_client_that_does_not_log_in_is_disconnected", share=Share.REQUEST,
    ),
    Limit(
        "time until a client logs in again", ("connections.max.reauth.ms",), _CLOSES,
        "broker/kafka/net/test_logins.py::test_a_session_ends_unless_the_client_logs_in_again", share=Share.REQUEST,
    ),
    Limit(
        "passwords that wait for their check", ("pqbroker.login.checks.max",), f"{_CLOSES} without an error",
        "broker/services/logins/test_password_checks.py::test_one_more_than_may_wait_is_refused", share=Share.ADDRESS,
        beside="broker/services/logins/test_password_checks.py::test_one_key_leaves_room_for_another",
    ),
    Limit(
        "passwords that were right and are remembered", ("broker/services/logins/logins.py:VERIFIED_MAX",),
        "the first one is computed again",
        "broker/services/logins/test_logins.py::"
        "test_passwords_that_were_right_are_remembered_as_many_as_their_limit",
    ),
    Limit(
        "tokens of an authorization server that were right and are remembered",
        ("broker/services/logins/bearer_tokens.py:KEPT_TOKENS_MAX",), "the first one is computed again",
        "broker/services/logins/test_bearer_tokens.py::test_tokens_that_were_right_are_remembered_as_many_as_their_limit",
    ),
    Limit(
        "users", ("pqbroker.users.max",), "POLICY_VIOLATION",
        "broker/kafka/handlers/test_user_credentials.py::test_users_are_as_many_as_pqbroker_users_max",
    ),
    Limit(
        "browsers logged in to the console", ("pqbroker.console.logins.max", "pqbroker.console.login.ms"),
        "the first to log in must do so again",
        "broker/web/test_logins.py::test_logins_of_the_console_are_as_many_as_their_limit_and_end_in_time",
    ),
    Limit(
        "tokens", ("pqbroker.tokens.max",), "POLICY_VIOLATION",
        "broker/web/test_users.py::test_tokens_are_as_many_as_pqbroker_tokens_max",
    ),
    Limit(
        "bytes of the note of a token", ("broker/services/logins/tokens.py:NOTE_BYTES_MAX",), "INVALID_REQUEST",
        "broker/web/test_users.py::test_a_token_that_is_none_is_refused", share=Share.REQUEST,
    ),
    Limit(
        "bytes of a password over HTTP", ("security/passwords.py:PASSWORD_BYTES_MAX",), "INVALID_REQUEST",
        "broker/web/test_users.py::test_a_user_that_is_none_is_refused", share=Share.REQUEST,
    ),
    Limit(
        "bytes of a user's name", ("pqbroker.user.name.bytes.max",), "UNACCEPTABLE_CREDENTIAL",
        "broker/kafka/handlers/test_user_credentials.py::test_one_users_refusal_is_no_others", share=Share.REQUEST,
    ),
    Limit(
        "bytes of the salt of a credential", ("broker/services/logins/users.py:SALT_BYTES_MAX",),
        "UNACCEPTABLE_CREDENTIAL",
        "broker/kafka/handlers/test_user_credentials.py::test_one_users_refusal_is_no_others", share=Share.REQUEST,
    ),
    # Connections that come
    Limit(
        "TLS handshakes under way", ("pqbroker.handshakes.max", "pqbroker.handshake.timeout.ms"),
        "the oldest one of the address with the most ends",
        "broker/node/test_tls.py::test_handshakes_of_one_address_give_way_to_its_own",
        share=Share.ADDRESS,
        beside="broker/node/test_tls.py::test_handshakes_of_one_address_leave_room_for_another",
    ),
    Limit(
        "time of a TLS handshake", ("pqbroker.handshake.timeout.ms",), _CLOSES,
        "broker/node/test_tls.py::test_handshakes_that_are_never_finished_are_cut", share=Share.REQUEST,
    ),
    Limit(
        "bytes of a TLS handshake", ("broker/ground/tls/tls_connection.py:_HANDSHAKE_BYTES_MAX",), _CLOSES,
        "broker/node/test_tls.py::test_a_handshake_of_too_many_bytes_is_cut", share=Share.REQUEST,
    ),
    # Access rules
    Limit(
        "access rules", ("pqbroker.acls.max",), "POLICY_VIOLATION",
        "broker/kafka/handlers/test_acls.py::test_there_are_so_many_rules_at_most",
    ),
    Limit(
        "bytes of the texts of an access rule", ("pqbroker.acl.bytes.max",), "INVALID_REQUEST",
        "broker/kafka/handlers/test_acls.py::"
        "test_a_rule_that_says_nothing_is_refused_and_others_beside_it_are_made",
    ),
    Limit(
        "decisions by access rules that are kept", ("pqbroker.access.decisions.max",), "all are forgotten",
        "broker/services/access/test_rule_index.py::test_a_decision_is_kept_until_a_rule_changes_and_so_many_at_most",
    ),
    # Queues
    Limit(
        "consumers registered with a queue", ("pqbroker.queue.consumers.max",), "TOO_MANY_CONSUMERS",
        "broker/web/test_queues.py::test_a_queue_has_as_many_consumers_as_its_limit",
    ),
    Limit(
        "bytes of the document that a queue's producer keeps with its session",
        ("pqbroker.queue.session.meta.bytes.max",), "INVALID_SESSION",
        "broker/web/test_queues.py::test_a_sessions_document_is_bounded",
    ),
    # Audit log
    Limit(
        "bytes of the audit log", ("pqbroker.audit.file.bytes.max", "pqbroker.audit.files.max"),
        "the oldest file is deleted",
        "broker/ground/test_audit.py::test_files_are_renamed_when_they_are_full_and_the_oldest_goes",
    ),
    Limit(
        "lines of the audit log a second", ("pqbroker.audit.lines.per.second",), "they are counted, in one line",
        "broker/ground/test_audit.py::test_lines_that_come_too_fast_are_counted_and_others_have_their_share",
    ),
    Limit(
        "lines of the audit log that wait for the disk", ("broker/ground/audit.py:WAITING_LINES_MAX",),
        "they are lost and counted",
        "broker/ground/test_audit.py::test_lines_for_which_the_disk_has_no_room_are_counted",
    ),
    # Quotas of clients
    Limit(
        "users, client ids and addresses with quotas", ("pqbroker.quotas.max",), "POLICY_VIOLATION",
        "broker/kafka/handlers/test_client_quotas.py::test_so_many_entities_have_quotas_at_most",
    ),
    Limit(
        "bytes of the names of an entity with quotas", ("pqbroker.quota.name.bytes.max",), "INVALID_REQUEST",
        "broker/kafka/handlers/test_client_quotas.py::test_a_quota_that_is_none_is_refused",
    ),
    Limit(
        "clients whose use of quotas is kept", ("pqbroker.quota.clients.max",), "that of another is forgotten",
        "broker/services/quotas/test_client_use.py::test_the_use_of_so_many_clients_is_kept_at_most",
    ),
    Limit(
        "features in a request that sets levels", ("broker/services/features/levels.py:UPDATES_MAX",),
        "INVALID_REQUEST",
        "broker/web/test_features.py::test_a_request_names_no_more_features_than_its_limit", share=Share.REQUEST,
    ),
    # Requests
    Limit(
        "bytes of a request", ("socket.request.max.bytes",), _CLOSES,
        "broker/kafka/net/test_connection.py::test_a_frame_too_large_negative_or_too_short_closes_the_connection",
        share=Share.REQUEST,
    ),
    Limit(
        "requests of a connection that are served", ("pqbroker.connection.requests.max",), _PAUSES,
        "broker/kafka/net/test_connection.py::test_reading_pauses_above_the_limit_of_requests_and_resumes_below",
        share=Share.REQUEST,
    ),
    Limit(
        "bytes of a connection's requests that are served", ("pqbroker.connection.bytes.max",), _PAUSES,
        "broker/kafka/net/test_connection.py::test_reading_pauses_above_the_limit_of_bytes_and_resumes_below",
        share=Share.REQUEST,
    ),
    Limit(
        "bytes of all requests", ("pqbroker.inflight.bytes.max",), f"{_PAUSES}, on every connection",
        "broker/kafka/net/test_connection.py::test_bytes_of_one_connection_pause_another_until_the_node_has_room",
        share=Share.ADDRESS, beside=_FILLED,
    ),
    Limit(
        "bytes of requests over 64 KiB that have not arrived whole",
        ("pqbroker.unfinished.bytes.max", "pqbroker.unfinished.stall.ms"),
        "they wait; those that make no progress, then the last to begin, are closed",
        "attacks/test_unfinished_requests.py::test_sixty_requests_of_which_the_end_is_missing",
        share=Share.ADDRESS, beside=_FILLED,
    ),
    Limit(
        "bytes of smaller requests that have not arrived whole", ("pqbroker.reserved.bytes",),
        "those that make no progress, then the last to begin, are closed",
        "broker/kafka/net/test_receiving.py::test_small_requests_have_a_budget_of_their_own",
        share=Share.ADDRESS, beside=_FILLED,
    ),
    Limit(
        "elements of a request", ("pqbroker.request.elements.max",), _CLOSES,
        "grammar/test_attacks.py::test_more_elements_than_the_limit_close_the_connection",
        share=Share.REQUEST,
    ),
    Limit(
        "bytes of an answer but for records", ("pqbroker.answer.bytes.max",), _CLOSES,
        "grammar/test_attacks.py::test_an_answer_over_the_limit_closes_the_connection",
        share=Share.REQUEST,
    ),
    Limit(
        "bytes of long requests and of answers, being served or not read by clients",
        ("pqbroker.unsent.bytes.max", "pqbroker.answer.stall.ms"),
        "answers over 64 KiB wait; a client that reads nothing is disconnected",
        "attacks/test_shares.py::test_clients_of_one_address_that_read_nothing_leave_room_for_another",
        share=Share.ADDRESS,
        beside="attacks/test_shares.py::test_clients_of_one_address_that_read_nothing_leave_room_for_another",
    ),
    Limit(
        "time of one turn of the event loop",
        ("broker/ground/turns.py:SLICE_S",),
        "long requests continue in a later turn",
        "broker/ground/test_turns.py::test_long_work_is_done_in_slices",
        share=Share.ADDRESS, beside=_FILLED,
    ),
    Limit(
        "parked Fetch requests over 4 KiB", ("pqbroker.inflight.bytes.max",),
        "answered at once while more than half is taken",
        "broker/kafka/net/test_connection.py::test_a_long_fetch_request_does_not_park_while_memory_is_short",
        share=Share.ADDRESS, beside=_FILLED,
    ),
    Limit(
        "time that a request of a group may wait", ("group.max.session.timeout.ms",), "INVALID_SESSION_TIMEOUT",
        "broker/services/coordination/classic/test_joining.py::test_a_session_timeout_outside_the_limits_is_refused",
        share=Share.REQUEST,
    ),
    Limit(
        "times that a group of the consumer protocol is set to",
        (
            "group.consumer.max.session.timeout.ms", "group.consumer.max.heartbeat.interval.ms",
            "group.consumer.max.assignment.interval.ms",
        ),
        "INVALID_CONFIG", "conf/test_group_times.py::test_a_time_is_set_within_the_bounds_of_the_node",
        share=Share.REQUEST,
    ),
    Limit(
        "length of a regular expression by which a member subscribes",
        (
            "pqbroker.group.expression.characters.max",
            "protocol/expression_engine.py:EXPRESSION_BYTES_MAX",
        ),
        "INVALID_REGULAR_EXPRESSION",
        "broker/services/coordination/test_topic_expressions.py::test_an_expression_that_is_too_long_or_large_is_refused",
        share=Share.REQUEST,
    ),
    Limit(
        "compiled regular expressions that are kept",
        ("broker/services/coordination/topic_expressions.py:KEPT_EXPRESSIONS_MAX",), "the oldest is compiled again",
        "broker/services/coordination/test_topic_expressions.py::test_the_last_few_compiled_expressions_are_kept",
    ),
    Limit(
        "lines of log", ("broker/ground/seldom_log.py:SECONDS_BETWEEN",), "one a second of each text, with a count",
        "broker/ground/test_seldom_log.py::test_a_flood_of_a_line_is_one_line_a_second_with_a_count",
    ),
    # Connections
    Limit(
        "connections", ("max.connections",), "one of the address with the most closes, idle ones first; else refused",
        "attacks/test_shares.py::test_idle_connections_of_one_address_leave_room_for_another",
        share=Share.ADDRESS,
        beside="attacks/test_shares.py::test_idle_connections_of_one_address_leave_room_for_another",
    ),
    Limit(
        "connections of an address", ("max.connections.per.ip", "max.connections.per.ip.overrides"), "closed at once",
        "broker/kafka/net/test_connection_limits.py::"
        "test_max_connections_per_ip_is_a_limit_of_each_address_and_has_overrides",
        share=Share.REQUEST,
    ),
    Limit(
        "connections without requests", ("connections.max.idle.ms",), "closed",
        "broker/node/test_server.py::test_an_idle_connection_is_closed_with_a_clean_end",
        share=Share.REQUEST,
    ),
    Limit(
        "fetch sessions", ("max.incremental.fetch.session.cache.slots",), "no session: each Fetch names all partitions",
        "broker/kafka/apis/test_fetch_sessions.py::test_only_a_session_unused_for_long_makes_room",
        share=Share.ADDRESS, beside=_FILLED,
    ),
    Limit(
        "partitions of fetch sessions", ("pqbroker.fetch.session.partitions.max",),
        "no session; FETCH_SESSION_ID_NOT_FOUND in one that outgrows it",
        "broker/kafka/apis/test_fetch_sessions.py::test_partitions_of_all_sessions_are_limited",
        share=Share.ADDRESS,
        beside="broker/kafka/apis/test_fetch_sessions.py::test_one_address_leaves_sessions_and_their_partitions_to_others",
    ),
    # Answers
    Limit(
        "bytes of a Fetch answer", ("fetch.max.bytes",), "the rest comes with the next Fetch",
        "broker/kafka/net/test_limits.py::test_a_fetch_answer",
        share=Share.REQUEST,
    ),
    Limit(
        "partitions of a DescribeTopicPartitions answer", ("max.request.partition.size.limit",),
        "the answer has a cursor",
        "broker/kafka/handlers/test_describe_topic_partitions.py::test_the_nodes_limit_holds_too",
        share=Share.REQUEST,
    ),
    Limit(
        "segment files held open by answers", ("pqbroker.sent.files.max",), "answers are read into memory first",
        "broker/kafka/net/test_file_answers.py::test_beyond_the_limit_of_files_answers_come_from_memory",
    ),
    Limit(
        "reads of a partition from the disk", ("pqbroker.partition.reads.max",), "they wait",
        "pq/test_quota.py::test_reads_from_the_store_wait_for_their_turn",
    ),
    # Topics
    Limit(
        "cells of a node", ("pqbroker.cells.max",), "POLICY_VIOLATION",
        "broker/web/test_cells.py::test_a_node_has_so_many_cells_and_a_bundle_with_cells_stays",
    ),
    Limit(
        "partitions of all topics", ("pqbroker.partitions.max",), "POLICY_VIOLATION; what exists is served",
        "broker/services/topics/test_partitions_max.py::test_a_topic_that_would_be_too_many_partitions_is_refused",
    ),
    Limit(
        "partitions of a topic", ("pqbroker.topic.partitions.max",), "INVALID_PARTITIONS",
        "broker/web/test_topics.py::test_a_topic_grows_no_further_than_the_node_allows",
    ),
    Limit(
        "columns of a table", ("pqbroker.table.columns.max",), "INVALID_SCHEMA",
        "broker/web/test_tables.py::test_a_table_has_a_limit_of_columns",
    ),
    Limit(
        "bytes of staged rows in a tablet", ("pqbroker.staged.bytes.max",), "STAGE_FULL",
        "broker/web/test_staged_rows.py::test_a_tablet_holds_so_many_bytes_of_staged_rows",
    ),
    Limit(
        "sorted tables that topics feed", ("broker/services/materializing/making.py:MATERIALIZATIONS_MAX",),
        "TOO_MANY_MATERIALIZATIONS",
        "broker/web/test_materializations.py::test_a_node_feeds_so_many_tables",
    ),
    Limit(
        "materializations whose records become rows at once", ("pqbroker.table.feeds.max",), "others wait",
        "broker/web/test_materializations.py::test_feeds_wait_for_their_turn",
    ),
    Limit(
        "records of topics that become rows in a second", ("pqbroker.table.feed.records.per.second",), "they wait",
        "broker/web/test_materializations.py::test_records_become_rows_no_faster_than_the_rate",
    ),
    Limit(
        "dead letters of a table that are kept", ("tables/serving/feed_progress.py:LETTERS_MAX",),
        "the first are forgotten",
        "broker/web/test_materializations.py::test_the_last_hundred_dead_letters_are_kept_and_all_counted",
    ),
    Limit(
        "pieces of a staged batch, and of a tablet", ("broker/services/topics/staged_places.py:PIECES_MAX",),
        "INVALID_REQUEST; STAGE_FULL", "broker/web/test_staged_rows.py::test_a_tablet_holds_so_many_pieces",
    ),
    Limit(
        "sets of attributes that act in a table", ("pqbroker.table.attribute.sets.max",), "TOO_MANY_ATTRIBUTE_SETS",
        "broker/web/test_tablet_attributes.py::test_a_table_has_a_limit_of_sets_of_attributes",
    ),
    Limit(
        "characters of an Avro schema", ("tables/avro_schema.py:AVRO_CHARACTERS_MAX",), "INVALID_SCHEMA",
        "tables/test_formats.py::test_a_schema_has_a_limit_of_characters",
        share=Share.REQUEST,
    ),
    Limit(
        "types within one another of an Avro schema", ("tables/avro_schema.py:AVRO_DEPTH_MAX",), "INVALID_SCHEMA",
        "tables/test_formats.py::test_a_schema_is_not_deep_however_it_names_its_types",
        share=Share.REQUEST,
    ),
    Limit(
        "types of an Avro schema", ("tables/avro_schema.py:AVRO_TYPES_MAX",), "INVALID_SCHEMA",
        "tables/test_formats.py::test_a_small_schema_does_not_make_a_large_datum",
        share=Share.REQUEST,
    ),
    Limit(
        "transactions over tables that are open", ("pqbroker.transactions.max",), "TOO_MANY_TRANSACTIONS, 503",
        "broker/web/test_transactions.py::test_more_transactions_than_a_client_may_have_are_refused",
        share=Share.ADDRESS,
        beside="broker/web/test_transactions.py::test_more_transactions_than_a_client_may_have_are_refused",
    ),
    Limit(
        "time that a transaction over tables stays open",
        ("pqbroker.transaction.timeout.ms.max", "pqbroker.transaction.age.ms.max"),
        "INVALID_TIMEOUT, 400; it is aborted",
        "broker/web/test_transactions.py::test_pings_do_not_keep_a_transaction_open_beyond_its_age",
    ),
    Limit(
        "rows of a transaction over tables", ("pqbroker.transaction.rows.max",), "TOO_MANY_ROWS_IN_TRANSACTION, 413",
        "broker/web/test_transaction_writes.py::test_a_transaction_writes_so_many_rows", share=Share.REQUEST,
    ),
    Limit(
        "tablets that a transaction or an insertion writes to", ("pqbroker.transaction.participants.max",),
        "TOO_MANY_PARTICIPANTS, 413",
        "broker/web/test_transaction_writes.py::test_a_transaction_writes_to_so_many_tablets", share=Share.REQUEST,
    ),
    Limit(
        "time that a commit keeps other writes of its rows waiting", ("pqbroker.transaction.prepare.ms.max",),
        "COMMIT_TOO_SLOW, 503; it is aborted",
        "broker/web/test_transaction_writes.py::test_a_commit_that_is_too_slow_before_its_decision_is_aborted",
        share=Share.REQUEST,
    ),
    Limit(
        "time for which outcomes of transactions are kept", ("pqbroker.transaction.kept.ms",), "they are forgotten",
        "broker/web/test_transactions.py::test_an_ended_transaction_is_kept_for_its_time_and_forgotten",
    ),
    Limit(
        "ended transactions that are shown", ("broker/services/commits/open_transactions.py:KEPT_MAX",),
        "the oldest are forgotten; outcomes of commits stay for their time",
        "broker/web/test_transactions.py::test_so_many_ended_transactions_are_kept",
    ),
    Limit(
        "transactions in doubt that were resolved and wait for their homes",
        ("broker/services/commits/resolutions.py:RESOLUTIONS_MAX",), "TOO_MANY_RESOLUTIONS, 409",
        "broker/services/commits/test_resolving.py::test_no_more_than_a_number_of_resolutions_wait_for_their_homes",
    ),
    Limit(
        "memory of rows of sorted tables that are in no chunk yet", ("pqbroker.table.stores.bytes.max",),
        "OUT_OF_TABLET_MEMORY", "broker/web/test_sorted_limits.py::test_stores_that_fill_the_memory_refuse_writes",
    ),
    Limit(
        "memory of blocks of sorted tables", ("pqbroker.table.blocks.bytes.max",),
        "the least recently used are dropped",
        "tables/serving/test_kept_blocks.py::test_the_least_recently_used_block_goes_first",
    ),
    Limit(
        "flushes, compactions and partitionings at once",
        ("pqbroker.table.flushes.max", "pqbroker.table.compactions.max", "pqbroker.table.partitionings.max"),
        "they wait", "broker/web/test_sorted_limits.py::test_as_many_tasks_run_as_are_allowed",
    ),
    Limit(
        "tasks of sorted tables that are remembered", ("tables/serving/tasks.py:ENDED_KEPT",),
        "the oldest are forgotten",
        "tables/serving/test_tasks.py::test_a_task_runs_until_it_has_ended_and_the_last_ones_stay",
    ),
    Limit(
        "lines in the log about tables that take no writes, at one look",
        ("tables/serving/write_blocks.py:BLOCK_LINES_MAX",), "the last line counts the rest",
        "tables/serving/test_write_blocks.py::test_one_look_logs_so_many_lines_and_counts_the_rest",
    ),
    Limit(
        "memory of a process that merges", ("pqbroker.table.merge.memory.bytes.max",), "the task is tried again later",
        "broker/web/test_sorted_limits.py::test_a_merge_that_takes_too_much_memory_ends_and_rows_stay",
    ),
    Limit(
        "keys of a compacted partition that one cleaning looks at",
        ("log.cleaner.dedupe.buffer.size", "log.cleaner.io.buffer.load.factor"), "the next pass looks at them",
        "broker/web/test_cleaning.py::test_more_keys_than_there_is_room_for_are_cleaned_in_several_passes",
    ),
    Limit(
        "unpacked bytes of a batch that is cleaned", ("pqbroker.cleaner.batch.bytes.max",),
        "the batch stays as it is, and is named",
        "pq/log/test_cleaning.py::test_a_batch_that_unpacks_over_the_limit_stays_as_it_is",
    ),
    Limit(
        "bytes that cleanings read and write in a second", ("log.cleaner.io.max.bytes.per.second",),
        "they wait", "broker/web/test_cleaning.py::test_cleaning_keeps_to_its_rate",
    ),
    Limit(
        "bytes of a chunk", ("pqbroker.table.chunk.bytes.max",), "the next key begins another one",
        "tables/work/sorted/test_merging.py::test_a_chunk_of_its_greatest_size_ends_before_the_next_key",
    ),
    Limit(
        "bytes that rows of a request for a sorted table become", ("tables/sorted/rows.py:ROWS_BYTES_MAX",), "413",
        "broker/web/test_sorted_limits.py::test_a_small_body_does_not_become_many_bytes", share=Share.REQUEST,
    ),
    Limit(
        "rows and keys of a request for a sorted table", ("tables/sorted/rows.py:ROWS_MAX",), "TOO_MANY_ROWS",
        "tables/sorted/test_rows.py::test_more_rows_than_a_request_may_have_are_refused", share=Share.REQUEST,
    ),
    Limit(
        "bytes of the rows of a lookup", ("pqbroker.http.answer.bytes.max",), "LOOKUP_TOO_LARGE, 413, but for one row",
        "broker/web/test_sorted_limits.py::test_a_lookup_answers_with_a_limit_of_bytes_but_one_row_in_any_case",
        share=Share.REQUEST,
    ),
    Limit(
        "keys and bytes that the lookup of a prefix finds",
        ("tables/serving/lookups.py:FOUND_KEYS_MAX", "tables/serving/lookups.py:READ_BYTES_MAX"), "TOO_MANY_ROWS",
        "broker/web/test_prefix_lookups.py::test_a_prefix_of_too_many_rows_is_refused_by_its_limit",
        Share.REQUEST,
    ),
    Limit(
        "bytes of a value of a sorted table", ("tables/sorted/rows.py:VALUE_BYTES_MAX",), "INVALID_ROW",
        "tables/sorted/test_rows.py::test_a_value_that_is_too_large_is_refused", share=Share.REQUEST,
    ),
    Limit(
        "bytes and columns of a key",
        ("tables/sorted/keys.py:ENCODED_KEY_BYTES_MAX", "tables/sorted/keys.py:KEY_COLUMNS_MAX"), "INVALID_ROW, 400",
        "tables/sorted/test_rows.py::test_keys_have_a_limit_of_bytes_and_columns", share=Share.REQUEST,
    ),
    Limit(
        "tablets of a sorted table",
        ("broker/services/sorted_tables/making.py:SORTED_TABLETS_MAX",), "INVALID_PIVOTS",
        "broker/web/test_sorted_limits.py::test_a_table_has_a_limit_of_tablets",
    ),
    Limit(
        "characters of a column's name", ("tables/column_documents.py:COLUMN_NAME_CHARACTERS_MAX",), "INVALID_SCHEMA",
        "tables/test_schema.py::test_what_is_no_schema_is_refused_by_name",
        share=Share.REQUEST,
    ),
    Limit(
        "configs of a topic", ("pqbroker.config.bytes.max",), "INVALID_CONFIG",
        "broker/kafka/net/test_limits.py::test_configs_of_a_topic",
    ),
    Limit(
        "configs of a node", ("pqbroker.config.bytes.max",), "INVALID_CONFIG",
        "broker/kafka/net/test_limits.py::test_configs_of_a_node",
    ),
    Limit(
        "groups, and client metrics subscriptions, with configs of their own", ("pqbroker.config.resources.max",),
        "POLICY_VIOLATION",
        "broker/kafka/handlers/test_named_configs.py::test_more_resources_than_the_limit_are_refused_and_set_ones_still_change",
    ),
    Limit(
        "name of a topic", ("broker/services/topics/topic_names.py:NAME_CHARACTERS_MAX",), "INVALID_TOPIC_EXCEPTION",
        "broker/services/topics/test_topic_names.py::test_other_names_are_refused",
        share=Share.REQUEST,
    ),
    # Records and producers
    Limit(
        "bytes of a record batch", ("max.message.bytes", "message.max.bytes"), "MESSAGE_TOO_LARGE",
        "broker/kafka/handlers/test_produce.py::test_bad_record_data_is_refused",
        share=Share.REQUEST,
    ),
    Limit(
        "bytes in flight at a partition", ("pqbroker.write.queue.bytes",), "REQUEST_TIMED_OUT",
        "pq/test_quota.py::test_above_the_border_writers_pause_and_above_the_limit_they_come_back",
    ),
    Limit(
        "bytes of one write of a partition", ("pqbroker.write.cycle.bytes",), "the rest is of the next write",
        "pq/test_counters.py::test_what_one_cycle_leaves_over_waits_on",
    ),
    Limit(
        "records of a partition", ("pq.max.count.in.partition",), "the error of `pq.partition.full.error`",
        "pq/log/test_partition.py::test_a_partition_full_of_records_refuses_until_some_are_deleted",
    ),
    Limit(
        "records that a batch claims", ("protocol/produced_batches.py:RECORD_BYTES_MIN",), "INVALID_RECORD",
        "protocol/test_produced_batches.py::test_a_count_that_the_bytes_cannot_hold_is_refused",
        share=Share.REQUEST,
    ),
    Limit(
        "record batches looked into at once", ("pqbroker.decode.threads",), "they wait",
        "attacks/test_batches.py::test_searches_by_time_over_bombs",
    ),
    Limit(
        "bytes on the disk", ("pqbroker.disk.yellow.bytes",), "KAFKA_STORAGE_ERROR; reads and deletes are served",
        "faults/test_small_disk.py::test_a_disk_filled_to_its_last_byte_is_freed_and_lost_nothing",
    ),
    Limit(
        "commits of a tablet", ("pqbroker.tablet.commits.max",), "the tablet restarts while it is served",
        "pq/serving/test_renewal.py::test_a_tablet_is_worn_after_its_commits_and_begins_to_count_again",
    ),
    Limit(
        "bytes of a partition", ("pq.max.size.in.partition",), "the error of `pq.partition.full.error`",
        "pq/log/test_partition.py::test_a_partition_full_of_bytes_refuses",
    ),
    Limit(
        "bytes a second to a partition", ("pq.write.speed.bytes",), "writers are paused",
        "pq/test_quota.py::test_a_topic_without_a_quota_pauses_nobody_and_gets_one_by_its_config",
    ),
    Limit(
        "sessions of inserted rows of a partition", ("pq.sessions.max",), "the oldest are forgotten",
        "pq/serving/test_joint_write.py::test_over_the_limit_the_oldest_sessions_of_a_partition_are_forgotten",
    ),
    Limit(
        "tablets of one request's rows", ("tables/rows.py:TABLETS_MAX",), "SEVERAL_TABLETS",
        "broker/web/test_inserting.py::test_rows_for_a_tablet_that_takes_none_write_nothing",
        share=Share.REQUEST,
    ),
    Limit(
        "producers with open Kafka transactions in a partition", ("pq.producer.ids.max",), "POLICY_VIOLATION",
        "pq/serving/test_producer_transactions.py::test_more_open_transactions_than_producers_are_kept_are_refused",
    ),
    Limit(
        "markers of one write cycle", ("pq/serving/end_markers.py:MARKERS_AT_ONCE",), "they wait for the next",
        "pq/serving/test_producer_transactions.py::test_markers_that_come_together_share_a_cycle",
    ),
    Limit(
        "idempotent producers of a partition", ("pq.producer.ids.max",), "the oldest are forgotten",
        "pq/log/test_producers.py::test_over_the_count_the_oldest_by_offset_go_first_and_are_counted",
    ),
    Limit(
        "newest records in memory", ("pqbroker.head.bytes",), "those of the coldest partitions are read from disk",
        "pq/serving/test_tablet.py::test_a_head_dropped_for_room_is_loaded_for_a_read_and_for_a_write",
    ),
    # Groups
    Limit(
        "id of a group", ("pqbroker.group.id.bytes.max",), "INVALID_GROUP_ID",
        "broker/kafka/net/test_limits.py::test_the_id_of_a_group",
        share=Share.REQUEST,
    ),
    Limit(
        "groups that outlived their last offset", ("pq/serving/offsets.py:EMPTIED_GROUPS_MAX",),
        "the one that was emptied first is forgotten",
        "pq/serving/test_offsets.py::test_as_many_groups_outlive_their_offsets_as_there_is_room_for",
    ),
    Limit(
        "members of a group, ids given out among them", ("group.max.size",), _FULL,
        "broker/kafka/net/test_limits.py::test_members_of_a_group",
    ),
    Limit(
        "members of a group of the consumer protocol", ("group.consumer.max.size",), _FULL,
        "broker/services/coordination/modern/test_handlers.py::test_a_group_takes_as_many_members_as_are_allowed",
    ),
    Limit(
        "bytes of a member: subscription, ids", ("pqbroker.member.metadata.bytes.max",), _FULL,
        "broker/services/coordination/classic/test_limits.py::test_one_member_has_a_limit",
    ),
    Limit(
        "bytes of a group's members", ("pqbroker.group.metadata.bytes.max",), _FULL,
        "broker/services/coordination/classic/test_limits.py::test_all_members_of_a_group_have_a_limit",
    ),
    Limit(
        "bytes of a group's assignments", ("pqbroker.group.assignment.bytes.max",), "UNKNOWN_SERVER_ERROR",
        "broker/services/coordination/classic/test_limits.py::test_an_assignment_that_is_too_large_is_refused_to_all_and_the_group_forms_again",
    ),
    Limit(
        "groups, and bytes of all of them", ("pqbroker.groups.bytes.max",), _FULL,
        "broker/kafka/net/test_limits.py::test_groups_of_a_node",
        share=Share.ADDRESS, beside=_FILLED,
    ),
    Limit(
        "groups with an offset in a partition", ("pqbroker.partition.consumers.max",),
        "POLICY_VIOLATION, for an address that created many when all but an eighth is taken",
        "attacks/test_shares.py::test_groups_invented_by_one_address_leave_room_for_another",
        share=Share.ADDRESS,
        beside="attacks/test_shares.py::test_groups_invented_by_one_address_leave_room_for_another",
    ),
    Limit(
        "text committed with an offset", ("offset.metadata.max.bytes",), "OFFSET_METADATA_TOO_LARGE",
        "broker/kafka/net/test_limits.py::test_the_metadata_of_a_commit_and_the_consumers_of_a_partition",
        share=Share.REQUEST,
    ),
    # HTTP
    Limit(
        "HTTP connections with a request", ("pqbroker.http.connections.max",),
        "the one that has waited longest for its client closes; 503 while all are served",
        "broker/web/test_door.py::test_while_all_are_in_work_one_more_is_refused_and_health_and_metrics_answer",
        share=Share.ADDRESS, beside=_FILLED,
    ),
    Limit(
        "HTTP connections without a request", ("pqbroker.http.arrivals.max",), "the oldest closes",
        "broker/web/test_door.py::test_of_connections_without_a_request_the_oldest_goes_first",
        share=Share.ADDRESS, beside=_FILLED,
    ),
    Limit(
        "time of an HTTP client", ("pqbroker.http.request.timeout.ms", "pqbroker.http.idle.timeout.ms"),
        "the connection closes", "broker/web/test_door.py::test_a_client_that_takes_too_long_is_closed",
        share=Share.REQUEST,
    ),
    Limit(
        "bytes of all HTTP bodies and answers", ("pqbroker.http.inflight.bytes.max",),
        "the slowest connection closes, else 503",
        "broker/web/test_door.py::test_an_answer_above_all_that_may_be_held_is_refused",
        share=Share.ADDRESS, beside=_FILLED,
    ),
    Limit(
        "bytes of an HTTP body", ("pqbroker.http.body.bytes.max",), "413",
        "broker/web/test_topics.py::test_a_body_too_large_is_refused",
        share=Share.REQUEST,
    ),
    Limit(
        "objects and arrays of a JSON body, how deep they are nested",
        ("pqbroker.http.body.objects.max", "broker/web/routing/schemas.py:NESTING_MAX"), "413 before it is parsed; 400",
        "attacks/test_long_bodies.py::test_more_objects_than_the_limit_are_refused_at_once",
        share=Share.REQUEST,
    ),
    Limit(
        "items of an HTTP answer", ("pqbroker.http.items.max",), "INVALID_REQUEST, 400",
        "broker/web/test_topics.py::test_what_cannot_be_is_refused",
        share=Share.REQUEST,
    ),
    Limit(
        "bytes of an HTTP answer", ("pqbroker.http.answer.bytes.max",), "the answer says where to continue",
        "broker/web/test_records.py::test_an_answer_ends_before_it_is_too_large_and_says_where_to_go_on",
        share=Share.REQUEST,
    ),
    Limit(
        "bytes that an HTTP request searches", ("pqbroker.http.look.bytes.max",), "the answer says where to continue",
        "broker/web/test_records.py::test_a_search_ends_after_so_many_bytes_and_says_where_to_go_on",
        share=Share.REQUEST,
    ),
    Limit(
        "HTTP requests that decode records", ("pqbroker.http.looks.max",), "they wait",
        "broker/web/test_limits.py::test_requests_that_decode_records_take_turns",
        share=Share.ADDRESS, beside=_FILLED,
    ),
    Limit(
        "lines of log that HTTP shows",
        ("broker/ground/log_tail.py:LINES_MAX", "broker/ground/log_tail.py:LINE_CHARACTERS_MAX"),
        "the oldest is dropped; the rest of a long one is left out",
        "broker/web/test_observations.py::test_the_log_in_memory_is_bounded",
    ),
    Limit(
        "HTTP answers without an end", ("pqbroker.http.followers.max",), "503",
        "broker/web/test_following.py::test_one_follower_too_many_is_refused",
        share=Share.ADDRESS, beside=_FILLED,
    ),
    Limit(
        "searches in topics", ("pqbroker.search.searches.max",), "they wait; 503 after the time that they may take",
        "broker/web/test_search.py::test_one_search_too_many_waits_and_is_refused_after_its_time",
        share=Share.ADDRESS,
        beside="broker/web/test_search.py::test_one_search_too_many_waits_and_is_refused_after_its_time",
    ),
    Limit(
        "searches in topics that wait", ("pqbroker.search.searches.waiting.max",), "503 at once",
        "broker/web/test_search.py::test_more_searches_than_may_wait_are_refused_at_once",
        share=Share.ADDRESS, beside="broker/ground/test_holder_queue.py::test_places_to_wait_are_shared_by_address",
    ),
    Limit(
        "time of a search", ("pqbroker.search.time.ms.max",), "it ends and says where another one continues",
        "broker/web/test_search.py::test_a_search_ends_when_its_time_is_over", share=Share.REQUEST,
    ),
    Limit(
        "stored and decompressed bytes, matches and bytes of the answer of a search",
        (
            "pqbroker.search.bytes.max", "pqbroker.search.decompressed.bytes.max", "pqbroker.search.matches.max",
            "pqbroker.search.answer.bytes.max",
        ),
        "it ends and says where another one continues",
        "broker/web/test_search.py::test_a_search_ends_at_each_of_its_limits", share=Share.REQUEST,
    ),
    Limit(
        "decompressed bytes of a batch that is searched", ("pqbroker.search.batch.bytes.max",),
        "it is passed over and named",
        "broker/web/test_search.py::test_batches_that_hold_no_records_or_too_much_are_named_and_passed_over",
        share=Share.REQUEST,
    ),
    Limit(
        "bytes of a decoded key or value in a search", ("pqbroker.search.decoded.bytes.max",),
        "its bytes are searched, and it is counted",
        "tables/work/test_searching.py::test_a_value_that_is_large_as_json_is_searched_as_its_bytes",
        share=Share.REQUEST,
    ),
    Limit(
        "memory of a search", ("pqbroker.search.memory.bytes.max",), "413, the worker ends",
        "broker/web/test_search.py::test_a_search_over_its_memory_ends_and_a_new_worker_serves", share=Share.REQUEST,
    ),
    Limit(
        "terms of a search and their length",
        ("tables/search/terms.py:TERMS_MAX", "tables/search/terms.py:TERM_CHARACTERS_MAX"), "400, INVALID_SEARCH",
        "tables/search/test_terms.py::test_terms_that_are_none_are_refused_by_name", share=Share.REQUEST,
    ),
    Limit(
        "memory of a regular expression that searches", ("protocol/expression_engine.py:SEARCH_EXPRESSION_BYTES_MAX",),
        "400, INVALID_SEARCH", "tables/search/test_terms.py::test_terms_that_are_none_are_refused_by_name",
        share=Share.REQUEST,
    ),
    Limit(
        "batches that a search cannot read, named in its answer", ("tables/work/searching.py:UNREAD_SHOWN_MAX",),
        "they are counted", "tables/work/test_searching.py::test_batches_that_are_damaged_are_named_up_to_a_number",
        share=Share.REQUEST,
    ),
    Limit(
        "SQL queries", ("pqbroker.sql.queries.max",), "they wait; 503 after the time that they may take",
        "broker/web/test_sql_limits.py::test_one_query_too_many_waits_and_is_refused_after_its_time",
        share=Share.ADDRESS, beside=_FILLED,
    ),
    Limit(
        "SQL queries that wait", ("pqbroker.sql.queries.waiting.max",), "503 at once",
        "broker/web/test_sql_limits.py::test_more_queries_than_may_wait_are_refused_at_once",
        share=Share.ADDRESS, beside="broker/ground/test_holder_queue.py::test_places_to_wait_are_shared_by_address",
    ),
    Limit(
        "levels of an SQL query", ("pqbroker.sql.depth.max",), "400, INVALID_QUERY",
        "broker/web/test_sql.py::test_a_query_that_is_nested_too_deeply_is_refused_and_costs_no_worker",
        share=Share.REQUEST,
    ),
    Limit(
        "parameters of an SQL query", ("pqbroker.sql.params.max", "pqbroker.sql.params.bytes.max"),
        "400, INVALID_QUERY", "broker/web/test_sql_parameters.py::test_parameters_beyond_their_limits_are_refused",
        share=Share.REQUEST,
    ),
    Limit(
        "time of an SQL query", ("pqbroker.sql.time.ms.max",), "504, the query is stopped",
        "broker/web/test_sql_limits.py::test_a_query_over_its_time_is_killed_and_a_new_worker_serves",
        share=Share.REQUEST,
    ),
    Limit(
        "memory of an SQL query", ("pqbroker.sql.memory.bytes.max",), "413, the worker ends",
        "broker/web/test_sql_limits.py::test_a_query_over_its_memory_ends_and_a_new_worker_serves",
        share=Share.REQUEST,
    ),
    Limit(
        "columns kept for later SQL queries", ("pqbroker.sql.columns.bytes.max",),
        "the oldest are dropped, rows are read again",
        "tables/work/test_kept_columns.py::test_a_scan_of_more_than_there_is_room_for_keeps_its_part",
    ),
    Limit(
        "bytes of a local file that an SQL query reads", ("pqbroker.sql.files.bytes.max",), "413, FILE_TOO_LARGE",
        "broker/web/test_sql_files.py::test_damaged_and_hostile_files_are_refused_by_name_and_cost_no_worker",
        share=Share.REQUEST,
    ),
    Limit(
        "columns, footer and rows of a local file",
        (
            "pqbroker.table.columns.max", "tables/work/files/formats.py:FOOTER_BYTES_MAX",
            "tables/work/files/formats.py:LINE_BYTES_MAX", "tables/work/files/formats.py:HEAD_BYTES_MAX",
        ),
        "400, INVALID_FILE",
        "broker/web/test_sql_files.py::test_damaged_and_hostile_files_are_refused_by_name_and_cost_no_worker",
        share=Share.REQUEST,
    ),
    Limit(
        "files that come with an SQL query", ("pqbroker.sql.uploads.max",), "400, INVALID_QUERY",
        "broker/web/test_sql_uploads.py::test_files_beyond_their_limits_are_refused_by_name", share=Share.REQUEST,
    ),
    Limit(
        "files that a list of tables looks at", ("pqbroker.sql.files.max",), "the others are not listed",
        "broker/services/sql/test_files.py::test_a_list_looks_at_the_first_entries_alone",
    ),
    Limit(
        "least times of records kept for later SQL queries", ("broker/services/sql/least_times.py:TIME_SPANS_MAX",),
        "the oldest are dropped, rows are read again",
        "broker/services/sql/test_least_times.py"
        "::test_beyond_their_limit_the_partitions_used_least_recently_are_forgotten",
    ),
    Limit(
        "bytes of the answer to an SQL query", ("pqbroker.sql.result.bytes.max",), "the answer breaks off",
        "broker/web/test_sql_limits.py::test_an_answer_over_its_bytes_breaks_off",
        share=Share.REQUEST,
    ),
    Limit(
        "rows of a request in JSON", ("max.message.bytes", "broker/services/tables/inserting.py:MANY_ROWS"),
        "413; more than MANY_ROWS wait for a turn",
        "broker/web/test_inserting.py::test_rows_that_fill_more_than_a_batch_are_refused_before_the_rest_is_encoded",
        share=Share.REQUEST,
    ),
    Limit(
        "rows of a request in Arrow", ("max.message.bytes", "tables/rows.py:TABLETS_MAX"), "413, 400",
        "tables/work/test_arrow_rows.py::test_more_than_a_record_batch_may_hold_is_refused",
        share=Share.REQUEST,
    ),
    Limit(
        "memory and time to encode rows in Arrow", ("pqbroker.sql.memory.bytes.max", "pqbroker.sql.time.ms.max"),
        "413, the worker ends",
        "broker/web/test_arrow_rows.py::test_rows_over_their_time_are_refused_and_their_worker_is_killed",
        share=Share.REQUEST,
    ),
    Limit(
        "streams of rows in Arrow encoded at once", ("pqbroker.http.looks.max",), "the next ones wait",
        "broker/web/test_arrow_rows.py::test_few_streams_are_encoded_at_once",
        share=Share.ADDRESS,
        beside="broker/ground/test_looks.py::test_addresses_that_wait_take_turns",
    ),
    Limit(
        "time that a worker of SQL waits for a query", ("pqbroker.sql.worker.idle.ms",), "it is ended",
        "broker/web/test_sql_limits.py::test_a_worker_that_waits_too_long_for_a_query_is_ended",
    ),
    Limit(
        "answers whose records are decoded at once",
        ("pqbroker.registry.decodings.max", "pqbroker.registry.decoding.ms.max"), "records stay raw, with the reason",
        "broker/web/test_decoded_records.py::test_more_answers_than_may_be_decoded_at_once_stay_raw",
    ),
    Limit(
        "bytes and types of a registry's schema",
        ("pqbroker.registry.schema.bytes.max", "pqbroker.registry.schema.types.max"),
        "records stay raw, with the reason",
        "registry/test_hostile_schemas.py::test_a_hostile_schema_is_refused_by_name",
        share=Share.REQUEST,
    ),
    Limit(
        "fields and elements of a decoded value", ("pqbroker.registry.value.parts.max",),
        "the record stays raw, with the reason",
        "registry/test_hostile_schemas.py::test_a_hostile_value_is_refused_by_name", share=Share.REQUEST,
    ),
    Limit(
        "levels of a decoded value", ("registry/limits.py:VALUE_LEVELS_MAX",), "the record stays raw, with the reason",
        "registry/test_hostile_schemas.py::test_a_hostile_value_is_refused_by_name", share=Share.REQUEST,
    ),
    Limit(
        "schemas that a worker remembers of a registry", ("pqbroker.registry.schemas.max",),
        "the one used longest ago is forgotten",
        "registry/test_decoding.py::test_schemas_are_forgotten_beyond_the_limit",
    ),
    Limit(
        "time that a registry has to answer", ("pqbroker.registry.timeout.ms",), "records stay raw, with the reason",
        "registry/test_decoding.py::test_a_registry_that_answers_byte_by_byte_is_left_at_the_deadline",
    ),
    Limit(
        "bytes that a follower has not read", ("pqbroker.http.unsent.bytes.max", "pqbroker.http.request.timeout.ms"),
        "the next records wait; the connection closes",
        "broker/web/test_following.py::test_a_follower_that_never_reads_is_cut",
        share=Share.REQUEST,
    ),
    Limit(
        "series of partitions in `/metrics`", ("pqbroker.metrics.partitions.max",), "sums",
        "broker/web/test_metrics.py::test_series_of_partitions_are_bounded",
    ),
    Limit(
        "series of groups in `/metrics`", ("pqbroker.metrics.offsets.max",), "sums",
        "broker/web/test_metrics.py::test_series_of_groups_are_bounded",
    ),

    # Several nodes
    Limit(
        "bytes of a frame between nodes, of unread ones, of requests that are served",
        ("pqbroker.peer.frame.bytes.max",), "refused; the link closes where a frame lies about its length",
        "broker/peers/test_peer_link.py::test_a_request_may_be_refused_or_be_too_long_and_others_continue",
        share=Share.REQUEST,
    ),
    Limit(
        "requests between two nodes that wait for answers", ("broker/peers/link_rules.py:REQUESTS_MAX",),
        "the client's connection closes",
        "broker/peers/test_link_rules.py::test_requests_that_wait_for_answers_have_a_limit", share=Share.REQUEST,
    ),

    # Test brokers
    Limit(
        "faults of requests on cue", ("pqbroker.test.faults.max",), "409",
        "broker/web/test_cues.py::test_more_faults_than_the_limit_are_refused",
    ),
    Limit(
        "time that a delay or a pause on cue holds an answer", ("pqbroker.test.hold.ms.max",), "400",
        "broker/web/test_cues.py::test_a_delay_or_a_pause_over_the_limit_is_refused",
        share=Share.REQUEST,
    ),
    Limit(
        "time by which tests move the clock", ("pqbroker.test.clock.ms.max",), "400",
        "broker/web/test_cues.py::test_the_clock_does_not_move_beyond_its_limit",
        share=Share.REQUEST,
    ),
    Limit(
        "backups", ("pqbroker.backups.max",), "409 BACKUP_REFUSED",
        "storage/disk/test_backups.py::test_one_backup_at_a_time_and_no_more_than_the_limit",
    ),
)
