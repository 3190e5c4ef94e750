// All topics: found by a part of the name, sorted by any column, made. The broker may have ten thousand of them.
import { html, useState } from "/console/vendor/htm-preact.js";
import { name, useDoor, useKept, useRights } from "/console/doors.js";
import { Change, Pager, Table, Trouble, useOrder } from "/console/parts.js";
import { bytes, count } from "/console/units.js";

const LIMIT = 100;

export function Topics() {
  const [trail, setTrail] = useState([]);
  const [part, setPart] = useState("");
  const [isMaking, setMaking] = useState(false);
  const order = useOrder(() => setTrail([]));
  const rights = useRights();
  const after = trail[trail.length - 1];
  const query = new URLSearchParams({ limit: LIMIT, ...(after && { after }), ...(part.trim() && { contains: part.trim() }), ...order.query });
  const { data, problem, reload } = useDoor(`/v1/topics?${query}`, 3);
  const shown = useKept(data, problem);
  const made = () => { setMaking(false); reload(); };
  return html`<h2>Topics</h2>
    <div class="bar"><input data-search placeholder="name contains …" aria-label="name contains" value=${part}
        onInput=${(event) => { setPart(event.target.value); setTrail([]); }} />
      ${rights.makesTopics && html`<button aria-expanded=${isMaking} onClick=${() => setMaking(!isMaking)}>New topic</button>`}
      ${shown && html`<span class="dim">${count(shown.total)} ${shown.total === 1 ? "topic" : "topics"}</span>`}</div>
    ${isMaking && html`<${NewTopic} done=${made} />`}
    <${Trouble} problem=${problem} />
    ${shown && html`<${Table} keyOf=${(topic) => topic.id} rows=${shown.topics} order=${order}
      empty=${part ? "No topic has a name that contains this text." : html`No topic yet. <a href="#/tour">Take the tour</a>, or write to one: <code>echo hello | pqbroker produce greetings</code>`}
      columns=${[
        ["topic", (topic) => html`<a href=${`#/topics/${name(topic.name)}`}>${topic.name}</a>`, "name", null, "name"],
        ["partitions", (topic) => count(topic.partition_count), "number spare", null, "partitions"],
        ["records", (topic) => count(topic.record_count), "number", null, "records"],
        ["records/s", (topic) => (topic.records_per_s === null ? "–" : count(Math.round(topic.records_per_s))), "number", null, "rate"],
        ["records ever written", (topic) => count(topic.written_count), "number spare", null, "written"],
        ["size", (topic) => bytes(topic.size_bytes), "number", null, "size"],
        ["", (topic) => html`<a href=${`#/topics/${name(topic.name)}/messages`}>messages</a>`, "spare"],
      ]} />
      <${Pager} trail=${trail} next=${data?.next ?? null} go=${setTrail} />`}`;
}

/** Configs of a text, NAME=VALUE a line. */
function read(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  return Object.fromEntries(lines.map((line) => [line.split("=")[0].trim(), line.split("=").slice(1).join("=").trim()]));
}

function NewTopic({ done }) {
  const [topic, setTopic] = useState("");
  const [partitions, setPartitions] = useState("1");
  const [configs, setConfigs] = useState("");
  return html`<div class="form"><label>Name <input aria-label="topic name" value=${topic} onInput=${(event) => setTopic(event.target.value)} /></label>
    <label>Partitions <input aria-label="partitions" type="number" min="1" value=${partitions} onInput=${(event) => setPartitions(event.target.value)} /></label>
    <label>Configs, NAME=VALUE a line <textarea aria-label="configs" rows="3" placeholder="retention.ms=86400000" value=${configs} onInput=${(event) => setConfigs(event.target.value)}></textarea></label>
    <${Change} label="Create topic" method="POST" path="/v1/topics" done=${done}
      body=${() => ({ name: topic.trim(), partitions: Number(partitions), config: read(configs) })} /></div>`;
}
