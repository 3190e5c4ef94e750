// SQL over topics: an editor, the rows, the plan. The query is the address, so that Back is the query before.
import { html, useEffect, useRef, useState } from "/console/vendor/htm-preact.js";
import { ask, askLines, name, useDoor } from "/console/doors.js";
import { Content, Facts, save, Table, Trouble } from "/console/parts.js";
import { bytes, count, inJson } from "/console/units.js";

const ROWS_MAX = 1000;
const KEPT = 20;
const SAVED_MAX = 200;
const NOTHING = { rows: null, plan: null, problem: null, isCut: false, ms: 0 };

export function Sql({ query, isPlan }) {
  const [text, setText] = useState(query ?? "");
  const [state, setState] = useState(NOTHING);
  const [busy, setBusy] = useState(null);
  const [turn, setTurn] = useState(0);
  const [saved, setSaved] = useState(savedQueries);
  const [files, setFiles] = useState([]);
  const editor = useRef(null);
  useEffect(() => {
    setText(query ?? "");
    setState(NOTHING);
    if (!query) return undefined;
    const stop = new AbortController();
    setBusy(stop);
    answer(query, isPlan, files, stop.signal).then((found) => {
      if (stop.signal.reason === LEFT) return;
      setBusy(null);
      setState(found);
      if (found.problem) mark(editor.current, query, found.problem.message);
      else remember(query);
    });
    return () => stop.abort(LEFT);
  }, [query, isPlan, turn]);
  const run = (plans) => {
    const wanted = text.trim();
    if (!wanted) return;
    if (wanted === query && plans === isPlan) setTurn(turn + 1);
    else location.hash = address(wanted, plans);
  };
  const keys = (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    run(false);
  };
  return html`<h2>SQL</h2>
    <textarea ref=${editor} data-search spellcheck="false" aria-label="query" placeholder=${'SELECT * FROM "orders" LIMIT 50'}
      value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${keys}></textarea>
    <div class="bar"><button class="main" disabled=${busy !== null} onClick=${() => run(false)}>Run</button>
      <button disabled=${busy !== null} onClick=${() => run(true)}>Explain</button>
      ${busy && html`<button onClick=${() => busy.abort()}>Stop</button><span class="dim" role="status">The query runs …</span>`}
      <span class="dim"><kbd>Ctrl</kbd> <kbd>Enter</kbd> runs it. A topic is a table; a query only reads.</span></div>
    <div class="bar"><label>Files to send with a query <input type="file" multiple accept=".csv,.parquet" onChange=${(event) => setFiles([...event.target.files])} /></label>
      ${files.map((file) => html`<code key=${file.name}>files.${/^[A-Za-z_]\w*\.\w+$/.test(file.name) ? file.name : `"${file.name.replaceAll('"', '""')}"`}</code>`)}</div>
    ${state.problem && html`<${Trouble} problem=${state.problem} />${placed(query, state.problem.message)}`}
    ${state.rows && html`<${Rows} state=${state} />`}
    ${state.plan && html`<${Plan} plan=${state.plan} />`}
    <${Saved} text=${text.trim()} saved=${saved} setSaved=${setSaved} />
    ${!query && html`<${Beginning} />`}`;
}

/** Queries that the user has named. They are the browser's: a broker without logins knows no users, and a query is also an address to pass on. */
function Saved({ text, saved, setSaved }) {
  const [title, setTitle] = useState("");
  const [problem, setProblem] = useState(null);
  const keep = (queries) => {
    try {
      localStorage.setItem("saved-queries", JSON.stringify(queries));
      setSaved(queries);
      setProblem(null);
      return true;
    } catch {
      setProblem({ message: "The browser keeps no more queries.", cure: "Delete some, or allow this page to store data." });
      return false;
    }
  };
  const add = (event) => {
    event.preventDefault();
    const others = saved.filter((each) => each.title !== title.trim());
    if (others.length >= SAVED_MAX) setProblem({ message: `${SAVED_MAX} queries are saved already.`, cure: "Delete one." });
    else if (keep([...others, { title: title.trim(), text }].sort((a, b) => a.title.localeCompare(b.title)))) setTitle("");
  };
  return html`<form class="bar" onSubmit=${add}><input aria-label="name of the query" placeholder="name" maxlength="100" value=${title} onInput=${(event) => setTitle(event.target.value)} />
      <button disabled=${!text || !title.trim()}>Save query</button></form>
    ${problem && html`<${Trouble} problem=${problem} />`}
    ${saved.length > 0 && html`<h3>Saved queries of this browser</h3>
      <ul>${saved.map((each) => html`<li key=${each.title}><a href=${address(each.text)} title=${each.text}>${each.title}</a>
        ${" "}<button aria-label=${`Delete ${each.title}`} onClick=${() => keep(saved.filter((one) => one !== each))}>Delete</button></li>`)}</ul>`}`;
}

function savedQueries() {
  try {
    const found = JSON.parse(localStorage.getItem("saved-queries")) ?? [];
    return found.filter((each) => typeof each?.title === "string" && typeof each.text === "string");
  } catch {
    return [];
  }
}

const LEFT = "the page shows another query";

export function address(query, isPlan = false) {
  return `#/${isPlan ? "explain" : "sql"}/${name(query)}`;
}

async function answer(query, isPlan, files, signal) {
  const begun = performance.now();
  try {
    const body = files.length ? { query, files: Object.fromEntries(await Promise.all(files.map(content))) } : { query };
    if (isPlan) return { ...NOTHING, plan: await ask("/v1/sql", "POST", { ...body, explain: true }, signal) };
    const { rows, isCut } = await askLines("/v1/sql", body, ROWS_MAX, signal);
    return { ...NOTHING, rows, isCut, ms: performance.now() - begun };
  } catch (problem) {
    return { ...NOTHING, problem };
  }
}

/** A file's name, and its content as the broker takes it. */
function content(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve([file.name, { base64: reader.result.slice(reader.result.indexOf(",") + 1) }]);
    reader.onerror = () => reject({ message: `${file.name} is unreadable: ${reader.error.message}`, cure: "Choose the file again." });
    reader.readAsDataURL(file);
  });
}

function Rows({ state }) {
  const { rows, isCut, ms } = state;
  const names = [...new Set(rows.flatMap(Object.keys))];
  const kind = (title) => (rows.every((row) => ["number", "bigint"].includes(typeof row[title]) || row[title] === null) ? "number" : "text");
  return html`<div class="bar"><span>${isCut ? `The first ${count(rows.length)} rows` : `${count(rows.length)} ${rows.length === 1 ? "row" : "rows"}`}, ${count(Math.round(ms))} ms</span>
      <button disabled=${!rows.length} onClick=${() => save("rows.jsonl", rows.map((row) => `${JSON.stringify(row, inJson)}\n`).join(""))}>Save as JSON lines</button>
      ${isCut && html`<span class="dim">All of them: <code>pqbroker sql "…" --json</code></span>`}</div>
    <${Table} rows=${rows} empty="No rows." columns=${names.map((title) => [title, (row) => cell(row[title]), kind(title), kind(title) === "number" ? (row) => row[title] : null])} />`;
}

function cell(value) {
  if (typeof value === "string" || value === null || value === undefined) return html`<${Content} content=${value} />`;
  return typeof value === "object" ? html`<${Content} content=${value} />` : String(value);
}

function Plan({ plan }) {
  return html`<h3>What it read</h3><${Facts} facts=${[["rows", count(plan.rows_read)], ["blobs", count(plan.blobs_read)], ["bytes", bytes(plan.bytes_read)]]} />
    <h3>Topics</h3><${Table} rows=${plan.scans ?? []} empty="None." columns=${[
      ["topic", (scan) => scan.file ? scan.topic : html`<a href=${`#/${scan.timestamp === undefined ? "topics" : "tables"}/${name(scan.topic)}`}>${scan.topic}</a>`, "text"], ["tablets", (scan) => scan.tablets.join(", "), "text"], ["columns", (scan) => scan.columns.join(", "), "text"],
      ["blocks", (scan) => (scan.blocks === undefined ? "" : `${count(scan.blocks_read)} of ${count(scan.blocks)}`), "text"],
    ]} /><h3>Plan</h3><pre class="plan">${plan.plan}</pre>`;
}

/** Where the first name that a message quotes stands in the query; null where it does not. */
function culprit(query, message) {
  for (const [, word] of message.matchAll(/["']([^"']+)["']/g)) {
    const at = query.indexOf(word);
    if (at >= 0) return { at, word };
  }
  return null;
}

function mark(editor, query, message) {
  const found = culprit(query, message);
  if (found) editor?.setSelectionRange(found.at, found.at + found.word.length);
}

function placed(query, message) {
  const found = culprit(query, message);
  if (!found) return null;
  const lines = query.slice(0, found.at).split("\n");
  return html`<p>In the query at line ${lines.length}, column ${lines[lines.length - 1].length + 1}: <code>${found.word}</code></p>`;
}

function earlier() {
  try {
    return JSON.parse(localStorage.getItem("queries")) ?? [];
  } catch {
    return [];
  }
}

function remember(query) {
  localStorage.setItem("queries", JSON.stringify([query, ...earlier().filter((each) => each !== query)].slice(0, KEPT)));
}

/** What one may begin with: queries that this browser has run, and topics. */
function Beginning() {
  const topics = useDoor("/v1/topics?limit=8", 1e9).data?.topics ?? [];
  const queries = earlier();
  return html`${queries.length > 0 && html`<h3>Earlier queries of this browser</h3>
      <ul>${queries.map((each) => html`<li><a href=${address(each)}><code>${each}</code></a></li>`)}</ul>`}
    ${topics.length > 0 && html`<h3>Begin with a topic</h3>
      <ul>${topics.map((topic) => html`<li><a href=${address(sample(topic.name))}><code>${sample(topic.name)}</code></a></li>`)}</ul>`}
    <p class="dim">Every topic has the columns <code>"$tablet_index"</code> (its partition), <code>"$row_index"</code> (the offset), <code>timestamp_ms</code>, <code>key</code>,
      <code>value</code> and <code>headers</code>; <code>decode(value)->>'$.name'</code> takes a field of JSON.</p>`;
}

export function sample(topic) {
  return `SELECT "$tablet_index", "$row_index", decode(key) AS key, decode(value) AS value FROM "${topic}" LIMIT 50`;
}
