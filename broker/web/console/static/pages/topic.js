// One topic: partitions, messages, configs, and writing to it.
import { html } from "/console/vendor/htm-preact.js";
import { name, useDoor, useWrites } from "/console/doors.js";
import { TopicCleaning } from "/console/pages/cleaning.js";
import { Configs } from "/console/pages/configs.js";
import { Fed } from "/console/pages/fed.js";
import { Messages } from "/console/pages/messages.js";
import { Produce } from "/console/pages/produce.js";
import { address, sample } from "/console/pages/sql.js";
import { Change, Facts, Table, Trouble } from "/console/parts.js";
import { bytes, count } from "/console/units.js";

const TABS = [["partitions", "Partitions"], ["messages", "Messages"], ["produce", "Produce"], ["configs", "Configs"]];

export function Topic({ topic, tab }) {
  const { data, problem } = useDoor(`/v1/topics/${name(topic)}`, 2);
  const writes = useWrites();
  return html`<div class="crumbs"><a href="#/topics">Topics</a></div><h2>${topic}</h2>
    <div class="tabs">${TABS.map(([id, title]) => html`<a href=${`#/topics/${name(topic)}/${id}`} aria-current=${id === tab ? "page" : null}>${title}</a>`)}</div>
    <${Trouble} problem=${problem} />
    ${data && tab === "partitions" && html`<${Partitions} topic=${data} writes=${writes} />`}
    ${data && tab === "messages" && html`<${Messages} topic=${topic} partitions=${data.partition_count} />`}
    ${data && tab === "produce" && html`<${Produce} topic=${topic} partitions=${data.partition_count} writes=${writes} />`}
    ${data && tab === "configs" && html`<${Configs} topic=${topic} writes=${writes} />`}`;
}

function Partitions({ topic, writes }) {
  const link = (at) => `#/topics/${name(topic.name)}/partitions/${at}`;
  return html`<${Facts} facts=${[["id", html`<code>${topic.id}</code>`], ["partitions", count(topic.partition_count)], ["size", bytes(topic.size_bytes)], ["SQL", html`<a href=${address(sample(topic.name))}>query its records</a>`]]} />
    <h3>Partitions</h3>
    <${Table} keyOf=${(one) => one.partition} rows=${topic.partitions} empty="None." columns=${[
      ["partition", (one) => html`<a href=${link(one.partition)}>${one.partition}</a>`, "number"],
      ["first offset", (one) => count(one.start_offset), "number", (one) => one.start_offset],
      ["end offset", (one) => count(one.end_offset), "number", (one) => one.end_offset],
      ["offsets", (one) => count(one.end_offset - one.start_offset), "number", (one) => one.end_offset - one.start_offset],
      ["size", (one) => bytes(one.size_bytes), "number", (one) => one.size_bytes],
      ["leader epoch", (one) => count(one.leader_epoch), "number"],
      ["tablet", (one) => html`<a href=${`#/tablets/${one.tablet}`}>${one.tablet}</a>`, "number"],
      ["writes", (one) => (one.writes_refused_by ? html`<span class="bad">refused: ${one.writes_refused_by}</span>` : html`<span class="good">taken</span>`)],
      ["", (one) => html`<a href=${link(one.partition)}>inside</a>`],
    ]} />
    <${TopicCleaning} topic=${topic.name} writes=${writes} />
    <${Fed} of="topic" named=${topic.name} />
    ${topic.next !== null && html`<p class="dim">The first ${topic.partitions.length} are shown.</p>`}
    ${writes && html`<h3>Delete</h3><${Change} label="Delete this topic" method="DELETE" danger confirm=${topic.name}
      path=${`/v1/topics/${name(topic.name)}`} done=${() => { location.hash = "#/topics"; }} />`}`;
}
