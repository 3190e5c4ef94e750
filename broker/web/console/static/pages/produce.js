// Writing one record by hand.
import { html, useState } from "/console/vendor/htm-preact.js";
import { name } from "/console/doors.js";
import { Change, Empty } from "/console/parts.js";

export function Produce({ topic, partitions, rights }) {
  const [key, setKey] = useState("");
  const [value, setValue] = useState("");
  const [partition, setPartition] = useState("");
  const [told, setTold] = useState("");
  if (rights.writes && !rights.has("topic", "write")) return html`<${Empty}>You may not write to this topic.<//>`;
  if (!rights.writes) {
    return html`<${Empty}>This page only reads. To write from here,
      start the broker with <code>--set pqbroker.console.writes=true</code>.<//>`;
  }
  const body = () => {
    const record = { key: key || null, value };
    if (partition !== "") record.partition = Number(partition);
    return { records: [record] };
  };
  return html`<div class="bar"><label>key <input value=${key} placeholder="none" onInput=${(event) => setKey(event.target.value)} /></label>
      <label>partition <select value=${partition} onChange=${(event) => setPartition(event.target.value)}><option value="">by key</option>
        ${Array.from({ length: Math.min(partitions, 1000) }, (_, at) => html`<option value=${String(at)}>${at}</option>`)}</select></label></div>
    <textarea aria-label="value" placeholder="value" value=${value} onInput=${(event) => setValue(event.target.value)}></textarea>
    <div class="bar"><${Change} label="Write" method="POST" path=${`/v1/topics/${name(topic)}/records`} body=${body}
      done=${(answer) => setTold(`Written at partition ${answer.offsets[0].partition}, offset ${answer.offsets[0].offset}.`)} /><span class="good">${told}</span></div>`;
}
