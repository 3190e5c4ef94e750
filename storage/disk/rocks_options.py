"""Options of RocksDB for an index of small rows."""

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, Options

_MIB = 1 << 20
_OUT_OF_REACH_BYTES = 128 * _MIB


def index_options() -> Options:
    """RocksDB for small rows: little memory, stalls out of reach, a bounded log, bounded files."""
    options = Options(raw_mode=True)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(8 * _MIB))
    table.set_bloom_filter(10, False)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options.set_disable_auto_compactions(True)  # until `RocksIndex.compact`
    options.set_block_based_table_factory(table)
    options.set_compression_type(DBCompressionType.lz4())
    # A log has rows only where a full disk kept a cell of format 1 from being carried over whole.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_write_buffer_size(_OUT_OF_REACH_BYTES)  # out of reach, as the log's: `RocksIndex.write` comes before
    options.set_max_write_buffer_number(5)
    options.set_max_total_wal_size(_OUT_OF_REACH_BYTES)
    options.set_level_zero_slowdown_writes_trigger(1 << 20)
    options.set_level_zero_stop_writes_trigger(1 << 20)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    options.set_ratelimiter(64 * _MIB, 100_000, 10)
    options.set_bytes_per_sync(_MIB)
    options.set_max_background_jobs(2)
    options.set_max_open_files(128)
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(_MIB)
    return options


def column_families(options: Options) -> dict[str, Options]:
    """Said for the one that there is: else rocksdict takes those that were in force last, from a file beside it."""
    return {"default": options}
