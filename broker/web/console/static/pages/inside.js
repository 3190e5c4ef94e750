// Inside a sorted table: a picture of each tablet's stores over its keys, what runs, what is picked and why, what blocks writes.
import { html, useState } from "/console/vendor/htm-preact.js";
import { exact, useDoor } from "/console/doors.js";
import { Facts, Table, Tile, Trouble } from "/console/parts.js";
import { bytes, count, moment, span } from "/console/units.js";

const WIDTH = 1000;
const LANE = 16;
const LEAST = 5;
const FEW = 100;
const MANY = 1000;
const ORDERS = { age: (one, other) => one.created_ms - other.created_ms || one.chunk - other.chunk, size: (one, other) => other.compressed_bytes - one.compressed_bytes || one.chunk - other.chunk };
const LOOKS = { idle: "waits", picked: "is picked", busy: "in a task", resting: "backs off", damaged: "is damaged" };

export function keyText(key) {
  if (key === null || key === undefined) return "–";
  return key.length ? key.map((value) => (typeof value === "bigint" ? String(value) : JSON.stringify(value))).join(", ") : "the first key";
}

export function SortedInside({ path }) {
  const [index, setIndex] = useState(0);
  const { data, problem } = useDoor(`${path}/inside?limit=${FEW}`, 2, exact);
  if (!data) return html`<${Trouble} problem=${problem} />`;
  const { node } = data;
  const blocked = data.tablets.filter((one) => one.blocked);
  const overlap = data.tablets.reduce((most, one) => (one.overlap > most.overlap ? one : most), { overlap: 0, overlap_max: 0 });
  return html`<h3>Inside</h3><${Trouble} problem=${problem} />
    <div class="tiles">
      <${Tile} name="overlap: most chunks over one key" value=${`${overlap.overlap} of ${overlap.overlap_max}`} kind=${overlap.overlap * 2 > overlap.overlap_max ? "warn" : ""} />
      <${Tile} name="write amplification since the start" value=${data.amplification === null ? "–" : count(data.amplification)} />
      <${Tile} name="flushed since the start" value=${bytes(data.flushed_bytes)} /><${Tile} name="written again" value=${bytes(data.rewritten_bytes)} />
      <${Tile} name=${`memory of stores, of ${bytes(node.table_stores_bytes_max)}`} value=${bytes(node.table_stores_bytes)} />
      <${Tile} name=${`the node's stores, of ${bytes(node.stores_bytes_max)}`} value=${bytes(node.stores_bytes)} />
      <${Tile} name="tasks of the table under way" value=${count(data.running.length)} /><${Tile} name="tablets that take no writes" value=${count(blocked.length)} kind=${blocked.length ? "bad" : ""} />
    </div>
    ${data.tablets.flatMap((one) => troubles(one).map((text) => html`<div class="problem" role="alert"><b>tablet ${one.index}</b> ${text}</div>`))}
    <h3>Tablets</h3><${Table} keyOf=${(one) => one.index} rows=${data.tablets} empty="None." columns=${[
      ["index", (one) => html`<button class="plain" aria-label=${`show tablet ${one.index}`} onClick=${() => setIndex(one.index)}>${one.index}</button>`, "number", (one) => one.index],
      ["tablet", (one) => html`<a href=${`#/tablets/${one.tablet_id}`}>${one.tablet_id}</a>`, "number"], ["state", (one) => one.state], ["from key", (one) => html`<code>${keyText(one.pivot_key)}</code>`, "text"],
      ["rows in memory", (one) => count(one.stores.reduce((sum, store) => sum + store.rows, 0)), "number"], ["rows in chunks", (one) => count(one.rows), "number", (one) => one.rows],
      ["size", (one) => bytes(one.compressed_bytes), "number", (one) => one.compressed_bytes], ["chunks", (one) => count(one.chunk_count), "number", (one) => one.chunk_count], ["in Eden", (one) => count(one.eden_chunk_count), "number", (one) => one.eden_chunk_count],
      ["partitions", (one) => count(one.partition_count), "number", (one) => one.partition_count], ["overlap", (one) => `${one.overlap} of ${one.overlap_max}`, "number", (one) => one.overlap],
      ["amplification", (one) => (one.amplification === null ? "–" : count(one.amplification)), "number"],
    ]} />${data.next !== null && html`<p class="dim">The first ${data.tablets.length} are shown.</p>`}
    ${data.tablets[index] && html`<${OneTablet} key=${index} path=${path} index=${index} many=${data.tablets[index].chunk_count > FEW} />`}
    <h3>Tasks under way</h3><${Tasks} tasks=${data.running} empty="None now." />
    <h3>Last tasks</h3><${Tasks} tasks=${data.ended} empty="None since the start." />`;
}

function troubles(tablet) {
  const found = [];
  if (tablet.blocked) found.push(`takes no writes: ${tablet.blocked.message}. ${tablet.blocked.cure}`);
  if (tablet.flush_failure) found.push(`cannot be flushed: ${tablet.flush_failure.cause}; tried again at ${moment(tablet.flush_failure.retry_ms)}`);
  return found;
}

function Tasks({ tasks, empty }) {
  return html`<${Table} keyOf=${(task) => task.task} rows=${tasks} empty=${empty} columns=${[
    ["task", (task) => task.task, "number"], ["kind", (task) => task.kind], ["tablet", (task) => task.tablet_id, "number"], ["reason", (task) => html`${task.reason}${task.failure && html` <span class="bad">${task.failure}</span>`}`, "text"],
    ["stores", (task) => `${count(task.inputs.length)} → ${task.ended_ms === null ? "…" : count(task.outputs.length)}`, "number"], ["reads", (task) => bytes(task.input_bytes), "number"],
    ["written", (task) => bytes(task.bytes_written), "number"], ["a second", (task) => bytes(task.bytes_per_s), "number"], ["took", (task) => span((task.ended_ms ?? Date.now()) - task.begun_ms), "number"], ["begun", (task) => moment(task.begun_ms), "time"],
  ]} />`;
}

function OneTablet({ path, index, many }) {
  const [by, setBy] = useState("age");
  const { data, problem } = useDoor(`${path}/tablets/${index}/inside?limit=${many ? MANY : FEW}`, 2, exact);
  return html`<h3>Stores of tablet ${index} over its keys</h3><${Trouble} problem=${problem} />
    ${data && html`<div class="bar"><label>from top to bottom <select aria-label="order" value=${by} onChange=${(event) => setBy(event.target.value)}><option value="age">the newest first</option><option value="size">the smallest first</option></select></label>
        ${Object.entries(LOOKS).map(([kind, text]) => html`<span class=${`legend ${kind}`}>${text}</span>`)}</div>
      ${data.rests && html`<p class="warn">No task takes these chunks: ${data.rests}.</p>`}
      <${Picture} data=${data} by=${by} />
      ${(data.next !== null || data.next_partition !== null) && html`<p class="dim">The first ${data.chunks.length} of ${count(data.chunk_count)} chunks and ${data.partitions.length} of ${count(data.partition_count)} partitions are shown.</p>`}
      <${Facts} facts=${[
        ["most chunks over", html`<code>${keyText(data.overlap_key)}</code>`], ["versions are kept from timestamp", String(data.retained_timestamp)],
        ["Eden", `${count(data.eden.chunk_count)} chunks, ${bytes(data.eden.compressed_bytes)}`], ["next in Eden", picks([data.eden.partitioning, data.eden.compaction])], ["next in partitions", picks(data.partitions.map((one) => one.task))],
      ]} />`}`;
}

/** Tasks that are picked, in words. */
function picks(tasks) {
  const found = tasks.filter((task) => task !== null).map((task) => `${task.kind} of ${task.input_count} chunks, ${bytes(task.compressed_bytes)}: ${task.reason}`);
  return found.length ? found.slice(0, 5).join("; ") + (found.length > 5 ? `; ${found.length - 5} more` : "") : "nothing";
}

function look(chunk) {
  if (chunk.state === "damaged") return "damaged";
  if (chunk.state === "busy" || chunk.task) return "busy";
  if (chunk.state === "backing off") return "resting";
  return chunk.picked ? "picked" : "idle";
}

function why(chunk) {
  if (chunk.task) return `${chunk.task.kind} ${chunk.task.task}: ${chunk.task.reason}`;
  if (chunk.picked) return `picked for ${chunk.picked.kind}: ${chunk.picked.reason}`;
  return Object.entries(chunk.left_out).map(([kind, reason]) => `no ${kind}: ${reason}`).join("\n");
}

function words(chunk) {
  return [
    `chunk ${chunk.chunk}, ${chunk.partition_index === null ? "Eden" : `partition ${chunk.partition_index}`}`, `${keyText(chunk.first_key)} to ${keyText(chunk.last_key)}`,
    `${count(chunk.rows)} rows, ${count(chunk.deletes)} deletes, ${bytes(chunk.compressed_bytes)}`, `made ${span(chunk.age_ms)} ago`, why(chunk),
  ].join("\n");
}

/** Each chunk in a lane below those that are over it: over any key, the order is from top to bottom. */
function laned(chunks, slots) {
  const free = new Array(slots.size).fill(0);
  const placed = [...chunks].reverse().map((chunk) => {
    const from = slots.get(chunk.first_order);
    const to = slots.get(chunk.last_order);
    let lane = 0;
    for (let slot = from; slot <= to; slot += 1) lane = Math.max(lane, free[slot]);
    free.fill(lane + 1, from, to + 1);
    return { chunk, from, to, lane };
  });
  return { placed, lanes: Math.max(1, ...placed.map(({ lane }) => lane + 1)) };
}

/** Keys from left to right, each one that begins or ends something as wide as the next; memory, Eden, partitions below. */
function Picture({ data, by }) {
  const keys = [...new Set([...data.partitions.map((one) => one.order), ...data.chunks.flatMap((one) => [one.first_order, one.last_order])])].sort();
  const slots = new Map(keys.map((key, at) => [key, at]));
  const wide = WIDTH / Math.max(1, keys.length);
  const most = Math.log2(2 + Math.max(0, ...data.chunks.map((one) => one.compressed_bytes)));
  const ordered = [...data.chunks].sort(ORDERS[by]);
  const eden = laned(ordered.filter((one) => one.partition_index === null), slots);
  const below = laned(ordered.filter((one) => one.partition_index !== null), slots);
  const top = 16 + data.stores.length * LANE;
  const middle = top + 20 + eden.lanes * LANE;
  const bottom = middle + 20 + below.lanes * LANE;
  const box = ({ chunk, from, to, lane }, y) => {
    const high = LEAST + (LANE - 2 - LEAST) * Math.log2(2 + chunk.compressed_bytes) / most;
    return html`<rect key=${chunk.chunk} class=${look(chunk)} data-chunk=${chunk.chunk} x=${from * wide} width=${Math.max(1.5, (to - from + 1) * wide - 1)} y=${y + (lane + 1) * LANE - high} height=${high}><title>${words(chunk)}</title></rect>`;
  };
  return html`<div class="wide"><svg class="axis chunks" viewBox=${`-4 0 ${WIDTH + 8} ${bottom + 22}`} role="img" aria-label="stores of the tablet over its keys">
    <text x="0" y="11">in memory</text>
    ${data.stores.map((store, at) => html`<rect class=${store.rows ? store.state : "none"} x="0" width=${WIDTH} y=${16 + at * LANE} height=${LANE - 4}><title>store ${store.store}, ${store.state}${store.passive_for && ` (${store.passive_for})`}: ${count(store.rows)} rows of ${count(store.keys)} keys, ${bytes(store.bytes)}, ${span(store.age_ms)} old</title></rect>
      <text x="4" y=${25 + at * LANE}>${store.state}, ${count(store.rows)} rows, ${bytes(store.bytes)}</text>`)}
    <text x="0" y=${top + 12}>Eden: chunks across partitions${eden.placed.length ? "" : ", none"}</text>${eden.placed.map((one) => box(one, top + 16))}
    <text x="0" y=${middle + 12}>partitions</text>${below.placed.map((one) => box(one, middle + 16))}
    ${data.partitions.map((one) => html`<line class=${one.task ? "cursor" : "epoch"} x1=${slots.get(one.order) * wide} x2=${slots.get(one.order) * wide} y1=${middle + 14} y2=${bottom}><title>${partitionWords(one)}</title></line>`)}
    <line class="line" x1="0" x2=${WIDTH} y1=${bottom} y2=${bottom} />
    <text x="0" y=${bottom + 14}>${keyText(data.pivot_key)}</text>
  </svg></div>`;
}

function partitionWords(partition) {
  const task = partition.task ? `\npicked: ${picks([partition.task])}` : "";
  return `partition ${partition.index} from ${keyText(partition.pivot_key)}\n${count(partition.chunk_count)} chunks, ${bytes(partition.compressed_bytes)}, ${partition.overlap} over one key${task}`;
}
