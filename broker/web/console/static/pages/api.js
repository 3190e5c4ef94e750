// Every path of the HTTP API, from the OpenAPI document.
import { html } from "/console/vendor/htm-preact.js";
import { useDoor } from "/console/doors.js";
import { Table, Trouble } from "/console/parts.js";

export function Api() {
  const { data, problem } = useDoor("/v1/openapi.json", 1e9);
  const rows = Object.entries(data?.paths ?? {}).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, about]) => ({ path, method: method.toUpperCase(), about })));
  return html`<h2>API</h2><p>The document is <a href="/v1/openapi.json">/v1/openapi.json</a>; metrics for Prometheus are at <a href="/metrics">/metrics</a>.</p>
    <${Trouble} problem=${problem} />
    ${data && html`<${Table} rows=${rows} empty="None." columns=${[
      ["method", (row) => html`<code>${row.method}</code>`], ["path", (row) => html`<code>${row.path}</code>`, "text"],
      ["what it does", (row) => row.about.summary, "text"],
      ["parameters", (row) => html`<span class="dim">${(row.about.parameters ?? []).filter((one) => one.in === "query").map((one) => one.name).join(", ")}</span>`, "text"],
    ]} />`}`;
}
