// A tour for an empty broker: make a topic, write to it, see the record, query it. Each step shows its outcome here.
import { html, useState } from "/console/vendor/htm-preact.js";
import { askLines, name, useDoor, useRights } from "/console/doors.js";
import { Change, Content, Table, Trouble } from "/console/parts.js";
import { address } from "/console/pages/sql.js";
import { count, moment } from "/console/units.js";

const ROWS_MAX = 10;

export function Tour() {
  const [topic, setTopic] = useState("greetings");
  const rights = useRights({ topic });
  const found = useDoor(`/v1/topics/${name(topic)}`, 1);
  const isMade = found.data !== null;
  const isWritten = isMade && found.data.written_count > 0;
  const missing = found.problem?.code === "UNKNOWN_TOPIC_OR_PARTITION" ? null : found.problem;
  return html`<h2>Tour</h2><p>Four steps from an empty broker to a query. They are the same for any Kafka client; nothing here is special to this page.</p>
    <${Trouble} problem=${missing} />
    <ol class="tour">
      <${Step} title="Create a topic" isDone=${isMade} isNext=${!isMade}>
        ${isMade ? html`<p>The topic <a href=${`#/topics/${name(topic)}`}>${topic}</a> exists, with ${count(found.data.partition_count)} ${found.data.partition_count === 1 ? "partition" : "partitions"}.</p>`
          : html`<${Make} topic=${topic} setTopic=${setTopic} rights=${rights} done=${found.reload} />`}
      <//>
      <${Step} title="Write a record" isDone=${isWritten} isNext=${isMade && !isWritten}>
        ${isMade && html`<${Write} topic=${topic} rights=${rights} done=${found.reload} />`}
      <//>
      <${Step} title="See it" isDone=${isWritten} isNext=${false}>${isWritten && html`<${See} topic=${topic} />`}<//>
      <${Step} title="Query it" isDone=${false} isNext=${isWritten}>${isWritten && html`<${Query} topic=${topic} />`}<//>
    </ol>`;
}

function Step({ title, isDone, isNext, children }) {
  return html`<li class=${isDone ? "done" : isNext ? "next" : "later"}><h3>${title}${isDone && html` <span class="good">done</span>`}</h3>${children}</li>`;
}

function Make({ topic, setTopic, rights, done }) {
  return html`<div class="bar"><label>name <input aria-label="topic name" value=${topic} onInput=${(event) => setTopic(event.target.value.trim() || "greetings")} /></label>
      ${rights.makesTopics && html`<${Change} label="Create the topic" method="POST" path="/v1/topics" body=${{ name: topic }} done=${done} />`}</div>
    ${rights.isKnown && !rights.makesTopics && html`<${Shell} writes=${rights.writes} line=${`pqbroker topic create ${topic}`} />`}`;
}

function Write({ topic, rights, done }) {
  const [value, setValue] = useState("hello");
  const body = () => ({ records: [{ key: null, value }] });
  if (rights.isKnown && !rights.may("topic", "write")) return html`<${Shell} writes=${rights.writes} line=${`echo hello | pqbroker produce ${topic}`} />`;
  return html`<div class="bar"><label>value <input aria-label="record" value=${value} onInput=${(event) => setValue(event.target.value)} /></label>
    <${Change} label="Write the record" method="POST" path=${`/v1/topics/${name(topic)}/records`} body=${body} done=${done} /></div>`;
}

/** What to do where the page may not. */
function Shell({ writes, line }) {
  return html`<p>${writes ? "You have no right to do this. Somebody who has it can:" : "This page only reads. In a terminal:"} <code>${line}</code></p>`;
}

function See({ topic }) {
  const { data, problem } = useDoor(`/v1/topics/${name(topic)}/records?partition=0&offset=-${ROWS_MAX}&limit=${ROWS_MAX}`, 1);
  return html`<${Trouble} problem=${problem} />${data && html`<${Table} keyOf=${(record) => record.offset} rows=${data.records} empty="Partition 0 has no records." columns=${[
      ["offset", (record) => count(record.offset), "number"], ["time", (record) => moment(record.timestamp), "time"], ["value", (record) => html`<${Content} content=${record.value} />`, "text"],
    ]} />`}<p><a href=${`#/topics/${name(topic)}/messages`}>All messages</a>, in a terminal: <code>pqbroker consume ${topic} --from beginning</code></p>`;
}

function Query({ topic }) {
  const query = `SELECT "$row_index", decode(value) AS value FROM "${topic}" ORDER BY 1 DESC LIMIT ${ROWS_MAX}`;
  const [state, setState] = useState({ rows: null, problem: null, isBusy: false });
  const run = async () => {
    setState({ rows: null, problem: null, isBusy: true });
    try {
      setState({ rows: (await askLines("/v1/sql", { query }, ROWS_MAX)).rows, problem: null, isBusy: false });
    } catch (problem) {
      setState({ rows: null, problem, isBusy: false });
    }
  };
  return html`<p><code>${query}</code></p><div class="bar"><button class="main" disabled=${state.isBusy} onClick=${run}>Run the query</button>
      ${state.isBusy && html`<span class="dim">The first query starts a process for SQL …</span>`}</div><${Trouble} problem=${state.problem} />
    ${state.rows && html`<${Table} rows=${state.rows} empty="No rows." columns=${[["$row_index", (row) => row.$row_index, "number"], ["value", (row) => row.value, "text"]]} />
      <p>That is all. Next: <a href=${address(query)}>change the query</a>, <a href="#/topics">look at topics</a>, or connect a program of yours to the address on the <a href="#/overview">overview</a>.</p>`}`;
}
