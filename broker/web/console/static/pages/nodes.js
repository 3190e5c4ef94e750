// The nodes of a broker with several, and their restart one by one; it is asked for where pages may change something.
import { html } from "/console/vendor/htm-preact.js";
import { useDoor, useRights } from "/console/doors.js";
import { Change, Trouble } from "/console/parts.js";

const KINDS = { idle: "dim", running: "warn", done: "good", failed: "bad" };

// `total`: how many nodes there are.
export function Nodes({ total }) {
  const { data, problem, reload } = useDoor("/v1/restart", 2);
  const mayChange = useRights().may("cluster", "alter");
  return html`<h3>Nodes</h3><p>This broker has ${total} nodes. A restart of all takes one after the other, the first one last: others run its cells meanwhile, and clients are served.</p>
    <${Trouble} problem=${problem} />
    ${data && html`<p>Last restart: <span class=${KINDS[data.state]}>${data.state}</span>${data.state !== "idle" && html`, ${data.restarted.length} of ${data.nodes} nodes have their cells again <progress max=${data.nodes} value=${data.restarted.length} aria-label="nodes that were restarted" />`}</p>
      ${data.failure && html`<p class="bad">${data.failure}</p>`}
      ${mayChange && data.state !== "running" && html`<${Change} label="Restart all nodes one by one" quiet danger confirm="restart" method="POST" path="/v1/restart" done=${reload} />`}`}`;
}
