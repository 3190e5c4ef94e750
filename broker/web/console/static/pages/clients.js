// Connections of Kafka clients.
import { html, useState } from "/console/vendor/htm-preact.js";
import { useDoor } from "/console/doors.js";
import { Pager, Table, Trouble } from "/console/parts.js";
import { bytes, count, span } from "/console/units.js";

export function Clients() {
  const [trail, setTrail] = useState([]);
  const after = trail[trail.length - 1];
  const { data, problem } = useDoor(`/v1/connections?limit=100${after !== undefined ? `&after=${after}` : ""}`, 2);
  return html`<h2>Clients</h2><${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(one) => one.id} rows=${data.connections} empty="No Kafka client is connected." columns=${[
      ["client", (one) => one.client_id ?? html`<span class="dim">unnamed</span>`, "name"], ["from", (one) => html`<code>${one.address}</code>`],
      ["listener", (one) => one.listener], ["received", (one) => bytes(one.bytes_in), "number"], ["sent", (one) => bytes(one.bytes_out), "number"],
      ["in work", (one) => count(one.requests), "number"], ["idle", (one) => span(one.idle_ms), "number"],
      ["asks", (one) => html`<span class="dim">${one.apis.join(", ")}</span>`, "text"],
    ]} /><${Pager} trail=${trail} next=${data.next} go=${setTrail} />`}`;
}
