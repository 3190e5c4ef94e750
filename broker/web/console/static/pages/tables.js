// Tables: schema, attributes, tablets with their mount states, rows; mounting where pages may change something.
import { html, useState } from "/console/vendor/htm-preact.js";
import { exact, name, useDoor, useRights } from "/console/doors.js";
import { Fed } from "/console/pages/fed.js";
import { SortedInside } from "/console/pages/inside.js";
import { address } from "/console/pages/sql.js";
import { Change, Content, Facts, Pager, Table, Trouble } from "/console/parts.js";
import { bytes, count } from "/console/units.js";

const LIMIT = 100;
const VERBS = [["mount", "Mount"], ["unmount", "Unmount"], ["freeze", "Freeze"], ["unfreeze", "Unfreeze"], ["remount", "Remount"]];
const KINDS = { mounted: "good", frozen: "warn", unmounted: "dim" };

export function Tables() {
  const [trail, setTrail] = useState([]);
  const after = trail[trail.length - 1];
  const { data, problem } = useDoor(`/v1/tables?limit=${LIMIT}${after ? `&after=${name(after)}` : ""}`, 3);
  return html`<h2>Tables</h2><${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(table) => table.name} rows=${data.tables} empty=${html`No table yet. Create one: <code>pqbroker table create //shop/orders --column id:int64:required --column note:utf8</code>`} columns=${[
      ["table", (table) => html`<a href=${`#/tables/${name(table.name)}`}>${table.path}</a>`, "name"], ["tablets", (table) => count(table.tablet_count), "number"],
      ["state", (table) => html`<${State} state=${table.state} />`], ["bundle", (table) => table.bundle],
      ["kind", kind], ["topic", (table) => (isTopic(table) ? topicLink(table) : html`<span class="dim">none</span>`), "name"],
    ]} /><${Pager} trail=${trail} next=${data.next} go=${setTrail} />`}`;
}

function kind(table) {
  return table.sorted ? "sorted" : table.dynamic ? "ordered" : "static";
}

function isTopic(table) {
  return table.dynamic && !table.sorted;
}

function topicLink(table) {
  return html`<a href=${`#/topics/${name(table.name)}`}>${table.name}</a>`;
}

// Columns that the rows of a sorted table are found by.
function keys(table) {
  return table.schema.filter((column) => column.sort_order).map((column) => column.name);
}

function State({ state }) {
  return html`<span class=${KINDS[state] ?? "warn"}>${state}</span>`;
}

export function OneTable({ table }) {
  const path = `/v1/tables/${name(table)}`;
  const { data, problem, reload } = useDoor(path, 3);
  const tablets = useDoor(data && !data.sorted ? `${path}/tablets?limit=${LIMIT}` : "", 2);
  const writes = useRights({ topic: table }).may("topic", "alter");
  const changed = () => { reload(); tablets.reload(); };
  return html`<div class="crumbs"><a href="#/tables">Tables</a></div><h2>${data?.path ?? table}</h2><${Trouble} problem=${problem} />
    ${data && html`<${Facts} facts=${[
      data.sorted ? ["sorted by", keys(data).join(", ")] : ["topic", isTopic(data) ? topicLink(data) : "none"], ["state", html`<${State} state=${data.state} />`], ["bundle", data.bundle],
      ["tablets", count(data.tablet_count)], ["rows", html`<a href=${address(`SELECT * FROM "${data.name}" LIMIT 50`)}>query them with SQL</a>`],
    ]} />
    ${writes && html`<div class="bar">${VERBS.map(([verb, label]) => html`<${Change} key=${verb} label=${label} quiet danger=${verb === "unmount"} confirm=${verb === "unmount" ? table : null} method="POST" path=${`${path}/${verb}`} body=${{}} done=${changed} />`)}</div>`}
    ${data.sorted && html`<${Fed} of="table" named=${data.name} />`}
    ${data.sorted && html`<${SortedInside} path=${path} />`}
    <h3>Columns</h3><${Columns} table=${data} />
    ${!data.sorted && html`<h3>Tablets</h3><${Trouble} problem=${tablets.problem} />${tablets.data && html`<${Tablets} table=${data} tablets=${tablets.data} />`}`}
    ${isTopic(data) && html`<${Consumers} table=${data.name} />`}
    <h3>Attributes</h3><${Attributes} table=${data} />
    <h3>Rows</h3>${isTopic(data) ? html`<${Rows} key=${table} path=${path} schema=${data.schema} tablets=${data.tablet_count} />` : html`<${Elsewhere} table=${data} />`}`}`;
}

function Columns({ table }) {
  return html`<${Table} keyOf=${(column) => column.name} rows=${table.schema} empty="None." columns=${[
    ["name", (column) => html`<code>${column.name}</code>`, "name"], ["type", (column) => html`<code>${column.type}</code>`],
    ["required", (column) => (column.required ? "yes" : "no")], table.sorted ? ["sorted", (column) => column.sort_order ?? ""] : ["stored in", (column) => `the record's ${column.from}`],
  ]} />`;
}

// Ways to the rows of a table that has no row indexes.
function Elsewhere({ table }) {
  const key = keys(table).map((title) => `${title}=…`).join(",");
  return html`<p>${table.sorted && html`Look one up: <code>pqbroker table lookup ${table.name} ${key}</code>. `}<a href=${address(`SELECT * FROM "${table.name}" LIMIT 50`)}>Query them with SQL.</a></p>`;
}

function Tablets({ table, tablets }) {
  return html`<${Table} keyOf=${(one) => one.index} rows=${tablets.tablets} empty="None." columns=${[
      ["index", (one) => html`<a href=${`#/topics/${name(table.name)}/partitions/${one.index}`}>${one.index}</a>`, "number", (one) => one.index],
      ["tablet", (one) => html`<a href=${`#/tablets/${one.tablet_id}`}>${one.tablet_id}</a>`, "number"],
      ["state", (one) => html`<${State} state=${one.state} />`, "", (one) => one.state],
      ["cell", (one) => one.cell_id ?? html`<span class="dim" title="where its data stays">${one.home_cell_id}</span>`],
      ["trimmed", (one) => count(one.trimmed_row_count), "number", (one) => one.trimmed_row_count],
      ["flushed", (one) => count(one.flushed_row_count), "number", (one) => one.flushed_row_count],
      ["rows end at", (one) => count(one.total_row_count), "number", (one) => one.total_row_count],
      ["size", (one) => bytes(one.statistics.compressed_data_size), "number", (one) => one.statistics.compressed_data_size],
      ["memory", (one) => bytes(one.statistics.memory_size), "number", (one) => one.statistics.memory_size],
      ["chunks", (one) => count(one.statistics.chunk_count), "number", (one) => one.statistics.chunk_count],
      ["stores", (one) => count(one.statistics.store_count), "number", (one) => one.statistics.store_count],
      ["acts otherwise", (one) => html`<span class="warn">${others(table.attributes, one.mounted_attributes)}</span>`, "text"],
    ]} />${tablets.next !== null && html`<p class="dim">The first ${tablets.tablets.length} are shown.</p>`}`;
}

// Attributes of a tablet that are not as they are set.
function others(set, acting) {
  return Object.keys(acting).filter((title) => JSON.stringify(set[title]) !== JSON.stringify(acting[title])).map((title) => `${title}=${acting[title]}`).join(" ");
}

// Consumers of the table as a queue, where each stands in the first tablets, and what auto trim keeps.
function Consumers({ table }) {
  const { data, problem } = useDoor(`/v1/queues/${name(table)}`, 3);
  const trim = data?.auto_trim_config;
  const kept = trim && [["rows", trim.retained_rows], ["ms", trim.retained_lifetime_duration]].filter(([, most]) => most !== null).map(([unit, most]) => `${count(most)} ${unit}`);
  return html`<h3>Consumers</h3><${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(one) => one.consumer} rows=${data.consumers} empty=${html`None. Register one: <code>pqbroker queue register ${table} CONSUMER</code>`} columns=${[
      ["consumer", (one) => html`<a href=${`#/groups/${name(one.consumer)}`}>${one.consumer}</a>`, "name"], ["vital", (one) => (one.vital ? "yes" : "no")],
      ["unread rows by tablet", (one) => html`<${Places} table=${table} consumer=${one.consumer} />`, "text"],
    ]} /><p class="dim">Auto trim: ${trim.enable ? `on${kept.length ? `, keeps ${kept.join(" and ")}` : ""}` : "off"}.</p>`}`;
}

const PLACES = 10;

function Places({ table, consumer }) {
  const { data, problem } = useDoor(`/v1/queues/${name(table)}/consumers/${name(consumer)}?limit=${PLACES}`, 3);
  const shown = (one) => html`<span class=${one.disposition === "expired" || one.disposition === "ahead" ? "warn" : ""} title=${`tablet ${one.tablet_index} at row ${one.offset ?? 0}: ${one.disposition}`}>${count(one.unread_row_count)} </span>`;
  return html`${problem && html`<span class="dim">unknown</span>`}${data?.tablets.map(shown)}${data && data.next !== null ? "…" : ""}`;
}

function Attributes({ table }) {
  const rows = Object.keys(table.attributes).map((title) => ({ title, set: table.attributes[title], acting: table.mounted_attributes[title], agrees: title in table.mounted_attributes }));
  const differs = (row) => JSON.stringify(row.set) !== JSON.stringify(row.acting);
  return html`<${Table} keyOf=${(row) => row.title} rows=${rows} empty="None." columns=${[
    ["name", (row) => html`<code>${row.title}</code>`, "name"], ["set", (row) => JSON.stringify(row.set), "text"],
    ["acts", (row) => html`<span class=${differs(row) ? "warn" : "dim"}>${row.agrees ? JSON.stringify(row.acting) : "differs by tablet"}${differs(row) ? ", until the next remount" : ""}</span>`, "text"],
  ]} />`;
}

function Rows({ path, schema, tablets }) {
  const [tablet, setTablet] = useState("0");
  const [from, setFrom] = useState("0");
  const { data, problem } = useDoor(`${path}/rows?tablet_index=${tablet}&first_row_index=${name(from)}&limit=${LIMIT}`, 1e9, exact);
  const cell = (value) => (typeof value === "object" ? html`<${Content} content=${value} />` : String(value ?? ""));
  const named = (title) => [title, (row) => cell(row[title] ?? null), "text"];
  return html`<div class="bar"><label>tablet <select value=${tablet} onChange=${(event) => setTablet(event.target.value)}>
        ${Array.from({ length: Math.min(tablets, 1000) }, (_, at) => html`<option value=${String(at)}>${at}</option>`)}</select></label>
      <label>from row <input size="10" inputmode="numeric" value=${from} onChange=${(event) => setFrom(event.target.value.trim() || "0")} /></label>
      ${data?.rows.length === LIMIT && html`<button onClick=${() => setFrom(String(data.next_row_index))}>Next ${LIMIT}</button>`}</div>
    <${Trouble} problem=${problem} />
    ${data && html`<${Table} keyOf=${(row) => row.$row_index} rows=${data.rows} empty="No rows here." columns=${[
      ["$row_index", (row) => count(row.$row_index), "number"], ...schema.map((column) => named(column.name)),
      ...(data.rows.some((row) => row.$error) ? [["$error", (row) => html`<span class="bad">${row.$error ?? ""}</span>`, "text"]] : []),
    ]} />`}`;
}
