// Pieces that pages share.
import { html, useEffect, useRef, useState } from "/console/vendor/htm-preact.js";
import uPlot from "/console/vendor/uplot.js";
import { ask } from "/console/doors.js";
import { bytes, count, inJson } from "/console/units.js";

export function Trouble({ problem }) {
  if (!problem) return null;
  return html`<div class="problem" role="alert"><b>${problem.code ?? "ERROR"}</b> ${problem.message}<br />
    <span class="dim">${problem.cure ?? ""}</span></div>`;
}

export function Empty({ children }) {
  return html`<div class="empty">${children}</div>`;
}

/**
 * `columns`: [title, row => cell, "number" | "text" | "name" | "time" | "", row => what the column sorts by, its name in `sort`].
 * Classes beside the kind: "spare" is left out on a phone. `detail`: row => more about it, which stands below it, or null.
 * `order`, of useOrder: the broker sorts all there is. Without it the rows shown are sorted here: do that for whole lists.
 */
export function Table({ columns, rows, empty, keyOf, detail, order }) {
  const [own, setOwn] = useState({ at: null, isDown: false });
  if (!rows.length) return html`<${Empty}>${empty}<//>`;
  const key = keyOf ?? ((row) => rows.indexOf(row));
  const turn = (at) => setOwn((before) => (before.at !== at ? { at, isDown: false } : before.isDown ? { at: null } : { at, isDown: true }));
  const head = ([title, , kind, value, sort], at) => {
    const isSorted = order ? sort !== undefined && order.by === sort : own.at === at;
    const isDown = order ? order.isDown : own.isDown;
    const act = order ? () => order.turn(sort, /number/.test(kind)) : () => turn(at);
    return html`<th class=${kind ?? ""} scope="col" aria-sort=${isSorted ? (isDown ? "descending" : "ascending") : null}>
      ${(order ? sort : value) ? html`<button class="plain" onClick=${act}>${title}</button>` : title}</th>`;
  };
  return html`<div class="wide"><table>
    <thead><tr>${columns.map(head)}</tr></thead>
    <tbody>${sorted(rows, order ? null : columns[own.at]?.[3], own.isDown).map((row) => {
      const more = detail?.(row) ?? null;
      return [
        html`<tr key=${key(row)}>${columns.map(([, cell, kind]) => html`<td class=${kind ?? ""}>${cell(row)}</td>`)}</tr>`,
        more && html`<tr key=${`${key(row)} more`}><td class="detail" colspan=${columns.length}>${more}</td></tr>`,
      ];
    })}</tbody>
  </table></div>`;
}

/** How the broker sorts a list: figures from the greatest at first, then from the least, then by name again. */
export function useOrder(changed) {
  const [{ by, isDown }, set] = useState({ by: null, isDown: false });
  const turn = (sort, isFigure) => {
    const first = Boolean(isFigure);
    set(by !== sort ? { by: sort, isDown: first } : isDown === first ? { by: sort, isDown: !first } : { by: null, isDown: false });
    changed?.();
  };
  const query = by === null ? {} : { sort: by, order: isDown ? "descending" : "ascending" };
  return { by, isDown, turn, query };
}

/** How much figures of rows rose a second between the last two looks: Map of key to {field: rate}; none where one fell. */
export function useRises(rows, keyOf, fields) {
  const last = useRef(new Map());
  const [rises, setRises] = useState(new Map());
  useEffect(() => {
    if (!rows) return;
    const now = Date.now(), found = new Map(), next = new Map();
    for (const row of rows) {
      const key = keyOf(row);
      const before = last.current.get(key);
      const seconds = before ? (now - before.now) / 1000 : 0;
      const rise = (field) => (row[field] === null || before.row[field] === null || row[field] < before.row[field] ? null : (row[field] - before.row[field]) / seconds);
      if (seconds > 0) found.set(key, Object.fromEntries(fields.map((field) => [field, rise(field)])));
      next.set(key, { now, row });
    }
    last.current = next;
    setRises(found);
  }, [rows]);
  return rises;
}

function sorted(rows, value, isDown) {
  if (!value) return rows;
  const sign = isDown ? -1 : 1;
  return [...rows].sort((one, other) => sign * (value(one) < value(other) ? -1 : value(one) > value(other) ? 1 : 0));
}

export function Facts({ facts }) {
  return html`<dl>${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

export function Tile({ value, name, kind }) {
  return html`<div class="tile"><b class=${kind ?? ""}>${value}</b><span>${name}</span></div>`;
}

/** Pages of a list door: `next` is the name behind which the next page begins. */
export function Pager({ trail, next, go }) {
  if (!trail.length && next === null) return null;
  return html`<div class="bar">
    <button disabled=${!trail.length} onClick=${() => go(trail.slice(0, -1))}>Back</button>
    <button disabled=${next === null} onClick=${() => go([...trail, next])}>Next</button>
  </div>`;
}

/** Labels of times in seconds: hours and minutes, with seconds where two are nearer than a minute. */
export function clocks(ticks) {
  const length = ticks.length > 1 && ticks[1] - ticks[0] < 60 ? 3 : 2;
  const two = (part) => String(part).padStart(2, "0");
  const clock = (time) => [time.getHours(), time.getMinutes(), time.getSeconds()].slice(0, length).map(two).join(":");
  return distinct(ticks.map((seconds) => clock(new Date(seconds * 1000))));
}

/** Labels, each once: ticks that are nearer to each other than their labels can say share the first one's. */
export function distinct(labels) {
  return labels.map((label, at) => (labels.indexOf(label) === at ? label : ""));
}

/** Steps between labels of sizes: 1, 2, 4 … bytes, so that labels are round in KiB and MiB. */
const SIZE_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** Changes whenever the page's colours do. */
function useColours() {
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const changed = () => setTurn((before) => before + 1);
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", changed);
    addEventListener("colours", changed);
    return () => {
      system.removeEventListener("change", changed);
      removeEventListener("colours", changed);
    };
  }, []);
  return turn;
}

/** A line over time, once there are two points. `times` in ms; a value may be null. */
export function Chart({ title, now, times, values, show }) {
  const place = useRef(null);
  const plot = useRef(null);
  const colours = useColours();
  useEffect(() => {
    const ink = getComputedStyle(document.documentElement);
    const colour = (name) => ink.getPropertyValue(name).trim();
    const axis = { stroke: colour("--dim"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const options = {
      width: Math.max(200, place.current.clientWidth), height: 130, legend: { show: false }, cursor: { y: false },
      scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
      axes: [
        { ...axis, size: 28, space: 64, values: (_, ticks) => clocks(ticks) },
        { ...axis, size: 62, ...(show === bytes && { incrs: SIZE_STEPS }), values: (plot, ticks) => (plot.data[0].length ? distinct(ticks.map((tick) => show(tick))) : ticks.map(() => "")) },
      ],
      series: [{}, { stroke: colour("--accent"), width: 1.5, fill: `${colour("--accent")}22`, points: { show: false } }],
    };
    plot.current = new uPlot(options, [[], []], place.current);
    const watch = new ResizeObserver(() => plot.current.setSize({ width: Math.max(200, place.current.clientWidth), height: 130 }));
    watch.observe(place.current);
    return () => {
      watch.disconnect();
      plot.current.destroy();
    };
  }, [colours]);
  useEffect(() => {
    if (times.length > 1) plot.current.setData([times.map((ms) => ms / 1000), values]);
  }, [times, values, colours]);
  return html`<div class="chart"><h3>${title} <b>${now}</b></h3><div ref=${place}></div></div>`;
}

const LETTERS_MAX = 2000;

/** Bytes of a record: text as it is, what is no text marked; the beginning of what is long. */
export function Content({ content }) {
  if (content === null || content === undefined) return html`<span class="dim">null</span>`;
  const isBinary = typeof content === "object" && "base64" in content;
  const text = typeof content === "string" ? content : isBinary ? content.base64 : JSON.stringify(content.json ?? content, inJson);
  return html`<pre>${isBinary && html`<span class="tag">base64</span> `}${text.slice(0, LETTERS_MAX)}${text.length > LETTERS_MAX
    && html`<span class="tag">… ${count(text.length)} letters in all</span>`}</pre>`;
}

/** Give the reader a file. */
export function save(file, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text]));
  link.download = file;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** A button that changes something; `confirm`: what must be typed first; `quiet`: one of several. */
export function Change({ label, path, method, body, confirm, danger, quiet, done }) {
  const [problem, setProblem] = useState(null);
  const [asked, setAsked] = useState(false);
  const [typed, setTyped] = useState("");
  const act = async () => {
    if (confirm && !asked) return setAsked(true);
    try {
      const answer = await ask(path, method, typeof body === "function" ? body() : body);
      setProblem(null);
      setAsked(false);
      setTyped("");
      done?.(answer);
    } catch (error) {
      setProblem(error);
    }
  };
  return html`<span class="bar">
    ${asked && html`<label>type <code>${confirm}</code> to confirm <input value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>`}
    <button class=${danger ? "danger" : quiet ? "" : "main"} disabled=${asked && typed !== confirm} onClick=${act}>${label}</button>
    ${asked && html`<button onClick=${() => setAsked(false)}>Cancel</button>`}
    <${Trouble} problem=${problem} />
  </span>`;
}
