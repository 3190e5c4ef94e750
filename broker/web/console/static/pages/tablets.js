// Tablets, and what is in one: channels and their history, keys, blobs.
import { html, useState } from "/console/vendor/htm-preact.js";
import { name, useDoor } from "/console/doors.js";
import { Facts, Pager, Table, Trouble } from "/console/parts.js";
import { bytes, count, moment } from "/console/units.js";

export function Tablets() {
  const [trail, setTrail] = useState([]);
  const after = trail[trail.length - 1];
  const { data, problem } = useDoor(`/v1/tablets?limit=100${after !== undefined ? `&after=${after}` : ""}`, 3);
  return html`<h2>Tablets</h2><${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(one) => one.id} rows=${data.tablets} empty="None." columns=${[
      ["tablet", (one) => html`<a href=${`#/tablets/${one.id}`}>${one.id}</a>`, "number"], ["type", (one) => one.type],
      ["serves", (one) => (one.topic ? served(one) : html`<span class="dim">${one.owner}</span>`), "text"],
      ["state", (one) => one.state], ["generation", (one) => count(one.generation), "number"], ["cell", (one) => one.cell], ["partitions", (one) => count(one.partition_count), "number"],
    ]} /><${Pager} trail=${trail} next=${data.next} go=${setTrail} />`}`;
}

export function Tablet({ tablet }) {
  const { data, problem } = useDoor(`/v1/tablets/${tablet}`, 3);
  return html`<div class="crumbs"><a href="#/tablets">Tablets</a></div><h2>Tablet ${tablet}</h2><${Trouble} problem=${problem} />
    ${data && html`<${Facts} facts=${[
      ["type", data.type], ["serves", data.topic ? served(data) : data.owner], ["cell", data.cell],
      ["state", data.state], ["generation", count(data.generation)], ["commits since its start", count(data.commits)],
      ["keys", count(data.key_count)], ["size", bytes(data.size_bytes)],
    ]} />
    <h3>Channels</h3>
    <${Table} keyOf=${(one) => one.channel} rows=${data.channels} empty="None." columns=${[
      ["channel", (one) => one.channel, "number"], ["holds", (one) => one.holds], ["pool", (one) => one.pool],
      ["space", (one) => html`<span class=${one.status === "green" ? "good" : "warn"}>${one.status}</span>`],
      ["blobs written", (one) => count(one.puts), "number"], ["bytes written", (one) => bytes(one.put_bytes), "number"],
      ["history, by generation", (one) => html`<div class="ribbon">${one.history.map((part) => html`<span title=${`from generation ${part.from_generation}`}>${part.from_generation}… ${part.pool}</span>`)}</div>`],
    ]} />
    ${data.type === "persqueue" && html`<${Keys} tablet=${tablet} /><${Blobs} tablet=${tablet} />`}`}`;
}

function Keys({ tablet }) {
  const [trail, setTrail] = useState([]);
  const from = trail[trail.length - 1];
  const { data, problem } = useDoor(`/v1/tablets/${tablet}/keys?limit=50${from ? `&from=${name(from)}` : ""}`, 5);
  return html`<h3>Keys</h3><${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(one) => one.key} rows=${data.keys} empty="None." columns=${[
      ["key", (one) => html`<code>${one.key}</code>`, "text"], ["size", (one) => bytes(one.size_bytes), "number"],
      ["created", (one) => moment(one.created), "time"], ["where", (one) => (one.inline ? "in the index" : `${one.blobs.length} ${one.blobs.length === 1 ? "blob" : "blobs"}`)],
    ]} /><${Pager} trail=${trail} next=${data.next} go=${setTrail} />`}`;
}

function Blobs({ tablet }) {
  const [trail, setTrail] = useState([]);
  const after = trail[trail.length - 1];
  const { data, problem } = useDoor(`/v1/blobs?tablet=${tablet}&limit=50${after ? `&after=${name(after)}` : ""}`, 5);
  return html`<h3>Blobs</h3><${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(one) => one.id} rows=${data.blobs} empty="None: small values lie in the index." columns=${[
      ["blob", (one) => html`<code>${one.id}</code>`, "text"], ["channel", (one) => one.channel, "number"],
      ["generation", (one) => count(one.generation), "number"], ["size", (one) => bytes(one.size_bytes), "number"], ["pool", (one) => one.pool ?? "index"],
    ]} /><${Pager} trail=${trail} next=${data.next} go=${setTrail} />`}`;
}

// A link to the topic of a tablet, or to its table if that is a sorted one.
function served(tablet) {
  return html`<a href=${`#/${tablet.type === "sorted" ? "tables" : "topics"}/${name(tablet.topic)}`}>${tablet.topic}</a>`;
}
