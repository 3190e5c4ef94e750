// Cleaning of compacted topics: on the page of a partition, on that of its topic, and on the overview.
import { html, useState } from "/console/vendor/htm-preact.js";
import { ask, name, useDoor } from "/console/doors.js";
import { Facts, Table, Trouble } from "/console/parts.js";
import { bytes, count, moment, span } from "/console/units.js";

const KINDS = { clean: "good", cleaning: "good", due: "warn", waiting: "dim", held: "warn", off: "warn", failed: "bad" };
const EXACT_MAX = 8.64e15;

const share = (ratio) => `${(100 * ratio).toFixed(ratio > 0 && ratio < 0.1 ? 1 : 0)} %`;
const State = ({ of }) => html`<span class=${KINDS[of.state] ?? ""}>${of.state}</span>`;

/** A pass in a few words: how long it took or takes, and how sizes changed. */
function told(pass) {
  if (!pass) return "none since the start of the broker";
  if (pass.failure) return html`${moment(pass.ended_ms)} <span class="bad">${pass.failure}</span>`;
  const took = span((pass.ended_ms ?? Date.now()) - pass.begun_ms);
  const left = pass.bytes_before - pass.bytes_freed;
  return `${moment(pass.begun_ms)}, ${took}: ${bytes(pass.bytes_before)} became ${bytes(left)}, ${count(pass.records_gone)} of ${count(pass.records)} records gone`;
}

/** When a partition is cleaned next, where time alone decides that. */
function next(of) {
  if (of.next === null || of.next > EXACT_MAX) return "once enough was written";
  return of.next <= Date.now() ? "now" : `${moment(of.next)}, in ${span(of.next - Date.now())}`;
}

/** What a pass would go through, and the button that begins it where the pages may change something. */
function Ask({ topic, partitions, writes, done }) {
  const [found, setFound] = useState(null);
  const [problem, setProblem] = useState(null);
  const post = async (isDry) => {
    try {
      const answer = await ask(`/v1/topics/${name(topic)}/clean`, "POST", { ...(partitions && { partitions }), dry_run: isDry });
      setProblem(null);
      setFound(isDry ? answer.partitions : null);
      if (!isDry) done?.();
    } catch (error) {
      setFound(null);
      setProblem(error);
    }
  };
  return html`<div class="bar">
    <button onClick=${() => post(true)}>Show what a pass would clean</button>
    ${found && writes && html`<button class="main" onClick=${() => post(false)}>Clean now</button>`}
    ${found && html`<button onClick=${() => setFound(null)}>Cancel</button>`}</div>
    <${Trouble} problem=${problem} />
    ${found && html`<${Table} keyOf=${(one) => one.partition} rows=${found} empty="None." columns=${[
      ["partition", (one) => one.partition, "number"],
      ["bodies", (one) => count(one.bodies), "number"], ["become", (one) => count(one.windows), "number"],
      ["size", (one) => bytes(one.size_bytes), "number"], ["new", (one) => `${bytes(one.dirty_bytes)} (${share(one.dirty_ratio)})`, "number"],
      ["head", (one) => bytes(one.head_bytes), "number"],
      ["", (one) => (one.is_cleaned ? "would be cleaned; the head first becomes a body" : html`would not be cleaned: ${one.text}`), "text"],
    ]} />`}`;
}

export function Cleaning({ topic, partition, cleaning, writes, reload }) {
  if (!cleaning) return null;
  const { running } = cleaning;
  return html`<h3>Cleaning</h3>
    <p><${State} of=${cleaning} />: ${cleaning.text}</p>
    <${Facts} facts=${[
      ["not cleaned yet", `${share(cleaning.dirty_ratio)} of its bytes: ${bytes(cleaning.dirty_bytes)} of ${bytes(cleaning.size_bytes)} in ${count(cleaning.bodies)} bodies, the head left out`],
      ["cleaned up to", cleaning.cleaned_to === null ? "never cleaned" : `offset ${count(cleaning.cleaned_to)}, ${moment(cleaning.cleaned)}`],
      ...(running ? [["under way", `${bytes(running.bytes_read)} read, ${bytes(running.bytes_written)} written, ${bytes(running.bytes_read_per_s)} a second`]] : []),
      ["last pass", told(cleaning.last)],
      ["next pass", next(cleaning)],
      ...(cleaning.tombstones_due === null ? [] : [["tombstones may go", moment(cleaning.tombstones_due)]]),
    ]} />
    <${Ask} topic=${topic} partitions=${[partition]} writes=${writes} done=${reload} />`;
}

export function TopicCleaning({ topic, writes }) {
  const { data, reload } = useDoor(`/v1/topics/${name(topic)}/cleaning`, 3);
  if (!data?.is_compacted) return null;
  return html`<h3>Cleaning</h3>
    <${Table} keyOf=${(one) => one.partition} rows=${data.partitions} empty="None." columns=${[
      ["partition", (one) => html`<a href=${`#/topics/${name(topic)}/partitions/${one.partition}`}>${one.partition}</a>`, "number"],
      ["state", (one) => html`<${State} of=${one} />`],
      ["not cleaned yet", (one) => `${share(one.dirty_ratio)}, ${bytes(one.dirty_bytes)}`, "number", (one) => one.dirty_ratio],
      ["last pass", (one) => told(one.last), "text"], ["next pass", (one) => next(one), "text"], ["why", (one) => one.text, "text"],
    ]} />
    ${data.next !== null && html`<p class="dim">The first ${data.partitions.length} are shown.</p>`}
    <${Ask} topic=${topic} writes=${writes} done=${reload} />`;
}

/** Passes of the node; nothing where there were none. */
export function Passes() {
  const { data } = useDoor("/v1/cleaner?limit=8", 3);
  if (!data || !(data.running.length + data.ended.length)) return null;
  return html`<h3>Passes over compacted topics</h3>
    <p class="dim">Since the start: ${count(data.passes)} done, ${count(data.failed)} failed, ${bytes(data.bytes_read)} read, ${bytes(data.bytes_written)} written, ${bytes(data.bytes_freed)} freed,
      ${" "}${count(data.records_gone)} records and among them ${count(data.tombstones_gone)} tombstones gone.</p>
    <${Table} keyOf=${(one) => `${one.topic} ${one.partition} ${one.begun_ms}`} rows=${[...data.running, ...data.ended]} empty="None." columns=${[
      ["topic", (one) => html`<a href=${`#/topics/${name(one.topic)}/partitions/${one.partition}`}>${one.topic}-${one.partition}</a>`, "name"],
      ["", (one) => (one.ended_ms === null ? html`<span class="good">under way</span>` : one.failure ? html`<span class="bad">ended early</span>` : "done")],
      ["because", (one) => one.reason], ["pass", (one) => told(one), "text"],
    ]} />`;
}
