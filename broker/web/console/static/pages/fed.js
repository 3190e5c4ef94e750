// Topics that feed sorted tables: on the page of the table, and on that of the topic.
import { html } from "/console/vendor/htm-preact.js";
import { name, useDoor } from "/console/doors.js";
import { Table } from "/console/parts.js";
import { count } from "/console/units.js";

const KINDS = { running: "good", waiting: "warn", stopped: "bad", paused: "dim" };

// `of`: table or topic, whose name is `named`.
export function Fed({ of, named }) {
  const { data } = useDoor(`/v1/materializations?${of}=${name(named)}`, 3);
  if (!data?.materializations.length) return null;
  return html`<h3>${of === "topic" ? "Feeds tables" : "Fed from a topic"}</h3>
    <${Table} keyOf=${(one) => one.table} rows=${data.materializations} empty="None." columns=${[
      of === "topic" ? ["table", (one) => html`<a href=${`#/tables/${name(one.table)}`}>${one.path}</a>`, "name"] : ["topic", (one) => html`<a href=${`#/topics/${name(one.topic)}`}>${one.topic}</a>`, "name"],
      ["state", (one) => html`<span class=${KINDS[one.state]}>${one.state}</span>`], ["lag", (one) => count(one.lag), "number", (one) => one.lag],
      ["dead letters", (one) => count(one.dead_letter_count), "number", (one) => one.dead_letter_count],
      ["reason", (one) => (one.reason ? `${one.reason.message}. ${one.reason.cure}` : ""), "text"],
    ]} />`;
}
