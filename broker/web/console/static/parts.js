// Pieces that pages share.
import { html, useEffect, useRef, useState } from "/console/vendor/htm-preact.js";
import uPlot from "/console/vendor/uplot.js";
import { ask } from "/console/doors.js";
import { count, inJson } from "/console/units.js";

export function Trouble({ problem }) {
  if (!problem) return null;
  return html`<div class="problem" role="alert"><b>${problem.code ?? "ERROR"}</b> ${problem.message}<br />
    <span class="dim">${problem.cure ?? ""}</span></div>`;
}

export function Empty({ children }) {
  return html`<div class="empty">${children}</div>`;
}

/**
 * `columns`: [title, row => cell, "number" | "text" | "name" | "time" | "", row => what the column sorts by].
 * `detail`: row => more about it, which stands below it, or null. Sort only what is shown whole: pages are the broker's.
 */
export function Table({ columns, rows, empty, keyOf, detail }) {
  const [order, setOrder] = useState({ at: null, isDown: false });
  if (!rows.length) return html`<${Empty}>${empty}<//>`;
  const key = keyOf ?? ((row) => rows.indexOf(row));
  const turn = (at) => setOrder((before) => (before.at !== at ? { at, isDown: false } : before.isDown ? { at: null } : { at, isDown: true }));
  return html`<div class="wide"><table>
    <thead><tr>${columns.map(([title, , kind, value], at) => html`<th class=${kind ?? ""} scope="col"
      aria-sort=${order.at === at ? (order.isDown ? "descending" : "ascending") : null}>
      ${value ? html`<button class="plain" onClick=${() => turn(at)}>${title}</button>` : title}</th>`)}</tr></thead>
    <tbody>${sorted(rows, columns[order.at]?.[3], order.isDown).map((row) => {
      const more = detail?.(row) ?? null;
      return [
        html`<tr key=${key(row)}>${columns.map(([, cell, kind]) => html`<td class=${kind ?? ""}>${cell(row)}</td>`)}</tr>`,
        more && html`<tr key=${`${key(row)} more`}><td class="detail" colspan=${columns.length}>${more}</td></tr>`,
      ];
    })}</tbody>
  </table></div>`;
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

/** Hours and minutes of a time in seconds. */
function clock(seconds) {
  const time = new Date(seconds * 1000);
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

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
      axes: [{ ...axis, size: 28, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => show(tick)) }],
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
