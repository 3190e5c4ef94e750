// A topic's configs: value, where it comes from, what it does; changed one at a time where pages may change something.
import { html, useState } from "/console/vendor/htm-preact.js";
import { name, useDoor } from "/console/doors.js";
import { Change, Table, Trouble } from "/console/parts.js";

export function Configs({ topic, writes }) {
  const path = `/v1/topics/${name(topic)}/configs`;
  const { data, problem, reload } = useDoor(path, 10);
  const [open, setOpen] = useState(null);
  const [like, setLike] = useState("");
  const rows = (data?.configs ?? []).filter((one) => one.name.includes(like.trim()));
  const done = () => { setOpen(null); reload(); };
  const edited = (one) => writes && html`<button aria-expanded=${one.name === open} aria-label=${`Change ${one.name}`}
    onClick=${() => setOpen(one.name === open ? null : one.name)}>Change</button>`;
  return html`<${Trouble} problem=${problem} />
    <div class="bar"><input data-search placeholder="name contains …" aria-label="name contains" value=${like} onInput=${(event) => setLike(event.target.value)} /></div>
    ${data && html`<${Table} keyOf=${(one) => one.name} rows=${rows} empty="No config has a name that contains this text."
      detail=${(one) => one.name === open && html`<${Editor} key=${one.name} config=${one} path=${path} done=${done} />`} columns=${[
      ["name", (one) => html`<code>${one.name}</code>`, "name"],
      ["value", (one) => html`<b class=${one.source === "DEFAULT" ? "dim" : ""}>${one.value}</b>`, "text"],
      ["set by", (one) => html`<span class="dim">${one.source.toLowerCase().replaceAll("_", " ")}</span>`],
      ["what it does", (one) => html`<span class=${one.effective ? "" : "dim"}>${one.documentation}</span>`, "text spare"],
      ["", edited],
    ]} />`}`;
}

function Editor({ config, path, done }) {
  const [value, setValue] = useState(config.value);
  const isSet = config.source === "DYNAMIC_TOPIC";
  return html`<div class="bar"><label><code>${config.name}</code> <input aria-label=${config.name} value=${value} onInput=${(event) => setValue(event.target.value)} /></label>
      <${Change} label="Set" method="PATCH" path=${path} body=${() => ({ configs: { [config.name]: value } })} done=${done} />
      ${isSet && html`<${Change} label="Back to the default" method="PATCH" path=${path} body=${{ configs: { [config.name]: null } }} done=${done} />`}</div>
    <p class="dim">${config.type.toLowerCase()}; the default is <code>${config.default === "" ? "empty" : config.default}</code>${config.effective ? "" : "; it is stored and shown, and has no effect in this broker"}.</p>`;
}
