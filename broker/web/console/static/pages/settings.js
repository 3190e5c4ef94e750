// Settings of the node: those that were changed first, all on demand.
import { html, useState } from "/console/vendor/htm-preact.js";
import { name, useDoor } from "/console/doors.js";
import { Pager, Table, Trouble } from "/console/parts.js";

export function Settings() {
  const [isAll, setAll] = useState(false);
  const [trail, setTrail] = useState([]);
  const after = trail[trail.length - 1];
  const { data, problem } = useDoor(`/v1/settings?limit=100&changed=${!isAll}${after ? `&after=${name(after)}` : ""}`, 10);
  return html`<h2>Settings</h2>
    <div class="bar"><button onClick=${() => { setAll(!isAll); setTrail([]); }}>${isAll ? "Show the changed ones" : "Show all"}</button></div>
    <${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(one) => one.name} rows=${data.settings} empty="All settings have their defaults." columns=${[
      ["name", (one) => html`<code>${one.name}</code>`, "name"], ["value", (one) => html`<b class=${one.source === "DEFAULT" ? "dim" : ""}>${one.value}</b>`, "text"],
      ["default", (one) => html`<span class="dim">${one.default}</span>`, "text spare"], ["set by", (one) => html`<span class="dim">${one.source.toLowerCase().replaceAll("_", " ")}</span>`, "spare"],
      ["what it does", (one) => html`<span class=${one.effective ? "" : "dim"}>${one.documentation}</span>`, "prose"],
    ]} /><${Pager} trail=${trail} next=${data.next} go=${setTrail} />`}`;
}
