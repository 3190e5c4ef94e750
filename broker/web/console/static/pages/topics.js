// All topics: found by a part of the name, sorted by any column, made. The broker may have ten thousand of them.
import { html, useEffect, useRef, useState } from "/console/vendor/htm-preact.js";
import { name, useDoor, useWrites } from "/console/doors.js";
import { Change, Pager, Table, Trouble } from "/console/parts.js";
import { bytes, count } from "/console/units.js";

const LIMIT = 100;
const ORDERS = [["", "by name"], ["size", "by size"], ["records", "by records"], ["written", "by records ever written"], ["partitions", "by partitions"]];

export function Topics() {
  const [trail, setTrail] = useState([]);
  const [part, setPart] = useState("");
  const [order, setOrder] = useState("");
  const [isMaking, setMaking] = useState(false);
  const writes = useWrites();
  const after = trail[trail.length - 1];
  const query = new URLSearchParams({ limit: LIMIT, ...(after && { after }), ...(part.trim() && { contains: part.trim() }), ...(order && { sort: order }) });
  const { data, problem, reload } = useDoor(`/v1/topics?${query}`, 3);
  const rates = useRates(data?.topics);
  const rows = data?.topics ?? [];
  const made = () => { setMaking(false); reload(); };
  return html`<h2>Topics</h2>
    <div class="bar"><input data-search placeholder="name contains …" aria-label="name contains" value=${part}
        onInput=${(event) => { setPart(event.target.value); setTrail([]); }} />
      <label>Order <select aria-label="order" value=${order} onChange=${(event) => { setOrder(event.target.value); setTrail([]); }}>
        ${ORDERS.map(([value, title]) => html`<option value=${value}>${title}</option>`)}</select></label>
      ${writes && html`<button aria-expanded=${isMaking} onClick=${() => setMaking(!isMaking)}>New topic</button>`}
      ${data && html`<span class="dim">${order && data.total > rows.length ? `the first ${count(rows.length)} of ${count(data.total)}` : count(data.total)} ${data.total === 1 ? "topic" : "topics"}</span>`}</div>
    ${isMaking && html`<${NewTopic} done=${made} />`}
    <${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(topic) => topic.id} rows=${rows}
      empty=${part ? "No topic's name contains this." : html`No topic yet. Write to one: <code>echo hello | pqbroker produce greetings</code>`}
      columns=${[
        ["topic", (topic) => html`<a href=${`#/topics/${name(topic.name)}`}>${topic.name}</a>`, "text", (topic) => topic.name],
        ["partitions", (topic) => count(topic.partition_count), "number", (topic) => topic.partition_count],
        ["records", (topic) => count(topic.record_count), "number", (topic) => topic.record_count],
        ["records/s", (topic) => (rates.has(topic.id) ? count(Math.round(rates.get(topic.id))) : "–"), "number", (topic) => rates.get(topic.id) ?? -1],
        ["size", (topic) => bytes(topic.size_bytes), "number", (topic) => topic.size_bytes],
        ["", (topic) => html`<a href=${`#/topics/${name(topic.name)}/messages`}>messages</a>`],
      ]} />
      <${Pager} trail=${trail} next=${data.next} go=${setTrail} />`}`;
}

/** Records that each topic was given a second, between the last two looks that saw it. */
function useRates(topics) {
  const last = useRef(new Map());
  const [rates, setRates] = useState(new Map());
  useEffect(() => {
    if (!topics) return;
    const now = Date.now(), found = new Map(), next = new Map();
    for (const { id, written_count: written } of topics) {
      const before = last.current.get(id);
      if (before && now > before.time) found.set(id, Math.max(0, (written - before.written) * 1000 / (now - before.time)));
      next.set(id, { time: now, written });
    }
    last.current = next;
    setRates(found);
  }, [topics]);
  return rates;
}

function NewTopic({ done }) {
  const [topic, setTopic] = useState("");
  const [partitions, setPartitions] = useState("1");
  const [configs, setConfigs] = useState("");
  const config = () => Object.fromEntries(configs.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => [line.split("=")[0].trim(), line.split("=").slice(1).join("=").trim()]));
  return html`<div class="form"><label>Name <input aria-label="topic name" value=${topic} onInput=${(event) => setTopic(event.target.value)} /></label>
    <label>Partitions <input aria-label="partitions" type="number" min="1" value=${partitions} onInput=${(event) => setPartitions(event.target.value)} /></label>
    <label>Configs, NAME=VALUE a line <textarea aria-label="configs" rows="3" placeholder="retention.ms=86400000" value=${configs} onInput=${(event) => setConfigs(event.target.value)}></textarea></label>
    <${Change} label="Create topic" method="POST" path="/v1/topics" done=${done}
      body=${() => ({ name: topic.trim(), partitions: Number(partitions), config: config() })} /></div>`;
}
