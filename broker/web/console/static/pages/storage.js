// Pools and their segment files.
import { html, useState } from "/console/vendor/htm-preact.js";
import { name, useDoor } from "/console/doors.js";
import { Pager, Table, Trouble } from "/console/parts.js";
import { bytes, count } from "/console/units.js";

export function Storage() {
  const [trail, setTrail] = useState([]);
  const after = trail[trail.length - 1];
  const pools = useDoor("/v1/pools", 3);
  const { data, problem } = useDoor(`/v1/segments?limit=100${after ? `&after=${name(after)}` : ""}`, 3);
  return html`<h2>Storage</h2><${Trouble} problem=${pools.problem ?? problem} />
    ${pools.data && html`<p class="dim">Cell ${pools.data.cell}</p><${Table} keyOf=${(one) => one.name} rows=${pools.data.pools} empty="None." columns=${[
      ["pool", (one) => one.name], ["space", (one) => html`<span class=${one.status === "green" ? "good" : "warn"}>${one.status}</span>`],
      ["free", (one) => bytes(one.free_bytes), "number"], ["capacity", (one) => bytes(one.total_bytes), "number"],
      ["live", (one) => bytes(one.live_bytes), "number"], ["trash", (one) => bytes(one.trash_bytes), "number"],
      ["segments", (one) => count(one.segments), "number"], ["directory", (one) => html`<code>${one.directory}</code>`, "text"],
    ]} />`}
    <h3>Segments</h3>
    ${data && html`<${Table} keyOf=${(one) => one.id} rows=${data.segments} empty="None yet: what is small lies in the index." columns=${[
      ["segment", (one) => html`<code>${one.id}</code>`, "text"], ["size", (one) => bytes(one.size_bytes), "number"],
      ["live", (one) => bytes(one.live_bytes), "number"], ["trash", (one) => bytes(one.trash_bytes), "number"],
      ["", (one) => (one.active ? html`<span class="good">written to</span>` : "")],
    ]} /><${Pager} trail=${trail} next=${data.next} go=${setTrail} />`}`;
}
