// Kafka clients and their connections, with what each costs: bytes, requests, processor time. Measured while this is shown.
import { html, useState } from "/console/vendor/htm-preact.js";
import { useDoor } from "/console/doors.js";
import { Pager, Table, Trouble, useRises } from "/console/parts.js";
import { bytes, count, span } from "/console/units.js";

const SORTS = [["busy_ms", "processor time"], ["bytes_in", "bytes received"], ["bytes_out", "bytes sent"], ["begun", "requests"], ["connections", "connections"]];
const COSTS = ["bytes_in", "bytes_out", "begun", "busy_ms"];

export function Clients({ tab }) {
  const isSingle = tab === "connections";
  return html`<h2>Clients</h2>
    <div class="tabs"><a href="#/clients" aria-current=${isSingle ? null : "page"}>By client</a><a href="#/clients/connections" aria-current=${isSingle ? "page" : null}>By connection</a></div>
    ${isSingle ? html`<${Connections} />` : html`<${ByClient} />`}
    <p class="dim">Processor time is that of the broker's one thread for requests, as each begins: a client with 50 % keeps it busy half of the time.
      Disk writes, and waits for data, are not in it.</p>`;
}

function name(one) {
  return one.client_id || html`<span class="dim">unnamed</span>`;
}

/** Columns of costs a second; `rises`: of useRises, by `keyOf`. */
function costs(rises, keyOf) {
  const rate = (field, show) => (one) => {
    const rise = rises.get(keyOf(one))?.[field];
    return rise === null || rise === undefined ? "–" : show(rise);
  };
  const value = (field) => (one) => rises.get(keyOf(one))?.[field] ?? -1;
  return [
    ["processor", rate("busy_ms", (rise) => `${(rise / 10).toFixed(1)} %`), "number", value("busy_ms")],
    ["requests/s", rate("begun", (rise) => count(Math.round(10 * rise) / 10)), "number", value("begun")],
    ["received/s", rate("bytes_in", bytes), "number", value("bytes_in")],
    ["sent/s", rate("bytes_out", bytes), "number", value("bytes_out")],
  ];
}

const clientKey = (one) => `${one.principal} ${one.client_id}`;

function ByClient() {
  const [sort, setSort] = useState(SORTS[0][0]);
  const { data, problem } = useDoor(`/v1/clients?limit=100&sort=${sort}`, 2);
  const rises = useRises(data?.clients, clientKey, COSTS);
  return html`<div class="bar"><label>the first 100 by <select aria-label="order" value=${sort} onChange=${(event) => setSort(event.target.value)}>${SORTS.map(([id, title]) => html`<option value=${id}>${title}</option>`)}</select></label>
      ${data && html`<span class="dim">${count(data.total)} ${data.total === 1 ? "client" : "clients"}</span>`}</div><${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${clientKey} rows=${data.clients} empty="No Kafka client is connected." columns=${[
      ["client", name, "name", (one) => one.client_id ?? ""], ["user", (one) => one.principal.replace(/^User:/, ""), "text spare", (one) => one.principal],
      ["connections", (one) => count(one.connections), "number", (one) => one.connections],
      ...costs(rises, clientKey),
      ["received", (one) => bytes(one.bytes_in), "number spare", (one) => one.bytes_in], ["sent", (one) => bytes(one.bytes_out), "number spare", (one) => one.bytes_out],
      ["in progress", (one) => count(one.requests), "number spare", (one) => one.requests],
    ]} />`}`;
}

function Connections() {
  const [trail, setTrail] = useState([]);
  const after = trail[trail.length - 1];
  const { data, problem } = useDoor(`/v1/connections?measure=true&limit=100${after !== undefined ? `&after=${after}` : ""}`, 2);
  const rises = useRises(data?.connections, (one) => one.id, COSTS);
  return html`<${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(one) => one.id} rows=${data.connections} empty="No Kafka client is connected." columns=${[
      ["client", name, "name"], ["from", (one) => html`<code>${one.address}</code>`], ["user", (one) => one.principal.replace(/^User:/, ""), "text spare"],
      ["listener", (one) => one.listener, "spare"], ...costs(rises, (one) => one.id),
      ["received", (one) => bytes(one.bytes_in), "number spare"], ["sent", (one) => bytes(one.bytes_out), "number spare"],
      ["in progress", (one) => count(one.requests), "number spare"], ["idle", (one) => span(one.idle_ms), "number"],
      ["requests used", (one) => html`<span class="dim">${one.apis.join(", ")}</span>`, "text spare"],
    ]} /><${Pager} trail=${trail} next=${data.next} go=${setTrail} />`}`;
}
