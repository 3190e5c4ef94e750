// Transactions over tables: those that are open, and those that ended a while ago; aborting where pages may change something.
import { html, useState } from "/console/vendor/htm-preact.js";
import { exact, useDoor, useRights } from "/console/doors.js";
import { Change, Pager, Table, Trouble } from "/console/parts.js";
import { moment, span } from "/console/units.js";

const LIMIT = 100;
const STATES = ["", "open", "committing", "committed", "aborted"];
const KINDS = { open: "warn", committing: "warn", committed: "good", aborted: "dim" };

export function Transactions() {
  const [trail, setTrail] = useState([]);
  const [state, setState] = useState("");
  const after = trail[trail.length - 1];
  const query = `limit=${LIMIT}${state ? `&state=${state}` : ""}${after !== undefined ? `&after=${after}` : ""}`;
  const { data, problem, reload } = useDoor(`/v1/transactions?${query}`, 2, exact);
  const rights = useRights();
  const mayForce = rights.may("cluster", "alter");
  const mayAbort = (one) => one.state === "open" && (mayForce || (rights.writes && one.principal === `User:${rights.user}`));
  const choose = (event) => { setTrail([]); setState(event.target.value); };
  const columns = [
    ["transaction", (one) => html`<code>${one.transaction}</code>`, "name"], ["state", (one) => html`<span class=${KINDS[one.state]}>${one.state}</span>`],
    ["principal", (one) => one.principal], ["started", (one) => moment(one.started), "time"], ["age", (one) => span(Date.now() - one.started), "number"],
    ["timeout", (one) => span(one.timeout_ms), "number"], ["cause", (one) => one.cause ?? "", "text"],
    ["", (one) => (mayAbort(one) ? html`<${Abort} one=${one} force=${mayForce} done=${reload} />` : "")],
  ];
  return html`<h2>Transactions</h2><${Trouble} problem=${problem} />
    <div class="bar"><label>state <select aria-label="state" value=${state} onChange=${choose}>${STATES.map((each) => html`<option value=${each}>${each || "any"}</option>`)}</select></label></div>
    ${data && html`<${Table} keyOf=${(one) => one.transaction} rows=${data.transactions} empty="No transaction over tables is open, and none ended a while ago." columns=${columns} />
    <${Pager} trail=${trail} next=${data.next} go=${setTrail} />`}<${Unfinished} />`;
}

// Commits over several tablets that wait for a decision, or for a tablet that has to write its rows.
function Unfinished() {
  const [trail, setTrail] = useState([]);
  const after = trail[trail.length - 1];
  const { data, problem } = useDoor(`/v1/transactions/unfinished?limit=${LIMIT}${after !== undefined ? `&after=${after}` : ""}`, 2, exact);
  const place = (at) => (at.table === null ? `deleted tablet ${at.tablet_id}` : `${at.table} ${at.tablet_index}, cell ${at.cell}`);
  const columns = [
    ["transaction", (one) => html`<code>${one.transaction}</code>`, "name"], ["what", (one) => one.what],
    ["tablet", (one) => place(one.participant), "name"], ["home", (one) => place(one.home), "name"], ["since", (one) => moment(one.since), "time"],
    ["waits for", (one) => html`<span class="warn">${one.waits_for ?? ""}</span>`, "text"],
  ];
  return html`<h3>Unfinished commits over several tablets</h3><${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(one) => `${one.participant.tablet_id} ${one.participant.tablet_index} ${one.what} ${one.transaction}`} rows=${data.unfinished} empty="Nothing of a transaction is unfinished." columns=${columns} />
    <${Pager} trail=${trail} next=${data.next} go=${setTrail} />`}`;
}

// What must be typed first is the beginning of its name.
function Abort({ one, force, done }) {
  return html`<${Change} label="Abort" quiet danger confirm=${one.transaction.slice(0, 8)} method="POST" path=${`/v1/transactions/${one.transaction}/abort`} body=${{ force }} done=${done} />`;
}
