// One topic: partitions, messages, configs, and writing to it.
import { html, useState } from "/console/vendor/htm-preact.js";
import { name, useDoor, useRights } from "/console/doors.js";
import { TopicCleaning } from "/console/pages/cleaning.js";
import { Configs } from "/console/pages/configs.js";
import { Fed } from "/console/pages/fed.js";
import { Messages } from "/console/pages/messages.js";
import { Produce } from "/console/pages/produce.js";
import { address, sample } from "/console/pages/sql.js";
import { Change, Facts, Table, Trouble } from "/console/parts.js";
import { bytes, count } from "/console/units.js";

// Each with the right that it needs.
const TABS = [["partitions", "Partitions", "describe"], ["messages", "Messages", "read"], ["produce", "Produce", "write"], ["configs", "Configs", "describe_configs"]];

export function Topic({ topic, tab }) {
  const { data, problem, reload } = useDoor(`/v1/topics/${name(topic)}`, 2);
  const rights = useRights({ topic });
  return html`<div class="crumbs"><a href="#/topics">Topics</a></div><h2>${topic}</h2>
    <div class="tabs">${TABS.filter(([, , right]) => !rights.isKnown || rights.has("topic", right)).map(([id, title]) => html`<a href=${`#/topics/${name(topic)}/${id}`} aria-current=${id === tab ? "page" : null}>${title}</a>`)}</div>
    <${Trouble} problem=${problem} />
    ${data && tab === "partitions" && html`<${Partitions} topic=${data} rights=${rights} reload=${reload} />`}
    ${data && tab === "messages" && html`<${Messages} topic=${topic} partitions=${data.partition_count} />`}
    ${data && tab === "produce" && html`<${Produce} topic=${topic} partitions=${data.partition_count} rights=${rights} />`}
    ${data && tab === "configs" && html`<${Configs} topic=${topic} writes=${rights.may("topic", "alter_configs")} />`}`;
}

function Partitions({ topic, rights, reload }) {
  const link = (at) => `#/topics/${name(topic.name)}/partitions/${at}`;
  return html`<${Facts} facts=${[["id", html`<code>${topic.id}</code>`], ["partitions", count(topic.partition_count)], ["records", `${count(topic.record_count)}, ${count(topic.written_count)} ever written`], ["records a second", topic.records_per_s === null ? "–" : count(topic.records_per_s)], ["size", bytes(topic.size_bytes)], ["SQL", html`<a href=${address(sample(topic.name))}>query its records</a>`]]} />
    <h3>Partitions</h3>
    <${Table} keyOf=${(one) => one.partition} rows=${topic.partitions} empty="None." columns=${[
      ["partition", (one) => html`<a href=${link(one.partition)}>${one.partition}</a>`, "number"],
      ["first offset", (one) => count(one.start_offset), "number", (one) => one.start_offset],
      ["end offset", (one) => count(one.end_offset), "number", (one) => one.end_offset],
      ["offsets", (one) => count(one.end_offset - one.start_offset), "number spare", (one) => one.end_offset - one.start_offset],
      ["size", (one) => bytes(one.size_bytes), "number", (one) => one.size_bytes],
      ["leader epoch", (one) => count(one.leader_epoch), "number spare"],
      ["tablet", (one) => html`<a href=${`#/tablets/${one.tablet}`}>${one.tablet}</a>`, "number"],
      ["writes", (one) => (one.writes_refused_by ? html`<span class="bad">refused: ${one.writes_refused_by}</span>` : html`<span class="good">taken</span>`)],
      ["", (one) => html`<a href=${link(one.partition)}>inside</a>`],
    ]} />
    <${TopicCleaning} topic=${topic.name} writes=${rights.may("topic", "alter")} />
    <${Fed} of="topic" named=${topic.name} />
    ${topic.next !== null && html`<p class="dim">The first ${topic.partitions.length} are shown.</p>`}
    ${rights.may("topic", "alter") && html`<h3>More partitions</h3><${Grow} topic=${topic} done=${reload} />`}
    ${rights.may("topic", "delete") && html`<h3>Delete</h3><${Change} label="Delete this topic" method="DELETE" danger confirm=${topic.name}
      path=${`/v1/topics/${name(topic.name)}`} done=${() => { location.hash = "#/topics"; }} />`}`;
}

function Grow({ topic, done }) {
  const [wanted, setWanted] = useState("");
  const least = topic.partition_count + 1;
  return html`<div class="bar"><label>partitions in all <input aria-label="partitions in all" type="number" min=${least} placeholder=${least} value=${wanted} onInput=${(event) => setWanted(event.target.value)} /></label>
    <${Change} label="Add partitions" quiet method="POST" path=${`/v1/topics/${name(topic.name)}/partitions`} body=${() => ({ count: Number(wanted || least) })} done=${() => { setWanted(""); done(); }} /></div>
    <p class="dim">Partitions are never taken away. Records with a key go to other partitions from then on.</p>`;
}
