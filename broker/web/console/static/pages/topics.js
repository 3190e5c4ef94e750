// All topics, a page at a time: the broker may have ten thousand.
import { html, useState } from "/console/vendor/htm-preact.js";
import { name, useDoor } from "/console/doors.js";
import { Pager, Table, Trouble } from "/console/parts.js";
import { bytes, count } from "/console/units.js";

const LIMIT = 100;

export function Topics() {
  const [trail, setTrail] = useState([]);
  const [from, setFrom] = useState("");
  // A list begins behind a name: what is typed is a prefix, so that it begins right before it.
  const after = trail.length ? trail[trail.length - 1] : before(from);
  const { data, problem } = useDoor(`/v1/topics?limit=${LIMIT}${after ? `&after=${name(after)}` : ""}`, 3);
  const rows = (data?.topics ?? []).filter((topic) => topic.name.startsWith(from));
  return html`<h2>Topics</h2>
    <div class="bar"><input data-search placeholder="name begins with …" aria-label="name begins with" value=${from}
      onInput=${(event) => { setFrom(event.target.value); setTrail([]); }} /></div>
    <${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(topic) => topic.id} rows=${rows}
      empty=${from ? "No topic begins so." : html`No topic yet. Write to one: <code>echo hello | pqbroker produce greetings</code>`}
      columns=${[
        ["topic", (topic) => html`<a href=${`#/topics/${name(topic.name)}`}>${topic.name}</a>`, "text"],
        ["partitions", (topic) => count(topic.partition_count), "number"],
        ["size", (topic) => bytes(topic.size_bytes), "number"],
        ["", (topic) => html`<a href=${`#/topics/${name(topic.name)}/messages`}>messages</a>`],
      ]} />
      <${Pager} trail=${trail} next=${rows.length ? data.next : null} go=${setTrail} />`}`;
}

/** The greatest name before all that begin with `prefix`, nearly. */
function before(prefix) {
  if (!prefix) return "";
  const last = prefix.charCodeAt(prefix.length - 1);
  return prefix.slice(0, -1) + (last > 33 ? `${String.fromCharCode(last - 1)}~` : "");
}
