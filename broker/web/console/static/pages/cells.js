// Cells and their bundles, and tablets that move between cells; made and removed where pages may change something.
import { html, useState } from "/console/vendor/htm-preact.js";
import { name, useDoor, useRights } from "/console/doors.js";
import { Nodes } from "/console/pages/nodes.js";
import { Change, Table, Trouble } from "/console/parts.js";
import { count, moment, span } from "/console/units.js";

const HEALTH = { good: "good", degraded: "warn", "reading only": "warn", offline: "dim", opening: "dim", failed: "bad" };
const STATES = { done: "good", failed: "bad", left: "dim" };
const SYSTEM_CELL = 0;

const Health = ({ of }) => html`<span class=${HEALTH[of] ?? "warn"}>${of}</span>`;

export function Cells() {
  const cells = useDoor("/v1/cells", 3);
  const bundles = useDoor("/v1/bundles", 3);
  const moves = useDoor("/v1/moves", 2);
  const nodes = useDoor("/v1/node", 10).data?.nodes ?? 1;
  const mayChange = useRights().may("cluster", "alter");
  const done = () => { cells.reload(); bundles.reload(); };
  return html`<h2>Cells</h2><p class="dim">A cell is a unit of storage that holds tablets: each opens, fails and recovers alone. A bundle is a group of cells; a topic names the bundle whose cells hold it (pq.bundle).</p>
    <${Trouble} problem=${cells.problem} />
    ${cells.data && html`<${Table} keyOf=${(one) => one.id} rows=${cells.data.cells} empty="None." columns=${[
      ["cell", (one) => one.id, "number", (one) => one.id], ["bundle", (one) => one.bundle, "text", (one) => one.bundle],
      ["health", (one) => html`<${Health} of=${one.health} />`, "", (one) => one.health],
      ...(nodes > 1 ? [["node", (one) => one.node ?? html`<span class="dim">none</span>`, "number", (one) => one.node ?? 0]] : []),
      ["tablets", (one) => count(one.tablets), "number", (one) => one.tablets], ["generation", (one) => count(one.generation), "number spare", (one) => one.generation ?? -1],
      ["why", (one) => one.cause, "text"],
      ...(mayChange ? [["", (one) => one.id !== SYSTEM_CELL && html`<${RemoveCell} key=${one.id} cell=${one} done=${done} />`]] : []),
    ]} />`}
    ${mayChange && bundles.data && html`<${NewCell} bundles=${bundles.data.bundles} done=${done} />`}
    ${nodes > 1 && html`<${Nodes} total=${nodes} />`}
    <h3>Bundles</h3><${Trouble} problem=${bundles.problem} />
    ${bundles.data && html`<${Table} keyOf=${(one) => one.name} rows=${bundles.data.bundles} empty="None." columns=${[
      ["bundle", (one) => one.name, "name", (one) => one.name], ["health", (one) => (one.cells.length ? html`<${Health} of=${one.health} />` : ""), "", (one) => one.health],
      ["cells", (one) => one.cells.join(", ") || html`<span class="dim">none</span>`, "text"], ["on nodes with", (one) => one.node_tag_filter || html`<span class="dim">any tags</span>`, "text spare"],
      ["options set", (one) => html`<code>${options(one)}</code>`, "text spare"],
      ...(mayChange ? [["", (one) => one.name !== "default" && !one.cells.length && html`<${Change} label="Remove" quiet danger confirm=${one.name} method="DELETE" path=${`/v1/bundles/${name(one.name)}`} done=${done} />`]] : []),
    ]} />`}
    ${mayChange && html`<${NewBundle} done=${done} />`}
    <h3>Tablets that move</h3><${Trouble} problem=${moves.problem} />
    ${moves.data && html`<${Table} keyOf=${(one) => `${one.tablet} ${one.begun} ${one.to_cell}`} rows=${moves.data.moves} empty="No tablet has moved since the broker opened its cells." columns=${[
      ["tablet", (one) => html`<a href=${`#/tablets/${one.tablet}`}>${one.tablet}</a>`, "number"], ["topic or table", (one) => one.topic, "name"],
      ["from cell", (one) => one.from_cell, "number"], ["to cell", (one) => one.to_cell, "number"],
      ["state", (one) => html`<span class=${STATES[one.state] ?? "warn"}>${one.state}</span>`],
      ["begun", (one) => moment(one.begun), "time spare"], ["took", (one) => span((one.ended ?? Date.now()) - one.begun), "number"], ["why it failed", (one) => one.failure, "text"],
    ]} />${moves.data.is_cut && html`<p class="dim">The first ${moves.data.moves.length} are shown.</p>`}`}`;
}

/** Options that were set, NAME=VALUE; the others have their defaults. */
function options(bundle) {
  return Object.entries(bundle.options).filter(([title]) => bundle.options_without_effect.includes(title)).map(([title, value]) => `${title}=${typeof value === "object" ? JSON.stringify(value) : value}`).join(" ");
}

function RemoveCell({ cell, done }) {
  const path = `/v1/cells/${cell.id}${cell.tablets ? "?evacuate=true" : ""}`;
  return html`<${Change} label=${cell.tablets ? "Move its tablets and remove" : "Remove"} quiet danger confirm=${`cell ${cell.id}`} method="DELETE" path=${path} done=${done} />`;
}

function NewCell({ bundles, done }) {
  const [bundle, setBundle] = useState("default");
  return html`<div class="bar"><label>in bundle <select aria-label="bundle of the new cell" value=${bundle} onChange=${(event) => setBundle(event.target.value)}>
      ${bundles.map((one) => html`<option value=${one.name}>${one.name}</option>`)}</select></label>
    <${Change} label="Add a cell" quiet method="POST" path="/v1/cells" body=${{ bundle }} done=${done} /></div>`;
}

function NewBundle({ done }) {
  const [title, setTitle] = useState("");
  const [filter, setFilter] = useState("");
  const body = () => ({ name: title.trim(), ...(filter.trim() && { node_tag_filter: filter.trim() }) });
  return html`<div class="bar"><label>name <input aria-label="name of the new bundle" value=${title} onInput=${(event) => setTitle(event.target.value)} /></label>
    <label>on nodes with tags <input aria-label="node tags" placeholder="any" value=${filter} onInput=${(event) => setFilter(event.target.value)} /></label>
    <${Change} label="Add a bundle" quiet method="POST" path="/v1/bundles" body=${body} done=${() => { setTitle(""); setFilter(""); done(); }} /></div>`;
}
