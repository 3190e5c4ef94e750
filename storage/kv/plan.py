"""Changes that a request would make in a KV tablet, worked out on its memory; nothing is changed here."""

from collections.abc import Mapping, Sequence
from itertools import islice
from operator import attrgetter

from pqbroker.storage.engine import Batch, BlobKey, Buffer, InlineUse
from pqbroker.storage.kv.commands import (
    DELETED_KEYS_MAX,
    EXTRA_MAX,
    INLINE,
    INLINE_BYTES_MAX,
    KEY_BYTES_MAX,
    MAIN,
    PIECE_BYTES_MAX,
    CheckGeneration,
    Command,
    Concat,
    CopyRange,
    DeleteRange,
    GenerationMismatch,
    IncrementGeneration,
    KeyMissing,
    KeyRange,
    KeyValueError,
    Piece,
    Rename,
    Splice,
    ValueChanged,
    Write,
)
from pqbroker.storage.kv.key_ranges import GENERATION_KEY, covers, keys_within
from pqbroker.storage.kv.ordered_entries import OrderedEntries
from pqbroker.storage.kv.rows import Entry
from pqbroker.storage.kv.value_parts import cut
from pqbroker.storage.pool_status import Colour
from pqbroker.storage.tablets.tablet import USER_CHANNEL, TabletStorage

_order = attrgetter("order")


class Plan:
    """One request's changes: what becomes durable, and what the memory becomes then."""

    __slots__ = ("batch", "begun_s", "changes", "commands", "counting", "moved", "recounts", "user_generation")

    def __init__(self) -> None:
        self.batch = Batch()
        self.commands = 0
        """Commands of the request."""
        self.begun_s = 0.0
        """Time when it was handed to the store, by `perf_counter`."""
        self.changes: dict[bytes, Entry | None] = {}
        """New entries by key; None deletes."""
        self.recounts: dict[BlobKey, int] = {}
        """New reference counts of blobs that more than one entry holds, or held."""
        self.moved: set[bytes] = set()
        """Keys whose present blobs remain in another entry."""
        self.user_generation: int | None = None
        """The new one, where the request raises it."""
        self.counting = False
        """Some blob may have several holders, or died at birth: count instead of following the moves."""

    def apply(self, entries: OrderedEntries, references: dict[BlobKey, int]) -> None:
        """The plan is durable: make it so in the tablet's memory."""
        entries.apply(self.changes)
        for blob, count in self.recounts.items():
            if count > 1:
                references[blob] = count
            else:
                references.pop(blob, None)


class Planner:
    """Plans requests over a tablet's entries and reference counts, which only the tablet changes."""

    __slots__ = ("_entries", "_inline_bytes_max", "_references", "_storage", "user_generation")

    def __init__(
        self,
        storage: TabletStorage,
        entries: OrderedEntries,
        references: Mapping[BlobKey, int],
        inline_bytes_max: int,
        user_generation: int,
    ) -> None:
        self._storage = storage
        self._entries = entries
        self._references = references
        self._inline_bytes_max = inline_bytes_max
        self.user_generation = user_generation
        """The tablet's, as it is durable; it raises it."""

    def plan(self, commands: Sequence[Command], now_ms: int) -> Plan:
        """Raises KeyValueError if a command is invalid, Blocked if a later instance of the tablet runs."""
        plan = Plan()
        for command in sorted(commands, key=_order):
            if type(command) is Write:
                self._write(plan, command, now_ms)
            elif type(command) is Concat:
                self._concat(plan, command, now_ms)
            elif type(command) is DeleteRange:
                self._delete(plan, command)
            elif type(command) is Rename:
                self._rename(plan, command)
            elif type(command) is CopyRange:
                self._copy(plan, command)
            elif type(command) is Splice:
                self._splice(plan, command, now_ms)
            elif type(command) is CheckGeneration:
                self._check_generation(command)
            else:
                assert type(command) is IncrementGeneration, command
                self._increment_generation(plan, len(commands), now_ms)
            plan.commands += 1
        self._finish(plan)
        if self._storage.is_limited:
            plan.batch.inline = (self._inline_use(plan, commands),)
        return plan

    def status(self, channel: int) -> Colour:
        """Return how full the place is that values of the channel go to. Raises KeyValueError for no such channel."""
        return self._storage.status(lane_of(channel, self._storage.channel_count))

    def _write(self, plan: Plan, command: Write, now_ms: int) -> None:
        size = command.size
        buffers = command.buffers
        created_ms = now_ms if command.created_ms is None else command.created_ms
        if not buffers:
            raise KeyValueError(f"the write of {command.key!r} has no value")
        if size < self._inline_bytes_max or (command.channel == INLINE and not command.autoselect):
            if size > INLINE_BYTES_MAX:
                raise KeyValueError(f"{command.key!r} has {size} bytes; inline there may be {INLINE_BYTES_MAX}")
            entry = Entry.inline(created_ms, buffers, size)
        else:
            channel = min(command.autoselect, key=self.status) if command.autoselect else command.channel
            entry = Entry.chained(created_ms, self._store(plan, channel, buffers, size), size)
        self._set(plan, command.key, entry)

    def _concat(self, plan: Plan, command: Concat, now_ms: int) -> None:
        blobs: list[bytes] = []
        inputs: dict[bytes, Entry] = {}
        size = 0
        shared = command.keep_inputs
        for item in command.inputs:
            if type(item) is Piece:
                size += item.size
                blobs.append(self._store(plan, MAIN, item.buffers, item.size))
                continue
            assert isinstance(item, bytes), item
            entry = self._find(plan, item)
            size += entry.size
            if not entry.is_inline:
                blobs.append(entry.blob_keys)
                shared = shared or entry.is_shared or item in inputs
            elif entry.size:
                blobs.append(self._store(plan, MAIN, [entry.value], entry.size))
            inputs[item] = entry
        if not command.inputs:
            raise KeyValueError(f"nothing to concatenate into {command.output!r}")
        plan.counting = plan.counting or shared
        for key, entry in inputs.items():
            if command.keep_inputs:
                plan.changes[key] = entry.sharing()
            else:
                self._take(plan, key)
        chain = b"".join(blobs)
        created_ms = now_ms if command.created_ms is None else command.created_ms
        output = Entry.chained(created_ms, chain, size, shared=shared) if chain else Entry.inline(created_ms, (), 0)
        self._set(plan, command.output, output)

    def _delete(self, plan: Plan, command: DeleteRange) -> None:
        changes = plan.changes
        if command.lo == command.hi and command.include_lo and command.include_hi:
            if command.lo in self._entries:
                changes[command.lo] = None
        else:
            found = keys_within(self._entries, command)
            changes.update(dict.fromkeys(islice(found, DELETED_KEYS_MAX + 1)))
        if len(changes) > DELETED_KEYS_MAX:
            raise KeyValueError(f"a request may delete at most {DELETED_KEYS_MAX} keys; this one covers more")

    def _rename(self, plan: Plan, command: Rename) -> None:
        entry = self._find(plan, command.old)
        self._take(plan, command.old)
        self._set(plan, command.new, entry)

    def _copy(self, plan: Plan, command: CopyRange) -> None:
        plan.counting = True
        prefix = command.prefix_to_remove
        sources = {
            key: entry.sharing()
            for key, entry in self._visible(plan, command.within).items()
            if key.startswith(prefix)
        }
        plan.changes.update(sources)
        for key, entry in sources.items():
            self._set(plan, command.prefix_to_add + key[len(prefix) :], entry)

    def _splice(self, plan: Plan, command: Splice, now_ms: int) -> None:
        original, parts = command.original, command.parts
        entry = self._find(plan, original)
        if entry.identity != command.seen:
            if original in plan.changes:
                raise KeyValueError(
                    f"a request that changes {original!r} cannot patch it too; ask for one after the other"
                )
            raise ValueChanged(original)
        first = parts[0]
        if len(parts) == 1 and isinstance(first, Piece):
            self._write(plan, Write(command.output, first.buffers, first.size, command.channel), now_ms)
            return
        plan.counting = True
        is_kept = command.output != original
        if is_kept:
            plan.changes[original] = entry.sharing()
        chain = b"".join(
            self._store(plan, command.channel, part.buffers, part.size) if isinstance(part, Piece) else part
            for part in parts
        )
        self._set(plan, command.output, Entry.chained(now_ms, chain, entry.size, shared=is_kept or entry.is_shared))

    def _check_generation(self, command: CheckGeneration) -> None:
        if command.generation != self.user_generation:
            raise GenerationMismatch(
                f"the request is for user generation {command.generation}; now it is {self.user_generation}"
            )

    def _increment_generation(self, plan: Plan, count: int, now_ms: int) -> None:
        if count > 1:
            raise KeyValueError("a request that raises the user generation holds no other command")
        plan.user_generation = self.user_generation + 1
        plan.changes[GENERATION_KEY] = Entry.number(now_ms, plan.user_generation)

    def _finish(self, plan: Plan) -> None:
        """Turn the changes into rows, and blobs that no entry holds any more into deletions."""
        batch = plan.batch
        entries = self._entries
        prefix = self._storage.prefix
        dying: list[Entry] = []
        for key, entry in plan.changes.items():
            if entry is None:
                batch.delete(prefix + key)
            else:
                batch.put(prefix + key, entry.row)
            before = entries.get(key)
            if before is not None and not before.is_inline:
                if before.is_shared:
                    plan.counting = True
                if key not in plan.moved:
                    dying.append(before)
        if plan.counting:
            self._count(plan)
            return
        for before in dying:
            for blob in before.blobs():
                batch.delete_blob(blob)

    def _inline_use(self, plan: Plan, commands: Sequence[Command]) -> InlineUse:
        """Rows count as what they spare: blobs of the first channel for users. What a write calls INLINE is no Put."""
        puts = [
            command.size
            for command in commands
            if type(command) is Write and command.channel != INLINE and command.size < self._inline_bytes_max
        ]
        kept = 0
        for key, entry in plan.changes.items():
            before = self._entries.get(key)
            kept += entry.size if entry is not None and entry.is_inline else 0
            kept -= before.size if before is not None and before.is_inline else 0
        return InlineUse(self._storage.tablet_id, USER_CHANNEL, len(puts), sum(puts), kept)

    def _count(self, plan: Plan) -> None:
        """Delete exactly the blobs that no entry holds after this request."""
        batch = plan.batch
        fresh = {stored[0] for stored in batch.blobs}
        held = dict.fromkeys(fresh, 0)
        for key, entry in plan.changes.items():
            before = self._entries.get(key)
            for blob in () if before is None else before.blobs():
                held[blob] = held.get(blob, self._references.get(blob, 1)) - 1
            for blob in () if entry is None else entry.blobs():
                held[blob] = held.get(blob, self._references.get(blob, 1)) + 1
        for blob, count in held.items():
            assert count >= 0, blob
            if count > 1 or blob in self._references:
                plan.recounts[blob] = count
            if count == 0 and blob not in fresh:
                batch.delete_blob(blob)
        stillborn = {blob for blob in fresh if held[blob] == 0}
        if stillborn:
            batch.bytes -= sum(size for blob, _, size, _ in batch.blobs if blob in stillborn)
            batch.blobs = [stored for stored in batch.blobs if stored[0] not in stillborn]

    def _store(self, plan: Plan, channel: int, buffers: Sequence[Buffer], size: int) -> bytes:
        """Plan the blobs of a value; their keys end to end."""
        lane = lane_of(channel, self._storage.channel_count)
        if not 0 < size == sum(map(len, buffers)):
            raise KeyValueError(f"a value of {size} bytes comes in {sum(map(len, buffers))}")
        if size <= PIECE_BYTES_MAX:
            return self._storage.put_blob(plan.batch, lane, buffers, size)
        return b"".join(
            self._storage.put_blob(plan.batch, lane, piece, piece_size) for piece, piece_size in cut(buffers)
        )

    def _find(self, plan: Plan, key: bytes) -> Entry:
        entry: Entry | None = plan.changes[key] if key in plan.changes else self._entries.get(key)
        if entry is None:
            raise KeyMissing(key)
        return entry

    def _take(self, plan: Plan, key: bytes) -> None:
        """Remove the key; its blobs remain in other entries."""
        if key in plan.changes:
            plan.counting = True
        plan.moved.add(key)
        plan.changes[key] = None

    def _set(self, plan: Plan, key: bytes, entry: Entry) -> None:
        if not 0 < len(key) <= KEY_BYTES_MAX:
            raise KeyValueError(f"a key has 1 to {KEY_BYTES_MAX} bytes; this one has {len(key)}")
        if plan.changes.get(key) is not None:
            plan.counting = True
        plan.changes[key] = entry

    def _visible(self, plan: Plan, within: KeyRange | None) -> dict[bytes, Entry]:
        """Entries in the range as the commands planned so far leave them."""
        keys = self._entries if within is None else keys_within(self._entries, within)
        found: dict[bytes, Entry] = {key: self._entries[key] for key in keys if key not in plan.changes}
        for key, entry in plan.changes.items():
            if entry is not None and (within is None or covers(within, key)):
                found[key] = entry
        return found


def lane_of(channel: int, channel_count: int) -> int:
    """The tablet's channel for values of MAIN or EXTRA; what the tablet does not have is MAIN. KeyValueError."""
    if not MAIN <= channel <= EXTRA_MAX:
        raise KeyValueError(f"there is no channel {channel} for blobs: they go to {MAIN} to {EXTRA_MAX}")
    lane = USER_CHANNEL + channel
    return lane if lane < channel_count else USER_CHANNEL
