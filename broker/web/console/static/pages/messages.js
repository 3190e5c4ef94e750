// Records of a topic: a partition from where one wants, or all partitions as they come.
import { html, useEffect, useRef, useState } from "/console/vendor/htm-preact.js";
import { name, Problem, useDoor } from "/console/doors.js";
import { RecordDetail, shownContent } from "/console/pages/record.js";
import { SearchState, useSearch } from "/console/pages/search.js";
import { Content, save, Table, Trouble } from "/console/parts.js";
import { count, moment } from "/console/units.js";

const LIMIT = 100;
const SHOWN_MAX = 500;

export function Messages({ topic, partitions }) {
  const [partition, setPartition] = useState("0");
  const [from, setFrom] = useState("-100");
  const [filter, setFilter] = useState("");
  const [isLive, setLive] = useState(false);
  const [open, setOpen] = useState(null);
  const where = /^-?\d+$/.test(from) ? `offset=${from}` : `from=${name(from)}`;
  const path = isLive ? "" : `/v1/topics/${name(topic)}/records?partition=${partition}&${where}&limit=${LIMIT}`;
  const { data, problem } = useDoor(path, 1e9);
  const live = useTail(isLive ? topic : null);
  const search = useSearch(topic);
  const records = search.isOpen ? search.records : isLive ? live.records : data?.records ?? [];
  const shown = search.isOpen ? records : records.filter((record) => matches(record, filter));
  const look = () => {
    if (!filter) return;
    setLive(false);
    search.ask(termsOf(filter));
  };
  return html`<div class="bar">
      <label>partition <select value=${isLive ? "all" : partition} disabled=${isLive} onChange=${(event) => setPartition(event.target.value)}>
        ${isLive && html`<option value="all">all</option>`}
        ${Array.from({ length: Math.min(partitions, 1000) }, (_, at) => html`<option value=${String(at)}>${at}</option>`)}</select></label>
      <label>from <input size="12" value=${from} disabled=${isLive} list="from-places" onChange=${(event) => setFrom(event.target.value || "earliest")} /></label>
      <datalist id="from-places">${["earliest", "-100", "1h", "1d"].map((each) => html`<option value=${each} />`)}</datalist>
      <input data-search placeholder="containing …" aria-label="containing" value=${filter} onInput=${(event) => setFilter(event.target.value)}
        onKeyDown=${(event) => event.key === "Enter" && look()} />
      <button disabled=${!filter || search.isBusy} title="Text; /regular expression/; or a condition on JSON such as id = 7" onClick=${look}>Search all partitions</button>
      <button aria-pressed=${isLive} class=${isLive ? "main" : ""} onClick=${() => { search.close(); setLive(!isLive); }}>${isLive ? "Stop" : "Live, all partitions"}</button>
      <button disabled=${!shown.length} onClick=${() => save(`${topic}.jsonl`, shown.map((record) => `${JSON.stringify(record)}\n`).join(""))}>Save as JSON lines</button>
      ${!isLive && !search.isOpen && data?.records.length === LIMIT && html`<button onClick=${() => setFrom(String(data.next_offset))}>Next ${LIMIT}</button>`}
    </div>
    ${search.isOpen && html`<${SearchState} search=${search} />`}
    <p class="dim">${search.isOpen ? "" : isLive ? (live.isCut ? "The broker does not answer; the tail continues from where it was." : "Records appear as they are written.")
      : data && `Partition ${partition} has offsets ${count(data.start_offset)} to ${count(data.end_offset)}. A number below 0 counts from the end; a time is 2026-01-31, 2h or 1d.`}</p>
    <${Trouble} problem=${search.isOpen ? search.problem : problem ?? live.problem} />
    <${Table} rows=${shown} keyOf=${place} detail=${(record) => place(record) === open && html`<${RecordDetail} record=${record} />`} empty=${search.isOpen ? (search.isBusy ? "Nothing found yet." : "No record found.") : whyEmpty(records.length > 0, isLive, data)} columns=${[
      ["partition", (record) => record.partition, "number"],
      ["offset", (record) => html`<button class="plain" aria-expanded=${place(record) === open} title="Show the whole record"
        onClick=${() => setOpen(place(record) === open ? null : place(record))}>${count(record.offset)}</button>`, "number"],
      ["time", (record) => moment(record.timestamp), "time spare"],
      ["key", (record) => html`<${Content} content=${shownContent(record, "key")} />`, "text"],
      ["value", (record) => html`<${Content} content=${shownContent(record, "value")} />`, "text"],
      ["headers", (record) => record.headers.map((header) => html`<div><span class="tag">${header.key}</span> <${Content} content=${header.value} /></div>`), "text spare"],
    ]} />`;
}

/** What a search looks for: /a regular expression/, a condition on JSON, or a text of any case. */
function termsOf(text) {
  const expression = /^\/(.+)\/(i?)$/.exec(text);
  if (expression) return { regex: expression[1], ignore_case: expression[2] === "i" };
  if (CONDITION.test(text)) return { where: [text] };
  return { text, ignore_case: true };
}

const CONDITION = /^[\w.[\]-]+\s+(=|!=|<|<=|>|>=|contains)\s+\S/;

/** Which record of its topic it is. */
function place(record) {
  return `${record.partition}:${record.offset}`;
}

function whyEmpty(isFiltered, isLive, data) {
  if (isFiltered) return "No record here contains that.";
  if (isLive) return "Waiting for records.";
  return data ? "No records here." : "Reading …";
}

function matches(record, filter) {
  return !filter || JSON.stringify([record.key, record.value, record.headers, record.decoded]).toLowerCase().includes(filter.toLowerCase());
}

/** The latest records of a topic, newest first. The browser connects again by itself and says where it was. */
function useTail(topic) {
  const [state, setState] = useState({ records: [], problem: null, isCut: false });
  const waiting = useRef([]);
  useEffect(() => {
    if (!topic) return undefined;
    setState({ records: [], problem: null, isCut: false });
    let source;
    let last = "";
    let again = 0;
    const open = () => {
      source = new EventSource(`/v1/topics/${name(topic)}/records?follow=true&${last ? `offsets=${name(last)}` : "offset=-20"}`);
      source.onopen = () => setState((before) => ({ ...before, isCut: false, problem: null }));
      source.onmessage = (event) => {
        if (event.lastEventId) last = event.lastEventId;
        waiting.current.push(JSON.parse(event.data));
      };
      source.addEventListener("problem", (event) => {
        source.close();
        setState((before) => ({ ...before, problem: new Problem(0, JSON.parse(event.data).error) }));
      });
      source.onerror = () => {
        setState((before) => ({ ...before, isCut: true }));
        if (source.readyState === EventSource.CLOSED) again = setTimeout(open, 1000);
      };
    };
    // A burst is one change of the page, not thousands.
    const showing = setInterval(() => {
      if (!waiting.current.length) return;
      const fresh = waiting.current.reverse();
      waiting.current = [];
      setState((before) => ({ ...before, records: [...fresh, ...before.records].slice(0, SHOWN_MAX) }));
    }, 200);
    open();
    return () => {
      source.close();
      clearInterval(showing);
      clearTimeout(again);
    };
  }, [topic]);
  return state;
}
